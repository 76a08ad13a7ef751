package etcdhold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
)

// attempt is one request that writes. It notes whether anything was sent that may be executed,
// because the client's own errors do not tell.
type attempt struct {
	server peer.Peer // the last one that may execute it; without an address if there is none
}

type attemptKey struct{}

// watched stands between the client and gRPC.
type watched struct{ pb.KVClient }

// Txn sends the transaction. It fails as soon as there is no connection, and so tells why.
func (w watched) Txn(ctx context.Context, request *pb.TxnRequest,
	options ...grpc.CallOption) (*pb.TxnResponse, error) {
	options = append(options, grpc.WaitForReady(false))
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		options = append(options, grpc.Peer(&a.server), grpc.OnFinish(a.finished))
	}
	return w.KVClient.Txn(ctx, request, options...)
}

// hasty makes leases. It fails as soon as there is no connection, and so tells why. The client's
// own asks again until its time is over.
type hasty struct {
	pb.LeaseClient
	once pb.LeaseClient
}

// LeaseGrant asks for a lease.
func (h hasty) LeaseGrant(ctx context.Context, request *pb.LeaseGrantRequest,
	options ...grpc.CallOption) (*pb.LeaseGrantResponse, error) {
	return h.once.LeaseGrant(ctx, request, options...)
}

// finished forgets the server if it has refused the request: the client may send it again.
func (a *attempt) finished(err error) {
	if refused(err) {
		a.server = peer.Peer{}
	}
}

// failed is the error of a request that writes.
func (a *attempt) failed(err error) error {
	maybe := a.server.Addr != nil && !refused(err)
	node := ""
	if a.server.Addr != nil {
		node = a.server.Addr.String()
	}
	return &driver.Error{Node: node, Maybe: maybe, Permanent: !maybe && permanent(err),
		Err: plain(err)}
}

// failure returns the error of a request that leaves nothing to undo.
func failure(err error) error {
	return &driver.Error{Permanent: permanent(err), Err: plain(err)}
}

// plain is the error in etcd's words, or the context's error.
func plain(err error) error {
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, rpctypes.Error(err))
	case codes.Canceled:
		return fmt.Errorf("%w: %w", context.Canceled, rpctypes.Error(err))
	}
	// gRPC tells it only in words.
	text := err.Error()
	if strings.Contains(text, "authentication handshake failed: ") &&
		(strings.Contains(text, "EOF") || strings.Contains(text, "connection reset")) {
		return fmt.Errorf("hangs up when TLS begins, as a server without TLS: %w",
			rpctypes.Error(err))
	}
	return rpctypes.Error(err)
}

// isOneOf reports whether etcd has answered with one of the errors.
func isOneOf(err error, answers []error) bool {
	return err != nil && slices.ContainsFunc(answers, func(answer error) bool {
		return errors.Is(rpctypes.Error(err), answer) || errors.Is(err, answer)
	})
}

// refused reports whether nothing is written after that answer, now or later.
func refused(err error) bool { return isOneOf(err, refusals) || isOneOf(err, unhelpful) }

// permanent reports whether it does not help to ask again.
func permanent(err error) bool {
	if isOneOf(err, unhelpful) {
		return true
	}
	// gRPC tells it only in words. A connection that breaks also makes a handshake fail, but that
	// passes.
	text := err.Error()
	return strings.Contains(text, "remote error: tls: ") ||
		strings.Contains(text, "authentication handshake failed") &&
			(strings.Contains(text, "tls: ") || strings.Contains(text, "x509: "))
}

// refusals are answers after which nothing is written.
var refusals = []error{
	rpctypes.ErrLeaseNotFound, rpctypes.ErrTooManyRequests, rpctypes.ErrNoLeader,
	rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrNotCapable,
	rpctypes.ErrCorrupt, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner),
	rpctypes.ErrRequestTooLarge, rpctypes.ErrTooManyOps, rpctypes.ErrDuplicateKey,
	rpctypes.ErrEmptyKey, rpctypes.ErrCompacted, rpctypes.ErrFutureRev,
}

// unhelpful are refusals that last until somebody changes something.
var unhelpful = []error{
	rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrPermissionDenied,
	rpctypes.ErrUserNotFound, rpctypes.ErrRoleNotFound,
}

var errClosed = errors.New("etcdhold: backend closed")

func closedError() error { return &driver.Error{Err: errClosed} }

func invalid(format string, args ...any) error {
	return &driver.Error{Invalid: true, Err: fmt.Errorf("etcdhold: "+format, args...)}
}

// cutOff is the error of a call whose context has ended.
func cutOff(begun bool, err error) error { return &driver.Error{Maybe: begun, Err: err} }
