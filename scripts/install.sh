#!/usr/bin/env bash
# Installs what the make targets need beside Go, as far as it is missing: from Debian, and what that does not have
# with Go, into the directory bin of GOPATH.
#
#   scripts/install.sh test   for make test: a C compiler for the race detector, servers and foreign clients
#   scripts/install.sh models for make models: the model checker
#   scripts/install.sh up-SYSTEM  for make up: a redis, etcd, postgres or zookeeper to try things on
#   scripts/install.sh board  for make board-test: Chromium
#   scripts/install.sh image  for make image: buildah
#   scripts/install.sh dist   for make try-dist, beside that: rpm and ruby, to try packages
#   scripts/install.sh bench  for make bench: the servers and foreign clients that Holdfast is measured beside
#
# Where everything is there it changes nothing, and needs neither root nor a network. Without root it installs
# nothing from Debian and says what is missing and how to get it.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v go >/dev/null; then
	echo "install.sh: Go is missing: 1.25 or newer, from https://go.dev/dl" >&2
	exit 1
fi

purpose=()
packages=()

# again COMMAND... runs a command that needs the network, up to four times: a mirror may fail for a moment.
again() {
	local pause
	for pause in 2 10 60; do
		"$@" && return
		echo "install.sh: $1 has failed: trying again in $pause s" >&2
		sleep "$pause"
	done
	"$@"
}

# need WHAT-FOR PROBE PACKAGES... notes the packages if the probe fails.
need() {
	local what=$1 probe=$2
	shift 2
	if ! "$probe" >/dev/null 2>&1; then
		purpose+=("$what")
		packages+=("$@")
	fi
}

# The race detector is linked against the C library, so its headers count as well as the compiler.
has_compiler() {
	# shellcheck disable=SC2046 # CC may carry flags
	$(go env CC) -include pthread.h -x c -fsyntax-only /dev/null
}

# Versions before decide on the condition of a write and write in two steps.
versitygw=github.com/versity/versitygw
versitygw_version=v1.8.0
versitygw_bin=$(go env GOPATH | cut -d: -f1)/bin

# The one in the PATH comes first, whatever its version, unless this script has built it: that one may be of an
# earlier version, or not whole.
has_versitygw() {
	local path
	if path=$(command -v versitygw) && ! [ "$path" -ef "$versitygw_bin/versitygw" ]; then
		return 0
	fi
	[ "$(built_versitygw)" = "$versitygw_version" ]
}

built_versitygw() { go version -m "$versitygw_bin/versitygw" | awk '$1 == "mod" { print $3 }'; }

# 6.2 is the oldest server supported, see the README.
has_redis() {
	local version
	version=$(redis-server --version | sed -n 's/.* v=\([0-9.]*\) .*/\1/p')
	[ "$(printf '%s\n' 6.2 "$version" | sort -V | head -n 1)" = 6.2 ] && command -v redis-cli
}

# Debian's own Python, since it is Debian's package of the client that is installed.
has_python_redis() { /usr/bin/python3 -c 'import redis'; }

# What people run on a terminal under a lock. Any vi will do.
has_terminal_programs() { command -v top && command -v less && command -v vi && command -v bash; }

has_python() { [ -x /usr/bin/python3 ]; }

has_npm() { command -v node && command -v npm; }

has_prometheus() { command -v prometheus && command -v promtool; }

has_etcd() { command -v etcd && command -v etcdctl; }

# The server is a class of Debian's library: the package zookeeper adds only a service.
has_zookeeper() { command -v java && [ -e /usr/share/java/zookeeper.jar ]; }

has_flock() { command -v flock; }

