//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fence_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/fence"
)

// The processes of one machine write a file, which a holder that was overtaken leaves as it is.
func ExampleFile() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "report")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	report := fence.File{Path: filepath.Join(dir, "report.txt")}

	// The tokens are those of two locks.
	if err := report.Write(ctx, 8, strings.NewReader("of the second")); err != nil {
		log.Fatal(err)
	}
	err = report.Write(ctx, 7, strings.NewReader("of the first"))
	text, _ := os.ReadFile(report.Path)
	fmt.Printf("%s; the first was refused: %v\n", text, errors.Is(err, fence.ErrStale))
	// Output: of the second; the first was refused: true
}
