#!/bin/bash
# Nothing in the build is globbed, so a file could be written and never built,
# a test written and never run. This finds such files; and bugs that the simulator
# is to find, if the line that they change is not there any more.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob

bad=0
count=0
need() { # LIST-FILE WORD FILE
    count=$((count + 1))
    if ! grep -qE "(^|[[:space:](])$2([[:space:])]|\$)" "$1"; then
        echo "check_lists: $3 is not in its list" >&2
        bad=1
    fi
}

for f in $(find src -name '*.c') lua/*/*.lua docs/man/*.3; do
    need cmake/sources.cmake "$f" "$f"
done
for kind in unit server fault stress fuzz; do
    for f in tests/$kind/*.c; do
        name=$(basename "$f" .c)
        need tests/CMakeLists.txt "($kind $name|$kind/$name(\\.c)?)" "$f"
    done
done
for f in tests/support/*.c; do
    need tests/CMakeLists.txt "(support $(basename "$f" .c)|${f#tests/})" "$f"
done
for f in tests/sim/*.c; do
    need tests/sim/CMakeLists.txt "$(basename "$f" .c)(\\.c)?" "$f"
done
for f in tests/cli/*.sh; do
    name=$(basename "$f" .sh)
    case $name in
    run | lib*) ;; # what the scripts share
    *) need <(sed -n '/DIBS_CLI_TESTS$/,/^)/p' tests/CMakeLists.txt) \
        "$name" "$f" ;;
    esac
done
for f in $(find cli -name '*.c'); do
    need cli/CMakeLists.txt "${f#cli/}" "$f"
done
for f in examples/*.c; do
    need examples/CMakeLists.txt "$(basename "$f" .c)" "$f"
done
for f in examples/*.cpp; do
    need examples/CMakeLists.txt "$(basename "$f" .cpp)" "$f"
done
for f in tests/cpp/*.cpp; do
    need tests/cpp/CMakeLists.txt "$(basename "$f" .cpp)(\\.cpp)?" "$f"
done
for f in tests/ffi/test_*.py; do
    need tests/ffi/CMakeLists.txt "$(basename "$f" .py)" "$f"
done
for f in bench/*.c; do
    need bench/CMakeLists.txt "$(basename "$f" .c)(\\.c)?" "$f"
done
while IFS=$'\t' read -r name file edit _; do
    case $name in '' | '#'*) continue ;; esac
    if sed -E "$edit" "$file" | cmp -s - "$file"; then
        echo "check_lists: the bug $name changes nothing in $file" >&2
        bad=1
    fi
done <tests/sim/mutants/mutants.txt
[ $bad -eq 0 ] && echo "check_lists: $count files are in their lists"
exit $bad
