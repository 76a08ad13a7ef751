package s3fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/fence"
)

// maxWrites is how often a write is sent, and maxLooks how often the store is asked what is there.
// Each further write, and each look in vain, means that somebody else has written.
const maxWrites, maxLooks = 16, 64

// firstPause and lastPause bound the pauses before a write is sent again.
const firstPause, lastPause = 5 * time.Millisecond, 500 * time.Millisecond

// write is one call of Put.
type write struct {
	Guard
	key     string
	token   fence.Token
	content func(stamp string) ([]byte, error)
	set     []func(*s3.PutObjectInput)
	begin   string // of its stamps

	sent    int   // how often a write was sent
	last    error // why the last write did not end the call
	unknown error // why it is not known what became of a write; nil if that is known of all
}

func (g Guard) newWrite(key string, token fence.Token,
	content func(stamp string) ([]byte, error), set []func(*s3.PutObjectInput)) *write {
	return &write{Guard: g, key: key, token: token, content: content, set: set,
		begin: newStamp(token), last: errRestless}
}

// version is what a look at the store shows. Without an object its ETag is empty.
type version struct {
	etag, stamp string
	token       fence.Token
}

// run looks and writes until a look or a write has decided, or the time is over. Two looks fit into
// the time, and after a write that was sent there is still a look.
func (w *write) run(ctx context.Context) error {
	var before version
	begun := time.Now()
	for range maxLooks {
		now, err := w.look(ctx)
		switch {
		case err != nil:
			return w.failed(ctx, fence.ErrUnavailable, "look at the object", err)
		case w.wrote(now):
			return nil // a write whose answer did not come
		case now.token > w.token:
			return w.stale(now.token)
		case w.sent == maxWrites || time.Since(begun) >= 2*w.timeout():
			return w.failed(ctx, fence.ErrUnavailable, "give up", w.last)
		case now.etag != before.etag:
			before = now // its metadata may be those of an earlier version
			continue
		}
		if again, err := w.put(ctx, now.etag); !again {
			return err
		}
		w.pause(ctx)
	}
	return w.failed(ctx, fence.ErrUnavailable, "give up", w.last)
}

var errRestless = errors.New("each look shows another version of the object")

// look asks the store what is there.
func (w *write) look(ctx context.Context) (version, error) {
	if err := ended(ctx); err != nil {
		return version{}, err
	}
	ctx, cancel := w.limit(ctx)
	defer cancel()
	out, err := w.Client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &w.Bucket, Key: &w.key})
	if status(err) == http.StatusNotFound {
		return version{}, nil
	}
	if err != nil {
		return version{}, err
	}
	v := version{etag: aws.ToString(out.ETag), stamp: out.Metadata[MetadataKey]}
	if v.etag == "" {
		return version{}, errNoETag
	}
	if v.stamp == "" {
		return v, nil // it was never written by a guard
	}
	var ok bool
	if v.token, ok = parseStamp(v.stamp); !ok {
		return version{}, fmt.Errorf("its %s is %.80q; want a token and a hyphen first",
			MetadataKey, v.stamp)
	}
	return v, nil
}

// put sends a write that the store executes only if the object has the ETag, or if there is none.
// again says that the store has to be looked at.
func (w *write) put(ctx context.Context, etag string) (again bool, err error) {
	in, err := w.request(etag)
	if err != nil {
		return false, w.because(nil, "make the content", err)
	}
	switch err := w.send(ctx, in); outcomeOf(err) {
	case refused:
		if now, look := w.look(ctx); look == nil && w.wrote(now) {
			w.unknown = errWritten
		}
		return false, w.failed(ctx, fence.ErrUnavailable, "the store refuses", err)
	case overtaken:
		w.last = err
		return true, nil
	case unknown:
		w.last, w.unknown = err, err
		return true, nil
	}
	return false, nil
}

