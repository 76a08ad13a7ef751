package redishold

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// greetToRead sets up a connection over which nothing is changed. The user may be one that is not
// allowed to ask the server what it is; then only the server's name is known.
func (c *conn) greetToRead(ctx context.Context, former *conn) error {
	info, err := c.ask(ctx, c.wire.B().Info().Build())
	text, answered := serverText(err)
	switch {
	case err == nil:
		if err := c.look(info, time.Now(), former != nil); err != nil {
			return err
		}
	case answered && protocol.IsServerError(protocol.ServerFailure("", text, false), "NOPERM"):
		if failure := c.first.failure(c.name); failure != nil {
			return failure
		}
		c.server = &protocol.Server{Name: c.name}
	default:
		return c.greetFailure(err)
	}
	c.watch()
	c.learned()
	return nil
}
