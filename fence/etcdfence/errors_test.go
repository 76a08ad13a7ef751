//go:build unix

package etcdfence_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// What is not allowed is refused before anything is sent.
func TestInvalid(t *testing.T) {
	client, wrapped := connect(t), connect(t)
	wrapped.KV = namespace.NewKV(wrapped.KV, "team/")
	unconnected := clientv3.NewCtxClient(t.Context())
	unconnected.KV = clientv3.NewKV(client) // as that of a server in the same process has one
	empty(t, client)
	put := clientv3.OpPut("v", "a")
	for name, c := range map[string]struct {
		guard etcdfence.Guard
		ops   []clientv3.Op
		names string
	}{
		"no client": {etcdfence.Guard{}, nil,
			"Guard.Client is nil: make one with clientv3.New"},
		"another KV": {etcdfence.Guard{Client: wrapped}, nil, "kvPrefix"},
		"no connection": {etcdfence.Guard{Client: unconnected}, nil,
			"Guard.Client has no connection: make one with clientv3.New"},
		"no timeout":      {etcdfence.Guard{Client: client, Timeout: -1}, nil, "-1ns"},
		"empty operation": {etcdfence.Guard{Client: client}, []clientv3.Op{put, {}}, "operation 2"},
		"empty operation in Then": {patient(client),
			[]clientv3.Op{put, clientv3.OpTxn(nil, []clientv3.Op{put, {}}, nil)}, "operation 2"},
		"empty operation in Else": {patient(client),
			[]clientv3.Op{clientv3.OpTxn(nil, nil,
				[]clientv3.Op{clientv3.OpTxn(nil, nil, []clientv3.Op{{}})})}, "operation 1"},
	} {
		_, err := c.guard.Do(t.Context(), "r", 5, c.ops...)
		if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: Do = %v; want ErrInvalid with %q", name, err, c.names)
		}
	}
	if _, writes := get(t, client, token("r")); writes != 0 {
		t.Errorf("the token is written %d times; want never", writes)
	}
}

// A context that had ended before is its own error and no other.
func TestContextThatHadEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errWhy)
	_, err := etcdfence.Guard{Client: connect(t)}.Do(ctx, "r", 5)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, errWhy) ||
		errors.Is(err, fence.ErrUnavailable) || errors.Is(err, fence.ErrUnknown) {
		t.Errorf("Do = %v; want the context's error with its cause, and no other", err)
	}
}

// Operations that etcd refuses leave no trace. Those that would change the token are among them.
func TestOperationsThatEtcdRefuses(t *testing.T) {
	client := connect(t)
	empty(t, client)
	guard := patient(client)
	answer, err := guard.Do(t.Context(), "r", 5)
	if err != nil {
		t.Fatal(err)
	}
	compact(t, client, answer.Header.Revision)
	for name, ops := range map[string][]clientv3.Op{
		"puts the token":      {clientv3.OpPut(token("r"), digits(9))},
		"deletes the token":   {clientv3.OpDelete(token("r"))},
		"deletes all like it": {clientv3.OpDelete(token(""), clientv3.WithPrefix())},
		"deletes it when it is": {clientv3.OpTxn(nil,
			[]clientv3.Op{clientv3.OpDelete(token("r"))}, nil)},
		"deletes it if not": {clientv3.OpTxn([]clientv3.Cmp{
			clientv3.Compare(clientv3.Version("nothing"), ">", 0)}, nil,
			[]clientv3.Op{clientv3.OpDelete(token(""), clientv3.WithPrefix())})},
		"too many":              make128(),
		"too large":             {clientv3.OpPut("w", strings.Repeat("x", 1_700_000))},
		"larger than is sent":   {clientv3.OpPut("w", strings.Repeat("x", 3<<20))},
		"reads what is gone":    {clientv3.OpGet("v", clientv3.WithRev(answer.Header.Revision-1))},
		"reads what is to come": {clientv3.OpGet("v", clientv3.WithRev(1<<40))},
		"no such lease":         {clientv3.OpPut("w", "x", clientv3.WithLease(1))},
		"no such key":           {clientv3.OpPut("w", "", clientv3.WithIgnoreValue())},
		"no key":                {clientv3.OpPut("", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			empty(t, client)
			if _, err := guard.Do(t.Context(), "r", 5); err != nil {
				t.Fatal(err)
			}
			_, err := guard.Do(t.Context(), "r", 6, append([]clientv3.Op{
				clientv3.OpPut("v", "a")}, ops...)...)
			if !errors.Is(err, fence.ErrInvalid) {
				t.Errorf("Do = %v; want ErrInvalid", err)
			}
			if _, writes := get(t, client, "v"); writes != 0 {
				t.Error("the operation before is executed")
			}
			if text, _ := get(t, client, token("r")); text != digits(5) {
				t.Errorf("the token is %q; want that of 5", text)
			}
		})
	}
}

