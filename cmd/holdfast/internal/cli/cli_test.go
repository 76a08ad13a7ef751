package cli_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/cli"
)

// TestMain starts the runtime's signal goroutine outside of all synctest bubbles: if it starts
// inside of one, the first signal ends the program.
func TestMain(m *testing.M) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(m.Run())
}

var update = flag.Bool("update", false, "write the golden files")

// run runs a command line in this process. It must start no program.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = cli.Main(args, &out, &err)
	return code, out.String(), err.String()
}

// numbers returns the names 1 to n.
func numbers(n int) (names []string) {
	for i := range n {
		names = append(names, strconv.Itoa(i+1))
	}
	return names
}

// golden compares with a file of testdata, or writes it with -update. It leaves out the lines that
// list the backends of this build.
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
		"adopt.txt":      {"adopt", "--help"},
		"hold.txt":       {"hold", "--help"},
		"lead.txt":       {"lead", "--help"},
		"ls.txt":         {"ls", "--help"},
		"inspect.txt":    {"inspect", "--help"},
		"doctor.txt":     {"doctor", "--help"},
		"release.txt":    {"release", "--help"},
		"leaks.txt":      {"leaks", "--help"},
		"deadlocks.txt":  {"deadlocks", "--help"},
		"watch.txt":      {"watch", "--help"},
		"board.txt":      {"board", "--help"},
		"bench.txt":      {"bench", "--help"},
		"fence.txt":      {"fence", "--help"},
		"advance.txt":    {"fence", "advance", "--help"},
		"show.txt":       {"fence", "show", "--help"},
		"init.txt":       {"fence", "init", "--help"},
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
			// help COMMAND and COMMAND --help print the same.
			_, again, _ := run(t, append([]string{"help"}, args[:len(args)-1]...)...)
			if again != out {
				t.Errorf("help %v differs: %s", args[:len(args)-1], again)
			}
		})
	}
	code, out, _ := run(t)
	if want, err := os.ReadFile(filepath.Join("testdata", "help.txt")); code != 0 || err != nil ||
		out != string(want) {
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

// TestHelpSaysWhatScriptsNeed: the exit codes, the variables, and an example for cron.
func TestHelpSaysWhatScriptsNeed(t *testing.T) {
	_, text, _ := run(t, "run", "--help")
	for _, want := range []string{"64 ", "69 ", "70 ", "75 ", "126 ", "127 ", "128+N", "crontab",
		"HOLDFAST_URL", "HOLDFAST_TOKEN", "file:///dir"} {
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
	page = regexp.MustCompile(`(?m)^(\.TH "HOLDFAST-RUN" "1" )"[A-Z][a-z]+ \d+"`).ReplaceAllString(
		page, `$1"Month Year"`)
	golden(t, "holdfast-run.1", page)
	// The description of this page is cobra's own, with headings.
	_, page, _ = run(t, "man", "completion", "bash")
	page = regexp.MustCompile(
		`(?m)^(\.TH "HOLDFAST-COMPLETION-BASH" "1" )"[A-Z][a-z]+ \d+"`).ReplaceAllString(page,
		`$1"Month Year"`)
	golden(t, "holdfast-completion-bash.1", page)

	// A command with commands says how it is called, and what each of them does.
	for args, want := range map[[2]string][]string{
		{"man"}: {"\\fBholdfast COMMAND\\fP", "\\fBrun\\fP\nRun a command while holding locks\n",
			"--version"},
		{"man", "fence"}: {"\\fBholdfast fence COMMAND\\fP",
			"\\fBshow\\fP\nPrint the largest token that was accepted\n"},
	} {
		_, page, _ = run(t, slices.DeleteFunc(args[:], func(a string) bool { return a == "" })...)
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%v does not say %q:\n%s", args, text, page)
			}
		}
		if strings.Contains(page, "=false") {
			t.Errorf("%v says what a flag is without being given:\n%s", args, page)
		}
	}

	dir := t.TempDir()
	if code, out, err := run(t, "man", "--dir", dir); code != 0 || out+err != "" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, err)
	}
	for _, name := range []string{"holdfast.1", "holdfast-run.1", "holdfast-version.1",
		"holdfast-man.1"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if code, _, err := run(t, "man", "--dir", filepath.Join(dir, "missing")); code != 74 ||
		!strings.Contains(err, "missing") {
		t.Errorf("exit code %d, stderr %q", code, err)
	}
}

