#!/bin/bash
# check_dist.sh
#
# The tarball of the sources: its checksum is right; made again, elsewhere and
# under other settings, it is the same, also when it is made from what was
# unpacked, without git. What was unpacked builds, and passes a quick part of the
# tests and the checks that only read.
set -euo pipefail
cd "$(dirname "$0")/../.."

dir=$(mktemp -d "${TMPDIR:-/tmp}/dibs.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
say() { echo "check_dist: $*"; }
fail() {
    say "$*" >&2
    exit 1
}
quietly() { # COMMAND...: shows its output only if it fails
    "$@" >"$dir/log" 2>&1 || {
        cat "$dir/log" >&2
        fail "failed: $*"
    }
}

quietly tools/release/dist.sh "$dir/one"
(cd "$dir/one" && sha256sum --check --quiet ./*.sha256) || fail "checksum"
tarball=$(echo "$dir"/one/*.tar.gz)
name=$(basename "$tarball" .tar.gz)
mkdir "$dir/away from git"
(
    umask 077
    export TZ=Asia/Kathmandu LC_ALL=C.UTF-8
    tar -x -C "$dir/away from git" -f "$tarball"
    quietly "$dir/away from git/$name/tools/release/dist.sh" "$dir/two"
)
cmp "$tarball" "$dir/two/$name.tar.gz" || fail "made again, it differs"
say "$name.tar.gz, $(tar -tf "$tarball" | wc -l) files: made again, the same"

mkdir "$dir/unpacked"
tar -x -C "$dir/unpacked" -f "$tarball"
cd "$dir/unpacked/$name"
quietly make check-layers check-lists check-size check-header
# All unit tests, some of the others, and what they need. check_deb.sh builds
# the rest of it, and check_install.sh looks at what is installed.
targets=(test_lock test_client dibs_command example_hello)
for f in tests/unit/test_*.c; do
    targets+=("$(basename "$f" .c)")
done
quietly cmake -S . -B build-test -DCMAKE_BUILD_TYPE=Debug
quietly cmake --build build-test -j "${JOBS:-2}" --target "${targets[@]}"
quietly ctest --test-dir build-test --output-on-failure -j 2 \
    -R '^(unit\..*|server\.lock|server\.client|example\.hello|cli\.usage)$'
[ "$(build-test/cli/dibs --version)" = "dibs ${name#dibs-}" ] ||
    fail "what was built is not ${name#dibs-}"
say "it builds, and passes the quick tests"
