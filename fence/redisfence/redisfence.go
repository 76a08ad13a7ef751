// Package redisfence lets Redis and Valkey refuse a holder that was overtaken, in one step and one
// round trip. Package fence says what a guard is.
//
// It needs no client of its own. You give it a function that runs a script, which every client has.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", MaxRetries: -1}) // go-redis, see Repetitions
//	guard := redisfence.Guard{Eval: func(ctx context.Context, script string, keys []string, args []any) (any, error) {
//		return redis.NewScript(script).Run(ctx, client, keys, args...).Result()
//	}}
//	guard := redisfence.Guard{Eval: func(ctx context.Context, script string, keys []string, args []any) (any, error) {
//		return rueidis.NewLuaScript(script).Exec(ctx, client, keys, redisfence.Strings(args)).ToAny() // rueidis
//	}}
//
//	_, err := guard.Do(ctx, "{account:7}:fence", lock.Token(), redisfence.Command{"SET", "{account:7}", 90})
//
// # Where the token is
//
// The token is in a key of its own. On a Cluster that key has to be in the slot of the keys that
// are written, as {account:7} and {account:7}:fence are. With Guard.Field the token is in a field
// of the hash that is written, so the hash never exists without its token.
//
// # Repetitions
//
// Eval must not repeat a script whose answer did not come: its commands would be executed twice.
// rueidis does not repeat it. go-redis does, unless MaxRetries is -1. Its Cluster client does so
// whatever MaxRetries is, because it follows MOVED in the same way; give it only commands that may
// be repeated, such as SET.
//
// # Limits
//
// The token is as durable as the server: a fail-over can lose the last writes, and tokens with
// them. The token must not expire or be evicted while its lock is used, so the server's eviction
// policy has to be noeviction or a volatile one. If a command of the holder deletes or overwrites
// the token, the script puts it back. It cannot know that the hash expires or that others delete
// it.
package redisfence

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/internal/ending"
)

// Eval runs a Lua script with a client: by EVAL, or by EVALSHA, and by EVAL if the server does not
// have the script. It returns the reply: integers as int64, strings as string, arrays as []any. The
// arguments are strings and the arguments of the caller's commands.
//
// It sends the script again only if the server has said that it does not have it: see Repetitions
// above.
type Eval func(ctx context.Context, script string, keys []string, args []any) (any, error)

// Guard writes to Redis by commands that are executed only if the token is not older than one that
// was accepted. It is safe for concurrent use if Eval is.
type Guard struct {
	_ struct{} // keyed literals only: fields will be added

	// Eval runs a script. Required.
	Eval Eval

	// Field is the field that has the token, if resources are hashes. Default "": a resource is the
	// key of a string that has the token.
	Field string
}

// Command is a command with its arguments. The second element is its key, and is sent to the server
// as a key.
type Command []any

// script is one step on the server. Tokens have up to 16 digits, which a Lua number keeps, up to
// 2^53.
const script = `
local token, field = ARGV[1], ARGV[2]
local function get()
	if field == '' then return redis.call('GET', KEYS[1]) end
	return redis.call('HGET', KEYS[1], field)
end
local function put()
	if field == '' then redis.call('SET', KEYS[1], token) else redis.call('HSET', KEYS[1], field, token) end
end
local stored = get()
if stored then
	if #stored > 16 or not string.match(stored, '^[0-9]+$') then return {'BROKEN', stored} end
	if tonumber(stored) > tonumber(token) then return {'STALE', stored} end
end
put()
local replies, i, failed = {'OK'}, 3, nil
while ARGV[i] and not failed do
	local n = tonumber(ARGV[i])
	local reply = redis.pcall(unpack(ARGV, i + 1, i + n))
	if type(reply) == 'table' and reply.err then failed = {'FAILED', #replies, reply.err} end
	if type(reply) == 'table' and reply.ok then reply = reply.ok end
	replies[#replies + 1] = reply or ''
	i = i + n + 1
end
-- A key of another type that is there now refuses every token.
pcall(function() if get() ~= token then put() end end)
if failed then return failed end
return replies`

// maxElements is how many elements a command may have. Lua passes on at most 8000 values at once,
// less those that are in use. With more, the script would break off in the middle.
const maxElements = 7000

