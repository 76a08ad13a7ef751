package etcdhold

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// memory executes transactions as etcd does, for one lock. It knows no leases.
type memory struct {
	pb.KVClient // nil: only transactions are asked for

	revision int64
	kvs      map[string]*mvccpb.KeyValue
}

func newMemory() *memory { return &memory{revision: 1, kvs: make(map[string]*mvccpb.KeyValue)} }

// clone returns a copy that changes by itself.
func (m *memory) clone() *memory {
	return &memory{revision: m.revision, kvs: maps.Clone(m.kvs)} // what they point to never changes
}

// find returns what is in a range, in order.
func (m *memory) find(key, end []byte) (found []*mvccpb.KeyValue) {
	for _, kv := range m.kvs {
		if bytes.Equal(kv.Key, key) || len(end) > 0 && bytes.Compare(kv.Key, key) > 0 &&
			bytes.Compare(kv.Key, end) < 0 {
			found = append(found, kv)
		}
	}
	slices.SortFunc(found, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	return found
}

// holds reports whether a condition holds for every key in its range.
func (m *memory) holds(c *pb.Compare) bool {
	found := m.find(c.Key, c.RangeEnd)
	if len(found) == 0 {
		if c.Target == pb.Compare_VALUE {
			return false
		}
		found = append(found, new(mvccpb.KeyValue))
	}
	return !slices.ContainsFunc(found, func(kv *mvccpb.KeyValue) bool {
		var order int
		switch c.Target {
		case pb.Compare_VALUE:
			order = bytes.Compare(kv.Value, c.GetValue())
		case pb.Compare_CREATE:
			order = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
		case pb.Compare_MOD:
			order = cmp.Compare(kv.ModRevision, c.GetModRevision())
		default:
			panic("a condition that the store does not know")
		}
		switch c.Result {
		case pb.Compare_EQUAL:
			return order != 0
		case pb.Compare_LESS:
			return order >= 0
		}
		panic("a comparison that the store does not know")
	})
}

// Txn executes a transaction.
func (m *memory) Txn(_ context.Context, r *pb.TxnRequest,
	_ ...grpc.CallOption) (*pb.TxnResponse, error) {
	if max(len(r.Compare), len(r.Success), len(r.Failure)) > maxOperations {
		return nil, rpctypes.ErrTooManyOps
	}
	ops, ok := r.Success, true
	for _, c := range r.Compare {
		if !m.holds(c) {
			ops, ok = r.Failure, false
		}
	}
	next := m.revision + 1
	changed := make(map[string]bool)
	answer := &pb.TxnResponse{Succeeded: ok}
	for _, op := range ops {
		got := new(pb.ResponseOp)
		var key []byte
		if put := op.GetRequestPut(); put != nil {
			key = put.Key
			kv := &mvccpb.KeyValue{Key: key, Value: put.Value, Lease: put.Lease,
				CreateRevision: next, ModRevision: next}
			if old := m.kvs[string(key)]; old != nil {
				kv.CreateRevision = old.CreateRevision
			}
			m.kvs[string(key)] = kv
		}
		if gone := op.GetRequestDeleteRange(); gone != nil {
			key = gone.Key
			delete(m.kvs, string(key))
		}
		if look := op.GetRequestRange(); look != nil {
			got.Response = &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{
				Kvs: m.find(look.Key, look.RangeEnd)}}
		} else if changed[string(key)] {
			return nil, rpctypes.ErrDuplicateKey
		} else {
			changed[string(key)], m.revision = true, next
		}
		answer.Responses = append(answer.Responses, got)
	}
	answer.Header = &pb.ResponseHeader{Revision: m.revision}
	return answer, nil
}

// commit executes the plan in the store, and reports whether its conditions held.
func (m *memory) commit(t *testing.T, p *plan) bool {
	t.Helper()
	b := &Backend{kv: clientv3.NewKVFromKVClient(m, nil)}
	conditions, operations := p.transaction()
	done, _, err := b.commit(t.Context(), p.names, conditions, operations)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// read returns what the store has about the lock.
func (m *memory) read(t *testing.T, n names) *state {
	t.Helper()
	s, err := (&Backend{kv: clientv3.NewKVFromKVClient(m, nil)}).read(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
