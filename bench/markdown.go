package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/bench/internal/stats"
)

// What stands between these lines of a document is written by the program.
const (
	measuredBegins = "<!-- What follows is written by the program in bench, up to the line that says so. -->"
	measuredEnds   = "<!-- Here ends what is written by the program in bench. -->"
)

// writeMarkdown replaces the part of the document that is the program's own. Where there is none yet, it comes last.
// Pictures are those that are in the directory pictures.
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
	fmt.Fprintf(out, "A %s run of %d rounds, %.1f minutes: %s with %d CPUs, %s, Redis %s", r.Plan, r.Rounds, r.Seconds/60, r.System, r.CPUs, r.Go, r.Redis)
	for _, name := range slices.Sorted(maps.Keys(r.Programs)) {
		fmt.Fprintf(out, ", %s", r.Programs[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Modules)) {
		fmt.Fprintf(out, ", `%s` %s", name, r.Modules[name])
	}
	fmt.Fprintf(out, ".\n\n### Behind\n\n")
	behind := r.behind()
	if len(behind) == 0 {
		fmt.Fprintf(out, "No other library is ahead in the first column of any table.\n\n")
	} else {
		fmt.Fprintf(out, "Who is ahead of Holdfast in the first column of a table, by more than %.0f %%:\n\n", (ahead-1)*100)
		fmt.Fprintf(out, "| scenario | who | is ahead by | why |\n|---|---|---|---|\n")
		for _, row := range behind {
			fmt.Fprintf(out, "| [%s](#%s) | %s | %.2f x | %s |\n", row.scenario, row.scenario, row.driver, row.factor, row.reason)
		}
		fmt.Fprintln(out)
	}
	missed := r.missed()
	if len(missed) > 0 {
		fmt.Fprintf(out, "Goals that were not reached:\n\n| scenario | goal | value | why |\n|---|---|---|---|\n")
		for _, row := range missed {
			fmt.Fprintf(out, "| [%s](#%s) | %s | %.4g | %s |\n", row.scenario, row.scenario, row.goal, row.factor, row.reason)
		}
		fmt.Fprintln(out)
	}
	for _, s := range r.Scenarios {
		s.markdown(out, pictures, link)
	}
}

func (s *scenarioReport) markdown(out io.Writer, pictures, link string) {
	// A link to a heading drops the dots that a name may have, so names have none.
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
	fmt.Fprint(out, "| |")
	for i, m := range s.Metrics {
		fmt.Fprintf(out, " %s |", strings.TrimSpace(m.Name+" "+m.Unit))
		if i == 0 {
			fmt.Fprint(out, " spread |")
			if s.Floor != "" {
				fmt.Fprintf(out, " x %s |", s.Floor)
			}
			fmt.Fprint(out, " x best peer |")
		}
	}
	columns := len(s.Metrics) + 2
	if s.Floor != "" {
		columns++
	}
	fmt.Fprintf(out, "\n|---|%s\n", strings.Repeat("---:|", columns))
	for _, d := range s.Drivers {
		if len(d.Metrics) == 0 {
			continue
		}
		fmt.Fprintf(out, "| %s |", d.Name)
		for i, m := range s.Metrics {
			v := d.Metrics[m.Name]
			if v == nil {
				fmt.Fprint(out, " - |")
				v = new(metricReport)
			} else {
				fmt.Fprintf(out, " %.*f |", m.Decimals, v.Median)
			}
			if i > 0 {
				continue
			}
			if len(v.Rounds) > 1 {
				fmt.Fprintf(out, " %.*f .. %.*f |", m.Decimals, v.Min, m.Decimals, v.Max)
			} else {
				fmt.Fprint(out, " - |")
			}
			if s.Floor != "" {
				fmt.Fprintf(out, " %s |", ratioText(v.ToFloor))
			}
			fmt.Fprintf(out, " %s |", ratioText(v.ToBestPeer))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out)
	for _, d := range s.Drivers {
		if d.Error != "" {
			fmt.Fprintf(out, "- %s failed: %s\n", d.Name, strings.Join(strings.Fields(d.Error), " "))
		}
	}
	for _, g := range s.Goals {
		switch {
		case g.Value == nil:
			fmt.Fprintf(out, "- not measured: %s\n", g.Goal)
		case *g.Reached:
			fmt.Fprintf(out, "- reached: %s: %.4g\n", g.Goal, *g.Value)
		default:
			fmt.Fprintf(out, "- **not reached**: %s: %.4g\n", g.Goal, *g.Value)
		}
	}
	fmt.Fprintln(out)
}

// ahead is from which factor on another library is ahead: what is less differs from run to run.
const ahead = 1.03

type shortfall struct {
	scenario, driver, goal string
	factor                 float64
	reason                 string
}

// behind compares the first metric of each scenario with that of all other libraries.
func (r *report) behind() (rows []shortfall) {
	for _, s := range r.Scenarios {
		m := s.Metrics[0]
		mine := s.value(ours, m.Name)
		if mine == nil {
			continue
		}
		for _, d := range s.Drivers {
			theirs := d.Metrics[m.Name]
			if theirs == nil || !slices.Contains(peers, d.Name) && !slices.Contains(outside, d.Name) {
				continue
			}
			// Round by round: what slows down a whole round is in both.
			factor := stats.Ratio(theirs.Rounds, mine.Rounds)
			if m.Better < 0 {
				factor = stats.Ratio(mine.Rounds, theirs.Rounds)
			}
			if factor > ahead {
				rows = append(rows, shortfall{scenario: s.Name, driver: d.Name, factor: factor, reason: reason(s.Name, d.Name)})
			}
		}
	}
	return rows
}

// missed are the goals that were not reached.
func (r *report) missed() (rows []shortfall) {
	for _, s := range r.Scenarios {
		for _, g := range s.Goals {
			if g.Reached != nil && !*g.Reached {
				rows = append(rows, shortfall{scenario: s.Name, goal: g.Goal, factor: *g.Value, reason: reason(s.Name, g.Goal)})
			}
		}
	}
	return rows
}

func (s *scenarioReport) value(driver, metric string) *metricReport {
	for _, d := range s.Drivers {
		if d.Name == driver {
			return d.Metrics[metric]
		}
	}
	return nil
}
