package redishold

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// durableSettings are the settings of a server that forgets nothing: every write is on its disk
// before it is answered, even while it rewrites its log. Without them the operator's word is not
// believed.
var durableSettings = []struct{ name, want string }{
	{"appendonly", "yes"},
	{"appendfsync", "always"},
	{"no-appendfsync-on-rewrite", "no"},
}

// checkDurable returns an error if the server's settings contradict the operator, who says that it
// is durable. The settings are those of the present run. What counts is how the server kept its
// data in earlier runs, which only the operator knows.
func (c *conn) checkDurable(ctx context.Context) error {
	for _, setting := range durableSettings {
		reply, err := c.ask(ctx, c.wire.B().ConfigGet().Parameter(setting.name).Build())
		if text, ok := serverText(err); ok {
			return &driver.Error{Node: c.name, Permanent: true,
				Err: fmt.Errorf("durable=always cannot be checked: CONFIG GET is needed: %s",
					text)}
		}
		if err != nil {
			return &driver.Error{Node: c.name, Err: err}
		}
		values, _ := reply.AsStrMap()
		if got := values[setting.name]; got != setting.want {
			return &driver.Error{Node: c.name, Permanent: true,
				Err: fmt.Errorf("durable=always contradicts the server: it has %s %s, not %s",
					setting.name, got, setting.want)}
		}
	}
	c.server.Durable = true
	return nil
}
