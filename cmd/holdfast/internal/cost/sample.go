package cost

import (
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
)

// Sample is what something took, each time that it was done.
type Sample struct {
	What string
	Took []time.Duration // sorted; at least one
}

// At returns what it took at most in a share of the cases: 0.5 for the median, 1 for all.
func (s Sample) At(share float64) time.Duration {
	n := len(s.Took)
	i := int(share*float64(n)+0.999999) - 1
	return s.Took[min(max(i, 0), n-1)]
}

// Head is the first row of a table of samples.
var Head = []string{"WHAT", "P50", "P99", "MAX", "TIMES", "TRIPS"}

// Row describes the sample in one row under Head. The last cell compares the medians with that of a
// round trip.
func (s Sample) Row(trip Sample) []string {
	return []string{s.What, shown(s.At(0.5)), shown(s.At(0.99)), shown(s.At(1)),
		decimal(int64(len(s.Took))), tenths(s.trips(trip))}
}

// trips returns how many round trips take as long as the median. It returns 0 if a round trip takes
// no time that the clock shows.
func (s Sample) trips(trip Sample) float64 {
	if trip.At(0.5) <= 0 {
		return 0
	}
	return float64(s.At(0.5)) / float64(trip.At(0.5))
}

// JSON returns the sample as a line.
func (s Sample) JSON(trip Sample) []byte {
	return look.JSONLine(struct {
		What  string  `json:"what"`
		Times int     `json:"times"`
		P50   float64 `json:"p50_us"`
		P99   float64 `json:"p99_us"`
		Max   float64 `json:"max_us"`
		Trips float64 `json:"trips"`
	}{s.What, len(s.Took), micros(s.At(0.5)), micros(s.At(0.99)), micros(s.At(1)),
		float64(int(s.trips(trip)*10+0.5)) / 10})
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()/100) / 10 }
