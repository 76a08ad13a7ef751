/*
 * Readers and writers over a quorum of nodes.
 *
 * Claim: while a client counts itself as alone, no other one counts itself as holding the key, in whatever mode. A
 * writer's token is no other client's. Whoever asks after another acquisition was completed gets a larger token than
 * that one. Two readers that ask at once may have the same token.
 *
 * There is no time here: a claim is gone from a node only when its client counts on it no more, as it has released it or
 * its validity is over. That nodes forget, and how time bounds a lease, is in exclusion.pml, for both modes alike. The
 * steps in which a node grants a token are in fencing.pml.
 *
 * A node, each in one step:
 *   acquire:   alone, if nobody has the key; shared, if nobody has it alone. With a token larger than all it has
 *              granted.
 *   raise:     if the client has the key, in either mode, take a token at least as large as asked for.
 *   downgrade: if the client has the key alone, it shares it from now on.
 *   release:   the client does not have the key.
 *
 * A client asks the nodes in any order, at any pace, in one mode. With a majority it takes the largest token, has nodes
 * that granted a smaller one raise theirs, and holds the key when a majority granted the token or raised to it. A writer
 * may then ask for a downgrade, and counts itself as alone no more from before it asks; nodes hear of that in any order,
 * or never. It may stop at any point, and nodes hear of that in any order, or never if it asks for nothing any more.
 *
 * Checked by check.sh. Broken on purpose, for the check to find:
 *   -DREADERS_NEED=1       readers take fewer than a majority
 *   -DALONE_UNTIL_ANSWERED a writer counts itself as alone until a majority has confirmed its downgrade
 *   -DUPGRADES             a client that asks for the key alone counts nodes where it only shares it
 *   -DSHARES_ANYHOW        a node grants the key shared though another has it alone
 *   -DREADERS_RAISE_NOT    readers' tokens need no agreement: the largest drawn is taken
 * And each of these fails, as it has to be possible:
 *   -DWITNESS              two readers hold the key at once, with the same token
 *   -DWITNESS_DOWN         a reader holds it beside a writer that was downgraded
 */

#define N    3
#define NEED 2
#define C    2 /* clients */
#define TOP  64

#ifndef READERS_NEED
#define READERS_NEED NEED
#endif
#ifndef ROUNDS0
#define ROUNDS0 1 /* acquisitions of the first client; the other has one */
#endif

#define max(a, b) ((a) > (b) -> (a) : (b))
#define bit(c)    (1 << (c))

/* What a client counts itself as. */
#define NOTHING 0
#define READER  1
#define WRITER  2

byte alone[N];   /* who has the key alone; 0: nobody, c + 1: client c */
byte sharers[N]; /* who shares it, as bits */
byte fence[N];   /* the last token granted */
byte counts[C];

/* Not part of the system: what has happened, to state the claim. */
byte completed;
bool read[TOP], written[TOP];
byte tokens[C];
bool downgraded;

#define shares(n) ((sharers[n] & bit(me)) != 0)
#define has(n)    (alone[n] == me + 1 || shares(n))

inline draw(n, t) {
	fence[n] = max(fence[n] + 1, t);
	got[n] = fence[n]
}

inline acquire(n) {
	atomic {
		asked[n] = true;
		if
		:: !shared && alone[n] == 0 && sharers[n] == 0 ->
			alone[n] = me + 1;
			draw(n, 0)
#ifdef SHARES_ANYHOW
		:: shared ->
#else
		:: shared && alone[n] == 0 ->
#endif
			sharers[n] = sharers[n] | bit(me);
			draw(n, 0)
		:: else
		fi
	}
}

/* A node acknowledges the token if the client still has the key there. It always has: see above. */
inline raise(n) {
	atomic {
		assert(has(n));
		draw(n, token);
		got[n] = token
	}
}

