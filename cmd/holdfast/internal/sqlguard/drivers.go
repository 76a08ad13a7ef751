package sqlguard

import (
	"database/sql"
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
)

// opener opens a database, and lets it be created if it is a file.
type opener = func(create bool) (*sql.DB, error)

// postgres hands the password to the driver apart from the address, because the driver's errors
// repeat the address. It adds a password that comes from somewhere else to the address.
func postgres(at *backendurl.Database, patience time.Duration) (opener, error) {
	settings := map[string]string{"dbname": at.Name}
	if at.User != "" {
		settings["user"] = at.User
	}
	if at.Hosts != "" {
		var hosts, ports []string
		for address := range strings.SplitSeq(at.Hosts, ",") {
			host, port := hostAndPort(address, "5432")
			hosts, ports = append(hosts, host), append(ports, port)
		}
		settings["host"], settings["port"] = strings.Join(hosts, ","), strings.Join(ports, ",")
	}
	maps.Copy(settings, at.Params)
	var address []string
	for name, value := range settings {
		value = strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value)
		address = append(address, name+"='"+value+"'")
	}
	if path := at.Params["sslrootcert"]; path != "" && path != "system" {
		if _, err := authorities("sslrootcert", path); err != nil {
			return nil, err // the driver does not say which file it is about
		}
	}
	if path := at.Params["passfile"]; path != "" && at.Password == "" {
		if _, err := os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("parameter passfile: %w", err) // the driver would go without
		}
	}
	config, err := pgx.ParseConfig(strings.Join(address, " "))
	if err != nil {
		return nil, err
	}
	if err := checkPostgresTLS(&config.Config, at.Params["sslrootcert"]); err != nil {
		return nil, err
	}
	if at.Password == "" {
		at.Password = config.Password
	}
	config.Password = at.Password
	// Nothing stays behind at a server that a pooler shares.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	chooseHost(&config.Config, patience)
	return func(bool) (*sql.DB, error) { return stdlib.OpenDB(*config), nil }, nil
}

// chooseHost shares the time among the hosts, so that one that does not answer leaves the others
// time. Of several hosts it takes one that can be written, because a standby may not have the
// newest token. What the environment says about either has precedence.
func chooseHost(config *pgconn.Config, patience time.Duration) {
	several := slices.ContainsFunc(config.Fallbacks, func(other *pgconn.FallbackConfig) bool {
		return other.Host != config.Host || other.Port != config.Port // or it is without encryption
	})
	if several && config.ConnectTimeout == 0 { // a share for each host, and one for the operation
		config.ConnectTimeout = patience / time.Duration(len(config.Fallbacks)+2)
	}
	if several && config.ValidateConnect == nil {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}

// hostAndPort takes an address apart, both parts of which are optional.
func hostAndPort(address, defaultPort string) (host, port string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = defaultPort
	}
	return host, port
}

func mySQL(at backendurl.Database, patience time.Duration) (opener, error) {
	config := mysql.NewConfig()
	config.User, config.Passwd, config.DBName = at.User, at.Password, at.Name
	host, port := hostAndPort(at.Hosts, "3306")
	config.Net, config.Addr = "tcp", net.JoinHostPort(host, port)
	if socket := at.Params["socket"]; socket != "" {
		config.Net, config.Addr = "unix", socket
	}
	if err := setMySQLTLS(config, host, at.Params); err != nil {
		return nil, err
	}
	config.Timeout = patience
	config.Logger = &mysql.NopLogger{} // it would write to stderr by itself
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return func(bool) (*sql.DB, error) { return sql.OpenDB(connector), nil }, nil
}

// sqlite has the second of two writers wait for as long as there is time.
func sqlite(at backendurl.Database, patience time.Duration) opener {
	return func(create bool) (*sql.DB, error) {
		mode := "rw"
		if create {
			mode = "rwc"
		}
		path := (&url.URL{Path: filepath.ToSlash(at.File)}).EscapedPath()
		wait := min(patience.Milliseconds(), math.MaxInt32) // or SQLite would take it for 0
		return sql.Open("sqlite", fmt.Sprintf("file://%s?mode=%s&_txlock=immediate&_pragma=%s",
			path, mode, url.QueryEscape("busy_timeout("+strconv.FormatInt(wait, 10)+")")))
	}
}

// noSuchTable reports whether SQLite says that there is none. It has no code for that.
func noSuchTable(err error) bool {
	return strings.Contains(err.Error(), "no such table: ")
}
