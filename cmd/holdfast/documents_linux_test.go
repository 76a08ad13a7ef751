package main_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// repository is the directory with the documents.
const repository = "../.."

// block is a fenced block of a document.
type block struct {
	kind  string // the word behind the fence
	lines []string
}

// blocksOf returns the fenced blocks of a document.
func blocksOf(t *testing.T, name string) (blocks []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !inside:
			blocks, inside = append(blocks, block{kind: kind}), true
		case fence:
			inside = false
		case inside:
			last := &blocks[len(blocks)-1]
			last.lines = append(last.lines, line)
		}
	}
	return blocks
}

// consoles are documents that show commands and what they print.
var consoles = []string{"README.md", "docs/command.md", "docs/redlock.md"}

// TestConsoles runs the blocks of each of these documents, in one shell from top to bottom, and
// compares the output. "..." stands for any text, and alone on a line for any number of lines.
// Ports, the user's directory and the directory of temporary files are replaced.
func TestConsoles(t *testing.T) {
	t.Parallel()
	for _, system := range []string{"etcd", "postgres", "zookeeper"} {
		if err := buildBeside("holdfast-" + system); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range consoles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shell, blocks := newReader(t), 0
			for _, b := range blocksOf(t, name) {
				switch b.kind {
				case "console":
					blocks++
					shell.run(b.lines)
				case "crontab", "go", "text": // see TestCrontab and TestDocumentsCompile
				default:
					t.Errorf("a block of kind %q, which nobody runs: %q", b.kind, b.lines)
				}
			}
			if blocks == 0 {
				t.Errorf("%s shows no commands", name)
			}
		})
	}
}

// reader is a shell that runs the blocks of a document.
type reader struct {
	t     *testing.T
	shell *process
	dir   string            // in which the shell begins
	here  *strings.Replacer // ports, and the directory for temporary files
}

