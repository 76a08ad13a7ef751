//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

// tickAfter is the time to the next tick. It is random, so that many processes do not tick at once.
func tickAfter() time.Duration { return 30*time.Second + rand.N(30*time.Second) }

func (b *Backend) keepHouse() {
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.found:
		case <-time.After(tickAfter()):
		}
		b.tick()
	}
}

// tick does the work that does not come from a call.
func (b *Backend) tick() {
	b.endWatches()
	b.work.Lock()
	c := b.tokens.counter
	b.work.Unlock()
	b.dir.topUp(c) // on failure, the next draw that needs more reports it
	ctx, cancel := context.WithTimeout(b.ctx, tickAfter())
	defer cancel()
	b.sweep(ctx, everybody)
}

// A sweep frees the keys of dead members, and then removes their pipes. A waiter frees the key that
// it wants sooner than a sweep does. The other keys block nobody, but without sweeps their files
// would stay for ever.

const (
	// firstSweep is how long Open cleans up.
	firstSweep = time.Second

	// rollOfNewcomer is how many members Open looks at. A hundred processes that start at once must
	// not all look at each other. Of many short processes, one still happens on the dead members.
	rollOfNewcomer = 8

	everybody = math.MaxInt
)

// sweep looks at atMost members, and cleans up after the dead ones. If another process sweeps, it
// leaves the work to that one, because a hundred processes must not all look at every key. A
// Backend whose directory was replaced does not sweep: the directory that others find at the path
// is not its own, and while it swept, nobody else would.
func (b *Backend) sweep(ctx context.Context, atMost int) {
	b.work.Lock()
	gone := b.inPlace()
	b.work.Unlock()
	if gone != nil {
		return
	}
	lock, err := openFile(b.dir.members, syscall.O_RDONLY, 0)
	if err != nil {
		return
	}
	defer closeFile(lock)
	if tryFlock(lock, syscall.LOCK_EX) != nil {
		return
	}
	defer unflock(lock)
	dead := b.dir.clearWaste(b.member.id, atMost)
	if len(dead) == 0 {
		return
	}
	// The keys are listed after the members were found dead, and so after their last write.
	names, err := b.dir.keyNames()
	if err != nil {
		return
	}
	clean := true
	for _, name := range names {
		look := &job{kind: jobLook, name: name}
		if b.lanes.do(ctx, look) != nil || ctx.Err() != nil {
			return
		}
		// a damaged record names no member
		if err := look.result.Err; err != nil && !errors.Is(err, errDamaged) {
			clean = false
		}
	}
	if !clean {
		return
	}
	for _, id := range dead {
		(&member{path: b.dir.members + id.String()}).remove()
	}
}

// clearWaste looks at atMost other members and returns the dead ones. It also removes the temporary
// file of a process that died before it was a member.
func (d *directory) clearWaste(me memberID, atMost int) (dead []memberID) {
	members, err := d.roll()
	if err != nil {
		return nil
	}
	members = slices.DeleteFunc(members, func(id memberID) bool { return id == me })
	rand.Shuffle(len(members), func(i, j int) {
		members[i], members[j] = members[j], members[i]
	})
	for _, id := range members[:min(atMost, len(members))] {
		if lives, left := d.living(id); left {
			dead = append(dead, id)
		} else if !lives {
			// A process that is just joining makes its file anew.
			removeFile(d.members + id.String() + joiningSuffix)
		}
	}
	return dead
}
