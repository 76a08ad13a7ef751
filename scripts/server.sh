#!/usr/bin/env bash
# Fetches a redis-server or valkey-server of another Debian suite and unpacks it beside its own libraries, so that
# nothing of this machine changes. It prints the directory that has it under the names redis-server and redis-cli,
# which is what the tests look for.
#
#   scripts/server.sh valkey-server@sid
#   PATH=$(scripts/server.sh redis-server@experimental):$PATH go test ./redishold/...
#
# It needs apt, as Debian has it, and its mirror, but not root. What was fetched once is kept below .cache.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! [[ ${1-} =~ ^(redis|valkey)-server@[a-z-]+$ ]]; then
	echo "server.sh: \"${1-}\" is no server: want redis-server@SUITE or valkey-server@SUITE, a suite of Debian" >&2
	exit 64
fi
package=${1%@*}
suite=${1#*@}
dir=$PWD/.cache/servers/$1
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=${HOLDFAST_DEBIAN_MIRROR:-http://deb.debian.org/debian}

# apt, with a state of its own, in which nothing is installed: so it fetches the libraries, too.
fetch() {
	apt-get -q -o Dir::Etc::SourceList="$new/sources" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::Parts=/dev/null \
		-o Dir::Etc::PreferencesParts=/dev/null -o Dir::State="$new" -o Dir::State::Lists="$new/lists" \
		-o Dir::State::Status="$new/status" -o Dir::Cache="$new" -o Debug::NoLocking=1 -o Acquire::Retries=3 \
		-o APT::Sandbox::User="$(id -un)" "$@" >&2
}

# run NAME PROGRAM makes a script NAME that runs the program with the libraries it was built for.
run() {
	local loader libraries
	loader=$(cd "$new/tree" && find . -name 'ld-linux*.so.*' | sort | head -n 1)
	libraries=$(cd "$new/tree" && find lib usr/lib -maxdepth 1 -name '*-linux-gnu*' -printf "$dir"'/tree/%p:' 2>/dev/null || true)
	cat >"$new/bin/$1" <<EOF
#!/bin/sh
tree=$dir/tree
exec "\$tree/$loader" --library-path "$libraries" "\$tree/usr/bin/$2" "\$@"
EOF
	chmod +x "$new/bin/$1"
}

if ! [ -d "$dir" ]; then
	new=$dir.$$
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new"/{bin,tree,lists/partial,archives/partial}
	: >"$new/status"
	# What is in experimental needs the libraries of sid, what is in backports those of the release itself.
	for s in "$suite" $(case $suite in experimental) echo sid ;; *-backports) echo "${suite%-backports}" ;; esac); do
		echo "deb [signed-by=$keyring] $mirror $s main" >>"$new/sources"
	done
	fetch update
	fetch -y --no-install-recommends --download-only -t "$suite" install "$package"
	for archive in "$new"/archives/*.deb; do
		dpkg-deb -x "$archive" "$new/tree"
	done
	for program in server cli; do
		run "redis-$program" "${package%-server}-$program"
	done
	rm -rf "$new"/{lists,archives,status,sources} "$new"/*.bin
	mv "$new" "$dir"
fi
echo "$dir/bin"
