package protocol_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// lateIn returns which request a release or an acquisition says is late; empty if none.
func lateIn(c protocol.Command) string {
	at := 12
	if scriptName(c[1]) == "acquire" {
		at = 20
	}
	if len(c) <= at {
		return ""
	}
	return c[at]
}

// A release that was given up while an acquisition before it was under way may still arrive when
// that one has been answered, and the claim was asked for again. So the server is told of it.
func TestAnEarlierAnswerEndsNoDoubt(t *testing.T) {
	for _, takes := range []time.Duration{50 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var told []string
			l := &fakeLibrary{answer: func(c protocol.Command) protocol.Reply {
				told = append(told, lateIn(c))
				time.Sleep(takes)
				return one(c)
			}}
			b := protocol.New(protocol.Shared(l), protocol.Options{})
			go b.Acquire(t.Context(), claim())
			synctest.Wait()
			if _, err := b.Release(brief(t), claim()); !errors.Is(err, driver.ErrUnknown) {
				t.Fatalf("Release: %v", err)
			}
			time.Sleep(takes) // the acquisition is answered
			synctest.Wait()
			if r, err := b.Acquire(t.Context(), claim()); err != nil || r.State != driver.Held {
				t.Fatalf("Acquire: %v, %v", r.State, err)
			}
			synctest.Wait()
			if want := []string{"", "", "2"}; !slices.Equal(told, want) {
				t.Errorf("an acquisition takes %v: told of %q; want %q", takes, told, want)
			}
		})
	}
}
