package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memhold"
)

// checked is a backend whose check finds something, or hangs.
type checked struct {
	*memhold.Backend
	check func() []driver.Finding
}

func (c checked) Check(context.Context) ([]driver.Finding, error) { return c.check(), nil }

// TestDoctorShowsOtherPeoplesText: what a server says of itself is shown without anything that a
// terminal obeys, one finding in two lines, or in one of JSON, and without a login.
func TestDoctorShowsOtherPeoplesText(t *testing.T) {
	const nasty = "a\x1b[2J\nb\u009bc\u202e redis://u:hunter2@h \xff"
	open := func(context.Context) (driver.Backend, error) {
		return checked{memhold.New(), func() []driver.Finding {
			return []driver.Finding{{Severity: driver.Warning, Code: "a-b", Node: nasty,
				Summary: nasty, Advice: nasty}}
		}}, nil
	}
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		_ = cli.ExamineOn(&out, open, asJSON)
		text := out.String()
		if i := strings.IndexFunc(text, func(r rune) bool {
			return r != '\n' && !unicode.IsPrint(r)
		}); i >= 0 || strings.Contains(text, "hunter2") {
			t.Errorf("shows %q", text)
		}
		if n := strings.Count(text, "\n"); asJSON && (n != 1 || !json.Valid(out.Bytes())) ||
			!asJSON && n != 2 {
			t.Errorf("%d lines: %q", n, text)
		}
	}
}

// TestDoctorOfAServerThatHangs: a check that goes on after the end of its context is given up.
func TestDoctorOfAServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		open := func(context.Context) (driver.Backend, error) {
			return checked{memhold.New(), func() []driver.Finding {
				<-hang
				return nil
			}}, nil
		}
		begin := time.Now()
		var silent *look.SilentError
		if err := cli.ExamineOn(new(bytes.Buffer), open, false); !errors.As(err, &silent) ||
			time.Since(begin) > time.Minute+time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}
