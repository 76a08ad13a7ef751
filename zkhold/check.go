package zkhold

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// Check asks every server of the address what it is, by the command srvr, which servers obey unless
// they are told otherwise. It looks at the session that was granted and at the members of the
// ensemble, and tries whether the user has the rights that locks need: by transactions that fail
// for another reason if the user has them. It changes nothing. It fails with ErrUnavailable if no
// server answers. One that does not costs half of what [WithTimeout] says, or of the time that ctx
// has left if that is less.
//
// It does not look at what ZooKeeper does not tell to a client: whether it writes to disk before it
// answers, and its clock, which no promise rests on.
func (b *Backend) Check(ctx context.Context) ([]driver.Finding, error) {
	patience := b.timeout
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline))
	}
	var found []driver.Finding
	if err := b.watching(ctx, func() (err error) {
		found, err = b.examine(patience / 2)
		return err
	}); err != nil {
		return nil, err
	}
	slices.SortStableFunc(found, func(x, y driver.Finding) int {
		return int(y.Severity) - int(x.Severity)
	})
	return found, nil
}

// examine waits for a server for as long as patience.
func (b *Backend) examine(patience time.Duration) ([]driver.Finding, error) {
	answers := make([]string, len(b.servers))
	failures := make([]error, len(b.servers))
	var asking sync.WaitGroup
	for i, server := range b.servers {
		asking.Go(func() {
			answer, err := b.command(server, "srvr", patience)
			if slow := net.Error(nil); errors.As(err, &slow) && slow.Timeout() {
				err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
			}
			answers[i], failures[i] = answer, err
		})
	}
	asking.Wait()
	found, modes := b.judge(answers, failures)
	if !slices.ContainsFunc(failures, func(err error) bool { return err == nil }) {
		return nil, readFailed(errors.Join(failures...))
	}
	inside, err := b.lookInside(modes)
	if err != nil && !slices.ContainsFunc(found, explains) {
		return nil, err
	}
	return append(found, inside...), nil
}

// explains reports whether the finding says why a session cannot do anything.
func explains(f driver.Finding) bool { return f.Code == "no-leader" }

