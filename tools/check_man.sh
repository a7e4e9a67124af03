#!/bin/bash
# The man pages: no complaint by groff (or mandoc, where there is one); every
# function of the header in a synopsis, every error in dibs_errors(3), every
# cross reference a page of ours that exists; every example compiles.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob

dir=$(mktemp -d "${TMPDIR:-/tmp}/dibs.XXXXXX")
trap 'rm -rf "$dir"' EXIT
bad=0
complain() {
    echo "check_man: $*" >&2
    bad=1
}

pages=(docs/man/*.[1-9])
for page in "${pages[@]}"; do
    said=$(groff -mandoc -Tutf8 -ww -z "$page" 2>&1) || true
    [ -z "$said" ] || complain "$page: $said"
    if command -v mandoc >/dev/null; then
        said=$(mandoc -Tlint -Wwarning "$page" 2>&1) || true
        [ -z "$said" ] || complain "$said"
    fi
    while read -r name section; do
        [ -e "docs/man/$name.$section" ] ||
            complain "$page: refers to $name($section), which is not there"
    done < <(sed -n 's/^\.Xr \(dibs[a-z_]*\) \([0-9]\).*/\1 \2/p' "$page")
done

while read -r name; do
    grep -qx "\.Fo $name" docs/man/*.3 ||
        complain "$name is in no synopsis"
done <tools/symbols.txt
while read -r name; do
    grep -qx "\.It Dv $name" docs/man/dibs_errors.3 ||
        complain "$name is not explained in dibs_errors(3)"
done < <(grep -oE '^ *X\(DIBS_[A-Z_]+' include/dibs/dibs.h | sed 's/.*(//')

# An example is the literal text in EXAMPLES, with roff's escapes undone.
example_of() {
    awk '/^\.Sh / { on = ($2 == "EXAMPLES") }
         on && /^\.Bd -literal/ { lit = 1; next }
         on && /^\.Ed/ { lit = 0 }
         lit' "$1" | sed 's/\\e/\\/g; s/\\-/-/g; s/\\&//g'
}
compiled=0
for page in docs/man/*.3; do
    c=$dir/$(basename "$page" .3).c
    compile="cc -std=c11"
    case $page in
    *_cpp.3) c=${c}pp compile="c++ -std=c++17" ;;
    esac
    example_of "$page" >"$c"
    if [ ! -s "$c" ]; then
        complain "$page: has no example"
        continue
    fi
    $compile -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror \
        -Iinclude -fsyntax-only "$c" || complain "$page: its example is wrong"
    compiled=$((compiled + 1))
done
[ $bad -eq 0 ] &&
    echo "check_man: ${#pages[@]} pages, $compiled examples compiled"
exit $bad
