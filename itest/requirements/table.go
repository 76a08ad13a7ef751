package main

// requirement is one line of the table.
type requirement struct {
	id    string
	text  string
	limit []told // where users are told of it, if it is a limit; else nil
}

// told is a place where users are told of a limit.
type told struct {
	file  string // from the root of the repository
	words string // what it says there
}

// requirements are all there are, in their order.
var requirements = []requirement{
	{id: "R1", text: "At any moment no more than one client holds the lock."},
	{id: "R2", text: "A holder that crashed or was cut off does not block the lock for ever."},
	{id: "R3",
		text: "As long as a majority of the nodes is up, locks can be acquired and released."},
	{id: "R4",
		text: "A primary that fails before its replica has heard of a lock, and is replaced by it, gives two holders.",
		limit: []told{
			{file: "redishold/doc.go", words: "the lock is forgotten and can be granted twice"},
		}},
	{id: "R5",
		text: "On one node, to acquire is one atomic step that sets key, value and TTL if the key is free."},
	{id: "R6", text: "The value is unique over all clients and all their requests."},
	{id: "R7",
		text: "To release is one atomic step that compares the value, and never a plain delete."},
	{id: "R8", text: "A holder that outlived its lease does not remove the lock of the next one."},
	{id: "R9",
		text: "The TTL is both when the lock ends by itself and how long may be worked; the guarantee covers this window only."},
	{id: "R10",
		text: "The N nodes are independent of each other, with no replication between them."},
	{id: "R11", text: "The local time is read before the first request leaves."},
	{id: "R12", text: "All N nodes are tried, at the same time, with the same key and value."},
	{id: "R13",
		text: "The time that one node gets is small against the TTL, so a dead node delays nothing."},
	{id: "R14", text: "The lock is held if and only if a majority granted it and time is left."},
	{id: "R15", text: "What is left is the TTL less the time that acquiring took."},
	{id: "R16",
		text: "From that a drift allowance is taken off; the time runs from before the first contact to after the last answer."},
	{id: "R17",
		text: "A failed attempt releases all nodes, also those that are not believed to be locked."},
	{id: "R18",
		text: "A majority that took about the TTL or longer counts as a failure, and is released."},
	{id: "R19", text: "Clocks need not agree about the time, only run at about the same rate."},
	{id: "R20",
		text: "Work has to end within the validity: there is a deadline to be seen, and it is acted on."},
	{id: "R21", text: "The delay before another attempt is random."},
	{id: "R22", text: "That delay is clearly longer than it takes to get a majority."},
	{id: "R23", text: "Requests to N nodes go out together: one round trip, not N."},
	{id: "R24",
		text: "Whoever fails to get the majority frees its parts at once, and nobody has to wait for them to expire."},
	{id: "R25", text: "A release may be sent to any node, whether it is locked or not."},
	{id: "R26",
		text: "While the keys of a majority exist nobody else can win, and of those who try at the same time at most one does."},
	{id: "R27", text: "A holder that is cut off costs about a TTL of availability each time.",
		limit: []told{
			{file: "quorum/doc.go", words: "nobody gets the key for up to its TTL"},
		}},
	{id: "R28", text: "Partitions that go on and on may block the lock for ever.", limit: []told{
		{file: "doc.go", words: "A network that is cut again and again can keep everybody from acquiring a key"},
		{file: "quorum/doc.go",
			words: "that happens again and again, nobody may ever get it"},
	}},
	{id: "R29",
		text: "A node that restarts without its data breaks exclusion if nothing keeps it from taking part.",
		limit: []told{
			{file: "quorum/options.go",
				words: "restarts without its data can grant a lock that is still held"},
			{file: "redishold/redlock/doc.go",
				words: "has forgotten the leases that it granted, and could grant a key that is still held"},
		}},
	{id: "R30",
		text: "An orderly shutdown with an append-only file keeps the locks, whose TTL goes on while the node is off."},
	{id: "R31",
		text: "With fsync every second a power failure can lose a lock; only fsync always survives any restart.",
		limit: []told{
			{file: "redishold/doc.go", words: "can lose those of the last second in a power failure"},
		}},
	{id: "R32",
		text: "Delayed restart: after a crash a node takes no part for a little more than the largest TTL; this is safe without persistence."},
	{id: "R33",
		text: "When a majority crashed and restarts delayed, nothing can be locked for as long.",
		limit: []told{
			{file: "quorum/options.go",
				words: "grant nothing until the guard is over"},
		}},
	{id: "R34",
		text: "An extension is done on every node where the key exists with the value of the holder, and nowhere else."},
	{id: "R35", text: "A lock is extended only if a majority did so while it was valid."},
	{id: "R36", text: "The number of extensions can be limited."},
	{id: "R37", text: "That its process lives is no proof of a lock: a loss is found and told."},
	{id: "R38", text: "Every acquisition has a fencing token, and they rise."},
	{id: "R39", text: "A wall clock that is set forward on a node can give two holders.",
		limit: []told{
			{file: "quorum/doc.go",
				words: "a node whose clock is set forward ends leases early"},
			{file: "redishold/redlock/doc.go",
				words: "A server whose clock is set forward ends its leases early"},
		}},
	{id: "K1",
		text: "The clock of one node jumps forward while two others are out of reach: two holders.",
		limit: []told{
			{file: "quorum/doc.go",
				words: "a node whose clock is set forward ends leases early"},
			{file: "redishold/redlock/doc.go",
				words: "the servers that could object cannot be reached, a lock is then granted twice"},
		}},
	{id: "K2",
		text: "A pause between the requests and their answers: the lock is refused when the time is read again."},
	{id: "K3",
		text: "A pause after that check: the write comes too late, and whoever guards the store refuses it by its token.",
		limit: []told{
			{file: "doc.go", words: "A process can be paused just after it has checked its lock"},
		}},
	{id: "K4",
		text: "A write that is under way for longer than the lease: refused by its token, too.",
		limit: []told{
			{file: "doc.go", words: "its write can take longer than the lease"},
		}},
	{id: "K5", text: "The clock of a node jumps back: leases end late, and nothing else happens."},
	{id: "K6",
		text: "The holder's host is suspended: the time counts, and the lock has ended when it wakes up."},
}
