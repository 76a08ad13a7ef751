package etcdhold

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// look are the operations that read the state of a lock.
func (n names) look() []clientv3.Op {
	from, end := n.claimRange()
	return []clientv3.Op{clientv3.OpGet(from, clientv3.WithRange(end)), clientv3.OpGet(n.tokens)}
}

// read returns the state of a lock, as etcd has it now.
func (b *Backend) read(ctx context.Context, n names) (*state, error) {
	answer, err := b.kv.Txn(ctx).Then(n.look()...).Commit()
	if err != nil {
		return nil, failure(err)
	}
	return stateOf(n, answer), nil
}

// stateOf reads the answers to look, which are the last two.
func stateOf(n names, answer *clientv3.TxnResponse) *state {
	last := len(answer.Responses)
	return readState(n, answer.Header.Revision, kvs(answer, last-2), kvs(answer, last-1))
}

func kvs(answer *clientv3.TxnResponse, i int) []*mvccpb.KeyValue {
	return answer.Responses[i].GetResponseRange().GetKvs()
}

// commit executes the operations if the conditions hold. In either case it returns the state
// afterwards. The error tells whether they may have been executed.
func (b *Backend) commit(ctx context.Context, n names, conditions []clientv3.Cmp,
	operations []clientv3.Op) (done bool, after *state, err error) {
	look := n.look()
	answer, err := b.transact(ctx, conditions, append(operations, look...), look)
	if err != nil {
		return false, nil, err
	}
	return answer.Succeeded, stateOf(n, answer), nil
}

// execute executes the operations if the conditions hold, and returns the revision. Otherwise it
// returns the state, and 0. It is for operations whose conditions mostly hold, because then the
// state is not read.
func (b *Backend) execute(ctx context.Context, n names, conditions []clientv3.Cmp,
	operations ...clientv3.Op) (revision int64, otherwise *state, err error) {
	answer, err := b.transact(ctx, conditions, operations, n.look())
	switch {
	case err != nil:
		return 0, nil, err
	case answer.Succeeded:
		return answer.Header.Revision, nil, nil
	}
	return 0, stateOf(n, answer), nil
}

// transact sends a transaction that writes. The error tells whether it may have been executed.
func (b *Backend) transact(ctx context.Context, conditions []clientv3.Cmp,
	operations, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	a := new(attempt)
	answer, err := b.kv.Txn(context.WithValue(ctx, attemptKey{}, a)).If(conditions...).
		Then(operations...).Else(otherwise...).Commit()
	if err != nil {
		return nil, a.failed(err)
	}
	return answer, nil
}

// get reads a range. It uses a transaction, because the client repeats any other read until its
// context ends, and then does not tell why.
func (b *Backend) get(ctx context.Context, from string, options ...clientv3.OpOption) (
	*etcdserverpb.RangeResponse, error) {
	answer, err := b.kv.Txn(ctx).Then(clientv3.OpGet(from, options...)).Commit()
	if err != nil {
		return nil, err
	}
	return answer.Responses[0].GetResponseRange(), nil
}
