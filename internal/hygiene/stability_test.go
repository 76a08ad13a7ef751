package hygiene

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestHygieneStability(t *testing.T) {
	if downloaded(t) {
		return
	}
	report(t, thisRepository(t).stabilityComplaints())
}

const stabilityName, stabilityHeader = "RELEASING.md", "| module | stable | experimental |"

var codeSpan = regexp.MustCompile("`([^`]+)`")

// stabilityComplaints wants the table that says what is stable to have every released module once,
// and to name only packages that are there.
func (s *sourceTree) stabilityComplaints() (complaints []string) {
	complain := func(format string, args ...any) {
		complaints = append(complaints, fmt.Sprintf(format, args...))
	}
	file := s.file(stabilityName)
	if file == nil {
		return []string{stabilityName + " is missing: it says what is stable"}
	}
	_, table, found := strings.Cut(string(file.data), stabilityHeader+"\n")
	if !found {
		return []string{stabilityName + " has no table that begins " + stabilityHeader}
	}
	packages := make(map[string]bool)
	for _, f := range s.goFiles() {
		packages[f.dir()] = true
	}
	listed := make(map[string]int)
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			break
		}
		for _, name := range codeSpan.FindAllStringSubmatch(cells[1], -1) {
			listed[name[1]]++
		}
		for _, name := range codeSpan.FindAllStringSubmatch(cells[2]+cells[3], -1) {
			if !packages[name[1]] && !strings.HasPrefix(name[1], "--") {
				complain("%s names %s, where there is no package", stabilityName, name[1])
			}
		}
	}
	for _, module := range s.modules {
		switch internal := slices.Contains(neverReleased, module.dir); {
		case !internal && listed[module.dir] != 1:
			complain("%s has %s %d times in the table of what is stable, want once", stabilityName,
				module.dir, listed[module.dir])
		case internal && listed[module.dir] > 0:
			complain("%s has %s in the table of what is stable, and it is never released",
				stabilityName, module.dir)
		}
		delete(listed, module.dir)
	}
	for name := range listed {
		complain("%s names %s, where there is no module", stabilityName, name)
	}
	return complaints
}

func TestHygieneStabilitySelfTest(t *testing.T) {
	const header = "text\n\n" + stabilityHeader + "\n|---|---|---|\n"
	tree := func(table string) map[string]string {
		return map[string]string{
			stabilityName:      table,
			"a.go":             "package holdfast\n",
			"driver/driver.go": "package driver\n",
			"redishold/go.mod": "module " + kernelPath + "/redishold\n",
			"simulate/go.mod":  "module " + kernelPath + "/simulate\n",
		}
	}
	selfTest(t, (*sourceTree).stabilityComplaints, []treeCase{
		{"complete", tree(header +
			"| `.` | all but `driver` | `--json` |\n| `redishold` | | |\n\n`gone`\n"), nil},
		{"no document", map[string]string{}, []string{"is missing"}},
		{"no table", tree("# Releasing\n"), []string{"no table"}},
		{"a module is missing", tree(header + "| `.` | | |\n"),
			[]string{"has redishold 0 times"}},
		{"a module is there twice", tree(header + "| `.`, `redishold` | | |\n| `.` | | |\n"),
			[]string{"has . 2 times"}},
		{"what is never released", tree(header + "| `.`, `redishold`, `simulate` | | |\n"),
			[]string{"never released"}},
		{"what is gone", tree(header + "| `.`, `redishold`, `gone` | `away` | |\n"),
			[]string{"names away", "names gone"}},
	})
}
