package deadlock

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// Text describes the cycle in lines of printable text.
func (c Cycle) Text() string {
	var text strings.Builder
	fmt.Fprintf(&text, "possible deadlock of %d processes:\n", len(c))
	for i, s := range c {
		fmt.Fprintf(&text, "  %s %s\n", s.who(), s.does(c[(i+1)%len(c)]))
	}
	return text.String()
}

// who says which process it is. One that waits for a permit has another label there.
func (s Step) who() string {
	switch {
	case s.Holds.Full != "":
		return s.Holds.Party.String()
	case s.Waits.Full != "":
		return s.Waits.Party.String()
	default:
		return fmt.Sprintf("pid %d on %s", s.PID, look.Shown(s.Host))
	}
}

func (s Step) does(next Step) string {
	waits := fmt.Sprintf("runs pid %d", next.PID)
	if s.Waits.Full != "" {
		waits = "waits for " + s.Waits.Name.String() + s.as()
	}
	if s.Holds.Full == "" {
		return waits
	}
	return fmt.Sprintf("holds %v and %s", s.Holds.Name, waits)
}

// as says by which label the process waits, if that is another one.
func (s Step) as() string {
	label := s.Waits.Party.Label
	if s.Holds.Full == "" || label == s.Holds.Party.Label || s.Waits.Name.Kind != look.Lock {
		return ""
	}
	return ", where its label is " + look.Shown(label)
}

// The form of the output for programs.
type (
	jsonCycle struct {
		Deadlock []jsonStep `json:"deadlock"`
	}
	jsonStep struct {
		Host  string     `json:"host"`
		PID   int        `json:"pid"`
		Holds *jsonClaim `json:"holds,omitempty"`
		Waits *jsonClaim `json:"waits,omitempty"`
		Runs  int        `json:"runs,omitempty"`
	}
	jsonClaim struct {
		Name  string    `json:"name"`
		Bytes []byte    `json:"name_base64,omitempty"`
		Key   string    `json:"key"`
		Kind  look.Kind `json:"kind"`
		Slot  *int      `json:"slot,omitempty"`
		Owner string    `json:"owner"`
		Raw   []byte    `json:"owner_base64,omitempty"`
		Label string    `json:"label,omitempty"`
	}
)

// JSON returns the cycle as a line.
func (c Cycle) JSON() []byte {
	var j jsonCycle
	for i, s := range c {
		step := jsonStep{Host: s.Host, PID: s.PID, Holds: s.Holds.json(), Waits: s.Waits.json()}
		if step.Waits == nil {
			step.Runs = c[(i+1)%len(c)].PID
		}
		j.Deadlock = append(j.Deadlock, step)
	}
	return look.JSONLine(j)
}

func (c Claim) json() *jsonClaim {
	if c.Full == "" {
		return nil
	}
	j := &jsonClaim{Name: c.Name.Text, Bytes: look.BytesOf(c.Name.Text), Key: c.Full,
		Kind: c.Name.Kind, Owner: c.Party.Value, Raw: look.BytesOf(c.Party.Value),
		Label: c.Party.Label}
	if c.Name.Kind == look.Permit {
		j.Slot = &c.Name.Slot
	}
	return j
}
