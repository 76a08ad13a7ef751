//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/testserver/zookeepertest"
	"github.com/holdfast-go/holdfast/itest/check"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/lab"
	"github.com/holdfast-go/holdfast/itest/mutants"
	"github.com/holdfast-go/holdfast/itest/report"
)

// session is all modes of one call of the program.
type session struct {
	work          string // directory of everything that is written
	dir           string // of the report; empty for none
	plain, skewed string // programs of clients

	// Checks are made one after the other: a history takes much memory, and several checks at once
	// would take time from the modes that still run.
	mu         sync.Mutex
	env        report.Environment
	runs       []*report.Run
	broken     []error
	violations int
}

// torture runs the modes, several at once, and writes the report whatever becomes of them.
func torture(ctx context.Context, modes []mode, env report.Environment, dir string) (err error) {
	s := &session{dir: dir, env: env}
	look(&s.env)
	if s.work, err = os.MkdirTemp("", "torture"); err != nil {
		return err
	}
	if s.plain, err = lab.Build(ctx, s.work, ""); err != nil {
		return err
	}
	if s.skewed, err = buildSkewed(ctx, s.work); err != nil {
		return err
	}
	free := make(chan struct{}, env.Parallel)
	var all sync.WaitGroup
	for _, m := range modes {
		free <- struct{}{}
		if ctx.Err() != nil {
			s.fail(m, ctx.Err())
			<-free
			continue
		}
		m.Seed = env.Seed + uint64(m.number-1)
		all.Go(func() {
			defer func() { <-free }()
			if err := s.run(ctx, m); err != nil {
				s.fail(m, err)
			}
		})
	}
	all.Wait()
	if err := s.verdict(); err != nil {
		return fmt.Errorf("%w; what was recorded is in %s", err, s.work)
	}
	return os.RemoveAll(s.work)
}

// verdict returns an error if a promise was not kept, or if a mode has shown nothing.
func (s *session) verdict() error {
	if s.violations > 0 {
		return errors.Join(append(s.broken, fmt.Errorf("%d violations", s.violations))...)
	}
	return errors.Join(s.broken...)
}

// judgeAgain checks what was recorded of the modes, and writes the report in the directory again.
func judgeAgain(modes []mode, env report.Environment, dir string) error {
	s := &session{dir: dir, env: env}
	look(&s.env)
	s.env.Commit, s.env.Checked = env.Commit, s.env.Commit
	for _, m := range modes {
		archive := filepath.Join(dir, report.Archive(m.number))
		if info, err := os.Stat(archive); err == nil {
			s.env.Date = info.ModTime().Format(day)
		}
		m.Seed = env.Seed + uint64(m.number-1)
		_, err := s.judge(m, &lab.Result{Config: m.Config, Logs: []string{archive}})
		if err == nil {
			err = s.write()
		}
		if err != nil {
			s.fail(m, err)
		}
	}
	return s.verdict()
}

// run runs and checks one mode.
func (s *session) run(ctx context.Context, m mode) error {
	config := m.Config
	config.Program = s.plain
	if config.Skew > 0 {
		config.Program = s.skewed
	}
	config.Dir = s.place(m.number)
	if err := os.Mkdir(config.Dir, 0o755); err != nil {
		return err
	}
	fmt.Printf("%s: %v with seed %d\n", m,
		config.Duration.Round(time.Second), config.Seed)
	result, err := lab.Record(ctx, config)
	s.mu.Lock()
	defer s.mu.Unlock()
	// Do this first, because the checks take much memory.
	if err := errors.Join(err, s.keep(m.number)); err != nil {
		return err
	}
	violations, err := s.judge(m, result)
	if err == nil && violations == 0 {
		err = os.RemoveAll(config.Dir) // it is large, and there are many modes
	}
	return errors.Join(err, s.write())
}

// judge checks what was recorded of a mode, and adds it to the report. If that panics, it is the
// error of this mode, and the others go on.
func (s *session) judge(m mode, result *lab.Result) (violations int, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the checks can not be made: %v\n%s", p, debug.Stack())
		}
	}()
	if err := result.Read(); err != nil {
		return 0, err
	}
	start := time.Now()
	found := check.Recorded(result.History)
	run := report.Of(m.number, result, found)
	s.runs = append(s.runs, run)
	slices.SortFunc(s.runs, func(a, b *report.Run) int {
		return cmp.Compare(a.Number(), b.Number())
	})
	fmt.Printf("%s, checked in %v: %v\n", m,
		time.Since(start).Round(time.Second), run.Figures)
	for _, f := range check.Violations(found) {
		violations++
		fmt.Println("VIOLATION:", f)
	}
	s.violations += violations
	return violations, nil
}

