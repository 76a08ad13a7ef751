#!/usr/bin/env bash
# Runs every fuzz target of every module for a while: scripts/fuzz.sh DURATION PACKAGES...
#
# go test fuzzes one target of one package at a time. An input that fails is left in the package's testdata/fuzz,
# where it is a test case from then on: commit it with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -lt 2 ]; then
	echo "usage: scripts/fuzz.sh DURATION PACKAGES..." >&2
	exit 64
fi
duration=$1
shift
failed=()
found=0
while read -r package; do
	if ! listed=$(go test -list '^Fuzz' "$package"); then
		echo "$listed"
		failed+=("$package")
		continue
	fi
	for target in $(grep '^Fuzz' <<<"$listed"); do
		found=$((found + 1))
		echo "== $package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "$package" || failed+=("$package $target")
	done
done < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "$@")

if [ "$found" -eq 0 ]; then
	echo "fuzz.sh: no fuzz target in $*" >&2
	exit 1
fi
if [ ${#failed[@]} -ne 0 ]; then
	printf 'failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
