//go:build whole && linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// five are the programs that packages and image have.
var five = []string{"holdfast", "holdfast-etcd", "holdfast-fence", "holdfast-postgres",
	"holdfast-zookeeper"}

// distribute makes the files of the release in dir. It returns a user who is where they are.
func distribute(t *testing.T, dir string) *user {
	t.Helper()
	u := workingIn(t, dir)
	u.run("scripts/dist.sh", os.Getenv("HOLDFAST_NFPM"), version)
	u.dir = filepath.Join(dir, "dist")
	return u
}

// workingIn is who works in a clone.
func workingIn(t *testing.T, dir string, env ...string) *user {
	env = append(env, "GOWORK="+filepath.Join(dir, "go.work"))
	return &user{t: t, dir: dir, env: append(os.Environ(), env...)}
}

// TestPackages makes the files of a release twice, in two places, installs the packages that are
// for this machine each in a root of its own, and runs what they bring in there. It needs root, and
// what scripts/install.sh installs for it.
func TestPackages(t *testing.T) {
	_, dir := releaseWhole(t)
	u := distribute(t, dir)
	sums := u.run("cat", "SHA256SUMS")
	u.run("sha256sum", "--quiet", "--check", "SHA256SUMS")

	elsewhere := filepath.Join(t.TempDir(), "else", "where")
	mustGit(t, dir, "clone", "--quiet", ".", elsewhere)
	if other := distribute(t, elsewhere).run("cat", "SHA256SUMS"); other != sums {
		t.Errorf("what was made elsewhere has other bytes:\n%s\nand\n%s", sums, other)
	}

	t.Run("archive", func(t *testing.T) {
		root := t.TempDir()
		u.in(t).run("tar", "-C", root, "--strip-components=1", "-xzf",
			"holdfast_0.2.0_linux_"+runtime.GOARCH+".tar.gz")
		try(t, root, "/bin")
		for _, name := range []string{"LICENSE", "share/completions/_holdfast",
			"share/man/man1/holdfast-run.1.gz"} {
			exists(t, root, name)
		}
	})
	t.Run("deb", func(t *testing.T) {
		root := t.TempDir()
		for _, name := range []string{"info/x", "updates/x", "status"} {
			write(t, filepath.Join(root, "var/lib/dpkg", name), "")
		}
		for _, name := range []string{"info/x", "updates/x"} {
			if err := os.Remove(filepath.Join(root, "var/lib/dpkg", name)); err != nil {
				t.Fatal(err)
			}
		}
		u.in(t).run("dpkg", "--root="+root, "--install", "holdfast_0.2.0_"+runtime.GOARCH+".deb")
		if out := u.in(t).run("dpkg-query", "--root="+root, "--show",
			"--showformat=${db:Status-Status} ${Version}", "holdfast"); out != "installed 0.2.0" {
			t.Errorf("dpkg says %q", out)
		}
		try(t, root, "/usr/bin")
		both(t, root)
		exists(t, root, "usr/share/zsh/vendor-completions/_holdfast")
		exists(t, root, "usr/share/doc/holdfast/copyright")
	})
	t.Run("rpm", func(t *testing.T) {
		root := t.TempDir()
		processor := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
		u.in(t).run("rpm", "--root", root, "--install", "--nodeps",
			filepath.Join(u.dir, "holdfast-0.2.0-1."+processor+".rpm"))
		if out := u.in(t).run("rpm", "--root", root, "--query", "--queryformat",
			"%{VERSION} %{LICENSE} %{BUILDHOST}", "holdfast"); out != "0.2.0 Apache-2.0 holdfast" {
			t.Errorf("rpm says %q", out)
		}
		try(t, root, "/usr/bin")
		both(t, root)
		exists(t, root, "usr/share/zsh/site-functions/_holdfast")
		exists(t, root, "usr/share/licenses/holdfast/LICENSE")
	})
	t.Run("formula", func(t *testing.T) {
		u := u.in(t)
		u.run("ruby", "-c", "holdfast.rb")
		formula := u.run("cat", "holdfast.rb")
		for _, platform := range []string{
			"darwin_arm64", "darwin_amd64", "linux_arm64", "linux_amd64",
		} {
			name := "holdfast_0.2.0_" + platform + ".tar.gz"
			sum, _, _ := strings.Cut(u.run("sha256sum", name), " ")
			_, after, found := strings.Cut(formula, "/releases/download/v0.2.0/"+name+"\"\n")
			if !found || !strings.HasPrefix(strings.TrimSpace(after), "sha256 \""+sum+"\"\n") {
				t.Errorf("%s with %s is not in the formula:\n%s", name, sum, formula)
			}
		}
		if strings.Contains(formula, "@") {
			t.Errorf("the formula is not filled:\n%s", formula)
		}
	})
}

