package zkhold

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// What the answers of a session prove: three quarters of its timeout from a request, if there was
// no gap between answers for a quarter of it, or the session was made or found just before.
func TestSessionProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 24 * time.Second
		s := &session{known: make(chan struct{})}
		time.Sleep(time.Minute)
		lasts := func(id int64, d time.Duration) bool {
			_, sure := s.lasts(id, driver.LeaseClock()+d)
			return sure
		}
		answer := func(id int64) { s.answered(id, driver.LeaseClock(), true) }
		answer(0)
		if lasts(0, 0) {
			t.Error("there is no session, and it lasts")
		}
		s.granted(7, timeout, driver.LeaseClock())
		<-s.known
		if lasts(7, 1) {
			t.Error("a session lasts without an answer")
		}
		answer(7)
		if !lasts(7, 18*time.Second) || lasts(7, 18*time.Second+1) {
			t.Error("a new session does not last for three quarters")
		}
		time.Sleep(2 * time.Second)
		answer(7)
		if !lasts(7, 18*time.Second) {
			t.Error("an answer without a gap does not count")
		}
		time.Sleep(2*time.Second + 1)
		answer(7)
		if lasts(7, 17*time.Second) {
			t.Error("an answer after a gap counts")
		}
		for range 5 {
			time.Sleep(time.Second)
			answer(7)
		}
		if lasts(7, 17*time.Second) {
			t.Error("an answer soon after a gap counts")
		}
		time.Sleep(time.Second)
		answer(7)
		if !lasts(7, 18*time.Second) {
			t.Error("an answer long enough after a gap does not count")
		}
		sent := driver.LeaseClock()
		time.Sleep(time.Second)
		s.answered(7, sent, true)
		if lasts(7, 18*time.Second) {
			t.Error("a lease is counted from an answer, not from its request")
		}
		for range 12 {
			time.Sleep(time.Second)
			s.answered(7, driver.LeaseClock(), false)
		}
		if lasts(7, 6*time.Second) {
			t.Error("an answer counts to which the leader needs nobody")
		}
		answer(7)
		if !lasts(7, 18*time.Second) {
			t.Error("answers of the leader alone count as a gap")
		}
		s.granted(8, timeout, driver.LeaseClock())
		answer(7)
		if lasts(7, 0) || lasts(8, 1) {
			t.Error("what another session was told counts")
		}
		answer(8)
		if same, sure := s.lasts(8, driver.LeaseClock()+time.Second); !same || !sure {
			t.Error("the new session does not last")
		}
		s.granted(0, 0, driver.LeaseClock())
		if same, _ := s.lasts(8, 0); same {
			t.Error("a session that has expired is there")
		}
		if _, granted := s.current(); granted != timeout {
			t.Errorf("without a session the timeout is %v; want the last one", granted)
		}
	})
}

// A slot never has the version that stands for any version.
func TestVersionWraps(t *testing.T) {
	for version, want := range map[int32][]int32{0: {0}, 1<<31 - 1: {1<<31 - 1}, -3: {-3},
		-2: {-2, -1}} {
		p := &plan{slot: &slot{path: "/s", version: version,
			record: record{Locks: make(map[string]*lock)}}, lock: new(lock)}
		var got []int32
		for _, op := range p.operations(nil, nil) {
			got = append(got, op.(*zk.SetDataRequest).Version)
		}
		if !slices.Equal(got, want) {
			t.Errorf("after version %d it is written with the conditions %v; want %v", version, got,
				want)
		}
	}
}

// Where a key is kept never changes: clients of all versions have to agree.
func TestSlots(t *testing.T) {
	b := &Backend{root: DefaultRoot, slots: slots}
	for key, want := range map[string]string{"": "1c5", "a": "12c", "invoice/42": "04b",
		"\xff\x00": "0ca"} {
		if got := b.slotOf(key); got != want {
			t.Errorf("%q is in slot %s; want %s", key, got, want)
		}
	}
}

// The timeout of a listing is for each of its waits, and not for what the caller does meanwhile.
func TestListingTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listing{ctx: t.Context(), b: &Backend{timeout: 10 * time.Second},
			answers: make(chan answered)}
		answer := func(after time.Duration) {
			go func() {
				time.Sleep(after)
				l.tell(answered{})
			}()
		}
		for range 3 {
			answer(7 * time.Second)
			if _, err := l.wait(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
		start := time.Now()
		_, err := l.wait()
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrUnavailable) ||
			errors.Is(err, driver.ErrUnknown) {
			t.Errorf("without an answer: %v; want ErrUnavailable by its timeout", err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("it waited for %v; want the timeout", took)
		}
	})
}

func TestRecordOfOthers(t *testing.T) {
	for data, ok := range map[string]bool{"": true, "{}": true, `{"tokens":7}`: true, "x": false,
		`{"locks":{"k":null}}`: false, `{"locks":{"k":{"holders":[null]}}}`: false,
		`{"locks":{"k":{"waiters":[null]}}}`: false, `[]`: false} {
		if _, err := decode([]byte(data)); (err == nil) != ok {
			t.Errorf("%q is read with the error %v", data, err)
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "a", "a/b", "%", "%41", "\x00", "\xff%\xfe", "größer ☂",
		"\ufffd"} {
		f.Add(s, s+"x")
	}
	f.Fuzz(func(t *testing.T, s, other string) {
		r := record{Locks: map[string]*lock{escape(s): new(lock)}}
		back, err := decode(encode(r))
		if err != nil {
			t.Fatal(err)
		}
		for name := range back.Locks {
			if unescape(name) != s {
				t.Errorf("%q comes back as %q", s, unescape(name))
			}
		}
		if (escape(s) == escape(other)) != (s == other) {
			t.Errorf("%q and %q are confused", s, other)
		}
	})
}

// The servers are tried in turn, and only a round without a connection counts as failed.
func TestHosts(t *testing.T) {
	h := new(hosts)
	h.Init([]string{"a", "b"})
	for i, want := range []struct {
		server    string
		again     bool
		connected bool
	}{{"a", false, true}, {"b", false, false}, {"a", false, false}, {"b", true, false},
		{"a", false, true}, {"b", false, false}} {
		server, again := h.Next()
		if server != want.server || again != want.again {
			t.Errorf("attempt %d: %s, %v; want %s, %v", i, server, again, want.server, want.again)
		}
		if want.connected {
			h.Connected()
		}
	}
}

// Check reports a session that is longer than was asked for, as it does a shorter one. The servers
// of the tests grant what is asked for.
func TestCheckOfALongSession(t *testing.T) {
	for granted, want := range map[time.Duration]string{time.Minute: "", 0: "",
		time.Hour: "at least", time.Second: "at most, so a TTL is 750ms"} {
		b := &Backend{wanted: time.Minute}
		b.session.timeout = granted
		f, found := b.checkSession()
		if found != (want != "") || !strings.Contains(f.Summary, want) {
			t.Errorf("of %v, %v are granted: %+v", b.wanted, granted, f)
		}
	}
}
