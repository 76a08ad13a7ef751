package etcdhold

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// party is a holder or a waiter as etcd has it, or as it is going to be.
type party struct {
	owner    string
	key      string // in etcd
	lease    clientv3.LeaseID
	created  int64 // revision; 0 if it is not in etcd yet
	modified int64 // revision
	record   record
	ticket   uint64 // of a waiter: its place among all
	put      bool   // it is to be written
}

// state is what etcd has about one lock in one revision.
type state struct {
	revision int64
	holders  []*party
	waiters  []*party // in the order in which they are served
	counter  uint64   // the largest token granted
	counted  bool     // the counter is there
}

// readState reads the answers to the requests that looks returns.
func readState(n names, revision int64, claims, counter []*mvccpb.KeyValue) *state {
	s := &state{revision: revision}
	for _, kv := range claims {
		kind, owner := splitKind(strings.TrimPrefix(string(kv.Key), n.base))
		p := &party{owner: owner, key: string(kv.Key), lease: clientv3.LeaseID(kv.Lease),
			created: kv.CreateRevision, modified: kv.ModRevision, record: parseRecord(kv.Value)}
		switch kind {
		case holderKind:
			s.holders = append(s.holders, p)
		case waiterKind:
			s.waiters = append(s.waiters, p)
		}
	}
	for _, kv := range counter {
		s.counted = true
		s.counter, _ = strconv.ParseUint(string(kv.Value), 10, 64)
	}
	s.order()
	return s
}

func splitKind(text string) (kind, owner string) {
	if text == "" {
		return "", ""
	}
	return text[:1], text[1:]
}

// order gives each waiter its ticket, and sorts the waiters. The ticket of a waiter that came
// without one is its clock, but above the ticket of the waiter that came before. So the order is
// that of arrival, which etcd knows, and no clock changes it.
func (s *state) order() {
	slices.SortFunc(s.waiters, func(a, b *party) int { return cmp.Compare(a.created, b.created) })
	last := uint64(0)
	for _, w := range s.waiters {
		if w.ticket = w.record.Ticket; w.ticket == 0 {
			last = max(last+1, w.record.At)
			w.ticket = last
		}
	}
	slices.SortFunc(s.waiters, func(a, b *party) int { return a.compare(b.ticket, b.owner) })
	// The longest lease last, as far as it is known.
	slices.SortFunc(s.holders, func(a, b *party) int {
		return cmp.Or(cmp.Compare(a.record.TTL, b.record.TTL), cmp.Compare(a.modified, b.modified))
	})
}

// compare says whether the waiter comes before a claim with that ticket and owner value.
func (p *party) compare(ticket uint64, owner string) int {
	return cmp.Or(cmp.Compare(p.ticket, ticket), cmp.Compare(p.owner, owner))
}

// find returns where the owner is, or -1.
func find(parties []*party, owner string) int {
	return slices.IndexFunc(parties, func(p *party) bool { return p.owner == owner })
}
