//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

// Tests of what happens between processes start this test binary again, in a role.
const roleVariable = "FILEHOLD_TEST_ROLE"

var roles = map[string]func(){
	"serve":   serve,
	"inherit": waitForInput,
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		run, ok := roles[role]
		if !ok {
			fmt.Fprintf(os.Stderr, "no role %q\n", role)
			os.Exit(2)
		}
		run()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// command prepares this test binary in a role.
func command(role string, env ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	// Otherwise a process under the race detector would take a second to end.
	cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// request is a line to a process in the role "serve", reply one from it.
type request struct {
	Op     string // "acquire", "renew", "release", "child", "close", "tick", "files"
	Claims []wireClaim
}

type reply struct {
	Error   string
	Results []wireResult
	PID     int
	Notice  *driver.Notice `json:",omitempty"`
}

type wireClaim struct {
	Key    []byte
	Owner  string
	TTL    time.Duration
	Token  driver.Token
	Block  uint64
	Queue  bool
	Ticket uint64
	Shared bool
}

type wireResult struct {
	State     driver.State
	Token     driver.Token
	Waiting   bool
	Holder    string
	ExpiresIn time.Duration
	Place     int
	Presence  time.Duration
}

func toWire(c driver.Claim) wireClaim {
	return wireClaim{[]byte(c.Key), c.Owner, c.TTL, c.Token, c.Block, c.Queue, c.Ticket, c.Shared}
}

func (c wireClaim) claim() driver.Claim {
	return driver.Claim{Key: string(c.Key), Owner: c.Owner, TTL: c.TTL, Token: c.Token,
		Block: c.Block, Queue: c.Queue, Ticket: c.Ticket, Shared: c.Shared}
}

func fromResult(r driver.Result) wireResult {
	return wireResult{r.State, r.Token, r.Waiting, r.Holder, r.ExpiresIn, r.Place, r.Presence}
}

func (r wireResult) result() driver.Result {
	return driver.Result{State: r.State, Token: r.Token, Holder: r.Holder, ExpiresIn: r.ExpiresIn,
		Place: r.Place, Presence: r.Presence}
}

// fewFiles is a limit on open files far below the number of keys that are held.
const fewFiles = 64

// serve carries out requests from its standard input, one after the other, on the directory
// FILEHOLD_TEST_DIR.
func serve() {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(r reply) {
		mu.Lock()
		defer mu.Unlock()
		out.Encode(r)
	}
	if os.Getenv("FILEHOLD_TEST_FEW_FILES") != "" {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE,
			&syscall.Rlimit{Cur: fewFiles, Max: fewFiles}); err != nil {
			panic(err)
		}
	}
	b, err := filehold.Open(os.Getenv("FILEHOLD_TEST_DIR"))
	if err != nil {
		say(reply{Error: err.Error()})
		return
	}
	b.Notify(func(n driver.Notice) { say(reply{Notice: &n}) })
	say(reply{PID: os.Getpid()})
	ctx := context.Background()
	in := json.NewDecoder(os.Stdin)
	for {
		var q request
		if in.Decode(&q) != nil {
			return
		}
		var r reply
		var results []driver.Result
		var err error
		claims := make([]driver.Claim, len(q.Claims))
		for i, c := range q.Claims {
			claims[i] = c.claim()
		}
		switch q.Op {
		case "acquire":
			for _, c := range claims {
				var result driver.Result
				if result, err = b.Acquire(ctx, c); err != nil {
					break
				}
				results = append(results, result)
			}
		case "renew":
			results, err = b.Renew(ctx, claims)
		case "release":
			for _, c := range claims {
				var result driver.Result
				if result, err = b.Release(ctx, c); err != nil {
					break
				}
				results = append(results, result)
			}
		case "child":
			child := command("inherit")
			child.ExtraFiles = b.Inherit()
			child.Stdin, _ = os.Open(os.Getenv("FILEHOLD_TEST_PIPE"))
			if err = child.Start(); err == nil {
				r.PID = child.Process.Pid
			}
		case "close":
			err = b.Close()
		case "tick":
			filehold.Tick(b)
		case "files":
			entries, _ := os.ReadDir("/dev/fd")
			r.PID = len(entries)
		}
		if err != nil {
			r.Error = err.Error()
		}
		for _, result := range results {
			r.Results = append(r.Results, fromResult(result))
		}
		say(r)
	}
}

// waitForInput ends when its standard input does.
func waitForInput() { io.Copy(io.Discard, os.Stdin) }

// process is another process that uses a directory.
type process struct {
	t       testing.TB
	cmd     *exec.Cmd
	in      *json.Encoder
	replies chan reply
	notices chan driver.Notice
	waited  chan struct{} // closed when it has ended and was waited for
}

// start runs a process that has opened dir.
func start(t testing.TB, dir string, env ...string) *process {
	t.Helper()
	p, err := tryStart(t, dir, env...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// startAll runs n processes that have opened dir. A process that queues must not wait for the start
// of the next one: that may take longer than a waiter is present.
func startAll(t testing.TB, dir string, n int) (line []*process) {
	t.Helper()
	for range n {
		line = append(line, start(t, dir))
	}
	return line
}

func tryStart(t testing.TB, dir string, env ...string) (*process, error) {
	t.Helper()
	cmd := command("serve", append(env, "FILEHOLD_TEST_DIR="+dir)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{
		t: t, cmd: cmd, in: json.NewEncoder(stdin),
		replies: make(chan reply, 1), notices: make(chan driver.Notice, 1000),
		waited: make(chan struct{}),
	}
	go func() {
		defer close(p.waited)
		defer close(p.replies)
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			var r reply
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				continue // cut by the process's death
			}
			if r.Notice != nil {
				p.notices <- *r.Notice
			} else {
				p.replies <- r
			}
		}
		cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		stdin.Close()
	})
	r, ok := <-p.replies
	if !ok || r.Error != "" {
		return nil, fmt.Errorf("process did not start: %s", r.Error)
	}
	return p, nil
}

func (p *process) do(op string, claims ...driver.Claim) reply {
	p.t.Helper()
	q := request{Op: op}
	for _, c := range claims {
		q.Claims = append(q.Claims, toWire(c))
	}
	if err := p.in.Encode(q); err != nil {
		p.t.Fatalf("%s: %v", op, err)
	}
	r, ok := <-p.replies
	if !ok {
		p.t.Fatalf("%s: the process has ended", op)
	}
	return r
}

func (p *process) one(op string, claim driver.Claim) driver.Result {
	p.t.Helper()
	r := p.do(op, claim)
	if r.Error != "" {
		p.t.Fatalf("%s %q: %s", op, claim.Key, r.Error)
	}
	return r.Results[0].result()
}

func (p *process) acquire(c driver.Claim) driver.Result { p.t.Helper(); return p.one("acquire", c) }
func (p *process) renew(c driver.Claim) driver.Result   { p.t.Helper(); return p.one("renew", c) }
func (p *process) release(c driver.Claim) driver.Result { p.t.Helper(); return p.one("release", c) }

// kill ends the process as kill -9 does, and waits until it is gone.
func (p *process) kill() {
	p.cmd.Process.Signal(syscall.SIGCONT)
	p.cmd.Process.Kill()
	<-p.waited
}

// stop freezes the process, and waits until it is frozen.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	// The process is not waited for elsewhere while it lives.
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !status.Stopped() {
			p.t.Fatalf("wait for the process to stop: %v, status %#x", err, status)
		}
		return
	}
}

func (p *process) cont() { p.cmd.Process.Signal(syscall.SIGCONT) }

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	const patience = 30 * time.Second
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// killHolder makes another process hold key, and kills it.
func killHolder(t testing.TB, dir, key string) {
	t.Helper()
	p := start(t, dir)
	want(t, "holder", p.acquire(claim(key)), driver.Held)
	p.kill()
}
