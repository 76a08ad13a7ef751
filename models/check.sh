#!/bin/bash
# Searches the models exhaustively: the true ones must have no violation, and each broken variant must have one.
# Needs spin and gcc, and about 2 GB of memory; some two minutes on two cores that have nothing else to do.
#
#   check.sh          all of it
#   check.sh more     fencing.pml further, for as long as the machine has memory: about 15 GB and half an hour
#   check.sh holds|fails MODEL [FLAG ...]    one search
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)

for tool in spin gcc; do
	if ! command -v $tool >/dev/null; then
		echo "$tool is not installed: apt-get install spin gcc" >&2
		exit 1
	fi
done

# search WHAT MODEL [FLAG ...] searches one variant; WHAT is holds or fails.
search() {
	local what=$1 model=$2 work errors states
	shift 2
	work=$(mktemp -d)
	trap "rm -rf '$work'" EXIT
	cd "$work"
	# Breadth first finds the shortest violation. The model of tokens needs the memory for that elsewhere.
	local method=-DBFS
	if [ "$model" = fencing ]; then
		method=-DCOLLAPSE
	fi
	if ! { spin -a "$@" "$here/$model.pml" && gcc -O2 -w -DSAFETY $method -DVECTORSZ=2048 -o pan pan.c; } >out 2>&1; then
		cat out >&2
		return 1
	fi
	./pan -m1000000 -w22 >out 2>&1 || true
	errors=$(sed -n 's/.* errors: \([0-9]*\).*/\1/p' out)
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out)
	local name="$model${*:+ $*}"
	case $what:$errors in
	holds:0)
		# "not completed" is what it says when it has run out of memory, too.
		if ! grep -Eq 'not completed|too small|out of memory|hash-?compact|bitstate' out; then
			echo "$name: holds in all of its $states states"
			return
		fi
		echo "$name: not searched exhaustively" >&2
		;;
	fails:[1-9]*)
		if grep -q 'assertion violated' out; then
			echo "$name: fails, as it must: $(grep -m 1 'pan:1:' out)"
			return
		fi
		;;
	fails:0)
		echo "$name: no violation found, but there must be one" >&2
		return 1
		;;
	esac
	cat out >&2
	return 1
}

case ${1:-all} in
holds | fails)
	search "$@"
	exit
	;;
all) list='
holds fencing
holds fencing -DLOW=3 -DRENEWS
holds fencing -DLOW=3 -DROUNDS1=2 -DDROPS=0
fails fencing -DNO_LOOK
fails fencing -DLOOK_FIRST
fails fencing -DNO_RAISE
fails fencing -DRAISE_ANY
fails fencing -DRENEW_ANY -DRENEWS
fails fencing -DLATE_COUNTS

holds exclusion
holds exclusion -DNODES_A=2
holds exclusion -DEXEMPT_CHAIN -DTTL_A=1 -DTTL_B=1 -DGUARD_A=1
fails exclusion -DWITNESS
fails exclusion -DNO_QUARANTINE
fails exclusion -DEXEMPT_NEW -DTTL_A=1 -DTTL_B=1 -DGUARD_A=1
fails exclusion -DEXEMPT_OLD -DTTL_A=1 -DTTL_B=1 -DGUARD_A=1
holds exclusion -DMEMORY
fails exclusion -DMEMORY -DSINCE_BEFORE
fails exclusion -DRESTART_UNSEEN
fails exclusion -DTTL_B=1 -DGUARD_B=1
fails exclusion -DTTL_B=1 -DGUARD_B=1 -DMARKS
fails exclusion -DNODES_A=1 -DNEED_A=1
fails exclusion -DEVICTION
fails exclusion -DHEAL_STEALS
fails exclusion -DRENEW_STEALS
fails exclusion -DFROM_ANSWER
fails exclusion -DRENEW_FROM_ANSWER

holds handoff
holds handoff -DPRESENCE=3
holds handoff -DNOTICE_IN_QUARANTINE
holds handoff -DQUEUE_SURVIVES
fails handoff -DWITNESS
fails handoff -DNOTICE_IN_QUARANTINE -DQUEUE_SURVIVES
fails handoff -DGUARD=2
fails handoff -DNO_DOUBT
fails handoff -DNO_PROMISE
fails handoff -DPRESENCE_FROM_ANSWER
fails handoff -DSTALE_ANSWER

holds sharing
fails sharing -DWITNESS
fails sharing -DWITNESS_DOWN
fails sharing -DREADERS_NEED=1
fails sharing -DALONE_UNTIL_ANSWERED
fails sharing -DUPGRADES
fails sharing -DSHARES_ANYHOW
fails sharing -DREADERS_RAISE_NOT
' ;;
more) list='
holds fencing -DDROPS=2
holds fencing -DRENEWS
holds fencing -DROUNDS1=2
holds sharing -DROUNDS0=2
' ;;
*)
	sed -n '2,7s/^# //p' "$0" >&2
	exit 64
	;;
esac

# xargs fails if one of them does.
grep . <<<"$list" | xargs -P 2 -L 1 "$0"
echo "all as it must be"
