package board

import (
	"fmt"
	"net/http"
	"time"
)

// beatEvery is how often a viewer is told that the board is there.
const beatEvery = 5 * time.Second

// events sends the state, and then each change of it, until the viewer leaves. One that does not
// read skips states, and is left when it has taken nothing for long.
func (b *Board) events(w http.ResponseWriter, r *http.Request) {
	if !b.audience.enter() {
		refuse(w, http.StatusServiceUnavailable, fmt.Sprintf(
			"%d pages watch already; close one", mostViewers))
		return
	}
	defer b.audience.leave()
	stream := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(event string, text []byte) bool {
		// A recorder in a test has no deadline.
		_ = stream.SetWriteDeadline(time.Now().Add(writeTime))
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n", event, text); err != nil {
			return false
		}
		return stream.Flush() == nil
	}
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for seen := uint64(0); ; {
		text, version, changed := b.feed.after(seen)
		if text != nil {
			if !send("state", text) {
				return
			}
			seen = version
			continue
		}
		select {
		case <-changed:
		case <-beat.C:
			if !send("beat", b.beat()) {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// beat says what time it is here, and since when the backend is being asked.
func (b *Board) beat() []byte {
	return fmt.Appendf(nil, `{"now":%d,"asking":%d}`+"\n", time.Now().UnixMilli(),
		millis(b.feed.asking()))
}
