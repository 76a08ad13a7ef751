/*
 * Exclusion over a quorum of nodes that may forget, or come back with whatever data, at any moment.
 *
 * Claim: at no tick do two clients count themselves as holders. Time goes by in ticks; a node's lease, a client's
 * validity and a node's uptime are counted by them, so the search has no bound on rounds, renewals or restarts. The
 * theorem that this is to bear out, with all its assumptions, is in README.md.
 *
 * A node, each in one step, and refusing what comes within the guard after its restart:
 *   acquire: if nobody has the key, or the client has, it is the client's for its TTL.
 *   renew:   if the key is the client's, it is for another TTL.
 *   release: if the key is the client's, nobody has it. Also within the guard.
 *   restart: the key is nobody's, or anybody's for any time up to the longest TTL (older data), or as it was.
 *
 * A client asks the nodes in any order, at any pace. With a majority it holds for its TTL, counted from before its
 * first request. It renews in the same way, and its validity moves when a majority has renewed and the old one has not
 * ended. It sets the key again on nodes that have lost it, late as well: whether its validity has ended then does not
 * matter here, as it counts nothing for it. It may stop at any point, and releases on any nodes, at any later time
 * before it begins anew, or never. Answers take any time, since what a client does with them may be
 * any time later.
 *
 * Checked by check.sh. Broken on purpose, or with an assumption that does not hold, for the check to find:
 *   -DNO_QUARANTINE     a node takes part as soon as it is back
 *   -DEXEMPT_NEW        a node is exempt from that if it is durable now
 *   -DEXEMPT_OLD        or if its last run was: that may have been in quarantine itself
 *   -DRESTART_UNSEEN    a node has other data and nobody sees that it was away: it was a replica for a while, or a
 *                       proxy has kept the connections
 *   -DMEMORY -DSINCE_BEFORE a node that finds its data gone counts from the restart that was seen last
 *   -DTTL_B=1 -DGUARD_B=1   a client's guard is shorter than the other one's TTL
 *   -DNODES_A=1 -DNEED_A=1  a client has a set of one node, the other one of three
 *                       with -DMARKS nodes remember whose set they belong to, and refuse others until they forget: that
 *                       is no substitute, as long as a majority may forget or never knew
 *   -DEVICTION          a node that runs on drops a key: evicted, deleted, or its clock set forward
 *   -DHEAL_STEALS       healing does not look whether another has the key
 *   -DRENEW_STEALS      nor does a renewal
 *   -DFROM_ANSWER       validity is counted from the last answer
 *   -DRENEW_FROM_ANSWER and only that of a renewal
 * Without a violation:
 *   -DMEMORY            nobody sees that a node is away, and other data come without the record of since when it has had
 *                       them. It makes one when it is next asked, and counts from then
 *   -DEXEMPT_CHAIN      a node is exempt if its last run was durable, and took part
 *   -DNODES_A=2         a client's set has one node less: majorities of both still have one in common
 * And -DWITNESS fails if a renewal extends a validity, which has to be possible.
 */

#define N 3

#if defined(EXEMPT_NEW) || defined(EXEMPT_OLD) || defined(EXEMPT_CHAIN)
#define EXEMPTS
#endif

#ifndef TTL_A
#define TTL_A 2
#endif
#ifndef TTL_B
#define TTL_B 2
#endif
#define TTL_MAX (TTL_A > TTL_B -> TTL_A : TTL_B)
#ifndef GUARD_A
#define GUARD_A 2
#endif
#ifndef GUARD_B
#define GUARD_B GUARD_A
#endif
#define GUARD_MAX (GUARD_A > GUARD_B -> GUARD_A : GUARD_B)
#ifndef NODES_A
#define NODES_A 3 /* a client's nodes are the first ones */
#endif
#ifndef NEED_A
#define NEED_A 2
#endif
#ifndef NODES_B
#define NODES_B 3
#endif
#ifndef NEED_B
#define NEED_B 2
#endif

#define A 0
#define B 1
#define ttl(c)   (c == A -> TTL_A : TTL_B)
#define guard(c) (c == A -> GUARD_A : GUARD_B)
#define nodes(c) (c == A -> NODES_A : NODES_B)
#define need(c)  (c == A -> NEED_A : NEED_B)

#define IDLE     0
#define ASKING   1
#define HOLDING  2
#define RENEWING 3

/* Nodes. */
byte owner[N];     /* 0: nobody; else 1 more than the client */
byte lease[N];     /* ticks left of it */
byte up[N];        /* ticks since the restart that is seen, up to the longest guard */
#ifdef EXEMPTS
bool durable[N];   /* this run keeps all it has stored */
bool exempt[N];
#endif
#ifdef MEMORY
bool blank[N];     /* it has no record of since when it has had its data */
#endif
#ifdef MARKS
byte mark[N];      /* whose set it belongs to; 0: nobody's */
#endif