// Do executes the commands one after the other, with nothing in between, if no larger token was
// accepted for the resource. The resource is the key that has the token. Do returns the reply of
// each command; an absent value is an empty string. Without commands it only advances the token.
//
// A command has at most 7000 elements: split what has more into several commands.
//
// Do has written nothing if it fails with [*fence.StaleError] because a larger token was accepted,
// or with [fence.ErrInvalid] for a setting, a resource, a token or a command. It fails with
// [fence.ErrUnknown] if the answer did not come, also because the context ended. Then Do can be
// repeated with the same token, if the commands can. If one of the commands fails, those before it
// are executed, those after it are not, and the token is accepted.
func (g Guard) Do(ctx context.Context, resource string, token fence.Token,
	commands ...Command) ([]any, error) {
	if err := fence.Validate(resource, token); err != nil {
		return nil, err
	}
	keys, args := []string{resource}, []any{token.String(), g.Field}
	for i, c := range commands {
		if len(c) < 2 || len(c) > maxElements {
			return nil,
				fmt.Errorf(
					"fence: %w: command %d to %q has %d elements; it needs a name and a key, and may have %d",
					fence.ErrInvalid, i+1, resource, len(c), maxElements)
		}
		key, ok := c[1].(string)
		if !ok {
			return nil,
				fmt.Errorf("fence: %w: command %d to %q has the key %v, a %T; want a string",
					fence.ErrInvalid, i+1, resource, c[1], c[1])
		}
		keys, args = append(keys, key), append(append(args, strconv.Itoa(len(c))), c...)
	}
	if err := ending.Of(ctx); err != nil {
		return nil, fmt.Errorf("fence: write to %q: %w", resource, err)
	}
	reply, err := g.Eval(ctx, script, keys, args)
	if err != nil {
		return nil, failed(resource, err)
	}
	return g.parse(resource, token, len(commands), reply)
}

// refused reports whether the server has refused a command. Its answer then begins with an
// upper-case word, and nothing was written. The pattern is compiled only when it is needed, because
// few runs of a program need it.
func refused(err error) bool {
	return regexp.MustCompile(`^[A-Z][A-Z0-9]+ `).MatchString(err.Error())
}

func failed(resource string, err error) error {
	if refused(err) {
		return fmt.Errorf("fence: write to %q: %w", resource, err)
	}
	return fmt.Errorf("fence: write to %q: %w: %w", resource, fence.ErrUnknown, err)
}

var errForeign = errors.New("the reply is not that of the script")

func (g Guard) parse(resource string, token fence.Token, commands int, reply any) ([]any, error) {
	list, _ := reply.([]any)
	kind := ""
	if len(list) > 0 {
		kind, _ = list[0].(string)
	}
	switch {
	case kind == "OK" && len(list) == 1+commands:
		return list[1:], nil
	case kind == "STALE" && len(list) == 2:
		newest, _ := strconv.ParseUint(fmt.Sprint(list[1]), 10, 64)
		return nil, &fence.StaleError{Resource: resource, Token: token, Newest: fence.Token(newest)}
	case kind == "BROKEN" && len(list) == 2:
		return nil, fmt.Errorf("fence: write to %q: %w: the stored token is %.40q", resource,
			fence.ErrUnavailable, list[1])
	case kind == "FAILED" && len(list) == 3:
		return nil,
			fmt.Errorf(
				"fence: write to %q: command %v of %d failed, those before it were executed: %v",
				resource, list[1], commands, list[2])
	}
	return nil, failed(resource, fmt.Errorf("%w: %.100q", errForeign, fmt.Sprint(reply)))
}

// Strings returns arguments as texts, for clients that take only texts: strings and slices of bytes
// as they are, nil as the empty text, and all else as fmt.Sprint prints it.
func Strings(args []any) []string {
	texts := make([]string, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case string:
			texts[i] = a
		case []byte:
			texts[i] = string(a)
		case nil:
			// As go-redis has it.
		default:
			if v := reflect.ValueOf(a); v.Kind() == reflect.Slice &&
				v.Type().Elem().Kind() == reflect.Uint8 {
				texts[i] = string(v.Bytes()) // such as json.RawMessage
			} else {
				texts[i] = fmt.Sprint(a)
			}
		}
	}
	return texts
}
