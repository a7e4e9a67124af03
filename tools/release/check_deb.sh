#!/bin/bash
# check_deb.sh
#
# The Debian packages: built twice, in different places and under different
# settings, they are the same byte for byte; lintian has neither errors nor
# warnings; and, as root, they are installed on this machine, used, and purged,
# after which nothing of them is left. A machine that has one of them already is
# left alone.
set -euo pipefail
cd "$(dirname "$0")/../.."

say() { echo "check_deb: $*"; }
fail() {
    say "$*" >&2
    exit 1
}
if ! command -v dpkg-buildpackage >/dev/null; then
    say "NOT RUN: there is no dpkg-buildpackage here"
    exit 0
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/dibs.XXXXXX")
names=(dibs libdibs-dev libdibs0)
installed=no
purge() {
    dpkg --purge "${names[@]}" >"$dir/purge.log" 2>&1
}
clean_up() {
    if [ $installed = yes ]; then
        purge || cat "$dir/purge.log" >&2
    fi
    rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
quietly() { # COMMAND...: shows its output only if it fails
    "$@" >"$dir/log" 2>&1 || {
        cat "$dir/log" >&2
        fail "failed: $*"
    }
}

# ---- the same twice ------------------------------------------------------

quietly tools/release/deb.sh "$dir/one"
mkdir "$dir/another-place"
(
    umask 077
    export TMPDIR=$dir/another-place TZ=Asia/Kathmandu LC_ALL=C.UTF-8
    quietly tools/release/deb.sh "$dir/two"
)
count=0
for one in "$dir"/one/*.{deb,dsc,gz,xz}; do
    cmp "$one" "$dir/two/${one##*/}" || fail "built twice, ${one##*/} differs"
    count=$((count + 1))
done
say "built twice: $count files, all the same"

if command -v lintian >/dev/null; then
    root=()
    [ "$(id -u)" -ne 0 ] || root=(--allow-root)
    lintian "${root[@]}" --fail-on error,warning "$dir"/one/*.changes ||
        fail "lintian found something"
    say "lintian: no errors, no warnings"
else
    say "NOT RUN: lintian is not here"
fi

# ---- installed, used, purged ---------------------------------------------

if [ "$(id -u)" -ne 0 ]; then
    say "NOT RUN: only root can install the packages"
    exit 0
fi
if dpkg-query -W "${names[@]}" >/dev/null 2>&1; then
    say "NOT RUN: one of ${names[*]} is installed here already"
    exit 0
fi

# All files of the system, by name; in /var, where others write, only ours.
list_files() {
    find /usr /etc -xdev
    find /var -xdev -name '*dibs*'
}
list_files | sort >"$dir/before"
debs=()
for name in "${names[@]}"; do
    debs+=("$dir/one/$name"_*.deb)
done
installed=yes
# Images of containers often leave documents out.
quietly dpkg --path-include='/usr/share/*' -i "${debs[@]}"

use() { # URL: what a user does first
    set -ex -o pipefail
    local url=$1
    [ "$(dibs run -u "$url" nightly -- echo ours)" = ours ]
    dibs doctor -u "$url" | grep '^ok .*version'
    # A width that is not the usual one: man keeps no copy of the page then.
    MANWIDTH=100 MANPAGER=cat man 1 dibs | grep 'dibs run'
    MANWIDTH=100 MANPAGER=cat man 3 dibs_lock_acquire | grep dibs_lock_acquire
    # shellcheck disable=SC2016 # for the inner shell
    bash -c '. /usr/share/bash-completion/completions/dibs
        complete -p dibs >/dev/null
        COMP_WORDS=(dibs ru) COMP_CWORD=1
        $(complete -p dibs | sed -n "s/.*-F \([^ ]*\) .*/\1/p") dibs ru dibs
        [[ " ${COMPREPLY[*]} " == *" run "* ]]'
    cd "$workshop"
    local hello=/usr/share/doc/libdibs-dev/examples/hello.c
    # shellcheck disable=SC2046 # lists of words
    cc $hello $(pkg-config --cflags --libs dibs) -o shared
    ldd shared | grep 'libdibs\.so\.0 => /'
    ./shared "$url"
    # shellcheck disable=SC2046
    cc -static $hello $(pkg-config --static --cflags --libs dibs) -o static \
        2>static.log || { cat static.log; return 1; }
    ./static "$url"
    # shellcheck disable=SC2046
    c++ -std=c++17 -pthread /usr/share/doc/libdibs-dev/examples/workers.cpp \
        $(pkg-config --cflags --libs dibs) -o workers
    ./workers "$url"
    cmake -S /usr/share/doc/libdibs-dev/examples -B examples
    cmake --build examples
    examples/hello "$url"
    local python
    for python in python3 /usr/bin/python3; do
        if $python -c 'import cffi'; then
            $python -B /usr/share/doc/libdibs-dev/examples/python/workers.py "$url"
            break
        fi
    done
}
export -f use
export workshop=$dir/workshop
mkdir "$workshop"
[ "$(command -v dibs)" = /usr/bin/dibs ] || fail "dibs is not /usr/bin/dibs"
quietly timeout 300 tools/with_redis.sh bash -c 'use "$1"' use
say "installed, and used: the command, its manual and completion; examples," \
    "shared, static and by CMake, in C, C++ and Python"

purge || {
    cat "$dir/purge.log" >&2
    fail "could not be purged"
}
installed=no
list_files | sort >"$dir/after"
diff "$dir/before" "$dir/after" || fail "something is left, or gone"
if ldconfig -p | grep libdibs; then
    fail "the linker's cache still has it"
fi
say "purged: nothing is left"
