//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filehold"
)

func init() {
	roles["die"] = die
	roles["churn"] = churn
}

// die does everything that a Backend does to a directory, and is killed at the call that
// FILEHOLD_TEST_AT says. It prints each token that it was granted, and in the end how many calls
// there are.
func die() {
	at, err := strconv.Atoi(os.Getenv("FILEHOLD_TEST_AT"))
	check(err)
	calls := filehold.DieAt(at, os.Getenv("FILEHOLD_TEST_TORN") != "")
	use(os.Getenv("FILEHOLD_TEST_DIR"))
	n, writes := calls()
	fmt.Println("calls", n)
	for _, at := range writes {
		fmt.Println("write", at)
	}
}

// use does everything that a Backend does to a directory, with the keys "k" and "k2", and prints
// each token that it was granted.
func use(dir string) {
	a, err := filehold.Open(dir)
	check(err)
	b, err := filehold.Open(dir)
	check(err)
	notices := listen(b)
	ctx := context.Background()
	tell := func(r driver.Result, err error) driver.Result {
		check(err)
		if r.Token > 0 {
			fmt.Println("token", uint64(r.Token))
		}
		return r
	}
	x, y := queued("k"), queued("k")
	tell(a.Acquire(ctx, x)) // a new file
	asked := time.Now()
	present := func() bool { return time.Since(asked) < filehold.Presence }
	tell(b.Acquire(ctx, y)) // its second place
	x.Block = 10
	results, err := a.Renew(ctx, []driver.Claim{x}) // its first place again
	check(err)
	tell(results[0], nil)
	tell(a.Release(ctx, x)) // handed over
	for turn := false; !turn; {
		select {
		case n := <-notices:
			turn = true
			fmt.Println("token", uint64(n.Token))
		case <-time.After(filehold.Presence): // it was stopped for longer than it is present
			turn = tell(b.Acquire(ctx, y)).State == driver.Held
		}
	}
	tell(a.Acquire(ctx, x))
	y.Block = 10
	results, err = b.Renew(ctx, []driver.Claim{y})
	check(err)
	if tell(results[0], nil); !results[0].Waiting && present() {
		check(fmt.Errorf("renewal of what is waited for: %+v", results[0]))
	}
	tell(b.Release(ctx, y)) // handed over the other way
	// A queue that needs a new file, and one that fits into a place again.
	var line []driver.Claim
	for range 10 {
		c := queued("k")
		c.Owner += strings.Repeat("x", 200)
		tell(b.Acquire(ctx, c))
		line = append(line, c)
	}
	for _, c := range line[1:] {
		tell(b.Release(ctx, c))
	}
	tell(b.Release(ctx, line[0]))
	c := claim("k2")
	c.Token = driver.Token(time.Now().Add(time.Hour).UnixMicro()) // above the ceiling
	tell(a.Acquire(ctx, c))
	tell(a.Release(ctx, c))
	// One steps down, another comes in, a third is let in after a fourth, and all leave.
	x.Shared = true
	results, err = a.Renew(ctx, []driver.Claim{x})
	check(err)
	tell(results[0], nil)
	readers := []driver.Claim{shared("k"), shared("k")}
	tell(b.Acquire(ctx, readers[0]))
	writer := queued("k")
	tell(a.Acquire(ctx, writer))
	asked = time.Now()
	tell(b.Acquire(ctx, readers[1]))
	tell(a.Release(ctx, writer))
	for i, c := range readers {
		if r := tell(b.Release(ctx, c)); r.State != driver.Held && (i == 0 || present()) {
			check(fmt.Errorf("release of a sharer: %+v", r))
		}
	}
	tell(a.Release(ctx, x)) // the file is removed
	check(a.Close())
	check(b.Close())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// death is what a process in the role "die" has told.
type death struct {
	token  uint64 // the largest
	calls  int    // if it was not killed
	writes []int  // which of them are writes
}

func runDie(t testing.TB, dir string, at int, torn bool) (d death) {
	t.Helper()
	env := []string{"FILEHOLD_TEST_DIR=" + dir, "FILEHOLD_TEST_AT=" + strconv.Itoa(at)}
	if torn {
		env = append(env, "FILEHOLD_TEST_TORN=1")
	}
	cmd := command("die", env...)
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		var what string
		var n int
		fmt.Sscan(line, &what, &n)
		switch what {
		case "token":
			d.token = max(d.token, uint64(n))
		case "calls":
			d.calls = n
		case "write":
			d.writes = append(d.writes, n)
		}
	}
	if err != nil && cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("at %d: %v", at, err)
	}
	return d
}

