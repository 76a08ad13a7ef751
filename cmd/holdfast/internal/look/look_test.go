package look_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
)

// nasty is text that would move the cursor, reverse the direction of writing, or look like another
// text.
var nasty = []string{"\x1b[2Jx", "a\nb", "a\u202eb", "a\u009bb", "a\x7fb", "\xff", "a b", "", "-",
	`"a"`, `a\b`, "\ufffd", "\U000e0041"}

func TestShown(t *testing.T) {
	for _, plain := range []string{"nightly", "report/eu-1", "größe", "日本", "a:b@c"} {
		if got := look.Shown(plain); got != plain {
			t.Errorf("%q is shown as %s", plain, got)
		}
	}
	for _, text := range nasty {
		got := look.Shown(text)
		if back, err := strconv.Unquote(got); err != nil || back != text {
			t.Errorf("%q is shown as %s, which reads as %q, %v", text, got, back, err)
		}
		isPrintable(t, got)
	}
}

func isPrintable(t *testing.T, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool {
		return r != '\n' && !unicode.IsPrint(r)
	}); i >= 0 {
		t.Errorf("byte %d of %q is not printable", i, text)
	}
}

func TestNames(t *testing.T) {
	for key, want := range map[string]look.Name{
		"p/nightly":             {Text: "nightly", Kind: look.Lock, Slot: -1},
		"p/jobs@permit/0":       {Text: "jobs", Kind: look.Permit, Slot: 0},
		"p/jobs@permit/999":     {Text: "jobs", Kind: look.Permit, Slot: 999},
		"p/jobs@permit/gate":    {Text: "jobs@permit/gate", Kind: look.Lock, Slot: -1},
		"p/jobs@permit/gate2":   {Text: "jobs", Kind: look.Gate, Slot: -1, Permits: 2},
		"p/jobs@permit/gate0":   {Text: "jobs@permit/gate0", Kind: look.Lock, Slot: -1},
		"p/jobs@permit/scout":   {Text: "jobs", Kind: look.Scout, Slot: -1},
		"p/jobs@permit/1000":    {Text: "jobs@permit/1000", Kind: look.Lock, Slot: -1},
		"p/jobs@permit/07":      {Text: "jobs@permit/07", Kind: look.Lock, Slot: -1},
		"p/jobs@permit/":        {Text: "jobs@permit/", Kind: look.Lock, Slot: -1},
		"p/a@permit/1@permit/2": {Text: "a@permit/1", Kind: look.Permit, Slot: 2},
	} {
		if got := look.NameOf(key, "p/"); got != want {
			t.Errorf("%q is %+v; want %+v", key, got, want)
		}
	}
}

// TestTableWithALongName: a name of 10 kB, which another program may have made, is there as it is,
// and does not make the other rows as long.
func TestTableWithALongName(t *testing.T) {
	long := strings.Repeat("L", 10_000)
	got := look.Table([][]string{{"NAME", "N"}, {"a", "1"}, {long, "2"}, {"b", "3"}})
	want := "NAME  N\na     1\n" + long + "  2\nb     3\n"
	if got != want {
		t.Errorf("the table has %d bytes; want %d", len(got), len(want))
	}
}

