package s3fence_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/s3fence"
)

// stamped is a content that has the value first and the stamp on a line of its own.
func stamped(value string) func(string) ([]byte, error) {
	return func(stamp string) ([]byte, error) { return []byte(value + "\n" + stamp), nil }
}

// valueOf undoes stamped.
func valueOf(content string) string {
	value, _, _ := strings.Cut(content, "\n")
	return value
}

// answer is an error that has come from a store.
func answer(status int, code string) error {
	return &smithy.OperationError{ServiceID: "S3", OperationName: "PutObject",
		Err: &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}},
			Err:      &smithy.GenericAPIError{Code: code, Message: "the store's words"},
		}}
}

// memory is a store with one object. Its ETags are the MD5 of the content, as those of Amazon S3
// are. Other tests see what the guard does on real stores.
type memory struct {
	mu       sync.Mutex
	content  string
	metadata map[string]string
	inputs   []*s3.PutObjectInput // of all writes that came

	// What comes in place of what the store does; nil: nothing.
	head func(ctx context.Context) error
	put  func(ctx context.Context, write func() error) error
}

func (m *memory) etag() string {
	if m.content == "" {
		return ""
	}
	return fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum([]byte(m.content))))
}

func (m *memory) HeadObject(ctx context.Context, _ *s3.HeadObjectInput, _ ...func(*s3.Options)) (
	*s3.HeadObjectOutput, error) {
	if m.head != nil {
		if err := m.head(ctx); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.content == "" {
		return nil, answer(http.StatusNotFound, "NotFound")
	}
	return &s3.HeadObjectOutput{ETag: aws.String(m.etag()), Metadata: maps.Clone(m.metadata)}, nil
}

func (m *memory) PutObject(ctx context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options)) (
	*s3.PutObjectOutput, error) {
	m.mu.Lock()
	m.inputs = append(m.inputs, in)
	m.mu.Unlock()
	write := func() error { return m.write(in) }
	out := &s3.PutObjectOutput{ETag: aws.String("written")}
	if m.put != nil {
		return out, m.put(ctx, write)
	}
	return out, write()
}

func (m *memory) write(in *s3.PutObjectInput) error {
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case in.IfMatch != nil && *in.IfMatch != m.etag(), in.IfNoneMatch != nil && m.content != "":
		return answer(http.StatusPreconditionFailed, "PreconditionFailed")
	}
	m.content, m.metadata = string(body), in.Metadata
	return nil
}

func (m *memory) guard() s3fence.Guard { return s3fence.Guard{Client: m, Bucket: "bucket"} }

// bent is a client whose calls a test can disturb.
type bent struct {
	s3fence.Client
	before func(*s3.PutObjectInput)   // a write is sent
	look   func(*s3.HeadObjectOutput) // the answer to a look came
}

func (b bent) PutObject(ctx context.Context, in *s3.PutObjectInput, options ...func(*s3.Options)) (
	*s3.PutObjectOutput, error) {
	if b.before != nil {
		b.before(in)
	}
	return b.Client.PutObject(ctx, in, options...)
}

func (b bent) HeadObject(ctx context.Context, in *s3.HeadObjectInput,
	options ...func(*s3.Options)) (*s3.HeadObjectOutput, error) {
	out, err := b.Client.HeadObject(ctx, in, options...)
	if err == nil && b.look != nil {
		b.look(out)
	}
	return out, err
}

func TestWhatAnAnswerMeans(t *testing.T) {
	lost := &smithyhttp.RequestSendError{Err: io.ErrUnexpectedEOF}
	for _, c := range []struct {
		name   string
		first  error // the answer to the first write, which is not executed
		sent   int   // how many writes are sent
		want   error // nil: a success
		not    error
		phrase string
	}{
		{"a conflict is looked at again", answer(409, "ConditionalRequestConflict"), 2, nil, nil,
			""},
		{"a condition that failed, too", answer(412, "PreconditionFailed"), 2, nil, nil, ""},
		{"it was deleted meanwhile", answer(404, "NoSuchKey"), 2, nil, nil, ""},
		{"the store is busy", answer(503, "SlowDown"), 2, nil, nil, ""},
		{"the store failed", answer(500, "InternalError"), 2, nil, nil, ""},
		{"no answer", lost, 2, nil, nil, ""},
		{"no bucket", answer(404, "NoSuchBucket"), 1, fence.ErrUnavailable, fence.ErrUnknown,
			"NoSuchBucket"},
		{"forbidden", answer(403, "AccessDenied"), 1, fence.ErrUnavailable, fence.ErrUnknown,
			"the store's words"},
		{"another region", answer(301, "PermanentRedirect"), 1, fence.ErrUnavailable,
			fence.ErrUnknown, "PermanentRedirect"},
		{"no conditions", answer(501, "NotImplemented"), 1, fence.ErrUnavailable,
			fence.ErrUnknown, "NotImplemented"},
		{"no request could be made", &smithy.SerializationError{Err: io.ErrNoProgress}, 1,
			fence.ErrUnavailable, fence.ErrUnknown, io.ErrNoProgress.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := new(memory)
				m.put = func(_ context.Context, write func() error) error {
					if len(m.inputs) == 1 {
						return c.first
					}
					return write()
				}
				err := m.guard().Put(t.Context(), "key", 5, stamped("a"))
				if len(m.inputs) != c.sent {
					t.Errorf("%d writes are sent; want %d", len(m.inputs), c.sent)
				}
				if c.want == nil {
					if err != nil || valueOf(m.content) != "a" {
						t.Errorf("Put = %v; the value is %q; want it written", err, m.content)
					}
					return
				}
				if !errors.Is(err, c.want) || errors.Is(err, c.not) ||
					!strings.Contains(err.Error(), c.phrase) ||
					!strings.Contains(err.Error(), `"key"`) {
					t.Errorf("Put = %v; want %v, with the key and %q", err, c.want, c.phrase)
				}
			})
		})
	}
}

