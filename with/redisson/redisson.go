package withredisson

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/goredishold"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// Backend keeps locks in Redis as Redisson's RLock does. It implements driver.Backend and
// driver.Notifier, and is safe for concurrent use.
type Backend struct {
	redis  *goredishold.Backend
	client *redis.Client
	ears   *ears
}

var _ interface {
	driver.Backend
	driver.Notifier
} = (*Backend)(nil)

// New returns a Backend over client: one server, or a primary behind Sentinels. It does not
// connect, and its Close leaves the client open. It fails with ErrInvalid if client is nil, or has
// an address with an '@': a URL is for redis.ParseURL.
func New(client *redis.Client) (*Backend, error) {
	ordered, err := goredishold.New(client)
	if err != nil {
		return nil, fmt.Errorf("withredisson: %w", err)
	}
	return &Backend{redis: ordered, client: client, ears: newEars(client)}, nil
}

// Close gives up the subscription and ends calls that are under way. Keys that are held stay held
// until their TTLs are over. Later calls fail with ErrUnavailable. Closing twice is safe. The error
// is always nil.
func (b *Backend) Close() error {
	b.ears.close()
	return b.redis.Close()
}

// Notify calls f with a Freed notice when a lock that a claim of this Backend waits for may be
// free, until stop is called. f must not block, and must call neither the Backend nor stop.
func (b *Backend) Notify(f func(driver.Notice)) (stop func()) { return b.ears.notify(f) }

const (
	// maxExact bounds the integers that Lua keeps exact.
	maxExact = 1 << 53
)

// validate checks what the kernel promises of a claim.
func validate(c driver.Claim) error {
	switch {
	case len(c.Key) == 0 || len(c.Key) > driver.MaxKeyLen:
		return invalid("key of %d bytes: must have 1 to %d", len(c.Key), driver.MaxKeyLen)
	case protocol.Reserved(c.Key):
		return invalid("key %.40q is reserved: use one that does not begin with %q", c.Key,
			protocol.Namespace)
	case c.Owner == "" || c.Owner == mode:
		return invalid("owner value %q: must have 1 byte or more, and not be %q", c.Owner, mode)
	case c.TTL < time.Millisecond:
		return invalid("TTL %v: must be at least %v", c.TTL, time.Millisecond)
	case c.Token >= maxExact || c.Block >= maxExact || uint64(c.Token)+c.Block >= maxExact:
		return invalid("token %d with block %d: must be less than 2^53", c.Token, c.Block)
	}
	return nil
}

// mode is the field that a read-write lock of Redisson has beside its holders.
const mode = "mode"

func invalid(format string, args ...any) error {
	return &driver.Error{Invalid: true, Err: fmt.Errorf("withredisson: "+format, args...)}
}

// names are the keys and the channel that belong to one lock.
type names struct{ lock, fence, channel string }

func namesOf(key string) names {
	return names{key, protocol.KeysOf(key).Fence, channelOf(key)}
}

// channelOf is the channel on which Redisson tells that a lock was released.
func channelOf(key string) string {
	if strings.Contains(key, "{") {
		return "redisson_lock__channel:" + key
	}
	return "redisson_lock__channel:{" + key + "}"
}

// Acquire asks once for the claim, as driver.Backend describes. There is no queue: a busy claim
// leaves no trace, and with Queue set it is told when the key may be free (see Notify). A claim
// that wants to share the key gets it alone.
//
// Acquire fails with ErrInvalid for a claim that is not allowed, with ErrUnknown if the answer did
// not come, and otherwise with ErrUnavailable. That is permanent if the key is no lock.
func (b *Backend) Acquire(ctx context.Context, c driver.Claim) (driver.Result, error) {
	if err := validate(c); err != nil {
		return driver.Result{}, err
	}
	n := namesOf(c.Key)
	reply, err := b.redis.EvalNumbered(ctx, acquireScript(), c.Key, c.Owner,
		[]string{n.lock, n.fence},
		[]string{milliseconds(c.TTL), number(max(1, uint64(c.Token))), number(max(1, c.Block))})
	if err != nil {
		return driver.Result{}, err
	}
	switch {
	case reply.Kind == protocol.Integer && reply.Int > 0:
		b.ears.leave(c.Key, c.Owner)
		if reply.Int >= maxExact {
			return driver.Result{}, b.exhausted(ctx, c)
		}
		return driver.Result{State: driver.Held, Token: driver.Token(reply.Int)}, nil
	case reply.Kind == protocol.List && len(reply.List) == 2:
		if c.Queue {
			b.ears.listen(c.Key, c.Owner)
		}
		return driver.Result{State: driver.Busy, Holder: reply.List[0].Str,
			ExpiresIn: time.Duration(max(0, reply.List[1].Int)) * time.Millisecond}, nil
	}
	return driver.Result{}, strange("acquire", reply)
}

