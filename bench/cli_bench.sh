#!/bin/bash
# SPDX-License-Identifier: MIT
#
# bench.sh [DIBS [ROUNDS]]: what it costs to guard a command.
#
# Runs true alone, under flock(1), and under dibs run on a private server, one
# after the other in each round, and prints the median of each in milliseconds
# and what it is above true alone.
set -u

dibs=${1:-dibs}
rounds=${2:-200}
case $dibs in
*/*) dibs=$(cd "$(dirname "$dibs")" && pwd)/$(basename "$dibs") ;;
esac
dir=$(mktemp -d "${TMPDIR:-/tmp}/dibs-bench.XXXXXX") || exit 1
clean_up() {
    trap '' EXIT
    "$dibs" local stop --force >/dev/null 2>&1
    rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
unset DIBS_URL DIBS_URL_FILE DIBS_OWNER DIBS_OWNERS
export XDG_RUNTIME_DIR=$dir
alone=$(type -P true)

# once FILE COMMAND...: adds the microseconds it took.
once() {
    local file=$1 before=${EPOCHREALTIME/[.,]/}
    shift
    "$@" || exit 1
    echo $((${EPOCHREALTIME/[.,]/} - before)) >>"$dir/took.$file"
}

"$dibs" run -q bench -- "$alone" || exit 1
for ((i = 0; i < rounds; i++)); do
    once true "$alone"
    once flock flock "$dir/lock" "$alone"
    once dibs "$dibs" run bench -- "$alone"
done

median() {
    sort -n "$dir/took.$1" | sed -n "$((rounds / 2 + 1))p"
}
base=$(median true)
for what in true flock dibs; do
    m=$(median $what)
    printf 'run_%-6s %6.2f ms   %+.2f ms\n' $what "$((m))e-3" "$((m - base))e-3"
done
