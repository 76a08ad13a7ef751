#!/usr/bin/env bash
# Fails if a function that is not in a test has a cyclomatic complexity over 15, and its comment does not
# say why it is one function all the same: by a sentence that begins "It is one function because".
#
#	complexity.sh [VERSION]   of github.com/fzipp/gocyclo
set -euo pipefail
cd "$(dirname "$0")/.."

limit=15
sentence="It is one function because "

# The checkout may belong to another user than the one who runs this. What git lists and is gone was
# deleted a moment ago.
mapfile -d '' files < <(git -c safe.directory='*' ls-files -z --cached --others --exclude-standard \
	--deduplicate '*.go' ':!:*_test.go' |
	while IFS= read -r -d '' file; do
		if [ -e "$file" ]; then printf '%s\0' "$file"; fi
	done)
if [ "${#files[@]}" -eq 0 ]; then
	echo "complexity.sh: git lists no Go file" >&2
	exit 1
fi

# It ends with 1 if it has found functions, and go run with 1 if it could not run it. Then there is nothing
# on stdout but something on stderr.
complaints=$(mktemp)
trap 'rm -f "$complaints"' EXIT
found=$(go run "github.com/fzipp/gocyclo/cmd/gocyclo@${1:-v0.6.0}" -over "$limit" "${files[@]}" \
	2>"$complaints") || true
if [ -z "$found" ] && grep -qv -e '^go: downloading ' -e '^exit status 1$' "$complaints"; then
	cat "$complaints" >&2
	exit 1
fi

# comment FILE LINE prints, as one line of text, the comment right above a line of a file.
comment() {
	head -n "$(($2 - 1))" "$1" | tac | awk '!/^\/\/( |$)/ { exit } { print }' | tac |
		sed 's,^// *,,' | tr '\n' ' '
}

status=0
while read -r complexity _ function position; do
	if [ -z "$complexity" ]; then continue; fi
	IFS=: read -r file line _ <<<"$position"
	if [[ "$(comment "$file" "$line")" != *"$sentence"* ]]; then
		echo "$file:$line: $function has a complexity of $complexity, more than $limit: split it," \
			"or say in its comment: \"$sentence...\"" >&2
		status=1
	fi
done <<<"$found"
exit "$status"
