package main_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/mariadbtest"
	"github.com/holdfast-go/holdfast/internal/testserver/postgrestest"
	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
)

// secure is a database that accepts only TLS: the user holdfast with a password, and client with a
// certificate.
type secure struct {
	start       func(t *testing.T, port int, c *redistest.Certificates)
	address     string // without login, host, port and parameters
	certificate string // parameters of who has one
	without     string // how the lack of one is told
	tries       []try
}

// try is what comes of parameters.
type try struct {
	host, parameters string
	refusal          string // how it is told; empty: it works
}

const (
	here             = "127.0.0.1" // as it is in the server's certificate
	byName           = "localhost" // which is not
	unknownAuthority = "x509: certificate signed by unknown authority"
	otherName        = "x509: certificate is not valid for any names, but wanted to match localhost"
)

var secureDatabases = map[string]secure{
	"PostgreSQL": {startSecurePostgres, "postgres://%s@%s:%d/postgres",
		"&sslcert=CERT&sslkey=KEY",
		"connection requires a valid client certificate",
		[]try{
			{here, "sslmode=verify-full&sslrootcert=CA", ""},
			{byName, "sslmode=verify-full&sslrootcert=CA", otherName},
			{here, "sslmode=verify-full&sslrootcert=OTHER", unknownAuthority},
			{here, "sslmode=verify-full&sslrootcert=system", unknownAuthority},
			{here, "sslrootcert=system", unknownAuthority},
			{here, "sslmode=verify-full", unknownAuthority},
			{here, "sslmode=verify-ca&sslrootcert=CA", ""},
			{byName, "sslmode=verify-ca&sslrootcert=CA", ""},
			{here, "sslmode=verify-ca&sslrootcert=OTHER", unknownAuthority},
			{here, "sslmode=require&sslrootcert=OTHER", unknownAuthority},
			{here, "sslmode=require", ""},
			{byName, "", ""},
			{here, "sslmode=disable", "no encryption"},
		}},
	"MariaDB": {startSecureMariaDB, "mysql://%s@%s:%d/test",
		"&tls-cert=CERT&tls-key=KEY", "Access denied",
		[]try{
			{here, "tls=true&tls-ca=CA", ""},
			{byName, "tls=true&tls-ca=CA", otherName},
			{here, "tls=true&tls-ca=OTHER", unknownAuthority},
			{here, "tls-ca=CA", ""},
			{here, "tls-ca=OTHER", unknownAuthority},
			{here, "tls=true", unknownAuthority},
			{here, "tls=skip-verify", ""},
			{byName, "tls=preferred", ""},
			{byName, "", ""},
			{here, "tls=false", "Access denied"},
		}},
}

func startSecurePostgres(t *testing.T, port int, c *redistest.Certificates) {
	s, err := postgrestest.StartTLS(port, c.CA, c.ServerCert, c.ServerKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, s.Remove, s.Log) })
	execute(t, "pgx", s.DSN(), "ALTER ROLE holdfast PASSWORD '"+hidden+"'",
		"CREATE ROLE client LOGIN SUPERUSER")
}

func startSecureMariaDB(t *testing.T, port int, c *redistest.Certificates) {
	s, err := mariadbtest.StartTLS(port, c.CA, c.ServerCert, c.ServerKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, s.Remove, s.Log) })
	execute(t, "mysql", "root@unix("+s.Socket+")/test",
		"CREATE USER holdfast@'127.0.0.1' IDENTIFIED BY '"+hidden+"' REQUIRE SSL",
		"CREATE USER client@'127.0.0.1' REQUIRE X509",
		"GRANT ALL ON test.* TO holdfast@'127.0.0.1'", "GRANT ALL ON test.* TO client@'127.0.0.1'")
}

