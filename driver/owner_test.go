package driver_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

func TestOwnerValueIsReadable(t *testing.T) {
	o := driver.ParseOwner(driver.NewOwner(driver.OwnerSuffix("nightly/report")))
	if o.Label != "nightly/report" || o.PID != os.Getpid() || o.Host == "" {
		t.Errorf("read back %+v; want label, process and host", o)
	}
	if s := o.String(); !strings.HasPrefix(s, "nightly/report (pid ") {
		t.Errorf("described as %q; want label and process", s)
	}
	if s := driver.ParseOwner(driver.NewOwner(driver.OwnerSuffix(""))).String(); !strings.HasPrefix(
		s, "pid ") {
		t.Errorf("without label described as %q; want the process", s)
	}
	if s := driver.ParseOwner("f3a9\n").String(); s != `"f3a9\n"` {
		t.Errorf("another library's value described as %q; want it quoted", s)
	}
	if s := (driver.Owner{}).String(); s != "unknown" {
		t.Errorf("no owner described as %q; want unknown", s)
	}
}

// FuzzOwner: whatever is in a backend, describing it gives one printable line, and a label comes
// back as it went in except for what could disturb a terminal.
func FuzzOwner(f *testing.F) {
	f.Add("label", "value/host/1/label")
	f.Add("\x1b[2J", "AAAAAAAAAAAAAAAAAAAAAAAA/\x1b/7/\x07")
	f.Add("\xff", "")
	f.Add("\u202egnp.exe\u2028", "AAAAAAAAAAAAAAAAAAAAAAAA/\u202e/7/\u2066")
	f.Add("", "AAAAAAAAAAAAAAAAAAAAAAAA/\u202e/7/")
	f.Fuzz(func(t *testing.T, label, value string) {
		for _, v := range []string{value, driver.NewOwner(driver.OwnerSuffix(label))} {
			s := driver.ParseOwner(v).String()
			if !utf8.ValidString(s) || strings.ContainsFunc(s,
				func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q described as %q; want only what is printable", v, s)
			}
		}
		plain := utf8.ValidString(label) && !strings.ContainsFunc(label, unicode.IsControl) &&
			!strings.ContainsRune(label, utf8.RuneError)
		if o := driver.ParseOwner(driver.NewOwner(driver.OwnerSuffix(label))); plain &&
			o.Label != label {
			t.Errorf("label %q read back as %q", label, o.Label)
		}
	})
}

func TestErrorTellsItsKindAndCause(t *testing.T) {
	cause := errors.New("connection refused")
	for _, e := range []*driver.Error{
		{Node: "a:6379", Err: cause},
		{Node: "a:6379", Maybe: true, Err: cause},
		{Node: "a:6379", Permanent: true, Err: cause},
		{Node: "a:6379", Invalid: true, Err: cause},
	} {
		available := !e.Maybe && !e.Invalid
		if !errors.Is(e, cause) || errors.Is(e, driver.ErrUnknown) != e.Maybe ||
			errors.Is(e, driver.ErrUnavailable) != available ||
			errors.Is(e, driver.ErrInvalid) != e.Invalid {
			t.Errorf("%+v: errors.Is finds another kind or cause than its fields say", e)
		}
		if driver.Permanent(e) != (e.Permanent || e.Invalid) {
			t.Errorf("%+v: Permanent gives %v", e, driver.Permanent(e))
		}
		for _, want := range []string{"a:6379", "connection refused"} {
			if !strings.Contains(e.Error(), want) {
				t.Errorf("%q lacks %q", e, want)
			}
		}
	}
	if driver.Permanent(cause) || driver.Permanent(nil) {
		t.Error("an error that is no driver.Error counts as permanent")
	}
}
