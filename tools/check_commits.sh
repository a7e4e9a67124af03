#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_commits.sh: a commit's subject has at most 60 characters.
#
# It looks at all commits that have this file in their history, except merges. A
# tree without a history, as from a tarball, passes.
set -eu

cd "$(dirname "$0")/.."
git rev-parse --git-dir >/dev/null 2>&1 || exit 0
first=$(git log --diff-filter=A --format=%H -- tools/check_commits.sh | tail -n 1)
[ -n "$first" ] || exit 0
git log --no-merges --ancestry-path --format='%h %s' "$first..HEAD" | awk '
    { n++ }
    length($0) - length($1) - 1 > 60 { bad++; print "too long: " $0 }
    END { print "check_commits: " n + 0 " subjects, " bad + 0 " too long"
          exit bad > 0 }'
