package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
)

// Do is all that most programs need.
func Example() {
	backend := memhold.New() // for several machines: redishold.Open
	defer backend.Close()
	locker, err := holdfast.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	err = locker.Do(context.Background(), "invoice/42",
		func(ctx context.Context, lock *holdfast.Lock) error {
			// ctx ends when the lock is lost. lock.Token() goes along with every write.
			fmt.Println("paying", lock.Key())
			return ctx.Err()
		})
	fmt.Println("error:", err)
	// Output:
	// paying invoice/42
	// error: <nil>
}

func ExampleLocker_Acquire() {
	backend := memhold.New()
	defer backend.Close()
	locker, _ := holdfast.New(backend, holdfast.WithTTL(10*time.Second))
	defer locker.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lock, err := locker.Acquire(ctx, "report", holdfast.WithLabel("nightly"))
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(context.Background())
	fmt.Println(lock.Key(), lock.Err())
	// Output: report <nil>
}

// Both accounts are locked, or none. Callers may name them in any order.
func ExampleLocker_DoAll() {
	backend := memhold.New()
	defer backend.Close()
	locker, _ := holdfast.New(backend)
	defer locker.Close()

	err := locker.DoAll(context.Background(), []string{"account/9", "account/7"},
		func(ctx context.Context, locks *holdfast.LockSet) error {
			// ctx ends when one of them is lost. Each key has a token of its own.
			for _, lock := range locks.Locks() {
				fmt.Println(lock.Key(), lock.Token() == locks.Token(lock.Key()))
			}
			return ctx.Err()
		})
	fmt.Println("error:", err)
	// Output:
	// account/9 true
	// account/7 true
	// error: <nil>
}

// Readers share a key. A writer has it alone.
func ExampleWithShared() {
	backend := memhold.New()
	defer backend.Close()
	first, _ := holdfast.New(backend)
	defer first.Close()
	second, _ := holdfast.New(backend)
	defer second.Close()
	ctx := context.Background()

	one, _ := first.Acquire(ctx, "prices", holdfast.WithShared())
	two, _ := second.Acquire(ctx, "prices", holdfast.WithShared())
	_, err := second.TryAcquire(ctx, "prices")
	fmt.Println("two readers:", one.Err() == nil && two.Err() == nil)
	fmt.Println("a writer beside them is refused:", errors.Is(err, holdfast.ErrHeld))
	one.Release(ctx)
	two.Release(ctx)

	writer, err := second.TryAcquire(ctx, "prices")
	fmt.Println("a writer after them:", err == nil)
	fmt.Println("its token is larger:", writer.Token() > max(one.Token(), two.Token()))
	writer.Release(ctx)
	// Output:
	// two readers: true
	// a writer beside them is refused: true
	// a writer after them: true
	// its token is larger: true
}

// At most two jobs run at a time, each on a device of its own.
func ExampleWithPermits() {
	backend := memhold.New()
	defer backend.Close()
	locker, _ := holdfast.New(backend)
	defer locker.Close()

	devices := []string{"gpu0", "gpu1"}
	two := holdfast.WithPermits(len(devices))
	used := make(map[string]bool)
	for range devices {
		permit, err := locker.TryAcquire(context.Background(), "render", two)
		if err != nil {
			log.Fatal(err)
		}
		defer permit.Release(context.Background())
		used[devices[permit.Slot()]] = true
	}
	_, err := locker.TryAcquire(context.Background(), "render", two)
	fmt.Println(len(used), "devices in use; a third job is refused:", errors.Is(err, holdfast.ErrHeld))
	// Output: 2 devices in use; a third job is refused: true
}

// Whoever wrote goes on reading what it wrote, and lets others read it too.
func ExampleLock_Downgrade() {
	backend := memhold.New()
	defer backend.Close()
	first, _ := holdfast.New(backend)
	defer first.Close()
	second, _ := holdfast.New(backend)
	defer second.Close()
	ctx := context.Background()

	lock, _ := first.Acquire(ctx, "prices")
	_, err := second.TryAcquire(ctx, "prices", holdfast.WithShared())
	fmt.Println("before, a reader is refused:", errors.Is(err, holdfast.ErrHeld))
	if err := lock.Downgrade(ctx); err != nil {
		log.Fatal(err)
	}
	reader, err := second.TryAcquire(ctx, "prices", holdfast.WithShared())
	fmt.Println("after it, a reader gets in:", err == nil)
	reader.Release(ctx)
	lock.Release(ctx)
	// Output:
	// before, a reader is refused: true
	// after it, a reader gets in: true
}

