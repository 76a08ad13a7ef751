package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/quorum"
)

// A node that is healed while those that know the last token do not answer gets that token when
// they are back. So whoever comes after all readers has a larger token, though no node has kept its
// data and no clock helps.
func TestR38_NodeThatWasHealedWithTooFewTokensGetsThem(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, shared := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d nodes, renewed as shared %v", n, shared), func(t *testing.T) {
				bubble(t, func(t *testing.T) { healsForSilent(t, n, shared) })
			})
		}
	}
}

// healsForSilent has a majority of nodes know the last token. The first of them is healed while the
// others, the silent ones, do not answer. Then they are lost, too, one after the other.
func healsForSilent(t *testing.T, n int, shared bool) {
	c := newCluster(t, n)
	a, b, w := c.client(), c.client(), c.client()
	stays := a.shared()
	a.hold(stays)
	stays.Shared = shared
	rest()
	var silent, others []int
	for i := 1; i < n; i++ {
		if i <= n/2 {
			silent = append(silent, i)
		} else {
			others = append(others, i)
		}
	}
	b.cut(true, others...)
	goes := b.shared()
	goes.Token += 1e12 // its clock is far ahead
	last := b.hold(goes).Token
	b.release(goes, driver.Held)
	b.cut(false, others...)
	rest()
	unsure := func(want int) {
		t.Helper()
		if got := a.Unsure(); got != want {
			t.Errorf("%d claims have nodes that are unsure of the last token; want %d", got, want)
		}
	}
	// renewals renews and returns how many renewals a node was asked for.
	renewals := func() uint64 {
		made := func() (n uint64) {
			c.do(func() { n = a.conns[others[0]].made["renew"] })
			return n
		}
		before := made()
		a.renew(stays, driver.Held)
		rest()
		return made() - before
	}

	c.restart(true, 0)
	a.renew(stays, driver.Held)
	c.freeze(silent...) // before they hear of the healing
	rest()
	if h := c.sharers("k")[0]; h != stays.Owner {
		t.Fatalf("server 0 is shared by %q after a renewal; want %q", h, stays.Owner)
	}
	unsure(1)
	if n == 5 { // with three, no majority is left
		if n := renewals(); n != 1 {
			t.Errorf("a node was asked %d times in a renewal; want once: others do not answer", n)
		}
		unsure(1)
	}
	c.thaw(silent...)
	rest()
	renewals()
	unsure(0)
	if n := renewals(); n != 1 {
		t.Errorf("a node was asked %d times in a renewal; want once, all is known", n)
	}
	if healed := a.Status().Healed; healed != 1 {
		t.Errorf("%d claims were healed; want 1", healed)
	}
	for _, i := range slices.Concat(silent, []int{0}) {
		c.restart(true, i)
		a.renew(stays, driver.Held)
		rest()
	}
	a.release(stays, driver.Held)
	rest()
	if next := w.hold(w.claim()).Token; next <= last {
		t.Errorf("token %d after %d, want a larger one", next, last)
	}
}

// A node is lost while another one is unsure of the last token. All nodes that are left are asked
// for it then, and both get it.
func TestR38_LossWhileANodeIsUnsure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		stays := a.shared()
		a.hold(stays)
		rest()
		b.cut(true, 2)
		goes := b.shared()
		goes.Token += 1e12 // its clock is far ahead
		last := b.hold(goes).Token
		b.release(goes, driver.Held)
		b.cut(false, 2)
		rest()
		c.restart(true, 0)
		a.renew(stays, driver.Held)
		c.freeze(1) // before it hears of the healing
		rest()
		c.thaw(1)
		rest()
		c.restart(true, 2)
		a.renew(stays, driver.Held)
		rest()
		c.know(last, 0, 1, 2)
	})
}

