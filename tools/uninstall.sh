#!/bin/bash
# uninstall.sh BUILD
#
# Removes what `cmake --install BUILD` puts below $DESTDIR. What that is, an
# install into a temporary place tells; so it does not matter which install was
# the last one. Folders go only if they are called dibs, or are inside one that
# is, and are empty: the others are everybody's.
set -euo pipefail
if [ $# -ne 1 ]; then
    echo "usage: uninstall.sh BUILD" >&2
    exit 2
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/dibs.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
DESTDIR=$dir/root "${CMAKE:-cmake}" --install "$1" >"$dir/log" 2>&1 || {
    cat "$dir/log" >&2
    exit 1
}
prefix=$(sed -n 's/^CMAKE_INSTALL_PREFIX:[^=]*=//p' "$1/CMakeCache.txt")

count=0
while IFS= read -r path; do
    path=${DESTDIR-}${path#"$dir/root"}
    if [ -e "$path" ] || [ -L "$path" ]; then
        rm -f "$path"
        count=$((count + 1))
    fi
done < <(find "$dir/root" ! -type d)
while IFS= read -r path; do
    case ${path#"$dir/root$prefix"}/ in
    */dibs/*)
        path=${DESTDIR-}${path#"$dir/root"}
        [ ! -d "$path" ] || rmdir --ignore-fail-on-non-empty "$path"
        ;;
    esac
done < <(find "$dir/root$prefix" -mindepth 1 -depth -type d)
echo "uninstall: removed $count files"