// A set reads some keys and writes others.
func ExampleLocker_AcquireAll() {
	backend := memhold.New()
	defer backend.Close()
	locker, _ := holdfast.New(backend)
	defer locker.Close()
	other, _ := holdfast.New(backend)
	defer other.Close()
	ctx := context.Background()

	set, err := locker.AcquireAll(ctx, []string{"invoice/42", "prices"},
		holdfast.WithSharedKeys("prices"))
	if err != nil {
		log.Fatal(err)
	}
	_, err = other.TryAcquire(ctx, "prices", holdfast.WithShared())
	fmt.Println("prices can be read:", err == nil)
	_, err = other.TryAcquireAll(ctx, []string{"invoice/41", "invoice/42"})
	fmt.Println("invoice/42 is held:", errors.Is(err, holdfast.ErrHeld))
	_, err = other.TryAcquire(ctx, "invoice/41")
	fmt.Println("nothing is kept of a set that was refused:", err == nil)
	set.Release(ctx)
	// Output:
	// prices can be read: true
	// invoice/42 is held: true
	// nothing is kept of a set that was refused: true
}

func ExampleLocker_TryAcquire() {
	backend := memhold.New()
	defer backend.Close()
	first, _ := holdfast.New(backend, holdfast.WithLabel("first"))
	defer first.Close()
	second, _ := holdfast.New(backend)
	defer second.Close()

	lock, _ := first.TryAcquire(context.Background(), "report")
	defer lock.Release(context.Background())

	_, err := second.TryAcquire(context.Background(), "report")
	var held *holdfast.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Holder.Label)
	}
	// Output: held by first
}

func ExampleLock_Context() {
	backend := memhold.New()
	defer backend.Close()
	locker, _ := holdfast.New(backend)
	defer locker.Close()

	lock, _ := locker.Acquire(context.Background(), "report")
	ctx := lock.Context(context.Background())
	lock.Release(context.Background())
	<-ctx.Done()
	fmt.Println(errors.Is(context.Cause(ctx), holdfast.ErrReleased))
	// Output: true
}

func ExampleLock_Token() {
	backend := memhold.New()
	defer backend.Close()
	locker, _ := holdfast.New(backend)
	defer locker.Close()

	// The protected store remembers the largest token it has seen, and refuses smaller ones.
	var largest holdfast.Token
	write := func(token holdfast.Token) error {
		if token < largest {
			return fmt.Errorf("overtaken")
		}
		largest = token
		return nil
	}

	old, _ := locker.Acquire(context.Background(), "report")
	old.Release(context.Background())
	current, _ := locker.Acquire(context.Background(), "report")
	defer current.Release(context.Background())
	fmt.Println(write(current.Token()), write(old.Token()))
	// Output: <nil> overtaken
}

// Goroutines that share the context of a lock are one holder. Here a mutex keeps them apart.
func ExampleLock_Context_goroutines() {
	backend := memhold.New()
	defer backend.Close()
	locker, err := holdfast.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx := context.Background()
	lock, err := locker.Acquire(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)
	held := lock.Context(ctx)

	nested, err := locker.TryAcquire(held, "report")
	fmt.Println("with the lock's context: same token", err == nil && nested.Token() == lock.Token())
	_, err = locker.TryAcquire(ctx, "report")
	fmt.Println("with another context: held", errors.Is(err, holdfast.ErrHeld))

	var (
		wait  sync.WaitGroup
		mu    sync.Mutex // the lock does not exclude these two from each other
		pages int
	)
	for range 2 {
		wait.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			if held.Err() == nil {
				pages++
			}
		})
	}
	wait.Wait()
	fmt.Println("pages:", pages)
	// Output:
	// with the lock's context: same token true
	// with another context: held true
	// pages: 2
}
