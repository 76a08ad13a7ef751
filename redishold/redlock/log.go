package redlock

import (
	"context"
	"log/slog"

	"github.com/holdfast-go/holdfast/quorum"
)

// WithLog writes a line to log when a node's state changes. A node that is down, refuses, or turns
// out to be another one under a second name gives a warning; one that is in quarantine or back
// gives a line at level Info. Attributes are node and, if there is one, error. Default, and with
// nil: silent. WithLog sets quorum.WithObserver; of the two the one that Open is given last counts.
func WithLog(log *slog.Logger) Option {
	if log == nil {
		return option(func(*config) {})
	}
	return WithQuorum(quorum.WithObserver(func(e quorum.NodeEvent) { logEvent(log, e) }))
}

func logEvent(log *slog.Logger, e quorum.NodeEvent) {
	level, text := slog.LevelInfo, ""
	switch e.Is {
	case quorum.Down, quorum.Refusing, quorum.Duplicate:
		level, text = slog.LevelWarn, "redlock: node is "+e.Is.String()
	case quorum.Quarantined:
		text = "redlock: node is in restart quarantine"
	case quorum.Up:
		if e.Was == quorum.Unasked {
			return
		}
		text = "redlock: node is back"
	default:
		return
	}
	attributes := []slog.Attr{slog.String("node", e.Node)}
	if e.Err != nil {
		attributes = append(attributes, slog.String("error", e.Err.Error()))
	}
	log.LogAttrs(context.Background(), level, text, attributes...)
}
