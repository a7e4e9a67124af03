#!/bin/bash
# run_tests.sh FOLDER [CTEST-OPTION...]
#
# Runs the tests that were built in FOLDER; with $TEST only the test of that name,
# or all whose names match it. Ends with the failed tests and, for each, the
# command that runs it alone: $DIBS_TEST_MAKE TEST=NAME (make test).
set -euo pipefail
if [ $# -lt 1 ]; then
    echo "usage: run_tests.sh FOLDER [CTEST-OPTION...]" >&2
    exit 2
fi
dir=$1
shift
export DIBS_TEST_MAKE=${DIBS_TEST_MAKE:-make test}

if [ -n "${TEST:-}" ]; then
    exact="^${TEST//./\\.}\$"
    if [[ $(ctest --test-dir "$dir" -N -R "$exact") == *'Tests: 1'* ]]; then
        TEST=$exact
    fi
    set -- -R "$TEST" "$@"
else
    [ $# -gt 2 ] || set -- "$@" -LE topology
fi
if ctest --test-dir "$dir" --output-on-failure --no-tests=error \
    --no-label-summary "$@"; then
    exit 0
fi
if [ -s "$dir/Testing/Temporary/LastTestsFailed.log" ]; then
    echo "Failed. Above, each has a report with its logs. To run one alone:"
    sed "s/^[0-9]*:/    $DIBS_TEST_MAKE TEST=/" \
        "$dir/Testing/Temporary/LastTestsFailed.log"
fi
exit 1
