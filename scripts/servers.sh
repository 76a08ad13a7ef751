#!/usr/bin/env bash
# Starts and stops servers for a first try, on 127.0.0.1 and on data of their own.
#
#   scripts/servers.sh up SYSTEM PORT...   starts a server of redis, etcd, postgres or zookeeper on each port; one
#                                          that runs already is left alone
#   scripts/servers.sh down                stops all that were started
#
# The data are in .cache/servers, or in HOLDFAST_TRY_DIR. Root cannot run PostgreSQL, and the user who does may not
# reach root's clone: then its data are in /var/tmp/holdfast-servers.
set -euo pipefail
cd "$(dirname "$0")/.."

# With all symbolic links resolved, as Redis reports its directory.
data=$(realpath -m "${HOLDFAST_TRY_DIR:-.cache/servers}")
postgres_data=$data
if [ "$(id -u)" -eq 0 ] && [ -z "${HOLDFAST_TRY_DIR-}" ]; then
	postgres_data=/var/tmp/holdfast-servers
fi

fail() {
	echo "servers.sh: $*" >&2
	exit 1
}

# directory SYSTEM PORT is where the server keeps its data and its log.
directory() {
	if [ "$1" = postgres ]; then
		echo "$postgres_data/$1-$2"
	else
		echo "$data/$1-$2"
	fi
}

# ask PORT TEXT prints what is answered there to the text. Unlike the systems' own clients it gives up on a port
# whose owner accepts and says nothing for long; a server on a busy machine may take seconds.
ask() (
	exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
	printf '%b' "$2" >&3
	while IFS= read -t 10 -r line <&3 || [ -n "$line" ]; do
		printf '%s\n' "${line%$'\r'}"
	done
) 2>/dev/null

taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# runs DIR tells whether the process whose number is in the directory is the server there: nothing else has the
# directory among its arguments.
runs() {
	local pid
	pid=$(head -n 1 "$1/pid" 2>/dev/null) && [ -n "$pid" ] &&
		[[ " $(ps -o args= -p "$pid" 2>/dev/null) " == *" $1/"* ]]
}

# start DIR COMMAND... runs a server in the background, and notes the number of its process.
start() {
	local dir=$1
	shift
	setsid "$@" >"$dir/log" 2>&1 </dev/null &
	started=$!
	echo "$started" >"$dir/pid"
}

# Of each system: start_SYSTEM DIR PORT; ours_SYSTEM DIR PORT, which tells whether the server is one that this script
# has started; ready_SYSTEM DIR PORT, whether it answers, too; and url_SYSTEM PORT, the address of locks there.

# With every write on disk before it is answered the server forgets no lock when it restarts, so durable=always in a
# URL is true and lets it vote at once.
start_redis() {
	redis-server --port "$2" --bind 127.0.0.1 --daemonize yes --dir "$1" --pidfile "$1/pid" --logfile log --save '' \
		--appendonly yes --appendfsync always >/dev/null
}

# It writes over its arguments. Its directory is the fifth line of the reply.
ours_redis() { [ "$(ask "$2" 'CONFIG GET dir\r\nQUIT\r\n' | sed -n 5p)" = "$1" ]; }

ready_redis() { ours_redis "$@"; }

url_redis() { echo "redis://127.0.0.1:$1"; }

# Port 0 of the other members is any free one: there are no others.
start_etcd() {
	start "$1" etcd --data-dir "$1/data" --logger zap --log-level error \
		--listen-client-urls "http://127.0.0.1:$2" --advertise-client-urls "http://127.0.0.1:$2" \
		--listen-peer-urls http://127.0.0.1:0 --initial-advertise-peer-urls http://127.0.0.1:0 \
		--initial-cluster default=http://127.0.0.1:0
}

ours_etcd() { runs "$1"; }

ready_etcd() {
	ours_etcd "$@" && [[ $(ask "$2" 'GET /health HTTP/1.0\r\n\r\n') == *'"health":"true"'* ]]
}

url_etcd() { echo "etcd://127.0.0.1:$1"; }

# as_postgres runs a command as a user who may run PostgreSQL.
as_postgres() {
	if [ "$(id -u)" -eq 0 ]; then
		(cd / && runuser -u postgres -- "$@")
	else
		"$@"
	fi
}

# postgres_program NAME is its path: Debian keeps it out of the PATH, by version.
postgres_program() {
	command -v "$1" || compgen -G "/usr/lib/postgresql/*/bin/$1" | sort -V | tail -n 1
}

