package hygiene

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

func TestHygieneClock(t *testing.T) {
	report(t, thisRepository(t).clockComplaints())
}

// clockComplaints wants one clock in the kernel. The readings of package time stand still while the
// host is suspended, or jump when somebody sets the clock; a lease that is counted by them outlives
// its key. What starts servers for tests counts no leases.
func (s *sourceTree) clockComplaints() (complaints []string) {
	for _, file := range s.goFiles() {
		if !file.module.isKernel() || file.isTest() || file.dir() == "internal/clock" ||
			strings.HasPrefix(file.dir()+"/", servers+"/") {
			continue
		}
		file.uses("time", []string{"Now", "Since", "Until"}, func(node ast.Node, name string) {
			complaints = append(complaints,
				fmt.Sprintf(
					"%s uses %s of package time: what leases are counted by is internal/clock, "+
						"which also counts while the host is suspended", s.at(node), name))
		})
	}
	return complaints
}

func TestHygieneClockSelfTest(t *testing.T) {
	selfTest(t, (*sourceTree).clockComplaints, []treeCase{
		{"elsewhere", map[string]string{
			"internal/clock/clock.go": "package clock\nimport \"time\"\nvar _ = time.Now()\n",
			servers + "/a/a.go":       "package a\nimport \"time\"\nvar _ = time.Now()\n",
			"a_test.go":               "package a\nimport \"time\"\nvar _ = time.Now()\n",
			"a.go":                    "package a\nimport \"time\"\nvar _ = time.NewTimer(time.Second)\nvar clock struct{ Now func() }\nvar _ = clock.Now\n",
			"cmd/holdfast/go.mod":     "module " + kernelPath + "/cmd/holdfast\n",
			"cmd/holdfast/main.go":    "package main\nimport \"time\"\nvar _ = time.Now()\n",
		}, nil},
		{"called",
			map[string]string{"a.go": "package a\nimport \"time\"\nvar t = time.Now()\nvar _ = time.Since(t)\nvar _ = time.Until(t)\n"}, []string{"a.go:3 uses Now",
				"Since", "Until"}},
		{"passed on",
			map[string]string{"memhold/a.go": "package a\nimport \"time\"\nvar now = time.Now\n"},
			[]string{"memhold/a.go:3"}},
		{"renamed",
			map[string]string{"a.go": "package a\nimport wall \"time\"\nvar t = wall.Now()\n"},
			[]string{"uses Now"}},
		{"dot import", map[string]string{"a.go": "package a\nimport . \"time\"\nvar t = Now()\n"},
			[]string{"a dot import"}},
		{"for another system",
			map[string]string{"a_plan9.go": "package a\nimport \"time\"\nvar t = time.Now()\n"},
			[]string{"a_plan9.go:3"}},
	})
}

func TestHygieneSleep(t *testing.T) {
	report(t, thisRepository(t).sleepComplaints())
}

// testFunction matches the functions that go test calls.
var testFunction = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`)

// sleepComplaints wants tests to wait for a state. A sleep that hopes is too short on a busy
// machine and too long on every other; only in a bubble of testing/synctest is it exact, and costs
// nothing.
//
// Whether a call runs in a bubble cannot be seen from the source. Two things can: a package none of
// whose tests imports testing/synctest, or drivertest, which makes bubbles if it is asked to, has
// no bubble, and what stands in the body of a test itself, in no function literal, runs outside of
// the bubbles that the test makes. Exempt are package itest, where real servers need real time, and
// drivertest, which is no test file: it looks for a state at its own pace, in a bubble or out of
// it.
func (s *sourceTree) sleepComplaints() (complaints []string) {
	bubbles := make(map[string]bool) // directories whose tests have them
	for _, file := range s.goFiles() {
		if file.isTest() && (file.imports("testing/synctest") ||
			file.imports(kernelPath+"/drivertest")) {
			bubbles[file.dir()] = true
		}
	}
	for _, file := range s.goFiles() {
		if !file.isTest() || strings.HasPrefix(file.name, "itest/") {
			continue
		}
		complain := func(node ast.Node, reason string) {
			complaints = append(complaints,
				fmt.Sprintf(
					"%s sleeps: %s; wait for the state, or use a bubble of testing/synctest",
					s.at(node), reason))
		}
		file.uses("time", []string{"Sleep"}, func(node ast.Node, name string) {
			if !bubbles[file.dir()] {
				complain(node, "the package's tests import no testing/synctest")
			} else if function := file.bodyAround(node); function != nil &&
				testFunction.MatchString(function.Name.Name) {
				complain(node, "the body of "+function.Name.Name+" is not in a bubble")
			}
		})
	}
	return complaints
}

// bodyAround returns the function in whose body the node stands, or nil if it stands in a function
// literal or in none.
func (f *sourceFile) bodyAround(node ast.Node) *ast.FuncDecl {
	for _, declaration := range f.syntax.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || node.Pos() < function.Pos() || node.End() > function.End() {
			continue
		}
		inLiteral := false
		ast.Inspect(function, func(n ast.Node) bool {
			if literal, ok := n.(*ast.FuncLit); ok && literal.Pos() <= node.Pos() &&
				node.End() <= literal.End() {
				inLiteral = true
			}
			return !inLiteral
		})
		if inLiteral {
			return nil
		}
		return function
	}
	return nil
}

func TestHygieneSleepSelfTest(t *testing.T) {
	const imports = "package a\nimport (\n\"testing\"\n\"testing/synctest\"\n\"time\"\n)\n"
	selfTest(t, (*sourceTree).sleepComplaints, []treeCase{
		{"in a bubble, in a program, in itest", map[string]string{
			"a_test.go": imports +
				"func TestA(t *testing.T) {\nsynctest.Test(t, func(t *testing.T) { time.Sleep(1); later() })\n}\nfunc later() { time.Sleep(1) }\n",
			"a.go":            "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }\n",
			"itest/go.mod":    "module " + kernelPath + "/itest\n",
			"itest/a_test.go": "package itest\nimport \"time\"\nfunc f() { time.Sleep(1) }\n",
			"b_test.go":       "package a\nimport \"time\"\nvar _ = time.NewTicker(1)\n",
		}, nil},
		{"no bubble in the file",
			map[string]string{"a_test.go": "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"}, []string{"a_test.go:3 sleeps: the package's tests import no"}},
		{"beside the bubble",
			map[string]string{"a_test.go": imports +
				"func TestA(t *testing.T) {\ntime.Sleep(1)\nsynctest.Test(t, func(*testing.T) {})\n}\n"}, []string{"body of TestA"}},
		{"passed on",
			map[string]string{"a_test.go": "package a\nimport \"time\"\nvar sleep = time.Sleep\n"},
			[]string{"a_test.go:3"}},
	})
}
