package election

import (
	"context"
	"errors"
	"iter"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Leader says who leads, as the backend shows it. The zero Leader means that nobody leads.
type Leader struct {
	// Holder is the candidate. Its label has identity and payload.
	Holder holdfast.Holder

	// Token is the number of the first term on this lease; 0 if the backend does not show it, as
	// Redis does not.
	Token holdfast.Token
}

// Exists reports whether anybody leads.
func (l Leader) Exists() bool { return l.Holder.Value != "" }

// Identity returns what the leader calls itself: see [WithIdentity]. It is empty if the leader has
// none, if nobody leads, or if the lock is another library's.
func (l Leader) Identity() string {
	identity, _ := parseLabel(l.Holder.Label)
	return identity
}

// Payload returns what the leader announces, or nothing: see [WithPayload].
func (l Leader) Payload() string {
	_, payload := parseLabel(l.Holder.Label)
	return payload
}

// String returns identity and payload, process and host, or "nobody".
func (l Leader) String() string {
	if !l.Exists() {
		return "nobody"
	}
	return l.Holder.String()
}

// Leader asks the backend who leads. The answer may be outdated when Leader returns, and a leader
// whose process has died is shown until its lease is over: never decide by it whether to lead. It
// fails as holdfast.Locker.Inspect does, with holdfast.ErrInvalid if the backend cannot be
// inspected.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	entry, err := e.locker.Inspect(ctx, e.name)
	if err != nil {
		return Leader{}, err
	}
	return Leader{driver.ParseOwner(entry.Holder.Owner), entry.Holder.Token}, nil
}

// Observe yields who leads, and then every change, until ctx ends. It asks at once, and again every
// [DefaultPollInterval] (see [WithPollInterval]); what comes and goes in between is not seen.
//
// Each time that asking fails, it yields the error, and goes on. The next answer is yielded even if
// nothing has changed. It ends after holdfast.ErrInvalid, which a backend that cannot be inspected
// gives, and holdfast.ErrClosed.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		var last Leader
		known := false
		for {
			leader, err := e.Leader(ctx)
			switch {
			case ctx != nil && ctx.Err() != nil: // a nil one is what err says
				return
			case err != nil:
				known = false
				if !yield(Leader{}, err) || errors.Is(err, holdfast.ErrInvalid) ||
					errors.Is(err, holdfast.ErrClosed) {
					return
				}
			case !known || leader.Holder.Value != last.Holder.Value:
				last, known = leader, true
				if !yield(leader, nil) {
					return
				}
			}
			sleep(ctx, e.config.poll)
			if ctx.Err() != nil {
				return
			}
		}
	}
}
