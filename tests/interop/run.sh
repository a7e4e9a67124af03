#!/bin/bash
# run.sh PROGRAMS [redisson4] [redisson3]
#
# Builds the Java helper against each Redisson named (both, if none is), and
# runs the interoperation tests, which are in the folder PROGRAMS, with it.
# What Maven fetched stays in its own cache, so that later runs need no network.
# SOAK is how many seconds the soak lasts, PARTS which tests to run (all). Each
# Redisson's tests stop at the first failure.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
programs=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- redisson4 redisson3

maven() { # PROFILE ARGUMENT...
    mvn -q -B -f "$here/pom.xml" "-P$1" "${@:2}" \
        compile dependency:build-classpath
}

# Up to date when nothing is newer than the list of jars, and all are there.
is_built() { # PROFILE
    local list=$here/target/$1/classpath jar
    [ -s "$list" ] && [ -s "$here/target/$1/classes/Helper.class" ] || return 1
    [ -z "$(find "$here/pom.xml" "$here/src" -newer "$list" -print -quit)" ] ||
        return 1
    local IFS=:
    for jar in $(<"$list"); do
        [ -s "$jar" ] || return 1
    done
}

build() { # PROFILE
    is_built "$1" && return
    # Offline first; what it says there is of no interest.
    rm -rf "$here/target/$1"
    # And the network may be away for a moment.
    maven "$1" -o >/dev/null 2>&1 || maven "$1" || { sleep 10 && maven "$1"; }
    touch "$here/target/$1/classpath"
}

run_all() { # PROFILE
    local built=$here/target/$1 test limit child=
    trap 'kill $child 2>/dev/null; wait; exit 143' TERM
    export DIBS_INTEROP_CLASSPATH=$built/classes:$(<"$built/classpath")
    for test in ${PARTS:-lock fair rw known multi fenced slots semaphore latch soak}; do
        printf '\n-- %s, %s\n' "$1" "$test"
        limit=300
        [ "$test" != soak ] || limit=$((${SOAK:-60} + 300))
        timeout -k 10 "$limit" "$programs/interop_$test" &
        child=$!
        wait $child || return 1
    done
}

# Most of the time is spent waiting, so all run at once, each with a server and
# a Java of its own. What the later ones say is shown when the first has ended.
for profile; do
    build "$profile"
done
logs=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$logs"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
failed=
for profile; do
    : >"$logs/$profile"
    run_all "$profile" >>"$logs/$profile" 2>&1 &
    pids+=($!)
done
for profile; do
    tail -n +1 -f --pid="${pids[0]}" "$logs/$profile" &
    tail=$!
    wait "${pids[0]}" || failed=yes
    wait "$tail" || true
    pids=("${pids[@]:1}")
done
[ -z "$failed" ] || { printf '\ninterop: FAILED\n'; exit 1; }
printf '\ninterop: all passed\n'