// Two nodes lose many readers at once. A node that a reader has just been healed on, without the
// last token, is no part of a majority that is asked for that token to heal the other node with.
func TestR38_NodeJustHealedIsNotAskedForTheLastToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// Then a healer begins with half a reader, and so its second step, too, begins with half a
		// reader, whose other half was healed in the first one.
		const n = 4 * (quorum.DrawsAtOnce + 1)
		servers := busyServers(5)
		q, other := quorumOf(t, servers, nil), quorumOf(t, servers, nil)
		claims := holdReaders(t, q, n)
		rest()
		hang := func(nodes ...int) {
			for _, i := range nodes {
				servers[i].hang()
			}
		}
		goOn := func(nodes ...int) {
			for _, i := range nodes {
				servers[i].goOn()
			}
			time.Sleep(2 * time.Second) // until they count as up
		}
		hang(2, 3) // they do not hear of the other reader's tokens
		last := readAll(t, other, claims)
		goOn(2, 3)
		servers[0].forget()
		servers[1].forget()
		renewMany(t, q, claims)
		hang(4) // only it knows them now
		time.Sleep(4 * quorum.DefaultNodeTimeout)
		goOn(4)
		renewMany(t, q, claims)
		rest()
		if n := q.Unsure(); n != 0 {
			t.Errorf("%d claims have nodes that are unsure of the last token; want none", n)
		}
		hang(0, 4)
		for i, writer := range claims {
			mustRelease(t, q, writer)
			writer.Owner, writer.Shared = "writer", false
			// a client that has heard of no token
			if token := mustHold(t, quorumOf(t, servers, nil), writer); token <= last[i] {
				t.Errorf("%s: token %d after %d, want a larger one", writer.Key, token, last[i])
			}
		}
	})
}

// A node that has lost some readers is asked for the last token of others.
func TestR38_NodeThatLostOtherReadersIsAskedForTheLastToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 8 * 2 * quorum.DrawsAtOnce // two steps for each healer
		servers := busyServers(3)
		q, other := quorumOf(t, servers, nil), quorumOf(t, servers, nil)
		claims := holdReaders(t, q, n)
		rest()
		servers[2].hang() // it does not hear of the other reader's tokens
		last := readAll(t, other, claims)
		servers[2].goOn()
		time.Sleep(2 * time.Second) // until it counts as up
		// One node loses the readers of the first step, and another one those of the second.
		loser := func(i int) int { return i / quorum.DrawsAtOnce % 2 }
		for i := range claims {
			servers[loser(i)].data.Delete(claims[i].Key)
		}
		renewMany(t, q, claims)
		rest()
		if healed := q.Status().Healed; healed != n {
			t.Errorf("%d claims were healed; want %d", healed, n)
		}
		for i, claim := range claims {
			another := driver.Claim{Key: claim.Key, Owner: "another", TTL: time.Second, Token: 1,
				Shared: true}
			r, err := servers[loser(i)].Acquire(t.Context(), another)
			if err != nil || r.State != driver.Held || r.Token <= last[i] {
				t.Errorf("the node that lost %s goes on with token %d (%v, %v); want more than %d",
					claim.Key, r.Token, r.State, err, last[i])
			}
		}
		renewMany(t, q, claims)
		rest()
		if n := q.Unsure(); n != 0 {
			t.Errorf("%d claims have nodes that are unsure of the last token; want none", n)
		}
	})
}

// While a node is unsure of the last token, the reader's lease ends on the only node that knows it.
// That node has lost the reader then, and not the token: the others cannot be sure without it.
func TestR38_NodeWhereTheLeaseEndedMayKnowTheLastToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b := c.client(), c.client()
		stays := a.shared()
		a.hold(stays)
		rest()
		b.cut(true, 1)
		goes := b.shared()
		goes.Token += 1e12 // its clock is far ahead
		last := b.hold(goes).Token
		b.release(goes, driver.Held)
		b.cut(false, 1)
		rest()
		c.restart(true, 0)
		a.renew(stays, driver.Held)
		a.cut(true, 2) // before it tells what it knows
		for range 2 * stays.TTL / time.Second {
			rest()
			a.renew(stays, driver.Held)
		}
		a.cut(false, 2)
		for range 10 {
			rest()
			a.renew(stays, driver.Held)
		}
		rest()
		c.know(last, 0, 2)
		if n := a.Unsure(); n != 0 {
			t.Errorf("%d claims have nodes that are unsure of the last token; want none", n)
		}
	})
}

