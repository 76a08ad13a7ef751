package redishold

import (
	"sync"
	"time"
)

// occasional runs something in the background on request, once at a time and with a pause after
// each run. A request that comes meanwhile is served after the pause.
type occasional struct {
	pause time.Duration
	run   func()

	mu      sync.Mutex
	running bool
	again   bool
	stopped bool
}

func (o *occasional) ask() {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.stopped:
	case o.running:
		o.again = true
	default:
		o.running = true
		go o.loop()
	}
}

func (o *occasional) loop() {
	for {
		o.run()
		time.Sleep(o.pause)
		o.mu.Lock()
		if !o.again || o.stopped {
			o.running = false
			o.mu.Unlock()
			return
		}
		o.again = false
		o.mu.Unlock()
	}
}

func (o *occasional) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
}
