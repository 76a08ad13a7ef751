/*
 * Fencing tokens over a quorum of nodes that keep what they have stored.
 *
 * Claim: each token is handed out once, and an acquisition that begins after another was completed gets larger
 * ones. No clock is used: a node may drop a key at any moment, for whatever reason (its lease ended, its
 * clock jumped, somebody deleted it), and clients propose whatever their clocks say.
 *
 * What a node does, each in one step:
 *   grant:   if nobody has the key, it is the client's; the first token is the larger of what the client proposes
 *            and what follows the last one granted; BLOCK tokens are taken.
 *   raise:   if the key is still the client's, take BLOCK tokens that are at least as large as asked for.
 *   release: if the key is the client's, nobody has it.
 *   drop:    nobody has it.
 *
 * What a client does: ask the nodes in any order. With a majority of grants it takes the largest of the tokens it
 * has seen so far. Grants that arrive later count only if they are that token. It has nodes that granted a
 * smaller one raise theirs, and is done when a majority granted the token or raised to it. It may give up at
 * any point. In the end it releases on all nodes.
 *
 * Checked by check.sh. Broken on purpose, for the check to find:
 *   -DNO_RAISE    a majority of grants is enough
 *   -DRAISE_ANY   a node raises also when the key is another's
 *   -DLATE_COUNTS a grant that arrives late and is larger than the token counts as well
 */

#define N     3
#define NEED  2
#define BLOCK 2 /* tokens of an acquisition */
#define TOP   32

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef DROPS
#define DROPS 3 /* how many keys get lost, which bounds the search */
#endif

#define max(a, b) ((a) > (b) -> (a) : (b))

byte owner[N]; /* 0: nobody */
byte fence[N]; /* the last token granted */

/* Not part of the system: what has happened, to state the claim. */
byte acquisitions;
byte completed; /* the largest token of all completed acquisitions */
bool used[TOP];

inline grant(n) {
	atomic {
		asked[n] = true;
		if
		:: owner[n] == 0 ->
			owner[n] = me;
			got[n] = max(fence[n] + 1, proposed);
			fence[n] = got[n] + BLOCK - 1
		:: else
		fi
	}
}

/* A grant whose answer comes after the token was chosen. */
inline late(n) {
	atomic {
		grant(n);
		if
		:: got[n] == token -> acks++
#ifdef LATE_COUNTS
		:: got[n] > token -> acks++
#endif
		:: else
		fi;
		got[n] = 0
	}
}

inline raise(n) {
	atomic {
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
}

inline release(n) {
	atomic {
		if
		:: owner[n] == me -> owner[n] = 0
		:: else
		fi
	}
}

#define grants ((got[0] > 0) + (got[1] > 0) + (got[2] > 0))
#define largest max(got[0], max(got[1], got[2]))

inline acknowledged(n) {
	if
	:: got[n] == token -> acks++; got[n] = 0
	:: else
	fi
}

proctype client() {
	byte round, me, proposed, before, token, acks;
	byte got[N];
	bool asked[N];

	for (round : 1 .. ROUNDS) {
		d_step {
			acquisitions++;
			me = acquisitions;
			before = completed;
			token = 0;
			acks = 0
		}
		if
		:: proposed = 1
		:: proposed = 4
		fi;

		do
		:: !asked[0] -> grant(0)
		:: !asked[1] -> grant(1)
		:: !asked[2] -> grant(2)
		:: grants >= NEED -> break
		:: goto over
		od;
		skip; /* a d_step is no target for a break */
		d_step {
			token = largest;
#ifdef NO_RAISE
			acks = NEED;
#endif
			acknowledged(0);
			acknowledged(1);
			acknowledged(2)
		}

		do
		:: !asked[0] -> late(0)
		:: !asked[1] -> late(1)
		:: !asked[2] -> late(2)
		:: got[0] -> raise(0)
		:: got[1] -> raise(1)
		:: got[2] -> raise(2)
		:: acks >= NEED -> break
		:: goto over
		od;
		skip;
		d_step {
			assert(token > before);
			assert(!used[token] && !used[token + 1]);
			used[token] = true;
			used[token + 1] = true;
			completed = max(completed, token + BLOCK - 1)
		}

over:		skip;
		release(0);
		release(1);
		release(2);
		d_step {
			asked[0] = false; asked[1] = false; asked[2] = false;
			got[0] = 0; got[1] = 0; got[2] = 0
		}
	}
}

active proctype loss() {
	byte drops;

	do
	:: drops < DROPS && owner[0] -> atomic { owner[0] = 0; drops++ }
	:: drops < DROPS && owner[1] -> atomic { owner[1] = 0; drops++ }
	:: drops < DROPS && owner[2] -> atomic { owner[2] = 0; drops++ }
	:: break
	od
}

init {
	byte i;

	atomic {
		for (i : 1 .. CLIENTS) {
			run client()
		}
	}
}