// A writer knows the last token of its key. So a node that has it again knows that token, whether
// others answer or not, and whatever happens to readers that are healed in the same step.
func TestWritersAreHealedForSureBesideReaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 8 * quorum.DrawsAtOnce // one step for each healer
		servers := busyServers(5)
		q := quorumOf(t, servers, nil)
		var claims []driver.Claim
		for i := range n {
			claims = append(claims, driver.Claim{Key: fmt.Sprint("k", i), Owner: "owner",
				TTL: 10 * time.Second, Token: 1, Shared: i%2 == 0})
			mustHold(t, q, claims[i])
		}
		rest()
		servers[0].forget()
		renewMany(t, q, claims)
		rest()
		servers[4].isFar(20 * time.Millisecond) // so it answers the renewal when it hangs
		renewMany(t, q, claims)
		servers[3].hang()
		servers[4].hang()
		rest()
		if healed := q.Status().Healed; healed != n {
			t.Errorf("%d claims were healed; want %d", healed, n)
		}
		if unsure := q.Unsure(); unsure != n/2 {
			t.Errorf("%d claims have nodes that are unsure of the last token; want %d readers",
				unsure, n/2)
		}
	})
}

// drawer is a node that does not draw tokens, or not yet, and lets claims wait that are set again,
// or the answers to that.
type drawer struct {
	*memhold.Backend // another one when it has lost its data
	refuses          bool
	fails            bool          // renewals that draw no tokens
	waits            chan struct{} // nil: draws do not wait
	sets             chan struct{} // nil: acquisitions do not wait
	answers          chan struct{} // nil: their answers do not wait
}

func (d *drawer) Acquire(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	if sets := d.sets; sets != nil {
		select {
		case <-sets:
		case <-ctx.Done(): // it takes effect later
			go func() {
				<-sets
				d.Backend.Acquire(context.WithoutCancel(ctx), claim)
			}()
			return driver.Result{}, &driver.Error{Maybe: true, Err: ctx.Err()}
		}
	}
	r, err := d.Backend.Acquire(ctx, claim)
	if d.answers != nil {
		<-d.answers
	}
	return r, err
}

func (d *drawer) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	switch draws := claims[0].Block > 0; {
	case draws && d.refuses, !draws && d.fails:
		return nil, &driver.Error{Err: errors.New("does not renew")}
	case draws && d.waits != nil:
		<-d.waits
	}
	return d.Backend.Renew(ctx, claims)
}

// lose has the node lose its data.
func (d *drawer) lose() { d.Backend = memhold.New() }

