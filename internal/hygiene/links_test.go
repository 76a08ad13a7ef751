package hygiene

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

func TestHygieneLinks(t *testing.T) {
	if downloaded(t) {
		return
	}
	report(t, thisRepository(t).linkComplaints())
}

var (
	// The text of a link may hold a picture, and its target a title behind a space.
	inlineLink  = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)`)
	definedLink = regexp.MustCompile(`^\s{0,3}\[[^\]]+\]:\s+<?([^\s>]+)`)
	inlineCode  = regexp.MustCompile("``.+?``|`[^`]+`")
	heading     = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*\s*$`)
	linkText    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	scheme      = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*:`)
)

// linkComplaints wants every relative link of a document to lead to a file of the repository, or to
// a directory of it, and every anchor to a heading. Nobody follows the links of a document that was
// right when it was written; and what is ignored by git is there for its author only.
func (s *sourceTree) linkComplaints() (complaints []string) {
	anchors := make(map[string][]string)
	for _, file := range s.files {
		if isDocument(file) {
			anchors[file.name] = anchorsOf(file.data)
		}
	}
	for _, file := range s.files {
		if !isDocument(file) {
			continue
		}
		complain := func(number int, target, why string) {
			complaints = append(complaints,
				fmt.Sprintf("%s:%d links to %s: %s", file.name, number, target, why))
		}
		prose(file.data, func(number int, line string) {
			for _, target := range targetsOf(line) {
				if scheme.MatchString(target) || strings.HasPrefix(target, "//") {
					continue
				}
				escaped, anchor, anchored := strings.Cut(target, "#")
				name, err := url.PathUnescape(escaped)
				if err != nil {
					complain(number, target, err.Error())
					continue
				}
				if name == "" {
					name = file.name
				} else {
					name = path.Join(path.Dir(file.name), name)
				}
				switch headings, document := anchors[name]; {
				case !s.has(name):
					complain(number, target, "there is no such file")
				case anchored && document && !slices.Contains(headings, anchor):
					complain(number, target, "there is no such heading")
				}
			}
		})
	}
	return complaints
}

func isDocument(file *sourceFile) bool {
	return path.Ext(file.name) == ".md" && !inTestdata(file.name)
}

// has reports whether there is a file of that name, or a directory with files.
func (s *sourceTree) has(name string) bool {
	return name == "." || s.file(name) != nil ||
		slices.ContainsFunc(s.files, func(f *sourceFile) bool {
			return strings.HasPrefix(f.name, name+"/")
		})
}

// targetsOf returns where the links and pictures in a line of Markdown lead.
func targetsOf(line string) (targets []string) {
	line = inlineCode.ReplaceAllString(line, "")
	for _, match := range inlineLink.FindAllStringSubmatch(line, -1) {
		targets = append(targets, match[1])
	}
	if match := definedLink.FindStringSubmatch(line); match != nil {
		targets = append(targets, match[1])
	}
	return targets
}

// prose calls f with the lines of a document that are in no fenced block.
func prose(document []byte, f func(number int, line string)) {
	fence, number := "", 0
	for line := range strings.Lines(string(document)) {
		number++
		line = strings.TrimRight(line, "\r\n")
		text := strings.TrimSpace(line)
		switch {
		case fence != "":
			if strings.HasPrefix(text, fence) {
				fence = ""
			}
		case strings.HasPrefix(text, "```"), strings.HasPrefix(text, "~~~"):
			fence = text[:3]
		default:
			f(number, line)
		}
	}
}

// anchorsOf returns the anchors of a document's headings, as GitHub makes them: small letters,
// hyphens for spaces, no punctuation, and a number for a heading that was there before.
func anchorsOf(document []byte) (anchors []string) {
	prose(document, func(_ int, line string) {
		match := heading.FindStringSubmatch(line)
		if match == nil {
			return
		}
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, linkText.ReplaceAllString(match[1], "$1"))
		unique := anchor
		for n := 1; slices.Contains(anchors, unique); n++ {
			unique = anchor + "-" + strconv.Itoa(n)
		}
		anchors = append(anchors, unique)
	})
	return anchors
}

func TestHygieneLinksSelfTest(t *testing.T) {
	selfTest(t, (*sourceTree).linkComplaints, []treeCase{
		{"that lead somewhere", map[string]string{
			"README.md": "# Top\n\n[a](docs/a.md), [b](docs/a.md#what-it-isnt), [c](#top)\n" +
				"![picture](docs/p.svg \"title\") [dir](docs) [dir](docs/) [root](.)\n" +
				"[![picture](docs/p.svg)](docs/a.md) [up](https://example.com/none.md#x)\n" +
				"[mail](mailto:a@example.com)\n\n[ref]: docs/a.md#code-go-1\n",
			"docs/a.md": "# What it *isn't*\n\n## `code` [go](x.go)\n\n## code go ##\n\n" +
				"[up](../README.md#top) [line](x.go#L3) [space](a%20b.txt)\n\n" +
				"`[no](link.md)` and\n\n```\n# no heading\n[no](link.md)\n```\n",
			"docs/x.go":     "package x\n",
			"docs/p.svg":    "<svg/>",
			"docs/a b.txt":  "",
			"testdata/t.md": "[x](gone.md)\n",
		}, nil},
		{"that lead nowhere", map[string]string{
			"README.md": "# Top\n\n[a](docs/b.md) [b](docs/a.md#none) [c](#none)\n\n" +
				"![picture](p.svg) [x](doc)\n\n[ref]: gone.md\n",
			"docs/a.md": "# A\n\n[up](README.md) [up](../../out.md)\n\n" +
				"```\n# none\n```\n\n[bad](%zz)\n",
		}, []string{"README.md:3 links to docs/b.md: there is no such file",
			"docs/a.md#none: there is no such heading", "README.md:3 links to #none",
			"README.md:5 links to p.svg", "links to doc: there is no such file",
			"README.md:7 links to gone.md", "docs/a.md:3 links to README.md",
			"../../out.md: there is no such file", "docs/a.md:9 links to %zz: invalid"}},
	})
}
