package protocol

import (
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Needs returns every command that is needed, except those that open a connection and List's SCAN.
// They are in a form that leaves nothing behind: all are about a key that does not exist. A
// connection sends them when it is made, and [Lacks] looks at the replies. Otherwise a command that
// an ACL or the configuration forbids would fail inside a script, without its name. sharded says
// that notices travel on sharded channels.
func Needs(sharded bool) []Command {
	tag := Tag(0)
	key := probePrefix + tag + "}"
	publish, channel := "PUBLISH", channelPrefix+"probe"
	if sharded {
		publish, channel = "SPUBLISH", channelPrefix+"{"+tag+"}:probe"
	}
	return []Command{
		{"EVAL", "return 0", "1", key},
		{"EVALSHA", strings.Repeat("0", 40), "1", key}, // no such script
		{"TIME"},
		{"EXISTS", key},
		{"GET", key},
		{"GETRANGE", key, "0", lastByte},
		{"SET", key, "", "XX", "PX", "1"},
		{"DEL", key},
		{"PTTL", key},
		{"ZADD", key, "XX", "GT", "CH", "1", "t"},
		{"ZSCORE", key, "t"},
		{"ZREM", key, "t"},
		{"ZRANGEBYSCORE", key, "0", "0"},
		{"ZCOUNT", key, "0", "0"},
		{"ZREVRANK", key, "t"},
		{"HSET", key, "f", ""}, // removed again by what follows
		{"PEXPIRE", key, "1000"},
		{"HGET", key, "f"},
		{"HDEL", key, "f"},
		{publish, channel, ""},
	}
}

// Lacks returns an error if the reply to one of the [Needs] says that the command is forbidden or
// does not exist. It ignores any other error; the first call that gets that error reports it.
func Lacks(node string, reply Reply) *driver.Error {
	if reply.Kind != Failure {
		return nil
	}
	err := ServerFailure(node, reply.Str, false)
	if IsServerError(err, "NOPERM") || unknownCommand().MatchString(reply.Str) {
		err.Permanent = true
		return err
	}
	return nil
}