// read has another reader come and go, with that token if the node knows none as large.
func (d *drawer) read(t *testing.T, token driver.Token) driver.Token {
	t.Helper()
	other := driver.Claim{Key: "k", Owner: "other", TTL: time.Second, Token: token, Shared: true}
	r, err := d.Backend.Acquire(t.Context(), other)
	if err != nil || r.State != driver.Held {
		t.Fatal(r.State, err)
	}
	if _, err := d.Backend.Release(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	return r.Token
}

// readerOn returns n nodes, and a reader of "k" that holds all of them. Renew renews it, and waits
// until the nodes have answered.
func readerOn(t *testing.T, n int) (q *quorum.Quorum, nodes []*drawer, renew func()) {
	t.Helper()
	for range n {
		nodes = append(nodes, &drawer{Backend: memhold.New()})
	}
	q = quorumOf(t, nodes, nil)
	claim := driver.Claim{Key: "k", Owner: "reader", TTL: 10 * time.Second, Token: 1, Shared: true}
	mustHold(t, q, claim)
	rest() // until all nodes have answered: tests change them
	return q, nodes, func() {
		t.Helper()
		renewMany(t, q, []driver.Claim{claim})
		synctest.Wait()
	}
}

// knowsAll checks that nodes go on above a token, and that nobody is unsure of that.
func knowsAll(t *testing.T, q *quorum.Quorum, last driver.Token, nodes ...*drawer) {
	t.Helper()
	for i, d := range nodes {
		if token := d.read(t, 1); token <= last {
			t.Errorf("node %d goes on with token %d; want more than %d", i, token, last)
		}
	}
	if n := q.Unsure(); n != 0 {
		t.Errorf("%d claims have nodes that are unsure of the last token; want none", n)
	}
}

// A node becomes unsure of the last token after it was asked for it and before it answers. It is no
// part of a majority then either.
func TestR38_NodeThatBecomesUnsureMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q, nodes, renew := readerOn(t, 5)
		const last = 1000
		for i := range 3 {
			nodes[i].read(t, last)
		}
		waits := make(chan struct{})
		nodes[1].waits, nodes[2].refuses = waits, true
		nodes[0].lose()
		renew()
		nodes[1].lose()
		renew()
		close(waits)
		synctest.Wait()
		nodes[2].refuses = false // only it knows the last token now
		for range 3 {            // the first one finds that it is up
			rest()
			renew()
		}
		knowsAll(t, q, last, nodes[:2]...)
	})
}

// A reader's claim is set again on a node after other readers have told their tokens. If the node
// takes part in an acquisition before that and loses its data once more, it goes on above the token
// of that acquisition nevertheless.
func TestR38_NodeIsLostAgainBeforeItIsHealed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q, nodes, renew := readerOn(t, 3)
		const last = 1000
		sets := make(chan struct{})
		nodes[0].sets = sets
		nodes[0].lose()
		renew()
		for i := range 2 {
			nodes[i].read(t, last)
		}
		nodes[0].lose()
		close(sets)
		for range 2 {
			rest()
			renew()
		}
		knowsAll(t, q, last, nodes[0])
	})
}

// The same, and the node acknowledges an older token first after it was lost a second time.
func TestR38_NodeIsLostAgainBeforeItAcknowledges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q, nodes, renew := readerOn(t, 3)
		const last = 1000
		nodes[0].lose()
		renew()
		rest()
		waits := make(chan struct{})
		nodes[0].waits = waits // it is asked to acknowledge
		renew()
		for i := range 2 {
			nodes[i].read(t, last)
		}
		nodes[0].lose()
		nodes[1].refuses = true // only it knows the last token now
		time.Sleep(time.Millisecond)
		renew() // sets the claim again
		close(waits)
		synctest.Wait()
		nodes[1].refuses = false
		for range 3 { // the first one finds that it is up
			rest()
			renew()
		}
		knowsAll(t, q, last, nodes[0])
	})
}

// The same, and the claim is set there the second time by a call that was made before the renewal,
// and has waited for another call for its key.
func TestR38_CallThatWaitsSetsTheClaimAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q, nodes, renew := readerOn(t, 3)
		const last = 1000
		sets, answers, waits := make(chan struct{}), make(chan struct{}), make(chan struct{})
		nodes[0].sets, nodes[0].answers = sets, answers
		nodes[0].lose()
		renew() // sets the claim
		mustHold(t, q, driver.Claim{Key: "k", Owner: "another", TTL: time.Second, Shared: true})
		renew() // is about to set it once more
		close(sets)
		answers <- struct{}{} // to the first call, and the third one waits for the second
		time.Sleep(time.Millisecond)
		nodes[0].waits = waits
		renew() // finds the claim there, and the other nodes tell their tokens
		for i := range 2 {
			nodes[i].read(t, last)
		}
		nodes[0].lose()
		answers <- struct{}{} // to the second call, so the third one sets the claim
		synctest.Wait()
		close(waits) // so the node acknowledges what the others have told
		synctest.Wait()
		close(answers)
		for range 2 {
			rest()
			renew()
		}
		knowsAll(t, q, last, nodes[0])
	})
}

