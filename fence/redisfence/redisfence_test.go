package redisfence_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
)

// The module redisclients, which has clients, shows what real servers do.

func TestWhatAScriptMayAnswer(t *testing.T) {
	for _, c := range []struct {
		name  string
		reply any
		err   error
		want  error // nil: a success
		text  string
	}{
		{"accepted", []any{"OK", "x"}, nil, nil, ""},
		{"stale", []any{"STALE", "9"}, nil, fence.ErrStale, "the newest is 9"},
		{"a token that is none", []any{"BROKEN", "x"}, nil, fence.ErrUnavailable, `"x"`},
		{"no list", "OK", nil, fence.ErrUnknown, "not that of the script"},
		{"nothing", nil, nil, fence.ErrUnknown, "not that of the script"},
		{"too few", []any{"OK"}, nil, fence.ErrUnknown, "not that of the script"},
		{"another word", []any{"YES", "x"}, nil, fence.ErrUnknown, "not that of the script"},
		{"the connection broke", nil, errors.New("EOF"), fence.ErrUnknown, "EOF"},
		{"the context ended", nil, context.DeadlineExceeded, context.DeadlineExceeded, "unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			guard := redisfence.Guard{Eval: func(context.Context, string, []string, []any) (any,
				error) {
				return c.reply, c.err
			}}
			replies, err := guard.Do(t.Context(), "r", 5, redisfence.Command{"GET", "k"})
			if c.want == nil {
				if err != nil || !slices.Equal(replies, []any{"x"}) {
					t.Errorf("Do = %v, %v", replies, err)
				}
				return
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) ||
				!strings.Contains(err.Error(), `"r"`) {
				t.Errorf("Do = %v; want %v, %q and the resource", err, c.want, c.text)
			}
		})
	}
}

func TestNothingIsSent(t *testing.T) {
	guard := redisfence.Guard{Eval: func(context.Context, string, []string, []any) (any, error) {
		t.Error("a script is run")
		return nil, nil
	}}
	why := errors.New("why")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := guard.Do(ended, "r", 1); !errors.Is(err, why) ||
		!errors.Is(err, context.Canceled) || errors.Is(err, fence.ErrUnknown) {
		t.Errorf("Do with a context that has ended = %v; want its error and cause", err)
	}
	if _, err := guard.Do(t.Context(), "r", 0); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("Do with token 0 = %v; want ErrInvalid", err)
	}
	if _, err := guard.Do(t.Context(), "", 1); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("Do without a name = %v; want ErrInvalid", err)
	}
}

func TestStrings(t *testing.T) {
	got := redisfence.Strings([]any{"a", []byte("b\x00"), 7, int64(-1), fence.Token(9), 1.5, true,
		nil, json.RawMessage("{}")})
	if want := []string{"a", "b\x00", "7", "-1", "9", "1.5", "true", "", "{}"}; !slices.Equal(got,
		want) {
		t.Errorf("Strings = %q; want %q", got, want)
	}
}
