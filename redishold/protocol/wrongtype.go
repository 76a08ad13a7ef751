package protocol

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// whichKey returns err. If err says that a key is of another type, whichKey says which key that is,
// if the server tells: the server's own words do not, and the key may be one beside the lock, of
// which users know nothing.
func (b *Backend) whichKey(ctx context.Context, keys Keys, err error) error {
	e := (*driver.Error)(nil)
	if !IsServerError(err, "WRONGTYPE") || !errors.As(err, &e) {
		return err
	}
	all := [...]struct{ key, want string }{{keys.Lock, "string"}, {keys.Queue, "zset"},
		{keys.Waiters, "hash"}, {keys.Readers, "zset"}, {keys.Fence, "zset"}}
	var commands []Command
	for _, k := range all {
		commands = append(commands, Command{"TYPE", k.key})
	}
	types, failure := b.look(ctx, keys.Slot, len(commands), commands)
	if failure != nil {
		return err
	}
	for i, k := range all {
		is := types[i].Str
		if is == k.want || is == "none" {
			continue
		}
		text := fmt.Sprintf("the key %.200q is a %s, and not a %s of Holdfast", k.key, is, k.want)
		if k.key == keys.Lock {
			text = "the key is a " + is + ", and no lock"
		}
		if k.key == keys.Lock && is == "hash" {
			text += " of Holdfast" // it may be one of Redisson
		}
		named := *e
		named.Err = ServerError("WRONGTYPE " + text)
		return &named
	}
	return err // it has changed meanwhile
}
