package main_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// obstacles are what a flag may name by mistake, made by name in a folder. There is no device
// among them: with a mistake in the code, root would take it away from the machine.
var obstacles = map[string]func(t *testing.T, path string) error{
	"folder": func(_ *testing.T, path string) error { return os.Mkdir(path, 0o700) },
	"pipe":   func(_ *testing.T, path string) error { return syscall.Mkfifo(path, 0o600) },
	"link to a file": func(t *testing.T, path string) error {
		target := filepath.Join(t.TempDir(), "target")
		t.Cleanup(func() {
			if text, err := os.ReadFile(target); string(text) != "mine" {
				t.Errorf("what the link leads to has %q, %v", text, err)
			}
		})
		return errors.Join(os.WriteFile(target, []byte("mine"), 0o600), os.Symlink(target, path))
	},
	"link to nothing": func(_ *testing.T, path string) error {
		return os.Symlink("nothing", path)
	},
	// As /dev/stdout is one. In these tests it leads to a file, which a look at the target would
	// take for one that can be replaced.
	"link to stdout": func(_ *testing.T, path string) error {
		return os.Symlink("/proc/self/fd/1", path)
	},
}

// writers are the flags that name a file which is replaced as a whole, with the exit code if it is
// something else. A run says 3, since its command has done its work by then.
var writers = map[string]struct {
	code int
	args func(path string) []string
}{
	"--status-file": {74, func(path string) []string {
		return []string{"lead", "--status-file", path, "name", "-c",
			"kill $PPID"} // so that it ends, if it begins
	}},
	"--metrics-file": {3, func(path string) []string {
		return []string{"run", "--metrics-file", path, "name", "--", "sh", "-c", "exit 3"}
	}},
	"--remember": {64, func(path string) []string {
		return []string{"leaks", "--longer-than=1h", "--remember", path}
	}},
}

// TestOnlyFilesAreReplaced: what is no regular file stays, be it by a link, and the error names the
// flag and the path.
func TestOnlyFilesAreReplaced(t *testing.T) {
	for flag, w := range writers {
		for name, makeOne := range obstacles {
			t.Run(strings.TrimLeft(flag, "-")+", "+name, func(t *testing.T) {
				dir, folder := locks(t), t.TempDir()
				path := filepath.Join(folder, "x.prom")
				if err := makeOne(t, path); err != nil {
					t.Fatal(err)
				}
				before, err := os.Lstat(path)
				if err != nil {
					t.Fatal(err)
				}
				cmd := exec.Command(holdfastPath, w.args(path)...)
				cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+dir)
				if cmd.Stdout, err = os.Create(file(t)); err != nil {
					t.Fatal(err)
				}
				p := startCommand(t, cmd)
				p.expectExit(w.code)
				says, kind := p.allStderr(), "no regular file"
				if strings.HasPrefix(name, "link") {
					kind = "a symbolic link"
				}
				if want := flag + `: "` + path + `" is ` + kind + ":"; !strings.Contains(says, want) {
					t.Errorf("it says %q; want %q", says, want)
				}
				if now, err := os.Lstat(path); err != nil || !os.SameFile(before, now) {
					t.Errorf("it is another one now: %v, %v", now, err)
				}
				if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
					t.Errorf("left: %v, %v", left, err)
				}
			})
		}
	}
}

// TestStatusFileThatBecomesAPipe: what somebody puts in place of the file while lead runs stays,
// at a change and at the end.
func TestStatusFileThatBecomesAPipe(t *testing.T) {
	dir, path := locks(t), filepath.Join(t.TempDir(), "status")
	first := startLead(t, dir, "echo", longTTL)
	first.expect("ready")
	second := startLead(t, dir, "echo", longTTL, "--status-file="+path)
	awaitStatus(t, path, "who leads is known", func(s leadStatus) bool { return s.Leader != "" })
	pipe := filepath.Join(t.TempDir(), "pipe")
	// By a rename, since the file is written again every few seconds.
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Rename(pipe, path)); err != nil {
		t.Fatal(err)
	}
	first.signal(syscall.SIGTERM)
	second.expectStderr(`holdfast: --status-file: "` + path + `" is no regular file: `)
	second.expect("ready")
	second.signal(syscall.SIGTERM)
	second.ends()
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("the pipe is gone: %v, %v", info, err)
	}
}
