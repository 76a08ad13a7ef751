package look_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
)

// TestFormat: a template has the names of the JSON, exactly, even for values that are not known.
// Other people's text in it neither ends a line nor moves the cursor.
func TestFormat(t *testing.T) {
	owner := driver.Owner{Value: "v", Host: "h1", PID: 71, Label: "\x1b[2Jback\nup"}
	const key = "lock:a\x1b]0;x\x07b"
	held := look.Key{Name: look.NameOf(key, "lock:"), Full: key,
		Holders: []look.Party{{Owner: owner, Token: 1<<63 + 1, Lease: 28 * time.Second,
			Life: look.Lives}},
		Waiters: make([]look.Party, 12)}
	for text, want := range map[string]string{
		"{{.name}}":                                  `"a\x1b]0;x\ab"`,
		"{{.kind}} {{.waiting}} {{.shared}}":         "lock 12 false",
		"{{if gt .waiting 9}}many{{end}}":            "many",
		"{{.holder.label}}":                          `"\x1b[2Jback\nup"`,
		"{{.holder.pid}}@{{.holder.host}}":           "71@h1",
		"{{.holder.token}}":                          "9223372036854775809",
		"{{.holder.lease_ms}} {{.holder.since}}":     "28000 ",
		"{{range .holders}}<{{.process}}>{{end}}":    "<lives>",
		"{{.slot}} {{.holder.endless}}{{/* - */}}":   "-1 false",
		`{{printf "%-6s|%3d" .kind .waiting}}`:       "lock  | 12",
		"{{len .holders}} of {{.key | len | print}}": "1 of 19",
	} {
		f, err := look.NewFormat(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got strings.Builder
		if err := f.Write(&got, held); err != nil || got.String() != want+"\n" {
			t.Errorf("%s prints %q, %v; want %q", text, got.String(), err, want)
		}
		if err := f.Write(&got, look.Key{}); err != nil {
			t.Errorf("%s of a key without a holder: %v", text, err)
		}
	}
	f, err := look.NewFormat("{{.name}}")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := f.Write(&got, look.Key{Name: look.NameOf("a\xff", "")}); err != nil ||
		got.String() != `"a\xff"`+"\n" {
		t.Errorf("of bytes: %s, %v", got.String(), err)
	}
	for _, text := range []string{"{{.nmae}}", "{{", "{{.holder.lable}}", "{{call .name}}"} {
		if _, err := look.NewFormat(text); err == nil {
			t.Errorf("%s: is taken", text)
		}
	}
}
