package driver

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// MaxLabelLen is the longest label in bytes that an owner value carries.
const MaxLabelLen = 128

const (
	ownerRandom = 18                  // bytes of randomness: 144 bits, no padding in base64
	ownerID     = ownerRandom * 8 / 6 // characters they take
	maxHostLen  = 64                  // longer host names are cut: they only inform
)

// OwnerSuffix returns the readable part of an owner value for this process: host, process ID and
// label. It is the same for all acquisitions with that label, so callers may keep it. It has '?' in
// place of control characters.
func OwnerSuffix(label string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	host = strings.ReplaceAll(printable(host), "/", "?")
	if len(host) > maxHostLen {
		host = host[:maxHostLen]
	}
	return "/" + host + "/" + strconv.Itoa(os.Getpid()) + "/" + printable(label)
}

// NewOwner returns a fresh owner value: 18 random bytes in base64, then suffix, as [OwnerSuffix]
// made it. It is unique over all clients and all claims.
func NewOwner(suffix string) string {
	var random [ownerRandom]byte
	rand.Read(random[:]) // never fails: it ends the process instead
	var id [ownerID]byte
	base64.RawURLEncoding.Encode(id[:], random[:])
	return string(id[:]) + suffix
}

// Owner is what an owner value says about its owner.
type Owner struct {
	Value string // the owner value as the backend stores it
	Host  string // empty if the value is not one of ours
	PID   int    // 0 if the value is not one of ours
	Label string // the label that the owner chose; often empty
}

// ParseOwner reads an owner value. If [NewOwner] did not make the value, as when it comes from
// another library, only Value is set in the result.
func ParseOwner(value string) Owner {
	o := Owner{Value: value}
	parts := strings.SplitN(value, "/", 4)
	if len(parts) != 4 || len(parts[0]) != ownerID {
		return o
	}
	if _, err := base64.RawURLEncoding.DecodeString(parts[0]); err != nil {
		return o
	}
	pid, err := strconv.Atoi(parts[2])
	if err != nil || pid <= 0 {
		return o
	}
	o.Host, o.PID, o.Label = parts[1], pid, parts[3]
	return o
}

// String describes the owner in one line of printable text: its label, process and host, or
// the quoted value if it is not one of ours, or "unknown".
func (o Owner) String() string {
	switch {
	case o.Value == "":
		return "unknown"
	case o.PID == 0:
		return strconv.Quote(o.Value)
	case o.Label == "":
		return fmt.Sprintf("pid %d on %s", o.PID, shown(o.Host))
	default:
		return fmt.Sprintf("%s (pid %d on %s)", shown(o.Label), o.PID, shown(o.Host))
	}
}

// printable replaces what could disturb a terminal or a log line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd || (r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}

// shown also replaces what is not seen: it could reverse the direction of writing.
func shown(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, printable(s))
}
