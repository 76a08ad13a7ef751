package hygiene

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestHygieneUpdates(t *testing.T) {
	if downloaded(t) {
		return
	}
	report(t, thisRepository(t).updateComplaints())
}

const updatesName = ".github/dependabot.yml"

// ecosystems are the files that name dependencies, by what Dependabot calls their kind.
var ecosystems = map[string]string{
	"go.mod": "gomod", "package.json": "npm", "Dockerfile": "docker",
}

// updateComplaints wants newer versions to be proposed for everything that has dependencies: what
// is not listed grows old, and with it the weaknesses that others have mended.
func (s *sourceTree) updateComplaints() (complaints []string) {
	file := s.file(updatesName)
	if file == nil {
		return []string{updatesName + " is missing: nobody hears of newer dependencies"}
	}
	listed := updateDirectories(string(file.data))
	var there []string
	for _, f := range s.files {
		kind, ok := ecosystems[path.Base(f.name)]
		if !ok || inTestdata(f.name) {
			continue
		}
		entry := kind + " " + path.Join("/", path.Dir(f.name))
		there = append(there, entry)
		if !slices.Contains(listed, entry) {
			complaints = append(complaints, fmt.Sprintf("%s does not list %s under %s", updatesName,
				path.Dir(f.name), kind))
		}
	}
	for _, entry := range listed {
		if kind, _, _ := strings.Cut(entry, " "); kind != "github-actions" &&
			!slices.Contains(there, entry) {
			complaints = append(complaints, fmt.Sprintf("%s lists %q, where there is nothing",
				updatesName, entry))
		}
	}
	return complaints
}

var (
	updateKind      = regexp.MustCompile(`^ *- package-ecosystem: *"?([a-z-]+)"?$`)
	updateDirectory = regexp.MustCompile(`^ *(?:directory:|-) *"(/[^"]*)"$`)
)

// updateDirectories returns the kind and the directory of each entry.
func updateDirectories(text string) (entries []string) {
	kind := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if match := updateKind.FindStringSubmatch(line); match != nil {
			kind = match[1]
		} else if match := updateDirectory.FindStringSubmatch(line); match != nil {
			entries = append(entries, kind+" "+match[1])
		}
	}
	return entries
}

func TestHygieneUpdatesSelfTest(t *testing.T) {
	const both = "updates:\n  - package-ecosystem: gomod\n    directories:\n      - \"/\"\n" +
		"      - \"/cmd/holdfast\"\n    ignore:\n      - dependency-name: \"x\"\n" +
		"  - package-ecosystem: npm\n    directory: \"/js\"\n" +
		"  - package-ecosystem: github-actions\n    directory: \"/\"\n"
	const command = "module " + kernelPath + "/cmd/holdfast\n"
	selfTest(t, (*sourceTree).updateComplaints, []treeCase{
		{"complete", map[string]string{updatesName: both, "cmd/holdfast/go.mod": command,
			"js/package.json": "{}", "a/testdata/package.json": "{}"}, nil},
		{"no file", map[string]string{}, []string{"is missing"}},
		{"not listed", map[string]string{updatesName: both, "cmd/holdfast/go.mod": command,
			"js/package.json": "{}", "js/other/package.json": "{}",
			"redishold/go.mod": "module " + kernelPath + "/redishold\n"},
			[]string{"does not list js/other under npm", "does not list redishold under gomod"}},
		{"listed as something else", map[string]string{updatesName: both,
			"cmd/holdfast/Dockerfile": "", "cmd/holdfast/go.mod": command, "js/package.json": "{}"},
			[]string{"does not list cmd/holdfast under docker"}},
		{"not there", map[string]string{updatesName: both},
			[]string{`lists "gomod /cmd/holdfast"`, `lists "npm /js"`}},
	})
}
