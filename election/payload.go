package election

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// announced returns the label of the lock: the identity, and behind it the payload in angle
// brackets, like the address in a mail. People read labels in lists of locks and in messages of
// waiters, and a program that knows nothing of payloads shows both.
func announced(identity, payload string) string {
	switch {
	case payload == "":
		return identity
	case identity == "":
		return "<" + payload + ">"
	default:
		return identity + " <" + payload + ">"
	}
}

// parseLabel undoes announced. A label without a payload is all identity.
func parseLabel(label string) (identity, payload string) {
	i := strings.LastIndexByte(label, '<')
	if i < 0 || !strings.HasSuffix(label, ">") || i > 0 && label[i-1] != ' ' {
		return label, ""
	}
	payload = label[i+1 : len(label)-1]
	if !plain(payload) || payload == "" {
		return label, ""
	}
	return strings.TrimSuffix(label[:i], " "), payload
}

// plain reports whether a payload comes back as it went in.
func plain(payload string) bool {
	return !strings.ContainsFunc(payload, func(r rune) bool { // RuneError: not valid UTF-8
		return r == '<' || r == '>' || r == utf8.RuneError || unicode.IsControl(r)
	})
}

// checkAnnounced checks identity and payload.
func (c *config) checkAnnounced() error {
	label := announced(c.identity, c.payload)
	identity, payload := parseLabel(label)
	switch {
	case len(c.identity) > driver.MaxLabelLen:
		return invalid("identity %.40q... has %d bytes: at most %d are allowed", c.identity,
			len(c.identity), driver.MaxLabelLen)
	case len(label) > driver.MaxLabelLen:
		return invalid("identity (%d bytes) and payload (%d bytes) make a label of %d: at most %d "+
			"are allowed", len(c.identity), len(c.payload), len(label), driver.MaxLabelLen)
	case !plain(c.payload):
		return invalid("payload %q: must be text without <, > and control characters", c.payload)
	case identity != c.identity || payload != c.payload:
		return invalid("identity %q looks like one with a payload: use WithPayload", c.identity)
	}
	return nil
}
