package hygiene

import (
	"fmt"
	"go/scanner"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Lines of prose and code have at most so many columns. A tab counts four.
const columns = 100

// A string literal of at least so many columns may take its line over the limit: cut in two, it
// could not be searched for.
const longLiteral = 40

func TestHygieneColumns(t *testing.T) {
	report(t, thisRepository(t).columnComplaints())
}

// columnComplaints wants no line of Go or Markdown over the limit. Left out is what nobody can
// break: raw strings, long literals, directives, examples within comments, tables, code blocks of
// Markdown, addresses, and documents that a program writes.
func (s *sourceTree) columnComplaints() (complaints []string) {
	for _, file := range s.files {
		var unbroken func(number int, line string) bool
		switch {
		case path.Ext(file.name) == ".go":
			literals := longLiterals(file.data)
			unbroken = func(number int, line string) bool {
				text := strings.TrimSpace(line)
				return literals[number] || strings.HasPrefix(text, "//\t") ||
					strings.HasPrefix(text, "//go:")
			}
		case path.Ext(file.name) == ".md" && !slices.Contains(written, file.name):
			block := false
			unbroken = func(_ int, line string) bool {
				text := strings.TrimSpace(line)
				if strings.HasPrefix(text, "```") {
					block = !block
				}
				return block || strings.HasPrefix(text, "|") || strings.HasPrefix(text, "#")
			}
		default:
			continue
		}
		number := 0
		for line := range strings.Lines(string(file.data)) {
			number++
			free := unbroken(number, line)
			line = strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", "    ")
			if n := utf8.RuneCountInString(line); n > columns && !free &&
				!strings.Contains(line, "://") {
				complaints = append(complaints, fmt.Sprintf(
					"%s:%d has %d columns; at most %d are allowed", file.name, number, n, columns))
			}
		}
	}
	return complaints
}

// written are documents that programs of this repository write.
var written = []string{"docs/requirements.md", "docs/torture.md", "docs/torture-coordinators.md",
	"docs/benchmarks.md", "docs/benchmarks-systems.md"}

// longLiterals gives the lines of Go source that a raw string or a long literal is on.
func longLiterals(source []byte) map[int]bool {
	lines := make(map[int]bool)
	file := token.NewFileSet().AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok != token.STRING || text[0] == '"' && utf8.RuneCountInString(text) < longLiteral {
			continue
		}
		first := file.Line(pos)
		for i := range strings.Count(text, "\n") + 1 {
			lines[first+i] = true
		}
	}
}

func TestHygieneColumnsSelfTest(t *testing.T) {
	long := strings.Repeat("word ", 20)
	selfTest(t, (*sourceTree).columnComplaints, []treeCase{
		{"what can not be broken", map[string]string{
			"a.go": "package a\n\n//go:generate " + long + "\n\n//\texample " + long +
				"\n\nconst a = `\n" + long + long + "`\n\nconst b = \"" + long + "\"\n",
			"b.md":               "# " + long + "x\n\n| " + long + "\n\n```\n" + long + "x\n```\n",
			"c.md":               "see https://example.com/" + strings.Repeat("x", 100) + "\n",
			"d.txt":              long + long,
			"docs/benchmarks.md": long + long + "\n",
		}, nil},
		{"what can", map[string]string{
			"a.go": "package a\n\n// " + long + "\n\nfunc f() {\n\tprintln(" +
				strings.Repeat("\"w\", ", 20) + "1)\n}\n",
			"b.md": long + "x\n\n```\n" + long + "x\n```\n" + long + "y\n",
			"c.go": "package c\n\n\t\t\t" + strings.Repeat("/", 89) + "\n",
		}, []string{"a.go:3 has 103", "a.go:6", "b.md:1 has 101", "b.md:6", "c.go:3 has 101"}},
	})
}
