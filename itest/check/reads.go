package check

import (
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/itest/history"
)

// unstable finds a value that changed while a holder that shares the key read it, although nobody
// wrote too late. A late writer cannot be kept out here, because a guard remembers no token of a
// reader. A client that died may have written what nobody has recorded.
func unstable(run *history.Run, rules Rules, a *history.Acquisition,
	granted []*history.Acquisition) (found []Finding) {
	last := history.Record{}
	for _, r := range slices.Concat(a.Writes, a.Looks) {
		if r.Outcome != history.Accepted || r.Value == 0 || r.Until >= a.End() {
			continue
		}
		if r.Kind == history.Look && last.Value != 0 && r.Value != last.Value &&
			!slices.ContainsFunc(granted, func(other *history.Acquisition) bool {
				return other != a && wroteLate(other, last.At, r.Until)
			}) {
			f := Finding{Check: "register", Key: a.Key, At: r.At, Text: fmt.Sprintf(
				"%v with token %d has read %d after %d, and nobody had written too late", a,
				a.Token, r.Value, last.Value)}
			f.Excuse, f.Because = excuseUntil(run, rules, a, granted, r.Until)
			found = append(found, f)
		}
		last = r
	}
	return found
}

// excuseUntil returns the first excuse for a reader beside an acquisition that had the key alone:
// one that was granted it before the moment, and still had it when the reader was granted it.
func excuseUntil(run *history.Run, rules Rules, a *history.Acquisition,
	granted []*history.Acquisition, moment int64) (reason, because string) {
	for _, other := range granted {
		if other != a && !other.Shared && other.Granted < moment && other.End() > a.Granted &&
			reason == "" {
			reason, because = excuse(run, rules, a, other)
		}
	}
	return reason, because
}

// wroteLate reports whether the acquisition may have written between the two moments without
// believing that it held the lock alone.
func wroteLate(a *history.Acquisition, from, to int64) bool {
	if a.Died() && a.Granted < to && a.Stopped() > from-int64(Slack) {
		return true
	}
	return slices.ContainsFunc(a.Writes, func(w history.Record) bool {
		return w.Outcome != history.Refused && w.At < to && w.Until > from && w.Until >= a.Alone()
	})
}