start_postgres() {
	if [ "$(id -u)" -eq 0 ]; then
		chown postgres "$1"
	fi
	if [ ! -e "$1/data/PG_VERSION" ]; then
		as_postgres "$(postgres_program initdb)" -D "$1/data" -U postgres -A trust -E UTF8 --no-locale >"$1/log" 2>&1
	fi
	ln -sf data/postmaster.pid "$1/pid" # the server notes its number itself: it may be the child of runuser
	as_postgres setsid "$(postgres_program postgres)" -D "$1/data" -p "$2" -c listen_addresses=127.0.0.1 \
		-c unix_socket_directories= >"$1/log" 2>&1 </dev/null &
	started=$!
}

ours_postgres() { runs "$1"; }

ready_postgres() { ours_postgres "$@" && [ "$(sed -n '8s/ *$//p' "$1/pid")" = ready ]; }

url_postgres() { echo "postgres://postgres@127.0.0.1:$1/postgres?create=true"; }

start_zookeeper() {
	local classes
	classes=$(printf '%s:' /usr/share/java/{zookeeper,zookeeper-jute,slf4j-api,slf4j-nop,metrics-core,snappy-java}.jar \
		/usr/share/java/netty-*.jar)
	printf '%s\n' clientPortAddress=127.0.0.1 "clientPort=$2" "dataDir=$1/data" admin.enableServer=false \
		4lw.commands.whitelist=srvr >"$1/zoo.cfg"
	start "$1" java -Xmx128m -cp "$classes" org.apache.zookeeper.server.ZooKeeperServerMain "$1/zoo.cfg"
}

ours_zookeeper() { runs "$1"; }

ready_zookeeper() { ours_zookeeper "$@" && [[ $(ask "$2" srvr) == *'Mode: standalone'* ]]; }

url_zookeeper() { echo "zookeeper://127.0.0.1:$1"; }

up() {
	local system=$1 port=$2 dir try started=
	dir=$(directory "$system" "$port")
	if "ready_$system" "$dir" "$port"; then
		echo "$("url_$system" "$port") (was up already)"
		return
	fi
	if taken "$port"; then
		fail "port $port is taken by another server: choose ports with make up PORTS=\"...\""
	fi
	mkdir -p "$dir"
	"start_$system" "$dir" "$port" || fail "the server on port $port does not start: $(tail -n 5 "$dir/log")"
	for ((try = 0; try < 600; try++)); do
		if "ready_$system" "$dir" "$port"; then
			"url_$system" "$port"
			return
		fi
		if [ -n "$started" ] && ! kill -0 "$started" 2>/dev/null; then
			break # it has ended
		fi
		sleep 0.1
	done
	fail "the server on port $port does not answer; the end of $dir/log:"$'\n'"$(tail -n 5 "$dir/log")"
}

stop() {
	local system=$1 dir=$2 port=$3 signal=TERM try
	# On SIGTERM PostgreSQL would wait for its clients. Others may ignore SIGINT, because a shell without a terminal has
	# what it starts in the background do so.
	if [ "$system" = postgres ]; then
		signal=INT
	fi
	kill "-$signal" "$(head -n 1 "$dir/pid")"
	for ((try = 0; try < 600; try++)); do
		if ! "ours_$system" "$dir" "$port"; then
			echo "stopped $("url_$system" "$port")"
			return
		fi
		sleep 0.1
	done
	fail "the server of $dir does not stop"
}

down() {
	local system dir stopped=0
	for system in etcd postgres redis zookeeper; do
		for dir in "$(directory "$system" '')"*/; do
			dir=${dir%/}
			if [ -d "$dir" ] && "ours_$system" "$dir" "${dir##*-}"; then
				stop "$system" "$dir" "${dir##*-}"
				stopped=1
			fi
		done
	done
	if [ "$stopped" -eq 0 ]; then
		echo "nothing was up"
	fi
}

usage() {
	echo "usage: scripts/servers.sh up redis|etcd|postgres|zookeeper PORT... | down" >&2
	exit 64
}

case ${1-} in
up)
	[ $# -gt 2 ] || usage
	system=$2
	case $system in redis | etcd | postgres | zookeeper) ;; *) usage ;; esac
	shift 2
	for port; do
		up "$system" "$port"
	done
	;;
down)
	down
	;;
*)
	usage
	;;
esac
