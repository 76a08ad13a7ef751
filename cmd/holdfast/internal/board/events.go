package board

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// beatEvery is how often a viewer is told that the board is there.
const beatEvery = 5 * time.Second

// pieceBytes is how much of an answer a viewer has writeTime for.
const pieceBytes = 64 << 10

// events sends the state, and then each change of it, until the viewer leaves. A viewer that does
// not read skips states. If it has taken nothing for long, events ends.
func (b *Board) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return // the stream would never end, and nobody would see that the client has left
	}
	if !b.audience.enter() {
		refuseViewer(w)
		return
	}
	defer b.audience.leave()
	stream := http.NewResponseController(w)
	write := func(text []byte) bool {
		for piece := range slices.Chunk(text, pieceBytes) {
			// A recorder in a test has no deadline.
			_ = stream.SetWriteDeadline(time.Now().Add(writeTime))
			if _, err := w.Write(piece); err != nil {
				return false
			}
		}
		return true
	}
	send := func(event string, text []byte) bool {
		return write([]byte("event: "+event+"\ndata: ")) && write(text) && write([]byte("\n")) &&
			stream.Flush() == nil
	}
	// No timer channel: the race detector crashes on those in a synctest bubble at times.
	due := make(chan struct{}, 1)
	beat := time.AfterFunc(beatEvery, func() { due <- struct{}{} })
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
		case <-due:
			if !send("beat", b.beat()) {
				return
			}
			beat.Reset(beatEvery)
		case <-r.Context().Done():
			return
		}
	}
}

// session answers whether this page may open a stream. A page cannot see why a stream was refused,
// so it asks before.
func (b *Board) session(w http.ResponseWriter, _ *http.Request) {
	if b.audience.full() {
		refuseViewer(w)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func refuseViewer(w http.ResponseWriter) {
	refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%d pages watch already; close one",
		mostViewers))
}

// beat says what time it is here, and since when the backend is being asked.
func (b *Board) beat() []byte {
	return fmt.Appendf(nil, `{"now":%d,"asking":%d}`+"\n", time.Now().UnixMilli(),
		millis(b.feed.asking()))
}
