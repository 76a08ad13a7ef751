package hygiene

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestHygieneModules(t *testing.T) {
	if downloaded(t) {
		return
	}
	report(t, thisRepository(t).moduleComplaints())
}

// downloaded reports whether this is the kernel's module alone, as go get leaves it: the workspace
// file is there and the modules that it lists are not.
func downloaded(t *testing.T) bool {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(filepath.Base(dir), "@v")
}

// goFloor is the oldest Go that the modules build with.
var goFloor = regexp.MustCompile(`^1\.25(\.\d+)?$`)

// higherFloors are the satellites whose dependencies need a newer Go: directory and version.
var higherFloors = map[string]string{}

// moduleComplaints wants every go.mod listed in go.work, so that one command tests everything; the
// same floor in all of them; and nothing in the kernel's go.mod that would reach its users.
func (s *sourceTree) moduleComplaints() (complaints []string) {
	complain := func(format string, args ...any) {
		complaints = append(complaints, fmt.Sprintf(format, args...))
	}
	listed := make(map[string]bool)
	if work := s.file("go.work"); work == nil {
		complain("go.work is missing: it makes the modules one project")
	} else {
		for _, d := range directives(work.data) {
			switch d[0] {
			case "use":
				listed[path.Clean(d[1])] = true
			case "go", "toolchain":
			default:
				complain(
					"go.work has a %q: what holds only in the workspace breaks those who get a single module",
					d[0])
			}
		}
	}
	for _, module := range s.modules {
		if !listed[module.dir] {
			complain("go.work does not list ./%s, so its tests are not run", module.dir)
		}
		delete(listed, module.dir)
		if want := path.Join(kernelPath, module.dir); module.path != want {
			complain("%s/go.mod calls the module %q, want %q", module.dir, module.path, want)
		}
		version := ""
		for _, d := range directives(module.mod) {
			if d[0] == "go" {
				version = d[1]
			}
			if module.isKernel() && !slices.Contains([]string{"module", "go", "retract", "ignore"},
				d[0]) {
				complain(
					"go.mod has a %q: the kernel requires nothing, and what it pins would bind whoever imports it",
					d[0])
			}
		}
		if floor, higher := higherFloors[module.dir]; higher && version != floor || !higher &&
			!goFloor.MatchString(version) {
			complain(
				"%s/go.mod says go %s: the floor is 1.25, and a module that needs more is listed in higherFloors",
				module.dir, version)
		}
	}
	for dir := range listed {
		complain("go.work lists ./%s, which has no go.mod", dir)
	}
	return complaints
}

// directives splits go.mod and go.work into their directives, those in parentheses one each.
func directives(data []byte) (found [][]string) {
	block := ""
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "//")
		fields := strings.Fields(text)
		switch {
		case len(fields) == 0:
		case block != "" && fields[0] == ")":
			block = ""
		case block != "":
			found = append(found, append([]string{block}, fields...))
		case len(fields) == 2 && fields[1] == "(":
			block = fields[0]
		default:
			found = append(found, append(fields, ""))
		}
	}
	return found
}

func TestHygieneModulesSelfTest(t *testing.T) {
	const kernel = "module " + kernelPath + "\n\ngo 1.25.0\n"
	const command = "module " + kernelPath + "/cmd/holdfast\n\ngo 1.25.0\n"
	selfTest(t, (*sourceTree).moduleComplaints, []treeCase{
		{"complete", map[string]string{
			"go.work":             "go 1.25.0\n\nuse (\n\t. // the kernel\n\t./cmd/holdfast\n)\n",
			"cmd/holdfast/go.mod": command + "require example.com/x v1.0.0\n",
		}, nil},
		{"single lines", map[string]string{"go.work": "go 1.25.0\nuse .\nuse ./cmd/holdfast\n",
			"cmd/holdfast/go.mod": command}, nil},
		{"no workspace", map[string]string{}, []string{"go.work is missing", "does not list ./."}},
		{"not listed", map[string]string{"go.work": "go 1.25.0\nuse .\n",
			"cmd/holdfast/go.mod": command}, []string{"does not list ./cmd/holdfast"}},
		{"not there", map[string]string{"go.work": "go 1.25.0\nuse .\nuse ./gone\n"},
			[]string{"lists ./gone"}},
		{"replaced in the workspace",
			map[string]string{"go.work": "go 1.25.0\nuse .\nreplace a => ./a\n"},
			[]string{`"replace"`}},
		{"floor too high",
			map[string]string{"go.work": "use .\n", "go.mod": "module " + kernelPath +
				"\ngo 1.26.0\n"}, []string{"says go 1.26.0"}},
		{"floor too low", map[string]string{"go.work": "use .\n", "go.mod": "module " + kernelPath +
			"\ngo 1.24\n"}, []string{"says go 1.24"}},
		{"no floor", map[string]string{"go.work": "use .\n", "go.mod": "module " + kernelPath +
			"\n"}, []string{"says go :"}},
		{"kernel requires",
			map[string]string{"go.work": "use .\n",
				"go.mod": kernel + "require (\n\ta v1.0.0\n)\n"}, []string{`"require"`}},
		{"kernel has a tool",
			map[string]string{"go.work": "use .\n", "go.mod": kernel + "tool a\n"},
			[]string{`"tool"`}},
		{"another path", map[string]string{"go.work": "use .\nuse ./x\n",
			"x/go.mod": "module example.com/x\ngo 1.25\n"},
			[]string{"want \"" + kernelPath + "/x\""}},
	})
}