// execute runs statements on a server.
func execute(t *testing.T, driver, address string, statements ...string) {
	t.Helper()
	db, err := sql.Open(driver, address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// changed runs a statement on a server, and returns how many rows it has changed.
func changed(t *testing.T, driver, address, statement string) int64 {
	t.Helper()
	db, err := sql.Open(driver, address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	result, err := db.ExecContext(t.Context(), statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// documentedTLS returns the parameters by which docs/fencing.md has a server of the address
// verified.
func documentedTLS(t *testing.T, address string) string {
	t.Helper()
	scheme, _, _ := strings.Cut(address, "%")
	for _, b := range blocksOf(t, "docs/fencing.md") {
		for _, line := range b.lines {
			if _, parameters, found := strings.Cut(line, "?"); found &&
				strings.HasPrefix(line, scheme) {
				return strings.Replace(parameters, "/etc/ssl/books.pem", "CA", 1)
			}
		}
	}
	t.Fatalf("docs/fencing.md has no address that begins with %s and has parameters", scheme)
	return ""
}

// TestFenceByTLS: a server is verified as the address says, and one that is not the right one is a
// store that cannot be used.
func TestFenceByTLS(t *testing.T) {
	t.Parallel()
	if err := fenceProgram(); err != nil {
		t.Fatal(err)
	}
	for name, d := range secureDatabases {
		t.Run(name, func(t *testing.T) {
			c := redistest.NewCertificates(t)
			files := strings.NewReplacer("CA", c.CA, "OTHER", redistest.NewCertificates(t).CA,
				"CERT", c.ClientCert, "KEY", c.ClientKey)
			port := testserver.FreePort(t)
			d.start(t, port, c)
			expect := func(login string, try try) {
				t.Helper()
				g := guarded{url: fmt.Sprintf(d.address, login, try.host, port) + "?" +
					files.Replace(try.parameters)}
				if try.refusal == "" {
					g.expect(t, 0, "", "", "init")
					g.expect(t, 0, "", "", "advance", "--token=5", "ledger")
					return
				}
				shown := fmt.Sprintf(d.address, "", try.host, port)
				shown = strings.Replace(shown, "@", "", 1)
				g.expect(t, 69, "", "holdfast: "+shown+": ..."+try.refusal+"...\n", "advance",
					"--token=5", "ledger")
			}
			for _, try := range d.tries {
				expect("holdfast:"+hidden, try)
			}
			trust := documentedTLS(t, d.address)
			expect("holdfast:"+hidden, try{here, trust, ""})
			expect("holdfast:"+hidden, try{byName, trust, otherName})
			expect("holdfast:not-"+hidden, try{here, trust, "..."}) // the server says what it likes
			expect("client", try{here, trust + d.certificate, ""})
			expect("client", try{here, trust, d.without})
		})
	}
}

// TestFenceTLSMistakes: if the address says which authority to trust, and yet the server would not
// be verified, nothing is sent.
func TestFenceTLSMistakes(t *testing.T) {
	t.Parallel()
	if err := fenceProgram(); err != nil {
		t.Fatal(err)
	}
	c, empty := redistest.NewCertificates(t), filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files := strings.NewReplacer("CA", c.CA, "CERT", c.ClientCert, "KEY", c.ClientKey, "EMPTY",
		empty)
	const postgres, mysql = "postgres://u:" + hidden + "@h/db?", "mysql://u:" + hidden + "@h/db?"
	for address, want := range map[string]string{
		// The first of these has no TLS, and the second would get the password.
		"postgres://u:" + hidden + "@/db?host=/no/such,h&sslrootcert=CA": "write sslmode=verify-full",

		postgres + "sslrootcert=CA":                       "write sslmode=verify-full",
		postgres + "sslrootcert=CA&sslmode=prefer":        "write sslmode=verify-full",
		postgres + "sslrootcert=CA&sslmode=allow":         "write sslmode=verify-full",
		postgres + "sslrootcert=CA&sslmode=disable":       "write sslmode=verify-full",
		postgres + "sslrootcert=EMPTY":                    "no certificate in PEM form",
		postgres + "sslrootcert=/no/such":                 "parameter sslrootcert: open /no/such",
		postgres + "sslmode=":                             "parameter sslmode has no value",
		postgres + "sslmode=verify-full&sslrootcert=":     "parameter sslrootcert has no value",
		"postgres://u@h/db?passfile=/no/such":             "parameter passfile: open /no/such",
		mysql + "tls-ca=CA&tls=preferred":                 "need tls=true",
		mysql + "tls-ca=CA&tls=false":                     "need tls=true",
		mysql + "tls-cert=CERT&tls-key=KEY&tls=" + hidden: "need tls=true",
		mysql + "tls=" + hidden:                           "parameter tls is none of",
		mysql + "tls-ca=EMPTY":                            "no certificate in PEM form",
		mysql + "tls-ca=/no/such":                         "parameter tls-ca: open /no/such",
		mysql + "tls-cert=CERT":                           "tls-cert and tls-key go together",
		mysql + "tls-ca=":                                 "parameter tls-ca has no value",
		mysql + "tls-cert=&tls-key=":                      "parameter tls-cert has no value",
		mysql + "tls-cert=CA&tls-key=KEY":                 "parameters tls-cert and tls-key: ",
	} {
		r := guarded{url: files.Replace(address)}.fence(t, "advance", "--token=5", "ledger")
		if r.code != 64 || r.out != "" || strings.Count(r.errors, "\n") != 1 ||
			!strings.Contains(r.errors, want) {
			t.Errorf("%s: %+v; want exit code 64 and %q", address, r, want)
		}
	}
}
