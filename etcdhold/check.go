package etcdhold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/driver"
)

// Check asks every endpoint of the client for its version, its leader and its alarms, and tries
// whether the user has the rights that locks need. It writes nothing. It fails with ErrUnavailable
// if no endpoint answers. An endpoint that does not answer costs as long as [WithTimeout] says, or
// half of the time that ctx has left if that is less.
func (b *Backend) Check(ctx context.Context) ([]driver.Finding, error) {
	endpoints := b.client.Endpoints()
	answers, err := b.askAll(ctx, endpoints)
	if err != nil {
		return nil, err
	}
	var found []driver.Finding
	versions := make(map[string]string)
	for i, answer := range answers {
		if answer.err != nil {
			found = append(found, driver.Finding{Severity: driver.Warning, Code: "unreachable",
				Node: endpoints[i], Summary: "This endpoint does not answer.",
				Advice: "Start the server, or remove the endpoint from the address."})
			continue
		}
		versions[endpoints[i]] = answer.status.Version
		found = append(found, healthOf(endpoints[i], answer.status)...)
	}
	if len(versions) == 0 {
		return nil, b.lookFailed(ctx, answers[0].err)
	}
	limited, cancel, err := b.looking(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	found = append(found, b.checkMembers(limited, versions)...)
	rights, err := b.checkRights(limited)
	if err != nil && !slices.ContainsFunc(found, explains) {
		return nil, b.lookFailed(ctx, err)
	}
	found = append(found, rights...)
	slices.SortStableFunc(found, func(x, y driver.Finding) int {
		return int(y.Severity) - int(x.Severity)
	})
	return found, nil
}

// explains reports whether the finding says why etcd refuses what locks need. A full etcd refuses
// to look at the rights, and one without a leader does not answer.
func explains(f driver.Finding) bool { return f.Severity == driver.Failure }

// statement is what an endpoint says of itself.
type statement struct {
	status *clientv3.StatusResponse
	err    error
}

// askAll asks all endpoints at once, so one that hangs takes no time from the others.
func (b *Backend) askAll(ctx context.Context, endpoints []string) ([]statement, error) {
	limited, cancel, err := b.looking(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		// The rest is for what is asked of the cluster.
		var half context.CancelFunc
		limited, half = context.WithTimeout(limited, time.Until(deadline)/2)
		defer half()
	}
	answers := make([]statement, len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() { answers[i].status, answers[i].err = b.statusOf(limited, endpoint) })
	}
	asking.Wait()
	return answers, nil
}

// statusOf asks one endpoint. The client's own Status would wait for a connection until ctx ends.
func (b *Backend) statusOf(ctx context.Context,
	endpoint string) (*clientv3.StatusResponse, error) {
	conn, err := b.client.Dial(endpoint)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	status, err := pb.NewMaintenanceClient(conn).Status(ctx, new(pb.StatusRequest),
		grpc.WaitForReady(false))
	return (*clientv3.StatusResponse)(status), err
}

// healthOf says what is wrong with one server.
func healthOf(endpoint string, s *clientv3.StatusResponse) (found []driver.Finding) {
	if s.Leader == 0 {
		found = append(found, driver.Finding{Severity: driver.Failure, Code: "no-leader",
			Node: endpoint, Summary: "This member knows no leader, so it grants no locks.",
			Advice: "Bring back a majority of the members."})
	}
	for _, text := range s.Errors {
		if strings.Contains(text, "alarm") {
			found = append(found, driver.Finding{Severity: driver.Failure, Code: "alarm",
				Node:    endpoint,
				Summary: fmt.Sprintf("The cluster has an alarm, and may refuse locks: %.100s.", text),
				Advice:  "Make room and disarm the alarm, as etcd's documentation describes."})
		}
	}
	if s.IsLearner {
		found = append(found, driver.Finding{Severity: driver.Warning, Code: "learner",
			Node: endpoint, Summary: "This member is a learner, and serves no locks.",
			Advice: "Promote it, or remove the endpoint from the address."})
	}
	return found
}

// checkMembers says what the number of members means.
func (b *Backend) checkMembers(ctx context.Context,
	versions map[string]string) (found []driver.Finding) {
	answer, err := b.client.MemberList(ctx)
	if err != nil {
		return nil // not every user may ask
	}
	voters := 0
	for _, m := range answer.Members {
		if !m.IsLearner {
			voters++
		}
	}
	switch {
	case voters == 1:
		found = append(found, driver.Finding{Severity: driver.Note, Code: "single-member",
			Summary: "The cluster has one member: no lock can be taken while it is down.",
			Advice:  "Run three or five members if locks have to survive a server."})
	case voters%2 == 0:
		found = append(found, driver.Finding{Severity: driver.Note, Code: "even-members",
			Summary: fmt.Sprintf("The cluster has %d voting members, of which it can lose no more than %d could.",
				voters, voters-1),
			Advice: "Use an odd number of members."})
	}
	for endpoint, version := range versions {
		if voters > 1 && revokesLate(version) {
			found = append(found, driver.Finding{Severity: driver.Warning,
				Code: "lease-revocation", Node: endpoint,
				Summary: fmt.Sprintf("A member of version %s that was the leader may end leases that were kept alive.",
					version),
				Advice: "Use etcd 3.4.31, 3.5.13 or newer, where that is much rarer, and check the fencing tokens."})
		}
	}
	return found
}

// revokesLate reports whether a former leader of that version may still revoke leases.
func revokesLate(version string) bool {
	var parts [3]int
	for i, text := range strings.SplitN(version, ".", 3) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return false
		}
		parts[i] = n
	}
	major, minor, patch := parts[0], parts[1], parts[2]
	return major == 3 && (minor < 4 || minor == 4 && patch < 31 || minor == 5 && patch < 13)
}

// checkRights tries whether the user may do what locks need. The branch of its transaction that
// needs the rights is never executed, but etcd first looks at the rights for both branches.
func (b *Backend) checkRights(ctx context.Context) ([]driver.Finding, error) {
	n := b.layout.names("check")
	from := b.layout.locks()
	_, err := b.kv.Txn(ctx).If(clientv3.Compare(clientv3.Version(n.tokens), "<", 0)).
		Then(clientv3.OpPut(n.holder("check"), ""), clientv3.OpPut(n.tokens, "")).
		Else(clientv3.OpGet(from, clientv3.WithPrefix(), clientv3.WithCountOnly())).Commit()
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		_, err := b.kv.Get(ctx, string(b.layout), clientv3.WithPrefix(), clientv3.WithCountOnly())
		switch {
		case err == nil:
			note := driver.Finding{Severity: driver.Note, Code: "rights",
				Summary: "The user may look at locks, and may take none.",
				Advice: fmt.Sprintf("Grant readwrite with --prefix for %q to a user who takes locks.",
					string(b.layout))}
			return []driver.Finding{note}, nil
		case !errors.Is(err, rpctypes.ErrPermissionDenied):
			return nil, err
		}
		finding := driver.Finding{Severity: driver.Failure, Code: "rights",
			Summary: fmt.Sprintf("The user may not read and write all keys that begin with %q.",
				string(b.layout)),
			Advice: fmt.Sprintf("Grant a role of the user readwrite with --prefix for %q.",
				string(b.layout))}
		return []driver.Finding{finding}, nil
	}
	return nil, err
}
