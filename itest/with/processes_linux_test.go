//go:build linux

package with

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// Where the locks and the tasks of a child are.
const (
	locksVariable = "HOLDFAST_WITH_LOCKS"
	tasksVariable = "HOLDFAST_WITH_TASKS"
)

func TestMain(m *testing.M) {
	if os.Getenv(locksVariable) == "" {
		os.Exit(m.Run())
	}
	go runAdapters(os.Getenv(locksVariable), os.Getenv(tasksVariable))
	io.Copy(io.Discard, os.Stdin) // until the parent is gone
}

// runAdapters makes all adapters work in this process, and writes a line for each event.
func runAdapters(locks, tasks string) {
	var mu sync.Mutex
	say := func(what, name string, token holdfast.Token, text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf("%s\t%s\t%d\t%d\t%s\n", what, name, token, time.Now().UnixNano(), text)
	}
	for name, adapter := range adapters {
		s := &stage{TB: errorsOfChild{say: say, name: name}, name: name, begun: make(chan struct{}),
			tell: func(what string, token holdfast.Token) { say(what, name, token, "") }}
		p, _ := newProcess(context.Background(), s, locks, tasks)
		go p.again(func() { adapter(p) })
	}
	say("ready", "", 0, "")
}

// errorsOfChild tells the parent of errors.
type errorsOfChild struct {
	testing.TB
	say  func(what, name string, token holdfast.Token, text string)
	name string
}

func (c errorsOfChild) Errorf(format string, args ...any) {
	c.say("error", c.name, 0, fmt.Sprintf(format, args...))
}

// event is a line of a child.
type event struct {
	what, name string
	token      holdfast.Token
	at         time.Time
	text       string
}

// family has children, which are processes with all adapters.
type family struct {
	testing.TB
	locks, tasks *redistest.Server

	mu   sync.Mutex
	news chan struct{} // closed with the next event of a child
}

type child struct {
	*family
	cmd   *exec.Cmd
	ready bool
	last  map[string]event // begin or end, by adapter
}

func (f *family) bear() *child {
	f.Helper()
	c := &child{family: f, cmd: exec.Command(os.Args[0]), last: make(map[string]event)}
	c.cmd.Env = append(os.Environ(), locksVariable+"="+f.locks.URL(),
		tasksVariable+"="+f.tasks.URL())
	c.cmd.Stderr = os.Stderr
	_, err := c.cmd.StdinPipe() // open as long as this process lives
	if err != nil {
		f.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		f.Fatal(err)
	}
	if err := testserver.StartProcess(c.cmd); err != nil {
		f.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(out); s.Scan(); {
			fields := strings.Split(s.Text(), "\t")
			if len(fields) != 5 {
				continue
			}
			e := event{what: fields[0], name: fields[1], text: fields[4]}
			var nanos int64
			fmt.Sscan(fields[2]+" "+fields[3], &e.token, &nanos)
			e.at = time.Unix(0, nanos)
			c.note(e)
		}
	}()
	f.Cleanup(func() {
		c.cmd.Process.Kill()
		<-done
		c.cmd.Wait()
	})
	return c
}

func (c *child) note(e event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.what {
	case "error":
		c.Errorf("%s: %s", e.name, e.text)
	case "ready":
		c.ready = true
	default:
		c.last[e.name] = e
	}
	close(c.news)
	c.news = make(chan struct{})
}

// all waits until what was asked for has happened to all adapters.
func (c *child) all(what string) {
	c.Helper()
	c.await(func() (missing string) {
		for name := range adapters {
			if c.last[name].what != what {
				missing += " " + name
			}
		}
		return missing
	})
}

// await waits until nothing is missing. It asks after each event.
func (f *family) await(missing func() string) {
	f.Helper()
	deadline := time.After(testserver.Patience)
	for {
		f.mu.Lock()
		what, news := missing(), f.news
		f.mu.Unlock()
		if what == "" {
			return
		}
		select {
		case <-news:
		case <-deadline:
			f.Fatal("missing:", what)
		}
	}
}

// In TestProcesses the process that holds all locks is stopped, and later killed. Another one takes
// over when the lease of each lock is over, and not before. The stopped process ends its work when
// it goes on.
func TestProcesses(t *testing.T) {
	f := &family{TB: t, locks: redistest.Start(t), tasks: redistest.Start(t),
		news: make(chan struct{})}
	client := redis.NewClient(&redis.Options{Addr: f.locks.Addr})
	t.Cleanup(func() { client.Close() })
	a := f.bear()
	a.all("begin")
	b := f.bear()
	f.await(func() string {
		if b.ready {
			return ""
		}
		return "the second process"
	})
	takesOver := func(how syscall.Signal, from, to *child) {
		t.Helper()
		if err := from.cmd.Process.Signal(how); err != nil {
			t.Fatal(err)
		}
		ends := make(map[string]time.Time) // of the leases, or earlier
		for name := range adapters {
			now := time.Now()
			left, err := client.PTTL(t.Context(), name).Result()
			if err != nil || left <= 0 {
				t.Errorf("%v: the lock of %s lasts for %v: %v", how, name, left, err)
			}
			ends[name] = now.Add(left - 2*time.Millisecond)
		}
		to.all("begin")
		f.mu.Lock()
		defer f.mu.Unlock()
		for name := range adapters {
			was, is := from.last[name], to.last[name]
			if early := ends[name].Sub(is.at); early > 0 {
				t.Errorf("%v: another has the lock of %s %v before the lease is over", how, name,
					early)
			}
			if was.what != "begin" || is.token != 0 && is.token <= was.token {
				t.Errorf("%v: %s: token %d after the %s of %d", how, name, is.token, was.what,
					was.token)
			}
		}
	}
	takesOver(syscall.SIGSTOP, a, b)
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	a.all("end")
	takesOver(syscall.SIGKILL, b, a)
}
