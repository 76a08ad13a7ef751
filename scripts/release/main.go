// Program release makes a release of all modules that are released, with one version: the commit
// that requires it everywhere, and a tag for each module.
//
//	go run ./scripts/release -version v0.1.0 -dry-run
//
// It builds the programs of a version, or of the commit that is checked out if none is named:
//
//	go run ./scripts/release -version v0.1.0 -programs dist -platforms linux/amd64,darwin/arm64
//
// It also compares what the modules export with the folder api, which has that as text (-api
// check), and writes the folder anew (-api write).
//
// RELEASING.md describes what comes before and after.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
)

func main() {
	version := flag.String("version", "", "the version, v0.1.0")
	dryRun := flag.Bool("dry-run", false, "print what would be done, and change nothing")
	api := flag.String("api", "", "check or write the folder api, and release nothing")
	programs := flag.String("programs", "", "build the programs into this folder, and release nothing")
	platforms := flag.String("platforms", "linux/amd64", "what to build the programs for")
	flag.Parse()
	if flag.NArg() > 0 || !slices.Contains([]string{"", "check", "write"}, *api) ||
		(*version == "" && *programs == "") == (*api == "") {
		flag.Usage()
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	root, err := git(ctx, ".", "rev-parse", "--show-toplevel")
	switch {
	case err != nil:
	case *api == "check":
		err = checkSurfaces(ctx, root)
	case *api == "write":
		err = writeSurfaces(ctx, root)
	case *programs != "":
		err = makePrograms(ctx, root, *version, *programs, strings.Split(*platforms, ","))
	default:
		err = makeRelease(ctx, root, *version, *dryRun, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