// TestImage builds the image and runs the command from its file system, in a chroot, as its user.
func TestImage(t *testing.T) {
	_, dir := releaseWhole(t)
	// What needs no namespaces and no driver of the kernel.
	store := t.TempDir()
	u := workingIn(t, dir, "BUILDAH_ISOLATION=chroot", "STORAGE_DRIVER=vfs",
		"CONTAINERS_STORAGE_CONF="+store+"/storage.conf")
	write(t, store+"/storage.conf",
		"[storage]\ndriver = \"vfs\"\ngraphroot = \""+store+"/root\"\nrunroot = \""+store+"/run\"\n")
	image := u.run("scripts/image.sh", version)
	if image != "localhost/holdfast:0.2.0" {
		t.Errorf("the image is called %q", image)
	}
	container := u.run("buildah", "from", "--pull-never", image)
	root := u.run("buildah", "mount", container)
	defer u.run("buildah", "umount", container) // in a Cleanup its context would have ended
	out := u.run("buildah", "inspect", "--format",
		"{{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}}", container)
	if out != "65532:65532 [/usr/bin/holdfast]" {
		t.Errorf("user and entry point are %q", out)
	}
	try(t, root, "/usr/bin")
	exists(t, root, "LICENSE")
	// Without an address the user has locks of his own, below /tmp.
	if out := chroot(t, root, "/usr/bin/holdfast", "run", "--quiet", "nightly", "--",
		"/usr/bin/holdfast", "version"); !strings.Contains(out, version) {
		t.Errorf("a lock and a command: %q", out)
	}
	roots, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil || !strings.Contains(string(roots), "BEGIN CERTIFICATE") {
		t.Errorf("the roots of TLS: %v, %d bytes", err, len(roots))
	}
}

// in is the user for a part of the test.
func (u *user) in(t *testing.T) *user {
	part := *u
	part.t = t
	return &part
}

// try runs all five programs from the root, where nothing else is, as somebody who is not root.
func try(t *testing.T, root, bin string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, bin))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if !slices.Equal(names, five) {
		t.Errorf("%s has %q, want %q", bin, names, five)
	}
	for _, name := range five {
		args := []string{bin + "/" + name, "version"}
		if name == "holdfast-fence" {
			args[1] = "--help"
		}
		out := chroot(t, root, args...)
		if args[1] == "version" && !strings.Contains(out, version+" go") {
			t.Errorf("%s says %q, want %s", name, out, version)
		}
	}
}

// chroot runs a command in a root, as the user of the image.
func chroot(t *testing.T, root string, args ...string) string {
	t.Helper()
	args = append([]string{"--userspec=65532:65532", root}, args...)
	cmd := exec.CommandContext(t.Context(), "chroot", args...)
	cmd.Env = []string{}
	out, err := output(cmd)
	if err != nil {
		t.Error(err)
	}
	return out
}

// both are the files that both packages have.
func both(t *testing.T, root string) {
	t.Helper()
	for _, name := range []string{
		"man/man1/holdfast.1.gz", "man/man1/holdfast-run.1.gz",
		"bash-completion/completions/holdfast", "fish/vendor_completions.d/holdfast.fish",
		"doc/holdfast/examples/report.service",
		"doc/holdfast/examples/report.timer", "doc/holdfast/examples/scheduler.service",
	} {
		exists(t, root, "usr/share/"+name)
	}
}

// exists wants a file that has something in it.
func exists(t *testing.T, root, name string) {
	t.Helper()
	if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Size() == 0 {
		t.Errorf("%s: %v", name, err)
	}
}
