package redismodel

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// script is a compiled one.
type script struct {
	sha   string
	proto *lua.FunctionProto
}

// compiled keeps scripts, by source, for all servers: compiling costs more than a simulated
// history.
var compiled sync.Map

// compile returns the script, or an error in the words of Redis.
func compile(source string) (*script, error) {
	if s, ok := compiled.Load(source); ok {
		return s.(*script), nil
	}
	chunk, err := parse.Parse(strings.NewReader(source), "user_script")
	if err != nil {
		return nil, fmt.Errorf("ERR Error compiling script (new function): %w", err)
	}
	proto, err := lua.Compile(chunk, "user_script")
	if err != nil {
		return nil, fmt.Errorf("ERR Error compiling script (new function): %w", err)
	}
	sum := sha1.Sum([]byte(source))
	s := &script{sha: hex.EncodeToString(sum[:]), proto: proto}
	compiled.Store(source, s)
	return s, nil
}

// scriptCommands are added to commands by init, as scripts may run any of those.
var scriptCommands = map[string]command{
	"EVAL": {arity: -3, run: func(s *Server, args []string) protocol.Reply {
		found, err := compile(args[1])
		if err != nil {
			return failure(err.Error())
		}
		s.scripts[found.sha] = found
		return s.eval(found, args)
	}},
	"EVALSHA": {arity: -3, run: func(s *Server, args []string) protocol.Reply {
		found := s.scripts[args[1]]
		if found == nil {
			return failure("NOSCRIPT No matching script. Please use EVAL.")
		}
		return s.eval(found, args)
	}},
	"SCRIPT": {arity: -2, run: (*Server).scriptCommand},
}

func (s *Server) scriptCommand(args []string) protocol.Reply {
	switch {
	case strings.EqualFold(args[1], "LOAD") && len(args) == 3:
		found, err := compile(args[2])
		if err != nil {
			return failure(err.Error())
		}
		s.scripts[found.sha] = found
		return bulk(found.sha)
	case strings.EqualFold(args[1], "FLUSH"):
		clear(s.scripts)
		return okay
	case strings.EqualFold(args[1], "EXISTS"):
		list := make([]protocol.Reply, len(args)-2)
		for i, sha := range args[2:] {
			list[i] = integer(oneIf(s.scripts[sha] != nil))
		}
		return protocol.Reply{Kind: protocol.List, List: list}
	}
	return failure("ERR unknown subcommand or wrong number of arguments for '" + args[1] +
		"'. Try SCRIPT HELP.")
}

// eval runs a script. args are those of EVAL or EVALSHA.
func (s *Server) eval(found *script, args []string) protocol.Reply {
	n, ok := parseInt(args[2])
	switch {
	case !ok:
		return errNotInteger
	case n < 0:
		return failure("ERR Number of keys can't be negative")
	case n > int64(len(args)-3):
		return failure("ERR Number of keys can't be greater than number of args")
	}
	e := engines.Get().(*engine)
	reply, sound := e.run(s, found, args[3:3+n], args[3+n:])
	if sound {
		engines.Put(e)
	}
	return reply
}

// engine is a Lua interpreter with the functions that Redis gives to scripts. It runs scripts of
// any server, one at a time.
type engine struct {
	state     *lua.LState
	functions map[*script]*lua.LFunction
	server    *Server // of the script under way
}

var engines = sync.Pool{New: func() any { return newEngine() }}

func newEngine() *engine {
	e := &engine{
		state:     lua.NewState(lua.Options{SkipOpenLibs: true}),
		functions: make(map[*script]*lua.LFunction),
	}
	l := e.state
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
		lua.StringLibName: lua.OpenString,
		lua.MathLibName:   lua.OpenMath,
	} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	api := l.NewTable()
	api.RawSetString("call", l.NewFunction(func(l *lua.LState) int { return e.call(l, true) }))
	api.RawSetString("pcall", l.NewFunction(func(l *lua.LState) int { return e.call(l, false) }))
	api.RawSetString("error_reply", l.NewFunction(func(l *lua.LState) int {
		text := strings.TrimPrefix(l.CheckString(1), "-")
		if !strings.Contains(text, " ") {
			text = "ERR " + text
		}
		l.Push(table(l, "err", text))
		return 1
	}))
	api.RawSetString("status_reply", l.NewFunction(func(l *lua.LState) int {
		l.Push(table(l, "ok", l.CheckString(1)))
		return 1
	}))
	api.RawSetString("sha1hex", l.NewFunction(func(l *lua.LState) int {
		sum := sha1.Sum([]byte(l.CheckString(1)))
		l.Push(lua.LString(hex.EncodeToString(sum[:])))
		return 1
	}))
	l.SetGlobal("redis", api)
	e.guardGlobals()
	return e
}

