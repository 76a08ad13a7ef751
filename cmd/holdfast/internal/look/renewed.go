package look

import (
	"context"
	"slices"
	"time"
)

// Renewed says whether a lease was renewed between two looks at it.
type Renewed string

const (
	// NotKnown: nobody has looked twice, or not for long enough; the backend does not tell what
	// remains of a lease; or the holder has changed.
	NotKnown Renewed = ""

	// Yes: the lease ends later than it did.
	Yes Renewed = "yes"

	// No: the lease ends when it did, though a holder of Holdfast would have renewed it. Such a
	// holder renews when a third of the TTL is over, so in half of what remained at the first look.
	No Renewed = "no"
)

// Renewed says whether the lock is renewed: Yes if one of those who have it renews its lease, and
// No if none of them does, so that it is free when its last lease ends.
func (k Key) Renewed() Renewed {
	renewed := No
	for _, p := range k.Holders {
		switch p.Renewed {
		case Yes:
			return Yes
		case NotKnown:
			renewed = NotKnown
		}
	}
	if len(k.Holders) == 0 {
		return NotKnown
	}
	return renewed
}

// blur is how far the ends of one lease may lie apart by two looks at it: a backend may keep
// seconds only, and the nodes of a set their own time.
const blur = time.Second

// lookAgain looks at keys after a while once more, and notes which leases were renewed. Keys that
// are free by then are left out.
func (v *View) lookAgain(ctx context.Context, before []Key) (keys []Key, err error) {
	if len(before) == 0 {
		return nil, nil
	}
	pause := time.NewTimer(v.Again)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-pause.C:
	}
	names := make([]string, len(before))
	for i, k := range before {
		names[i] = k.Full
	}
	_, err = v.each(ctx, names, func(i int, k Key) (more bool) {
		if !k.Free() {
			k.noteRenewals(before[i])
			keys = append(keys, k)
		}
		return true
	})
	return keys, err
}

// noteRenewals notes which leases were renewed since the key was as it was before.
func (k *Key) noteRenewals(before Key) {
	for i := range k.Holders {
		p := &k.Holders[i]
		j := slices.IndexFunc(before.Holders, func(q Party) bool { return q.Value == p.Value })
		if j < 0 || p.Cut || p.Lease <= 0 || before.Holders[j].Lease <= 0 {
			continue
		}
		lease := before.Holders[j].Lease
		later := k.asked.Add(p.Lease).Sub(before.answered.Add(lease)) // by so much, at least
		atMost := k.answered.Add(p.Lease).Sub(before.asked.Add(lease))
		watched := k.asked.Sub(before.answered)
		switch {
		case later > blur:
			p.Renewed = Yes
		// A renewal moves the end by a third of the TTL. If that is not much more than the blur,
		// nothing is known.
		case atMost <= blur && lease/3 > 2*blur && watched > lease/2+blur && !p.Foreign():
			p.Renewed = No
		}
	}
}
