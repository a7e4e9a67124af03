# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# cli/demo.sh, the play that "make demo" shows: it comes to its end, tells the
# truth, and leaves nothing, also when it is interrupted.

demo=$HERE/../../cli/demo.sh
left() {
    local dir
    ls -d "$T"/dibs-demo.* 2>/dev/null
    for dir in /proc/[0-9]*; do
        grep -qs "dibs-demo\\." "$dir/environ" "$dir/cmdline" 2>/dev/null &&
            grep -qsF "$T" "$dir/environ" "$dir/cmdline" &&
            [ "$(state "${dir#/proc/}")" != Z ] && echo "${dir#/proc/}"
    done
    return 0
}

case_is 'from beginning to end'
ran 0 "$demo" "$DIBS"
same stderr '' "$err"
has stdout 'Her command died with her' "$out"
has stdout 'her guard gave the lock back' "$out"
has stdout 'Her exit code is 80' "$out"
has stdout 'At most 3 at a time' "$out"
has stdout 'The store took the page of bob' "$out"
has stdout 'The store refused the page of ann: its token is older' "$out"
has stdout 'locks:   0' "$out"
has stdout 'stopped process' "$out"
same left '' "$(left)"

case_is interrupted
$CC -std=c11 -o pty "$HERE/pty.c" || fail 'cannot build pty'
printf 'expect 2. Ann\nsend \\003\n' >steps.txt
TERM=xterm ran 130 ./pty steps.txt "$demo" "$DIBS"
same left '' "$(left)"

case_is 'without a dibs'
ran 1 "$demo" "$T/none"
