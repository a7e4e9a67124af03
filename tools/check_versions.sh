#!/bin/bash
# check_versions.sh DIR [SUITE...]
#
# The ground that dibs stands on, as Debian's suites have it. For each suite a
# root of its own is made in DIR, with its compilers and its libuv, hiredis,
# OpenSSL and redis-server. In there library, command, unit and server tests are
# built with each compiler, warnings being errors, and the tests are run.
# Nothing is installed on this machine. The roots stay for the next time, more
# than 1 GB each.
#
# Needs root, mmdebstrap, and the network the first time. The packages come from
# where apt gets those of this machine, or from $MIRROR.
set -euo pipefail
if [ $# -lt 1 ]; then
    echo "usage: check_versions.sh DIR [SUITE...]" >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- bookworm trixie
cd "$(dirname "$0")/.."

say() { echo "check_versions: $*"; }
fail() {
    say "$*" >&2
    exit 1
}
compilers_of() { # SUITE
    case $1 in
    bookworm) echo gcc-12 clang-14 clang-15 clang-16 ;;
    trixie) echo gcc-13 gcc-14 clang-17 clang-18 clang-19 ;;
    *) return 1 ;;
    esac
}
for suite; do
    compilers_of "$suite" >/dev/null || fail "no compilers known of $suite"
done
if [ "$(id -u)" -ne 0 ] || ! command -v mmdebstrap >/dev/null; then
    say "NOT RUN: needs root, and mmdebstrap"
    exit 0
fi

scratch=$(mktemp -d "${TMPDIR:-/tmp}/dibs.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The first archive of Debian in apt's lists, not that of the security team.
mirror=${MIRROR:-$(apt-get indextargets --format '$(SITE)' | grep '/debian$' |
    head -1)}
make_root() { # SUITE
    local packages=(cmake make pkg-config libc6-dev libuv1-dev libhiredis-dev
        libssl-dev libcmocka-dev redis-server redis-tools openssl)
    # shellcheck disable=SC2207 # words
    packages+=($(compilers_of "$1"))
    say "making a root of $1"
    rm -rf "${out:?}/$1"
    mmdebstrap --quiet --variant=apt --mode=root \
        --include="$(IFS=,; echo "${packages[*]}")" \
        "$1" "$out/$1.new" "$mirror" >"$scratch/log" 2>&1 || {
        tail -20 "$scratch/log" >&2
        rm -rf "$out/$1.new"
        fail "there is no root of $1"
    }
    printf '127.0.0.1 localhost\n::1 localhost\n' >"$out/$1.new/etc/hosts"
    mv "$out/$1.new" "$out/$1"
}

# Runs a command in a suite's root, with the files of this system's kernel. What
# is mounted for that, and all processes in there, end with it.
inside() { # SUITE COMMAND...
    local root=$out/$1
    shift
    # shellcheck disable=SC2016 # for the inner shell
    unshare --mount --pid --fork --kill-child bash -euc '
        root=$1
        shift
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
            LC_ALL=C.UTF-8 "$@"' inside "$root" "$@"
}
version() { # SUITE PACKAGE: without epoch and revision
    chroot "$out/$1" dpkg-query -W -f '${Version}' "$2" |
        sed 's/^[0-9]*://; s/-[^-]*$//; s/[+~].*//'
}
try() { # SUITE COMPILER
    local log=$out/$1-$2.log
    # shellcheck disable=SC2016 # for the inner shell
    if ! inside "$1" bash -euc '
        cd /dibs/dibs-*
        cmake -S . -B "build-$1" -DCMAKE_BUILD_TYPE=Debug \
            -DCMAKE_C_COMPILER="$1" -DDIBS_WERROR=ON
        targets="dibs_shared dibs_command"
        for f in tests/unit/test_*.c tests/server/test_*.c; do
            targets="$targets $(basename "$f" .c)"
        done
        cmake --build "build-$1" -j "$2" --target $targets
        ctest --test-dir "build-$1" --output-on-failure -j "$3" \
            -L "^(unit|server)\$"' \
        try "$2" "${JOBS:-$(nproc)}" "${CTEST_JOBS:-2}" >"$log" 2>&1; then
        tail -60 "$log" >&2
        fail "$1, $2: failed; all of it is in $log"
    fi
    say "$1: ${2%-*} $(version "$1" "$2"), libuv $(version "$1" libuv1-dev)," \
        "hiredis $(version "$1" libhiredis-dev)," \
        "OpenSSL $(version "$1" libssl-dev)," \
        "Redis $(version "$1" redis-server):" \
        "$(sed -n 's/.*tests passed.* out of \([0-9]*\)$/\1 tests passed/p' "$log")"
}

tools/release/dist.sh "$scratch" >/dev/null
for suite; do
    [ -d "$out/$suite" ] || make_root "$suite"
    rm -rf "$out/$suite/dibs"
    mkdir "$out/$suite/dibs"
    tar -x -C "$out/$suite/dibs" -f "$scratch"/dibs-*.tar.gz
    for compiler in $(compilers_of "$suite"); do
        try "$suite" "$compiler"
    done
    rm -rf "$out/$suite/dibs"
done