// fail notes that a mode has shown nothing. The others go on.
func (s *session) fail(m mode, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Printf("%s: THE LABORATORY DOES NOT WORK: %v\n", m, err)
	s.broken = append(s.broken, fmt.Errorf("%s: %w", m, err))
	s.env.Missing = append(s.env.Missing, m.String())
	if err := s.write(); err != nil {
		s.broken = append(s.broken, err)
	}
}

// write writes the report after each mode, so that what was seen so far is not lost if a later mode
// fails.
func (s *session) write() error {
	if s.dir == "" {
		return nil
	}
	return report.Write(s.dir, s.env, s.runs)
}

// keep keeps what was recorded of a mode, beside the report.
func (s *session) keep(number int) error {
	logs, err := filepath.Glob(filepath.Join(s.place(number), "*.jsonl"))
	if s.dir == "" || err != nil || logs == nil {
		return err
	}
	return errors.Join(os.MkdirAll(s.dir, 0o755),
		history.Archive(filepath.Join(s.dir, report.Archive(number)), logs...))
}

// place is the directory of a mode.
func (s *session) place(number int) string { return filepath.Join(s.work, fmt.Sprint(number)) }

// mode is a mode, with its number among all.
type mode struct {
	lab.Config
	number int
}

// String names the mode.
func (m mode) String() string {
	limits := ""
	if m.Limits {
		limits = ", assumptions broken"
	}
	return fmt.Sprintf("%d (%s, %s%s)", m.number, m.Mode(), m.Persistence, limits)
}

// buildSkewed builds the client program whose wall clock is off.
func buildSkewed(ctx context.Context, dir string) (program string, err error) {
	dir = filepath.Join(dir, mutants.Skewed)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	overlay, err := mutants.Overlay(dir, mutants.Skewed)
	if err != nil {
		return "", err
	}
	return lab.Build(ctx, dir, overlay)
}

// plan divides the time among the wanted modes. Each keeps its number among all modes, and so its
// seed.
func plan(duration time.Duration, wanted *regexp.Regexp) (modes []mode) {
	for i, config := range slices.Concat(lab.Promises, lab.Limits, lab.Coordinators) {
		if m := (mode{config, i + 1}); wanted.MatchString(m.String()) {
			modes = append(modes, m)
		}
	}
	for i := range modes {
		modes[i].Duration = duration / time.Duration(len(modes))
	}
	return modes
}

// day is how a report tells its date.
const day = "2 January 2006"

// look fills in what the repository and the machine show.
func look(env *report.Environment) {
	says := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).Output()
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(out))
	}
	redis := "Redis"
	for word := range strings.FieldsSeq(says("redis-server", "--version")) {
		if version, ok := strings.CutPrefix(word, "v="); ok {
			redis += " " + version
		}
	}
	env.Commit = says("git", "-c", "safe.directory=*", "describe", "--always", "--dirty",
		"--exclude=*")
	env.Databases = database("PostgreSQL", "postgres", "/usr/lib/postgresql/*/bin", says) + ", " +
		database("MariaDB", "mariadbd", "/usr/sbin", says) + ", " +
		database("etcd", "etcd", "/usr/sbin", says) + ", " + database("Versity's S3 gateway",
		"versitygw", filepath.Join(filepath.SplitList(build.Default.GOPATH)[0], "bin"), says)
	env.Servers = strings.Join([]string{database("etcd", "etcd", "/usr/sbin", says),
		database("PostgreSQL", "postgres", "/usr/lib/postgresql/*/bin", says),
		database("PgBouncer", "pgbouncer", "/usr/sbin", says),
		strings.TrimSpace("ZooKeeper " + zookeepertest.Version())}, ", ")
	env.Redis, env.Go, env.Cores = redis, runtime.Version(), runtime.NumCPU()
	env.Date = time.Now().Format(day)
}

// digits matches a version.
var digits = regexp.MustCompile(`\d+(\.\d+)+`)

// database names a database, with the version that its server reports.
func database(name, program, dir string, says func(string, ...string) string) string {
	path, err := testserver.Find(program, program, dir)
	if err != nil {
		return name
	}
	return strings.TrimSpace(name + " " + digits.FindString(says(path, "--version")))
}