# Debian keeps the server's programs out of the PATH.
has_postgres() { command -v initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb'; }

has_pgbouncer() { command -v pgbouncer || [ -x /usr/sbin/pgbouncer ]; }

has_mariadb() { { command -v mariadbd || [ -x /usr/sbin/mariadbd ]; } && command -v mariadb-install-db; }

has_chromium() { command -v chromium; }

has_buildah() { command -v buildah; }

has_roots() { [ -s /etc/ssl/certs/ca-certificates.crt ]; }

has_rpm() { command -v rpm; }

has_ruby() { command -v ruby; }

has_spin() { command -v spin; }

needs_of() {
	case $1 in
	test)
		need "a C compiler, for the race detector" has_compiler gcc libc6-dev
		need "redis-server 6.2 or newer, to run the backends against" has_redis redis-server
		need "python3-redis, a foreign client to exclude" has_python_redis python3-redis
		need "a PostgreSQL server, to lock and to guard writes on" has_postgres postgresql
		need "PgBouncer, to lock through" has_pgbouncer pgbouncer
		need "a MariaDB server, to guard writes on" has_mariadb mariadb-server
		need "an etcd server and etcdctl, to lock and to guard writes on" has_etcd etcd-server etcd-client
		need "a ZooKeeper server, to lock on" has_zookeeper libzookeeper-java default-jre-headless
		need "prometheus and promtool, to try the rules and the dashboard on" has_prometheus prometheus
		need "top, less, vi and bash, to run under a lock on a terminal" has_terminal_programs procps less vim-tiny bash
		need "python3, to run under a lock" has_python python3
		# npm brings several hundred packages along, so only where a test of this tree asks for it.
		if [ -n "$(find . -name node_modules -prune -o -name .cache -prune -o -name package.json -print)" ]; then
			need "node and npm, for foreign clients to exclude" has_npm nodejs npm
		fi
		;;
	models)
		need "spin, the model checker" has_spin spin
		need "a C compiler, which spin calls" has_compiler gcc libc6-dev
		;;
	board)
		need "redis-server 6.2 or newer" has_redis redis-server
		need "Chromium, to look at the board with" has_chromium chromium
		need "node and npm, for axe-core, which knows what a screen reader needs" has_npm nodejs npm
		;;
	up-redis)
		need "redis-server 6.2 or newer" has_redis redis-server
		;;
	up-etcd)
		need "an etcd server" has_etcd etcd-server etcd-client
		;;
	up-postgres)
		need "a PostgreSQL server" has_postgres postgresql
		;;
	up-zookeeper)
		need "a ZooKeeper server" has_zookeeper libzookeeper-java default-jre-headless
		;;
	image)
		need "buildah, to build the image" has_buildah buildah
		need "the roots of TLS, for the image" has_roots ca-certificates
		;;
	dist)
		need "rpm, to try its package" has_rpm rpm
		need "ruby, to read the formula" has_ruby ruby
		;;
	bench)
		need "redis-server 6.2 or newer" has_redis redis-server
		need "etcd and etcdctl" has_etcd etcd-server etcd-client
		need "flock" has_flock util-linux
		need "a PostgreSQL server" has_postgres postgresql
		need "a ZooKeeper server" has_zookeeper libzookeeper-java default-jre-headless
		need "python3-redis" has_python_redis python3-redis
		need "node and npm" has_npm nodejs npm
		;;
	*)
		echo "install.sh: unknown purpose \"$1\": test, models, up-SYSTEM, board, image, dist or bench" >&2
		exit 64
		;;
	esac
}

if [ $# -eq 0 ]; then
	set -- test models up-redis
fi
# It takes two minutes of two processors, once.
if [[ " $* " == *" test "* ]] && ! has_versitygw >/dev/null 2>&1; then
	if [ "$versitygw_bin" = /bin ]; then
		echo "install.sh: Go has no GOPATH to build versitygw in: set HOME or GOPATH" >&2
		exit 1
	fi
	echo "Building $versitygw@$versitygw_version, an S3 server to guard objects on" >&2
	GOBIN=$versitygw_bin again go install "$versitygw/cmd/versitygw@$versitygw_version"
fi

for target; do
	needs_of "$target"
done
if [ ${#packages[@]} -eq 0 ]; then
	exit 0
fi
mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)

{
	echo "Missing for make $*:"
	printf '  - %s\n' "${purpose[@]}"
} >&2
if ! command -v apt-get >/dev/null; then
	echo "This script can install from Debian's packages only (${packages[*]}): install their like by hand." >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "Installing needs root:" >&2
	echo "  sudo apt-get install --no-install-recommends ${packages[*]}" >&2
	echo "With nothing but Go, make test-kernel tests the library." >&2
	exit 1
fi

# The tests start servers of their own. Debian starts one as a service as soon as the package is there, unless the
# policy says no. A policy of this machine stays as it is.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
# A list of packages that could not be fetched is no error of its own, but the packages of an old one may be gone.
from_debian() {
	apt-get -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 update >&2 &&
		apt-get -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 install --yes --no-install-recommends \
			"${packages[@]}" >&2
}
echo "Installing ${packages[*]}" >&2
again from_debian

# What was installed may still not do, an old release's server for one.
purpose=()
packages=()
for target; do
	needs_of "$target"
done
if [ ${#packages[@]} -ne 0 ]; then
	echo "Installed, and still missing:" >&2
	printf '  - %s\n' "${purpose[@]}" >&2
	exit 1
fi