// If a healer comes to a reader when it may have ended already, nobody is asked for its tokens, and
// nobody becomes sure of them.
func TestR38_NodesStayUnsureIfAHealerComesTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const each = quorum.DrawsAtOnce + 1 // so a healer has two steps
		servers := busyServers(3)
		q := quorumOf(t, servers, nil)
		const ttl = 10 * quorum.DefaultNodeTimeout
		var claims []driver.Claim
		for i := range 8 * each {
			claims = append(claims, driver.Claim{Key: fmt.Sprint("k", i), Owner: "reader", TTL: ttl,
				Token: 1, Shared: true})
			mustHold(t, q, claims[i])
		}
		lose := func(server int, second bool) { // those of the first steps, or of the second ones
			time.Sleep(ttl / 4)
			for i, claim := range claims {
				if (i%each == quorum.DrawsAtOnce) == second {
					servers[server].data.Delete(claim.Key)
				}
			}
		}
		lose(0, true)
		renewMany(t, q, claims)
		lose(2, false)
		servers[2].isFar(20 * time.Millisecond) // so it answers the renewal when it hangs
		renewMany(t, q, claims)
		servers[2].hang() // the first step takes a healer as long as the TTL
		for range 8 {
			time.Sleep(ttl / 4)
			renewMany(t, q, claims)
		}
		if n := q.Unsure(); n != len(claims) {
			t.Errorf("%d claims have nodes that are unsure of the last token; want %d", n,
				len(claims))
		}
	})
}

// A node that acknowledges the last token becomes sure of it, though another one that is unsure
// does not answer.
func TestR38_UnsureNodesDoNotWaitForEachOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q, nodes, renew := readerOn(t, 5)
		renewals := func(n int) {
			for range n {
				renew()
				rest()
			}
		}
		nodes[0].lose()
		renewals(1)
		nodes[1].lose()
		nodes[1].refuses = true
		renewals(2) // node 0 becomes sure
		nodes[1].refuses, nodes[2].refuses = false, true
		renewals(3) // node 1 becomes sure because node 0 is
		if n := q.Unsure(); n != 0 {
			t.Errorf("%d claims have nodes that are unsure of the last token; want none", n)
		}
	})
}

// A node is told what few others know. It stays unsure until more of them answer.
func TestR38_NodeThatIsToldWhatFewKnowStaysUnsure(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				q, nodes, renew := readerOn(t, n)
				const last = 1000
				knowing := nodes[1 : n/2+1] // without the one that is lost
				for _, d := range append(knowing[:len(knowing):len(knowing)], nodes[0]) {
					d.read(t, last)
				}
				nodes[0].lose()
				for _, d := range knowing {
					d.refuses = true
				}
				for range 2 { // the second one finds the reader on all nodes
					renew()
					rest()
				}
				if n := q.Unsure(); n != 1 {
					t.Errorf("%d claims have nodes that are unsure of the last token; want 1", n)
				}
				for _, d := range knowing {
					d.refuses = false
				}
				for range 3 { // the first one finds that they are up
					renew()
					rest()
				}
				knowsAll(t, q, last, nodes[0])
			})
		})
	}
}

// A node that does not acknowledge the last token stays unsure of it.
func TestR38_NodeThatDoesNotAcknowledgeStaysUnsure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q, nodes, renew := readerOn(t, 3)
		const last = 1000
		for i := range 2 {
			nodes[i].read(t, last)
		}
		nodes[0].lose()
		nodes[1].refuses = true // so node 0 is healed without it
		renew()
		rest()
		nodes[1].refuses, nodes[0].refuses = false, true
		for range 2 { // the first one finds that node 1 is up
			renew()
			rest()
		}
		if n := q.Unsure(); n != 1 {
			t.Errorf("%d claims have nodes that are unsure of the last token; want 1", n)
		}
		nodes[0].refuses = false
		for range 3 { // the first one finds that it is up
			renew()
			rest()
		}
		knowsAll(t, q, last, nodes[0])
	})
}

