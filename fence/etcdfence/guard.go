package etcdfence

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fence"
)

// DefaultPrefix is the default of Guard.Prefix.
const DefaultPrefix = "holdfast/fence/"

// DefaultTimeout is the default of Guard.Timeout.
const DefaultTimeout = 5 * time.Second

// Guard writes to etcd by operations that are executed only if the token is not older than one that
// was accepted. It may be used by many goroutines at once.
type Guard struct {
	_ struct{} // keyed literals only: fields will be added

	// Client is the connection. Required. Its KV must be its own, because the guard would bypass a
	// wrapper such as namespace.NewKV. So Do refuses a client with a wrapper: name keys in full
	// instead. Do also refuses a client without a connection, such as that of a server in the same
	// process.
	Client *clientv3.Client

	// Prefix is the beginning of the keys that have the tokens. All writers of a resource need the
	// same Prefix. Default [DefaultPrefix].
	Prefix string

	// Timeout is how long one write may take, whatever the context allows. Default
	// [DefaultTimeout].
	Timeout time.Duration
}

// Do executes the operations in one transaction if no larger token was accepted for the resource,
// and accepts the token. It returns the answer of etcd, with one response for each operation.
// Without operations it only advances the token. The caller's own conditions go into a
// [clientv3.OpTxn]. By default etcd allows 128 operations in a transaction, and one of them is the
// guard's.
//
// Do has written nothing if it fails with [*fence.StaleError] because a larger token was accepted;
// with [fence.ErrInvalid] for a setting, a name, a token, or an operation that etcd or its client
// does not take, such as a Get of a compacted revision; or with [fence.ErrUnavailable] because
// nothing was sent or etcd has refused. It fails with [fence.ErrUnknown] if the answer did not
// come. Then Do can be repeated with the same token, if the operations can. If ctx or Guard.Timeout
// ends meanwhile, the error is one of the last two, and with ctx also the context's error. If ctx
// has ended before, the error is the context's alone.
func (g Guard) Do(ctx context.Context, resource string, token fence.Token,
	ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	if err := g.validate(resource, token, ops); err != nil {
		return nil, err
	}
	if err := ended(ctx); err != nil {
		return nil, fmt.Errorf("fence: write to %q: %w", resource, err)
	}
	key, text := or(g.Prefix, DefaultPrefix)+resource, digits(token)
	w, done := g.newWrite(ctx)
	defer done()
	// No comparison holds for a value that is not there, and put this way round the first token
	// gets in. The token is put last, because etcd accepts an operation that deletes all keys.
	answer, err := clientv3.NewKVFromKVClient(w, g.Client).Txn(w.ctx).
		If(clientv3.Compare(clientv3.Value(key), ">", text)).
		Then(clientv3.OpGet(key)).
		Else(slices.Concat(ops, []clientv3.Op{clientv3.OpPut(key, text)})...).
		Commit()
	if err != nil {
		return nil, fmt.Errorf("fence: write to %q: %w", resource, w.failure(ctx))
	}
	if answer.Succeeded {
		return nil, refusal(resource, token, answer)
	}
	answer.Succeeded, answer.Responses = true, answer.Responses[:len(ops)]
	return answer, nil
}

// digits returns the text of a token. In the order of bytes, a smaller token's text comes before
// it.
func digits(token fence.Token) string { return fmt.Sprintf("%016d", uint64(token)) }

// refusal returns the error for a token that comes before the stored one in the order of bytes.
func refusal(resource string, token fence.Token, answer *clientv3.TxnResponse) error {
	stored := ""
	for _, kv := range answer.Responses[0].GetResponseRange().GetKvs() {
		stored = string(kv.Value)
	}
	newest, err := strconv.ParseUint(stored, 10, 64)
	if err != nil || len(stored) != len(digits(token)) {
		return fmt.Errorf("fence: write to %q: %w: the stored token is %.40q; want 16 digits",
			resource, fence.ErrUnavailable, stored)
	}
	return &fence.StaleError{Resource: resource, Token: token, Newest: fence.Token(newest)}
}

func (g Guard) validate(resource string, token fence.Token, ops []clientv3.Op) error {
	if err := fence.Validate(resource, token); err != nil {
		return err
	}
	switch {
	case g.Client == nil:
		return fmt.Errorf("fence: %w: Guard.Client is nil: make one with clientv3.New",
			fence.ErrInvalid)
	case !ownKV(g.Client):
		return fmt.Errorf(
			"fence: %w: the KV of Guard.Client is a %T; want the client's own, and keys in full",
			fence.ErrInvalid, g.Client.KV)
	case g.Client.ActiveConnection() == nil:
		return fmt.Errorf("fence: %w: Guard.Client has no connection: make one with clientv3.New",
			fence.ErrInvalid)
	case g.Timeout < 0:
		return fmt.Errorf("fence: %w: Guard.Timeout is %v; want 0, which is %v, or more",
			fence.ErrInvalid, g.Timeout, DefaultTimeout)
	}
	for i, op := range ops {
		if empty(op) {
			return fmt.Errorf("fence: %w: operation %d on %q is empty, or one within it",
				fence.ErrInvalid, i+1, resource)
		}
	}
	return nil
}

// empty reports whether the operation is the zero Op or contains one. The client would panic at it.
func empty(op clientv3.Op) bool {
	_, then, otherwise := op.Txn()
	return !op.IsGet() && !op.IsPut() && !op.IsDelete() && !op.IsTxn() ||
		slices.ContainsFunc(then, empty) || slices.ContainsFunc(otherwise, empty)
}

// own is a KV of the kind that a client comes with.
var own = clientv3.NewKVFromKVClient(nil, nil)

func ownKV(client *clientv3.Client) bool {
	return reflect.TypeOf(client.KV) == reflect.TypeOf(own)
}

// ended returns nil if the context has not ended. Otherwise it returns the context's error together
// with its cause, which may tell of a lost lock.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil {
		return nil
	}
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// or returns the value, or instead if the value is zero.
func or[T comparable](value, instead T) T {
	var zero T
	if value == zero {
		return instead
	}
	return value
}
