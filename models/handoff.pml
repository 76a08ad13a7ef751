/*
 * Handing over to a waiter, at one node of a quorum, which may forget, or come back with whatever data, at any moment.
 *
 * Claim: at no tick does the waiter count itself as a holder by this node's vote, while another client does so as well.
 * One node is enough: any two majorities have one in common, and this is that one; what the other nodes contribute
 * may happen at any moment here. Time goes by in ticks, as in exclusion.pml, and the search has no bound on requests,
 * notices, waits and restarts.
 *
 * The node, each in one step:
 *   acquire: if nobody has the key, or the client has, it is the client's for the TTL. Else a waiter is in the queue
 *            then, and present for PRESENCE. Refused within the guard after a restart.
 *   renew, release: if the key is the client's. A release is served within the guard as well.
 *   hand over: when nobody has the key, and the waiter is present, it is the waiter's for what is left of its
 *            presence, and a notice is sent. Also within the guard: in a release, or before a request is refused.
 *   restart: the key is nobody's, or anybody's, and the waiter is in the queue or is not: any older state.
 *
 * The waiter asks all nodes in rounds. A request may take effect at any time in its round, also without an answer, and
 * an answer takes any time. An answer that the waiter has the key is a vote until a TTL after its request was made. A
 * notice is a vote until a presence after the last request was made that the node has answered with "you wait". The
 * waiter is a holder when a round brings a majority of grants, for the TTL from before the round; or when, between
 * rounds, a majority of votes last for as long as it would count itself a holder then: a presence from before the last
 * round in which a majority told it that it waits. It may give its vote back, and stop at any point.
 *
 * A notice is no vote
 *   - if an acquisition would be refused on the connection that it came by;
 *   - if the node, in this run, has not said that the waiter is in its queue;
 *   - if the queue is in doubt: what the node said last came after the presence before it was over, or refuted a vote;
 *     or a vote of this node's was given back. It stays in doubt for as long as this waiter waits.
 *
 * Checked by check.sh. Broken on purpose, for the check to find:
 *   -DNOTICE_IN_QUARANTINE -DQUEUE_SURVIVES
 *                           a notice is a vote though an acquisition would be refused, and what was heard of the
 *                           queue is believed after a restart. Each of the two alone does no harm
 *   -DGUARD=2               the guard is shorter than the TTL
 *   -DNO_DOUBT              the queue is never in doubt
 *   -DNO_PROMISE            votes need not last for as long as the waiter will count itself a holder
 *   -DPRESENCE_FROM_ANSWER  the presence is counted from the answers
 *   -DSTALE_ANSWER          an answer counts though the vote was given back after its request
 * And -DWITNESS fails if a notice makes a holder, which has to be possible.
 */

#ifndef TTL
#define TTL 3
#endif
#ifndef PRESENCE
#define PRESENCE 2 /* at most the TTL */
#endif
#ifndef GUARD
#define GUARD TTL
#endif

/* Who has the key. */
#define NOBODY 0
#define WAITER 1
#define OTHER  2 /* a client that may count itself as a holder */
#define GHOST  3 /* one that does not any more */

/* The node. */
byte owner;
byte lease;    /* ticks left of it */
byte queued;   /* ticks left of the waiter's presence */
byte up;       /* ticks since the restart, up to the guard */
bool notice;   /* one is on its way */
bool stale;    /* and one of the run before */
bool seen;     /* the waiter is connected to this run */

/* Ticks for which another client counts itself as a holder at most. */
byte others;

/* The waiter. */
bool waits;
byte began;    /* ticks since it began to wait, up to PRESENCE */
bool asking;   /* a round is under way */
byte start;    /* ticks since the last round began, up to the TTL */
byte promised; /* ticks for which it would count itself as a holder by notices */
byte valid;    /* ticks left of its validity */

byte call;
#define DONE    0 /* answered, or given up */
#define SENT    1
#define GRANTED 2 /* the answer is on its way */
#define BUSY    3

byte vote;
#define NONE    0
#define GRANT   1 /* a grant in this round */
#define ANSWER  2 /* a grant in an earlier one */
#define NOTICE  3 /* a notice that came in this round */
#define EARLIER 4 /* a notice that came before it */

byte lasts;    /* ticks left of the vote or, without one, of the presence that is known */
bool known;    /* the node has said that it waits there */
bool doubtful;

#define admitted (up >= GUARD)

#ifdef NO_DOUBT
#define doubt skip
#else
#define doubt doubtful = true
#endif

inline becomes(who, left) {
	owner = who;
	lease = left
}

inline pass(x) {
	x = (x > 0 -> x - 1 : 0)
}

inline tick() {
	pass(lease);
	owner = (lease -> owner : NOBODY);
	pass(queued);
	pass(others);
	pass(promised);
	pass(lasts);
	vote = (lasts -> vote : NONE);
	up = (up < GUARD -> up + 1 : up);
	if
	:: valid == 1 -> stop()
	:: valid > 1 -> valid--
	:: waits && !valid ->
		began = (began < PRESENCE -> began + 1 : began);
		start = (start < TTL -> start + 1 : start)
	:: else
	fi
}

/* A request takes effect. */
inline apply(granted, busy) {
	if
	:: owner == NOBODY || owner == WAITER ->
		becomes(WAITER, TTL);
		queued = 0;
		call = granted
	:: else ->
		queued = PRESENCE;
		call = busy
	fi
}

