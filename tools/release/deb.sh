#!/bin/bash
# deb.sh DIR [OPTION...]
#
# Builds the Debian packages, sources included, and puts them into DIR. They are
# built in a temporary folder, from the tarball that dist.sh makes, so that
# nothing lies about here and nothing from here gets in. That tarball is the
# "orig" of the source package. Options are those of dpkg-buildpackage.
set -euo pipefail
if [ $# -lt 1 ]; then
    echo "usage: deb.sh DIR [OPTION...]" >&2
    exit 2
fi
umask 022
export CCACHE_DISABLE=1 # objects from other folders have other paths in them
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/../.."

dir=$(mktemp -d "${TMPDIR:-/tmp}/dibs.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

tools/release/dist.sh "$dir" >/dev/null
tarball=$(echo "$dir"/dibs-*.tar.gz)
version=${tarball##*/dibs-}
version=${version%.tar.gz}
said=$(sed -n '1s/^dibs (\(.*\)-[^-]*) .*/\1/p' debian/changelog)
if [ "$said" != "$version" ]; then
    echo "deb: dibs.h says $version, debian/changelog $said" >&2
    exit 1
fi
mkdir "$dir/made"
tar -x -C "$dir/made" -f "$tarball"
mv "$tarball" "$dir/made/dibs_$version.orig.tar.gz"
if ! (cd "$dir/made"/dibs-* &&
    DEB_BUILD_OPTIONS=${DEB_BUILD_OPTIONS-parallel=${JOBS:-$(nproc)}} \
        dpkg-buildpackage --unsigned-source --unsigned-changes "$@" \
        >"$dir/log" 2>&1); then
    cat "$dir/log" >&2
    exit 1
fi
find "$dir/made" -maxdepth 1 -type f -exec mv -t "$out" {} +
echo "deb: packages are in $out:"
(cd "$out" && ls -- *.deb)
