//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import "github.com/holdfast-go/holdfast/driver"

// job is one piece of work on one key. What follows the claim belongs to lanes.
type job struct {
	kind  jobKind
	name  string // of the key's file
	claim driver.Claim

	state    jobState
	answered bool // the caller has its result and waits no more
	result   driver.Result
	batch    *batch
}

type jobKind uint8

const (
	jobAcquire jobKind = iota
	jobRenew
	jobRelease
	jobLook   // put the key in order
	jobForget // take our waiters out of its queue
)

// called reports whether a caller of the Backend asks for the job, and not the Backend itself.
func (j *job) called() bool { return j.kind <= jobRelease }

type jobState uint8

const (
	jobWaiting jobState = iota
	jobRunning
	jobDone // or given up
)

func (j *job) over() bool { return j.state == jobDone }

// answer gives the caller the result, unless it has one.
func (j *job) answer(r driver.Result) {
	if j.answered {
		return
	}
	j.answered, j.result = true, r
	if j.batch.left--; j.batch.left == 0 {
		close(j.batch.done)
	}
}

// batch is what one caller waits for.
type batch struct {
	left int
	done chan struct{}
}