// exhausted gives back a lock whose token is too large.
func (b *Backend) exhausted(ctx context.Context, c driver.Claim) error {
	_, err := b.Release(ctx, c)
	return &driver.Error{Maybe: err != nil, Permanent: true,
		Err: fmt.Errorf("the tokens of %.40q have reached 2^53: lower the score in %s", c.Key,
			namesOf(c.Key).fence)}
}

// Release frees the key, as driver.Backend describes, and notifies waiters, also those of Redisson.
// It fails with ErrUnknown if the answer did not come, and otherwise with ErrUnavailable.
func (b *Backend) Release(ctx context.Context, c driver.Claim) (driver.Result, error) {
	if err := validate(driver.Claim{Key: c.Key, Owner: c.Owner, TTL: time.Minute}); err != nil {
		return driver.Result{}, err
	}
	b.ears.leave(c.Key, c.Owner)
	n := namesOf(c.Key)
	reply, err := b.redis.EvalNumbered(ctx, releaseScript(), c.Key, c.Owner,
		[]string{n.lock, n.channel}, nil)
	if err != nil {
		return driver.Result{}, err
	}
	switch {
	case reply.Kind == protocol.Integer && reply.Int == 1:
		return driver.Result{State: driver.Held}, nil
	case reply.Kind == protocol.Integer && reply.Int == 0:
		return driver.Result{State: driver.Lost}, nil
	}
	return driver.Result{}, strange("release", reply)
}

// batch is how many locks one run of a script renews. The server serves nobody else meanwhile.
const batch = 100

// Renew extends each claim that still holds its key, as driver.Backend describes, a hundred with
// one request. Result.Waiting says that somebody else listens for the release of the key, as
// waiters for an RLock do. ctx bounds the call. Renew fails with ErrUnknown or ErrUnavailable if
// one request was enough for all claims. Otherwise the error of a claim is in its result; a claim
// that is not allowed has ErrInvalid there.
func (b *Backend) Renew(ctx context.Context, claims []driver.Claim) ([]driver.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, &driver.Error{Err: err}
	}
	results := make([]driver.Result, len(claims))
	var valid []int
	for i, c := range claims {
		if results[i].Err = validate(c); results[i].Err == nil {
			valid = append(valid, i)
		}
	}
	if len(valid) == len(claims) && len(claims) > 0 && len(claims) <= batch {
		if err := b.renew(ctx, claims, valid, results); err != nil {
			return nil, err
		}
		return results, nil
	}
	var wait sync.WaitGroup
	for len(valid) > 0 {
		part := valid[:min(batch, len(valid))]
		valid = valid[len(part):]
		wait.Go(func() { b.renew(ctx, claims, part, results) })
	}
	wait.Wait()
	return results, nil
}

// renew renews those claims with one request, and notes their results. Its error is that of all of
// them.
func (b *Backend) renew(ctx context.Context, claims []driver.Claim, part []int,
	results []driver.Result) error {
	keys, args := make([]string, 0, 3*len(part)), make([]string, 0, 5*len(part))
	for _, i := range part {
		c, n := claims[i], namesOf(claims[i].Key)
		keys = append(keys, n.lock, n.fence, n.channel)
		args = append(args, c.Owner, milliseconds(c.TTL), number(max(1, uint64(c.Token))),
			number(c.Block), strconv.Itoa(b.ears.own(c.Key)))
	}
	reply, err := b.redis.Eval(ctx, renewScript(), claims[part[0]].Key, keys, args)
	if err == nil && (reply.Kind != protocol.List || len(reply.List) != len(part)) {
		err = strange("renew", reply)
	}
	for at, i := range part {
		if err != nil {
			results[i].Err = err
			continue
		}
		results[i] = renewed(claims[i], reply.List[at])
	}
	return err
}

// renewed is the result of one claim's renewal.
func renewed(c driver.Claim, reply protocol.Reply) driver.Result {
	if len(reply.List) != 2 {
		return driver.Result{Err: strange("renew", reply)}
	}
	token, waiting := reply.List[0].Int, reply.List[1].Int
	switch {
	case token == 0:
		return driver.Result{State: driver.Lost}
	case c.Block == 0:
		return driver.Result{State: driver.Held}
	case token+int64(c.Block) >= maxExact:
		return driver.Result{Err: &driver.Error{Maybe: true, Permanent: true,
			Err: fmt.Errorf("the tokens of %.40q have reached 2^53", c.Key)}}
	}
	return driver.Result{State: driver.Held, Token: driver.Token(token), Waiting: waiting == 1}
}

// strange is the error for a reply that no script of ours gives.
func strange(what string, reply protocol.Reply) error {
	return &driver.Error{Maybe: true, Err: fmt.Errorf(
		"withredisson: unexpected reply to %s: kind %d, %.40q", what, reply.Kind, reply.Str)}
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// milliseconds rounds up, because a lease must not end before its holder believes that it does.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}
