package cli

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Manual pages are written here, without cobra's package for them. That package imports a Markdown
// library, whose initialisation costs each start of the program several times as much as everything
// else before main.

// manPage returns the manual page of a command, in the macros of man(7).
func manPage(cmd *cobra.Command, date string) []byte {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	var page bytes.Buffer
	name := manName(cmd)
	fmt.Fprintf(&page, ".nh\n.TH %q \"1\" %q \"Holdfast\" \"Holdfast Manual\"\n",
		strings.ToUpper(name), date)
	section(&page, "NAME")
	fmt.Fprintf(&page, "%s - %s\n", name, manText(cmd.Short))
	section(&page, "SYNOPSIS")
	commands := withManPage(cmd.Commands())
	line := cmd.UseLine()
	if len(commands) > 0 {
		line = cmd.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(&page, "\\fB%s\\fP\n", manText(line))
	section(&page, "DESCRIPTION")
	manDescription(&page, cmd.Long)
	if len(commands) > 0 {
		section(&page, "COMMANDS")
	}
	for _, sub := range commands {
		fmt.Fprintf(&page, ".TP\n\\fB%s\\fP\n%s\n", sub.Name(), manText(sub.Short))
	}
	section(&page, "OPTIONS")
	first := true
	cmd.NonInheritedFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden {
			return
		}
		if !first {
			page.WriteString("\n.PP\n")
		}
		first = false
		manFlag(&page, flag)
	})
	if cmd.Example != "" {
		section(&page, "EXAMPLE")
		fmt.Fprintf(&page, ".EX\n%s\n.EE\n", manText(cmd.Example))
	}
	section(&page, "SEE ALSO")
	related := commands
	if cmd.HasParent() {
		related = append([]*cobra.Command{cmd.Parent()}, related...)
	}
	for i, other := range related {
		if i > 0 {
			page.WriteString(", ")
		}
		fmt.Fprintf(&page, "\\fB%s(1)\\fP", manName(other))
	}
	page.WriteString("\n")
	return page.Bytes()
}

func section(page *bytes.Buffer, name string) {
	if name != "NAME" {
		page.WriteString("\n")
	}
	fmt.Fprintf(page, "\n.SH %s\n", name)
}

// The kinds of lines in a description. Indented lines are a table, which is shown line by line.
// Cobra's own descriptions indent with tabs, and have headings.
const (
	manNothing = iota
	manRunning
	manTable
	manHeading
)

func manKind(line string) int {
	switch {
	case line == "\n":
		return manNothing
	case strings.HasPrefix(line, "  "), strings.HasPrefix(line, "\t"):
		return manTable
	case strings.HasPrefix(line, headingPrefix):
		return manHeading
	default:
		return manRunning
	}
}

const headingPrefix = "#### "

// manDescription writes the text of a command as running text, tables and headings. It is one
// function because what comes between two lines depends on the kinds of both: this is the table.
func manDescription(page *bytes.Buffer, text string) {
	last, gap := manRunning, false
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		kind := manKind(line)
		if kind == manNothing {
			gap = true
			continue
		}
		if last == manTable && kind != manTable {
			page.WriteString(".EE\n")
		}
		switch {
		case kind == manHeading:
			page.WriteString("\n.SS ")
		case kind == manTable && last == manRunning:
			page.WriteString("\n.EX\n")
		case kind == manTable && last == manHeading:
			page.WriteString(".EX\n")
		case kind == manTable && gap:
			page.WriteString("\n")
		case kind == manRunning && (gap || last == manTable):
			page.WriteString("\n.PP\n")
		}
		for _, prefix := range []string{"  ", "\t", headingPrefix} {
			line = strings.TrimPrefix(line, prefix)
		}
		page.WriteString(manText(line))
		last, gap = kind, false
	}
	if last == manTable {
		page.WriteString(".EE\n")
	}
}

// manFlag writes a flag with its default. In a flag's usage, the text between backquotes names its
// value.
func manFlag(page *bytes.Buffer, flag *pflag.Flag) {
	if flag.Shorthand != "" {
		fmt.Fprintf(page, "\\fB-%s\\fP, ", flag.Shorthand)
	}
	value := "=" + flag.DefValue
	switch flag.Value.Type() {
	case "string":
		value = "=" + strconv.Quote(flag.DefValue)
	case "bool":
		value = "" // it is given or not
	}
	before, name, _ := strings.Cut(flag.Usage, "`")
	name, after, named := strings.Cut(name, "`")
	if named {
		name = "\\fB" + manText(name) + "\\fR"
	}
	fmt.Fprintf(page, "\\fB--%s\\fP%s\n\t%s%s%s\n", flag.Name, manText(value), manText(before),
		name, manText(after))
}

// manText escapes what man would take for orders: backslashes, and a point or an apostrophe that
// begins a line.
func manText(text string) string {
	text = strings.ReplaceAll(text, `\`, `\e`)
	var safe strings.Builder
	for line := range strings.Lines(text) {
		if line[0] == '.' || line[0] == '\'' {
			safe.WriteString(`\&`)
		}
		safe.WriteString(line)
	}
	return safe.String()
}

// manDate returns the date of a page: that of the commit, so that builds of one version are equal;
// without a commit, SOURCE_DATE_EPOCH of the environment, or today.
func manDate() (string, error) {
	date := time.Now()
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return "", usagef("SOURCE_DATE_EPOCH %q: must be seconds since 1970", epoch)
		}
		date = time.Unix(seconds, 0)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if t, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil {
				date = t
			}
		}
	}
	return date.Format("Jan 2006"), nil
}
