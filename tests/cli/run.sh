#!/bin/bash
# SPDX-License-Identifier: MIT
#
# run.sh [SCRIPT...]: runs tests of the command, or all of them.
#
# The command is $DIBS, or the one in build-test or build. Each script gets a
# folder of its own, with a runtime folder in it, so that the private server it
# may start is its own, too. Whatever it starts and leaves is ended and its
# folder removed, also when it fails or is interrupted.
set -u

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
for built in "$top/build-test/cli/dibs" "$top/build/cli/dibs"; do
    [ -n "${DIBS:-}" ] || [ ! -x "$built" ] || DIBS=$built
done
if [ ! -x "${DIBS:-}" ]; then
    echo "run.sh: no dibs to test; build it, or name it in \$DIBS" >&2
    exit 1
fi
export DIBS

if [ $# -ne 1 ]; then
    [ $# -gt 0 ] || set -- "$here"/*.sh
    failed=0
    for script; do
        case $(basename "$script") in run.sh | lib*.sh) continue ;; esac
        if "$0" "$script"; then
            echo "ok      $(basename "$script" .sh)"
        else
            echo "FAILED  $(basename "$script" .sh)"
            failed=1
        fi
    done
    exit $failed
fi

test=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
if [ ! -r "$test" ]; then
    echo "run.sh: there is no $1" >&2
    exit 1
fi
T=$(mktemp -d "${TMPDIR:-/tmp}/dibs-cli.XXXXXX") || exit 1
script=

# The processes that the script started, or that were started by one. Such a
# process has our folder in its environment, its arguments (redis-server
# overwrites its environment with its title) or as its working folder. $T is not
# exported and no argument here, so that what looks for them is not found.
ours() {
    local dir path
    grep -slF -f - /proc/[0-9]*/environ /proc/[0-9]*/cmdline <<<"$T" |
        cut -d / -f 3
    find /proc/[0-9]*/cwd -maxdepth 0 -printf '%p %l\n' 2>/dev/null |
        while read -r path dir; do
            path=${path%/cwd}
            case $dir in "$T" | "$T"/*) echo "${path#/proc/}" ;; esac
        done
}

# Ends them all; until there is none, for those that were just being started.
end_all() {
    local pid round pids
    for round in 1 2 3 4 5 6 7 8 9 10; do
        pids=
        for pid in $(ours); do
            [ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ] || pids+=" $pid"
        done
        [ "$pids" ] || break
        # shellcheck disable=SC2086
        kill -KILL $pids 2>/dev/null
    done
}

clean_up() {
    trap - EXIT
    end_all
    [ -z "$script" ] || wait "$script" 2>/dev/null
    rm -rf "$T"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir -m 700 "$T/runtime"
env -i PATH="$PATH" HOME="$T" TMPDIR="$T" TERM=dumb LC_ALL=C \
    DIBS="$DIBS" T="$T" XDG_RUNTIME_DIR="$T/runtime" \
    DIBS_TEST_SLOWNESS="${DIBS_TEST_SLOWNESS:-1}" CC="${CC:-cc}" \
    DIBS_SANITIZE="${DIBS_SANITIZE:-}" \
    ${ASAN_OPTIONS:+ASAN_OPTIONS="$ASAN_OPTIONS"} \
    ${TSAN_OPTIONS:+TSAN_OPTIONS="$TSAN_OPTIONS"} \
    HERE="$here" bash -u -c '. "$HERE/lib.sh"; . "$1"; finish' test "$test" &
script=$!
wait "$script"
code=$?
script=
exit $code