func TestTable(t *testing.T) {
	got := look.Table([][]string{{"NAME", "N"}, {"größer", "12"}, {"x", "3"}})
	if want := "NAME    N\ngrößer  12\nx       3\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestSince: a token tells when its lock was acquired, unless that time is impossible.
func TestSince(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, test := range []struct {
		token driver.Token
		want  time.Time
	}{
		{driver.Token(now.Add(-time.Hour).UnixMicro()), now.Add(-time.Hour)},
		// from a clock that is ahead
		{driver.Token(now.Add(time.Second).UnixMicro()), now.Add(time.Second)},
		{driver.Token(now.Add(2 * time.Second).UnixMicro()), time.Time{}},
		{17, time.Time{}},
		{1<<64 - 1, time.Time{}},
	} {
		if got := look.Since(test.token, now); !got.Equal(test.want) {
			t.Errorf("%d: got %v, want %v", test.token, got, test.want)
		}
	}
}

const id = "AAAAAAAAAAAAAAAAAAAAAAAA"

// one returns the one key of a backend as each form shows it. All of it must be printable.
func one(t *testing.T, e driver.Entry) (key look.Key, row, text string) {
	t.Helper()
	v := &look.View{Backend: still{e}, Patience: time.Hour}
	key, err := v.Inspect(t.Context(), e.Key)
	if err != nil {
		t.Fatal(err)
	}
	ages := func(time.Time) time.Duration { return 90 * time.Second }
	hide := func(text string) string { return text }
	row, text = look.Table([][]string{key.Row(ages)}), key.Describe(ages, hide)
	line := string(key.JSON(true, nil, hide))
	for _, form := range []string{row, text, line} {
		isPrintable(t, form)
	}
	if strings.Count(row, "\n") != 1 || strings.Count(line, "\n") != 1 {
		t.Errorf("not one line: %q, %q", row, line)
	}
	var read struct {
		Name   string
		Base64 []byte `json:"name_base64"`
	}
	if err := json.Unmarshal([]byte(line), &read); err != nil {
		t.Errorf("%s: %v", line, err)
	} else if read.Name != e.Key && string(read.Base64) != e.Key {
		t.Errorf("%s: reads as %+v; want %q", line, read, e.Key)
	}
	return key, row, text
}

// TestOtherPeoplesText: names, labels, hosts and foreign values are shown without anything that a
// terminal obeys.
func TestOtherPeoplesText(t *testing.T) {
	for _, text := range nasty {
		for _, owner := range []string{id + "/" + text + "/7/label", id + "/host/7/" + text, text,
			text + strings.Repeat("é", 500)} {
			p := driver.Party{Owner: owner, ExpiresIn: time.Second}
			one(t, driver.Entry{Key: "key", Holder: p, Waiters: []driver.Party{p}})
			one(t, driver.Entry{Key: "key", Sharers: []driver.Party{p, p}})
		}
		if text != "" {
			one(t, driver.Entry{Key: text})
		}
	}
}

// TestForeignValues: what another library has written is shown quoted and cut, and without what
// looks like a login.
func TestForeignValues(t *testing.T) {
	for value, want := range map[string]string{
		"5f3a":                            `"5f3a"`,
		strings.Repeat("x", 1024):         `"` + strings.Repeat("x", 40) + `"...`,
		strings.Repeat("é", 30):           `"` + strings.Repeat("é", 20) + `"...`,
		"x" + strings.Repeat("é", 30):     `"x` + strings.Repeat("é", 19) + `"...`,
		"redis://user:hunter2@host/0":     `"redis://...@host/0"`,
		"one redis://:hunter2 spaced@h/0": `"one redis://:hunter2 spaced@h/0"`,
	} {
		_, row, text := one(t, driver.Entry{Key: "k", Holder: driver.Party{Owner: value,
			ExpiresIn: time.Minute}})
		if !strings.Contains(row, want+" ") || !strings.Contains(text, want+" of another library") {
			t.Errorf("%q: shown as\n%s%s; want %s", value, row, text, want)
		}
	}
}

// TestLife: a process of this host lives or is gone; of others nothing is known.
func TestLife(t *testing.T) {
	dead := exec.Command(os.Args[0], "-test.run=^$")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for owner, want := range map[string]look.Life{
		driver.NewOwner(driver.OwnerSuffix("me")):                    look.Lives,
		id + "/" + here + "/" + strconv.Itoa(dead.Process.Pid) + "/": look.Gone,
		id + "/not-" + here + "/1/":                                  look.Elsewhere,
		"foreign":                                                    look.Elsewhere,
	} {
		key, row, _ := one(t, driver.Entry{Key: "k", Holder: driver.Party{Owner: owner}})
		if got := key.Holders[0].Life; got != want {
			t.Errorf("%q: %q; want %q", owner, got, want)
		}
		if strings.Contains(row, "(gone)") != (want == look.Gone) {
			t.Errorf("%q: shown as %s", owner, row)
		}
	}
}

// TestColour: what leaks would find is red, what ends by itself yellow, and a coloured cell takes
// as much room as one without.
func TestColour(t *testing.T) {
	gone := look.Party{Owner: driver.Owner{Value: "v", PID: 7, Host: "h"}, Life: look.Gone,
		Lease: time.Minute}
	for _, test := range []struct {
		key    look.Key
		column int
		want   string
	}{
		{look.Key{Holders: []look.Party{gone}}, 3, "\x1b[31m7 (gone)\x1b[0m"},
		{look.Key{Holders: []look.Party{{Endless: true}}}, 5, "\x1b[31mno end\x1b[0m"},
		{look.Key{Holders: []look.Party{{Renewed: look.No}}}, 6, "\x1b[33mno\x1b[0m"},
		{look.Key{}, 1, "\x1b[33mnobody\x1b[0m"},
		{look.Key{Holders: []look.Party{{Renewed: look.Yes}}}, 6, "yes"},
	} {
		row := test.key.RowAgain(func(time.Time) time.Duration { return 0 })
		test.key.Colour(row)
		if row[test.column] != test.want {
			t.Errorf("%+v: column %d is %q; want %q", test.key, test.column, row[test.column],
				test.want)
		}
	}
	got := look.Table([][]string{{"\x1b[1mA\x1b[0m", "B"}, {"日本", "x"}})
	if want := "\x1b[1mA\x1b[0m     B\n日本  x\n"; got != want {
		t.Errorf("got\n%q want\n%q", got, want)
	}
}
