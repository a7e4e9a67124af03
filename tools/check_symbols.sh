#!/bin/bash
# check_symbols.sh SHARED STATIC   compare with tools/symbols.txt
# check_symbols.sh --write         write tools/symbols.txt from the header
#
# The shared library exports what the header declares, that is what is written
# down in symbols.txt, and nothing else. debian/libdibs0.symbols has the same
# names, each with the version that brought it; --write gives new ones the
# version on top of CHANGELOG.md. Whatever is global in the static one
# begins with dibs_, so that it cannot collide with a program's own names.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
list=$root/tools/symbols.txt
packaged=$root/debian/libdibs0.symbols
export LC_ALL=C

# A function is the last word before the first "(" after DIBS_API.
declared() {
    sed '/^#/d' "$root/include/dibs/dibs.h" | tr '\n' ' ' |
        grep -oE 'DIBS_API[^;(]*\(' | grep -oE 'dibs_[a-z0-9_]+\($' |
        tr -d '(' | sort
}

# The head of the packages' list, then the names, old ones as they were.
package() {
    local coming name
    coming=$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' "$root/CHANGELOG.md" | head -1)
    grep '^[^ ]' "$packaged"
    while read -r name; do
        grep "^ $name@Base " "$packaged" || echo " $name@Base $coming"
    done <"$list"
}

if [ "${1-}" = --write ]; then
    declared >"$list"
    text=$(package)
    echo "$text" >"$packaged"
    echo "check_symbols: wrote $(wc -l <"$list") names to tools/symbols.txt" \
        "and debian/libdibs0.symbols"
    exit 0
fi
if [ $# -ne 2 ]; then
    echo "usage: check_symbols.sh SHARED STATIC | --write" >&2
    exit 2
fi

compare() { # WHAT, names on stdin
    local text
    if ! text=$(diff --label tools/symbols.txt --label "$1" -u "$list" -); then
        echo "check_symbols: $1 and tools/symbols.txt differ:" >&2
        echo "$text" >&2
        return 1
    fi
}

bad=0
declared | compare "the header" || bad=1
nm -D --defined-only "$1" | awk 'NF == 3 { print $3 }' | sort |
    compare "$1" || bad=1
sed -n 's/^ \(.*\)@Base [0-9][0-9.]*$/\1/p' "$packaged" | sort |
    compare debian/libdibs0.symbols || bad=1

foreign=$(nm -g --defined-only "$2" |
    awk 'NF == 3 && $3 !~ /^dibs_/ { print $3 }' | sort -u)
if [ -n "$foreign" ]; then
    echo "check_symbols: global in $2, but not ours by name:" >&2
    echo "$foreign" >&2
    bad=1
fi
[ $bad -eq 0 ] && echo "check_symbols: $(wc -l <"$list") exported, as listed"
exit $bad
