package holdfast

import (
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// addressees is the pending claims that wait for a notice, by owner value.
type addressees struct {
	mu      sync.Mutex
	waiting map[string]*pendingClaim
}

// channel returns p.notices, and makes it first if it is nil. The caller holds addressees.mu.
func (p *pendingClaim) channel() chan driver.Notice {
	if p.notices == nil {
		p.notices = make(chan driver.Notice, 1)
	}
	return p.notices
}

// expect has notices for the claim delivered. It is called before the first request is sent,
// because a notice may overtake the answer.
func (a *addressees) expect(p *pendingClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = make(map[string]*pendingClaim)
	}
	a.waiting[p.claim.Owner] = p
}

// notices returns the channel for notices of the claim. It is made on demand: most claims are
// granted without it.
func (a *addressees) notices(p *pendingClaim) chan driver.Notice {
	a.mu.Lock()
	defer a.mu.Unlock()
	return p.channel()
}

func (a *addressees) forget(p *pendingClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, p.claim.Owner)
}

// post puts n into the channel, in place of an older notice. But a notice that the key may be free
// does not replace a grant.
func post(notices chan driver.Notice, n driver.Notice) {
	for {
		select {
		case notices <- n:
			return
		default:
		}
		select {
		case old := <-notices:
			if old.Kind == driver.Granted && n.Kind != driver.Granted {
				n = old
			}
		default:
		}
	}
}

// deliver passes a notice on to the claims that it addresses. It never blocks: a leader needs only
// one notice to ask again.
func (a *addressees) deliver(n driver.Notice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n.Owner != "" {
		if p := a.waiting[n.Owner]; p != nil {
			post(p.channel(), n)
		}
		return
	}
	for _, p := range a.waiting {
		if p.claim.Key == n.Key {
			post(p.channel(), n)
		}
	}
}
