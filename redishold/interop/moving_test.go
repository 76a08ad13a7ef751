package interop_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"strings"
	"testing"
	"time"

	theirs "github.com/go-redsync/redsync/v4"
	theirredis "github.com/go-redsync/redsync/v4/redis"
	theirpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver/redistest"
	ours "github.com/holdfast-go/holdfast/with/redsync"
	ourredis "github.com/holdfast-go/holdfast/with/redsync/redis"
	ourpool "github.com/holdfast-go/holdfast/with/redsync/redis/goredis/v9"
)

// long is an expiry that no pause of the machine ends, nor a twentieth of it, which is what a
// server has to answer.
const long = 5 * time.Minute

// mutex is what both libraries have.
type mutex interface {
	Name() string
	Value() string
	Until() time.Time
	Lock() error
	TryLock() error
	Unlock() (bool, error)
	Extend() (bool, error)
	Valid() (bool, error)
}

// fleet is processes with the old library and processes with the new one, on the same servers.
type fleet struct {
	t       *testing.T
	servers []*redistest.Server
}

func startFleet(t *testing.T, servers int) *fleet {
	f := &fleet{t: t}
	for range servers {
		f.servers = append(f.servers, redistest.Start(t))
	}
	return f
}

func (f *fleet) clients() (clients []*redis.Client) {
	for _, s := range f.servers {
		clients = append(clients, newClient(f.t, s))
	}
	return clients
}

// unmoved returns a mutex of a process that has not moved.
func (f *fleet) unmoved(name string, options ...theirs.Option) mutex {
	var pools []theirredis.Pool
	for _, client := range f.clients() {
		pools = append(pools, theirpool.NewPool(client))
	}
	return theirs.New(pools...).NewMutex(name, options...)
}

// moved returns a mutex of a process that has moved.
func (f *fleet) moved(name string, options ...ours.Option) mutex {
	var pools []ourredis.Pool
	for _, client := range f.clients() {
		pools = append(pools, ourpool.NewPool(client))
	}
	rs := ours.New(pools...)
	f.t.Cleanup(func() { rs.Close() })
	return rs.NewMutex(name, options...)
}

func (f *fleet) must(ok bool, err error) {
	f.t.Helper()
	if !ok || err != nil {
		f.t.Fatal(ok, err)
	}
}

// valid checks what a mutex says of itself. Unlock does not wait for the last server, so that one
// may have refused the next holder, which reports it beside its majority.
func (f *fleet) valid(m mutex) {
	f.t.Helper()
	if ok, err := m.Valid(); !ok {
		f.t.Fatal("not valid: ", err)
	}
}

func (f *fleet) isTaken(err error) {
	f.t.Helper()
	var their *theirs.ErrTaken
	var our *ours.ErrTaken
	if !errors.As(err, &their) && !errors.As(err, &our) {
		f.t.Fatalf("%v, want an ErrTaken", err)
	}
}

// Processes of a fleet move one by one, and back, while all of them use one lock, on one server and
// on three.
func TestFleetMovesToOurRedsync(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 3} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			f := startFleet(t, servers)
			const name = "my-global-mutex"
			fleet := make([]mutex, 3)
			turns := func() {
				for i, m := range fleet {
					f.must(true, m.Lock())
					for _, other := range fleet {
						f.isTaken(other.TryLock())
					}
					f.must(m.Extend())
					f.valid(m)
					if left := time.Until(m.Until()); m.Name() != name || m.Value() == "" ||
						left <= 0 || left > long {
						f.t.Errorf("mutex %d: %q, %q, %v", i, m.Name(), m.Value(), left)
					}
					f.must(m.Unlock())
				}
			}
			for i := range fleet {
				fleet[i] = f.unmoved(name, theirs.WithExpiry(long))
			}
			for i := range fleet {
				turns()
				fleet[i] = f.moved(name, ours.WithExpiry(long))
			}
			turns()
			fleet[0] = f.unmoved(name, theirs.WithExpiry(long))
			turns()
		})
	}
}

// A lock that ran out goes to a process with the other library, and its former holder can not
// unlock it.
func TestExpiryBetweenLibraries(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1)
	brief := 200 * time.Millisecond
	tries := 1000
	pairs := map[string][2]mutex{
		"old, then new": {f.unmoved("a", theirs.WithExpiry(brief), theirs.WithTimeoutFactor(1)),
			f.moved("a", ours.WithExpiry(long), ours.WithTries(tries))},
		"new, then old": {f.moved("b", ours.WithExpiry(brief), ours.WithTimeoutFactor(1)),
			f.unmoved("b", theirs.WithExpiry(long), theirs.WithTries(tries))},
	}
	for order, pair := range pairs {
		f.must(true, pair[0].Lock())
		f.must(true, pair[1].Lock()) // waits for the expiry
		if ok, err := pair[0].Unlock(); ok || err == nil {
			t.Errorf("%s: Unlock of a lock that ran out = %v, %v", order, ok, err)
		}
		f.valid(pair[1])
		f.must(pair[1].Unlock())
	}
}

// A lock of the old library is extended and unlocked by its value.
func TestValueOfTheOldLibrary(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1)
	unmoved := f.unmoved("a", theirs.WithExpiry(long))
	f.must(true, unmoved.Lock())
	if ok, err := f.moved("a", ours.WithValue("another")).Unlock(); ok || err == nil {
		t.Errorf("Unlock with another value = %v, %v", ok, err)
	}
	m := f.moved("a", ours.WithValue(unmoved.Value()), ours.WithExpiry(long))
	f.must(m.Extend())
	f.valid(m)
	f.must(m.Unlock())
	f.must(true, f.unmoved("a").TryLock())
}

// Whatever the old package exports, the new one does, with the same types.
func TestSameAPI(t *testing.T) {
	t.Parallel()
	const path = "github.com/holdfast-go/holdfast/with/redsync"
	was, is := exported(t, "github.com/go-redsync/redsync/v4"), exported(t, path)
	if len(was) < 40 {
		t.Fatalf("only %d things are exported: %v", len(was), was)
	}
	for name, text := range was {
		if is[name] != text {
			t.Errorf("%s is %q here, and was %q", name, is[name], text)
		}
	}
}

// exported returns what a package exports: functions and methods with their types, types with their
// kind, variables.
func exported(t *testing.T, path string) map[string]string {
	t.Helper()
	const files = `{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}`
	out, err := exec.Command("go", "list", "-f", files, path).Output()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, name := range strings.Fields(string(out)) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = types.ExprString(d.Recv.List[0].Type) + "." + name
				}
				if d.Name.IsExported() {
					found[name] = fmt.Sprint(listed(d.Type.Params), listed(d.Type.Results))
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					addSpec(found, spec)
				}
			}
		}
	}
	return found
}

func addSpec(found map[string]string, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		found[s.Name.Name] = fmt.Sprintf("%T", s.Type)
		if structure, ok := s.Type.(*ast.StructType); ok {
			for _, field := range structure.Fields.List {
				for _, name := range field.Names {
					if name.IsExported() {
						found[s.Name.Name+"."+name.Name] = types.ExprString(field.Type)
					}
				}
			}
		}
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() {
				found[name.Name] = "value"
			}
		}
	}
}

// listed returns the types of parameters, one for each.
func listed(fields *ast.FieldList) (list []string) {
	if fields == nil {
		return nil
	}
	for _, field := range fields.List {
		for range max(1, len(field.Names)) {
			list = append(list, types.ExprString(field.Type))
		}
	}
	return list
}