// TestNoTwoWritesHaveOneStamp sees that no stamp comes twice, in one call or in several, and that
// it looks as the doc says.
func TestNoTwoWritesHaveOneStamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, seen := new(memory), make(map[string]bool)
		conflicts := 0
		m.put = func(_ context.Context, write func() error) error {
			if conflicts++; conflicts%3 != 0 {
				return answer(409, "ConditionalRequestConflict")
			}
			return write()
		}
		content := func(stamp string) ([]byte, error) {
			const allowed = "0123456789-ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			if len(stamp) >= 64 || strings.Trim(stamp, allowed) != "" {
				t.Errorf("the stamp is %q", stamp)
			}
			if seen[stamp] {
				t.Errorf("the stamp %q comes twice", stamp)
			}
			seen[stamp] = true
			return []byte(stamp), nil
		}
		for range 3 {
			if err := m.guard().Put(t.Context(), "key", fence.MaxToken, content); err != nil {
				t.Fatal(err)
			}
		}
		if len(seen) != 9 {
			t.Errorf("%d stamps; want 9", len(seen))
		}
	})
}

// TestEndlessRace: another writer with the same token comes before every write. Pauses let others
// finish.
func TestEndlessRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(memory)
		m.put = func(_ context.Context, write func() error) error {
			m.content, m.metadata = fmt.Sprint(len(m.inputs)), map[string]string{
				s3fence.MetadataKey: "5-OTHER-0"}
			return write()
		}
		start := time.Now()
		err := m.guard().Put(t.Context(), "key", 5, stamped("a"))
		if !errors.Is(err, fence.ErrUnavailable) || errors.Is(err, fence.ErrUnknown) ||
			!strings.Contains(err.Error(), "PreconditionFailed") || len(m.inputs) != 16 {
			t.Errorf("Put among writers = %v after %d writes; want ErrUnavailable after 16",
				err, len(m.inputs))
		}
		// The pauses grow from 10 ms to half a second, each cut by half at most.
		const longest = 5630 * time.Millisecond
		if took := time.Since(start); took < longest/2 || took >= longest {
			t.Errorf("Put paused for %v; want %v to %v", took, longest/2, longest)
		}
		if m.content != "16" {
			t.Errorf("%q is written", m.content)
		}
	})
}

// TestRestlessObject: the object changes from look to look, so that no write can be sent.
func TestRestlessObject(t *testing.T) {
	m, looks := new(memory), 0
	m.head = func(context.Context) error {
		looks++
		m.content = fmt.Sprint(looks)
		return nil
	}
	err := m.guard().Put(t.Context(), "key", 5, stamped("a"))
	if !errors.Is(err, fence.ErrUnavailable) || len(m.inputs) != 0 {
		t.Errorf("Put = %v after %d looks and %d writes; want ErrUnavailable", err, looks,
			len(m.inputs))
	}
}

// TestNoAnswerInTime has a store that never answers: a look, so nothing is written; or a write,
// whose outcome is unknown.
func TestNoAnswerInTime(t *testing.T) {
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, timeout := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			want := timeout
			if want == 0 {
				want = s3fence.DefaultTimeout
			}
			m := &memory{head: silent}
			guard := m.guard()
			guard.Timeout = timeout
			start := time.Now()
			err := guard.Put(t.Context(), "key", 5, stamped("a"))
			if !errors.Is(err, fence.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) ||
				time.Since(start) != want {
				t.Errorf("Put whose look has no answer = %v after %v; want ErrUnavailable after %v",
					err, time.Since(start), want)
			}
			m.head = func(ctx context.Context) error {
				if len(m.inputs) > 0 {
					return silent(ctx)
				}
				return nil
			}
			m.put = func(ctx context.Context, write func() error) error {
				return errors.Join(write(), silent(ctx))
			}
			err = guard.Put(t.Context(), "key", 5, stamped("a"))
			if !errors.Is(err, fence.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) ||
				errors.Is(err, fence.ErrUnavailable) {
				t.Errorf("Put without an answer to its write = %v; want ErrUnknown", err)
			}
		})
	}
}

