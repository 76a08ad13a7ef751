package protocol_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// What servers of various kinds and versions say of themselves, as far as it matters.
const (
	redis62        = "# Server\r\nredis_version:6.2.16\r\nredis_mode:standalone\r\nrun_id:a\r\nuptime_in_seconds:10\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n# Cluster\r\ncluster_enabled:0\r\n"
	redis8         = "# Server\r\nredis_version:8.6.3\r\nredis_mode:cluster\r\nrun_id:a\r\nuptime_in_seconds:10\r\n# Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:1\r\n"
	valkey8        = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\nvalkey_release_stage:ga\r\nserver_mode:standalone\r\nrun_id:a\r\nuptime_in_seconds:10\r\n# Replication\r\nrole:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\n# Cluster\r\ncluster_enabled:0\r\n"
	valkey9        = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nserver_mode:cluster\r\nrun_id:a\r\nuptime_in_seconds:10\r\nrole:master\r\n"
	redisSentinel  = "# Server\r\nredis_version:7.0.15\r\nredis_mode:sentinel\r\nrun_id:a\r\nuptime_in_seconds:10\r\n"
	valkeySentinel = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nserver_mode:sentinel\r\nrun_id:a\r\nuptime_in_seconds:10\r\n"
)

func TestInfoOfManyServers(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		info string
		want protocol.Server
	}{
		"Redis 6.2": {redis62, protocol.Server{Version: "6.2.16", Release: "6.2.16", Primary: ":"}},
		"Redis 8": {redis8, protocol.Server{Version: "8.6.3", Release: "8.6.3", Cluster: true,
			Primary: ":"}},
		"Valkey 8": {valkey8, protocol.Server{Version: "7.2.4", Release: "Valkey 8.1.1",
			Replica: true, Primary: "10.0.0.1:6379"}},
		"Valkey 9": {valkey9, protocol.Server{Version: "7.2.4", Release: "Valkey 9.1.2",
			Cluster: true, Primary: ":"}},
	} {
		got, err := protocol.ParseInfo("h:1", c.info, now)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		have := protocol.Server{Version: got.Version, Release: got.Release, Cluster: got.Cluster,
			Replica: got.Replica, Primary: got.Primary}
		if have != c.want || !got.Booted.Equal(now.Add(-9*time.Second)) {
			t.Errorf("%s: %+v; want %+v", name, got, c.want)
		}
	}
	for name, c := range map[string]struct{ info, words string }{
		"a Sentinel of Redis":  {redisSentinel, "a Sentinel"},
		"a Sentinel of Valkey": {valkeySentinel, "a Sentinel"},
		"nothing":              {"", "not a Redis server"},
		"no uptime": {strings.ReplaceAll(redis62, "uptime", "downtime"),
			"uptime_in_seconds"},
	} {
		if got, err := protocol.ParseInfo("h:1", c.info, now); err == nil ||
			!strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, c.words)
		}
	}
}
