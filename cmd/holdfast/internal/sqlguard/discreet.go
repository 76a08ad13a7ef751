package sqlguard

import (
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
)

// discreet is an error of a driver without what stands before the @ of an address. It hides a name
// only where drivers and servers write one, because the name may also be a word of the rest.
type discreet struct {
	error
	at backendurl.Database
}

func (d *discreet) Unwrap() error { return d.error }

func (d *discreet) Error() string {
	text := d.error.Error()
	if p := d.at.Password; p != "" {
		text = strings.NewReplacer(p, "...", url.PathEscape(p), "...", url.QueryEscape(p),
			"...").Replace(text)
	}
	if u := d.at.User; u != "" {
		text = strings.NewReplacer(`"`+u+`"`, `"..."`, "'"+u+"'", "'...'", "user="+u+" ",
			"user=... ").Replace(text)
	}
	return text
}
