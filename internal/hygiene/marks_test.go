package hygiene

import (
	"bytes"
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestHygieneMarks(t *testing.T) {
	report(t, thisRepository(t).markComplaints())
}

// The patterns are put together from halves, so that this file does not match them.
var unfinished = regexp.MustCompile(`\b(` + "TO" + `DO|FIX` + `ME|X` + `XX)\b`)

var machinePaths = regexp.MustCompile(`(/ro` + `ot/|/ho` + `me/|/Us` + `ers/|[A-Z]:\\+Us` +
	`ers\\|/wo` + `rk/)`)

// clues are what any match has in it. Most files have none of them, and are looked at no further:
// with the race detector, the patterns take minutes for all lines on a busy machine.
var clues = []string{"TO" + "DO", "FIX" + "ME", "X" + "XX", "/ro" + "ot/", "/ho" + "me/",
	"Us" + "ers", "/wo" + "rk/"}

func hasClue(data []byte) bool {
	return slices.ContainsFunc(clues, func(clue string) bool {
		return bytes.Contains(data, []byte(clue))
	})
}

// markComplaints wants nothing unfinished and nothing that holds only on the machine where it was
// written.
func (s *sourceTree) markComplaints() (complaints []string) {
	for _, file := range s.files {
		switch path.Base(file.name) {
		case "go.sum", "go.work.sum", "package-lock.json":
			continue // checksums: any letters may occur
		}
		if bytes.IndexByte(file.data, 0) >= 0 || !hasClue(file.data) {
			continue
		}
		number := 0
		for line := range strings.Lines(string(file.data)) {
			number++
			if mark := unfinished.FindString(line); mark != "" {
				complaints = append(complaints,
					fmt.Sprintf("%s:%d says %s: finish it, or say in plain words what is not done",
						file.name, number, mark))
			}
			if mark := machinePaths.FindString(line); mark != "" {
				complaints = append(complaints, fmt.Sprintf("%s:%d names %s, a path of one machine",
					file.name, number, mark))
			}
		}
	}
	return complaints
}

func TestHygieneMarksSelfTest(t *testing.T) {
	selfTest(t, (*sourceTree).markComplaints, []treeCase{
		{"nothing", map[string]string{
			"a.md": "TO" + "DOS mktemp X" + "XXXXX, $HO" +
				"ME/x, /var/lib/redis, /tmp/x, /home" + "made/x\n",
			"go.sum":       "h1:TO" + "DO/X" + "XX/\n",
			"testdata/bin": "\x00TO" + "DO",
		}, nil},
		{"unfinished", map[string]string{
			"a.go":         "package a\n\n// FIX" + "ME: later\n",
			"b.sh":         "# X" + "XX\n",
			"c.md":         "TO" + "DO(me)\n",
			"d.go":         "package a\nimport \"context\"\nvar _ = context.TO" + "DO()\n",
			"testdata/e.x": "TO" + "DO",
		}, []string{"a.go:3 says", "b.sh:1", "c.md:1", "d.go:3", "testdata/e.x:1"}},
		{"paths", map[string]string{
			"a.go": "package a\n\nvar dir = \"/ho" + "me/alice\"\n",
			"b.md": "in /wo" + "rk/main and\nC:\\Us" + "ers\\alice\n",
			"c":    "/ro" + "ot/x",
		}, []string{"a.go:3 names", "b.md:1", "b.md:2", "c:1"}},
	})
}

func TestHygieneSkips(t *testing.T) {
	report(t, thisRepository(t).skipComplaints())
}

// skipComplaints wants every test to run or to fail: what is skipped looks like what passed. A test
// that makes sense on some systems only goes into a file with a build constraint.
func (s *sourceTree) skipComplaints() (complaints []string) {
	for _, file := range s.goFiles() {
		if !file.imports("testing") {
			continue
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok {
				if selector, ok := call.Fun.(*ast.SelectorExpr); ok &&
					slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, selector.Sel.Name) {
					complaints = append(complaints,
						fmt.Sprintf(
							"%s calls %s: a test runs or fails; constrain the file to the systems "+
								"where it makes sense, and fail where a server is missing",
							s.at(call), selector.Sel.Name))
				}
			}
			return true
		})
	}
	return complaints
}