func newReader(t *testing.T) *reader {
	t.Helper()
	shown := []string{"6390", "7181", "7379", "7391", "7392", "7393", "7394", "7395", "7432"}
	var free []string
	for range shown {
		free = append(free, strconv.Itoa(testserver.FreePort(t)))
	}
	slices.Sort(free) // as make down lists them
	here := []string{"/tmp/", os.TempDir() + "/"}
	for i := range shown {
		here = append(here, shown[i], free[i])
	}
	dir := t.TempDir()
	// For the user who runs PostgreSQL, which root cannot.
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash")
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "HOLDFAST="+holdfastPath, "HOLDFAST_TRY_DIR="+dir,
		"PATH="+filepath.Dir(holdfastPath)+":"+os.Getenv("PATH"), // some blocks expect it installed
		"PORT_redis="+free[0], "PORT_zookeeper="+free[1], "PORT_etcd="+free[2],
		"PORT_postgres="+free[8],
		"TMPDIR="+dir, "MAKEFLAGS=", "GOWORK=") // a reader does not have what make sets
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r := &reader{t: t, shell: startCommand(t, cmd), dir: dir, here: strings.NewReplacer(here...)}
	t.Cleanup(func() {
		// Kill what a failed block has left in the background.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		stop := exec.Command("scripts/servers.sh", "down")
		stop.Dir, stop.Env = repository, append(os.Environ(), "HOLDFAST_TRY_DIR="+dir)
		if out, err := stop.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	// go run would link the command each time, so it is replaced by the built one.
	r.say(`exec 2>&1; repository=$PWD
go() {
	case "$1 $2" in
	"run ./cmd/holdfast") shift 2; "$HOLDFAST" "$@";;
	"install ./cmd/holdfast/...") ;; # all of it is in the PATH
	*) echo "no go $*"; return 1;;
	esac
}
make() { command make --no-print-directory -C "$repository" "$@"; }
cd "$HOLDFAST_TRY_DIR"`)
	return r
}

func (r *reader) say(line string) {
	r.t.Helper()
	if _, err := fmt.Fprintln(r.shell.stdin, line); err != nil {
		r.t.Fatal(err)
	}
}

// run runs the commands of a block, and compares the output of each.
func (r *reader) run(lines []string) {
	r.t.Helper()
	for i := 0; i < len(lines); {
		command, ok := strings.CutPrefix(lines[i], "$ ")
		if !ok {
			r.t.Fatalf("no command: %q", lines[i])
		}
		var want []string
		for i++; i < len(lines) && !strings.HasPrefix(lines[i], "$ "); i++ {
			want = append(want, r.here.Replace(lines[i]))
		}
		r.say(r.here.Replace(command))
		r.say("echo END OF OUTPUT")
		var got strings.Builder
		for line := r.shell.line(); line != "END OF OUTPUT"; line = r.shell.line() {
			got.WriteString(line + "\n")
		}
		if !patternOf(want).MatchString(got.String()) {
			r.t.Errorf("%s\nprints %q\nwant   %q", command, got.String(), want)
		}
	}
}

// patternOf returns a pattern for the output that a document shows.
func patternOf(lines []string) *regexp.Regexp {
	var pattern strings.Builder
	for _, line := range lines {
		if line == "..." {
			pattern.WriteString(`(.*\n)*`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`) + `\n`)
	}
	return regexp.MustCompile(`^` + pattern.String() + `$`)
}

// TestReaderComplains: the reader fails on a document that shows another output.
func TestReaderComplains(t *testing.T) {
	for _, test := range []struct {
		want  []string
		got   string
		match bool
	}{
		{[]string{"a", "...", "b ... c"}, "a\nx\ny\nb 1 c\n", true},
		{[]string{"a", "...", "b"}, "a\nb\n", true},
		{nil, "", true},
		{nil, "a\n", false},
		{[]string{"a"}, "", false},
		{[]string{"a"}, "a\nb\n", false},
		{[]string{"a.b"}, "axb\n", false},
	} {
		if got := patternOf(test.want).MatchString(test.got); got != test.match {
			t.Errorf("%q and %q: %v", test.want, test.got, got)
		}
	}
}

// TestCrontab runs the README's crontab lines for several machines as cron does, on two machines at
// once that share only the server.
func TestCrontab(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	bin := t.TempDir()
	if err := os.Symlink(holdfastPath, filepath.Join(bin, "holdfast")); err != nil {
		t.Fatal(err)
	}
	writeProgram(t, filepath.Join(bin, "report"), "#!/bin/sh\necho report\nread x\n", 0o700)
	places := strings.NewReplacer("redis://locks.example.com", "redis://"+server.Addr,
		"/usr/local/bin/report", "'"+filepath.Join(bin, "report")+"'")
	jobs := 0
	for _, b := range blocksOf(t, "README.md") {
		if b.kind != "crontab" {
			continue
		}
		env := []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=/"}
		for _, line := range b.lines {
			line = places.Replace(line)
			if fields := regexp.MustCompile(`^(?:\S+ ){5} *(.*)$`).FindStringSubmatch(
				line); fields != nil {
				jobs++
				cron := func() *process {
					cmd := exec.Command("/bin/sh", "-c", fields[1])
					cmd.Env = env
					return startCommand(t, cmd)
				}
				first := cron()
				first.expect("report")
				if n := server.Int(t, "EXISTS", "lock:nightly-report"); n != 1 {
					t.Errorf("the lock is not on the server")
				}
				second := cron()
				second.expectExit(0) // cron takes it for a success
				if out := strings.Join(second.rest(), "") + second.allStderr(); out != "" {
					t.Errorf("cron would send a mail: %q", out)
				}
				first.stdin.Close()
				first.ends()
			} else {
				env = append(env, line)
			}
		}
	}
	if jobs != 1 {
		t.Errorf("%d jobs in the README", jobs)
	}
}

// runElsewhere are documents that have a test of their own.
var runElsewhere = slices.Concat(consoles,
	[]string{"docs/deploy.md", "docs/drill.md", "docs/leader.md", "docs/start.md"})

// TestDocumentsNameTargets: the commands in the other documents are targets of make, with variables
// that it knows. It only asks make what it would do: the targets take minutes or run for ever.
func TestDocumentsNameTargets(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil || len(documents) == 0 {
		t.Fatalf("%q, %v", documents, err)
	}
	known, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(documents, filepath.Join(repository, "CONTRIBUTING.md")) {
		name, err := filepath.Rel(repository, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocksOf(t, name) {
			if slices.Contains([]string{"go", "mermaid", "sql", "text"}, b.kind) ||
				b.kind == "crontab" && name == "docs/fencing.md" || // see TestFenceCrontab
				slices.Contains(runElsewhere, name) {
				continue
			}
			for lines := bufio.NewScanner(strings.NewReader(strings.Join(b.lines,
				"\n"))); lines.Scan(); {
				command, _, _ := strings.Cut(lines.Text(), "#")
				if !strings.HasPrefix(command, "make ") {
					t.Errorf("%s: nobody runs %q", name, command)
					continue
				}
				cmd := exec.Command("bash", "-c", "make -n "+strings.TrimPrefix(command, "make "))
				cmd.Dir = repository
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %s: %v: %s", name, command, err, out)
				}
				for _, variable := range regexp.MustCompile(`\b[A-Z]+=`).FindAllString(command,
					-1) {
					if !bytes.Contains(known, []byte("\n"+strings.TrimSuffix(variable, "=")+" ")) {
						t.Errorf("%s: %s: make does not know %s", name, command, variable)
					}
				}
			}
		}
	}
}