// TestKilledAtAnyCall kills a process before, and in the middle of, each call with which it changes
// the directory. Its invariants:
//
//   - nothing that it held is held any more, nor in anybody's way;
//   - tokens go on above its own;
//   - when others have used the directory nothing of it is left, whether somebody else was there
//     all the time or not.
func TestKilledAtAnyCall(t *testing.T) {
	t.Parallel() // with the others that wait for processes and disks
	all := runDie(t, t.TempDir(), 0, false)
	t.Logf("%d calls, %d of them writes", all.calls, len(all.writes))
	if all.calls < 100 || len(all.writes) < 30 {
		t.Fatal("too few")
	}
	var calls []int
	for at := 1; at <= all.calls; at++ {
		calls = append(calls, at)
	}
	for torn, calls := range map[bool][]int{false: calls, true: all.writes} {
		for _, at := range calls {
			if rand.IntN(2) > 0 {
				continue // others at the next run
			}
			dir := t.TempDir()
			witnessed := at%2 == 0
			var witness *filehold.Backend
			if witnessed {
				witness = open(t, dir)
				c := claim("witness")
				acquire(t, witness, c)
				release(t, witness, c)
			}
			highest := runDie(t, dir, at, torn).token
			b, err := filehold.Open(dir)
			if err != nil {
				t.Fatalf("killed at %d, torn %v: %v", at, torn, err)
			}
			for _, key := range []string{"k", "k2"} {
				c := claim(key)
				c.Token = 1
				r := acquire(t, b, c)
				if r.State != driver.Held || uint64(r.Token) <= highest {
					t.Fatalf("killed at %d, torn %v: acquire %q: %+v, after token %d", at, torn,
						key, r, highest)
				}
				highest = uint64(r.Token)
				want(t, "release", release(t, b, c), driver.Held)
			}
			if witnessed {
				what := fmt.Sprintf("nothing is left of who was killed at %d, torn %v, while a "+
					"witness lives", at, torn)
				eventually(t, what, func() bool {
					visit(t, dir)
					return keyFiles(t, dir) == 0 && members(t, dir) == 2
				})
				witness.Close()
			}
			b.Close()
			tidy(t, dir)
			if names, err := os.ReadDir(dir); err != nil || len(names) != len(filehold.FenceNames) {
				t.Errorf("killed at %d, torn %v: the directory holds %v, %v; want %q", at, torn,
					names, err, filehold.FenceNames)
			}
			if t.Failed() {
				t.FailNow()
			}
		}
	}
}

// churn acquires and releases keys until it is killed, and says so in the file FILEHOLD_TEST_LOG.
func churn() {
	b, err := filehold.Open(os.Getenv("FILEHOLD_TEST_DIR"))
	check(err)
	notices := listen(b)
	log, err := os.OpenFile(os.Getenv("FILEHOLD_TEST_LOG"), os.O_WRONLY|os.O_APPEND, 0)
	check(err)
	// One write to the end of a file is one piece, and the file is the order of all processes'
	// events.
	say := func(format string, args ...any) {
		_, err := fmt.Fprintf(log, format+"\n", args...)
		check(err)
	}
	pid := os.Getpid()
	ctx := context.Background()
	for {
		c := queued(fmt.Sprint("k", rand.IntN(3)))
		c.Block = 1 + rand.Uint64N(3)
		c.Shared = rand.IntN(2) == 0
		c.Token = driver.Token(rand.Uint64N(1 << 20))
		asked := time.Now()
		r, err := b.Acquire(ctx, c)
		check(err)
		token := r.Token
		if r.State != driver.Held {
			if rand.IntN(5) == 0 {
				_, err := b.Release(ctx, c)
				check(err)
				continue
			}
			if token = awaitTurn(b, c, asked, notices); token == 0 {
				continue
			}
		}
		if c.Shared {
			say("share %s %d %d", c.Key, token, pid)
		} else {
			say("enter %s %d %d", c.Key, token, pid)
		}
		if rand.IntN(3) == 0 {
			results, err := b.Renew(ctx, []driver.Claim{c})
			check(err)
			if results[0].State != driver.Held {
				say("lost %s %d %d", c.Key, token, pid)
			}
		}
		say("leave %s %d %d", c.Key, token, pid)
		_, err = b.Release(ctx, c)
		check(err)
	}
}

