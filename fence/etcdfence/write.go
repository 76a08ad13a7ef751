package etcdfence

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/fence"
)

// write is one transaction on its way. It stands between the client and gRPC, because the client's
// own errors do not tell whether anything was sent that may be executed.
type write struct {
	pb.KVClient
	ctx     context.Context // of the transaction
	end     context.CancelFunc
	timeout time.Duration
	server  peer.Peer // the last one that may execute it; without an address if there is none
	refused error     // why etcd has refused what was sent last
	size    int       // of the request in bytes
	err     error     // as gRPC has it
}

// newWrite returns a write, and a function that the caller calls when it is done.
func (g Guard) newWrite(ctx context.Context) (w *write, done func()) {
	w = &write{KVClient: clientv3.RetryKVClient(g.Client), timeout: or(g.Timeout, DefaultTimeout)}
	w.ctx, w.end = context.WithTimeout(ctx, w.timeout)
	return w, w.end
}

// Txn sends the transaction.
func (w *write) Txn(ctx context.Context, request *pb.TxnRequest,
	options ...grpc.CallOption) (*pb.TxnResponse, error) {
	w.size = request.Size()
	answer, err := w.KVClient.Txn(ctx, request, append(options, grpc.Peer(&w.server),
		grpc.OnFinish(w.attempted))...)
	w.err = err
	return answer, err
}

// attempted notes what an answer means after which the client may send the write again. If the
// write may have been executed, attempted ends its context, and the client, which looks at the
// context before it sends, sends nothing more.
func (w *write) attempted(err error) {
	if code := status.Code(err); code == codes.Canceled || code == codes.DeadlineExceeded {
		w.end()
	}
	if w.refusal(err) != nil {
		w.server, w.refused = peer.Peer{}, rpctypes.Error(err)
	}
}

// failure returns what the error of a write that failed means. caller is the caller's context.
func (w *write) failure(caller context.Context) error {
	err := rpctypes.Error(w.err)
	if kind := w.refusal(err); kind != nil {
		return fmt.Errorf("%w: %w", kind, err)
	}
	kind, where, within := fence.ErrUnavailable, "not sent", " within "
	switch {
	case w.server.Addr != nil:
		kind, where, within = fence.ErrUnknown, "sent to "+w.server.Addr.String(),
			", no answer within "
	case w.refused != nil:
		where, err = "refused, and not sent again", fmt.Errorf("%w: %w", w.refused, err)
	}
	if why := ended(caller); why != nil {
		err = fmt.Errorf("%w: %w", why, err)
	} else if w.ctx.Err() == context.DeadlineExceeded {
		where += within + w.timeout.String()
	}
	return fmt.Errorf("%w: %s: %w", kind, where, err)
}

// refusal returns the kind of an error after which nothing is written, or nil if the error is none
// of these.
func (w *write) refusal(err error) error {
	for kind, answers := range refusals {
		if slices.Contains(answers, rpctypes.Error(err)) {
			return kind
		}
	}
	// This is the client's own refusal of a request. A proxy may say the same of an answer, but
	// then the size is another.
	if strings.HasPrefix(status.Convert(err).Message(),
		fmt.Sprintf("trying to send message larger than max (%d vs.", w.size)) {
		return fence.ErrInvalid
	}
	return nil
}

// refusals are the answers of etcd after which nothing is written, with what they mean. Any other
// answer may come when the write was done or is about to be. One such is that the database is full:
// etcd says it of the write that fills it.
var refusals = map[error][]error{
	fence.ErrInvalid: {
		rpctypes.ErrEmptyKey, rpctypes.ErrKeyNotFound, rpctypes.ErrValueProvided,
		rpctypes.ErrLeaseProvided, rpctypes.ErrTooManyOps, rpctypes.ErrDuplicateKey,
		rpctypes.ErrInvalidSortOption, rpctypes.ErrRequestTooLarge, rpctypes.ErrLeaseNotFound,
		rpctypes.ErrCompacted, rpctypes.ErrFutureRev,
	},
	fence.ErrUnavailable: {
		rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken,
		rpctypes.ErrAuthOldRevision, rpctypes.ErrPermissionDenied, rpctypes.ErrTooManyRequests,
		rpctypes.ErrNoLeader, rpctypes.ErrNotCapable, rpctypes.ErrCorrupt,
		rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner),
	},
}
