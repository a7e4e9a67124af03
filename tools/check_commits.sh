#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check_commits.sh: a commit's subject has at most 60 characters.
#
# All commits since the one that brought this file are looked at, except merges.
# A tree without a history, as a tarball has it, has nothing to look at.
set -eu

cd "$(dirname "$0")/.."
git rev-parse --git-dir >/dev/null 2>&1 || exit 0
first=$(git log --diff-filter=A --format=%H -- tools/check_commits.sh | tail -n 1)
[ -n "$first" ] || exit 0
git log --no-merges --format='%h %s' "$first^..HEAD" | awk '
    { n++ }
    length($0) - length($1) - 1 > 60 { bad++; print "too long: " $0 }
    END { print "check_commits: " n " subjects, " bad + 0 " too long"
          exit bad > 0 }'