// errWritten is not the case of an answer that did not come. Gateways write, and then fail to do
// what else the request asks for, such as a legal hold.
var errWritten = errors.New("the object is written, and the store says it refuses")

// wrote reports whether the version is one of these writes.
func (w *write) wrote(v version) bool { return strings.HasPrefix(v.stamp, w.begin) }

// send sends a write once. If a write whose answer was lost were repeated, the store could refuse
// the second one because the first was executed, and others might write before anybody sees that.
func (w *write) send(ctx context.Context, in *s3.PutObjectInput) error {
	ctx, cancel := w.limit(ctx)
	defer cancel()
	w.sent++
	out, err := w.Client.PutObject(ctx, in, func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
	if err == nil && aws.ToString(out.ETag) == "" {
		return errNoETag
	}
	return err
}

// errNoETag is an answer that may be that of somebody else, such as a proxy.
var errNoETag = errors.New("the answer has no ETag")

// request makes the request of the next write.
func (w *write) request(etag string) (*s3.PutObjectInput, error) {
	stamp := w.begin + strconv.Itoa(w.sent)
	body, err := w.content(stamp)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(body, []byte(stamp)) {
		return nil, fmt.Errorf("%w: the content has %d bytes, and not the stamp %s among them",
			fence.ErrInvalid, len(body), stamp)
	}
	in := new(s3.PutObjectInput)
	for _, set := range w.set {
		set(in)
	}
	in.Bucket, in.Key, in.Body = &w.Bucket, &w.key, bytes.NewReader(body)
	in.ContentLength, in.WriteOffsetBytes = nil, nil // of the body, and whole
	in.IfMatch, in.IfNoneMatch = &etag, nil
	if etag == "" {
		in.IfMatch, in.IfNoneMatch = nil, aws.String("*")
	}
	in.Metadata = withStamp(in.Metadata, stamp)
	return in, nil
}

// withStamp returns a new map, because set may give the same map to every request. The client does
// not tell names apart by their case, so withStamp leaves out the stamp's name in any other case.
func withStamp(callers map[string]string, stamp string) map[string]string {
	metadata := map[string]string{MetadataKey: stamp}
	for name, value := range callers {
		if !strings.EqualFold(name, MetadataKey) {
			metadata[name] = value
		}
	}
	return metadata
}

// pause lets others finish. It takes longer the more often a write was sent, and ends with the
// context.
func (w *write) pause(ctx context.Context) {
	longest := min(firstPause<<w.sent, lastPause)
	timer := time.NewTimer(longest/2 + rand.N(longest/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// stale returns the error for a larger token that was seen.
func (w *write) stale(newest fence.Token) error {
	if w.unknown != nil {
		return w.unknownBecause(fmt.Errorf("token %d was accepted since", newest))
	}
	return &fence.StaleError{Resource: w.key, Token: w.token, Newest: newest}
}

// failed is because, with the context's error instead if the context has ended.
func (w *write) failed(ctx context.Context, kind error, doing string, err error) error {
	end := ended(ctx)
	switch {
	case end != nil:
		err, kind = end, nil
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer in time: %v", err) // not the caller's context
	}
	return w.because(kind, doing, err)
}

// because returns the error of a call that ends while doing something. If it is not known what
// became of a write, the error says so. Otherwise it is of that kind, or of the kind of err if kind
// is nil.
func (w *write) because(kind error, doing string, err error) error {
	if w.unknown != nil {
		return w.unknownBecause(fmt.Errorf("%s: %w", doing, err))
	}
	if kind == nil {
		return fmt.Errorf("fence: write to %q: %s: %w", w.key, doing, err)
	}
	return fmt.Errorf("fence: write to %q: %w: %s: %w", w.key, kind, doing, err)
}

// unknownBecause returns the error that says that it is not known what became of a write, and why
// that was not found out.
func (w *write) unknownBecause(err error) error {
	return fmt.Errorf("fence: write to %q: %w: %v; then: %w", w.key, fence.ErrUnknown, w.unknown,
		err)
}