// TestManualPagesShowTextAsItIs: man takes a backslash, or a point at the beginning of a line, for
// a command unless it is escaped.
func TestManualPagesShowTextAsItIs(t *testing.T) {
	const text = "a\\b\n.c\n'd\n-e.\n"
	if got, want := cli.ManText(text), "a\\eb\n\\&.c\n\\&'d\n-e.\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestManualPagesAreDated: a date in the environment that is not a number is an error.
func TestManualPagesAreDated(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if code, out, err := run(t, "man"); code != 64 || out != "" ||
		!strings.Contains(err, `SOURCE_DATE_EPOCH "yesterday"`) {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, err)
	}
}

func TestVersion(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		code, out, err := run(t, args...)
		want := regexp.MustCompile(`^holdfast \S+( \(commit [^)]+\))? ` +
			regexp.QuoteMeta(runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH) + `\n$`)
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
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "locks"), 0o700); err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]string{"redl": "redlock://\t", "file:": "file://\t",
		"file://" + dir + "/lo": "file://" + dir + "/locks\n"} {
		for _, sub := range []string{"run", "hold", "lead"} {
			// 6: NoSpace and NoFileComp.
			if _, out, _ := run(t, "__complete", sub, "--on", word); !strings.HasPrefix(out,
				want) || !strings.Contains(out, ":6\n") {
				t.Errorf("%s --on %s completes to %q", sub, word, out)
			}
		}
	}
	for _, form := range backendurl.Forms() {
		scheme, _, _ := strings.Cut(form, "://")
		line := scheme + "://\t" + form + "\n"
		for _, sub := range []string{"run", "hold", "ls", "inspect", "doctor", "release", "leaks",
			"board", "adopt"} {
			_, out, _ := run(t, "__complete", sub, "--on", scheme)
			want := sub != "adopt" || strings.HasPrefix(scheme, "redlock")
			if strings.Contains("\n"+out, "\n"+line) != want || !strings.Contains(out, ":6\n") {
				t.Errorf("%s --on %s completes to %q", sub, scheme, out)
			}
		}
	}
	// A completed path is escaped as in an address, so Parse reads it back.
	odd := filepath.Join(dir, "a b%c#d?e@f")
	if err := os.MkdirAll(filepath.Join(odd, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	word := "file://" + dir + "/a"
	for range 2 {
		_, out, _ := run(t, "__complete", "run", "--on", word)
		word, _, _ = strings.Cut(out, "\n")
		word += "/"
	}
	if a, err := backendurl.Parse(word); err != nil ||
		a.String() != backendurl.Dir(odd+"/in/").String() {
		t.Errorf("completes to %q: %v, %v; want the address of %q", word, a, err, odd)
	}
	if _, out, _ := run(t, "__complete", "run", "--no"); !strings.HasPrefix(out, "--no-wait") {
		t.Errorf("--no completes to %q", out)
	}
}

// TestUsage: for each mistake the error says what is wrong and what is allowed, the exit code is
// 64, and no file is made.
func TestUsage(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOLDFAST_URL", "file://"+dir)
	command := []string{"name", "--", "true"}
	with := func(flags ...string) []string {
		return append(append([]string{"run"}, flags...), command...)
	}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"run"}, []string{"no command", "NAME... -- COMMAND"}},
		{[]string{"run", "name"}, []string{"no command", "NAME... -- COMMAND"}},
		{[]string{"run", "name", "true"}, []string{"no --", "NAME... -- COMMAND"}},
		{[]string{"run", "name", "--"}, []string{"no command", "NAME... -- COMMAND"}},
		{[]string{"run", "--", "true"}, []string{"no name", "NAME... -- COMMAND"}},
		{[]string{"run", "one", "", "--", "true"}, []string{"name is empty", "1 to 1024 bytes"}},
		{[]string{"run", "redis://h", "two", "--", "true"},
			[]string{"redis://...", "looks like an address", "--on"}},
		{append(append([]string{"run"}, numbers(1001)...), "--", "true"),
			[]string{"1001 names", "at most 1000"}},
		{[]string{"run", "", "--", "true"}, []string{"name is empty", "1 to 1024 bytes"}},
		{[]string{"run", strings.Repeat("x", 1025), "--", "true"},
			[]string{"1025 bytes", "1 to 1024"}},
		{with("--ttl=9ms"), []string{"--ttl 9ms", "at least 10ms"}},
		{with("--ttl=10000h"), []string{"--ttl 10000h0m0s", "at most 8784h0m0s"}},
		{with("--max-hold=10000h"), []string{"--max-hold 10000h0m0s", "at most 8784h0m0s"}},
		{[]string{"completion", "nonsense"}, []string{`"nonsense"`}},
		{[]string{"addresses", "more"}, []string{`"more"`}},
		{with("--ttl=-1s"), []string{"--ttl -1s", "at least 10ms"}},
		{with("--ttl=0"), []string{"--ttl 0s", "at least 10ms"}},
		{with("--ttl=30"), []string{`--ttl "30"`, "unit, such as 500ms"}},
		{with("--ttl=9999999999h"), []string{`--ttl "9999999999h"`, "at most 290 years"}},
		{with("--wait", "name"), []string{`--wait "name"`, "unit, such as 500ms"}},
		{with("-E", "busy"), []string{`--conflict-exit-code "busy"`, "a whole number"}},
		{with("--no-wait=maybe"), []string{`--no-wait "maybe"`, "true or false"}},
		{with("-x"), []string{"unknown shorthand flag: 'x'"}},
		{[]string{"hold", "--grace=1s", "name"}, []string{"unknown flag: --grace"}},
		{[]string{"adopt", "--longest=-1s"}, []string{"--longest -1s", "not be negative"}},
		{[]string{"adopt", "--on=file:///x", "more"}, []string{`"more"`, "none is taken"}},
		{with("--wait=-1s"), []string{"--wait -1s", "not be negative"}},
		{with("--permits=0"), []string{"--permits 0", "1 to 1000"}},
		{with("--permits=-1"), []string{"--permits -1", "1 to 1000"}},
		{with("--permits=1001"), []string{"--permits 1001", "1 to 1000"}},
		{with("--permits=9999999999999999999"), []string{"below 2^63"}},
		{with("--permits=many"), []string{"--permits", "many"}},
		{[]string{"run", "--permits=2", "a", "b", "--", "true"},
			[]string{"--permits 2", "2 names", "one name"}},
		{with("--permits=2", "--shared"), []string{"--permits 2", "--shared", "one of them"}},
		{with("--wait=1s", "--no-wait"), []string{"--wait 1s", "--no-wait", "exclude each other"}},
		{with("--max-hold=-1s"), []string{"--max-hold -1s", "not be negative"}},
		{with("--max-hold=1s"), []string{"--max-hold 1s", "--ttl 30s"}},
		{with("--grace=-1s"), []string{"--grace -1s", "not be negative"}},
		{with("--label=" + strings.Repeat("x", 129)), []string{"--label", "129 bytes", "128"}},
		{with("--on=x"), []string{"--on:", "file://, postgres://"}},
		{with("--on="), []string{"--on is empty", "leave it out"}},
		{with("--on=memory:"), []string{"--on: memory:", "this one process"}},
		{with("--on=file:///x?y=z"), []string{"parameter 1 is unknown", "prefix, shared"}},
		{with("--on=redlock://a, b, c"), []string{"--on:", "host 2 of 3 has a space"}},
		{with("--on=redlock://a,b,c", "--ttl=2m"), []string{"--ttl 2m0s", "restart-guard", "1m0s"}},
		{with("--on=redlock://a,b,c?restart-guard=10s"),
			[]string{"--ttl 30s", "restart-guard", "10s"}},
		{with("--on=redlock://a,b,c?node-timeout=2s", "--ttl=2s"),
			[]string{"--ttl 2s", "node-timeout", "2s"}},
		{with("--on"), []string{"name", "--", "NAME... -- COMMAND"}},
		{with("-E256"), []string{"--conflict-exit-code 256", "0 to 255"}},
		{with("--conflict-exit-code=-1"), []string{"--conflict-exit-code -1", "0 to 255"}},
		{with("-c", "true"), []string{"beside --shell", "NAME... --shell LINE"}},
		{[]string{"run", "-c", "true"}, []string{"no name beside --shell"}},
		{[]string{"run", "-c", "true", ""}, []string{"name is empty"}},
		{[]string{"hold"}, []string{"no name", "hold [flags] NAME..."}},
		{[]string{"hold", "name", "--", "true"},
			[]string{"hold runs no command", "holdfast run [flags] NAME... -- COMMAND"}},
		{[]string{"hold", "name", "--"}, []string{"hold runs no command"}},
		{[]string{"hold", "--on=", "name"}, []string{"--on is empty", "leave it out"}},
		{[]string{"lead"}, []string{"no name", "lead [flags] NAME -- COMMAND"}},
		{[]string{"lead", "name"}, []string{"no -- in front of the command"}},
		{[]string{"lead", "name", "--"}, []string{"no command after the --"}},
		{[]string{"lead", "a", "b", "--", "true"}, []string{"2 names; lead takes one"}},
		{[]string{"lead", "-c", "true", "name", "--", "true"}, []string{"beside --shell"}},
		{[]string{"lead", "", "--", "true"}, []string{"name is empty"}},
		{[]string{"lead", "--wait=1s", "a", "--", "true"}, []string{"unknown flag: --wait"}},
		{[]string{"lead", "--ttl=1ms", "a", "--", "true"}, []string{"--ttl 1ms"}},
		{[]string{"adopt", "--on="}, []string{"--on is empty", "leave it out"}},
		{[]string{"adopt", "--on=redis://127.0.0.1:1"}, []string{"is for redlock addresses"}},
		{[]string{"adopt", "--on=file:"}, []string{"is for redlock addresses"}},
		{[]string{"hold", "a", "redis://u:p@h"}, []string{"redis://...", "looks like an address"}},
		{[]string{"hold", ""}, []string{"name is empty"}},
		{[]string{"doctor", "x"}, []string{"1 arguments", "write holdfast doctor [flags]"}},
		{[]string{"inspect"}, []string{"0 arguments", "inspect [flags] NAME"}},
		{[]string{"inspect", "a", "b"}, []string{"2 arguments", "inspect [flags] NAME"}},
		{[]string{"inspect", ""}, []string{"name is empty"}},
		{[]string{"inspect", "redis://u:p@h"}, []string{"redis://...", "looks like an address"}},
		{[]string{"release", "--token=1"}, []string{"0 arguments", "release [flags] NAME"}},
		{[]string{"release", "n"},
			[]string{"--owner and --token", "the token where the backend keeps it"}},
		{[]string{"release", "--owner=x", "--token=1", "n"},
			[]string{"one of --owner and --token"}},
		{[]string{"release", "--owner=", "n"}, []string{"--owner is empty"}},
		{[]string{"release", "--token=0", "n"}, []string{`--token "0"`, "number from 1"}},
		{[]string{"release", "--token=x", "n"}, []string{`--token "x"`, "number from 1"}},
		{[]string{"release", "--token=1", "n"}, []string{"no terminal", "--yes"}},
		{[]string{"leaks", "a", "b"}, []string{"2 arguments", "leaks [flags] [PREFIX]"}},
		{[]string{"deadlocks", "a", "b"},
			[]string{"2 arguments", "deadlocks [flags] [PREFIX]"}},
		{[]string{"deadlocks", "--after=-1s"}, []string{"--after -1s", "0s or more"}},
		{[]string{"bench", "x"}, []string{"1 arguments", "write holdfast bench [flags]"}},
		{[]string{"bench", "--count=0"}, []string{"--count 0", "from 1 to 1000000"}},
		{[]string{"bench", "--time=0"}, []string{"--time 0s", "more than 0s"}},
		{[]string{"bench", "--on=redlock://h1,h2,h3?restart-guard=9s"},
			[]string{"a lease of 10s", "restart-guard"}},
		{[]string{"watch", "a", "b"}, []string{"2 arguments", "watch [flags] [PREFIX]"}},
		{[]string{"watch", "--every=1ms"}, []string{"--every 1ms", "at least 100ms"}},
		{[]string{"watch"}, []string{"needs a terminal", "ls --json"}},
		{[]string{"board", "a", "b"}, []string{"2 arguments", "board [flags] [PREFIX]"}},
		{[]string{"board", "--every=1ms"}, []string{"--every 1ms", "at least 100ms"}},
		{[]string{"board", "--listen=8420"}, []string{"--listen 8420", "must be host:port"}},
		{[]string{"board", "--listen=127.0.0.1:65536"}, []string{"--listen", "must be host:port"}},
		{[]string{"board", "--listen=127.0.0.1:abc"}, []string{"--listen", "must be host:port"}},
		{[]string{"board", "--listen=0.0.0.0:0"}, []string{"others can reach", "--token-file"}},
		{[]string{"board", "--listen=:0"}, []string{"others can reach", "--token-file"}},
		{[]string{"board", "--listen=[::]:0"}, []string{"others can reach", "--token-file"}},
		{[]string{"board", "--listen=example.com:0"}, []string{"others can reach"}},
		{[]string{"board", "--host=locks.example.com:443"},
			[]string{`--host "locks.example.com:443"`, "a name alone"}},
		{[]string{"board", "--host=https://locks.example.com"}, []string{"--host", "a name alone"}},
		{[]string{"board", "--host=a.example,,b.example"}, []string{`--host ""`, "a name alone"}},
		{[]string{"board", "--token-file=/dev/null"}, []string{"0 bytes", "16 to 1024"}},
		{[]string{"board", "--token-file=" + dir + "/none"}, []string{"--token-file", "no such"}},
		{[]string{"ls", "a", "b"}, []string{"2 arguments", "ls [flags] [PREFIX]"}},
		{[]string{"ls", "redis://u:p@h"}, []string{"redis://...", "looks like an address"}},
		{[]string{"ls", "--timeout=0s"}, []string{"--timeout 0s", "more than 0s"}},
		{[]string{"ls", "--on="}, []string{"--on is empty", "leave it out"}},
		{[]string{"hold", "--ttl=1ms", "name"}, []string{"--ttl 1ms", "at least 10ms"}},
		{[]string{"rnu"}, []string{`unknown command "rnu"`, "run"}},
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
			if strings.Count(err, "\n") != 1 || !strings.HasSuffix(err, "\n") {
				t.Errorf("not one line: %q", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err, want) {
					t.Errorf("stderr %q does not say %q", err, want)
				}
			}
		})
	}
	t.Setenv("HOLDFAST_URL", "nonsense")
	if code, _, err := run(t, with()...); code != 64 ||
		!strings.Contains(err, "HOLDFAST_URL: no scheme") {
		t.Errorf("exit code %d, stderr %q", code, err)
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
		t.Errorf("made: %v, %v", made, err)
	}
}