/* Clients. */
byte phase[2];
byte elapsed[2];   /* ticks since the first request, up to the TTL */
bool asked[2 * N]; /* by client and node */
byte got[2];       /* how many have granted or renewed */
byte valid[2];     /* ticks left of the client's own validity */

byte swap;

#define of(c, n) (c * N + n)

#if defined(NO_QUARANTINE)
#define votes(c, n) true
#elif defined(EXEMPTS)
#define votes(c, n) (up[n] >= guard(c) || exempt[n])
#elif defined(MEMORY)
#define votes(c, n) (up[n] >= guard(c) && !blank[n])
#elif defined(MARKS)
#define votes(c, n) (up[n] >= guard(c) && (mark[n] == 0 || mark[n] == c + 1))
#else
#define votes(c, n) (up[n] >= guard(c))
#endif

inline begin(c, what) {
	phase[c] = what;
	elapsed[c] = 0;
	got[c] = 0;
	asked[of(c, 0)] = (nodes(c) <= 0);
	asked[of(c, 1)] = (nodes(c) <= 1);
	asked[of(c, 2)] = (nodes(c) <= 2)
}

inline rest(c, what) {
	begin(c, what);
	asked[of(c, 0)] = 0;
	asked[of(c, 1)] = 0;
	asked[of(c, 2)] = 0
}

inline ask(c, n) {
	asked[of(c, n)] = true;
#ifdef MEMORY
	if
	:: blank[n] ->
		blank[n] = false;
#ifndef SINCE_BEFORE
		up[n] = 0
#endif
	:: else
	fi;
#endif
	if
	:: !votes(c, n)
	:: else ->
		if
		:: phase[c] == ASKING && owner[n] == 0 -> take(c, n); got[c]++
		:: owner[n] == c + 1 -> take(c, n); got[c]++
#ifdef RENEW_STEALS
		:: phase[c] == RENEWING && owner[n] != c + 1 -> take(c, n); got[c]++
#endif
		:: else
		fi
	fi
}

inline take(c, n) {
	owner[n] = c + 1;
#ifdef MARKS
	mark[n] = c + 1;
#endif
	lease[n] = ttl(c)
}

inline hold(c) {
#if defined(FROM_ANSWER)
	valid[c] = (phase[c] == ASKING -> ttl(c) : ttl(c) - elapsed[c]);
#elif defined(RENEW_FROM_ANSWER)
	valid[c] = (phase[c] == RENEWING -> ttl(c) : ttl(c) - elapsed[c]);
#else
	valid[c] = ttl(c) - elapsed[c];
#endif
#ifdef WITNESS
	assert(phase[c] != RENEWING);
#endif
	rest(c, HOLDING);
	assert(valid[A] == 0 || valid[B] == 0)
}

/* What else the data can be after a restart. */
inline becomes(n, who, left) {
	owner[n] = who;
	lease[n] = left
}

inline pass(x) {
	x = (x > 0 -> x - 1 : 0)
}

inline tick() {
	pass(lease[0]); pass(lease[1]); pass(lease[2]);
	owner[0] = (lease[0] -> owner[0] : 0);
	owner[1] = (lease[1] -> owner[1] : 0);
	owner[2] = (lease[2] -> owner[2] : 0);
	up[0] = (up[0] < GUARD_MAX -> up[0] + 1 : up[0]);
	up[1] = (up[1] < GUARD_MAX -> up[1] + 1 : up[1]);
	up[2] = (up[2] < GUARD_MAX -> up[2] + 1 : up[2]);
	pass(valid[A]); pass(valid[B]);
	lapse(A); lapse(B)
}

/* What has taken a whole TTL comes to nothing. */
inline lapse(c) {
	if
	:: phase[c] == ASKING || phase[c] == RENEWING ->
		elapsed[c]++;
		if
		:: elapsed[c] < ttl(c)
		:: else ->
			if
			:: phase[c] == ASKING -> rest(c, IDLE)
			:: else -> rest(c, HOLDING)
			fi
		fi
	:: else
	fi
}

/*
 * Which node is which does not matter as long as clients have the same ones, so they are kept in order: a sixth of
 * the states.
 */
#ifdef EXEMPTS
#define kept(n) (durable[n] + 2 * exempt[n])
#elif defined(MEMORY)
#define kept(n) blank[n]
#elif defined(MARKS)
#define kept(n) mark[n]
#else
#define kept(n) 0
#endif
#define rank(n) (owner[n] + 4 * (lease[n] + 8 * (up[n] + 8 * (asked[of(A, n)] + 2 * asked[of(B, n)] + 4 * kept(n)))))

inline exchange(x, y) {
	swap = x; x = y; y = swap
}

