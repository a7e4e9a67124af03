#!/bin/bash
# dist.sh DIR
#
# Writes dibs-VERSION.tar.gz, and its checksum, into DIR. What goes in is what
# git knows, as it stands in the folder; in an unpacked tarball, where there is
# no git, all that is not built. The same files give the same bytes: names in
# order, no owner, and the time of the last commit, or of the tarball that this
# was unpacked from. SOURCE_DATE_EPOCH goes before both.
set -euo pipefail
if [ $# -ne 1 ]; then
    echo "usage: dist.sh DIR" >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
export LC_ALL=C

dir=$(mktemp -d "${TMPDIR:-/tmp}/dibs.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

word() { # MAJOR|MINOR|PATCH
    sed -n "s/^#define DIBS_VERSION_$1 //p" include/dibs/dibs.h
}
name=dibs-$(word MAJOR).$(word MINOR).$(word PATCH)

if [ -e .git ]; then
    when=$(git log -1 --format=%ct)
    git ls-files --cached -z >"$dir/known"
    while IFS= read -r -d '' file; do # without those that were removed
        [ ! -e "$file" ] || printf '%s\0' "$file"
    done <"$dir/known" >"$dir/files"
    [ -z "$(git status --porcelain)" ] ||
        echo "dist: some files are not as git has them; new ones are left out" >&2
else
    when=$(date -r CHANGELOG.md +%s)
    find . \( -path './build*' -o -path ./tests/interop/target \) -prune -o \
        ! -type d ! -name '*.swp' -printf '%P\0' | sort -z >"$dir/files"
fi
tar --create --no-recursion --null --files-from="$dir/files" --sort=name \
    --transform="flags=r;s,^,$name/," --format=ustar --mode=u=rwX,go=rX \
    --owner=0 --group=0 --numeric-owner \
    --mtime="@${SOURCE_DATE_EPOCH:-$when}" | gzip -9n >"$dir/$name.tar.gz"
(cd "$dir" && sha256sum "$name.tar.gz") >"$dir/$name.tar.gz.sha256"
chmod 644 "$dir/$name".*
mv "$dir/$name.tar.gz" "$dir/$name.tar.gz.sha256" "$out"
echo "dist: $out/$name.tar.gz"
