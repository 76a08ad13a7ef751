#!/usr/bin/env bash
# Starts and stops redis-servers for a first try, with their data below .cache, or in HOLDFAST_TRY_DIR.
#
#   scripts/redis.sh up PORT...   starts one on each port of 127.0.0.1; one that runs already is left alone
#   scripts/redis.sh down         stops all that were started
set -euo pipefail
cd "$(dirname "$0")/.."

# As the server itself reports it: with all symbolic links resolved.
data=$(realpath -m "${HOLDFAST_TRY_DIR:-.cache/redis}")

# ask PORT COMMAND prints the lines of the reply. Unlike redis-cli it gives up on a port whose owner accepts and
# says nothing for long; a server on a busy machine may take seconds.
ask() (
	exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
	printf '%s\r\nQUIT\r\n' "$2" >&3
	while IFS= read -t 10 -r line <&3; do
		printf '%s\n' "${line%$'\r'}"
	done
) 2>/dev/null

# ours PORT tells whether the server there is one that this script started: nothing else has its directory, which
# is the fifth line of the reply.
ours() { [ "$(ask "$1" 'CONFIG GET dir' | sed -n 5p)" = "$data/$1" ]; }

taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

up() {
	local port=$1 try
	if ours "$port"; then
		echo "redis://127.0.0.1:$port (was up already)"
		return
	fi
	if taken "$port"; then
		echo "redis.sh: port $port is taken by another server: choose ports with make up PORTS=\"...\"" >&2
		return 1
	fi
	mkdir -p "$data/$port"
	# With every write on disk before it is answered the server forgets no lock when it restarts, so durable=always in a
	# URL is true and lets it vote at once.
	redis-server --port "$port" --bind 127.0.0.1 --daemonize yes --dir "$data/$port" --logfile redis.log \
		--save '' --appendonly yes --appendfsync always >/dev/null
	for ((try = 0; try < 600; try++)); do
		if ours "$port"; then
			echo "redis://127.0.0.1:$port"
			return
		fi
		sleep 0.1
	done
	echo "redis.sh: the server on port $port does not answer; the end of $data/$port/redis.log:" >&2
	tail -n 5 "$data/$port/redis.log" >&2 || true
	return 1
}

down() {
	local dir port try stopped=0
	for dir in "$data"/*/; do
		port=$(basename "$dir")
		if ! ours "$port"; then
			continue
		fi
		ask "$port" SHUTDOWN
		for ((try = 0; try < 600; try++)); do
			if ! taken "$port"; then
				echo "stopped redis://127.0.0.1:$port"
				stopped=1
				continue 2
			fi
			sleep 0.1
		done
		echo "redis.sh: the server on port $port does not stop" >&2
		return 1
	done
	if [ "$stopped" -eq 0 ]; then
		echo "nothing was up"
	fi
}

case ${1-} in
up)
	shift
	for port; do
		up "$port"
	done
	;;
down)
	down
	;;
*)
	echo "usage: scripts/redis.sh up PORT... | down" >&2
	exit 64
	;;
esac
