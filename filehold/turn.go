//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// presence is how long a waiter counts as present after it last asked. It asks three times in that span, so a message that is
// lost costs a second.
const presence = 3 * time.Second

// maxTTL keeps times within their type.
const maxTTL = 100 * 365 * 24 * time.Hour

// turn is a stretch of time in which we hold the directory's mutex, and what is to be done at its end. Its methods are the
// rules of the driver contract; what they do is in force when the key's file is stored.
type turn struct {
	*core
	*directory

	now    time.Duration     // the clock of all processes
	known  map[memberID]bool // who lives
	died   []memberID        // who does not, and is not marked yet
	count  counter           // valid if counts
	counts bool

	// Of the key at hand:
	key     keyFile
	changed bool   // the record is not what the file says
	granted *party // to whom it was handed over
	buf     [2 * keyPlace]byte
	scratch []byte

	// unraised is why the ceiling cannot be raised. Then nothing is handed over, and releases go on.
	unraised error

	messages []message // to send after the mutex is free
	notices  []driver.Notice
}

func (t *turn) begin() {
	t.now = clock.SinceBoot()
	clear(t.known)
	t.died = t.died[:0]
	t.counts = false
	t.messages = t.messages[:0]
	clear(t.notices)
	t.notices = t.notices[:0]
}

// lives reports whether a member does. It is asked once a turn.
func (t *turn) lives(id memberID) bool {
	if id == t.member.id {
		return true
	}
	lives, known := t.known[id]
	if !known {
		lives = t.living(id)
		t.known[id] = lives
		if !lives {
			t.died = append(t.died, id)
		}
	}
	return lives
}

// current reports whether a party's lease or presence is in force.
func (t *turn) current(p *party) bool { return t.now < p.until && t.lives(p.member) }

// draw takes a block of tokens, of at least the proposed size. It fails with a ceilingError, having done
// nothing, if they are above the durable ceiling.
func (t *turn) draw(proposed, block uint64) (uint64, error) {
	if !t.counts {
		c, err := t.readCounter()
		if err != nil {
			return 0, err
		}
		t.count, t.counts = c, true
	}
	block = max(block, 1)
	first := max(t.count.next, proposed)
	if first > maxToken || block > maxToken-first+1 {
		return 0, t.fail("token %d and the %d after it would not be below 2^53", first, block-1)
	}
	if last := first + block - 1; last > t.count.durable {
		if t.unraised != nil {
			return 0, t.unraised
		}
		return 0, ceilingError(last)
	}
	old := t.count.next
	t.count.next = first + block
	if err := t.writeCounter(&t.count); err != nil {
		t.count.next = old
		t.counts = false
		return 0, err
	}
	return first, nil
}

// load reads a key, and takes out of the record who is not there any more. Waiters whose presence lasts are kept
// until it matters, or until somebody sees them die: to look at each costs a few system calls.
func (t *turn) load(key string) (*keyFile, error) {
	k := &t.key
	if err := t.loadKey(k, key, t.buf[:]); err != nil {
		return nil, err
	}
	t.prune(&k.record)
	return k, nil
}

func (t *turn) prune(r *record) {
	if r.holder != nil && !t.current(r.holder) {
		r.holder = nil
		t.changed = true
	}
	for i := 0; i < len(r.queue); {
		if t.now < r.queue[i].until {
			i++
			continue
		}
		r.remove(i)
		t.changed = true
	}
}

// next returns the first live waiter; those before it are dead and are removed.
func (t *turn) next(r *record) *party {
	for len(r.queue) > 0 && !t.lives(r.queue[0].member) {
		r.remove(0)
		t.changed = true
	}
	if len(r.queue) == 0 {
		return nil
	}
	return r.queue[0]
}

// pass gives a key that nobody holds to the first live waiter, for what is left of its presence.
func (t *turn) pass(r *record) error {
	if r.holder != nil {
		return nil
	}
	w := t.next(r)
	if w == nil {
		return nil
	}
	token, err := t.draw(w.token, w.block)
	if err != nil {
		if t.unraised != nil {
			return nil // the key stays free; who asks next tries again
		}
		return err
	}
	r.queue = r.queue[1:]
	r.holder = w
	w.token = token
	t.changed = true
	t.granted = w
	return nil
}

// store puts the record into force, if it was changed, and has those told whom that concerns.
func (t *turn) store(k *keyFile) error {
	r := &k.record
	if t.changed {
		if err := t.storeKey(k, &t.scratch); err != nil {
			return err
		}
		if w := t.granted; w != nil {
			if w.member == t.member.id {
				t.notices = append(t.notices, driver.Notice{
					Kind: driver.Granted, Key: r.key, Owner: w.owner, Token: driver.Token(w.token), Block: w.block,
				})
			} else {
				t.messages = append(t.messages, message{to: w.member, kind: messageGranted, claim: claimHash(r.key, w.owner), token: w.token, block: w.block})
			}
		}
		for _, w := range r.queue {
			if w.disturbed && w.member != t.member.id {
				t.messages = append(t.messages, message{to: w.member, kind: messageLook, claim: claimHash(r.key, w.owner)})
			}
		}
	}
	t.track(r)
	return nil
}

// on loads the key, has change change it, passes it on if it is free, and stores it. If it fails, nothing is changed.
func (t *turn) on(key string, change func(k *keyFile) error) error {
	t.changed, t.granted = false, nil
	k, err := t.load(key)
	if err != nil {
		return err
	}
	defer k.close()
	if err := change(k); err != nil {
		return err
	}
	if err := t.pass(&k.record); err != nil {
		return err
	}
	return t.store(k)
}

