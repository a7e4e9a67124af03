#!/bin/bash
# The public header, alone and used, as C11 and as C++, with gcc and clang.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d "${TMPDIR:-/tmp}/dibs.XXXXXX")
trap 'rm -rf "$dir"' EXIT

cat >"$dir/alone.c" <<'END'
#include <dibs/dibs.h>
#include <dibs/dibs.h>
typedef int not_empty;
END
cp "$dir/alone.c" "$dir/alone.cc"

cat >"$dir/used.c" <<'END'
#include <dibs/dibs.h>
dibs_err use(dibs_client **c, dibs_lock *l);
dibs_err use(dibs_client **c, dibs_lock *l)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_err err = dibs_client_open(
        "redis://h", DIBS_CLIENT_OPTS(.lazy = true), c);
    if (err == DIBS_OK)
        err = dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = DIBS_MS_MAX));
    if (err == DIBS_OK)
        err = dibs_lock_info_get(l, &info);
    return err;
}
END
# C++ has no compound literals; there the structs are filled by hand.
cat >"$dir/used.cc" <<'END'
#include <dibs/dibs.h>
dibs_err use(dibs_client **c, dibs_lock *l);
dibs_err use(dibs_client **c, dibs_lock *l)
{
    dibs_client_opts copts = dibs_client_opts();
    copts.size = sizeof copts;
    copts.lazy = true;
    dibs_lock_opts lopts = dibs_lock_opts();
    lopts.size = sizeof lopts;
    lopts.wait_ms = DIBS_MS_MAX;
    dibs_err err = dibs_client_open("redis://h", &copts, c);
    return err == DIBS_OK ? dibs_lock_acquire(l, &lopts) : err;
}
END

warnings="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Werror"
compile() { # COMPILER STANDARD FILE
    # shellcheck disable=SC2086 # a list of words
    "$1" "-std=$2" $warnings -Iinclude -fsyntax-only "$3"
    count=$((count + 1))
}

count=0
for what in alone used; do
    for cc in gcc clang-14; do
        compile $cc c11 "$dir/$what.c"
        compile $cc c17 "$dir/$what.c"
    done
    for cxx in g++ clang++-14; do
        compile $cxx c++11 "$dir/$what.cc"
        compile $cxx c++20 "$dir/$what.cc"
    done
done
echo "check_header: compiled $count times, as C and as C++"
