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
	if b.transport.Ordered() {
		result, _, err := b.release(ctx, &claim, 0, 0)
		return result, err
	}
	number, late := b.doubts.next(claim.Owner)
	result, told, err := b.release(ctx, &claim, number, late)
	if told || err != nil {
		b.doubts.returned(claim.Owner, number, late, err)
	}
	return result, err
}

// untold is added to the reply of a server that could not remember which requests are late.
const untold = 4

// release sends one release, which has a number if the Transport is not ordered (see doubts). It
// reports whether the server was told which requests are late, if any is.
func (b *Backend) release(ctx context.Context, claim *driver.Claim, number, late uint64) (
	result driver.Result, told bool, err error) {
	keys := KeysOf(claim.Key)
	space := scratches.Get().(*scratch)
	defer space.free()
	command := Command(space.args[:0])
	if number > 0 {
		command = releaseScript().evalsha(command, "6")
		command = append(command, keys.Lock, keys.Queue, keys.Waiters, keys.Fence, keys.Readers,
			lateKey(keys.Slot, claim.Owner), claim.Owner)
		command = b.doubts.numbered(command, number, late)
	} else {
		command = releaseScript().evalsha(command, "5")
		command = append(command, keys.Lock, keys.Queue, keys.Waiters, keys.Fence, keys.Readers,
			claim.Owner)
	}
	reply, err := b.run(ctx, &call{script: releaseScript(), slot: keys.Slot, command: command,
		effect: true, patient: true})
	if err != nil {
		return result, false, b.whichKey(ctx, keys, err)
	}
	told = reply.Int < untold
	if !told {
		reply.Int -= untold
	}
	if reply.Kind == Integer {
		switch reply.Int {
		case 0:
			return driver.Result{State: driver.Lost}, told, nil
		case 1:
			return driver.Result{State: driver.Held}, told, nil
		case 2:
			return driver.Result{State: driver.Busy}, told, nil
		}
	}
	return result, false, strange("release", reply)
}
