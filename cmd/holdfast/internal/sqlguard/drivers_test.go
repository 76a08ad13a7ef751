package sqlguard

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backendurl"
)

// TestSQLitePatience: a writer that waits for another one gets the longest time that SQLite can
// count.
func TestSQLitePatience(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	for patience, want := range map[time.Duration]int64{
		time.Second:              1000,
		1000 * time.Hour:         math.MaxInt32,
		time.Duration(1<<63 - 1): math.MaxInt32,
	} {
		db, err := sqlite(backendurl.Database{File: file}, patience)(true)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var got int64
		if err := db.QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&got); err != nil ||
			got != want {
			t.Errorf("%v: busy_timeout is %d, %v; want %d", patience, got, err, want)
		}
	}
}
