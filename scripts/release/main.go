// Program release makes a release of all modules that are released, with one version: the commit
// that requires it everywhere, and a tag for each module.
//
//	go run ./scripts/release -version v0.1.0 -dry-run
//
// RELEASING.md describes what comes before and after.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	version := flag.String("version", "", "the version, v0.1.0")
	dryRun := flag.Bool("dry-run", false, "print what would be done, and change nothing")
	flag.Parse()
	if *version == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	root, err := git(ctx, ".", "rev-parse", "--show-toplevel")
	if err == nil {
		err = makeRelease(ctx, root, *version, *dryRun, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
