package driver

import (
	"context"
	"iter"
	"time"
)

// Inspector is a Backend that can show its keys. The answer may be out of date when it arrives, so
// it cannot replace a lock.
type Inspector interface {
	// List yields every key that begins with prefix and that is held or waited for, in no
	// particular order and without its waiters. If the store changes meanwhile, a key may come
	// twice, because List need not remember all keys. It stops at the first error, which it yields.
	// If ctx ends, that is the error of ctx. List calls [Answered] each time the store has
	// answered.
	List(ctx context.Context, prefix string) iter.Seq2[Entry, error]

	// Inspect describes one key with its waiters. A key that nobody holds or waits for gives an
	// Entry with only Key set. An error follows the rules of the package.
	Inspect(ctx context.Context, key string) (Entry, error)
}

type onAnswer struct{}

// OnAnswer returns a context with which List of an [Inspector] calls f each time the store has
// answered, even if nothing in the answer is a result. So whoever lists can tell a store that
// hangs from one with a million other keys. f must be quick and safe for concurrent use.
func OnAnswer(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, onAnswer{}, f)
}

// Answered calls the function of [OnAnswer], if ctx has one.
func Answered(ctx context.Context) {
	if f, ok := ctx.Value(onAnswer{}).(func()); ok {
		f()
	}
}

// BatchInspector is an Inspector that describes many keys at a time for less than each costs alone.
// Whoever lists a million keys needs that.
type BatchInspector interface {
	Inspector

	// InspectBatch describes each of the keys as Inspect does, in their order. The answers need not
	// be of one moment. It returns when ctx ends; then the keys that have no answer have the error
	// of ctx.
	InspectBatch(ctx context.Context, keys []string) []Inspected
}

// Inspected is what InspectBatch says about one key.
type Inspected struct {
	Entry Entry
	Err   error // as of Inspect
}

// Entry describes one key.
type Entry struct {
	Key     string  // the full key
	Holder  Party   // the exclusive holder; zero if there is none
	Sharers []Party // the holders that share the key, with the longest lease last
	Waiters []Party // in the order in which they will be served
}

// Party is a holder or a waiter.
type Party struct {
	Owner     string        // the owner value
	Count     int           // how often a holder of another library holds it; 0 if not known
	Cut       bool          // Owner is only the beginning of a longer value, of another program
	Token     Token         // a holder's first token; 0 for a waiter, or if not known
	ExpiresIn time.Duration // what remains of the lease or the presence; 0 if Endless or not known
	Endless   bool          // the lease has no end: it stays until somebody removes it
}

// Checker is a Backend that can examine its own installation for things that would break the
// promises, such as an eviction policy, a replica that may be promoted, or two nodes on one server.
type Checker interface {
	// Check returns its findings, the worst first. An error means that it could not examine the
	// installation. It follows the rules of the package.
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
	Summary  string // one sentence: what was found
	Advice   string // one sentence: what to do
}
