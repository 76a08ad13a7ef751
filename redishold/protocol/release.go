package protocol

import (
	"context"
	"strconv"

	"github.com/holdfast-go/holdfast/driver"
)

// Release frees the key or leaves its queue, as [driver.Backend] describes. ctx bounds the call,
// not its effect. It fails with ErrUnknown if the release may have taken effect, and otherwise with
// ErrUnavailable.
func (b *Backend) Release(ctx context.Context, claim driver.Claim) (driver.Result, error) {
	doubtful := uint64(0)
	if !b.transport.Ordered() {
		doubtful = b.doubts.of(claim.Owner)
	}
	result, err := b.release(ctx, claim, doubtful)
	if doubtful > 0 && err == nil {
		b.doubts.forget(claim.Owner, doubtful)
	}
	return result, err
}

// release sends one release. If last is not 0, the server refuses requests of the acquisition up to
// that number that arrive later.
func (b *Backend) release(ctx context.Context, claim driver.Claim,
	last uint64) (driver.Result, error) {
	// TTL and tokens do not matter to a release.
	if err := validate(&driver.Claim{Key: claim.Key, Owner: claim.Owner,
		TTL: Presence}); err != nil {
		return driver.Result{}, err
	}
	keys := KeysOf(claim.Key)
	space := scratches.Get().(*scratch)
	defer space.free()
	command := Command(space.args[:0])
	if last > 0 {
		command = releaseScript().evalsha(command, "6")
		command = append(command, keys.Lock, keys.Queue, keys.Waiters, keys.Fence, keys.Readers,
			endedKey(keys.Slot, claim.Owner),
			claim.Owner, milliseconds(memory), strconv.FormatUint(last, 10))
	} else {
		command = releaseScript().evalsha(command, "5")
		command = append(command, keys.Lock, keys.Queue, keys.Waiters, keys.Fence, keys.Readers,
			claim.Owner)
	}
	reply, err := b.run(ctx, &call{script: releaseScript(), slot: keys.Slot, command: command,
		effect: true, patient: true})
	if err != nil {
		return driver.Result{}, b.whichKey(ctx, keys, err)
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
