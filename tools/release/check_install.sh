#!/bin/bash
# Installs into a temporary place and uses what is there as a stranger would:
# every example in C and C++ is built by pkg-config (shared, static, without any shared
# library) and by find_package (shared and static), and run against a server of
# its own; the one in Python is run, too. For shared use no other library's development files are needed. In
# the end all of it is uninstalled.
set -euo pipefail
cd "$(dirname "$0")/../.."

dir=$(mktemp -d "${TMPDIR:-/tmp}/dibs.XXXXXX")
trap 'rm -rf "$dir"' EXIT
prefix=$dir/prefix

say() { echo "check_install: $*"; }
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
run() { # PROGRAM
    quietly timeout 60 tools/with_redis.sh "$1"
}

shopt -s nullglob
examples=(examples/*.c examples/*.cpp)
[ ${#examples[@]} -gt 0 ] || fail "there are no examples"

# What was there before must be there after `make uninstall`, too.
mkdir -p "$prefix/share/doc/another" "$prefix/lib"
touch "$prefix/share/doc/another/README.md" "$prefix/lib/libdibsy.so"
quietly make install PREFIX="$prefix"
lib=$(dirname "$(find "$prefix" -name libdibs.a)")
for f in include/dibs/dibs.{h,hpp,cdef} include/dibs/cpp/lock.hpp "${lib#"$prefix"/}"/{libdibs.so,libdibs.so.0} \
    "${lib#"$prefix"/}"/{pkgconfig/dibs.pc,cmake/dibs/dibs-config.cmake} \
    share/man/man3/{dibs,dibs_lock,dibs_lock_acquire}.3 \
    share/doc/dibs/{README,ARCHITECTURE,CHANGELOG,CONTRIBUTING,SECURITY}.md \
    share/doc/dibs/LICENSE; do
    [ -e "$prefix/$f" ] || fail "$f was not installed"
done
doc=$prefix/share/doc/dibs
quietly diff -r --exclude=__pycache__ examples "$doc/examples"
quietly diff -r --exclude=man docs "$doc/docs"
if [ -e cli/main.c ]; then
    [ -x "$prefix/bin/dibs" ] || fail "bin/dibs was not installed"
    quietly "$prefix/bin/dibs" --help
fi

export PKG_CONFIG_PATH=$lib/pkgconfig
export LD_LIBRARY_PATH=$lib
word() { # MAJOR|MINOR|PATCH
    sed -n "s/^#define DIBS_VERSION_$1 //p" include/dibs/dibs.h
}
version=$(word MAJOR).$(word MINOR).$(word PATCH)
[ "$(pkg-config --modversion dibs)" = "$version" ] ||
    fail "dibs.pc does not say $version"
readelf -d "$lib/libdibs.so" | grep -q 'SONAME.*\[libdibs\.so\.0\]' ||
    fail "libdibs.so has no SONAME libdibs.so.0"
if nm "$lib/libdibs.a" 2>/dev/null | grep -q dibs__mem_fail_at; then
    fail "the installed library has the tests' fault hook in it"
fi

# Who links with the shared library needs nothing of the others: neither their
# flags, nor their .pc files.
for places in "$PKG_CONFIG_PATH" ''; do
    got=$(PKG_CONFIG_PATH=$places PKG_CONFIG_LIBDIR=$lib/pkgconfig \
        pkg-config --cflags --libs dibs | sed 's/ *$//')
    [ "$got" = "-I$prefix/include -L$lib -ldibs" ] ||
        fail "pkg-config --cflags --libs says: $got"
done
got=$(pkg-config --cflags dibs | sed 's/ *$//')
[ "$got" = "-I$prefix/include" ] || fail "pkg-config --cflags says: $got"

name_of() { # EXAMPLE
    local name=${1##*/}
    echo "${name%.*}"
}
mkdir "$dir/shared" "$dir/static" "$dir/alone"
for f in "${examples[@]}"; do
    name=$(name_of "$f")
    case $f in
    *.cpp) compile="c++ -std=c++17" ;;
    *) compile="cc -std=c11" ;;
    esac
    compile="$compile -pthread -Wall -Wextra -Werror"
    # shellcheck disable=SC2046,SC2086 # lists of words
    quietly $compile "$f" $(pkg-config --cflags --libs dibs) \
        -o "$dir/shared/$name"
    libs=$(pkg-config --static --libs dibs)
    # shellcheck disable=SC2046,SC2086
    quietly $compile "$f" $(pkg-config --cflags dibs) \
        ${libs/-ldibs/"$lib/libdibs.a"} -o "$dir/static/$name"
    if ldd "$dir/static/$name" | grep -q libdibs; then
        fail "static/$name needs a shared libdibs"
    fi
    # shellcheck disable=SC2046,SC2086
    quietly $compile -static "$f" $(pkg-config --static --cflags --libs dibs) \
        -o "$dir/alone/$name"
    if readelf -d "$dir/alone/$name" | grep -q NEEDED; then
        fail "alone/$name needs a shared library"
    fi
    run "$dir/shared/$name"
    run "$dir/static/$name"
    run "$dir/alone/$name"
