package cli_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
)

var update = flag.Bool("update", false, "write the golden files")

// run runs a command line that starts no program.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = cli.Main(args, &out, &err)
	return code, out.String(), err.String()
}

// golden compares with a file of testdata, or writes it. The backends of this build, which are lines of their own, are
// left out.
func golden(t *testing.T, name, got string) {
	t.Helper()
	var kept strings.Builder
	for line := range strings.Lines(got) {
		if !slices.Contains(backendurl.Forms(), strings.TrimSpace(line)) {
			kept.WriteString(line)
		}
	}
	got = kept.String()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s; with -update it is written anew. Got:\n%s", path, got)
	}
}

func TestHelp(t *testing.T) {
	for name, args := range map[string][]string{
		"help.txt":       {"--help"},
		"run.txt":        {"run", "--help"},
		"man.txt":        {"man", "--help"},
		"version.txt":    {"version", "--help"},
		"completion.txt": {"completion", "--help"},
		"help-help.txt":  {"help", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, err := run(t, args...)
			if code != 0 || err != "" {
				t.Errorf("exit code %d, stderr %q", code, err)
			}
			golden(t, name, out)
			// help COMMAND and COMMAND --help are the same.
			_, again, _ := run(t, append([]string{"help"}, args[:len(args)-1]...)...)
			if again != out {
				t.Errorf("help %v differs: %s", args[:len(args)-1], again)
			}
		})
	}
	code, out, _ := run(t)
	if want, err := os.ReadFile(filepath.Join("testdata", "help.txt")); code != 0 || err != nil || out != string(want) {
		t.Errorf("without arguments: exit code %d, %v: %s", code, err, out)
	}
}

func TestHelpOnAddresses(t *testing.T) {
	code, text, err := run(t, "help", "addresses")
	if code != 0 || err != "" || !strings.Contains(text, backendurl.Help()) {
		t.Errorf("exit code %d, stderr %q: %s", code, err, text)
	}
	_, text, _ = run(t, "run", "--help")
	for _, form := range backendurl.Forms() {
		if !strings.Contains(text, "  "+form+"\n") {
			t.Errorf("the help of run does not mention %s", form)
		}
	}
}

// TestHelpSaysWhatScriptsNeed: the exit codes, and how to use them from cron.
func TestHelpSaysWhatScriptsNeed(t *testing.T) {
	_, text, _ := run(t, "run", "--help")
	for _, want := range []string{"64 ", "69 ", "70 ", "75 ", "126 ", "127 ", "128+N", "crontab", "HOLDFAST_URL", "HOLDFAST_TOKEN", "file:///dir"} {
		if !strings.Contains(text, want) {
			t.Errorf("the help of run says nothing of %q", want)
		}
	}
	for line := range strings.Lines(text) {
		if len(line) > 101 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
}

func TestManualPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1800000000")
	code, page, err := run(t, "man", "run")
	if code != 0 || err != "" {
		t.Errorf("exit code %d, stderr %q", code, err)
	}
	// A build from a checkout is dated by its commit.
	page = regexp.MustCompile(`(?m)^(\.TH "HOLDFAST-RUN" "1" )"[A-Z][a-z]+ \d+"`).ReplaceAllString(page, `$1"Month Year"`)
	golden(t, "holdfast-run.1", page)

	dir := t.TempDir()
	if code, out, err := run(t, "man", "--dir", dir); code != 0 || out+err != "" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, err)
	}
	for _, name := range []string{"holdfast.1", "holdfast-run.1", "holdfast-version.1", "holdfast-man.1"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if code, _, err := run(t, "man", "--dir", filepath.Join(dir, "missing")); code != 1 || !strings.Contains(err, "missing") {
		t.Errorf("exit code %d, stderr %q", code, err)
	}
}

func TestVersion(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		code, out, err := run(t, args...)
		want := regexp.MustCompile(`^holdfast \S+( \(commit [^)]+\))? ` + regexp.QuoteMeta(runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH) + `\n$`)
		if code != 0 || err != "" || !want.MatchString(out) {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, code, out, err)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, out, err := run(t, "completion", shell)
		if code != 0 || err != "" || !strings.Contains(out, "holdfast") {
			t.Errorf("%s: exit code %d, %d bytes, stderr %q", shell, code, len(out), err)
		}
	}
	for word, want := range map[string]string{"ru": "run", "ver": "version"} {
		if _, out, _ := run(t, "__complete", word); !strings.HasPrefix(out, want) {
			t.Errorf("%s completes to %q", word, out)
		}
	}
	if _, out, _ := run(t, "__complete", "help", "ru"); !strings.HasPrefix(out, "run") {
		t.Errorf("help ru completes to %q", out)
	}
	if _, out, _ := run(t, "__complete", "run", "--no"); !strings.HasPrefix(out, "--no-wait") {
		t.Errorf("--no completes to %q", out)
	}
}

