package zkhold

import (
	"errors"
	"fmt"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// wrapping is the version after which a server counts to -1, which stands for any version.
const wrapping = -2

// slotsPath is the node below which the slots are.
func (b *Backend) slotsPath() string { return b.root + "/slots" }

func (b *Backend) slotPath(name string) string { return b.slotsPath() + "/" + name }

// look reads a slot, and makes it if there is none. If synced is true, what it reads is at least as
// new as what any process knew when look was called.
func (b *Backend) look(key string, synced bool) (*slot, error) {
	if synced {
		if err := b.sync(b.root); err != nil {
			return nil, readFailed(err)
		}
	}
	at := b.slotPath(b.slotOf(key))
	s, err := b.read(at, synced)
	for tries := 0; err == nil && s == nil; tries++ {
		if tries > 3 {
			return nil, readFailed(fmt.Errorf("%s: %w", at, zk.ErrNoNode))
		}
		if err := b.make(at); err != nil {
			return nil, readFailed(err)
		}
		s, err = b.read(at, synced)
	}
	return s, err
}

// read returns a slot, or nil if there is none. It reads the nodes below the slot after the record.
// So a party of the record without a node is dead, or it has left and the record has changed. If
// there are as many nodes as parties, each party has one, and read does not read them. With sure it
// does, because somebody else may have made a node.
func (b *Backend) read(at string, sure bool) (*slot, error) {
	data, stat, err := b.client.Get(at)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, readFailed(err)
	}
	b.recall.found(at, stat.Version)
	s := &slot{path: at, version: stat.Version, size: len(data)}
	if s.record, err = decode(data); err != nil {
		return nil, &driver.Error{Permanent: true, Err: fmt.Errorf("node %s: %w", at, err)}
	}
	if n := s.parties(); n == 0 || !sure && n == int(stat.NumChildren) {
		return s, nil
	}
	names, _, err := b.client.Children(at)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, readFailed(err)
	}
	s.live = make(map[string]bool, len(names))
	for _, name := range names {
		s.live[name] = true
	}
	return s, nil
}

// make makes a node, and those above it, unless they are there.
func (b *Backend) make(at string) error {
	_, err := b.client.Create(at, nil, 0, b.acl)
	if errors.Is(err, zk.ErrNoNode) && path.Dir(at) != "/" {
		if err := b.make(path.Dir(at)); err != nil {
			return err
		}
		_, err = b.client.Create(at, nil, 0, b.acl)
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// commit executes the plan if nobody has changed the slot since it was read. The error says whether
// the plan may have been executed.
func (b *Backend) commit(p *plan, id int64) (done bool, err error) {
	data := p.data()
	if len(p.create) > 0 && len(data) > maxData {
		return false, &driver.Error{Err: errFull}
	}
	sent := driver.LeaseClock()
	_, err = b.client.Multi(p.operations(data, b.acl)...)
	if err != nil {
		// What is recalled has a version, so a plan on it would be refused, in vain.
		b.recall.erred(p.path)
	}
	switch {
	case conflict(err):
		return false, nil
	case err != nil:
		return false, writeFailed(err)
	}
	b.session.answered(id, sent, true)
	p.size = len(data)
	b.recall.wrote(p.slot)
	return true, nil
}

// operations returns the operations of the transaction. The first fails if somebody has changed the
// slot. The operation for a node fails if the node's session has ended.
func (p *plan) operations(data []byte, acl []zk.ACL) []any {
	all := []any{&zk.SetDataRequest{Path: p.path, Data: data, Version: p.version}}
	if p.version == wrapping {
		// This is in the same step, so nobody sees the version that stands for any version.
		all = append(all, &zk.SetDataRequest{Path: p.path, Data: data, Version: -1})
	}
	for _, x := range p.create {
		all = append(all, &zk.CreateRequest{Path: p.path + "/" + x.Node, Acl: acl,
			Flags: zk.FlagEphemeral})
	}
	for _, node := range p.remove {
		all = append(all, &zk.DeleteRequest{Path: p.path + "/" + node, Version: -1})
	}
	for _, x := range p.admit {
		all = append(all, &zk.SetDataRequest{Path: p.path + "/" + x.Node, Version: -1,
			Data: encode(grant{x.Token, x.Block})})
	}
	return all
}
