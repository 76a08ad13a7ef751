package protocol

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Release ends a hold or leaves the queue, as [driver.Backend] describes.
func (b *Backend) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	// The TTL and the tokens of a claim that is given up do not matter.
	if err := validate(&driver.Claim{Key: claim.Key, Owner: claim.Owner, TTL: Presence}); err != nil {
		return driver.Result{}, err
	}
	keys := KeysOf(claim.Key)
	space := scratches.Get().(*scratch)
	defer space.free()
	command := Command(space.args[:0])
	doubtful := !b.transport.Ordered() && b.doubts.has(claim.Owner)
	if doubtful {
		command = releaseScript.evalsha(command, "5")
		command = append(command, keys.Lock, keys.Queue, keys.Waiters, keys.Fence, endedKey(keys.Slot, claim.Owner),
			claim.Owner, milliseconds(memory))
	} else {
		command = releaseScript.evalsha(command, "4")
		command = append(command, keys.Lock, keys.Queue, keys.Waiters, keys.Fence, claim.Owner)
	}
	reply, err := b.run(ctx, &call{script: releaseScript, slot: keys.Slot, command: command, effect: true})
	if err != nil {
		return driver.Result{}, err
	}
	if doubtful {
		b.doubts.forget(claim.Owner)
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