// TestUsage: each mistake is told with what is wrong and what is allowed, ends with 64, and nothing is made.
func TestUsage(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOLDFAST_URL", "file://"+dir)
	command := []string{"name", "--", "true"}
	with := func(flags ...string) []string { return append(append([]string{"run"}, flags...), command...) }
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"run"}, []string{"no command", "NAME -- COMMAND"}},
		{[]string{"run", "name"}, []string{"no command", "NAME -- COMMAND"}},
		{[]string{"run", "name", "true"}, []string{"no --", "NAME -- COMMAND"}},
		{[]string{"run", "name", "--"}, []string{"no command", "NAME -- COMMAND"}},
		{[]string{"run", "--", "true"}, []string{"no name", "NAME -- COMMAND"}},
		{[]string{"run", "one", "two", "--", "true"}, []string{"2 arguments", "NAME -- COMMAND"}},
		{[]string{"run", "", "--", "true"}, []string{"name is empty", "1 to 1024 bytes"}},
		{[]string{"run", strings.Repeat("x", 1025), "--", "true"}, []string{"1025 bytes", "1 to 1024"}},
		{with("--ttl=9ms"), []string{"--ttl 9ms", "at least 10ms"}},
		{with("--ttl=-1s"), []string{"--ttl -1s", "at least 10ms"}},
		{with("--ttl=30"), []string{"--ttl", "30", "missing unit"}},
		{with("--wait=-1s"), []string{"--wait -1s", "not be negative"}},
		{with("--wait=1s", "--no-wait"), []string{"--wait 1s", "--no-wait", "exclude each other"}},
		{with("--max-hold=-1s"), []string{"--max-hold -1s", "not be negative"}},
		{with("--max-hold=1s"), []string{"--max-hold 1s", "--ttl 30s"}},
		{with("--grace=-1s"), []string{"--grace -1s", "not be negative"}},
		{with("--label=" + strings.Repeat("x", 129)), []string{"--label", "129 bytes", "128"}},
		{with("--on=x"), []string{"--on:", "file:///dir"}},
		{with("--on=memory:"), []string{"--on: memory:", "this one process"}},
		{with("--on=file:///x?y=z"), []string{`"y"`, "prefix, shared"}},
		{with("--on"), []string{"name", "--", "NAME -- COMMAND"}},
		{with("--nonsense"), []string{"unknown flag: --nonsense"}},
		{[]string{"nonsense"}, []string{`unknown command "nonsense"`}},
		{[]string{"help", "nonsense"}, []string{`"nonsense"`}},
		{[]string{"man", "nonsense"}, []string{`"nonsense"`}},
		{[]string{"man", "--dir", dir, "run"}, []string{"--dir"}},
		{[]string{"version", "more"}, []string{`"more"`}},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			code, out, err := run(t, test.args...)
			if code != 64 || out != "" {
				t.Errorf("exit code %d, stdout %q", code, out)
			}
			if !strings.HasPrefix(err, "holdfast: ") || !strings.Contains(err, "--help") {
				t.Errorf("stderr %q", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err, want) {
					t.Errorf("stderr %q does not say %q", err, want)
				}
			}
		})
	}
	t.Setenv("HOLDFAST_URL", "nonsense")
	if code, _, err := run(t, with()...); code != 64 || !strings.Contains(err, "HOLDFAST_URL: no scheme") {
		t.Errorf("exit code %d, stderr %q", code, err)
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
		t.Errorf("made: %v, %v", made, err)
	}
}

func TestPrefixCountsForTheName(t *testing.T) {
	code, _, err := run(t, "run", "--on=file:///x?prefix=ab", strings.Repeat("x", 1023), "--", "true")
	if code != 64 || !strings.Contains(err, "1023 bytes") || !strings.Contains(err, "1024") {
		t.Errorf("exit code %d, stderr %q", code, err)
	}
}

// TestNoSecretOnStderr: not even where it is no address.
func TestNoSecretOnStderr(t *testing.T) {
	const secret = "hunter2"
	for _, args := range [][]string{
		{"run", "--on=redis://user:" + secret + "@127.0.0.1:1", "name", "--", "true"},
		{"run", "--on=redis://user:" + secret + "@a,b", "name", "--", "true"},
		{"run", "--on=nonsense://user:" + secret + "@host", "name", "--", "true"},
		{"run", "--on=" + secret, "name", "--", "true"},
		{"run", "--on-redis://user:" + secret + "@host", "name", "--", "true"},
		{"redis://user:" + secret + "/x@host"},
	} {
		code, out, err := run(t, args...)
		if code != 64 && code != 69 || strings.Contains(out+err, secret) {
			t.Errorf("exit code %d, stdout %q, stderr %q", code, out, err)
		}
	}
}

// TestNothingOnStderrMovesTheCursor: what comes from the command line comes back as printable text.
func TestNothingOnStderrMovesTheCursor(t *testing.T) {
	for _, args := range [][]string{
		{"run", "--x\x1b[2J", "name", "--", "true"},
		{"\x1b[2J"},
		{"run", "\x1b[2J" + strings.Repeat("x", 2000), "--", "true"},
		{"run", "name", "--", "no-such\x1b[2Jcommand"},
	} {
		if _, _, err := run(t, args...); strings.ContainsAny(err, "\x1b\r") {
			t.Errorf("stderr %q", err)
		}
	}
}
