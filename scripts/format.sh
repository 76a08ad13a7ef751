#!/usr/bin/env bash
# Fails, with the difference, if a Go file of the repository is not as gofmt -s would write it.
set -euo pipefail
cd "$(dirname "$0")/.."

# Of the toolchain in use, which need not be the one in the PATH.
gofmt=$(go env GOROOT)/bin/gofmt

# The checkout may belong to another user than the one who runs this. What git lists and is gone was deleted
# a moment ago.
status=0
difference=$(git -c safe.directory='*' ls-files -z --cached --others --exclude-standard --deduplicate '*.go' |
	while IFS= read -r -d '' file; do
		if [ -e "$file" ]; then printf '%s\0' "$file"; fi
	done | xargs -0 "$gofmt" -s -d) || status=$? # older gofmt says 0 whatever it finds
if [ "$status" -ne 0 ] || [ -n "$difference" ]; then
	printf '%s\n' "$difference"
	echo "format.sh: run gofmt -s -w on these files" >&2
	exit 1
fi
