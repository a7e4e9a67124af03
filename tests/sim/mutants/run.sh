#!/bin/bash
# Does the simulator find bugs? Each line of mutants.txt plants one: a change of
# one line of the library, made in a copy of the tree. The simulator is built
# with it and runs seeds until a promise is broken. How many it took is the
# measure; one that is never found says what the simulator does not see.
#
# Usage: run.sh FOLDER [NAME...]      SEEDS=10000  SECONDS_EACH=120  JOBS=2
# Writes FOLDER/table.md.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
list=$root/tests/sim/mutants/mutants.txt
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
seeds=${SEEDS:-10000}
seconds=${SECONDS_EACH:-120}
jobs=${JOBS:-2}

rm -rf "$folder/tree" "$folder/build"
mkdir -p "$folder/tree"
(cd "$root" && git ls-files -z | tar -c --null -T - -f -) |
    tar -x -C "$folder/tree"
cd "$folder/tree"
cmake --log-level=ERROR -S . -B "$folder/build" -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_C_FLAGS="-O2 -g" -DDIBS_TESTS=ON -DDIBS_FAULTS=ON >/dev/null
cmake --build "$folder/build" -j "$jobs" --target sim >"$folder/build.log" 2>&1

{
    echo "| bug | profile | broken | seeds |"
    echo "| --- | --- | --- | --- |"
} >"$folder/table.md"
found=0 missed=0
while IFS=$'\t' read -r name file edit what profile; do
    case $name in '' | '#'*) continue ;; esac
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    cp "$file" "$folder/before"
    sed -E -i "$edit" "$file"
    if cmp -s "$file" "$folder/before"; then
        echo "$name: the line it changes is not there any more ($file)" >&2
        echo "| $what | - | stale | - |" >>"$folder/table.md"
        missed=$((missed + 1))
        continue
    fi
    if ! cmake --build "$folder/build" -j "$jobs" --target sim \
        >"$folder/build.log" 2>&1; then
        echo "$name: does not build; see $folder/build.log" >&2
        echo "| $what | - | does not build | - |" >>"$folder/table.md"
        missed=$((missed + 1))
    else
        out=$("$folder/build/tests/sim/sim" --count "$seeds" --jobs "$jobs" \
            --seconds "$seconds" --no-shrink \
            ${profile:+--profile "$profile"} 2>&1 || true)
        promise=$(sed -nE 's/^BROKEN ([^:]*):.*/\1/p; s/^(CRASH|sim: at).*/crash/p' \
            <<<"$out" | head -1)
        after=$(sed -nE 's/^seed [0-9]+ failed after ([0-9]+) seeds/\1/p' \
            <<<"$out" | head -1)
        ran=$(sed -nE 's/^sim: ([0-9]+) seeds,.*/\1/p' <<<"$out" | head -1)
        if [ -n "$after" ]; then
            found=$((found + 1))
        else
            missed=$((missed + 1))
        fi
        echo "| $what | ${profile:-any} | ${promise:-not found} |" \
            "${after:-$ran} |" |
            tee -a "$folder/table.md"
    fi
    cp "$folder/before" "$file"
    touch "$file"
done <"$list"
echo "sim-mutants: $found found, $missed not; table in $folder/table.md"