inline order(n, m) {
	if
	:: rank(n) > rank(m) ->
		exchange(owner[n], owner[m]);
		exchange(lease[n], lease[m]);
		exchange(up[n], up[m]);
		exchange(asked[of(A, n)], asked[of(A, m)]);
		exchange(asked[of(B, n)], asked[of(B, m)]);
#ifdef EXEMPTS
		exchange(durable[n], durable[m]);
		exchange(exempt[n], exempt[m]);
#endif
#ifdef MEMORY
		exchange(blank[n], blank[m]);
#endif
#ifdef MARKS
		exchange(mark[n], mark[m]);
#endif
		swap = 0
	:: else
	fi
}

inline sort() {
#if NODES_A != 1
	order(0, 1);
#endif
#if NODES_A != 2
	order(1, 2);
#endif
#if NODES_A == 3
	order(0, 1);
#endif
	skip
}

#define CLIENT(c) \
	:: d_step { phase[c] == IDLE -> begin(c, ASKING); sort() } \
	:: d_step { phase[c] == HOLDING && valid[c] -> begin(c, RENEWING); sort() } \
	:: d_step { phase[c] == ASKING && got[c] >= need(c) -> hold(c); sort() } \
	:: d_step { phase[c] == RENEWING && got[c] >= need(c) && valid[c] -> hold(c); sort() } \
	:: d_step { phase[c] != IDLE -> valid[c] = 0; rest(c, IDLE); sort() }

#ifdef HEAL_STEALS
#define lacks(c, n) (owner[n] != c + 1)
#else
#define lacks(c, n) (owner[n] == 0)
#endif

#define AT(c, n) \
	:: d_step { (phase[c] == ASKING || phase[c] == RENEWING) && !asked[of(c, n)] -> ask(c, n); sort() } \
	:: d_step { phase[c] == HOLDING && n < nodes(c) && votes(c, n) && lacks(c, n) -> take(c, n); sort() } \
	:: d_step { phase[c] == IDLE && owner[n] == c + 1 -> becomes(n, 0, 0); sort() }

/* The node is back, with other data. */
#if defined(EXEMPT_NEW)
#define back(n, next) up[n] = 0; durable[n] = next; exempt[n] = next
#elif defined(EXEMPTS)
#define back(n, next) up[n] = 0; durable[n] = next; exempt[n] = false
#elif defined(MARKS)
#define back(n, next) up[n] = 0; mark[n] = (owner[n] -> mark[n] : 0)
#elif defined(MEMORY)
#define back(n, next) blank[n] = true
#elif defined(RESTART_UNSEEN)
#define back(n, next) skip
#else
#define back(n, next) up[n] = 0
#endif

/* The node is back, with all that its durable run had. */
#if defined(EXEMPT_OLD)
#define remembers(n) exempt[n] = true; up[n] = 0
#elif defined(EXEMPT_CHAIN)
#define remembers(n) exempt[n] = exempt[n] || up[n] >= GUARD_MAX; up[n] = 0
#elif defined(EXEMPT_NEW)
#define remembers(n) up[n] = 0
#endif

#ifdef EXEMPTS
#define forgets(n) !durable[n]
#else
#define forgets(n) true
#endif

#define RESTART(n, next) \
	:: d_step { true -> back(n, next); sort() } \
	:: d_step { forgets(n) -> becomes(n, 0, 0); back(n, next); sort() } \
	:: d_step { forgets(n) -> becomes(n, A + 1, TTL_A); back(n, next); sort() } \
	:: d_step { forgets(n) -> becomes(n, B + 1, TTL_B); back(n, next); sort() }

active proctype world() {
	/* A set of nodes that have been up for long. */
	d_step { up[0] = GUARD_MAX; up[1] = GUARD_MAX; up[2] = GUARD_MAX }
#ifdef MARKS
	d_step { mark[0] = A + 1; mark[1] = A + 1; mark[2] = A + 1 }
#endif
	do
	:: d_step { true -> tick(); sort() }
	CLIENT(A)
	CLIENT(B)
	AT(A, 0) AT(A, 1) AT(A, 2)
	AT(B, 0) AT(B, 1) AT(B, 2)
	RESTART(0, 0) RESTART(1, 0) RESTART(2, 0)
#ifdef EXEMPTS
	RESTART(0, 1) RESTART(1, 1) RESTART(2, 1)
	:: d_step { durable[0] -> remembers(0); sort() }
	:: d_step { durable[1] -> remembers(1); sort() }
	:: d_step { durable[2] -> remembers(2); sort() }
#endif
#ifdef EVICTION
	:: d_step { owner[0] -> becomes(0, 0, 0); sort() }
	:: d_step { owner[1] -> becomes(1, 0, 0); sort() }
	:: d_step { owner[2] -> becomes(2, 0, 0); sort() }
#endif
	od
}
