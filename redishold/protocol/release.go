package protocol

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Release frees the key or leaves its queue, as [driver.Backend] describes. ctx bounds the call,
// not its effect. It fails with ErrUnknown if the release may have taken effect, and otherwise with
// ErrUnavailable.
func (b *Backend) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	// TTL and tokens do not matter to a release.
	if err := validate(&driver.Claim{Key: claim.Key, Owner: claim.Owner,
		TTL: Presence}); err != nil {
		return driver.Result{}, err
	}
	keys := KeysOf(claim.Key)
	space := scratches.Get().(*scratch)
	defer space.free()
	command := Command(space.args[:0])
	var reply Reply
	var err error
	if b.transport.Ordered() {
		command = releaseScript().evalsha(command, "5")
		command = append(command, keys.Lock, keys.Queue, keys.Waiters, keys.Fence, keys.Readers,
			claim.Owner)
		reply, err = b.release(ctx, keys, command)
	} else {
		r := b.doubts.next(claim.Owner)
		command = releaseScript().evalsha(command, "6")
		command = append(command, keys.Lock, keys.Queue, keys.Waiters, keys.Fence, keys.Readers,
			keys.late(b.doubts.client, claim.Owner), claim.Owner)
		reply, err = b.release(ctx, keys, b.doubts.numbered(command, r))
		b.doubts.released(r, &reply, err)
	}
	if err != nil {
		return driver.Result{}, err
	}
	if reply.Kind == Integer {
		switch reply.Int {
		case 0:
			return driver.Result{State: driver.Lost}, nil
		case 1:
			return driver.Result{State: driver.Held}, nil
		case 2:
			return driver.Result{State: driver.Busy}, nil
		}
	}
	return driver.Result{}, strange("release", reply)
}

// release sends one release.
func (b *Backend) release(ctx context.Context, keys Keys, command Command) (Reply, error) {
	reply, err := b.run(ctx, &call{script: releaseScript(), slot: keys.Slot, command: command,
		effect: true, patient: true})
	if err != nil {
		err = b.whichKey(ctx, keys, err)
	}
	return reply, err
}
