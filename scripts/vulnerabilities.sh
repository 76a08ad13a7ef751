#!/usr/bin/env bash
# Asks the Go vulnerability database for weaknesses that are known of what the released modules call, each module with
# the versions that it requires itself. Ends with 1 if there are any, and with 2 if a module could not be examined.
#
#   scripts/vulnerabilities.sh golang.org/x/vuln/cmd/govulncheck@v1.9.0
#
# HOLDFAST_VULNDB names another copy of the database, also a directory: file:///path.
set -euo pipefail
cd "$(dirname "$0")/.."

program=$(mktemp -d)
trap 'rm -rf "$program"' EXIT
GOWORK=off GOBIN=$program GOFLAGS='' go install "$1"
result=0
while read -r kind dir; do
	[ "$kind" = released ] || continue
	echo "=== $dir"
	status=0
	GOWORK=off "$program/govulncheck" -C "$dir" ${HOLDFAST_VULNDB:+-db "$HOLDFAST_VULNDB"} ./... || status=$?
	case $status in
	0) ;;
	3) if [ "$result" -eq 0 ]; then result=1; fi ;; # found
	*) result=2 ;;
	esac
done <scripts/modules.txt
exit "$result"
