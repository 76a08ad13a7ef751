//go:build unix

package lab

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/itest/job"
)

// client is a process that locks, with its links to all nodes. It may be killed and started again,
// under another name.
type client struct {
	slot    string
	key     string // the only key that it locks; empty: all
	goRedis bool
	behind  bool // it knows fewer permits than others
	links   []*link
	url     string        // of all servers together; empty: each link has its own
	guard   time.Duration // with which it is configured
	size    int           // how many of its links it uses, from the first on; 0: all
	mu      sync.Mutex    // held while its process is stopped, ended or started as faults go on
	number  int           // of the process
	name    string
	logs    []string // files of the history, one for each process

	process *process
	in      io.WriteCloser
	said    chan string // lines that the process writes; closed at its end
}

// spawn starts a process for the job. It adds to the job what belongs to this client.
func (c *client) spawn(program, dir string, j job.Job) error {
	c.number++
	c.name = fmt.Sprintf("%s.%d", c.slot, c.number)
	j.Client, j.GoRedis = c.name, c.goRedis
	j.Log = filepath.Join(dir, c.name+".jsonl")
	for _, l := range c.links[:cmp.Or(c.size, len(c.links))] {
		j.URLs = append(j.URLs, l.url())
	}
	if c.url != "" {
		j.URLs = []string{c.url}
	}
	description, err := json.Marshal(j)
	if err != nil {
		return err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), job.Variable+"="+string(description),
		job.Skew+"="+j.Skew.String())
	if c.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = write
	c.process, err = start(cmd, filepath.Join(dir, c.name+".log"))
	write.Close()
	if err != nil {
		read.Close()
		return err
	}
	c.logs = append(c.logs, j.Log)
	said := make(chan string, 8)
	c.said = said
	go func() {
		defer read.Close()
		defer close(said)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			said <- lines.Text()
		}
	}()
	return c.await("ready", patience)
}

// addresses returns those of its links.
func (c *client) addresses() (all []string) {
	for _, l := range c.links {
		all = append(all, l.address())
	}
	return all
}

// await waits until the process says something.
func (c *client) await(want string, within time.Duration) error {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case line, ok := <-c.said:
		if !ok {
			return c.ended()
		}
		if line != want {
			return fmt.Errorf("%s says %q, not %q", c.name, line, want)
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("%s does not say %q within %v", c.name, want, within)
	}
}

// ended returns the error of a process that has ended, with what it said last.
func (c *client) ended() error {
	text, _ := os.ReadFile(filepath.Join(filepath.Dir(c.logs[len(c.logs)-1]), c.name+".log"))
	return fmt.Errorf("%s ended by itself: %.4000s", c.name, text)
}

// order tells the process to go on to its next phase.
func (c *client) order() { c.tell("") }

// tell gives the process an order.
func (c *client) tell(order string) { fmt.Fprintln(c.in, order) }

// Client is one process, without faults, for tests that tell it what to do.
type Client struct{ c *client }

// StartClient starts a client process for the job on the nodes. It ends with Stop, or with this
// process.
func StartClient(program, dir string, j job.Job, nodes []*Node) (*Client, error) {
	c := &client{slot: "client"}
	for _, node := range nodes {
		l, err := newLink(c.slot, node, 0)
		if err != nil {
			return nil, err
		}
		c.links = append(c.links, l)
	}
	client := &Client{c}
	if err := c.spawn(program, dir, j); err != nil {
		client.Stop()
		return nil, err
	}
	return client, nil
}

// Await waits until the process says something.
func (c *Client) Await(want string) error { return c.c.await(want, patience) }

// Order tells the process to go on.
func (c *Client) Order() { c.c.order() }

// Freeze stops the process with SIGSTOP.
func (c *Client) Freeze() { c.c.process.freeze() }

// Thaw undoes Freeze.
func (c *Client) Thaw() { c.c.process.thaw() }

// Stop kills the process.
func (c *Client) Stop() {
	if c.c.process != nil {
		c.c.process.kill()
	}
	for _, l := range c.c.links {
		l.close()
	}
}
