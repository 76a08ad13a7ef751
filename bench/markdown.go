package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

// The program writes what stands between these lines of a document.
const (
	measuredBegins = "<!-- What follows is written by the program in bench, up to the line that says so. -->"
	measuredEnds   = "<!-- Here ends what is written by the program in bench. -->"
)

// writeMarkdown replaces the program's part of the document, or appends it if there is none. It
// links the pictures that are in the directory pictures.
func (r *report) writeMarkdown(file, pictures string) error {
	data, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	before, rest, found := strings.Cut(string(data), measuredBegins)
	after := ""
	if found {
		if _, after, found = strings.Cut(rest, measuredEnds); !found {
			return fmt.Errorf("%s: the line %q is missing", file, measuredEnds)
		}
	} else if before != "" {
		before += "\n"
	}
	link := ""
	if pictures != "" {
		if link, err = filepath.Rel(filepath.Dir(file), pictures); err != nil {
			return err
		}
	}
	var b strings.Builder
	b.WriteString(before + measuredBegins + "\n\n")
	r.markdown(&b, pictures, filepath.ToSlash(link))
	b.WriteString(measuredEnds)
	if after == "" {
		after = "\n"
	}
	b.WriteString(after)
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

func (r *report) markdown(out io.Writer, pictures, link string) {
	fmt.Fprintf(out, "A %s run of %d rounds, %.1f minutes: %s.\n\n### Behind\n\n", r.Plan, r.Rounds,
		r.Seconds/60, r.conditions())
	if behind := r.behind(); len(behind) == 0 {
		fmt.Fprintf(out, "No other library is ahead in the first column of any table.\n\n")
	} else {
		fmt.Fprintf(out,
			"Who is ahead of Holdfast in the first column of a table, by more than %.0f %%:\n\n",
			(ahead-1)*100)
		writeShortfalls(out, "| scenario | who | is ahead by | why |", "%.2f x", behind)
	}
	if missed := r.missed(); len(missed) > 0 {
		fmt.Fprintf(out, "Goals that were not reached:\n\n")
		writeShortfalls(out, "| scenario | goal | value | why |", "%.4g", missed)
	}
	for _, s := range r.Scenarios {
		s.markdown(out, pictures, link)
	}
}

func writeShortfalls(out io.Writer, head, format string, rows []shortfall) {
	fmt.Fprintf(out, "%s\n|---|---|---|---|\n", head)
	for _, row := range rows {
		fmt.Fprintf(out, "| [%s](#%s) | %s | "+format+" | %s |\n", row.scenario, row.scenario,
			row.what, row.value, row.reason)
	}
	fmt.Fprintln(out)
}

func (s *scenarioReport) markdown(out io.Writer, pictures, link string) {
	// Names must have no dots: a link to a heading drops them.
	fmt.Fprintf(out, "### %s\n\n%s.\n\n", s.Name, strings.ToUpper(s.Title[:1])+s.Title[1:])
	for _, c := range charts {
		last := c.scenarios[len(c.scenarios)-1]
		if pictures == "" || last != s.Name && !(c.curve && strings.HasPrefix(s.Name, last)) {
			continue
		}
		name := c.file + ".svg"
		if _, err := os.Stat(filepath.Join(pictures, name)); err == nil {
			fmt.Fprintf(out, "![%s](%s/%s)\n\n", c.title, link, name)
		}
	}
	for i, row := range s.table() {
		fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(out, "|---|%s\n", strings.Repeat("---:|", len(row)-1))
		}
	}
	fmt.Fprintln(out)
	for _, line := range s.remarks() {
		fmt.Fprintln(out, "-", line)
	}
	fmt.Fprintln(out)
}

// ahead is the factor from which on another library counts as ahead. Less differs from run to run.
const ahead = 1.03

// shortfall is a library that is ahead, or a goal that was not reached.
type shortfall struct {
	scenario, what string
	value          float64
	reason         string
}

// behind returns the libraries that are ahead of Holdfast by the first metric of a scenario.
func (r *report) behind() (rows []shortfall) {
	for _, s := range r.Scenarios {
		m := s.Metrics[0]
		mine := s.value(s.ours(), m.Name)
		if mine == nil {
			continue
		}
		for _, name := range slices.Concat(peers, others) {
			theirs := s.value(name, m.Name)
			if theirs == nil {
				continue
			}
			// Round by round: a slow round is slow for both.
			factor := stats.Ratio(theirs.Rounds, mine.Rounds)
			if m.Better < 0 {
				factor = stats.Ratio(mine.Rounds, theirs.Rounds)
			}
			if factor > ahead {
				rows = append(rows, shortfall{s.Name, name, factor, reason(s.Name, name)})
			}
		}
	}
	return rows
}

// missed returns the goals that were not reached.
func (r *report) missed() (rows []shortfall) {
	for _, s := range r.Scenarios {
		for _, g := range s.Goals {
			if g.Reached != nil && !*g.Reached {
				rows = append(rows, shortfall{s.Name, g.Goal, *g.Value, reason(s.Name, g.Goal)})
			}
		}
	}
	return rows
}

// ours returns the first driver that is Holdfast, or "".
func (s *scenarioReport) ours() string {
	for _, d := range s.Drivers {
		if strings.HasPrefix(d.Name, ours) {
			return d.Name
		}
	}
	return ""
}

func (s *scenarioReport) value(driver, metric string) *metricReport {
	for _, d := range s.Drivers {
		if d.Name == driver {
			return d.Metrics[metric]
		}
	}
	return nil
}
