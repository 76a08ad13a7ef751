#!/bin/sh
# Searches the model exhaustively: it must have no violation, and each broken variant must have one.
# Needs spin and gcc, about 1.3 GB of memory and half a minute. DROPS=n searches with n lost keys instead of 3.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

for tool in spin gcc; do
	if ! command -v $tool >/dev/null; then
		echo "$tool is not installed: apt-get install spin gcc" >&2
		exit 1
	fi
done

# search VARIANT prints how many violations there are, and fails if the search was not exhaustive.
search() {
	spin -a $1 "-DDROPS=${DROPS:-3}" "$here/fencing.pml" >&2
	gcc -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c
	./pan -m100000 >out
	if grep -q 'max search depth too small' out || ! grep -q ' errors: ' out; then
		cat out >&2
		return 1
	fi
	sed -n 's/.* errors: \([0-9]*\).*/\1/p' out
}

violations=$(search "")
echo "fencing: $(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' out) states, $violations violations"
[ "$violations" -eq 0 ] || { grep -m 1 'pan:1:' out; exit 1; }

for variant in NO_RAISE RAISE_ANY LATE_COUNTS; do
	violations=$(search "-D$variant")
	if [ "$violations" -eq 0 ]; then
		echo "$variant: no violation found, but there must be one" >&2
		exit 1
	fi
	echo "$variant: violated, as it must be: $(grep -m 1 'pan:1:' out)"
done