// TestContextEnds: the context ends before the look, or while a write is sent.
func TestContextEnds(t *testing.T) {
	why := errors.New("the lock was lost")
	m := new(memory)
	ctx, cancel := context.WithCancelCause(t.Context())
	m.put = func(ctx context.Context, write func() error) error {
		cancel(why)
		return errors.Join(write(), ctx.Err())
	}
	err := m.guard().Put(ctx, "key", 5, stamped("a"))
	if !errors.Is(err, fence.ErrUnknown) || !errors.Is(err, why) ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("Put whose context ends in the middle = %v; want ErrUnknown, and why", err)
	}
	m = new(memory)
	err = m.guard().Put(ctx, "key", 5, stamped("a"))
	if errors.Is(err, fence.ErrUnknown) || !errors.Is(err, why) ||
		!errors.Is(err, context.Canceled) || len(m.inputs) != 0 {
		t.Errorf("Put whose context has ended = %v; want why, and no ErrUnknown", err)
	}
}

// TestUnknownIsNotStale: a write is executed without an answer, and a newer holder overwrites it.
// Stale would mean that the call has written nothing.
func TestUnknownIsNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(memory)
		m.put = func(_ context.Context, write func() error) error {
			if err := write(); err != nil || len(m.inputs) > 1 {
				return err
			}
			if err := m.guard().Put(t.Context(), "key", 6, stamped("b")); err != nil {
				t.Error(err)
			}
			return answer(500, "InternalError")
		}
		err := m.guard().Put(t.Context(), "key", 5, stamped("a"))
		if !errors.Is(err, fence.ErrUnknown) || errors.Is(err, fence.ErrStale) ||
			!strings.Contains(err.Error(), "token 6") {
			t.Errorf("Put = %v; want ErrUnknown, and token 6 named", err)
		}
		if err := m.guard().Put(t.Context(), "key", 5, stamped("a")); !errors.Is(err,
			fence.ErrStale) || valueOf(m.content) != "b" {
			t.Errorf("Put once more = %v, and the value is %q; want ErrStale", err, m.content)
		}
	})
}

func TestWhatIsInvalid(t *testing.T) {
	m := new(memory)
	sound := m.guard()
	content := stamped("a")
	without := func(string) ([]byte, error) { return []byte("a"), nil }
	half := func(stamp string) ([]byte, error) { return []byte(stamp[1:]), nil }
	wrong := errors.New("cannot be encoded")
	failing := func(string) ([]byte, error) { return nil, wrong }
	for name, c := range map[string]struct {
		guard   s3fence.Guard
		key     string
		token   fence.Token
		content func(string) ([]byte, error)
		want    error
		phrase  string
	}{
		"token 0": {sound, "key", 0, content, fence.ErrInvalid, "allowed is 1 to"},
		"a large token": {sound, "key", fence.MaxToken + 1, content, fence.ErrInvalid,
			"9007199254740993"},
		"no key":     {sound, "", 1, content, fence.ErrInvalid, "empty"},
		"a long key": {sound, strings.Repeat("k", 1025), 1, content, fence.ErrInvalid, "1024"},
		"no client": {s3fence.Guard{Bucket: "b"}, "key", 1, content, fence.ErrInvalid,
			"Client"},
		"no bucket": {s3fence.Guard{Client: m}, "key", 1, content, fence.ErrInvalid,
			"Bucket"},
		"no content":      {sound, "key", 1, nil, fence.ErrInvalid, "function"},
		"no stamp":        {sound, "key", 1, without, fence.ErrInvalid, "1 bytes"},
		"half of a stamp": {sound, "key", 1, half, fence.ErrInvalid, "stamp"},
		"content fails":   {sound, "key", 1, failing, wrong, "encoded"},
		"negative timeout": {s3fence.Guard{Client: m, Bucket: "b", Timeout: -time.Second}, "key", 1,
			content, fence.ErrInvalid, "-1s"},
	} {
		err := c.guard.Put(t.Context(), c.key, c.token, c.content)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.phrase) {
			t.Errorf("%s: Put = %v; want %v with %q", name, err, c.want, c.phrase)
		}
	}
	if len(m.inputs) != 0 {
		t.Errorf("%d writes were sent", len(m.inputs))
	}
}

