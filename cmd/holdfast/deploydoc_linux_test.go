package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// deployBlocks returns the fenced blocks of docs/deploy.md by their kind, and its text.
func deployBlocks(t *testing.T) (blocks map[string]string, text string) {
	t.Helper()
	blocks = make(map[string]string)
	for _, b := range blocksOf(t, "docs/deploy.md") {
		if blocks[b.kind] != "" {
			t.Errorf("two blocks of kind %q: which one is run?", b.kind)
		}
		blocks[b.kind] = strings.Join(b.lines, "\n")
	}
	for kind := range blocks {
		if !slices.Contains([]string{"conf", "dockerfile", "ini", "redis", "sh", "sql"}, kind) {
			t.Errorf("nobody runs a block of kind %q", kind)
		}
	}
	return blocks, inRepository(t, "docs/deploy.md")
}

// inRepository returns the text of a file.
func inRepository(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDeployDocumentNames: addresses and flags in docs/deploy.md are those of the command.
func TestDeployDocumentNames(t *testing.T) {
	t.Parallel()
	_, text := deployBlocks(t)
	addresses := regexp.MustCompile("`([a-z+]+://[^`]+)`").FindAllStringSubmatch(text, -1)
	for _, a := range addresses {
		if _, err := backendurl.Parse(a[1]); err != nil {
			t.Errorf("%s: %v", a[1], err)
		}
	}
	if len(addresses) != 8 {
		t.Errorf("%d addresses, want one of each kind, and one with a user: %q", len(addresses), addresses)
	}
	const help = "cmd/holdfast/internal/cli/testdata/"
	known := inRepository(t, help+"run.txt") + inRepository(t, help+"lead.txt") +
		" --max-txn-ops  --prefix  --from " // of etcd, and of recipes for images
	for _, f := range regexp.MustCompile("[` ](--[a-z-]+)").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(known, f[1]+" ") {
			t.Errorf("no such flag: %s", f[1])
		}
	}
}

// TestDeployDocumentRights: the rights in docs/deploy.md are those that the tests of the backends
// try, and with those of Redis and etcd the command works.
func TestDeployDocumentRights(t *testing.T) {
	t.Parallel()
	blocks, text := deployBlocks(t)
	words := func(text string) string {
		return strings.Join(strings.Fields(strings.ReplaceAll(text, "//", "")), " ")
	}
	redis, pg := words(inRepository(t, "redishold/doc.go")), inRepository(t, "pghold/doc.go")
	const more = "+spublish +ssubscribe +sunsubscribe +cluster|slots +asking"
	if !strings.Contains(redis, more) || !strings.Contains(text, more) {
		t.Errorf("on a Cluster package and document want something else than %s", more)
	}
	for line := range strings.SplitSeq(blocks["sql"], "\n") {
		if !strings.Contains(pg, "\n//\t"+line+"\n") {
			t.Errorf("package pghold does not want %q", line)
		}
	}

	server := redistest.Start(t)
	for _, command := range strings.Split(blocks["redis"], "\nACL ") {
		command = "ACL " + strings.TrimPrefix(words(command), "ACL ")
		if !strings.Contains(redis, command+" ") {
			t.Errorf("package redishold does not want %q", command)
		}
		server.Do(t, strings.Fields(command)...)
	}
	ends := func(code int, args ...string) {
		t.Helper()
		startCommand(t, exec.Command(holdfastPath, args...)).expectExit(code)
	}
	ends(0, "run", "--on=redis://locks:secret@"+server.Addr, "n", "--", "true")
	ends(0, "ls", "--on=redis://looks:secret@"+server.Addr)
	ends(69, "run", "--on=redis://looks:secret@"+server.Addr, "n", "--", "true")

	etcd, url := startEtcd(t)
	shell := exec.Command("bash", "-ec", blocks["sh"]+
		"\netcdctl user add root:secret\netcdctl auth enable")
	// Its own bounds are seconds, which is short for a busy machine.
	shell.Env = append(os.Environ(), "ETCDCTL_API=3", "ETCDCTL_ENDPOINTS="+etcd.Endpoint(),
		"ETCDCTL_DIAL_TIMEOUT="+guard.String(), "ETCDCTL_COMMAND_TIMEOUT="+guard.String())
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	url = strings.Replace(url, "://", "://locks:secret@", 1)
	ends(0, "run", "--on="+url, "n", "--", "true")
	ends(69, "run", "--on="+url+"?keyspace=elsewhere/", "n", "--", "true")
	mayOnlyLook(t, url, strings.Replace(url, "locks:", "looks:", 1), 0)
}

