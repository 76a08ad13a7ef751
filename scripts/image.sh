#!/usr/bin/env bash
# Builds the container image of the command for this machine's processor, with buildah, and prints its name.
#
#   scripts/image.sh [VERSION]
#
# Without VERSION, v0.1.0, it takes the commit that is checked out. What the image has is in dist/image afterwards, so
# that docker build -f deploy/Containerfile dist/image does as well.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
roots=/etc/ssl/certs/ca-certificates.crt
if ! [ -s "$roots" ]; then
	echo "image.sh: $roots is missing, in Debian from ca-certificates: the image has this machine's" >&2
	exit 1
fi

work=$PWD/dist/programs image=$PWD/dist/image platform=linux/$(go env GOARCH)
rm -rf "$work" "$image"
mkdir -p "$image/usr/bin" "$image/etc/ssl/certs" "$image/tmp"
go run ./scripts/release -version "${1-}" -programs "$work" -platforms "$platform"
mv "$work/${platform/\//_}"/* "$image/usr/bin"
cp LICENSE "$image"
cp "$roots" "$image/etc/ssl/certs"
# Locks without an address are in there, as on any machine.
chmod 1777 "$image/tmp"
name=localhost/holdfast:$(<"$work/version") epoch=$(<"$work/epoch")
rm -rf "$work"
buildah bud --quiet --platform "$platform" --timestamp "$epoch" --tag "$name" --file deploy/Containerfile "$image" >/dev/null
echo "$name"
