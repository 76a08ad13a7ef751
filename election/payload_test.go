package election_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
)

// Others see identity and payload, whether they announce one themselves or not.
func TestPayload(t *testing.T) {
	for _, test := range []struct{ identity, payload string }{
		{"node-7", "10.0.0.7:8080"},
		{"node-7", ""},
		{"", "10.0.0.7:8080"},
		{"a <b", "http://[::1]:80/?q=a b"},
		{" ", " "},
		{"x", strings.Repeat("y", driver.MaxLabelLen-4)},
	} {
		play(t, func(s *stage) {
			o := s.candidate("o")
			a := s.candidate(test.identity, election.WithPayload(test.payload))
			a.run(nil)
			leader, err := o.Leader(background)
			if err != nil || leader.Identity() != test.identity ||
				leader.Payload() != test.payload {
				t.Errorf("%+v is seen as %v, %v; want the same identity and payload",
					test, leader, err)
			}
			for leader := range o.Observe(background) {
				if leader.Identity() != test.identity || leader.Payload() != test.payload {
					t.Errorf("%+v is observed as %v; want the same identity and payload",
						test, leader)
				}
				break
			}
			a.leave()
			o.leave()
		})
	}
}

// What others write is the identity as a whole: programs without a payload, and other libraries.
func TestNoPayload(t *testing.T) {
	for label, want := range map[string]election.Leader{
		"":            {},
		"node-7":      {},
		"node-7 <>":   {},
		"vector<int>": {},
		"a > b":       {},
	} {
		want.Holder.Label = label
		if want.Identity() != label || want.Payload() != "" {
			t.Errorf("%q is seen as %q with payload %q", label, want.Identity(), want.Payload())
		}
	}
	foreign := election.Leader{Holder: driver.ParseOwner("f3a9")}
	if foreign.Identity() != "" || foreign.Payload() != "" || !foreign.Exists() {
		t.Errorf("another library's holder is seen as %q, %q; want neither identity nor payload",
			foreign.Identity(), foreign.Payload())
	}
}

func TestInvalidPayload(t *testing.T) {
	play(t, func(s *stage) {
		a := s.candidate("a")
		for _, test := range []struct{ identity, payload, says string }{
			{"x", "a<b", "payload \"a<b\": must be text"},
			{"x", "a>b", "must be text"},
			{"x", "a\nb", "must be text"},
			{"x", "a\xffb", "must be text"},
			{"x", strings.Repeat("y", driver.MaxLabelLen-3), "make a label of"},
			{strings.Repeat("y", driver.MaxLabelLen), "x", "make a label of"},
			{"looks like <a payload>", "", "looks like one with a payload"},
			{"<alike>", "", "looks like one with a payload"},
		} {
			_, err := election.New(a.locker, "x", election.WithIdentity(test.identity),
				election.WithPayload(test.payload))
			if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q, %q: %v, want ErrInvalid that says %q", test.identity, test.payload,
					err, test.says)
			}
		}
		a.leave()
	})
}
