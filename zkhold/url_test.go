package zkhold

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestURL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("s:e@c/t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]address{
		"zookeeper://h":                   {servers: []string{"h:2181"}, root: "/holdfast"},
		"zookeeper://h/":                  {servers: []string{"h:2181"}, root: "/holdfast"},
		"zookeeper://h:1,[::1]:2,[::2]/a": {servers: []string{"h:1", "[::1]:2", "[::2]:2181"}, root: "/a"},
		"zookeeper://h/a/b%20c/":          {servers: []string{"h:2181"}, root: "/a/b c"},
		"zookeeper://u:p%40q@h?session=7s": {servers: []string{"h:2181"}, root: "/holdfast",
			login: "u:p@q", session: 7 * time.Second},
		"zookeeper://u@h?password-file=" + file: {servers: []string{"h:2181"}, root: "/holdfast",
			login: "u:s:e@c/t"},
	} {
		a, err := parseURL(url)
		if err != nil || !slices.Equal(a.servers, want.servers) || a.root != want.root ||
			a.login != want.login || a.session != want.session {
			t.Errorf("%s is read as %+v, %v; want %+v", url, a, err, want)
		}
		if err := Validate(url); err != nil {
			t.Errorf("Validate(%s) = %v", url, err)
		}
	}
}

// In brackets is an IPv6 address and nothing else. Else a login without its '@' would be looked up
// as a host, and shown in the error about it.
func TestBracketsInURL(t *testing.T) {
	for host, want := range map[string]string{
		"[::1]":                  "[::1]:2181",
		"[fe80::A]:1":            "[fe80::A]:1",
		"[::ffff:1.2.3.4]:65535": "[::ffff:1.2.3.4]:65535",
		"[fe80::1%eth0]:1":       "[fe80::1%eth0]:1",
		"[fe80::1%25eth0]":       "[fe80::1%eth0]:2181", // as it should be written in a URL
	} {
		a, err := parseURL("zookeeper://h," + host)
		if err != nil || !slices.Equal(a.servers, []string{"h:2181", want}) {
			t.Errorf("%s is read as %+v, %v; want %s", host, a, err, want)
		}
	}
	for _, host := range []string{"[", "]", "a[", "[]", "[]:1", "[a", "a]", "[a]", "[a]:1", "[a:1]",
		"[1.2.3.4]", "[::1", "::1]", "[::1]]", "[[::1]", "[[::1]]", "[::1]x", "x[::1]", "[::1]1",
		"[::1]:2]", "[::1]:[2]", "[::1]:[2", "[::1]:2:3", "[::1][::2]", "[::1]:1[::2]", "[::1]]:1",
		"[::1%]", "[::1]%eth0", "[a]b[c]", "a[b]:1", "[::1,::2]", "a:[1]", "a:1]",
		"[user:secret]"} {
		err := Validate("zookeeper://h," + host)
		if !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "secret") ||
			!strings.Contains(err.Error(), "URL: host 2 is not well formed: write host:port, or "+
				"[IPv6]:port with nothing but an IPv6 address in brackets") {
			t.Errorf("%s: %v; want ErrInvalid about host 2, which shows no part of it", host, err)
		}
	}
}

// A wrong URL is refused, and no part of it is shown: it may be part of a password.
func TestWrongURL(t *testing.T) {
	for _, url := range []string{"", "h", "zk://h", "zookeeper:h", "zookeeper://", "zookeeper://,",
		"zookeeper://h,,g", "zookeeper://h:", "zookeeper://h:0", "zookeeper://h g",
		"zookeeper://h:65536", "zookeeper://h,u:hunter2", "zookeeper://::1", "zookeeper://[::1", "zookeeper://h]",
		"zookeeper://h/a//b",
		"zookeeper://h/../a", "zookeeper://h/a/.", "zookeeper://h/%00", "zookeeper://h/ä",
		"zookeeper://h#hunter2", "zookeeper://h?hunter2=1", "zookeeper://h?session=hunter2",
		"zookeeper://h?session=1ms", "zookeeper://h?session=9s&session=9s",
		"zookeeper://h?session=%zz", "zookeeper://hunter2@h", "zookeeper://:hunter2@h",
		"zookeeper://u:hunter2@h?password-file=/dev/null", "zookeeper://u:hunt/er2@h",
		"zookeeper://h?password-file=/dev/null", "zookeeper://u@h?password-file=/no/such/file",
		"zookeeper://u%3av:hunter2@h", "zookeeper://h?tls-ca=/dev/null",
		"zookeepers://h?tls-cert=/dev/null", "zookeepers://h?tls-ca=/dev/null",
		"zookeepers://h?tls-ca=/no/such/file", "zookeepers://h?tls-cert=/dev/null&tls-key=/dev/null",
		"zookeeper://u:%zzhunter2@h"} {
		err := Validate(url)
		var e *driver.Error
		if !errors.As(err, &e) || !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Validate(%q) = %v; want ErrInvalid", url, err)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Validate(%q) = %v, which shows what may be a password", url, err)
		}
	}
}

func TestWrongOptions(t *testing.T) {
	for name, o := range map[string]Option{"nil": nil, "root": WithRoot("a"),
		"no root": WithRoot("/"), "session": WithSession(MinSession - 1),
		"presence": WithPresence(minPresence - 1), "timeout": WithTimeout(0),
		"dialer": WithDialer(nil)} {
		if _, err := Open(t.Context(), "zookeeper://h", o); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Open with a wrong option (%s) = %v; want ErrInvalid", name, err)
		}
	}
}