inline downgrade(n) {
	atomic {
		if
		:: alone[n] == me + 1 ->
			alone[n] = 0;
			sharers[n] = sharers[n] | bit(me)
		:: else
		fi
	}
}

inline release(n) {
	atomic {
		if
		:: alone[n] == me + 1 -> alone[n] = 0
		:: else
		fi;
		sharers[n] = sharers[n] & ~bit(me);
		asked[n] = false
	}
}

#define grants  ((got[0] > 0) + (got[1] > 0) + (got[2] > 0))
#define largest max(got[0], max(got[1], got[2]))
#define acks    ((got[0] == token) + (got[1] == token) + (got[2] == token))
#define need    (shared -> READERS_NEED : NEED)

#define other(c)  (me != c && counts[c] != NOTHING)
#define writes(c) (me != c && counts[c] == WRITER)

inline exclusive() {
	assert(counts[me] != WRITER || !other(0) && !other(1));
	assert(!writes(0) && !writes(1))
}

inline complete() {
	atomic {
		assert(token > before);
		assert(!written[token] && (shared || !read[token]));
		if
		:: shared -> read[token] = true; counts[me] = READER
		:: else -> written[token] = true; counts[me] = WRITER
		fi;
		tokens[me] = token;
		got[0] = 0; got[1] = 0; got[2] = 0; before = 0;
		completed = max(completed, token);
		exclusive()
	}
#ifdef WITNESS
	assert(counts[0] != READER || counts[1] != READER || tokens[0] != tokens[1])
#endif
#ifdef WITNESS_DOWN
	assert(!downgraded || counts[0] != READER || counts[1] != READER)
#endif
}

proctype client(byte me; byte rounds) {
	byte before, token;
	byte got[N];
	bool asked[N];
	bool shared;

	do
	:: rounds == 0 -> break
	:: else ->
		atomic {
			rounds--;
			before = completed;
			token = 0
		};
		if
		:: shared = true
		:: shared = false
		fi;

		/* Asks, and holds when a majority has acknowledged a token. */
		do
		:: !asked[0] && token == 0 -> acquire(0)
		:: !asked[1] && token == 0 -> acquire(1)
		:: !asked[2] && token == 0 -> acquire(2)
		:: token == 0 && grants >= need -> token = largest
		:: token > 0 && acks < need && got[0] > 0 && got[0] < token -> raise(0)
		:: token > 0 && acks < need && got[1] > 0 && got[1] < token -> raise(1)
		:: token > 0 && acks < need && got[2] > 0 && got[2] < token -> raise(2)
#ifdef READERS_RAISE_NOT
		:: token > 0 && (acks >= need || shared) -> complete(); break
#else
		:: token > 0 && acks >= need -> complete(); break
#endif
		:: goto stop
		od;

#ifdef UPGRADES
		if
		:: shared -> atomic { counts[me] = WRITER; exclusive() }
		:: true
		fi;
#endif
		if
		:: shared -> goto stop
		:: true -> goto stop
		:: !shared
		fi;

		/* A downgrade. */
#ifndef ALONE_UNTIL_ANSWERED
		counts[me] = READER;
#endif
		downgraded = true;
		do
		:: alone[0] == me + 1 -> downgrade(0)
		:: alone[1] == me + 1 -> downgrade(1)
		:: alone[2] == me + 1 -> downgrade(2)
		:: shares(0) + shares(1) + shares(2) >= NEED -> counts[me] = READER; break
		:: break
		od;
stop:
		atomic { counts[me] = NOTHING; token = 0; before = 0; shared = false; got[0] = 0; got[1] = 0; got[2] = 0 };
		do
		:: asked[0] -> release(0)
		:: asked[1] -> release(1)
		:: asked[2] -> release(2)
		:: !asked[0] && !asked[1] && !asked[2] -> break
		od
	od
}

init {
	atomic {
		fence[2] = 2; /* they begin unequal */
		run client(0, ROUNDS0);
		run client(1, 1)
	}
}
