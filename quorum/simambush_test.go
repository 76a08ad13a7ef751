package quorum_test

import (
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// ambush is what a history has go wrong at the moments at which the fate of a claim is decided.
// Faults at random times seldom meet these moments, and so seldom try what rests on the order of
// two steps that are close together. A history draws a few traps, and they snap often: a defect
// that needs the same accident three times is met by a history in which it is no accident.
type ambush struct {
	traps []trap
	// lastMoment is the probability that a reply comes when the time ends that its caller gives it.
	lastMoment float64
	// before is the probability that a worker does nothing for up to dawdle before it takes a step
	// of this kind, as on a busy machine. What comes meanwhile is read late.
	before [steps]float64
	dawdle time.Duration
	// blocks has a waiter reserve another number of tokens each time that it asks.
	blocks bool
	// flaps has connections be cut, and mended, so often that few clients reach all servers.
	flaps bool
}

// step is what a worker does next.
type step uint8

const (
	asks    step = iota // for the key
	hears               // the answer to that, or to a renewal
	notices             // that it has been handed the key
	steps
)

// trap is a fault just after a server has decided something for a client.
type trap struct {
	after  moment
	chance float64
	harm   harm
	lasts  time.Duration // at most
}

// moment is what a server decides.
type moment uint8

const (
	grants moment = iota
	refuses
	renews
	releases
	handsOver
	moments
)

// harm is what a trap does.
type harm uint8

const (
	cutOff        harm = iota // the client from that server
	cutOffOther               // the client from one of all servers
	cutOffMany                // all clients from some servers, in new pairs
	freezeServer              // the one that has decided
	freezeAnother             // one of all
	stopClient
	harms
)

// lieInWait draws an ambush.
func (p *plan) lieInWait(r *rand.Rand) {
	scales := []time.Duration{2 * p.weather.delay, p.ttl / 10, max(p.presence, p.ttl/3),
		min(2*p.ttl, 4*time.Second)}
	p.ambush = ambush{
		lastMoment: []float64{0, 0, 0.02, 0.3}[r.IntN(4)],
		dawdle:     scales[r.IntN(len(scales))],
		blocks:     r.IntN(2) == 0,
	}
	for i := range p.ambush.before {
		p.ambush.before[i] = []float64{0, 0, 0.2, 0.9}[r.IntN(4)]
	}
	for range r.IntN(4) {
		p.ambush.traps = append(p.ambush.traps, trap{
			after: moment(r.IntN(int(moments))), chance: []float64{0.03, 0.2, 0.7}[r.IntN(3)],
			harm: harm(r.IntN(int(harms))), lasts: scales[r.IntN(len(scales))],
		})
	}
}

// waylay makes the plan one of several that wait for one key, with an ambush and few other faults.
func (p *plan) waylay(r *rand.Rand) {
	p.contend(r)
	p.nodes = []int{3, 3, 5}[r.IntN(3)]
	p.clients, p.workers = 2+r.IntN(3), 1+r.IntN(2)
	p.presence = []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, p.ttl}[r.IntN(3)]
	p.pace = []time.Duration{100 * time.Millisecond, time.Second}[r.IntN(2)]
	p.stay = []float64{0.01, 0.1, 0.5}[r.IntN(3)]
	p.deaths = r.IntN(3) == 0
	p.weather.straggle, p.weather.loseNotice = 0.05*r.Float64(), 0
	p.weather.lateNotice = []float64{0, 0, 0.2}[r.IntN(3)]
	p.lieInWait(r)
	if p.ambush.flaps = r.IntN(2) == 0; p.ambush.flaps {
		all := time.Duration(p.nodes * p.clients)
		p.pace = []time.Duration{p.presence, 3 * p.presence}[r.IntN(2)] / all
	}
}

// decided has the traps snap. Called with net.mu held, after a server has decided something for the
// client of c.
func (net *network) decided(c *conn, after moment) {
	for i := range net.ambush.traps {
		t := &net.ambush.traps[i]
		if t.after != after {
			continue
		}
		if chance := c.luckOf("trap", string(rune('0'+i))); chance.happens(strikes, t.chance) {
			net.snap(t, c, chance)
		}
	}
}

// momentOf says what a server has decided with the answer to a request.
func momentOf(what string, value any) moment {
	result, _ := value.(driver.Result)
	switch {
	case what == "renew":
		return renews
	case what == "release":
		return releases
	case what == "acquire" && result.State == driver.Held:
		return grants
	case what == "acquire" && result.State == driver.Busy:
		return refuses
	}
	return moments
}

// snap does a trap's harm, and undoes it later.
func (net *network) snap(t *trap, c *conn, chance *luck) {
	mine := net.conns[c.client*len(net.servers):][:len(net.servers)]
	another := mine[int(float64(len(mine))*chance.throw(strikesWhere))]
	x := chance.throw(strikesFor)
	lasts := max(time.Duration(x*float64(t.lasts)), 1)
	if x < 0.5 {
		lasts = t.lasts
	}
	if net.trace != nil {
		net.trace("%d-%d: trap %v for %v", c.client, c.server.index, *t, lasts)
	}
	var undo func()
	switch t.harm {
	case cutOff:
		undo = c.cutOff()
	case cutOffOther:
		undo = another.cutOff()
	case cutOffMany:
		var undos []func()
		for _, o := range net.conns {
			if chance.throw(strikesHow) < 0.4 {
				undos = append(undos, o.cutOff())
			} else {
				o.cut = false
			}
		}
		undo = func() {
			for _, f := range undos {
				f()
			}
		}
	case freezeServer:
		undo = c.server.freeze()
	case freezeAnother:
		undo = another.server.freeze()
	case stopClient:
		for _, o := range mine {
			o.pause()
		}
		undo = func() {
			for _, o := range mine {
				o.resume()
			}
		}
	}
	time.AfterFunc(lasts, func() {
		net.mu.Lock()
		defer net.mu.Unlock()
		undo()
	})
}

func (c *conn) cutOff() (undo func()) {
	c.cut = true
	return func() { c.cut = false }
}

func (s *server) freeze() (undo func()) {
	if !s.down {
		s.frozen = true
	}
	return func() {
		if s.frozen {
			s.thaw()
		}
	}
}

// dawdle is what a worker does before its next step, now and then: nothing.
func (w *worker) dawdle(before step) {
	a := &w.h.ambush
	if p := a.before[before]; p == 0 || w.r.Float64() >= p {
		return
	}
	w.sleep(max(time.Duration(w.r.Float64()*float64(a.dawdle)), 1))
}