func TestHygieneSkipsSelfTest(t *testing.T) {
	selfTest(t, (*sourceTree).skipComplaints, []treeCase{
		{"none", map[string]string{
			"a_test.go": "package a\nimport \"testing\"\nfunc TestSkip(t *testing.T) { t.Fatal(\"t.Skip()\") }\n",
			"a.go":      "package a\nfunc f(s interface{ Skip() }) { s.Skip() }\n",
		}, nil},
		{"each kind", map[string]string{
			"a_test.go":       "package a\nimport \"testing\"\nfunc f(t testing.TB) {\nt.Skip()\nt.Skipf(\"\")\nt.SkipNow()\n}\n",
			"drivertest/a.go": "package drivertest\nimport \"testing\"\nfunc f(b *testing.B) { func() { b.Skip() }() }\n",
		}, []string{"a_test.go:4", "a_test.go:5", "a_test.go:6", "drivertest/a.go:3"}},
	})
}

func TestHygieneCommands(t *testing.T) {
	report(t, thisRepository(t).commandComplaints())
}

var (
	makeTarget    = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	makeInText    = regexp.MustCompile("`make ([a-z][a-z-]*)")
	makeInCommand = regexp.MustCompile(`^\s*(?:\$ )?make ([a-z][a-z-]*)`)
	makeInScript  = regexp.MustCompile(`(?m)^[^#\n]*\bmake (?:-\S+ )*([a-z][a-z-]*)`)
)

// commandComplaints wants CI to run the very command that the README names, and every make target
// that a document or CI names to exist.
func (s *sourceTree) commandComplaints() (complaints []string) {
	text := func(name string) string {
		if file := s.file(name); file != nil {
			return string(file.data)
		}
		complaints = append(complaints, name+" is missing")
		return ""
	}
	targets := make(map[string]bool)
	for _, match := range makeTarget.FindAllStringSubmatch(text("Makefile"), -1) {
		targets[match[1]] = true
	}
	readme := documentedTargets(text("README.md"))
	if !slices.Contains(readme, "test") {
		complaints = append(complaints, "README.md does not name `make test`")
	}
	var ci []string
	for _, match := range makeInScript.FindAllStringSubmatch(text(".ci/run"), -1) {
		ci = append(ci, match[1])
	}
	if !slices.Contains(ci, "test") {
		complaints = append(complaints,
			".ci/run does not call make test, the command in the README")
	}
	for name, named := range map[string][]string{"README.md": readme,
		"CONTRIBUTING.md": documentedTargets(text("CONTRIBUTING.md")), ".ci/run": ci} {
		for _, target := range named {
			if !targets[target] {
				complaints = append(complaints,
					fmt.Sprintf("%s names make %s, which the Makefile does not have", name, target))
			}
		}
	}
	slices.Sort(complaints)
	return complaints
}

// documentedTargets finds make's targets in a Markdown text: in code spans, and at the start of
// lines of fenced code.
func documentedTargets(markdown string) (targets []string) {
	fenced := false
	for line := range strings.Lines(markdown) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			if match := makeInCommand.FindStringSubmatch(line); match != nil {
				targets = append(targets, match[1])
			}
			continue
		}
		for _, match := range makeInText.FindAllStringSubmatch(line, -1) {
			targets = append(targets, match[1])
		}
	}
	return targets
}

func TestHygieneCommandsSelfTest(t *testing.T) {
	good := map[string]string{
		"Makefile":        "VAR := x\ntest: needs ## Tests\n\tgo test\nneeds:\ntest-kernel:\n",
		"README.md":       "Run\n```\n$ make test   # everything\n```\nmake sure that you do, or `make test-kernel`.\n",
		"CONTRIBUTING.md": "`make test`\n",
		".ci/run":         "# make nothing\nset -e\nstage tests make --keep-going test\n",
	}
	with := func(name, data string) map[string]string {
		files := make(map[string]string)
		for n, d := range good {
			files[n] = d
		}
		files[name] = data
		if data == "" {
			delete(files, name)
		}
		return files
	}
	selfTest(t, (*sourceTree).commandComplaints, []treeCase{
		{"agree", good, nil},
		{"not in the README", with("README.md", "make test\n"),
			[]string{"README.md does not name"}},
		{"no README", with("README.md", ""),
			[]string{"README.md does not name", "README.md is missing"}},
		{"not in CI", with(".ci/run", "# make test\ngo test ./...\n"),
			[]string{".ci/run does not call make test"}},
		{"no CI", with(".ci/run", ""), []string{".ci/run does not call make test",
			".ci/run is missing"}},
		{"target gone", with("CONTRIBUTING.md", "`make tests`\n"),
			[]string{"CONTRIBUTING.md names make tests"}},
	})
}
