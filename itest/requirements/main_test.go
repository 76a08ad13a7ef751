package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func TestEveryRequirementHasATest(t *testing.T) {
	tests := thisRepository(t)
	known := make(map[string]bool)
	for _, r := range requirements {
		known[r.id] = true
		if len(tests[r.id]) == 0 {
			t.Errorf("%s has no test with it in its name: %s", r.id, r.text)
		}
	}
	for id, named := range tests {
		if !known[id] {
			t.Errorf("%s names %s, which is no requirement", named[0].name, id)
		}
	}
}

func TestUsersAreToldOfEveryLimit(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requirements {
		for _, place := range r.limit {
			text, err := os.ReadFile(filepath.Join(root, place.file))
			if err != nil {
				t.Fatal(err)
			}
			plain := strings.Join(strings.Fields(strings.ReplaceAll(string(text), "//", " ")), " ")
			if place.words == "" || !strings.Contains(plain, place.words) {
				t.Errorf("%s does not say %q, which tells users of %s: %s", place.file,
					place.words, r.id, r.text)
			}
		}
	}
}

func TestFileIsUpToDate(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(root, fileName))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(written, render(thisRepository(t))) {
		t.Errorf("%s is out of date: run `make requirements`", fileName)
	}
}

func thisRepository(t *testing.T) map[string][]test {
	t.Helper()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	tests, err := findTests(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

func TestFindTests(t *testing.T) {
	found, err := findTests(fstest.MapFS{
		"a_test.go": {Data: []byte(
			"package a\nfunc TestR1_One() {}\nfunc TestR2_R3Two() {}\nfunc TestRate() {}\nfunc TestR() {}\n")},
		"b/b_test.go": {Data: []byte(
			"package b\nfunc TestB() { t.Run(\"R1 in words\", f); t.Run(\"R12: %v\", f); m := map[string]int{\"K1_x\": 1} }\n")},
		"b/b.go":             {Data: []byte("package b\nfunc TestK6() {}\n")},
		"drivertest/d.go":    {Data: []byte("package d\nvar _ = \"K2 there\"\n")},
		"testdata/c_test.go": {Data: []byte("not Go")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int{"R1": 2, "R2": 1, "R3": 1, "K1": 1, "K2": 1, "R12": 0,
		"K6": 0} {
		if len(found[id]) != want {
			t.Errorf("%s: found %v, want %d", id, found[id], want)
		}
	}
}