// A renewal does not find out whether a node has the claim again. So the node stays unsure, though
// it acknowledges a token later: that token may have been drawn before the claim was set there.
func TestR38_NodeThatDoesNotAnswerTheRenewalStaysUnsure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q, nodes, renew := readerOn(t, 5)
		const last = 1000
		sets, waits := make(chan struct{}), make(chan struct{})
		nodes[0].lose()
		nodes[0].sets, nodes[0].waits = sets, waits
		renew()
		rest() // the call that sets it returns without an answer
		nodes[0].fails = true
		renew() // the others tell their tokens
		for i := range 3 {
			nodes[i].read(t, last)
		}
		nodes[0].lose()
		close(sets)
		synctest.Wait()
		close(waits)
		synctest.Wait()
		nodes[0].fails = false
		for range 3 { // the first one finds that it is up
			rest()
			renew()
		}
		knowsAll(t, q, last, nodes[0])
	})
}

// Some readers are lost on one node, and others on another one, and all are healed in one step,
// each with the token of its own key.
func TestR38_ReadersThatDifferentNodesLostAreHealedTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 8 * quorum.DrawsAtOnce // one step for each healer
		servers := busyServers(3)
		q, other := quorumOf(t, servers, nil), quorumOf(t, servers, nil)
		claims := holdReaders(t, q, n)
		rest()
		servers[2].hang() // it does not hear of the other reader's tokens
		last := readAll(t, other, claims)
		servers[2].goOn()
		time.Sleep(2 * time.Second) // until it counts as up
		for i := range claims {
			servers[i%2].data.Delete(claims[i].Key)
		}
		for range 2 {
			renewMany(t, q, claims)
			rest()
		}
		if n := q.Unsure(); n != 0 {
			t.Errorf("%d claims have nodes that are unsure of the last token; want none", n)
		}
		for i, writer := range claims {
			mustRelease(t, q, writer)
			servers[1-i%2].hang() // it still knows the last token
			writer.Owner, writer.Shared = "writer", false
			// a client that has heard of no token
			if token := mustHold(t, quorumOf(t, servers, nil), writer); token <= last[i] {
				t.Errorf("%s: token %d after %d, want a larger one", writer.Key, token, last[i])
			}
			servers[1-i%2].goOn()
		}
	})
}

// know checks that servers draw only tokens above that one from now on.
func (c *cluster) know(token driver.Token, servers ...int) {
	c.t.Helper()
	c.do(func() {
		for _, i := range servers {
			if fence := c.servers[i].fence; fence < token {
				c.t.Errorf("server %d goes on above token %d; want above %d", i, fence, token)
			}
		}
	})
}

// What is known of unsure nodes goes with the claim.
func TestUnsureNodesAreForgottenWithTheClaim(t *testing.T) {
	for _, released := range []bool{true, false} {
		t.Run(fmt.Sprintf("released %v", released), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, 3)
				a := c.client()
				x := a.shared()
				a.hold(x)
				rest()
				c.restart(true, 0)
				a.renew(x, driver.Held)
				c.freeze(1)
				rest()
				if n := a.Unsure(); n != 1 {
					t.Fatalf("%d claims have unsure nodes; want 1", n)
				}
				c.thaw(1)
				if released {
					a.release(x, driver.Held)
				} else {
					time.Sleep(3 * x.TTL)
					a.Sweep()
				}
				if n := a.Unsure(); n != 0 {
					t.Errorf("%d claims have unsure nodes after their end; want none", n)
				}
			})
		})
	}
}
