#!/bin/bash
# check_abi.sh SHARED
#
# Compares SHARED, a library with debugging information, with the last version
# that made a promise: programs built with that one must run with this one. There
# may be more functions and more values of an enum, and nothing may be less or
# other. What the public header does not show, does not count.
#
# One thing more may change: a struct that begins with its size may grow at its
# end, since both sides look at the size before they look at a field. At its end
# means behind all of the old one: a field in what was padding would be read from
# old programs that never wrote it. abidiff's own suppressions
# (has_data_member_inserted_at) cannot say that; they also hide fields that
# changed places or types. So its report is read here.
#
# The old one is built from git; in a tarball there is none.
set -euo pipefail
if [ $# -ne 1 ]; then
    echo "usage: check_abi.sh SHARED" >&2
    exit 2
fi
new=$(realpath "$1")
cd "$(dirname "$0")/../.."

# The version to compare with, and its commit, for clones without tags.
version=0.1.0
commit=4bd04961ea69
say() { echo "check_abi: $*"; }

if [ ! -e .git ]; then
    say "NOT RUN: the old version is in git, and this is not git's"
    exit 0
fi
for old in "v$version" "$version" $commit none; do
    if git cat-file -e "$old^{commit}" 2>/dev/null; then break; fi
done
if [ $old = none ]; then
    say "NOT RUN: git has neither v$version nor $commit here (a shallow clone?)"
    exit 0
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/dibs.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
quietly() { # COMMAND...: shows its output only if it fails
    "$@" >"$dir/log" 2>&1 || {
        cat "$dir/log" >&2
        exit 1
    }
}
mkdir "$dir/old"
git archive "$old" | tar -x -C "$dir/old"
quietly cmake -S "$dir/old" -B "$dir/build" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DDIBS_TESTS=OFF -DDIBS_FAULTS=OFF
quietly cmake --build "$dir/build" -j "${JOBS:-2}" --target dibs_shared

# abidiff's leaf report has a block for each type that changed, which begins in
# the first column, and says in bits:
#
#   'struct dibs_lock_opts at dibs.h:248:1' changed:
#     type size changed from 704 to 768 (in bits)
#     1 data member insertion:
#       'int64_t more', at offset 704 (in bits) at dibs.h:269:1
sized='dibs_event dibs_client_opts dibs_lock_opts dibs_member dibs_lock_info'
status=0
abidiff --leaf-changes-only --no-added-syms \
    --headers-dir1 "$dir/old/include" --headers-dir2 include \
    "$dir/build/libdibs.so" "$new" >"$dir/report" || status=$?
if [ $status -ne 0 ] && ! awk -v sized=" $sized " '
    / summary: / {
        if ($0 !~ /^(Leaf changes|Changed leaf types) / &&
            $0 !~ / 0 Removed, 0 Changed/)
            bad = 1
        next
    }
    /^$/ { next }
    /^[^ ]/ {
        size = 0
        if ($1 != "\047struct" || index(sized, " " $2 " ") == 0)
            bad = 1
        blocks++
        next
    }
    /^  type size changed from/ { size = $5; if ($7 < size) bad = 1; next }
    /^  [0-9]+ data member insertions?:$/ { next }
    /^    .*, at offset [0-9]+ \(in bits\)/ {
        match($0, /, at offset [0-9]+/)
        if (size == 0 || substr($0, RSTART + 12, RLENGTH - 12) + 0 < size + 0)
            bad = 1
        next
    }
    { bad = 1 }
    END { exit bad || blocks == 0 }' "$dir/report"; then
    cat "$dir/report" >&2
    say "what was built with $version may not run with this" >&2
    exit 1
fi
sed -n "s/^'struct \\([a-z_]*\\) at .*/check_abi: \\1 has grown at its end/p" \
    "$dir/report"
say "whatever was built with $version runs with this"
