package s3fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/fence"
)

// TestTheErrorOfContent: content fails with an error of its own. It may be a deadline's, and may
// come when the context has ended, too.
func TestTheErrorOfContent(t *testing.T) {
	m := new(memory)
	ctx, cancel := context.WithCancel(t.Context())
	for _, c := range []struct {
		err    error
		during func()
	}{
		{fmt.Errorf("query: %w", context.DeadlineExceeded), func() {}},
		{errors.New("cannot be encoded"), cancel},
	} {
		err := m.guard().Put(ctx, "key", 5, func(string) ([]byte, error) {
			c.during()
			return nil, c.err
		})
		if !errors.Is(err, c.err) || strings.Contains(err.Error(), "answer") {
			t.Errorf("Put whose content fails = %v; want %v", err, c.err)
		}
	}
}

// TestAnAnswerOfSomebodyElse has something in front of the store that answers writes with 200, and
// writes nothing. A store would name the ETag.
func TestAnAnswerOfSomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(memory)
		guard := m.guard()
		guard.Client = swallows{m}
		err := guard.Put(t.Context(), "key", 5, stamped("a"))
		if !errors.Is(err, fence.ErrUnknown) || !strings.Contains(err.Error(), "ETag") {
			t.Errorf("Put = %v; want ErrUnknown, since no ETag came", err)
		}
	})
}

// swallows writes nothing, and says nothing of it.
type swallows struct{ *memory }

func (swallows) PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (
	*s3.PutObjectOutput, error) {
	return new(s3.PutObjectOutput), nil
}

// TestBoundOfACall has a store that answers looks at the last moment. It answers no write, or shows
// another version each time.
func TestBoundOfACall(t *testing.T) {
	for _, restless := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := &memory{content: "foreign"}
			guard := m.guard()
			guard.Timeout = time.Second
			looks := 0
			m.head = func(context.Context) error {
				looks++
				if restless {
					m.content = fmt.Sprint("foreign", looks)
				}
				time.Sleep(guard.Timeout - 1)
				return nil
			}
			m.put = func(ctx context.Context, _ func() error) error {
				<-ctx.Done()
				return ctx.Err()
			}
			start := time.Now()
			err := guard.Put(t.Context(), "key", 5, stamped("a"))
			want := fence.ErrUnknown
			if restless {
				want = fence.ErrUnavailable
			}
			if took := time.Since(start); !errors.Is(err, want) || took > 5*guard.Timeout {
				t.Errorf("Put = %v after %v; want %v within five times the timeout", err, took,
					want)
			}
		})
	}
}

// endsLater is a context that ends when it is asked the nth time whether it has ended.
type endsLater struct {
	context.Context
	asked *int
	n     int
	end   func()
}

func (c endsLater) Err() error {
	err := c.Context.Err()
	if *c.asked++; *c.asked == c.n {
		c.end()
	}
	return err
}

func TestContextThatEndsBetweenTwoQuestions(t *testing.T) {
	why := errors.New("the lock was lost")
	for n := 1; ; n++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		asked := 0
		m := &memory{head: func(context.Context) error { return answer(403, "Forbidden") }}
		err := m.guard().Put(endsLater{ctx, &asked, n, func() { cancel(why) }}, "key", 5,
			stamped("a"))
		if errors.Is(err, why) != errors.Is(err, context.Canceled) {
			t.Errorf("Put whose context ends after question %d = %v; want Canceled, and why", n, err)
		}
		if asked < n {
			return
		}
	}
}

// TestOffset: a caller asks for an append. The object would not be what the guard has sent then.
func TestOffset(t *testing.T) {
	m := new(memory)
	if err := m.guard().Put(t.Context(), "key", 5, stamped("a"), func(in *s3.PutObjectInput) {
		in.WriteOffsetBytes = aws.Int64(3)
	}); err != nil || m.inputs[0].WriteOffsetBytes != nil {
		t.Errorf("Put = %v with the offset %v; want none", err, m.inputs[0].WriteOffsetBytes)
	}
}

// TestLooksThatDoNotTell has looks whose answers do not say what is there, so that nothing may be
// sent.
func TestLooksThatDoNotTell(t *testing.T) {
	forbidden := &memory{head: func(context.Context) error { return answer(403, "Forbidden") }}
	for name, c := range map[string]struct {
		m      *memory
		look   func(*s3.HeadObjectOutput)
		phrase string
	}{
		"forbidden": {forbidden, nil, "Forbidden"},
		"no ETag": {&memory{content: "foreign"}, func(out *s3.HeadObjectOutput) { out.ETag = nil },
			"no ETag"},
	} {
		guard := c.m.guard()
		guard.Client = bent{Client: c.m, look: c.look}
		err := guard.Put(t.Context(), "key", 5, stamped("a"))
		if !errors.Is(err, fence.ErrUnavailable) || !strings.Contains(err.Error(), c.phrase) ||
			len(c.m.inputs) != 0 {
			t.Errorf("%s: Put = %v after %d writes; want ErrUnavailable after none", name, err,
				len(c.m.inputs))
		}
	}
}

// TestContextEndsInAPause: the context ends while others write, too.
func TestContextEndsInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		m := &memory{put: func(context.Context, func() error) error {
			return answer(412, "PreconditionFailed")
		}}
		err := m.guard().Put(ctx, "key", 5, stamped("a"))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fence.ErrUnknown) ||
			time.Since(start) != time.Millisecond {
			t.Errorf("Put = %v after %v; want the context's error when it ends", err,
				time.Since(start))
		}
	})
}

// TestCheckWithoutTheAnswer: the write against a condition fails for another reason.
func TestCheckWithoutTheAnswer(t *testing.T) {
	for status, want := range map[int]error{500: fence.ErrUnknown, 501: fence.ErrUnavailable} {
		m := new(memory)
		m.put = func(_ context.Context, write func() error) error {
			if len(m.inputs) > 2 {
				return answer(status, "Failure")
			}
			return write()
		}
		if err := m.guard().Check(t.Context(), "check"); !errors.Is(err, want) {
			t.Errorf("Check of a store that answers %d = %v; want %v", status, err, want)
		}
	}
}
