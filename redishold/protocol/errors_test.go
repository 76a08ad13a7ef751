package protocol_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

func TestServerErrors(t *testing.T) {
	const sha = " script: 526d601da0f6ee07e65999fc08f5ac5df0e042a5, on @user_script:1."
	for _, c := range []struct {
		text      string
		words     string // what is told
		maybe     bool
		permanent bool
	}{
		{"READONLY You can't write against a read only replica.",
			"READONLY You can't write against a read only replica.", false, false},
		{"READONLY You can't write against a read only replica." + sha,
			"READONLY You can't write against a read only replica.", false, false},
		{"ERR Error running script (call to f_526d601da0f6ee07e65999fc08f5ac5df0e042a5): @user_script:8: @user_script: 8: -READONLY You can't write against a read only replica.",
			"READONLY You can't write against a read only replica.", false, false},
		{"OOM command not allowed when used memory > 'maxmemory'." + sha,
			"OOM command not allowed when used memory > 'maxmemory'.", false, false},
		{"LOADING Redis is loading the dataset in memory",
			"LOADING Redis is loading the dataset in memory", false, false},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
			"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
			false, false},
		{"NOAUTH Authentication required.", "NOAUTH Authentication required.", false, true},
		{"WRONGPASS invalid username-password pair or user is disabled.",
			"WRONGPASS invalid username-password pair or user is disabled.", false, true},
		{"NOPERM this user has no permissions to run the 'zadd' command",
			"NOPERM this user has no permissions to run the 'zadd' command", false, true},
		{"NOPERM this user has no permissions to run the 'zadd' command" + sha,
			"NOPERM this user has no permissions to run the 'zadd' command", true, true},
		{"The user executing the script can't access at least one of the keys mentioned in the command arguments" + sha,
			"NOPERM The user executing the script can't access at least one of the keys mentioned in the command arguments",
			true, true},
		{"ERR The user executing the script can't run this command or subcommand" + sha,
			"NOPERM The user executing the script can't run this command or subcommand", true,
			true},
		{"ERR ACL failure in script: User default has no permissions to run the 'zadd' command" +
			sha,
			"NOPERM ACL failure in script: User default has no permissions to run the 'zadd' command",
			true, true},
		{"ACL failure in script: No permissions to access a key script: on @user_script:31.",
			"NOPERM ACL failure in script: No permissions to access a key", true, true},
		{"READONLY You can't write against a read only replica. script: on @user_script:1.",
			"READONLY You can't write against a read only replica.", false, false},
		{"OOM command not allowed when used memory > 'maxmemory'. script: , on @user_script:1.",
			"OOM command not allowed when used memory > 'maxmemory'.", false, false},
		{"ERR Error running script (call to f_526d601da0f6ee07e65999fc08f5ac5df0e042a5): @user_script:8: @user_script: 8: The user executing the script can't run this command or subcommand",
			"NOPERM The user executing the script can't run this command or subcommand", true,
			true},
		{"@user_script: 8: @user_script: 8: -OOM command not allowed when used memory > 'maxmemory'.",
			"OOM command not allowed when used memory > 'maxmemory'.", false, false},
		{"NOTALOCK @user_script: 14: WRONGTYPE Operation against a key holding the wrong kind of value",
			"WRONGTYPE Operation against a key holding the wrong kind of value", false, true},
		{"ERR ACL failure in script: User locks has no permissions to run the 'zadd' command" + sha,
			"NOPERM ACL failure in script: User locks has no permissions to run the 'zadd' command",
			true, true},
		{"NOPERM ACL failure in script: User locks has no permissions to access the 'k' key script: on @user_script:12.",
			"NOPERM ACL failure in script: User locks has no permissions to access the 'k' key",
			true, true},
		{"ACL failure in script: User locks has no permissions to run the 'zadd' command, on @user_script:3",
			"NOPERM ACL failure in script: User locks has no permissions to run the 'zadd' command",
			true, true},
		{"ERR ERR Error running script (call to f_526d601da0f6ee07e65999fc08f5ac5df0e042a5): @user_script:8: @user_script: 8: -NOPERM this user has no permissions",
			"NOPERM this user has no permissions", true, true},
		{"READONLY You can't write against a read only replica. script: on @user_script:8.",
			"READONLY You can't write against a read only replica.", false, false},
		{"NOTALOCK WRONGTYPE Operation against a key holding the wrong kind of value",
			"WRONGTYPE Operation against a key holding the wrong kind of value", false, true},
		{"WRONGTYPE Operation against a key holding the wrong kind of value" + sha,
			"WRONGTYPE Operation against a key holding the wrong kind of value", true, true},
		{"CROSSSLOT Keys in request don't hash to the same slot",
			"CROSSSLOT Keys in request don't hash to the same slot", false, true},
		{"MOVED 3999 127.0.0.1:6381", "MOVED 3999 127.0.0.1:6381", false, false},
		{"ASK 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381", false, false},
		{"TRYAGAIN Multiple keys request during rehashing of slot",
			"TRYAGAIN Multiple keys request during rehashing of slot", false, false},
		{"CLUSTERDOWN Hash slot not served", "CLUSTERDOWN Hash slot not served", false, false},
		{"NOREPLICAS Not enough good replicas to write." + sha,
			"NOREPLICAS Not enough good replicas to write.", false, false},
		{"MISCONF Redis is configured to save RDB snapshots",
			"MISCONF Redis is configured to save RDB snapshots", false, false},
		{"BUSY Redis is busy running a script.", "BUSY Redis is busy running a script.", false,
			false},
		{"NOSCRIPT No matching script. Please use EVAL.",
			"NOSCRIPT No matching script. Please use EVAL.", false, false},
		{"ERR unknown command 'EVALSHA', with args beginning with:",
			"ERR unknown command 'EVALSHA'", false, true},
		{"unknown command 'AUTH', with args beginning with: 'user' 'pass\nword' ",
			"unknown command 'AUTH'", false, true},
		{"ERR Unknown Redis command called from script" + sha,
			"ERR Unknown Redis command called from script", true, true},
		{"READONLY You can't write against a read only replica. script: 526d601da0f6ee07e65999fc08f5ac5df0e042a5, on @user_script:7.",
			"READONLY You can't write against a read only replica.", false, false},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'." + sha,
			"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
			false, false},
		{"MISCONF Errors writing to the AOF file: No space left on device" + sha,
			"MISCONF Errors writing to the AOF file: No space left on device", false, false},
		{"CLUSTERDOWN The cluster is down", "CLUSTERDOWN The cluster is down", false, false},
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
			"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
			false, false},
		{"NOPERM User locks has no permissions to access one of the keys used as arguments",
			"NOPERM User locks has no permissions to access one of the keys used as arguments",
			false, true},
		{"EXECABORT Transaction discarded because of previous errors.",
			"EXECABORT Transaction discarded because of previous errors.", false, false},
		{"DENIED Redis is running in protected mode because protected mode is enabled",
			"DENIED Redis is running in protected mode because protected mode is enabled", false,
			true},
		// to the first command of a connection, which is closed then
		{"ERR max number of clients reached", "ERR max number of clients reached", false, false},
		{"max number of clients + cluster connections reached",
			"max number of clients + cluster connections reached", false, false},
		// only what has not written yet can be killed
		{"ERR Error running script (call to f_526d601da0f6ee07e65999fc08f5ac5df0e042a5): @user_script:1: Script killed by user with SCRIPT KILL...",
			"Script killed by user with SCRIPT KILL...", false, false},
		{"ERR Script killed by user with SCRIPT KILL." + sha,
			"ERR Script killed by user with SCRIPT KILL.", false, false},
		// From here on the server may have done something before it failed.
		{"UNKILLABLE Sorry the script already executed write commands against the dataset.",
			"UNKILLABLE Sorry the script already executed write commands against the dataset.",
			true, false},
		{"ERR value is not an integer or out of range", // an argument of EVALSHA, or in the script
			"ERR value is not an integer or out of range", true, false},
		{"ERR value is not an integer or out of range" + sha,
			"ERR value is not an integer or out of range", true, false},
		{"ERR Script attempted to access a non local key in a cluster node" + sha,
			"ERR Script attempted to access a non local key in a cluster node", true, false},
		{"ERR Script attempted to access keys that do not hash to the same slot" + sha,
			"ERR Script attempted to access keys that do not hash to the same slot", true, false},
		{"ERR user_script:1: attempt to index a nil value max number of clients" + sha,
			"ERR user_script:1: attempt to index a nil value max number of clients", true, false},
		{"", "", true, false},
	} {
		for _, effect := range []bool{true, false} {
			err := protocol.ServerFailure("node:1", c.text, effect)
			if err.Maybe != (c.maybe && effect) || err.Permanent != c.permanent ||
				err.Node != "node:1" {
				t.Errorf("%q, effect %v: maybe %v, permanent %v; want %v, %v", c.text, effect,
					err.Maybe, err.Permanent, c.maybe && effect, c.permanent)
			}
			var server protocol.ServerError
			if !errors.As(err, &server) || string(server) != c.words {
				t.Errorf("%q: the server's words are %q, want %q", c.text, server, c.words)
			}
			if want := driver.ErrUnavailable; !err.Maybe && !errors.Is(err, want) ||
				!strings.Contains(err.Error(), c.words) {
				t.Errorf("%q: %v", c.text, err)
			}
		}
	}
}

func FuzzServerFailure(f *testing.F) {
	f.Add("ERR Error running script (call to f_x): @user_script:8: @user_script: 8: -READONLY You")
	f.Add("NOPERM")
	f.Add("\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		err := protocol.ServerFailure("", text, true)
		if errors.Is(err, driver.ErrUnavailable) == errors.Is(err, driver.ErrUnknown) {
			t.Errorf("%q is not of exactly one kind", text)
		}
	})
}

// An answer that is no error is the rule, so it costs no allocation to see that it is none.
func TestIsServerErrorOfNoError(t *testing.T) {
	if protocol.IsServerError(nil, "NOSCRIPT") {
		t.Error("no error is taken for one of a server")
	}
	if n := testing.AllocsPerRun(100, func() { protocol.IsServerError(nil, "NOSCRIPT") }); n != 0 {
		t.Errorf("that makes %v allocations, want none", n)
	}
}
