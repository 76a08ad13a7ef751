/*
 * Fencing tokens over a quorum of nodes that keep what they have stored.
 *
 * Claim: each token is handed out once, and what is asked for after another acquisition, or a renewal that took tokens,
 * was completed gets larger ones. No clock is used: a node may drop a key at any moment, for whatever reason (its
 * lease ended, its clock jumped, somebody deleted it), the nodes' counters start unequal, and clients propose
 * whatever their clocks say.
 *
 * What a node does for a client that acquires, each line in one step, and with anything in between:
 *   set:     if nobody has the key, it is the client's.
 *   draw:    raise the counter to the end of the block that the client proposes. The block is the client's if both ends
 *            of it raise the counter. That is done even if the key was another's.
 *   look:    see whether the key is still the client's. Only then do the three count as a grant.
 *   script:  for who got none so far: if nobody has the key, or it is the client's already, it is the client's, and as
 *            many tokens are drawn as follow the counter, or those proposed if they are larger.
 * And else, each in one step, as a script does it:
 *   raise:   if the key is still the client's, take BLOCK tokens that are at least as large as asked for.
 *   release: if the key is the client's, nobody has it.
 *   drop:    nobody has it.
 *
 * What a client does: ask the nodes in any order, several at a time. With a majority of grants it takes the largest of
 * the tokens it has seen so far. Grants that arrive later count only if they are that token. It has nodes that granted
 * a smaller one raise theirs, and is done when a majority granted the token or raised to it. Then it may renew with
 * a block: that has every node raise, and goes on in the same way. It may give up at any point. In the end
 * it releases on all nodes.
 *
 * A grant by handoff is the script's, for one who asked earlier. A waiter never gets that far by set, draw and look:
 * they look whether anybody waits, and leave the rest to the script if so.
 *
 * Checked by check.sh. Broken on purpose, for the check to find:
 *   -DNO_LOOK     set and draw are enough for a grant
 *   -DLOOK_FIRST  the look comes between set and draw
 *   -DNO_RAISE    a majority of grants is enough
 *   -DRAISE_ANY   a node raises also when the key is another's
 *   -DRENEW_ANY   tokens of a renewal need no agreement: the largest drawn is taken
 *   -DLATE_COUNTS a grant that arrives late and is larger than the token counts as well
 */

#define N     3
#define NEED  2
#define BLOCK 2 /* tokens of an acquisition, and of a renewal */
#define TOP   64

#ifndef ROUNDS0
#define ROUNDS0 1 /* acquisitions of the first client */
#endif
#ifndef ROUNDS1
#define ROUNDS1 1 /* and of the second */
#endif
#ifndef DROPS
#define DROPS 1 /* how many keys get lost, which bounds the search */
#endif
#ifndef LOW
#define LOW 1 /* what clients propose: this, or HIGH */
#endif
#ifndef HIGH
#define HIGH 3
#endif
#ifndef FENCE1
#define FENCE1 0 /* the counters that nodes begin with; the first one's is 0 */
#endif
#ifndef FENCE2
#define FENCE2 2
#endif

#define max(a, b) ((a) > (b) -> (a) : (b))

/* How far a client has come on a node. */
#define NEW      0
#define SET      1 /* the key was set */
#define DRAWN    2 /* and tokens were drawn */
#define GRANTED  3
#define SCRIPT   4 /* the script has to decide */
#define RENEW    5
#define ANSWERED 6

/* And as a whole. */
#define IDLE     0
#define ASKING   1
#define SETTLING 2 /* the token has been chosen */
#define HELD     3

byte owner[N]; /* 0: nobody */
byte fence[N]; /* the last token granted */

/* Not part of the system: what has happened, to state the claim. */
byte acquisitions;
byte completed; /* the largest token of all completed acquisitions */
bool used[TOP];
byte drops;

inline set(n) {
	if
	:: owner[n] == 0 -> owner[n] = me; at[n] = SET
	:: else ->
		fence[n] = max(fence[n], proposed + BLOCK - 1);
		at[n] = SCRIPT
	fi
}

inline draw(n, next) {
	if
	:: fence[n] < proposed -> at[n] = next
	:: else -> at[n] = SCRIPT
	fi;
	fence[n] = max(fence[n], proposed + BLOCK - 1)
}

inline look(n, next) {
	if
	:: owner[n] == me -> at[n] = next
	:: else -> at[n] = SCRIPT
	fi
}

inline script(n) {
	at[n] = ANSWERED;
	if
	:: owner[n] == 0 || owner[n] == me ->
		owner[n] = me;
		fence[n] = max(fence[n] + 1, proposed) + BLOCK - 1;
		granted(n, fence[n] - BLOCK + 1)
	:: else
	fi
}

/* A renewal with a block. */
inline renew(n) {
	at[n] = ANSWERED;
	if
	:: owner[n] == me ->
		fence[n] = max(fence[n] + 1, proposed) + BLOCK - 1;
		if
		:: phase == ASKING -> got[n] = fence[n] - BLOCK + 1
		:: else /* nobody waits for it any more */
		fi
	:: else
	fi
}

