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
	// Holder is the candidate, as the backend shows it. Its label has the identity and the payload.
	Holder holdfast.Holder

	// Token is the number of the first term on this lease. It is 0 if the backend does not show
	// tokens; Redis does not.
	Token holdfast.Token
}

// Exists reports whether anybody leads.
func (l Leader) Exists() bool { return l.Holder.Value != "" }

// Identity returns what the leader calls itself (see [WithIdentity]). It is empty if the leader has
// no identity, if nobody leads, or if the lock is another library's.
func (l Leader) Identity() string {
	identity, _ := parseLabel(l.Holder.Label)
	return identity
}

// Payload returns what the leader announces, or "" (see [WithPayload]).
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
// whose process has died is shown until its lease is over, so never decide by it whether to lead.
// Leader fails as holdfast.Locker.Inspect does: with holdfast.ErrInvalid if the backend cannot be
// inspected, and with the error of ctx if ctx ends first.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	entry, err := e.locker.Inspect(ctx, e.name)
	if err != nil {
		return Leader{}, err
	}
	return Leader{driver.ParseOwner(entry.Holder.Owner), entry.Holder.Token}, nil
}

// Observe yields who leads, and then every change, until ctx ends. It asks at once, and then once
// every [DefaultPollInterval] (see [WithPollInterval]). It does not see what comes and goes in
// between.
//
// When a request fails, Observe yields the error and goes on. It yields the next answer even if
// nothing has changed. It ends after holdfast.ErrClosed, and after holdfast.ErrInvalid, which says
// that the backend cannot be inspected.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		var last Leader
		known := false
		for {
			leader, err := e.Leader(ctx)
			switch {
			case ctx != nil && ctx.Err() != nil: // if ctx is nil, err says so
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
