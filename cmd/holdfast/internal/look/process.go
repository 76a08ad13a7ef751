package look

import "github.com/holdfast-go/holdfast/driver"

// Life says what is known of the process of a party.
type Life string

const (
	// Elsewhere: it is on another host, or its owner value does not tell.
	Elsewhere Life = ""

	// Lives: this host has a process with that number.
	Lives Life = "lives"

	// Gone: this host has no process with that number.
	Gone Life = "gone"
)

// Host returns the name of this host as owner values have it.
func Host() string { return host }

// host is the name of this host as owner values have it.
var host = driver.ParseOwner(driver.NewOwner(driver.OwnerSuffix(""))).Host

// lifeOf looks for the process of an owner. A process in another container with this host's name
// has another number there, so here it looks gone, or like another process.
func lifeOf(o driver.Owner) Life {
	if o.PID == 0 || o.Host != host {
		return Elsewhere
	}
	return lifeOfProcess(o.PID)
}
