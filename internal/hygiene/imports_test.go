package hygiene

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestHygieneImports(t *testing.T) {
	report(t, thisRepository(t).importComplaints())
}

// kernelBans are packages of the standard library that the kernel does without, and why. Tests may
// import them, and so may the packages in allowed.
var kernelBans = map[string]string{
	"flag":     "it registers on the command line of whoever imports the library; take options",
	"log":      "a library is silent unless asked; use WithLogger and log/slog",
	"plugin":   "it needs cgo and has no counterpart on half of the systems",
	"testing":  "it registers flags and has no place in a service; put test support into drivertest",
	"net/http": "a lock needs no web server; a backend that speaks HTTP is its own module",
}

// servers is the folder of the packages that start servers for tests. Tests of all modules import
// them.
const servers = "internal/testserver"

// neverReleased are the modules that are there for this repository alone, by the list that
// scripts/release reads, too. TestMain fills it in.
var neverReleased []string

// readNeverReleased reads the list.
func readNeverReleased() ([]string, error) {
	data, err := os.ReadFile("scripts/modules.txt")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "internal" {
			dirs = append(dirs, fields[1])
		}
	}
	if len(dirs) == 0 {
		return nil, errors.New("scripts/modules.txt has no internal module")
	}
	return dirs, nil
}

// ofNeverReleased are the internal packages of the kernel that modules import which are never
// released: there is one kernel for them, this one.
var ofNeverReleased = map[string]bool{
	kernelPath + "/internal/clock": true, // simulate sets it
	kernelPath + "/internal/patch": true,
}

// allowed are the packages that may import banned ones: tests that others import, and packages for
// programs that speak HTTP anyway.
var allowed = map[string][]string{
	"testing": {"drivertest", "fence/fencetest", "internal/faketb", servers,
		servers + "/etcdtest", servers + "/redistest", servers + "/versitytest",
		servers + "/zookeepertest"},
	"net/http": {"fence/httpfence", servers + "/versitytest"},
}

// importComplaints enforces the layers. The kernel module imports the standard library and itself,
// tests included; within it driver is the floor, and the root package does not know the backends.
// No module reaches into another one's internal packages, which Go itself would allow among paths
// with one prefix; those that start servers are for the tests of all. What is released imports
// nothing of a module that is not, its tests included.
func (s *sourceTree) importComplaints() (complaints []string) {
	for _, file := range s.goFiles() {
		for _, spec := range file.syntax.Imports {
			imported := importedPath(spec)
			if reason := s.importBan(file, imported); reason != "" {
				complaints = append(complaints, fmt.Sprintf("%s imports %q: %s", s.at(spec),
					imported, reason))
			}
		}
	}
	return complaints
}

func (s *sourceTree) importBan(file *sourceFile, imported string) string {
	owner := s.owner(imported)
	released := !slices.Contains(neverReleased, file.module.dir)
	if !released && ofNeverReleased[imported] {
		return ""
	}
	if released && owner != nil && slices.Contains(neverReleased, owner.dir) {
		return "go mod tidy reads the tests of what a module imports, too, so it would fail for every user of this one"
	}
	if imported == kernelPath+"/"+servers ||
		strings.HasPrefix(imported, kernelPath+"/"+servers+"/") {
		if released && !file.isTest() && !strings.HasPrefix(file.dir()+"/", servers+"/") {
			return "servers are started for tests only"
		}
		return ""
	}
	if owner != file.module && owner != nil && slices.Contains(strings.Split(imported, "/"),
		"internal") {
		return "internal packages belong to their module: one release of it may be combined with any release of " +
			"another, so only what is public can be relied on"
	}
	if !file.module.isKernel() {
		return ""
	}
	switch {
	case imported == "C":
		return "the kernel builds without a C compiler, for every system"
	case owner != nil && !owner.isKernel():
		return "the kernel does not know its satellites, which are modules that require it"
	case owner == nil && strings.Contains(strings.Split(imported, "/")[0], "."):
		return "the kernel imports nothing outside the standard library, tests included, so that adding a lock to a " +
			"service adds no other module to it; what needs more is its own module"
	}
	if file.isTest() {
		return ""
	}
	if reason, banned := kernelBans[imported]; banned && !slices.Contains(allowed[imported],
		file.dir()) {
		return reason
	}
	switch {
	case file.dir() == "driver" && owner != nil && imported != kernelPath+"/internal/clock":
		return "driver is what everything else rests on, and rests on nothing but the clock"
	case file.dir() == "." && owner != nil && imported != kernelPath+"/driver" &&
		!strings.HasPrefix(imported, kernelPath+"/internal/"):
		return "the root package knows backends only by the contract in driver, so that importing it brings in none of them"
	}
	return ""
}

