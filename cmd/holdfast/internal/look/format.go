package look

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"strings"
	"text/template"
)

// Format is a template for the line of a key.
type Format struct{ template *template.Template }

// NewFormat reads a template of text/template. The template can use the names of the JSON output,
// and holder, which is the holder whose lease lasts longest. NewFormat fails if the template is
// wrong, or if it would fail with every key.
func NewFormat(text string) (*Format, error) {
	t, err := template.New("format").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, err
	}
	f := &Format{t}
	return f, f.Write(io.Discard, Key{Holders: []Party{{}}})
}

// Write writes a line for the key. All text in it is printable, and quoted if it is no plain word,
// as in the list.
func (f *Format) Write(w io.Writer, k Key) error {
	decoder := json.NewDecoder(bytes.NewReader(k.JSON(false, nil, strings.Clone)))
	decoder.UseNumber() // a token may be too large for a float64
	var names map[string]any
	if err := decoder.Decode(&names); err != nil {
		return err
	}
	names = printableNames(names, map[string]any{"slot": int64(-1)})
	names["name"], names["key"] = Shown(k.Text), Shown(k.Full) // JSON has no bytes
	holders := names["holders"].([]any)
	names["holder"] = printableNames(nil, noHolder)
	for i, h := range holders {
		holders[i] = printableNames(h.(map[string]any), noHolder)
		names["holder"] = holders[i]
	}
	var line bytes.Buffer
	if err := f.template.Execute(&line, names); err != nil {
		return err
	}
	line.WriteByte('\n')
	_, err := w.Write(line.Bytes())
	return err
}

// noHolder has what JSON leaves out where it is not known.
var noHolder = map[string]any{"owner": "", "label": "", "host": "", "pid": int64(0), "process": "",
	"foreign": false, "token": int64(0), "since": "", "lease_ms": int64(0), "endless": false,
	"renewed": ""}

// printableNames returns what a template can name, with what is missing.
func printableNames(names, missing map[string]any) map[string]any {
	all := maps.Clone(missing)
	for name, value := range names {
		switch v := value.(type) {
		case json.Number:
			if n, err := v.Int64(); err == nil {
				all[name] = n
			} else {
				all[name] = v.String()
			}
		case string:
			all[name] = Shown(v)
		default:
			all[name] = v
		}
	}
	return all
}
