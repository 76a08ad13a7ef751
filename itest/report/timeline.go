//go:build unix

package report

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/lab"
)

// span is how much time a picture shows.
const span = 30 * time.Second

const (
	pictureWidth, labelWidth    = 1400, 60
	laneHeight, barHeight       = 26, 18
	faultColor, brokenColor     = "#c9c9c9", "#f2a7a0"
	violationColor, excuseColor = "#d00000", "#e08a00"
)

// colors are the colors of clients, by their slot.
var colors = []string{"#4c78a8", "#59a14f", "#b07aa1", "#9c755f", "#76b7b2", "#edc948"}

// Timeline draws a part of the run as SVG: who held which key, with which token, and what was
// broken meanwhile. It shows the first finding, if there is one, else the part with the most
// faults.
func Timeline(r *lab.Result, found []check.Finding) []byte {
	p := &picture{from: chooseStart(r, found)}
	p.to = p.from + int64(span)
	p.lanes(r)
	height := (len(p.names)+1)*laneHeight + 20
	fmt.Fprintf(&p.b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n",
		pictureWidth, height)
	fmt.Fprintf(&p.b, `<rect width="%d" height="%d" fill="white"/>`+"\n", pictureWidth, height)
	for i, name := range p.names {
		y := p.y(i) + barHeight
		fmt.Fprintf(&p.b,
			`<text x="4" y="%d">%s</text><line x1="%d" x2="%d" y1="%d" y2="%d" stroke="#ddd"/>`+
				"\n", y-5, name, labelWidth, pictureWidth, y+2, y+2)
	}
	for at := p.from; at <= p.to; at += int64(5 * time.Second) {
		fmt.Fprintf(&p.b, `<text x="%.1f" y="%d">%.0f s</text>`+"\n", p.x(at), height-6,
			history.Seconds(at, r.History.Start))
	}
	p.faults(r)
	p.holders(r)
	for _, f := range found {
		color := violationColor
		if f.Excuse != "" {
			color = excuseColor
		}
		if f.At >= p.from && f.At <= p.to {
			fmt.Fprintf(&p.b,
				`<line x1="%.1f" x2="%.1f" y1="0" y2="%d" stroke="%s" stroke-width="1.5" stroke-dasharray="4 3"><title>%s</title></line>`+"\n",
				p.x(f.At), p.x(f.At), height-20, color, html.EscapeString(f.String()))
		}
	}
	p.b.WriteString("</svg>\n")
	return []byte(p.b.String())
}

type picture struct {
	b        strings.Builder
	from, to int64
	names    []string // of the lanes
}

func (p *picture) x(at int64) float64 {
	at = min(max(at, p.from), p.to)
	return labelWidth + float64(at-p.from)/float64(p.to-p.from)*(pictureWidth-labelWidth)
}

func (p *picture) y(lane int) int { return lane*laneHeight + 6 }

// chooseStart gives the start of the part to show.
func chooseStart(r *lab.Result, found []check.Finding) int64 {
	start, end := r.History.Mark(history.Tormented), r.History.Mark(history.Calm)
	latest := max(start, end-int64(span))
	for _, f := range found {
		if f.Check == "exclusion" {
			return min(max(start, f.At-int64(span)/2), latest)
		}
	}
	best, most := start, 0
	for at := start; at <= latest; at += int64(span) / 4 {
		n := 0
		for _, f := range r.History.Faults {
			if f.At >= at && f.At < at+int64(span) {
				n++
			}
		}
		if n > most {
			best, most = at, n
		}
	}
	return best
}

// lanes are nodes, clients and keys.
func (p *picture) lanes(r *lab.Result) {
	for i := range r.Config.Nodes {
		p.names = append(p.names, fmt.Sprintf("n%d", i+1))
	}
	for i := range r.Config.Clients {
		p.names = append(p.names, fmt.Sprintf("c%d", i+1))
	}
	p.names = append(p.names, r.History.Keys()...)
}

func (p *picture) faults(r *lab.Result) {
	for _, f := range r.History.Faults {
		if f.Until < p.from || f.At > p.to {
			continue
		}
		color := faultColor
		if f.Breaks != "" {
			color = brokenColor
		}
		for target := range strings.SplitSeq(f.Target, " ") {
			slot, node, link := strings.Cut(target, "-")
			label := f.Name
			if link {
				label += " to " + node
			}
			p.bar(slot, f.At, f.Until, color, label, f.Name+" "+f.Target+" "+f.Breaks)
		}
	}
}

func (p *picture) holders(r *lab.Result) {
	granted := slices.Clone(r.History.Acquisitions)
	slices.SortFunc(granted, func(a, b *history.Acquisition) int {
		return cmp.Compare(a.Granted, b.Granted)
	})
	ends := make(map[string]int64) // of the last hold drawn, by key
	for _, a := range granted {
		if a.Granted == 0 || a.End() < p.from || a.Granted > p.to {
			continue
		}
		var number int
		fmt.Sscanf(a.Client, "c%d", &number)
		tail := fmt.Sprint(a.Token % 1_000_000_000)
		text := fmt.Sprintf("%v held %s with token %d for %v", a, a.Key, a.Token,
			time.Duration(a.End()-a.Granted).Round(time.Millisecond))
		if a.Lost() {
			text += ", and lost it"
		}
		if a.Granted < ends[a.Key] {
			text += ", beside another holder"
			p.bar(a.Key, a.Granted, min(a.End(), ends[a.Key]), violationColor, "", text)
		}
		ends[a.Key] = max(ends[a.Key], a.End())
		p.bar(a.Key, a.Granted, a.End(), colors[number%len(colors)],
			strings.TrimPrefix(a.Client, "c")+": ..."+tail, text)
	}
}

// bar draws something that lasted, with a label if there is room for it.
func (p *picture) bar(lane string, from, to int64, color, label, title string) {
	i := slices.Index(p.names, lane)
	if i < 0 {
		return
	}
	x, width := p.x(from), max(1, p.x(to)-p.x(from))
	fmt.Fprintf(&p.b,
		`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" fill-opacity="0.8"><title>%s</title></rect>`+"\n",
		x, p.y(i), width, barHeight, color, html.EscapeString(strings.TrimSpace(title)))
	if width > float64(6*len(label)) {
		fmt.Fprintf(&p.b, `<text x="%.1f" y="%d" pointer-events="none">%s</text>`+"\n", x+3,
			p.y(i)+13, html.EscapeString(label))
	}
}