// An operation that deletes all keys, which etcd lets pass, leaves the token.
func TestHolderDeletesAllKeys(t *testing.T) {
	client := connect(t)
	guard := patient(client)
	all := clientv3.OpDelete("\x00", clientv3.WithFromKey())
	for name, op := range map[string]clientv3.Op{
		"alone":  all,
		"nested": clientv3.OpTxn(nil, []clientv3.Op{all}, nil),
	} {
		empty(t, client)
		for range 2 { // without a token, and with one
			answer, err := guard.Do(t.Context(), "r", 5, op)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			compact(t, client, answer.Header.Revision)
		}
		restart(t, client)
		if _, err := guard.Do(t.Context(), "r", 4); !isStale(err, 5) {
			t.Errorf("%s: Do with an older token = %v; want a StaleError by 5", name, err)
		}
	}
}

// compact makes etcd forget what was before the revision.
func compact(t *testing.T, client *clientv3.Client, revision int64) {
	t.Helper()
	ctx, cancel := patience(t)
	defer cancel()
	if _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
}

func make128() []clientv3.Op {
	ops := make([]clientv3.Op, 127) // with the one before and the guard's 129
	for i := range ops {
		ops[i] = clientv3.OpPut("w"+digits(fence.Token(i)), "x")
	}
	return ops
}

// A transaction may have as many operations as the documentation says.
func TestMostOperations(t *testing.T) {
	client := connect(t)
	empty(t, client)
	answer, err := patient(client).Do(t.Context(), "r", 5, make128()...)
	if err != nil || len(answer.Responses) != 127 {
		t.Errorf("Do of 127 operations = %v", err)
	}
}

// The kind of an error says whether the write may have been done. Here it was done each time.
func TestAnswersOfEtcd(t *testing.T) {
	for said, want := range map[error]error{
		rpctypes.ErrGRPCPermissionDenied:                         fence.ErrUnavailable,
		rpctypes.ErrGRPCRequestTooManyRequests:                   fence.ErrUnavailable,
		rpctypes.ErrGRPCNoLeader:                                 fence.ErrUnavailable,
		rpctypes.ErrGRPCNotSupportedForLearner:                   fence.ErrUnavailable,
		rpctypes.ErrGRPCUserEmpty:                                fence.ErrUnavailable,
		rpctypes.ErrGRPCAuthFailed:                               fence.ErrUnavailable,
		rpctypes.ErrGRPCNotCapable:                               fence.ErrUnavailable,
		rpctypes.ErrGRPCCorrupt:                                  fence.ErrUnavailable,
		rpctypes.ErrGRPCDuplicateKey:                             fence.ErrInvalid,
		rpctypes.ErrGRPCValueProvided:                            fence.ErrInvalid,
		rpctypes.ErrGRPCLeaseProvided:                            fence.ErrInvalid,
		rpctypes.ErrGRPCInvalidSortOption:                        fence.ErrInvalid,
		rpctypes.ErrGRPCNoSpace:                                  fence.ErrUnknown,
		rpctypes.ErrGRPCStopped:                                  fence.ErrUnknown,
		rpctypes.ErrGRPCTimeout:                                  fence.ErrUnknown,
		rpctypes.ErrGRPCTimeoutDueToLeaderFail:                   fence.ErrUnknown,
		rpctypes.ErrGRPCLeaderChanged:                            fence.ErrUnknown,
		status.Error(codes.Unavailable, "error reading: EOF"):    fence.ErrUnknown,
		status.Error(codes.Internal, "stream error"):             fence.ErrUnknown,
		status.Error(codes.ResourceExhausted, "larger than max"): fence.ErrUnknown,
		status.Error(codes.ResourceExhausted, // a proxy's, of the answer
			"trying to send message larger than max (9 vs. 8)"): fence.ErrUnknown,
	} {
		client := connect(t, intercepted(func(ctx context.Context, method string, request,
			answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker,
			options ...grpc.CallOption) error {
			if err := call(ctx, method, request, answer, conn, options...); err != nil {
				return err
			}
			return said
		}))
		_, err := patient(client).Do(t.Context(), "r", 5)
		for _, kind := range []error{fence.ErrInvalid, fence.ErrUnavailable, fence.ErrUnknown} {
			if errors.Is(err, kind) != (kind == want) {
				t.Errorf("Do after %v = %v; want %v", said, err, want)
			}
		}
		if words := status.Convert(said).Message(); !strings.Contains(err.Error(), words) ||
			!strings.Contains(err.Error(), `"r"`) {
			t.Errorf("Do after %v = %v; want its words, and the resource", said, err)
		}
	}
}

