#!/bin/bash
# run.sh PROGRAMS [redisson4] [redisson3]
#
# Builds the Java helper against each Redisson named (both, if none is), and
# runs the interoperation tests, which are in the folder PROGRAMS, with it.
# What Maven fetched stays in its own cache, so that later runs need no network.
# SOAK is how many seconds the soak lasts, PARTS which tests to run (all). Stops
# at the first failure.
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

for profile; do
    if ! is_built "$profile"; then
        # Offline first; what it says there is of no interest.
        rm -rf "$here/target/$profile"
        # And the network may be away for a moment.
        maven "$profile" -o >/dev/null 2>&1 || maven "$profile" ||
            { sleep 10 && maven "$profile"; }
        touch "$here/target/$profile/classpath"
    fi
    built=$here/target/$profile
    export DIBS_INTEROP_CLASSPATH=$built/classes:$(<"$built/classpath")
    for test in ${PARTS:-lock fair rw known multi fenced slots semaphore latch soak}; do
        printf '\n-- %s, %s\n' "$profile" "$test"
        limit=300
        [ $test != soak ] || limit=$((${SOAK:-60} + 300))
        timeout -k 10 "$limit" "$programs/interop_$test"
    done
done
printf '\ninterop: all passed\n'
