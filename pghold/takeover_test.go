//go:build unix

package pghold_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/postgrestest"
	"github.com/holdfast-go/holdfast/pghold"
)

// TestTakeover: a standby takes over from a killed primary. Clients that know both find it. A lock
// that the standby has heard of is held there. Under a guard the standby takes no part for a while,
// even if it was started long before.
func TestTakeover(t *testing.T) {
	primary, err := postgrestest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { primary.Remove() })
	made := open(t, urlOf(primary, "&create=true"))
	standby, err := postgrestest.StartStandby(primary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { standby.Remove() })
	pool, err := pgxpool.New(t.Context(), urlOf(standby, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()

	both := "postgres://holdfast@/postgres?host=" + standby.Dir + "," + primary.Dir +
		"&port=5432,5432&sslmode=disable"
	b, guarded := open(t, both), open(t, both)
	guarded.Guard(time.Hour)
	a := claim("k")
	token := ask(t, b, a, driver.Held).Token
	var quarantine *driver.QuarantineError
	if _, err := guarded.Acquire(t.Context(), claim("k")); !errors.As(err, &quarantine) {
		t.Fatalf("Acquire on a new server under a guard: %v; want a quarantine", err)
	}
	first, err := pgxpool.New(t.Context(), urlOf(primary, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	run(t, first, "UPDATE holdfast.run SET since = since - interval '2 hours'")
	ask(t, guarded, claim("k"), driver.Busy)
	testserver.Eventually(t, "the standby has heard of the lock", func() error {
		var n int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM holdfast.locks").Scan(&n)
		return errors.Join(err, testserver.Not(n == 1, "%d rows", n))
	})

	// A standby takes no writes, and says so.
	alone := open(t, urlOf(standby, ""))
	if _, err := alone.Acquire(t.Context(), claim("k")); !driver.Permanent(err) ||
		!errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire on a standby: %v; want a permanent error", err)
	}
	if codes := checked(t, alone); len(codes) == 0 || codes[0] != "role" {
		t.Errorf("Check of a standby finds %q; want its role first", codes)
	}
	if codes := checked(t, made); !slices.Contains(codes, "replicas") {
		t.Errorf("Check of a primary finds %q; want its replicas", codes)
	}

	primary.Kill()
	run(t, pool, "SELECT pg_promote()")
	testserver.Eventually(t, "the standby serves in the place of the primary", func() error {
		r, err := b.Acquire(t.Context(), claim("k"))
		if err == nil && (r.State != driver.Busy || r.Holder != a.Owner) {
			t.Fatalf("the answer after the takeover is %+v; want busy, held by %q", r, a.Owner)
		}
		if driver.Permanent(err) {
			t.Fatalf("the error after the takeover is permanent: %v", err)
		}
		return err
	})
	// It may have been started long ago. What shows the takeover is what it does not remember.
	var remembers int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM holdfast.run").Scan(
		&remembers); err != nil || remembers != 0 {
		t.Errorf("a server that took over remembers %d starts, %v; want 0", remembers, err)
	}
	testserver.Eventually(t, "the standby is in quarantine", func() error {
		r, err := guarded.Acquire(t.Context(), claim("other"))
		if err == nil {
			t.Fatalf("the answer of a server that took over is %v", r.State)
		}
		return testserver.Not(errors.As(err, &quarantine) && quarantine.Remaining > time.Minute,
			"%v", err)
	})
	release(t, b, a, driver.Held)
	if next := ask(t, b, claim("k"), driver.Held).Token; next <= token {
		t.Errorf("token %d follows %d", next, token)
	}
}

// TestURLs: errors say what is wrong, and show nothing that may be secret.
func TestURLs(t *testing.T) {
	const secret = "S3cReT"
	for url, want := range map[string]string{
		"postgres://u:123456/db":                               "host 1 has a port that is not 1 to 65535",
		"postgres://u:0/db":                                    "an '@' is missing",
		"postgres://h,u:" + secret + ",h:1/":                   "host 2 has a port that is not 1 to 65535",
		"postgres://u:" + secret + ":1/db":                     "host 1 is not well formed",
		"postgres://h,,g/db":                                   "host 2 is empty",
		"postgres://h/db?host=i,":                              "host 2 is empty",
		"postgres://h,:5/db":                                   "host 2 is empty",
		"postgres://h,u%3A" + secret + "%40g":                  "host 2 is not well formed",
		"postgres://" + secret + "%zz/db":                      "host 1 is not well formed",
		"postgres://h%00:1/db":                                 "host 1 is not well formed",
		"postgres://u%40h/db":                                  "host 1 is not well formed",
		"postgres://u%3A" + secret + "/db":                     "host 1 is not well formed",
		"postgres://h%5D/db":                                   "host 1 is not well formed",
		"postgres://h/" + secret + "@g":                        "an '@' behind",
		"postgres://h/db?x=" + secret + "@g":                   "an '@' behind",
		"postgres://h%2Cg/db":                                  "host 1 is not well formed",
		"postgres://[::1%25a%2Cg]/db":                          "host 1 is not well formed",
		"postgres://u:" + secret + "@h:1,u:@g:2/":              "a second '@'",
		"postgres://h:1,g:2/db?host=i":                         "2 ports for 1 host",
		"postgres://h/db?host=i,j,k&port=1,2":                  "2 ports for 3 host",
		"postgres://h/db?x=" + secret + "&sslmode=a&sslmode=b": "parameter 3 is given twice",
		"postgres://h/db?target_session_attrs=" + secret:       "value of target_session_attrs",
		"postgres://h/db?default_query_exec_mode=" + secret:    "default_query_exec_mode",
		"postgres://h/db?pool_max_conns=0":                     "pool_max_conns",
		"postgres://h/db?pool_max_conns=x":                     "pool_max_conns",
		"postgres://h/db?pool_health_check_period=0s":          "must be longer than 0s",
		"postgres://h/db?connect_timeout=-1":                   "invalid connect_timeout: negative",
		"postgres://h,g/db?port=,7":                            "invalid port",
		"postgres://h/db?dbname=a&database=b":                  "parameter 2 is given twice",
		"postgres://h/db?password=a&" + secret:                 "parameter 2 has no name or no value",
		"postgres://h/db?sslmode=":                             "parameter 1 has no name or no value",
		"postgres://h/db?host=":                                "parameter 1 has no name or no value",
		"postgres://h/db?=" + secret:                           "parameter 1 has no name or no value",
		"postgres://h/db?user=%zz" + secret:                    "parameter 1 is not well formed",
		"postgres://h/db?user=a%00" + secret:                   "parameter 1 is not well formed",
		"postgres://h/db?%zz=" + secret:                        "parameter 1 is not well formed",
		"postgres://u" + secret + "%00:p@h/db":                 "is not well formed",
		"postgres://u:" + secret + "%00@h/db":                  "is not well formed",
		"postgres://h/" + secret + "%00":                       "is not well formed",
		"postgres://h/" + secret + "\n":                        "a control character",
		"postgres://h/" + secret + "#":                         "has a '#'",
		"postgres://h/db?ssl=true":                             "ssl is not known",
		"postgres://h/db?SSL=" + secret:                        "sslmode=verify-full",
		"postgres://h/db?ssl_mode=verify-full":                 "ssl_mode is not known",
	} {
		err := pghold.Validate(url)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "123456") {
			t.Errorf("%s: %v; want %q, and no secret", url, err, want)
		}
	}
	for _, host := range []string{"[::1", "::1]", "[1.2.3.4]", "[" + secret + "]", "a[", "[a]b[c]",
		"[[::1]]", "[::1]x", "[::1]5", "[::1]::5", "[fe80::1%25" + secret, "[]", "[]:5"} {
		for _, list := range []string{host, "h," + host, host + ",h:5"} {
			err := pghold.Validate("postgres://" + list + "/db")
			if !errors.Is(err, driver.ErrInvalid) ||
				!strings.Contains(err.Error(), "is not well formed") ||
				strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v; want that a host is not well formed", list, err)
			}
		}
	}
	for _, url := range []string{"redis://h", secret, "postgres://u:" + secret + "/x@h/db",
		"postgres://u:" + secret + "%zz@h/db", "postgres://u:" + secret + "#x@h/db",
		"postgres://u:p@h:" + secret + "/db", "postgres://h/db?sslmode=" + secret,
		"postgres://u:" + secret + "@h/db?create=1", "postgres://u:" + secret + "@h/db?durable=1",
		"postgres://u:" + secret + "@h/db?passfile=/no/such",
		"postgres://u:" + secret + "@h/db?sslrootcert=/no/such",
		"postgres://u:" + secret + "@h/db?connect_timeout=x", "postgres://u:" + secret + "?x@h"} {
		_, opened := pghold.Open(t.Context(), url)
		for _, err := range []error{opened, pghold.Validate(url)} {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s: %v; want %v", url, err, driver.ErrInvalid)
			} else if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error tells the secret: %v", url, err)
			}
		}
	}
	for _, path := range []string{"/db", "", "/?create=true"} {
		_, err := pghold.Open(t.Context(), "postgres://"+secret+":"+secret+"@127.0.0.1:1"+path)
		if !errors.Is(err, driver.ErrUnavailable) || strings.Contains(err.Error(), secret) {
			t.Errorf("Open where nobody listens: %v", err)
		}
	}
	for _, url := range []string{"postgres://u:p@h1:1,h2:2/db?durable=always&create=false",
		"postgres:///db?host=/run", "postgres://::1/db", "postgres://[::1]:65535/db",
		"postgres://h:/db", "postgres://h:1,g/db"} {
		if err := pghold.Validate(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