func TestHygieneImportsSelfTest(t *testing.T) {
	const satellite = "redishold/go.mod"
	satelliteMod := "module " + kernelPath + "/redishold\n\ngo 1.25.0\n"
	selfTest(t, (*sourceTree).importComplaints, []treeCase{
		{"standard library and the module itself", map[string]string{
			"locker.go": "package holdfast\nimport (\n\"log/slog\"\n\"" + kernelPath +
				"/driver\"\n\"" + kernelPath + "/internal/clock\"\n)\n",
			"locker_test.go": "package holdfast_test\nimport (\n\"flag\"\n\"testing\"\n\"" +
				kernelPath + "/memhold\"\n)\n",
			"drivertest/run.go":    "package drivertest\nimport \"testing\"\n",
			"fence/fencetest/a.go": "package fencetest\nimport \"testing\"\n",
			"fence/httpfence/a.go": "package httpfence\nimport \"net/http\"\n",
			"memhold/memhold.go": "package memhold\nimport \"" + kernelPath +
				"/internal/clock\"\n",
			"memhold/other_test.go": "package memhold_test\nimport \"" + kernelPath + "\"\n",
		}, nil},
		{"another module",
			map[string]string{"wait.go": "package holdfast\nimport \"golang.org/x/sync/semaphore\"\n"}, []string{"wait.go:2 imports"}},
		{"another module, in a test",
			map[string]string{"memhold/a_test.go": "package memhold\nimport \"github.com/stretchr/testify/assert\"\n"}, []string{"nothing outside the standard library"}},
		{"behind a build tag",
			map[string]string{"a_windows.go": "//go:build windows\n\npackage holdfast\nimport \"golang.org/x/sys/windows\"\n"}, []string{"golang.org/x/sys/windows"}},
		{"cgo", map[string]string{"internal/clock/clock.go": "package clock\nimport \"C\"\n"},
			[]string{"C compiler"}},
		{"kernel imports a satellite", map[string]string{
			satellite: satelliteMod,
			"a.go":    "package holdfast\nimport \"" + kernelPath + "/redishold\"\n",
		}, []string{"does not know its satellites"}},
		{"root imports a backend",
			map[string]string{"a.go": "package holdfast\nimport \"" + kernelPath + "/memhold\"\n"},
			[]string{"only by the contract"}},
		{"driver imports the root", map[string]string{"driver/a.go": "package driver\nimport \"" +
			kernelPath + "\"\n"}, []string{"rests on nothing"}},
		{"banned from the standard library",
			map[string]string{"a.go": "package holdfast\nimport \"testing\"\n"},
			[]string{"registers flags"}},
		{"allowed elsewhere",
			map[string]string{"fence/httpfence/a.go": "package httpfence\nimport \"testing\"\n",
				"fence/a.go": "package fence\nimport \"net/http\"\n"},
			[]string{"no web server", "registers flags"}},
		{"satellite imports what it likes, and the kernel's public packages", map[string]string{
			satellite: satelliteMod,
			"redishold/a.go": "package redishold\nimport (\n\"github.com/redis/rueidis\"\n\"" +
				kernelPath + "/driver\"\n\"" + kernelPath + "/redishold/internal/script\"\n)\n",
			"redishold/b.go":  "package redishold\nimport \"github.com/other/internal/x\"\n",
			"redishold/c2.go": "package redishold\nimport \"testing\"\n",
		}, nil},
		{"tests, and modules that are never released, start servers", map[string]string{
			satellite:      satelliteMod,
			"itest/go.mod": "module " + kernelPath + "/itest\n\ngo 1.25.0\n",
			"redishold/a_test.go": "package redishold\nimport \"" + kernelPath +
				"/internal/testserver/redistest\"\n",
			"itest/lab/lab.go": "package lab\nimport \"" + kernelPath +
				"/internal/testserver\"\n",
			servers + "/redistest/a.go": "package redistest\nimport (\n\"testing\"\n\"" +
				kernelPath + "/internal/testserver\"\n)\n",
		}, nil},
		{"what is released starts servers", map[string]string{
			satellite: satelliteMod,
			"redishold/a.go": "package redishold\nimport \"" + kernelPath +
				"/internal/testserver\"\n",
			"memhold/a.go": "package memhold\nimport \"" + kernelPath +
				"/internal/testserver/redistest\"\n",
		}, []string{"for tests only", "for tests only"}},
		{"what is released imports what is not, in a test", map[string]string{
			satellite:             satelliteMod,
			"itest/go.mod":        "module " + kernelPath + "/itest\n\ngo 1.25.0\n",
			"redishold/a_test.go": "package redishold\nimport \"" + kernelPath + "/itest/lab\"\n",
			"itest/a.go":          "package itest\nimport \"" + kernelPath + "/itest/lab\"\n",
		}, []string{"go mod tidy"}},
		{"satellite imports the kernel's internal packages", map[string]string{
			satellite: satelliteMod,
			"redishold/a_test.go": "package redishold\nimport \"" + kernelPath +
				"/internal/clock\"\n",
		}, []string{"belong to their module"}},
	})
}