// command asks a server over a connection of its own. Such a connection never has a session.
func (b *Backend) command(server, word string, patience time.Duration) (string, error) {
	conn, err := b.dialer("tcp", server, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(io.LimitReader(conn, 1<<12))
	return string(reply), err
}

// What srvr answers, in the words of ZooKeeper.
var (
	versionLine = regexp.MustCompile(`(?m)^Zookeeper version: ([0-9]+)\.([0-9]+)\.([0-9]+)`)
	oldVersion  = regexp.MustCompile(`^([0-2]\.|3\.[0-3]$)`)
	modeLine    = regexp.MustCompile(`(?m)^Mode: ([a-z-]+)`)
)

// judge says what the answers of the servers mean, and which parts those have.
func (b *Backend) judge(answers []string, failures []error) (found []driver.Finding,
	modes []string) {
	for i, server := range b.servers {
		mode := modeLine.FindStringSubmatch(answers[i])
		switch {
		case failures[i] != nil:
			found = append(found, driver.Finding{Severity: driver.Warning, Code: "unreachable",
				Node: server, Summary: "This server does not answer.",
				Advice: "Start the server, or remove it from the address."})
		case strings.Contains(answers[i], "not currently serving requests"),
			mode != nil && mode[1] == "read-only":
			found = append(found, driver.Finding{Severity: driver.Failure, Code: "no-leader",
				Node:    server,
				Summary: "This server is cut off from a majority, so it grants no locks.",
				Advice:  "Bring back a majority of the servers."})
		case mode == nil:
			found = append(found, driver.Finding{Severity: driver.Note, Code: "not-checked",
				Node:    server,
				Summary: "This server does not obey the command srvr, so what it is is not known.",
				Advice:  "Put srvr into 4lw.commands.whitelist of the server."})
		default:
			modes = append(modes, mode[1])
			if v := versionLine.FindStringSubmatch(answers[i]); v != nil && tooOld(v) {
				found = append(found, driver.Finding{Severity: driver.Failure, Code: "version",
					Node: server, Summary: fmt.Sprintf("ZooKeeper %s has no transactions.",
						strings.Join(v[1:], ".")), Advice: "Use ZooKeeper 3.4.13 or newer."})
			}
		}
	}
	return found, modes
}

// tooOld reports whether a version is below 3.4, which has brought transactions.
func tooOld(v []string) bool { return oldVersion.MatchString(v[1] + "." + v[2]) }

// lookInside says what the session can see. modes are the parts of the servers that have told.
func (b *Backend) lookInside(modes []string) ([]driver.Finding, error) {
	found, err := b.checkEnsemble(modes)
	if err != nil {
		return nil, err
	}
	if f, ok := b.checkSession(); ok {
		found = append(found, f)
	}
	rights, err := b.checkRights()
	return append(found, rights...), err
}

// configPath is where servers from 3.5 on tell who belongs to the ensemble.
const configPath = "/zookeeper/config"

var memberLine = regexp.MustCompile(`(?m)^server\.[0-9]+=.*:participant(?:;|$)`)

// checkEnsemble says what the number of servers means.
func (b *Backend) checkEnsemble(modes []string) (found []driver.Finding, err error) {
	alone, leaders := 0, 0
	for _, mode := range modes {
		alone += ifElse(mode == "standalone")
		leaders += ifElse(mode == "leader")
	}
	if alone > 0 && len(modes) > 1 || leaders > 1 {
		return append(found, driver.Finding{Severity: driver.Failure, Code: "several-ensembles",
			Summary: "Servers of the address do not belong together: two clients may hold one lock.",
			Advice:  "Name the servers of one ensemble, each of them once."}), nil
	}
	data, _, err := b.client.Get(configPath)
	if err != nil && !isOneOf(err, []error{zk.ErrNoNode, zk.ErrNoAuth}) {
		return nil, readFailed(err)
	}
	voters := max(len(memberLine.FindAll(data, -1)), alone)
	switch {
	case voters == 1:
		found = append(found, driver.Finding{Severity: driver.Note, Code: "single-member",
			Summary: "The ensemble has one server: no lock can be taken while it is down.",
			Advice:  "Run three or five servers if locks have to survive one."})
	case voters > 0 && voters%2 == 0:
		found = append(found, driver.Finding{Severity: driver.Note, Code: "even-members",
			Summary: fmt.Sprintf("The ensemble has %d voting servers, of which it can lose no more than %d could.",
				voters, voters-1),
			Advice: "Use an odd number of servers."})
	}
	return found, nil
}

func ifElse(is bool) int {
	if is {
		return 1
	}
	return 0
}

// checkSession says what it means that the server has granted another timeout than was asked for.
func (b *Backend) checkSession() (driver.Finding, bool) {
	_, granted := b.session.current()
	switch {
	case granted == 0 || granted == b.wanted:
		return driver.Finding{}, false
	case granted < b.wanted:
		return driver.Finding{Severity: driver.Warning, Code: "session",
			Summary: fmt.Sprintf("The server grants sessions of %v at most, so a TTL is %v at most.",
				granted, share(granted)),
			Advice: fmt.Sprintf("Set maxSessionTimeout of the servers to %d, or ask for less.",
				b.wanted.Milliseconds())}, true
	}
	return driver.Finding{Severity: driver.Warning, Code: "session",
		Summary: fmt.Sprintf("The server grants sessions of %v at least: so long a dead holder keeps its locks.",
			granted),
		Advice: fmt.Sprintf("Set minSessionTimeout of the servers to %d, or ask for more.",
			b.wanted.Milliseconds())}, true
}

// never is a version that no node has, so what depends on it is not executed.
const never = math.MaxInt32

// checkRights tries whether the user may do what locks need, where the nodes of locks are, or else
// where the first of them would be made. A server looks at the rights before it looks at versions.
func (b *Backend) checkRights() (found []driver.Finding, err error) {
	at, err := b.lowest()
	if err != nil {
		return nil, err
	}
	tried := []string{at}
	if at == b.slotsPath() {
		names, _, err := b.client.Children(at)
		if err != nil && !isOneOf(err, []error{zk.ErrNoNode, zk.ErrNoAuth}) {
			return nil, readFailed(err)
		}
		if len(names) > 0 {
			tried = append(tried, b.slotPath(names[0]))
		}
	}
	for _, at := range tried {
		fails := any(&zk.SetDataRequest{Path: at, Version: never})
		if at != b.slotsPath() && path.Dir(at) != b.slotsPath() {
			// Nobody writes there. The root of ZooKeeper may even be for nobody to write.
			fails = &zk.CheckVersionRequest{Path: at, Version: never}
		}
		node := path.Join(at, "check-"+b.instance)
		operations := []any{&zk.CreateRequest{Path: node, Acl: b.acl, Flags: zk.FlagEphemeral}}
		if path.Dir(at) == b.slotsPath() {
			// A release deletes what an acquisition has made. There are no other nodes to delete.
			operations = append(operations, &zk.DeleteRequest{Path: node, Version: -1})
		}
		_, err := b.client.Multi(append(operations, fails)...)
		switch {
		case isOneOf(err, []error{zk.ErrNoAuth, zk.ErrInvalidACL}):
			return append(found, driver.Finding{Severity: driver.Failure, Code: "rights",
				Summary: fmt.Sprintf("The user may not write what is below %s.", at),
				Advice: fmt.Sprintf("Give the user all rights on %s and what is below it.",
					b.root)}), nil
		case err != nil && !isOneOf(err, []error{zk.ErrBadVersion, zk.ErrNoNode}):
			return nil, readFailed(err)
		}
	}
	return nil, nil
}

// lowest returns the node of the slots or, if there is none yet, the lowest one above it.
func (b *Backend) lowest() (string, error) {
	for at := b.slotsPath(); ; at = path.Dir(at) {
		there, _, err := b.client.Exists(at)
		if err != nil {
			return "", readFailed(err)
		}
		if there || at == "/" {
			return at, nil
		}
	}
}
