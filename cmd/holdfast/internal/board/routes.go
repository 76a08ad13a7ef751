package board

import (
	"embed"
	"net/http"
)

// page has the files of the page.
//
//go:embed page
var page embed.FS

// files are those that a browser may ask for, with their types.
var files = [...]struct{ path, name, kind string }{
	{"/{$}", "index.html", "text/html; charset=utf-8"},
	{"/board.css", "board.css", "text/css; charset=utf-8"},
	{"/board.js", "board.js", "text/javascript; charset=utf-8"},
	{"/graph.js", "graph.js", "text/javascript; charset=utf-8"},
	{"/history.js", "history.js", "text/javascript; charset=utf-8"},
	{"/words.js", "words.js", "text/javascript; charset=utf-8"},
	{"/icon.svg", "icon.svg", "image/svg+xml"},
}

func (b *Board) routes() {
	b.mux = http.NewServeMux()
	for _, f := range files {
		text, err := page.ReadFile("page/" + f.name)
		if err != nil {
			panic(err) // it was compiled in
		}
		b.mux.HandleFunc("GET "+f.path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", f.kind)
			_, _ = w.Write(text)
		})
	}
	b.mux.HandleFunc("GET /events", b.known(b.events))
	b.mux.HandleFunc("GET /lock", b.known(b.lock))
	b.mux.HandleFunc("GET /session", b.known(b.session))
	b.mux.HandleFunc("POST /login", change(b.login))
	b.mux.HandleFunc("POST /release", b.known(change(b.release)))
}
