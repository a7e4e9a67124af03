#!/bin/bash
# test_all.sh: everything that must be true before a change is taken, on a fresh
# Debian 12. Installs what is missing, runs `make test`, then two lanes side by
# side: one of tests, which mostly wait, and one that mostly compiles, at a lower
# priority; each ends with a sanitizer. No build folder is used by both lanes.
#
# A part of a lane prints its result when it ends; what it said is in
# build-logs/. The first failure stops all, and prints the end of that log.
set -euo pipefail
cd "$(dirname "$0")/.."

logs=$PWD/build-logs
rm -rf "$logs"
mkdir "$logs"
started=$SECONDS
lanes=()

result() { # NAME passed|FAILED SECONDS
    printf '==== %s: %s, %d s (%d s in all)\n' "$1" "$2" "$3" \
        $((SECONDS - started))
}

# part NAME COMMAND...
part() {
    local from=$SECONDS
    if "${@:2}" >"$logs/$1.log" 2>&1 </dev/null; then
        result "$1" passed $((SECONDS - from))
        grep -h 'NOT RUN' "$logs/$1.log" || true
    else
        tail -n 200 "$logs/$1.log"
        result "$1" FAILED $((SECONDS - from))
        echo "All of its output: $logs/$1.log"
        return 1
    fi
}

# lane FUNCTION: in the background, in a process group of its own.
lane() {
    set -m
    "$1" &
    lanes+=($!)
    set +m
}

stop_lanes() {
    local pid
    for pid in "${lanes[@]}"; do
        kill -TERM -- "-$pid" 2>/dev/null || true
    done
    wait
}
trap stop_lanes EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

waiting() {
    set -e
    part test-topology make test-topology
    [ "$servers" = no ] || part test-servers make test-servers
    part test-long make test-long
    part interop make interop
    part check-asan make check-asan
}

compiling() {
    set -e
    local name
    for name in check check-install check-static check-dist check-deb \
        check-abi check-peers; do
        part $name nice -n 5 make $name
    done
    part check-tsan make check-tsan
}

part deps tools/deps.sh build test check interop package
echo "==== make test"
from=$SECONDS
make test
result test passed $((SECONDS - from))

servers=no
if part servers-deps tools/deps.sh servers &&
    part servers tools/servers.sh build-servers; then
    servers=yes
else
    echo "==== NOT RUN: test-servers, since the servers could not be had here"
fi
lane waiting
lane compiling
for _ in "${lanes[@]}"; do
    wait -n || exit 1
done
lanes=()
printf '\nAll passed in %d s.\n' $((SECONDS - started))
