package fence_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/fencetest"
)

// values are what a Register guards here.
type values struct {
	mu sync.Mutex
	m  map[string]string
}

func (v *values) set(resource, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.m == nil {
		v.m = make(map[string]string)
	}
	v.m[resource] = value
}

func (v *values) get(_ context.Context, resource string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.m[resource], nil
}

func TestRegisterConformance(t *testing.T) {
	fencetest.Run(t, fencetest.Harness{Bubble: true, NewStore: func(testing.TB) fencetest.Store {
		var register fence.Register
		var v values
		return fencetest.Store{
			Write: func(ctx context.Context, resource string, token fence.Token, value string,
				pause func()) error {
				return register.Do(ctx, resource, token, func(ctx context.Context) error {
					if pause != nil {
						pause()
					}
					if ctx.Err() != nil {
						return ctx.Err()
					}
					v.set(resource, value)
					return nil
				})
			},
			Read: v.get,
		}
	}})
}

func TestRegisterRemembersAWriteThatFailed(t *testing.T) {
	var register fence.Register
	broken := errors.New("broken")
	if err := register.Do(t.Context(), "r", 5, func(context.Context) error {
		return broken
	}); err != broken {
		t.Errorf("Do = %v; want the error of write", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of write does not reach the caller")
			}
		}()
		register.Do(t.Context(), "r", 6, func(context.Context) error { panic("broken") })
	}()
	if got := register.Newest("r"); got != 6 {
		t.Errorf("Newest = %d; want 6", got)
	}
	if err := register.Do(t.Context(), "r", 5, nil); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Do with a smaller token = %v; want ErrStale", err)
	}
	if err := register.Do(t.Context(), "r", 7, nil); err != nil {
		t.Errorf("Do after a panic = %v", err)
	}
}

func TestRegisterWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var register fence.Register
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error)
		register.Do(t.Context(), "r", 1, func(context.Context) error {
			go func() { done <- register.Do(ctx, "r", 2, nil) }()
			synctest.Wait()
			cancel(why)
			if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, why) ||
				!strings.Contains(err.Error(), `"r"`) {
				t.Errorf("Do = %v; want the context's error and its cause, and the resource", err)
			}
			return nil
		})
		if got := register.Newest("r"); got != 1 {
			t.Errorf("Newest = %d; want 1", got)
		}
	})
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	var register fence.Register
	for _, c := range []struct {
		resource string
		token    fence.Token
		want     []string
	}{
		{"r", 0, []string{`"r"`, "is 0", "1 to 9007199254740992"}},
		{"r", math.MaxUint64, []string{`"r"`, "18446744073709551615", "1 to 9007199254740992"}},
		{"", 1, []string{"empty"}},
		{"a\x00", 1, []string{`"a\x00"`, "NUL"}},
		{strings.Repeat("b", 2000), 1, []string{"2000 bytes", "at most 1024"}},
	} {
		err := register.Do(t.Context(), c.resource, c.token, nil)
		if !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("Do(%.10q, %d) = %v; want ErrInvalid", c.resource, c.token, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("Do(%.10q, %d) = %v; want %q in it", c.resource, c.token, err, want)
			}
		}
	}
	register.Do(t.Context(), "r", 9, nil)
	err := register.Do(t.Context(), "r", 8, nil)
	var stale *fence.StaleError
	if !errors.As(err, &stale) || *stale != (fence.StaleError{Resource: "r", Token: 8, Newest: 9}) {
		t.Errorf("Do = %#v; want a StaleError with 8 and 9", err)
	}
	if want := `fence: write to "r" refused: stale token 8, the newest is 9`; err.Error() != want {
		t.Errorf("the error is %q; want %q", err, want)
	}
}