/* A node's grant has arrived. */
inline granted(n, t) {
	if
	:: phase == ASKING -> got[n] = t
	:: phase == SETTLING && t == token -> acks++
#ifdef LATE_COUNTS
	:: phase == SETTLING && t > token -> acks++
#endif
	:: else
	fi
}

inline step(n) {
	if
	:: at[n] == NEW -> set(n)
#ifdef LOOK_FIRST
	:: at[n] == SET -> look(n, DRAWN)
	:: at[n] == DRAWN -> draw(n, GRANTED)
#else
#ifdef NO_LOOK
	:: at[n] == SET -> draw(n, GRANTED)
#else
	:: at[n] == SET -> draw(n, DRAWN)
#endif
	:: at[n] == DRAWN -> look(n, GRANTED)
#endif
	:: at[n] == SCRIPT -> script(n)
	:: at[n] == RENEW -> renew(n)
	fi;
	if
	:: at[n] == GRANTED -> at[n] = ANSWERED; granted(n, proposed)
	:: else
	fi
}

inline raise(n) {
	if
#ifdef RAISE_ANY
	:: true ->
#else
	:: owner[n] == me ->
#endif
		fence[n] = max(fence[n] + 1, token) + BLOCK - 1;
		acks++
	:: else
	fi;
	got[n] = 0
}

#define grants ((got[0] > 0) + (got[1] > 0) + (got[2] > 0))
#define largest max(got[0], max(got[1], got[2]))

inline acknowledged(n) {
	if
	:: got[n] == token -> acks++; got[n] = 0
	:: else
	fi
}

inline choose() {
	token = largest;
	acknowledged(0);
	acknowledged(1);
	acknowledged(2);
#ifdef NO_RAISE
	acks = NEED;
#endif
#ifdef RENEW_ANY
	if
	:: renewal -> acks = NEED
	:: else
	fi;
#endif
	phase = SETTLING
}

/* What was asked for when before was the largest of all completed has got all of the block. */
inline complete() {
	assert(token > before);
	assert(!used[token] && !used[token + 1]);
	used[token] = true;
	used[token + 1] = true;
	completed = max(completed, token + BLOCK - 1);
	phase = HELD;
	forget(ANSWERED);
	proposed = token + BLOCK; /* what it has seen is what it knows to be too small */
	before = 0; token = 0
}

inline forget(stage) {
	got[0] = 0; got[1] = 0; got[2] = 0;
	at[0] = stage; at[1] = stage; at[2] = stage;
	acks = 0
}

inline release(n) {
	if
	:: owner[n] == me -> owner[n] = 0
	:: else
	fi
}

inline begin(propose) {
	rounds--;
	acquisitions++;
	me = acquisitions;
	before = completed;
	proposed = propose;
	phase = ASKING
}

proctype client(byte rounds) {
	byte phase, me, proposed, before, token, acks;
	bool renewal;
	byte got[N];
	byte at[N];

	do
	:: d_step { phase == IDLE && rounds > 0 -> begin(LOW) }
#if HIGH > LOW
	:: d_step { phase == IDLE && rounds > 0 -> begin(HIGH) }
#endif
	:: d_step { (phase == ASKING || phase == SETTLING) && at[0] != ANSWERED -> step(0) }
	:: d_step { (phase == ASKING || phase == SETTLING) && at[1] != ANSWERED -> step(1) }
	:: d_step { (phase == ASKING || phase == SETTLING) && at[2] != ANSWERED -> step(2) }
	:: d_step { phase == ASKING && grants >= NEED -> choose() }
	:: d_step { phase == SETTLING && got[0] -> raise(0) }
	:: d_step { phase == SETTLING && got[1] -> raise(1) }
	:: d_step { phase == SETTLING && got[2] -> raise(2) }
	:: d_step { phase == SETTLING && acks >= NEED -> complete() }
#ifdef RENEWS
	:: d_step {
		phase == HELD && !renewal ->
			renewal = true;
			before = completed;
			forget(RENEW);
			phase = ASKING
		}
#endif
	:: d_step {
		phase != IDLE ->
			release(0); release(1); release(2);
			forget(NEW);
			phase = IDLE; renewal = false;
			me = 0; proposed = 0; before = 0; token = 0
		}
	:: phase == IDLE && rounds == 0 -> break
	od
}

active proctype loss() {
	do
	:: d_step { drops < DROPS && owner[0] -> owner[0] = 0; drops++ }
	:: d_step { drops < DROPS && owner[1] -> owner[1] = 0; drops++ }
	:: d_step { drops < DROPS && owner[2] -> owner[2] = 0; drops++ }
	:: break
	od
}

init {
	atomic {
		fence[1] = FENCE1;
		fence[2] = FENCE2;
		run client(ROUNDS0);
		run client(ROUNDS1)
	}
}
