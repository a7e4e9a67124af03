#!/bin/bash
# SPDX-License-Identifier: MIT
#
# run.sh [SCRIPT...]: runs tests of the command, or all of them.
#
# The command is $DIBS, or the one in build-test or build. tests/run_test beside
# it gives each script a folder, $DIBS_TEST_DIR, ends whatever the script leaves
# running, and removes the folder unless the script fails. A script sees nothing
# of the environment but what is below; the runtime folder is its own, so that
# the private server it may start is its own, too.
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

if [ -z "${DIBS_TEST_DIR:-}" ]; then
    [ $# -gt 0 ] || set -- "$here"/*.sh
    failed=0
    for script; do
        name=$(basename "$script" .sh)
        case $name in run | lib*) continue ;; esac
        "$(dirname "$DIBS")/../tests/run_test" -k "cli.$name" \
            $((600 * ${DIBS_TEST_SLOWNESS:-1})) "$0" "$script" || failed=1
    done
    exit $failed
fi

test=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
if [ ! -r "$test" ]; then
    echo "run.sh: there is no $1" >&2
    exit 1
fi
T=$DIBS_TEST_DIR/t
mkdir -m 700 "$T" "$T/runtime" || exit 1
exec env -i PATH="$PATH" HOME="$T" TMPDIR="$T" TERM=dumb LC_ALL=C \
    DIBS="$DIBS" T="$T" XDG_RUNTIME_DIR="$T/runtime" \
    DIBS_TEST_SLOWNESS="${DIBS_TEST_SLOWNESS:-1}" CC="${CC:-cc}" \
    DIBS_SANITIZE="${DIBS_SANITIZE:-}" \
    ${ASAN_OPTIONS:+ASAN_OPTIONS="$ASAN_OPTIONS"} \
    ${TSAN_OPTIONS:+TSAN_OPTIONS="$TSAN_OPTIONS"} \
    HERE="$here" bash -u -c '. "$HERE/lib.sh"; . "$1"; finish' test "$test"