func TestPrefixCountsForTheName(t *testing.T) {
	code, _, err := run(t, "run", "--on=file:///x?prefix=ab", strings.Repeat("x", 1023), "--",
		"true")
	if code != 64 || !strings.Contains(err, "1023 bytes") || !strings.Contains(err, "1024") {
		t.Errorf("exit code %d, stderr %q", code, err)
	}
}

// TestPreferredCountsForTheName: --preferred leaves less room for the name, and --announce is not
// to blame for that.
func TestPreferredCountsForTheName(t *testing.T) {
	code, _, err := run(t, "lead", "--on=file://"+t.TempDir(), "--preferred", "--announce=x",
		strings.Repeat("x", 1024), "--", "true")
	if code != 64 || !strings.Contains(err, "--preferred: ") ||
		!strings.Contains(err, "1024 bytes") || strings.Contains(err, "--announce") {
		t.Errorf("exit code %d, stderr %q", code, err)
	}
}

// TestNoSecretOnStderr: a password is not shown, even if the address is in the wrong place.
func TestNoSecretOnStderr(t *testing.T) {
	const secret = "hunter"
	for _, args := range [][]string{
		{"run", "--on=redis://user:" + secret + "@127.0.0.1:1", "name", "--", "true"},
		{"run", "--on=redis://user:" + secret + "@a,b", "name", "--", "true"},
		{"run", "--on=nonsense://user:" + secret + "@host", "name", "--", "true"},
		{"run", "--on=" + secret, "name", "--", "true"},
		{"run", "--on-redis://user:" + secret + "@host", "name", "--", "true"},
		{"redis://user:" + secret + "/x@host"},
		{"run", "-on=redis+sentinel://h/p?sentinel-password=a&" + secret, "name", "--", "true"},
		{"run", "--on=redis://user:" + secret + ":host", "name", "--", "true"},
		{"run", "-on=redis://user:" + secret + ":host", "name", "--", "true"},
		{"run", "--on=redis://user@host/x?" + secret + "=1", "name", "--", "true"},
		{"redis://[user:" + secret + "@host"},
	} {
		code, out, err := run(t, args...)
		if code != 64 && code != 69 || strings.Contains(out+err, secret) {
			t.Errorf("exit code %d, stdout %q, stderr %q", code, out, err)
		}
	}
}

