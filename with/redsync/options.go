package redsync

import "time"

// An Option sets an option of a [Mutex].
type Option interface {
	Apply(*Mutex) // sets it
}

// OptionFunc is a function that is an Option.
type OptionFunc func(*Mutex)

// Apply calls f(mutex).
func (f OptionFunc) Apply(mutex *Mutex) { f(mutex) }

// A DelayFunc says how long to wait before another try. tries counts from 1.
type DelayFunc func(tries int) time.Duration

// WithExpiry sets for how long the lock is held unless it is extended. Default 8 s, at least 10 ms.
func WithExpiry(expiry time.Duration) Option {
	return OptionFunc(func(m *Mutex) { m.expiry = expiry })
}

// WithTries sets how often Lock tries. Default 32.
func WithTries(tries int) Option { return OptionFunc(func(m *Mutex) { m.tries = tries }) }

// WithRetryDelay sets how long Lock waits between tries. Default: a random time from 50 to 250 ms.
func WithRetryDelay(delay time.Duration) Option {
	return WithRetryDelayFunc(func(int) time.Duration { return delay })
}

// WithRetryDelayFunc sets a function that says how long Lock waits before the next try.
func WithRetryDelayFunc(delayFunc DelayFunc) Option {
	return OptionFunc(func(m *Mutex) { m.delayFunc = delayFunc })
}

// WithSetNXOnExtend has Extend acquire the lock anew if it is lost and nobody else has it. Somebody
// else may have had it meanwhile, so the new lock has a larger token, and contexts of the former
// lock have ended.
func WithSetNXOnExtend() Option { return OptionFunc(func(m *Mutex) { m.setNXOnExtend = true }) }

// WithDriftFactor sets the part of the expiry set aside for clocks that run at different rates, at
// least 0 and less than 0.5. Default 0.01; 2 ms are always added. Each factor that is used with a
// Redsync has a holdfast.Locker of its own.
func WithDriftFactor(factor float64) Option {
	return OptionFunc(func(m *Mutex) { m.driftFactor = factor })
}

// WithTimeoutFactor sets which part of the expiry one try may take. Default 0.05. With several
// pools it is what each server has to answer, though no more than a sixteenth of the expiry and
// 2 s. A try takes up to three times that if servers do not answer, and the first one up to a
// second more. Each such time that is used, in two digits, has a holdfast.Locker of its own.
func WithTimeoutFactor(factor float64) Option {
	return OptionFunc(func(m *Mutex) { m.timeoutFactor = factor })
}

// WithGenValueFunc sets the function that makes the value of each acquisition. A value must not
// repeat, and has at most 128 bytes of printable ASCII. An error of the function is the error of
// Lock. Default: 16 random bytes in base64.
func WithGenValueFunc(genValueFunc func() (string, error)) Option {
	return OptionFunc(func(m *Mutex) { m.genValueFunc = genValueFunc })
}

// WithValue sets the value of a lock that another Mutex has acquired, in this process or another,
// so that this Mutex extends and unlocks it. To the other Mutex the unlock looks like a loss. While
// its process lives, that process ends the lock unless it is extended there, whatever was done
// here.
func WithValue(v string) Option { return OptionFunc(func(m *Mutex) { m.value = v }) }

// WithFailFast exists only so that programs compile. Lock never waits for servers that a majority
// does not need.
func WithFailFast(bool) Option { return OptionFunc(func(*Mutex) {}) }

// WithShufflePools exists only so that programs compile. All servers are asked at once.
func WithShufflePools(bool) Option { return OptionFunc(func(*Mutex) {}) }

// WithRenewal has the lock renewed until Unlock, for as long as the process lives, so work may take
// longer than the expiry. If the lock is still lost, [Mutex.Held] tells. The old library has
// no such option.
func WithRenewal() Option { return OptionFunc(func(m *Mutex) { m.renew = true }) }

// WithQueue has Lock wait in the queue of the servers instead of trying again, for as long as the
// tries would take with their delays. Waiters are served in the order in which they came, and as
// soon as the lock is free. If a process with the old library unlocks a lock, waiters notice within
// a second, so use WithQueue when there are no such processes any more. The old library has no such
// option.
func WithQueue() Option { return OptionFunc(func(m *Mutex) { m.queue = true }) }