done
say "pkg-config: ${#examples[@]} examples, shared, static and all static"

# Python finds the library and its declarations where they were installed.
python=
for p in python3 /usr/bin/python3; do
    if [ -z "$python" ] && $p -c 'import cffi' 2>/dev/null; then python=$p; fi
done
if [ -n "$python" ]; then
    cdef=$(pkg-config --variable=includedir dibs)/dibs/dibs.cdef
    DIBS_CDEF=$cdef quietly timeout 60 tools/with_redis.sh \
        "$python" -B "$doc/examples/python/workers.py"
    say "Python: the example runs"
else
    say "NOT RUN: there is no Python with cffi here"
fi

# The installed examples are a project; no .pc file but ours is to be found.
PKG_CONFIG_LIBDIR=$lib/pkgconfig quietly cmake -S "$doc/examples" \
    -B "$dir/cmake" "-DCMAKE_PREFIX_PATH=$prefix"
quietly cmake --build "$dir/cmake"
mkdir "$dir/user"
cat >"$dir/user/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.18)
project(user LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(dibs ${version%.*} REQUIRED COMPONENTS static)
END
for f in "${examples[@]}"; do
    name=$(name_of "$f")
    cat >>"$dir/user/CMakeLists.txt" <<END
add_executable($name $PWD/$f)
target_link_libraries($name PRIVATE dibs::dibs_static Threads::Threads)
END
done
quietly cmake -S "$dir/user" -B "$dir/user/build" \
    "-DCMAKE_PREFIX_PATH=$prefix"
quietly cmake --build "$dir/user/build"
for f in "${examples[@]}"; do
    name=$(name_of "$f")
    run "$dir/cmake/$name"
    run "$dir/user/build/$name"
done
say "find_package: ${#examples[@]} examples, shared and static"

# A packager's way: files go to one place and will live in another.
quietly make install PREFIX=/usr DESTDIR="$dir/root"
pc=$(find "$dir/root/usr" -name dibs.pc)
grep -q '^prefix=/usr$' "$pc" || fail "DESTDIR: wrong prefix in dibs.pc"
if grep -rqI "$dir" "$dir/root"; then
    fail "DESTDIR: the temporary place is written into a file"
fi
say "DESTDIR: nothing outside, nothing wrong inside"

# And away with it: no file, and no folder that was only ours.
left() { # FOLDER
    find "$1" ! -type d -o -name dibs
}
quietly make uninstall PREFIX=/usr DESTDIR="$dir/root"
[ -z "$(left "$dir/root")" ] || fail "uninstall left: $(left "$dir/root")"
[ -e "$prefix/bin/dibs" ] || fail "uninstall removed what is elsewhere"
quietly make uninstall PREFIX="$prefix"
want=$(printf '%s\n' "$prefix"/{lib/libdibsy.so,share/doc/another/README.md})
[ "$(left "$prefix" | sort)" = "$want" ] ||
    fail "uninstall left: $(left "$prefix")"
quietly make uninstall PREFIX="$prefix" # nothing there: no matter
say "uninstall: nothing left, nothing else removed"