// TestWhatIsNoSecretIsShown: the form of an address is not taken for a password, nor is a name with
// slashes and an @.
func TestWhatIsNoSecretIsShown(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--on=redlock://h", "name", "--", "true"},
			"write redlock://[user[:password]@]host[:port],host[:port],"},
		{[]string{"run", "--on=redis:h", "name", "--", "true"},
			"write redis://[user[:password]@]host[:port][/database]"},
		{[]string{"a//b@c"}, `unknown command "a//b@c"`},
		{[]string{"help", "//a@b/c@d"}, `"//a@b/c@d"`},
		{[]string{"run", "--on=file:///dev/null", "redis://a@b", "--", "no-such/a//b@c"},
			`"no-such/a//b@c": command not found`},
		{[]string{"run", "--on=file:///dev/null", "s3://bucket/a@b", "--", "s3://x/a@b"},
			`"s3://x/a@b": command not found`},
	} {
		if _, _, err := run(t, test.args...); !strings.Contains(err, test.want) {
			t.Errorf("%v: stderr %q does not say %q", test.args, err, test.want)
		}
	}
}

// TestFormsAreShown: so are the forms of addresses of which another program says what is wrong.
func TestFormsAreShown(t *testing.T) {
	for _, form := range backendurl.Forms() {
		if text := cli.Message("--on: wrong; write " + form); !strings.Contains(text, form) {
			t.Errorf("the message is %q; want %s", text, form)
		}
	}
}

// TestNothingOnStderrMovesTheCursor: errors repeat the command line as printable text only.
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

// TestOutputThatCannotBeWritten: if stdout cannot be written, the exit code is 74.
func TestOutputThatCannotBeWritten(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}, {"help"}, {"run", "--help"},
		{"help", "addresses"}, {"man"}, {"completion", "bash"}} {
		var stderr bytes.Buffer
		if code := cli.Main(args, fullDisk{}, &stderr); code != 74 ||
			stderr.String() != "holdfast: cannot write what was asked for: no space left\n" {
			t.Errorf("%v: exit code %d, stderr %q", args, code, &stderr)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }
