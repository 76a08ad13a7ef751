package drivertest

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Notices tell waiters that it is their turn. They are hints. The rules require that they come
// while nothing is wrong, that they are true, and that nothing depends on them.
var noticeRules = []rule{
	{name: "Notices/GrantIsPushed", needs: queue | notify, check: func(s *suite) {
		b1, b2 := s.open(), s.open()
		inbox := s.listen(b2)
		// A subscription may take effect after Notify has returned, and notices before that are
		// lost. So grants are repeated until the first notice comes. From then on each grant must
		// be pushed.
		var last driver.Token
		for pushed, tries := 0, 0; pushed < 3; tries++ {
			a, w := s.claim("k"), s.queued("k")
			w.Block = 7
			last = s.rises(last, s.hold(b1, a).Token)
			s.wait(b2, w, a, 1)
			s.release(b1, a, driver.Held)
			n, ok := inbox.await(w.Owner, s.Patience/10)
			if !ok {
				if pushed > 0 || tries > 20 {
					s.Fatalf("no notice of the grant, after %d of %d that came", pushed, tries)
				}
				last = s.rises(last, s.hold(b2, w).Token) + 6
				s.release(b2, w, driver.Held)
				continue
			}
			pushed++
			if n.Kind != driver.Granted || n.Key != "k" || n.Block != 7 {
				s.Fatalf("notice %+v; want Granted on %q with a block of 7", n, "k")
			}
			s.rises(last, n.Token)
			// The holder is w, with exactly the tokens of the notice: its next block begins behind.
			s.renew(b2, w, driver.Held)
			next := s.renew(b2, w, driver.Held).Token
			last = s.rises(n.Token+6, next) + 6
			s.release(b2, w, driver.Held)
		}
	}},
	{name: "Notices/AddressTheWaiter", needs: queue | notify, check: func(s *suite) {
		b := s.open()
		inbox := s.listen(b)
		a, x, y := s.claim("k"), s.queued("k"), s.queued("k")
		s.hold(b, a)
		s.wait(b, x, a, 1)
		s.wait(b, y, a, 2)
		for _, step := range []struct{ leaves, next driver.Claim }{{a, x}, {x, y}} {
			s.release(b, step.leaves, driver.Held)
			s.hold(b, step.next)
			for _, n := range inbox.all() {
				if n.Kind == driver.Granted && n.Owner != x.Owner &&
					(n.Owner != y.Owner || step.next.Owner == x.Owner) {
					s.Fatalf("notice %+v while the holder is %q", n, step.next.Owner)
				}
			}
		}
	}},
	{name: "Notices/LostOneIsFoundByAsking", needs: queue | notify, check: func(s *suite) {
		b := s.open() // nobody listens
		a, w := s.claim("k"), s.queued("k")
		s.hold(b, a)
		s.wait(b, w, a, 1)
		s.release(b, a, driver.Held)
		s.hold(b, w)
	}},
	{name: "Notices/NoneAfterStop", needs: queue | notify, check: func(s *suite) {
		b := s.open()
		n, ok := b.(driver.Notifier)
		if !ok {
			s.Fatal("not a driver.Notifier")
		}
		inbox := s.listen(b)
		stopped := make(chan struct{})
		stop := n.Notify(func(n driver.Notice) {
			select {
			case <-stopped:
				s.Errorf("notice %+v after stop", n)
			default:
			}
		})
		handoff := func() {
			a, w := s.claim("k"), s.queued("k")
			s.hold(b, a)
			s.wait(b, w, a, 1)
			s.release(b, a, driver.Held)
			// A listener has heard of it by now, or never will.
			inbox.await(w.Owner, s.Patience/10)
			s.hold(b, w)
			s.release(b, w, driver.Held)
		}
		handoff()
		stop()
		close(stopped)
		handoff()
		stop() // twice is safe
		handoff()
	}},
}

// inbox collects notices.
type inbox struct {
	mu      sync.Mutex
	notices []driver.Notice
	changed chan struct{} // closed at the next notice, and then replaced
}

// listen subscribes to the client's notices until the end of the test.
func (s *suite) listen(b driver.Backend) *inbox {
	s.Helper()
	n, ok := b.(driver.Notifier)
	if !ok {
		s.Fatal("not a driver.Notifier")
	}
	in := &inbox{changed: make(chan struct{})}
	s.Cleanup(n.Notify(func(n driver.Notice) {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.notices = append(in.notices, n)
		close(in.changed)
		in.changed = make(chan struct{})
	}))
	return in
}

func (in *inbox) all() []driver.Notice {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]driver.Notice(nil), in.notices...)
}

// await returns the first grant addressed to owner, if it comes in time.
func (in *inbox) await(owner string, patience time.Duration) (driver.Notice, bool) {
	end := time.NewTimer(patience)
	defer end.Stop()
	for {
		in.mu.Lock()
		for _, n := range in.notices {
			if n.Kind == driver.Granted && n.Owner == owner {
				in.mu.Unlock()
				return n, true
			}
		}
		changed := in.changed
		in.mu.Unlock()
		select {
		case <-changed:
		case <-end.C:
			return driver.Notice{}, false
		}
	}
}