// guardGlobals makes a script fail that uses a global variable which is not there, as Redis does:
// it is a name that was misspelt, or a value that would stay for the next script.
func (e *engine) guardGlobals() {
	l := e.state
	guard := l.NewTable()
	guard.RawSetString("__newindex", l.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Attempt to modify a readonly table")
		return 0
	}))
	guard.RawSetString("__index", l.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Script attempted to access nonexistent global variable '%s'",
			l.CheckString(2))
		return 0
	}))
	l.G.Global.Metatable = guard
}

func table(l *lua.LState, name, text string) *lua.LTable {
	t := l.CreateTable(0, 1)
	t.RawSetString(name, lua.LString(text))
	return t
}

// run runs a script and reports whether the engine may be used again.
func (e *engine) run(s *Server, found *script, keys,
	args []string) (reply protocol.Reply, sound bool) {
	l := e.state
	f := e.functions[found]
	if f == nil {
		f = l.NewFunctionFromProto(found.proto)
		e.functions[found] = f
	}
	e.server = s
	l.G.Global.RawSetString("KEYS", texts(l, keys))
	l.G.Global.RawSetString("ARGV", texts(l, args))
	l.Push(f)
	if err := l.PCall(0, 1, nil); err != nil {
		return failure(e.failed(err)), false
	}
	reply = replyOf(l.Get(-1))
	l.SetTop(0)
	e.server = nil
	return reply, true
}

func texts(l *lua.LState, list []string) *lua.LTable {
	t := l.CreateTable(len(list), 0)
	for i, text := range list {
		t.RawSetInt(i+1, lua.LString(text))
	}
	return t
}

// failed gives the words of an error that ended a script.
func (e *engine) failed(err error) string {
	var api *lua.ApiError
	if !errors.As(err, &api) {
		panic(err)
	}
	if api.Type == lua.ApiErrorPanic {
		// of the model, not of the script
		panic(fmt.Sprintf("redismodel: in a script: %v\n%s", api.Object, api.StackTrace))
	}
	if t, ok := api.Object.(*lua.LTable); ok {
		if text, ok := t.RawGetString("err").(lua.LString); ok {
			return string(text)
		}
	}
	return "ERR " + api.Object.String()
}

// call is redis.call, which raises errors, or redis.pcall, which returns them.
func (e *engine) call(l *lua.LState, raise bool) int {
	reply := e.command(l)
	if reply.Kind == protocol.Failure {
		err := table(l, "err", reply.Str)
		if raise {
			l.Error(err, 0)
		}
		l.Push(err)
		return 1
	}
	l.Push(luaOf(l, reply))
	return 1
}

// command carries out the command on the stack.
func (e *engine) command(l *lua.LState) protocol.Reply {
	n := l.GetTop()
	if n == 0 {
		return failure("ERR Please specify at least one argument for this redis.call() call")
	}
	var space [12]string
	args := space[:0]
	for i := range n {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			args = append(args, string(v))
		case lua.LNumber:
			args = append(args, formatScore(float64(v)))
		default:
			return failure("ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	switch name := strings.ToUpper(args[0]); name {
	case "EVAL", "EVALSHA", "SCRIPT", "SUBSCRIBE", "MULTI", "EXEC", "DISCARD", "WAIT", "CONFIG",
		"CLIENT":
		return failure("ERR This Redis command is not allowed from script")
	default:
		reply := e.server.exec(args)
		switch {
		case reply.Kind != protocol.Failure:
		case strings.HasPrefix(reply.Str, "ERR unknown command"):
			return failure("ERR Unknown Redis command called from script")
		case strings.HasPrefix(reply.Str, "NOPERM"):
			return failure("ERR The user executing the script can't run this command or subcommand")
		}
		return reply
	}
}

// luaOf turns a reply into what a script sees of it.
func luaOf(l *lua.LState, reply protocol.Reply) lua.LValue {
	switch reply.Kind {
	case protocol.Integer:
		return lua.LNumber(reply.Int)
	case protocol.String:
		return lua.LString(reply.Str)
	case protocol.List:
		t := l.CreateTable(len(reply.List), 0)
		for i, item := range reply.List {
			t.RawSetInt(i+1, luaOf(l, item))
		}
		return t
	case status:
		return table(l, "ok", reply.Str)
	}
	return lua.LFalse
}

// replyOf turns what a script returns into a reply.
func replyOf(v lua.LValue) protocol.Reply {
	switch v := v.(type) {
	case lua.LNumber:
		return protocol.Reply{Kind: protocol.Integer, Int: int64(v)} // towards zero
	case lua.LString:
		return bulk(string(v))
	case lua.LBool:
		if v {
			return integer(1)
		}
	case *lua.LTable:
		if text, ok := v.RawGetString("err").(lua.LString); ok {
			return failure(string(text))
		}
		if text, ok := v.RawGetString("ok").(lua.LString); ok {
			return protocol.Reply{Kind: status, Str: string(text)}
		}
		list := make([]protocol.Reply, 0, v.Len())
		for i := 1; ; i++ {
			item := v.RawGetInt(i)
			if item == lua.LNil {
				return protocol.Reply{Kind: protocol.List, List: list}
			}
			list = append(list, replyOf(item))
		}
	}
	return protocol.Reply{}
}
