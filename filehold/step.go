//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// presence is how long a waiter counts as present after it last asked. It asks three times in that
// span, so a message that is lost costs a second.
const presence = 3 * time.Second

// maxTTL keeps times within their type.
const maxTTL = 100 * 365 * 24 * time.Hour

// step is one change of one key's record. Its methods are the rules of the driver contract, and
// know nothing of files. What they do is in force when the record is stored. If a method fails, the
// record is not stored.
type step struct {
	me    memberID
	now   time.Duration // the clock of all processes
	lives func(memberID) bool
	draw  func(proposed, block uint64) (uint64, error)
	*record
	changed bool
	passed  []*party // the waiters that were handed the key
}

// current reports whether a party's lease or presence is in force. If the party counts by another
// clock, we cannot tell when it ends, so it is in force while its member lives.
func (s *step) current(p *party) bool {
	return (s.now < p.until || p.member.clock() != s.me.clock()) && s.lives(p.member)
}

// drop removes the waiters that dead names.
func (s *step) drop(dead func(*party) bool) {
	for i := 0; i < len(s.queue); {
		if dead(s.queue[i]) {
			s.remove(i)
			s.changed = true
		} else {
			i++
		}
	}
}

// prune removes claims that have ended. A look whether a member lives costs a system call. So prune
// keeps a waiter whose presence lasts, dead or alive, until its turn comes or another member sees
// it die.
func (s *step) prune() {
	before := len(s.holders)
	s.holders = slices.DeleteFunc(s.holders, func(h *party) bool { return !s.current(h) })
	s.changed = s.changed || len(s.holders) < before
	s.drop(func(w *party) bool { return s.now >= w.until && !s.current(w) })
}

// next returns the first live waiter, and removes the dead ones before it.
func (s *step) next() *party {
	for len(s.queue) > 0 && !s.lives(s.queue[0].member) {
		s.remove(0)
		s.changed = true
	}
	if len(s.queue) == 0 {
		return nil
	}
	return s.queue[0]
}

// pass gives the key to the first live waiters, as far as there is room, for the rest of their
// presence. If it gets no token for them, they go on waiting and the next job tries again, because
// a release must not fail for want of a token.
func (s *step) pass() {
	for s.admits(true) { // a look at a waiter costs a system call
		w := s.next()
		if w == nil || !s.admits(w.shared) {
			return
		}
		token, err := s.draw(w.token, max(w.block, 1))
		if err != nil {
			return
		}
		s.queue = s.queue[1:]
		s.enter(w)
		w.token = token
		s.changed = true
		s.passed = append(s.passed, w)
	}
}

// turn reports whether there is room for the claim and no live waiter before it. While others share
// the key, a new claim that brings a ticket comes before waiters with later tickets.
func (s *step) turn(claim *driver.Claim) bool {
	if !s.admits(claim.Shared) {
		return false
	}
	w := s.next()
	return w == nil || w.owner == claim.Owner || len(s.holders) > 0 && claim.Queue &&
		claim.Ticket > 0 && s.find(claim.Owner) < 0 && w.order(claim.Ticket, claim.Owner) > 0
}

// grant makes the claim a holder, or gives its hold h a new lease and new tokens.
func (s *step) grant(claim *driver.Claim, h *party) (driver.Result, error) {
	block := max(claim.Block, 1)
	token, err := s.draw(uint64(claim.Token), block)
	if err != nil {
		return driver.Result{}, err
	}
	if h == nil {
		if len(s.queue) > 0 && s.queue[0].owner == claim.Owner {
			s.queue = s.queue[1:]
		}
		h = &party{owner: claim.Owner, shared: claim.Shared}
		s.enter(h)
	}
	h.member, h.until = s.me, s.now+min(claim.TTL, maxTTL)
	h.token, h.block = token, block
	s.changed = true
	s.pass() // to waiters right behind it that share
	return driver.Result{State: driver.Held, Token: driver.Token(token)}, nil
}

func (s *step) acquire(claim *driver.Claim) (driver.Result, error) {
	h := s.holder(claim.Owner)
	if h != nil || !s.turn(claim) {
		s.pass()
		h = s.holder(claim.Owner)
	}
	if h != nil && (claim.Shared || !h.shared) || h == nil && s.turn(claim) {
		return s.grant(claim, h)
	}
	result := driver.Result{State: driver.Busy}
	if last := s.longest(); last != nil {
		result.Holder, result.ExpiresIn = last.owner, max(0, last.until-s.now)
	}
	i := s.find(claim.Owner)
	if i < 0 && (!claim.Queue || h != nil) {
		return result, nil
	}
	if i < 0 {
		i = s.insert(&party{owner: claim.Owner, ticket: claim.Ticket, shared: claim.Shared})
	}
	result.Presence = min(presence, claim.TTL)
	result.Place = i + 1
	w := s.queue[i]
	w.member = s.me
	w.until = s.now + result.Presence
	w.token, w.block = uint64(claim.Token), claim.Block
	s.changed = true
	return result, nil
}

func (s *step) renew(claim *driver.Claim) (driver.Result, error) {
	h := s.holder(claim.Owner)
	if h == nil {
		s.pass()
		return driver.Result{State: driver.Lost}, nil
	}
	result := driver.Result{State: driver.Held}
	if claim.Block > 0 {
		token, err := s.draw(uint64(claim.Token), claim.Block)
		if err != nil {
			return driver.Result{}, err
		}
		h.token, h.block = token, claim.Block
		result.Token = driver.Token(token)
	}
	h.member = s.me
	h.until = s.now + min(claim.TTL, maxTTL)
	h.shared = h.shared || claim.Shared
	s.changed = true
	s.pass()
	result.Waiting = claim.Block > 0 && s.next() != nil
	return result, nil
}

func (s *step) release(claim *driver.Claim) driver.Result {
	result := driver.Result{State: driver.Lost}
	if h := s.holder(claim.Owner); h != nil {
		s.leave(h)
		s.changed = true
		result.State = driver.Held
	} else if i := s.find(claim.Owner); i >= 0 {
		s.remove(i)
		s.changed = true
		result.State = driver.Busy
	}
	s.pass()
	return result
}

// tidy removes all dead waiters and hands the key over.
func (s *step) tidy() {
	s.drop(func(w *party) bool { return !s.lives(w.member) })
	s.pass()
}

// forget removes our own waiters.
func (s *step) forget() {
	s.drop(func(w *party) bool { return w.member == s.me })
	s.pass()
}

// behind returns the members, without ourselves, that waiters of ours wait right behind: the first
// waiter behind all holders.
func (s *step) behind() []memberID {
	var parties []*party
	ahead := s.holders
	for i, w := range s.queue {
		if w.member == s.me {
			parties = append(parties, ahead...)
		}
		ahead = s.queue[i : i+1]
	}
	return s.others(parties)
}

// concerned returns the members, without ourselves, that have to look at the key: those that it was
// handed to, and those whose waiters now wait behind other parties.
func (s *step) concerned() []memberID {
	parties := s.passed
	for _, w := range s.queue {
		if w.disturbed {
			parties = append(parties, w)
		}
	}
	return s.others(parties)
}

func (s *step) others(parties []*party) (members []memberID) {
	for _, p := range parties {
		if p.member != s.me && !slices.Contains(members, p.member) {
			members = append(members, p.member)
		}
	}
	return members
}