// TestStampsOfOthers has objects whose metadata were not written by a guard.
func TestStampsOfOthers(t *testing.T) {
	for _, stamp := range []string{"x", "5", "-A-0", "+5-A-0", "0-A-0", "9007199254740993-A-0",
		"18446744073709551621-A-0", "5,6-A-0"} {
		m := &memory{content: "foreign", metadata: map[string]string{s3fence.MetadataKey: stamp}}
		err := m.guard().Put(t.Context(), "key", fence.MaxToken, stamped("a"))
		if !errors.Is(err, fence.ErrUnavailable) || !strings.Contains(err.Error(), stamp) ||
			m.content != "foreign" {
			t.Errorf("Put where the stamp is %q = %v; want ErrUnavailable with it", stamp, err)
		}
	}
	m := &memory{content: "from before there was a guard"}
	if err := m.guard().Put(t.Context(), "key", 1, stamped("a")); err != nil ||
		valueOf(m.content) != "a" {
		t.Errorf("Put where no guard has written = %v", err)
	}
}

// TestTheCallersPartOfTheRequest sees that the caller's settings are sent, and the guard's stay.
func TestTheCallersPartOfTheRequest(t *testing.T) {
	m := new(memory)
	own := map[string]string{"author": "me", s3fence.MetadataKey: "9-X-0"}
	if err := m.guard().Put(t.Context(), "key", 5, stamped("a"), func(in *s3.PutObjectInput) {
		in.ContentType, in.Metadata = aws.String("text/plain"), own
		in.Key, in.Body = aws.String("other"), bytes.NewReader(nil)
		in.IfMatch = aws.String("*")
	}); err != nil {
		t.Fatal(err)
	}
	if err := m.guard().Put(t.Context(), "key", 5, stamped("a"), func(in *s3.PutObjectInput) {
		in.IfNoneMatch = aws.String("*")
	}); err != nil {
		t.Errorf("Put with a condition of the caller = %v", err)
	}
	in := m.inputs[0]
	if *in.ContentType != "text/plain" || *in.Key != "key" || *in.Bucket != "bucket" ||
		in.IfMatch != nil || *in.IfNoneMatch != "*" || in.Metadata["author"] != "me" ||
		!strings.HasPrefix(in.Metadata[s3fence.MetadataKey], "5-") || valueOf(m.content) != "a" {
		t.Errorf("the request is %+v", in)
	}
	if own[s3fence.MetadataKey] != "9-X-0" {
		t.Errorf("the caller's map is changed: %v", own)
	}
}

// TestCheck has stores that do not do what a guard rests on.
func TestCheck(t *testing.T) {
	m := new(memory)
	for range 2 {
		if err := m.guard().Check(t.Context(), "check"); err != nil {
			t.Errorf("Check of a sound store = %v", err)
		}
	}
	for name, c := range map[string]struct {
		client s3fence.Client
		want   error
		phrase string
	}{
		"no If-Match": {bent{Client: new(memory), before: func(in *s3.PutObjectInput) {
			in.IfMatch = nil
		}}, fence.ErrInvalid, "If-Match"},
		"no If-None-Match": {bent{Client: new(memory), before: func(in *s3.PutObjectInput) {
			in.IfNoneMatch = nil
		}}, fence.ErrInvalid, "If-None-Match"},
		"no metadata": {bent{Client: new(memory), before: func(in *s3.PutObjectInput) {
			in.Metadata = nil
		}}, fence.ErrInvalid, "metadata"},
		"one ETag": {bent{Client: new(memory), before: func(in *s3.PutObjectInput) {
			in.Body = strings.NewReader("always the same")
		}}, fence.ErrInvalid, "two contents"},
		"it does not know": {&memory{put: func(context.Context, func() error) error {
			return answer(501, "NotImplemented")
		}}, fence.ErrUnavailable, "NotImplemented"},
	} {
		err := s3fence.Guard{Client: c.client, Bucket: "b"}.Check(t.Context(), "check")
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.phrase) {
			t.Errorf("%s: Check = %v; want %v with %q", name, err, c.want, c.phrase)
		}
	}
	if err := m.guard().Check(t.Context(), ""); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("Check without a key = %v; want ErrInvalid", err)
	}
}

// TestACompressedContent has the stamp where the example has it.
func TestACompressedContent(t *testing.T) {
	m := new(memory)
	if err := m.guard().Put(t.Context(), "key", 5, func(stamp string) ([]byte, error) {
		var file bytes.Buffer
		w := gzip.NewWriter(&file)
		w.Comment = stamp
		_, err := w.Write([]byte("a"))
		err = errors.Join(err, w.Close())
		return file.Bytes(), err
	}); err != nil {
		t.Error(err)
	}
}