// TestDeployDocumentJobs starts what docs/deploy.md has for systemd and for a container, with a
// server that is configured as it says, and ends it as they do.
func TestDeployDocumentJobs(t *testing.T) {
	t.Parallel()
	blocks, _ := deployBlocks(t)
	var settings []string
	for line := range strings.SplitSeq(blocks["conf"], "\n") {
		name, value, _ := strings.Cut(line, " ")
		settings = append(settings, "--"+name, value)
	}
	server := redistest.Start(t, redistest.WithArgs(settings...))
	doctor := startCommand(t, exec.Command(holdfastPath, "doctor", "--on", server.URL()))
	doctor.expectExit(0) // notes at most

	bin := t.TempDir()
	report := filepath.Join(bin, "report")
	writeProgram(t, report, "#!/bin/sh\necho report\nread x\n", 0o700)
	if err := os.Symlink(holdfastPath, filepath.Join(bin, "holdfast")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"KillMode=mixed", "SuccessExitStatus=143"} {
		if !strings.Contains(blocks["ini"], "\n"+want+"\n") {
			t.Errorf("the unit does not say %q", want)
		}
	}
	_, unit, _ := strings.Cut(blocks["ini"], "ExecStart=")
	unit, _, _ = strings.Cut(unit, "\n")
	unit = strings.ReplaceAll(unit, "/usr/local/bin/", bin+"/")
	dir := t.TempDir()
	start := func(words ...string) *process {
		cmd := exec.Command("sh", append([]string{"-c", `ulimit -f 0; exec "$@"`, "sh"},
			words...)...) // no file can be written
		cmd.Dir = dir
		cmd.Env = []string{"HOLDFAST_URL=" + server.URL(), "PATH=" + bin + ":/usr/bin:/bin",
			"TMPDIR=" + dir, "HOME=" + dir, "GORACE=" + os.Getenv("GORACE")}
		return startCommand(t, cmd)
	}
	stop := func(p *process) {
		t.Helper()
		p.signal(syscall.SIGTERM)
		p.expectExit(143)
		if n := server.Int(t, "EXISTS", "lock:nightly"); n != 0 {
			t.Errorf("after the stop the lock is still held")
		}
	}
	first := start(strings.Fields(unit)...)
	first.expect("report")
	start(strings.Fields(unit)...).expectExit(0) // on another machine
	stop(first)

	var container []string
	for line := range strings.SplitSeq(blocks["dockerfile"], "\n") {
		var words []string
		if err := json.Unmarshal([]byte(line[strings.Index(line, "["):]), &words); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		container = append(container, words...)
	}
	second := start(container...)
	second.expect("report")
	stop(second)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("written: %v, %v", left, err)
	}
}

// TestUnits: the units in the packages are those that the documents show, except for their user and
// the path of the command.
func TestUnits(t *testing.T) {
	t.Parallel()
	for unit, document := range map[string]string{
		"report.service": "docs/deploy.md", "scheduler.service": "docs/leader.md",
	} {
		text := "\n" + inRepository(t, "deploy/systemd/"+unit)
		settings := 0
		for _, b := range blocksOf(t, document) {
			if b.kind != "ini" {
				continue
			}
			for _, line := range b.lines {
				name, _, found := strings.Cut(line, "=")
				if !found || slices.Contains([]string{"Description", "User", "Environment"}, name) {
					continue
				}
				settings++
				line = strings.Replace(line, "=/usr/local/bin/holdfast ", "=/usr/bin/holdfast ", 1)
				if !strings.Contains(text, "\n"+line+"\n") {
					t.Errorf("%s does not say %q, as %s does", unit, line, document)
				}
			}
		}
		if settings < 8 {
			t.Errorf("%s has %d settings for %s", document, settings, unit)
		}
	}
}
