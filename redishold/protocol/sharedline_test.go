package protocol_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// Callers come, wait and give up at random times. The lines of the slots keep what they promise:
// one request of a slot is on its way at a time; they go in the order in which they came; who
// gives up returns at once; what somebody waits for is sent; of equal releases that were given up
// the last one is sent, and no other; in the end nothing is left.
func TestSharedLineAtRandom(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) { lineAtRandom(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// asked is a request of a random history.
type asked struct {
	name     string // of equal releases the same
	release  bool
	patience time.Duration
	err      error
	took     time.Duration
	gone     bool // with err
	sent     bool
}

// heeding is a library that sends nothing when the context has ended.
type heeding struct{ *fakeLibrary }

func (h heeding) Node(context.Context, uint16) (protocol.Node, error) { return h, nil }

func (h heeding) Pipeline(ctx context.Context, commands []protocol.Command,
	replies []protocol.Reply) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return h.fakeLibrary.Pipeline(ctx, commands, replies)
}

func lineAtRandom(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, seed))
	var came []*asked
	var mu sync.Mutex
	last := make(map[string]int) // number of the request that was sent last, by key
	busy := make(map[string]bool)
	begin := func(key string, number int) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if busy[key] || number <= last[key] {
			t.Errorf("request %d of %s was sent after %d, under way: %v", number, key, last[key],
				busy[key])
		}
		a := came[number-1]
		if a.gone && slices.ContainsFunc(came[number:], func(o *asked) bool {
			return o.gone && o.release && o.name == a.name
		}) {
			t.Errorf("request %d, %s, was sent before an equal one that was given up, too", number,
				a.name)
		}
		busy[key], last[key], a.sent = true, number, true
		return time.Duration(random.IntN(30)) * time.Millisecond
	}
	l := &fakeLibrary{answer: func(c protocol.Command) protocol.Reply {
		at := 11
		if scriptName(c[1]) == "acquire" {
			at = 19
		}
		number, err := strconv.Atoi(c[at])
		if err != nil {
			t.Error(err)
			return one(c)
		}
		time.Sleep(begin(c[3], number))
		mu.Lock()
		defer mu.Unlock()
		busy[c[3]] = false
		return one(c)
	}}
	tr := protocol.Shared(heeding{l})
	b := protocol.New(tr, protocol.Options{})
	for i := range 60 {
		mu.Lock()
		a := &asked{release: random.IntN(2) == 0,
			// between the times at which requests are sent
			patience: time.Duration(random.IntN(60))*time.Millisecond + 500*time.Microsecond}
		c := claimOf(fmt.Sprint("owner", i))
		if a.release {
			c.Owner = fmt.Sprint("released", random.IntN(3))
		}
		c.Key = fmt.Sprint("k", random.IntN(2))
		a.name = c.Key + " " + c.Owner
		pause := time.Duration(random.IntN(12)) * time.Millisecond
		came = append(came, a)
		mu.Unlock()
		go func() {
			took, err := a.ask(t, b, c)
			mu.Lock()
			defer mu.Unlock()
			a.took, a.err, a.gone = took, err, err != nil
		}()
		synctest.Wait() // so they come in this order
		time.Sleep(pause)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	for i, a := range came {
		a.check(t, came[i:])
	}
	if kept := protocol.Kept(tr); kept != 0 {
		t.Errorf("%d things are remembered when all are back", kept)
	}
	b.Close()
}

func (a *asked) ask(t *testing.T, b *protocol.Backend, c driver.Claim) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(t.Context(), a.patience)
	defer cancel()
	start, call := time.Now(), b.Acquire
	if a.release {
		call = b.Release
	}
	_, err := call(ctx, c)
	return time.Since(start), err
}

// check checks a request. later are those that came when it did and after it.
func (a *asked) check(t *testing.T, later []*asked) {
	sent := a.sent
	if a.release && a.err != nil {
		sent = slices.ContainsFunc(later, func(o *asked) bool {
			return o.sent && o.release && o.name == a.name
		})
	}
	if want := !errors.Is(a.err, driver.ErrUnavailable); sent != want {
		t.Errorf("%s, release: %v, ended with %v. Sent: %v", a.name, a.release, a.err, sent)
	}
	if a.took > a.patience {
		t.Errorf("%s took %v; its caller gave up after %v", a.name, a.took, a.patience)
	}
}
