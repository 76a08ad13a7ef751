package cost

import (
	"strconv"
	"time"
)

func shown(d time.Duration) string {
	switch {
	case d < 100*time.Microsecond:
		return d.Round(100 * time.Nanosecond).String()
	case d < 10*time.Millisecond:
		return d.Round(time.Microsecond).String()
	default:
		return d.Round(100 * time.Microsecond).String()
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func tenths(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }
