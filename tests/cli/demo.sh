# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# examples/demo.sh, the play that "make demo" shows: it comes to its end, tells the
# truth, and leaves nothing, also when it is interrupted.

demo=$HERE/../../examples/demo.sh
left() {
    local pid
    ls -d "$TMPDIR"/dibs-demo.* 2>/dev/null
    for pid in $(grep -slF "$TMPDIR/dibs-demo." /proc/[0-9]*/environ \
        /proc/[0-9]*/cmdline | cut -d / -f 3 | sort -u); do
        # Not grep itself, which is gone.
        dead "$pid" || echo "$pid"
    done
    return 0
}

interrupted() {
    case_is interrupted
    export TMPDIR=$PWD
    $CC -std=c11 -o pty "$HERE/pty.c" || fail 'cannot build pty'
    printf 'expect 2. Ann\nsend \\003\n' >steps.txt
    TERM=xterm ran 130 ./pty steps.txt "$demo" "$DIBS"
    same left '' "$(left)"
}
beside interrupted interrupted

case_is 'from beginning to end'
LC_ALL=C.UTF-8 ran 0 "$demo" "$DIBS"
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

# The bars differ from run to run; all else is there to the letter.
case_is 'README: what the demo shows'
. "$HERE/lib_recipes.sh"
recipes
for block in blocks/*.demo; do
    grep -v '^  [a-z]* *[·█✗]' "$block" | grep . >lines
    while IFS= read -r line; do
        has stdout "$line" "$out"
    done <lines
    [ -s lines ] || fail 'nothing to compare'
done

case_is 'without a dibs'
ran 1 "$demo" "$T/none"