inline answered() {
	if
	:: call == GRANTED ->
		lasts = TTL - start;
		vote = (asking -> GRANT : ANSWER)
	:: call == BUSY ->
		if
		:: known && lasts == 0 || !known && began >= PRESENCE -> doubt
		:: vote == GRANT || vote == ANSWER || vote == EARLIER || vote == NOTICE && doubtful -> doubt; vote = NONE
		:: else
		fi;
		vote = (doubtful -> NONE : vote);
		known = true;
#ifdef PRESENCE_FROM_ANSWER
		lasts = PRESENCE
#else
		lasts = (PRESENCE > start -> PRESENCE - start : 0)
#endif
	fi;
	vote = (lasts -> vote : NONE);
	call = DONE
}

inline hear() {
	if
#ifdef NOTICE_IN_QUARANTINE
	:: known && !doubtful && vote == NONE && lasts ->
#else
	:: (stale || admitted) && known && !doubtful && vote == NONE && lasts ->
#endif
		vote = (asking -> NOTICE : EARLIER)
	:: else
	fi;
	notice = false; stale = false
}

inline request() {
	waits = true; asking = true; start = 0; call = SENT;
	vote = (vote == GRANT -> ANSWER : (vote == NOTICE -> EARLIER : vote))
}

inline begin(ticks) {
	valid = ticks; /* before what it may depend on is forgotten */
	forget();
	assert(!others)
}

inline forget() {
	asking = false; began = 0; start = 0; promised = 0; call = DONE; vote = NONE; lasts = 0;
	known = false; doubtful = false; notice = false; stale = false
}

inline stop() {
	forget();
	waits = false; valid = 0; queued = 0;
	owner = (owner == WAITER -> GHOST : owner)
}

/* The vote is given back. */
inline giveBack(arrives) {
	vote = NONE; lasts = 0; known = false; doubt; notice = false; stale = false;
#ifndef STALE_ANSWER
	call = DONE;
#endif
	if
	:: arrives ->
		queued = 0;
		owner = (owner == WAITER -> GHOST : owner)
	:: else
	fi
}

inline restart(who, presence) {
	becomes(who, (who == NOBODY -> 0 : TTL));
	queued = (waits && !valid -> presence : 0);
	stale = notice && admitted && seen;
	notice = false;
	seen = false;
	up = 0
}

/* The waiter connects to the new run, after which nothing comes from the old one. */
inline see() {
	seen = true;
	stale = false;
	call = (call == SENT -> SENT : DONE);
#ifndef QUEUE_SURVIVES
	lasts = (vote == NONE -> 0 : lasts);
	known = false
#endif
}

#ifdef NO_PROMISE
#define lastsEnough (vote != NONE)
#else
#define lastsEnough (vote != NONE && lasts >= promised)
#endif

active proctype world() {
	d_step { up = GUARD; seen = true }
	do
	:: d_step { true -> tick() }

	/* Others. */
	:: d_step { owner == NOBODY && admitted -> becomes(OTHER, TTL); others = TTL; assert(!valid) }
	:: d_step { owner == OTHER && admitted && others -> lease = TTL; others = TTL; assert(!valid) }
	:: d_step { others -> others = 0; owner = (owner == OTHER -> GHOST : owner) }
	:: d_step { owner == GHOST -> becomes(NOBODY, 0) }

	/* The node. */
	:: d_step { owner == NOBODY && queued -> becomes(WAITER, queued); queued = 0; notice = true }
	:: d_step { seen && call == SENT && admitted -> apply(GRANTED, BUSY) }
	:: d_step { call == SENT && admitted -> apply(SENT, SENT) } /* an older request, or without an answer */
	:: d_step { true -> restart(NOBODY, 0) }
	:: d_step { true -> restart(NOBODY, PRESENCE) }
	:: d_step { true -> restart(GHOST, 0) }
	:: d_step { true -> restart(GHOST, PRESENCE) }
	:: d_step { true -> restart((waits && !valid -> WAITER : GHOST), 0) }

	/* What the waiter hears, or does not. */
	:: d_step { !seen -> see() }
	:: d_step { notice && seen || stale -> hear() }
	:: d_step { notice || stale -> notice = false; stale = false }
	:: d_step { call == GRANTED || call == BUSY -> answered() }
	:: d_step { call != DONE -> call = DONE }

	/* What it does. */
	:: d_step { !asking && !valid -> request() }
	:: d_step { asking && vote == GRANT && lasts -> begin(lasts) } /* and so did enough others */
	:: d_step { asking -> asking = false } /* others have failed */
	:: d_step { asking && PRESENCE > start -> /* others have said that it waits */
		asking = false;
#ifdef PRESENCE_FROM_ANSWER
		promised = PRESENCE
#else
		promised = (PRESENCE - start > promised -> PRESENCE - start : promised)
#endif
		}
	:: d_step { waits && !asking && promised && lastsEnough ->
#ifdef WITNESS
		assert(vote != EARLIER);
#endif
		begin(promised)
		}
	:: d_step { waits && !valid && !asking && vote != NONE -> giveBack(true) }
	:: d_step { waits && !valid && !asking && vote != NONE -> giveBack(false) }
	:: d_step { waits -> stop() }
	od
}