// awaitTurn waits until the claim has its key, and returns the token. asked is when it was about to
// ask last. A grant that it is told of lasts only as long as it counts as present, so it makes sure
// of that. It returns 0 if that was too late, as after a pause of the machine.
func awaitTurn(b *filehold.Backend, c driver.Claim, asked time.Time,
	notices <-chan driver.Notice) driver.Token {
	ctx := context.Background()
	beat := time.NewTicker(filehold.Presence / 3)
	defer beat.Stop()
	present := func() bool { return time.Since(asked) < filehold.Presence }
	for paused := false; ; {
		select {
		case n := <-notices:
			if n.Owner != c.Owner {
				continue
			}
			results, err := b.Renew(ctx, []driver.Claim{c})
			check(err)
			if results[0].State == driver.Held {
				return n.Token
			}
			if !paused && present() {
				check(fmt.Errorf("renewal of what it was told to have: %+v", results[0]))
			}
			_, err = b.Release(ctx, c)
			check(err)
			return 0
		case <-beat.C:
			again := time.Now()
			r, err := b.Acquire(ctx, c)
			check(err)
			if r.Token != 0 {
				return r.Token
			}
			paused = paused || !present() // so a notice may be of a grant that is over
			asked = again
		}
	}
}

// TestKilledAtAnyTime has processes acquire and release, and kills them at random moments. Its
// invariants, from the log that all write to:
//
//   - nobody enters a key while another, who was not killed before, is inside, unless both share;
//   - each one who enters a key alone has a larger token than all before it, and each one who
//     shares it a larger one than all before it who had it alone;
//   - nobody is told that it lost a key;
//   - work goes on: every process that is started enters;
//   - in the end nothing is left in the directory.
func TestKilledAtAnyTime(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	events := func() string {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	var living []*exec.Cmd
	var failed atomic.Bool
	kill := func(i int) {
		cmd := living[i]
		living = append(living[:i], living[i+1:]...)
		eventually(t, "the process has entered", func() bool {
			return failed.Load() ||
				strings.Contains(events(), fmt.Sprintf(" %d\n", cmd.Process.Pid))
		})
		// Before the kill: what others do next may come from it.
		fmt.Fprintf(log, "kill - 0 %d\n", cmd.Process.Pid)
		cmd.Process.Kill()
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != -1 {
			t.Errorf("a process ended by itself: %v", err)
		}
	}
	defer func() {
		for _, cmd := range living {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}()
	const kills, processes = 25, 4
	for len(living) < processes {
		living = append(living, startChurn(t, dir, path, &failed))
	}
	for range kills {
		// Long enough for some turns, and for being anywhere in one.
		pause := time.NewTimer(time.Duration(random.IntN(10_000)) * time.Microsecond)
		<-pause.C
		kill(random.IntN(len(living)))
		if failed.Load() || t.Failed() {
			break
		}
		living = append(living, startChurn(t, dir, path, &failed))
	}
	for len(living) > 0 {
		kill(len(living) - 1)
	}

	type visit struct{ key, pid string }
	inside, killed := make(map[visit]bool), make(map[string]bool) // inside: whether it shares
	highest, alone := make(map[string]uint64), make(map[string]uint64)
	turns := 0
	lines := bufio.NewScanner(strings.NewReader(events()))
	for number := 1; lines.Scan(); number++ {
		var event, key, pid string
		var token uint64
		if _, err := fmt.Sscan(lines.Text(), &event, &key, &token, &pid); err != nil {
			t.Fatalf("line %d: %q: %v", number, lines.Text(), err)
		}
		switch event {
		case "enter", "share":
			turns++
			shares, below := event == "share", highest[key]
			for other, otherShares := range inside {
				if other.key == key && !(shares && otherShares) {
					t.Fatalf("line %d: process %s enters %s while %s is inside", number, pid,
						key, other.pid)
				}
			}
			if shares {
				below = alone[key]
			} else {
				alone[key] = token
			}
			if token <= below {
				t.Fatalf("line %d: token %d after %d", number, token, below)
			}
			highest[key] = max(highest[key], token)
			if !killed[pid] { // else it can end at any time from here on
				inside[visit{key, pid}] = shares
			}
		case "leave":
			delete(inside, visit{key, pid})
		case "lost":
			t.Fatalf("line %d: process %s lost %s", number, pid, key)
		case "kill":
			killed[pid] = true
			for other := range inside {
				if other.pid == pid {
					delete(inside, other)
				}
			}
		}
	}
	t.Logf("%d turns, %d processes killed", turns, kills+processes)
	tidy(t, dir)
	b := open(t, dir)
	for key, token := range highest {
		if r := acquire(t, b, claim(key)); r.State != driver.Held || uint64(r.Token) <= token {
			t.Errorf("after all: %q: %+v, highest token %d", key, r, token)
		}
	}
}

func startChurn(t *testing.T, dir, log string, failed *atomic.Bool) *exec.Cmd {
	t.Helper()
	cmd := command("churn", "FILEHOLD_TEST_DIR="+dir, "FILEHOLD_TEST_LOG="+log)
	cmd.Stderr = nil
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		if said, _ := io.ReadAll(stderr); len(said) > 0 {
			failed.Store(true)
			fmt.Fprintf(os.Stderr, "%s\n", said)
		}
	}()
	return cmd
}
