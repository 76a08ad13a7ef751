package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/notify"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/wholefile"
	"github.com/holdfast-go/holdfast/election"
)

// statusEvery is how often the file of --status-file is written although nothing has changed. The
// file's age shows whether holdfast works.
const statusEvery = 5 * time.Second

// status is what the file of --status-file says, as one line of JSON.
type status struct {
	State  string    `json:"state"` // leading or standby
	Name   string    `json:"name"`
	Token  string    `json:"token"`  // of the term; empty on standby
	Leader string    `json:"leader"` // who leads; empty: nobody, or not known
	PID    int       `json:"pid"`    // of holdfast
	Since  time.Time `json:"since"`  // when the state began
}

// standing tells how this candidate stands: a file, and the service manager.
type standing struct {
	file    string // empty: none
	self    string // how others see this candidate when it leads
	manager *notify.Manager
	say     *messages
	changed chan struct{}

	mu    sync.Mutex
	now   status
	shown string // whom the backend has shown last

	failing bool // the file could not be written last time
}

const (
	stateLeading = "leading"
	stateStandby = "standby"
)

// newStanding returns the standing of a candidate. It writes the file, so that a wrong path is
// noticed at the start.
func newStanding(file, name, self string, say *messages) (*standing, error) {
	s := &standing{file: file, self: self, say: say, changed: make(chan struct{}, 1), now: status{
		State: stateStandby, Name: name, PID: os.Getpid(), Since: time.Now().Round(time.Second)}}
	err := s.write()
	if err != nil {
		return nil, &exit{codeOutput, fmt.Errorf("--status-file: %w", err)}
	}
	if s.manager, err = notify.Dial(); err != nil {
		say.printf("cannot tell the service manager: %v", err)
	}
	return s, nil
}

// update changes the status, and has it told.
func (s *standing) update(change func(*status)) {
	s.mu.Lock()
	was := s.now
	change(&s.now)
	if s.now.State != was.State {
		s.now.Since = time.Now().Round(time.Second)
	}
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// leads notes the begin of a term. The backend tells of it later, and not at all if it has shown
// this candidate as the leader before. An answer from before the term may still come.
func (s *standing) leads(token holdfast.Token) {
	s.update(func(n *status) { n.State, n.Token, n.Leader = stateLeading, token.String(), s.self })
}

// standsBy notes the end of a term. Who leads now is whom the backend has shown last: it may have
// told while the term was ending, and then tells nothing more. If that is this candidate, nobody
// knows yet.
func (s *standing) standsBy() {
	s.update(func(n *status) {
		n.State, n.Token, n.Leader = stateStandby, "", s.shown
		if s.shown == s.self {
			n.Leader = ""
		}
	})
}

// ledBy notes whom the backend shows. During a term that is not told: the answer may be older.
func (s *standing) ledBy(l election.Leader) {
	s.update(func(n *status) {
		s.shown = ""
		if l.Exists() {
			s.shown = l.String()
		}
		if n.State == stateStandby {
			n.Leader = s.shown
		}
	})
}

func (s *standing) get() status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// run tells every change until ctx ends, and then tells that this is the end.
func (s *standing) run(ctx context.Context) {
	every := time.NewTicker(statusEvery)
	defer every.Stop()
	var watchdog <-chan time.Time
	if d := s.manager.Every(); d > 0 {
		ticker := time.NewTicker(d)
		defer ticker.Stop()
		watchdog = ticker.C
	}
	s.notify("READY=1", s.text())
	for {
		select {
		case <-s.changed:
			s.notify(s.text())
			s.writeOrSay()
		case <-every.C:
			s.writeOrSay()
		case <-watchdog:
			s.notify("WATCHDOG=1")
		case <-ctx.Done():
			s.notify("STOPPING=1")
			if err := s.manager.Close(); err != nil {
				s.say.printf("%v", err)
			}
			s.remove()
			return
		}
	}
}

// text is the status for the service manager.
func (s *standing) text() string {
	n := s.get()
	switch {
	case n.State == stateLeading:
		return "STATUS=leading " + n.Name + " (token " + n.Token + ")"
	case n.Leader != "":
		return "STATUS=standing by for " + n.Name + ", led by " + n.Leader
	default:
		return "STATUS=standing by for " + n.Name
	}
}

func (s *standing) notify(assignments ...string) {
	if err := s.manager.Tell(assignments...); err != nil {
		s.say.printf("cannot tell the service manager: %v", err)
	}
}

// writeOrSay writes the file, and says once that this fails.
func (s *standing) writeOrSay() {
	err := s.write()
	if err != nil && !s.failing {
		s.say.printf("--status-file: %v", err)
	}
	s.failing = err != nil
}

// write replaces the file in one step, so a reader sees the old or the new one.
func (s *standing) write() error {
	if s.file == "" {
		return nil
	}
	var text bytes.Buffer
	line := json.NewEncoder(&text)
	line.SetEscapeHTML(false) // for grep
	if err := line.Encode(s.get()); err != nil {
		return err
	}
	return wholefile.Write(s.file, 0o644, text.Bytes()) // health checks run as other users, too
}

// remove removes the file, so that nothing is left that says that this candidate leads.
func (s *standing) remove() {
	if s.file == "" {
		return
	}
	if err := wholefile.Remove(s.file); err != nil {
		s.say.printf("--status-file: %v", err)
	}
}
