package s3fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/fence"
)

// DefaultTimeout is the default of Guard.Timeout.
const DefaultTimeout = 30 * time.Second

// MetadataKey is the name under which an object's metadata have the stamp of its last write: the
// token in decimal digits, a hyphen, and what makes it unique. In requests it is
// x-amz-meta-fencing-stamp.
const MetadataKey = "fencing-stamp"

// Client is what a Guard needs of a client of the store. [*s3.Client] is one. A client of your own
// has to pass the options on: with them a Guard makes sure that a write is sent once.
type Client interface {
	// HeadObject returns the ETag and the metadata of the object.
	HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput,
		error)

	// PutObject writes the object if the conditions of the input hold.
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput,
		error)
}

// Guard writes objects only if the token is not older than that of the object. It may be used by
// many goroutines at once, also for one object.
type Guard struct {
	_ struct{} // keyed literals only: fields will be added

	// Client speaks to the store. Required.
	Client Client

	// Bucket has the objects. Required.
	Bucket string

	// Timeout bounds each request, so it has to be long enough to send a content. A call takes
	// three requests, or two if there is no object, and more if others write as well or an answer
	// is lost. A call begins no other write after twice the Timeout, so it ends within about four
	// times the Timeout and the time that content takes. 0 means [DefaultTimeout].
	Timeout time.Duration
}

// Put writes the object, unless a larger token was accepted for it. The key is the resource: one
// object has tokens of one lock.
//
// Put calls content for what to write. The result has to contain the given stamp as it is: digits,
// capital letters and hyphens, fewer than 64 in all. The package documentation says why, and where
// to put it. If others write at the same time, or an answer is lost, Put calls content again with
// another stamp. Each of set may change the request, for example its ContentType, and is called as
// often as content. What the guard itself sets stays: bucket, key, body, conditions, and its entry
// in the metadata.
//
// On success the object was written, and the token is the largest that was accepted. Two writers
// with the same token may overwrite each other.
//
// In these cases Put has written nothing. It fails with [*fence.StaleError] if a larger token was
// accepted, and with [fence.ErrInvalid] for a token, key or setting that is not allowed, or a
// content without its stamp. It fails with [fence.ErrUnavailable] if the store refuses the write or
// does not tell what is there, or if others with the same token write in between again and again.
// It fails with the error of content, and with the context's error if the context ends while no
// write is under way.
//
// Put fails with [fence.ErrUnknown] if a write was sent, the store did not tell what became of it,
// also because the context ended, and a look afterwards did not show it. The store may still
// execute it, unless somebody else writes before. Call Put again with the same token. Put also
// fails with ErrUnknown if the store refuses the write and a look shows that it was executed all
// the same.
func (g Guard) Put(ctx context.Context, key string, token fence.Token,
	content func(stamp string) ([]byte, error), set ...func(*s3.PutObjectInput)) error {
	if err := g.validate(key, token, content); err != nil {
		return err
	}
	return g.newWrite(key, token, content, set).run(ctx)
}

func (g Guard) validate(key string, token fence.Token,
	content func(stamp string) ([]byte, error)) error {
	if err := fence.Validate(key, token); err != nil {
		return err
	}
	switch {
	case g.Client == nil:
		return invalid(key, "Guard.Client is nil; it is required")
	case g.Bucket == "":
		return invalid(key, "Guard.Bucket is empty; it is required")
	case g.Timeout < 0:
		return invalid(key, fmt.Sprintf("Guard.Timeout is %v; it may not be negative", g.Timeout))
	case content == nil:
		return invalid(key, "there is no function for the content; it is required")
	}
	return nil
}

func invalid(key, what string) error {
	return fmt.Errorf("fence: write to %q: %w: %s", key, fence.ErrInvalid, what)
}

// limit bounds one request.
func (g Guard) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, g.timeout())
}

func (g Guard) timeout() time.Duration {
	if g.Timeout == 0 {
		return DefaultTimeout
	}
	return g.Timeout
}

// ended returns nil if the context has not ended. Otherwise it returns the context's error together
// with its cause, which may tell of a lost lock.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
