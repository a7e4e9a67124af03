#!/bin/bash
# The public headers, alone and used, with gcc and clang: dibs.h as C and as C++,
# dibs.hpp and each of its parts as C++17 and later.
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
    dibs_client_opts copts = DIBS_CLIENT_OPTS_INIT;
    dibs_lock_opts lopts = DIBS_LOCK_OPTS_INIT;
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_member member = DIBS_MEMBER_INIT;
    dibs_err err = dibs_client_open(
        "redis://h", DIBS_CLIENT_OPTS(.lazy = true), c);
    copts.lazy = true;
    if (err == DIBS_OK)
        err = dibs_client_open("redis://h", &copts, c);
    if (err == DIBS_OK)
        err = dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = DIBS_MS_MAX));
    lopts.wait_ms = DIBS_MS_MAX;
    if (err == DIBS_OK)
        err = dibs_lock_acquire(l, &lopts);
    if (err == DIBS_OK)
        err = dibs_lock_members(l, 0, 0, &member);
    if (err == DIBS_OK)
        err = dibs_lock_info_get(l, &info);
    return err;
}
END
# C++ has no compound literals; there the structs begin with an ..._INIT. What
# the macros make is looked at, too: all zero but the size. That of the options
# when the program runs, since they are functions there.
cat >"$dir/used.cc" <<'END'
#include <dibs/dibs.h>
#if defined(DIBS_CLIENT_OPTS) || defined(DIBS_LOCK_OPTS)
#error "these do not compile as C++"
#endif
dibs_err use(dibs_client **c, dibs_lock *l);
dibs_err use(dibs_client **c, dibs_lock *l)
{
    dibs_client_opts copts = DIBS_CLIENT_OPTS_INIT;
    copts.lazy = true;
    dibs_lock_opts lopts = DIBS_LOCK_OPTS_INIT;
    lopts.wait_ms = DIBS_MS_MAX;
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_member member = DIBS_MEMBER_INIT;
    dibs_err err = dibs_client_open("redis://h", &copts, c);
    if (err == DIBS_OK)
        err = dibs_lock_acquire(l, &lopts);
    if (err == DIBS_OK)
        err = dibs_lock_info_get(l, &info);
    if (err == DIBS_OK)
        err = dibs_lock_members(l, 0, 0, &member);
    return err;
}
static constexpr dibs_lock_info no_info = DIBS_LOCK_INFO_INIT;
static constexpr dibs_member no_member = DIBS_MEMBER_INIT;
static_assert(no_info.size == sizeof no_info && !no_info.locked &&
              no_info.mode == DIBS_MODE_NONE && no_info.ttl_ms == 0 &&
              no_info.holds == 0 && no_info.owners == 0 &&
              no_info.waiters == 0 && no_info.owner[0] == '\0', "info");
static_assert(no_member.size == sizeof no_member && !no_member.name &&
              no_member.name_len == 0 && !no_member.server &&
              no_member.verdict == DIBS_OK &&
              no_member.state == DIBS_NOT_HELD && no_member.valid_ms == 0,
              "member");
END

cat >"$dir/run.cc" <<'END'
#include <dibs/dibs.h>
#include <cstring>
template <class T> static bool only_size(T o)
{
    T zero;
    std::memset(&zero, 0, sizeof zero);
    bool right = o.size == sizeof o;
    o.size = 0;
    return right && std::memcmp(&o, &zero, sizeof o) == 0;
}
int main()
{
    const dibs_client_opts copts = DIBS_CLIENT_OPTS_INIT;
    dibs_lock_opts lopts = DIBS_LOCK_OPTS_INIT;
    return only_size(copts) && only_size(lopts) ? 0 : 1;
}
END

warnings="-Wall -Wextra -Wpedantic -Wmissing-field-initializers -Wconversion -Wshadow -Wundef -Werror"
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
        for standard in c++11 c++17 c++20; do
            compile $cxx $standard "$dir/$what.cc"
        done
    done
done
for part in include/dibs/dibs.hpp include/dibs/cpp/*.hpp; do
    part=${part#include/}
    printf '#include <%s>\n#include <%s>\nint not_empty();\n' \
        "$part" "$part" >"$dir/part.cc"
    for cxx in g++ clang++-14; do
        for standard in c++17 c++20 c++2b; do
            compile $cxx $standard "$dir/part.cc"
        done
    done
done
for cxx in g++ clang++-14; do
    # shellcheck disable=SC2086 # a list of words
    "$cxx" -std=c++20 $warnings -Iinclude -o "$dir/run" "$dir/run.cc"
    "$dir/run"
    count=$((count + 1))
done
echo "check_header: compiled $count times, as C and as C++"
