// Package job is what the laboratory tells a client process to do.
package job

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Variable is in the environment of a client process, and holds its Job in JSON.
const Variable = "HOLDFAST_ITEST_JOB"

// Skew is in the environment of a client process, and holds by how much its wall clock is off at
// most. Only a program that was built with mutants.Skewed looks at it.
const Skew = "HOLDFAST_ITEST_SKEW"

// Job is for one process.
type Job struct {
	Client   string        // its name
	Seed     uint64        // of the run: what the process draws from it is its own, see Turns
	URLs     []string      // of its nodes: one for a single Redis, several for Redlock
	Keys     []string      // to take turns on
	Short    []string      // the same, for goroutines that hold them only for a moment
	TTL      time.Duration // of its locks
	Guard    time.Duration // of Redlock
	Wait     time.Duration // the longest wait for a lock
	Patience time.Duration // of a probe, in addition to a lost lease and a quarantine
	Work     time.Duration // most work with a lock takes less
	Skew     time.Duration // see Skew
	Workers  int           // goroutines that take turns
	Hasty    int           // goroutines besides, that take turns on Short
	Sets     int           // goroutines besides, that take several of Grouped at once
	Grouped  []string      // keys that are mostly taken together
	// each of them has Permits permits
	Semaphores []string
	Limited    int    // goroutines besides, that take permits of Semaphores
	Permits    int    // how many permits of each the process knows
	Sharing    bool   // ask for some keys as readers do, and downgrade others
	Probe      bool   // acquire each key once, and end
	GoRedis    bool   // use goredishold, not redishold
	Late       bool   // look at the lock, be told to go on, and only then write
	Log        string // file of the history
	Counters   string // socket of the guarded store
	// write to all of these, for one key, and wait between the read and the write for an order;
	// nil: none
	Stores *Stores
	Serve  bool // do not lock, but make Stores for Keys, and be the service among them
}

// Turns returns what each turn of a goroutine of the process draws from. The processes of a run,
// and the goroutines of a process, draw different things. With the same seed each draws the same
// again. However much a turn draws, the next one draws the same.
func (j *Job) Turns(goroutine int) (next func() *rand.Rand) {
	name := fnv.New64a()
	name.Write([]byte(j.Client))
	draw := rand.NewPCG(j.Seed, name.Sum64()+uint64(goroutine))
	return func() *rand.Rand { return rand.New(rand.NewPCG(draw.Uint64(), draw.Uint64())) }
}

// Stores says where the stores are that a client process writes to.
type Stores struct {
	Postgres string // data source name
	MariaDB  string // data source name
	Redis    string // host:port
	Etcd     string // endpoint
	S3       S3     // of objects
	Dir      string // of files, and of the files of SQLite
	HTTP     string // socket of a service
	Memory   string // socket of what the service has in memory
}

// S3 says where a store of objects is, and how it is opened.
type S3 struct {
	URL    string // of its API
	Region string // the region that it says it is in
	Key    string // of the user
	Secret string // of the user
}
