// Package counters is what the locks of the laboratory protect: a counter for each key, kept three
// times. Two of them are guarded, one in memory and one in a row of a database: they refuse a token
// that is smaller than one that they have seen. The third takes every write, and shows what would
// have been lost without a guard.
package counters

import (
	"database/sql"
	"fmt"
	"net"
	"net/rpc"
	"net/url"
	"sync"

	_ "modernc.org/sqlite" // the driver
)

// Args of a call: who writes what.
type Args struct {
	Key   string // the counter
	Owner string // the acquisition
	Token uint64 // its token
	Enter bool   // only read, and refuse smaller tokens from now on
	// only read, as one that shares the key: smaller tokens are still let in, because that of
	// another reader may be smaller
	Look  bool
	Read  uint64 // what the caller believes to be the value; it writes one more
	Loose uint64 // the same of the counter without a guard
}

// Reply to a call.
type Reply struct {
	Accepted bool   // the guard let it pass
	Value    uint64 // of the guarded counter, after the call
	Loose    uint64 // of the other one
}

// Server serves clients on a socket.
type Server struct {
	listener net.Listener
	report   func(key, text string) // is called with a violation
	database *sql.DB
	guarded  *sql.Stmt // the guard in SQL, as one statement

	mu     sync.Mutex
	cells  map[string]*cell
	counts Counts
}

type cell struct {
	token uint64
	owner string
	value uint64
	loose uint64
}

// Counts are totals.
type Counts struct {
	Accepted int // by the guards
	Refused  int // by the guards
	Lost     int // updates of the counter without a guard that another write undid
}

// Open makes a Server that listens on the socket, with its rows in the database file.
func Open(socket, file string, report func(key, text string)) (*Server, error) {
	// The row has to go through SQL, not to survive a power failure. The name is a URL, in which a
	// path may not have every letter.
	name := url.URL{Scheme: "file", Path: file,
		RawQuery: "_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"}
	database, err := sql.Open("sqlite", name.String())
	if err != nil {
		return nil, err
	}
	database.SetMaxOpenConns(1)
	if _, err := database.Exec(
		"CREATE TABLE guarded (key TEXT PRIMARY KEY, token INTEGER, owner TEXT, value INTEGER)"); err != nil {
		database.Close()
		return nil, err
	}
	guarded, err := database.Prepare(
		"UPDATE guarded SET token = ?, owner = ?, value = value + ? WHERE key = ? AND token <= ?")
	if err != nil {
		database.Close()
		return nil, err
	}
	r := &Server{report: report, database: database, guarded: guarded,
		cells: make(map[string]*cell)}
	if r.listener, err = net.Listen("unix", socket); err != nil {
		database.Close()
		return nil, err
	}
	server := rpc.NewServer()
	if err := server.RegisterName("Counters", (*service)(r)); err != nil {
		r.Close()
		return nil, err
	}
	go func() {
		for {
			conn, err := r.listener.Accept()
			if err != nil {
				return // closed
			}
			go server.ServeConn(conn)
		}
	}()
	return r, nil
}

// Close ends it.
func (r *Server) Close() {
	r.listener.Close()
	r.database.Close()
}

// Counts returns the totals so far.
func (r *Server) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// service is what clients call.
type service Server

// Do enters, looks or writes.
func (s *service) Do(args Args, reply *Reply) error {
	r := (*Server)(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cells[args.Key]
	if c == nil {
		c = new(cell)
		r.cells[args.Key] = c
		if _, err := r.database.Exec("INSERT INTO guarded VALUES (?, 0, '', 0)",
			args.Key); err != nil {
			return err
		}
	}
	if !args.Enter && !args.Look {
		if c.loose != args.Loose {
			r.counts.Lost++
		}
		c.loose = args.Loose + 1
	}
	reply.Accepted = c.do(args, r.report)
	row, err := r.inRow(args)
	if err != nil {
		return err
	}
	if row != reply.Accepted {
		r.report(args.Key, fmt.Sprintf("the row says %v to %s with token %d, the register %v", row,
			args.Owner, args.Token, reply.Accepted))
	}
	reply.Value, reply.Loose = c.value, c.loose
	if reply.Accepted {
		r.counts.Accepted++
	} else {
		r.counts.Refused++
	}
	return nil
}

// do is the guard. It refuses a token that is smaller than one before. It reports a token that
// another acquisition has, too. It remembers only the tokens of writers.
func (c *cell) do(args Args, report func(key, text string)) bool {
	if args.Token < c.token {
		return false
	}
	if args.Token == c.token && args.Owner != c.owner {
		report(args.Key, fmt.Sprintf("%s and %s both have token %d", c.owner,
			args.Owner, args.Token))
	}
	if args.Look {
		return true
	}
	c.token, c.owner = args.Token, args.Owner
	if args.Enter {
		return true
	}
	if c.value != args.Read {
		report(args.Key,
			fmt.Sprintf("%s with token %d read %d and then found %d: somebody wrote in between",
				args.Owner, args.Token, args.Read, c.value))
	}
	c.value++
	return true
}

// inRow is the same guard in SQL.
func (r *Server) inRow(args Args) (accepted bool, err error) {
	if args.Look {
		err = r.database.QueryRow("SELECT token <= ? FROM guarded WHERE key = ?",
			int64(args.Token), args.Key).Scan(&accepted)
		return accepted, err
	}
	step := 1
	if args.Enter {
		step = 0
	}
	result, err := r.guarded.Exec(int64(args.Token), args.Owner, step, args.Key, int64(args.Token))
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

// Compare reports where the rows differ from the counters in memory.
func (r *Server) Compare() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, c := range r.cells {
		var token, value uint64
		if err := r.database.QueryRow("SELECT token, value FROM guarded WHERE key = ?",
			key).Scan(&token, &value); err != nil {
			return err
		}
		if token != c.token || value != c.value {
			return fmt.Errorf("%s: the row has token %d and value %d, the register %d and %d", key,
				token, value, c.token, c.value)
		}
	}
	return nil
}
