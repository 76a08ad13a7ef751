package pghold

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// channel is the connection over which grants of other processes are heard.
type channel struct {
	live  atomic.Bool // the server has confirmed the LISTEN
	mu    sync.Mutex
	ended bool
	tried chan struct{} // closed when the first attempt has succeeded or failed; nil before it
	done  chan struct{} // closed when the goroutine has ended
}

const (
	// listenPause is between two attempts to listen, and pooledPause after one that has found a
	// pooler.
	listenPause = time.Second
	pooledPause = time.Minute

	// listenCheck is how often a connection that is silent is looked at.
	listenCheck = 15 * time.Second

	// listenWait is how long the first waiter leaves to the connection.
	listenWait = time.Second
)

// prepare starts to listen before a claim first waits. It takes half of the call's time, and a
// second at most, because a grant that is not heard costs a second too.
func (c *channel) prepare(ctx context.Context, b *Backend) {
	if c.live.Load() || b.config.quiet || b.config.notices == nil || !b.listeners.any() {
		return
	}
	c.mu.Lock()
	if c.tried == nil && !c.ended {
		c.tried, c.done = make(chan struct{}), make(chan struct{})
		go c.run(b)
	}
	tried := c.tried
	c.mu.Unlock()
	wait := listenWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-tried:
	case <-timer.C:
	case <-ctx.Done():
	case <-b.life.Done():
	}
}

// stop waits until the goroutine has ended. The context life of the Backend has ended before.
func (c *channel) stop() {
	c.mu.Lock()
	c.ended = true
	done := c.done
	c.mu.Unlock()
	if done != nil {
		<-done
	}
}

func (c *channel) run(b *Backend) {
	defer close(c.done)
	first := sync.OnceFunc(func() { close(c.tried) })
	for {
		err := c.listen(b, first)
		c.live.Store(false)
		first()
		pause := listenPause
		if errors.Is(err, errPooled) {
			pause = pooledPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-b.life.Done():
			timer.Stop()
			return
		}
	}
}

// errPooled says that there is a pooler between the Backend and its server. LISTEN would be sent on
// a connection that others use.
var errPooled = errors.New("a pooler is between")

// listen passes on notices until the connection fails. It calls ready when it hears.
func (c *channel) listen(b *Backend, ready func()) error {
	conn, err := connect(b.life, b.config.notices)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	switch pooled, err := behindPooler(b.life, conn); {
	case err != nil:
		return err
	case pooled:
		return errPooled
	}
	if err := within(b.life, func(ctx context.Context) error {
		_, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{"holdfast_" + b.id}.Sanitize())
		return err
	}); err != nil {
		return err
	}
	c.live.Store(true)
	ready()
	for {
		ctx, cancel := context.WithTimeout(b.life, listenCheck)
		notification, err := conn.WaitForNotification(ctx)
		cancel()
		switch {
		case err == nil:
			b.tell(notification.Payload)
		case b.life.Err() != nil || conn.IsClosed():
			return err
		default: // silent
			if err := within(b.life, conn.Ping); err != nil {
				return err
			}
		}
	}
}

// connect makes a connection.
func connect(ctx context.Context, config *pgx.ConnConfig) (conn *pgx.Conn, err error) {
	err = within(ctx, func(ctx context.Context) error {
		conn, err = pgx.ConnectConfig(ctx, config)
		return err
	})
	return conn, err
}

// within bounds a call.
func within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return f(ctx)
}

// behindPooler reports whether the process that serves the connection is not the one that the
// greeting named. A pooler makes up the number in its greeting.
func behindPooler(ctx context.Context, conn *pgx.Conn) (pooled bool, err error) {
	var pid int64
	err = within(ctx, func(ctx context.Context) error {
		return conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	})
	return pid != int64(conn.PgConn().PID()), err
}
