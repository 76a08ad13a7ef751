package look

import (
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquisition names one acquisition: by its owner value or, if that is empty, by its token.
type Acquisition struct {
	Owner string
	Token driver.Token
}

// String names it as the flags of holdfast release do.
func (a Acquisition) String() string {
	if a.Owner != "" {
		return "the owner " + Shown(a.Owner)
	}
	return "the token " + a.Token.String()
}

// Among returns the holder of the key that is this acquisition, and false if none is. It fails if
// the tokens of the holders are not known, or if several have it.
func (a Acquisition) Among(k Key) (Party, bool, error) {
	if a.Owner != "" {
		// Other values may begin like a value that is cut.
		i := slices.IndexFunc(k.Holders, func(p Party) bool { return p.Value == a.Owner && !p.Cut })
		if i < 0 {
			return Party{}, false, nil
		}
		return k.Holders[i], true, nil
	}
	var found []Party
	for _, p := range k.Holders {
		if p.Token == 0 {
			return Party{}, false, fmt.Errorf("the backend does not keep the token of %v", p)
		}
		if p.Token == a.Token {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return Party{}, false, nil
	case 1:
		return found[0], true, nil
	default:
		return Party{}, false, fmt.Errorf("%d who share it have %v", len(found), a)
	}
}

// Held says in one line who holds the key.
func (k Key) Held() string {
	switch {
	case k.Unknown:
		return "who holds it is not known"
	case len(k.Holders) == 0:
		return "nobody holds it"
	case len(k.Holders) == 1:
		return "it is held by " + k.Holders[0].String()
	default:
		return fmt.Sprintf("it is shared by %d, the longest lease by %v", len(k.Holders),
			k.Holders[len(k.Holders)-1])
	}
}

// Consequences says what it means to free the key while the party holds it: one line for what is so
// now, and one for what will happen.
func (k Key) Consequences(p Party) (is, will string) {
	end := "its lease ends in " + leaseCell(p)
	switch {
	case p.Endless:
		end = "its lease has no end"
	case p.Lease <= 0:
		end = "its lease has no end that is known"
	}
	is = fmt.Sprintf("%v is held by %v, %s; %s, %d wait", k.Name, p, p.life(), end, len(k.Waiters))
	switch {
	case p.Foreign():
		will = "freeing it does not stop that holder, which may never notice"
	case p.Life == Gone:
		will = "freeing it only spares the rest of the lease, if that process is really gone"
	default:
		will = "freeing it does not stop that holder: it works on until it hears of the loss, " +
			"at its next renewal"
	}
	if len(k.Waiters) > 0 && !k.Shared {
		will += "; who waits first has the lock at once"
	}
	return is, will
}
