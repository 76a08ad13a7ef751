#!/usr/bin/env bash
# Makes what a release has beside its tags, in the folder dist: for each platform an archive with the programs, for
# Linux also a Debian and an RPM package, a formula for Homebrew, and the checksums of all.
#
#   scripts/dist.sh NFPM [VERSION]
#
# NFPM is the package of the program nfpm, with its version. Without VERSION, v0.1.0, it takes the commit that is
# checked out. PLATFORMS says what to build for. The same version gives the same bytes on every machine with the same
# version of Go, but for the compression of archives, which is the machine's gzip.
set -euo pipefail
cd "$(dirname "$0")/.."
nfpm=$1 version=${2-}
platforms=${PLATFORMS:-linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64}
dist=$PWD/dist
# Not to take the machine's for what it is not.
export LC_ALL=C TZ=UTC
umask 022

rm -rf "$dist"
mkdir "$dist"
work=$dist/work
here=$(go env GOOS)/$(go env GOARCH)
go run ./scripts/release -version "$version" -programs "$work" -platforms "$platforms"
version=$(<"$work/version")
SOURCE_DATE_EPOCH=$(<"$work/epoch")
export SOURCE_DATE_EPOCH

# The programs can say what they take on this machine only, and say the same everywhere.
own=$work/${here/\//_}/holdfast
if ! [ -x "$own" ]; then
	echo "dist.sh: PLATFORMS has to have $here, too: manual and completions come from that program" >&2
	exit 64
fi
share=$work/share
mkdir -p "$share/man/man1" "$share/completions"
"$own" man --dir "$share/man/man1"
gzip -9n "$share"/man/man1/*.1
"$own" completion bash >"$share/completions/holdfast.bash"
"$own" completion fish >"$share/completions/holdfast.fish"
"$own" completion zsh >"$share/completions/_holdfast"

for platform in ${platforms//,/ }; do
	system=${platform%/*} processor=${platform#*/}
	name=holdfast_${version}_${system}_$processor
	mkdir "$work/$name"
	mv "$work/${system}_$processor" "$work/$name/bin"
	cp -R "$share" LICENSE README.md CHANGELOG.md "$work/$name"
	chmod -R u=rwX,go=rX "$work/$name"
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu \
		-C "$work" -cf - "$name" | gzip -9n >"$dist/$name.tar.gz"
	if [ "$system" = linux ]; then
		for kind in deb rpm; do
			VERSION=$version PROCESSOR=$processor FROM=$work/$name GOWORK=off GOFLAGS='' \
				go run "$nfpm" package --config deploy/packages/nfpm.yaml --packager "$kind" --target "$dist" >&2
		done
	fi
done

script="s/@version@/$version/g"
whole=true
for platform in darwin_arm64 darwin_amd64 linux_arm64 linux_amd64; do
	archive=$dist/holdfast_${version}_$platform.tar.gz
	if [ -e "$archive" ]; then
		sum=$(sha256sum <"$archive")
		script+="; s/@$platform@/${sum%% *}/"
	else
		whole=false
	fi
done
if $whole; then
	sed -e "1d; $script" deploy/packages/holdfast.rb >"$dist/holdfast.rb"
fi

rm -rf "$work"
cd "$dist"
sums=$(sha256sum -- *)
printf '%s\n' "$sums" | tee SHA256SUMS