// grant makes the claim the holder.
func (t *turn) grant(r *record, claim *driver.Claim) (driver.Result, error) {
	token, err := t.draw(uint64(claim.Token), claim.Block)
	if err != nil {
		return driver.Result{}, err
	}
	r.holder = &party{
		owner: claim.Owner, member: t.member.id, until: t.now + min(claim.TTL, maxTTL), token: token, block: max(claim.Block, 1),
	}
	t.changed = true
	return driver.Result{State: driver.Held, Token: driver.Token(token)}, nil
}

func (t *turn) acquire(claim *driver.Claim) (result driver.Result, err error) {
	err = t.on(claim.Key, func(k *keyFile) error {
		r := &k.record
		if r.holder == nil {
			w := t.next(r)
			if w != nil && w.owner == claim.Owner {
				r.queue = r.queue[1:]
				w = nil
			}
			if w == nil {
				result, err = t.grant(r, claim)
				return err
			}
			if err := t.pass(r); err != nil {
				return err
			}
		} else if r.holder.owner == claim.Owner {
			result, err = t.grant(r, claim)
			return err
		}
		result = driver.Result{State: driver.Busy}
		if r.holder != nil {
			result.Holder, result.ExpiresIn = r.holder.owner, r.holder.until-t.now
		}
		i := r.find(claim.Owner)
		if i < 0 && !claim.Queue {
			return nil
		}
		var w *party
		if i >= 0 {
			w = r.queue[i]
		} else {
			w = &party{owner: claim.Owner, ticket: claim.Ticket}
			r.insert(w)
			i = r.find(claim.Owner)
		}
		result.Presence = min(presence, claim.TTL)
		result.Place = i + 1
		w.member = t.member.id
		w.until = t.now + result.Presence
		w.token, w.block = uint64(claim.Token), claim.Block
		t.changed = true
		return nil
	})
	return result, err
}

func (t *turn) renew(claim *driver.Claim) (result driver.Result, err error) {
	result.State = driver.Lost
	err = t.on(claim.Key, func(k *keyFile) error {
		r := &k.record
		h := r.holder
		if h == nil || h.owner != claim.Owner {
			return nil
		}
		if claim.Yield && t.next(r) != nil {
			r.holder = nil
			if err := t.pass(r); err != nil {
				return err
			}
			if r.holder != nil {
				result.State = driver.Yielded
				return nil
			}
			r.holder = h // no token could be drawn for the waiter
		}
		result.State = driver.Held
		if claim.Block > 0 {
			token, err := t.draw(uint64(claim.Token), claim.Block)
			if err != nil {
				return err
			}
			h.token, h.block = token, claim.Block
			result.Token = driver.Token(token)
		}
		h.member = t.member.id
		h.until = t.now + min(claim.TTL, maxTTL)
		t.changed = true
		return nil
	})
	return result, err
}

func (t *turn) release(claim *driver.Claim) (result driver.Result, err error) {
	result.State = driver.Lost
	err = t.on(claim.Key, func(k *keyFile) error {
		r := &k.record
		if r.holder != nil && r.holder.owner == claim.Owner {
			r.holder = nil
			t.changed = true
			result.State = driver.Held
		} else if i := r.find(claim.Owner); i >= 0 {
			r.remove(i)
			t.changed = true
			result.State = driver.Busy
		}
		return nil
	})
	return result, err
}

// look puts a key in order.
func (t *turn) look(key string) error {
	return t.on(key, func(*keyFile) error { return nil })
}

// lookAt is look by the name of the key's file, and thorough: also waiters that died are removed.
func (t *turn) lookAt(name string) error {
	t.changed, t.granted = false, nil
	k := &t.key
	if err := t.loadFile(k, name, t.buf[:]); err != nil || k.record.key == "" {
		return err
	}
	defer k.close()
	if keyName(k.record.key) != name {
		return damaged(k.path)
	}
	r := &k.record
	t.prune(r)
	for i := len(r.queue) - 1; i >= 0; i-- {
		if !t.lives(r.queue[i].member) {
			r.remove(i)
			t.changed = true
		}
	}
	if err := t.pass(r); err != nil {
		return err
	}
	return t.store(k)
}

// forget takes what we have queued for a key out. It returns the end of our lease on it, or 0.
func (t *turn) forget(key string) (until time.Duration, err error) {
	err = t.on(key, func(k *keyFile) error {
		r := &k.record
		for i := len(r.queue) - 1; i >= 0; i-- {
			if r.queue[i].member == t.member.id {
				r.remove(i)
				t.changed = true
			}
		}
		if r.holder != nil && r.holder.member == t.member.id {
			until = r.holder.until
		}
		return nil
	})
	return until, err
}

// validate checks what the kernel promises of a claim, and what fits into a file.
func (c *core) validate(claim *driver.Claim) error {
	refuse := func(format string, args ...any) error {
		return &driver.Error{Node: c.dir.path, Permanent: true, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case len(claim.Key) == 0 || len(claim.Key) > driver.MaxKeyLen:
		return refuse("key of %d bytes: must have 1 to %d", len(claim.Key), driver.MaxKeyLen)
	case len(claim.Owner) == 0 || len(claim.Owner) > maxOwnerLen:
		return refuse("owner value of %d bytes: must have 1 to %d", len(claim.Owner), maxOwnerLen)
	case claim.TTL < time.Millisecond:
		return refuse("TTL %v: must be at least %v", claim.TTL, time.Millisecond)
	case claim.Token > maxToken || claim.Block > maxToken:
		return refuse("token %d with a block of %d: must be below 2^53", claim.Token, claim.Block)
	}
	return nil
}

const maxOwnerLen = 512

func isCeiling(err error) (need uint64, ok bool) {
	var e ceilingError
	ok = errors.As(err, &e)
	return uint64(e), ok
}