// A stored text that is no guard's token causes a refusal, and does not count as a later holder.
func TestStoredTokenThatIsNone(t *testing.T) {
	client := connect(t)
	guard := patient(client)
	for _, stored := range []string{"42", "12x", "5000000000000000x", "00000000000000050", "~"} {
		empty(t, client)
		ctx, cancel := patience(t)
		defer cancel()
		if _, err := client.Put(ctx, token("r"), stored); err != nil {
			t.Fatal(err)
		}
		_, err := guard.Do(t.Context(), "r", 4, clientv3.OpPut("v", "a"))
		isUnavailable(t, "Do where the token is "+stored, err)
		if err != nil && !strings.Contains(err.Error(), stored) {
			t.Errorf("Do = %v; want %q in it", err, stored)
		}
		if v, _ := get(t, client, "v"); v != "" {
			t.Errorf("where the token is %q, %q is written", stored, v)
		}
	}
}

// proxy is a server that executes transactions and says that it has not.
type proxy struct {
	pb.UnimplementedKVServer
	executed atomic.Int32
	says     codes.Code // the first time
}

func (p *proxy) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	if p.executed.Add(1) == 1 {
		return nil, status.Error(p.says, "the proxy gave up")
	}
	return &pb.TxnResponse{Header: &pb.ResponseHeader{},
		Responses: []*pb.ResponseOp{{}, {}}}, nil
}

// The client repeats a transaction that was cancelled on its way, though it may have been executed.
// Do prevents that.
func TestOneDoWritesOnce(t *testing.T) {
	for name, c := range map[string]struct {
		write    func(*clientv3.Client) error
		executed int32
	}{
		"the client alone": {func(client *clientv3.Client) error {
			_, err := client.Txn(t.Context()).Then(clientv3.OpPut("v", "a")).Commit()
			if err != nil {
				t.Errorf("Commit = %v; want it repeated. Otherwise write.attempted can go", err)
			}
			return fence.ErrUnknown
		}, 2},
		"Do": {func(client *clientv3.Client) error {
			_, err := patient(client).Do(t.Context(), "r", 5,
				clientv3.OpPut("v", "a"))
			return err
		}, 1},
	} {
		for _, code := range []codes.Code{codes.Canceled, codes.DeadlineExceeded} {
			p := &proxy{says: code}
			client := connect(t, serve(t, func(s *grpc.Server) { pb.RegisterKVServer(s, p) }))
			isUnknown(t, name, c.write(client))
			if n := p.executed.Load(); n != c.executed {
				t.Errorf("%s: after %v it is executed %d times; want %d", name, code, n,
					c.executed)
			}
		}
	}
}

// serve starts a server, and makes a client go to it.
func serve(t *testing.T, register func(*grpc.Server)) func(*clientv3.Config) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	go s.Serve(listener)
	t.Cleanup(s.Stop)
	return func(c *clientv3.Config) { c.Endpoints = []string{listener.Addr().String()} }
}

// forgetful is a server that knows nobody's login, and answers only the first of them.
type forgetful struct {
	pb.UnimplementedKVServer
	pb.UnimplementedAuthServer
	logins atomic.Int32
	again  func() // called at the second login
}

func (*forgetful) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	return nil, rpctypes.ErrGRPCInvalidAuthToken
}

func (f *forgetful) Authenticate(ctx context.Context, _ *pb.AuthenticateRequest) (
	*pb.AuthenticateResponse, error) {
	if f.logins.Add(1) == 1 {
		return &pb.AuthenticateResponse{Header: &pb.ResponseHeader{}, Token: "token"}, nil
	}
	f.again()
	<-ctx.Done()
	return nil, ctx.Err()
}

// A transaction that etcd has refused is not written. This holds even if the client would log in
// and send it again, and its context ends before that.
func TestRefusedAndNotSentAgain(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	f := &forgetful{again: func() { cancel(errWhy) }}
	client := connect(t, as("writer"), serve(t, func(s *grpc.Server) {
		pb.RegisterKVServer(s, f)
		pb.RegisterAuthServer(s, f)
	}))
	_, err := etcdfence.Guard{Client: client, Timeout: testserver.Patience}.Do(ctx, "r", 5)
	isUnavailable(t, "Do that could not log in again", err)
	if !errors.Is(err, errWhy) || !errors.Is(err, rpctypes.ErrInvalidAuthToken) {
		t.Errorf("Do = %v; want the context's cause, and why etcd has refused", err)
	}
}
