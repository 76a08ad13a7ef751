package driver

import (
	"context"
	"iter"
	"time"
)

// Inspector is a Backend that can show what it knows. What it shows is a snapshot
// that may be outdated when it is read; never decide on it whether to enter a section.
type Inspector interface {
	// List yields every key that is held or waited for and that begins with prefix, in no
	// particular order, without its waiters. A key may come twice if the store changes meanwhile:
	// List need not remember all keys. It stops at the first error, which it yields; that is the
	// error of ctx if that ends.
	List(ctx context.Context, prefix string) iter.Seq2[Entry, error]

	// Inspect describes one key with its waiters. A key that nobody holds or waits for gives an
	// Entry with only Key set. An error follows the rules of the package.
	Inspect(ctx context.Context, key string) (Entry, error)
}

// Entry describes one key.
type Entry struct {
	Key     string  // the full key
	Holder  Party   // who holds the key alone; zero if nobody does
	Sharers []Party // those who share it, the longest lease last; then Holder is zero
	Waiters []Party // in the order in which they will be served
}

// Party is a holder or a waiter.
type Party struct {
	Owner     string        // the owner value
	Cut       bool          // Owner is only the beginning of a longer value, of another program
	Token     Token         // a holder's first token; 0 if not known, or for a waiter
	ExpiresIn time.Duration // what remains of the lease or the presence; 0 if not known, or Endless
	Endless   bool          // the lease has no end: it stays until somebody removes it
}

// Checker is a Backend that can examine its own installation for what would break the
// promises: an eviction policy, a replica that may be promoted, two nodes that are one.
type Checker interface {
	// Check returns what it found, worst first. An error means that it could not look, and follows
	// the rules of the package.
	Check(ctx context.Context) ([]Finding, error)
}

// Severity grades a Finding.
type Severity uint8

const (
	// Note: worth knowing, nothing to do.
	Note Severity = iota + 1
	// Warning: a promise is weaker than it could be.
	Warning
	// Failure: a promise does not hold.
	Failure
)

// Finding is one result of a check.
type Finding struct {
	Severity Severity
	Code     string // stable and short, for scripts: "eviction-policy"
	Node     string // which server; empty if there is only one
	Summary  string // one sentence: what is the case
	Advice   string // one sentence: what to do
}
