package simulate

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// counts are what a campaign has done so far.
type counts struct{ histories, acquisitions, permits, failed uint64 }

func (c *counts) add(other counts) {
	c.histories += other.histories
	c.acquisitions += other.acquisitions
	c.permits += other.permits
	c.failed += other.failed
}

func (c counts) since(start time.Time) string {
	took := time.Since(start)
	hour := float64(time.Hour) / float64(took)
	return fmt.Sprintf(
		"simulated %d histories with %d acquisitions (%d of a permit) in %v, %d failed; "+
			"an hour: %.0f histories, %.0f acquisitions",
		c.histories, c.acquisitions, c.permits, took.Round(time.Second), c.failed,
		float64(c.histories)*hour, float64(c.acquisitions)*hour)
}

// toDirector is where a hand tells what it does: one line for the seed that it begins with, one for
// its counts.
var toDirector = os.NewFile(3, "director")

func (c *campaign) announce(seed uint64) {
	if c.hand >= 0 {
		fmt.Fprintf(toDirector, "seed %d\n", seed)
	}
}

func (c *campaign) tell() {
	if c.hand >= 0 {
		fmt.Fprintf(toDirector, "done %d %d %d %d\n", c.counts.histories,
			c.counts.acquisitions, c.counts.permits, c.counts.failed)
		return
	}
	fmt.Fprintln(os.Stderr, c.counts.since(c.start))
}

// direct runs the histories in several programs like this one, one for each processor, and adds up
// what they report.
func direct(t *testing.T, s settings, hands int) {
	if s.histories > 0 {
		hands = min(hands, int(s.histories))
	}
	start := time.Now()
	var mu sync.Mutex
	done := make([]counts, hands)
	total := func() (sum counts) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range done {
			sum.add(c)
		}
		return sum
	}
	ended := make(chan struct{})
	go func() {
		ticker := time.NewTicker(time.Minute)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprintln(os.Stderr, total().since(start))
			case <-ended:
				return
			}
		}
	}()
	var all sync.WaitGroup
	first := s.seed
	for i := range hands {
		share := s.histories / uint64(hands)
		if uint64(i) < s.histories%uint64(hands) {
			share++
		}
		seed := first
		if first += share; s.histories == 0 {
			first += 1 << 40
		}
		all.Go(func() {
			last, err := hand(i, seed, share, func(c counts) {
				mu.Lock()
				done[i] = c
				mu.Unlock()
			})
			if err != nil {
				t.Errorf("seed %d: %v", last, err)
			}
		})
	}
	all.Wait()
	close(ended)
	fmt.Fprintln(os.Stderr, total().since(start))
	if total().histories == 0 {
		t.Error("no history was run")
	}
}

// longestHistory is how long one history may take in real time. The longest take 12 s of a
// processor, and several times that under the race detector, and a busy machine gives them a tenth
// of one. After that, the program prints its goroutines and ends. An endless loop does not move
// fake time, so no bound in the history would notice it.
const longestHistory = 10 * time.Minute

// hand runs one program with a share of the histories, and returns the seed of the last one that it
// began.
func hand(i int, seed, share uint64, tell func(counts)) (last uint64, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return seed, err
	}
	defer read.Close()
	program, err := os.Executable()
	if err != nil {
		return seed, err
	}
	cmd := exec.Command(program, "-test.run=^TestSimulation$", "-test.timeout=0", "-test.count=1")
	cmd.Env = append(os.Environ(),
		"GOMAXPROCS=1",
		"HOLDFAST_HAND="+strconv.Itoa(i+1),
		"HOLDFAST_SEED="+strconv.FormatUint(seed, 10),
		"HOLDFAST_HISTORIES="+strconv.FormatUint(share, 10))
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stderr, os.Stderr, []*os.File{write}
	if err := cmd.Start(); err != nil {
		write.Close()
		return seed, err
	}
	write.Close()
	hangs := time.AfterFunc(longestHistory, func() { cmd.Process.Signal(syscall.SIGQUIT) })
	defer hangs.Stop()
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		hangs.Reset(longestHistory)
		var c counts
		if _, err := fmt.Sscanf(lines.Text(), "done %d %d %d %d", &c.histories, &c.acquisitions,
			&c.permits, &c.failed); err == nil {
			tell(c)
		} else {
			fmt.Sscanf(lines.Text(), "seed %d", &last)
		}
	}
	return last, cmd.Wait()
}
