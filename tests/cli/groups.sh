# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Several locks at once: --multi and --quorum.

server a
first=$url
server b
second=$url
b_pid=$server_pid
server c
third=$url
c_pid=$server_pid
all=$first,$second,$third

case_is 'all or none'
export DIBS_URL=$first
ran 0 dibs run --multi x,y,z -- sh -c 'echo "$DIBS_NAME"'
same stdout x,y,z "$out"
mkfifo in
"$DIBS" hold y <in >held.txt 2>/dev/null 8>&- &
job=$!
exec 8>in
await test -s held.txt
ran 75 dibs run -n --multi x,y,z -- true
has stderr "x,y,z is taken: y is held by $(cat held.txt)" "$err"
free a x || fail 'x is held'
free a z || fail 'z is held'
ran 75 dibs run -v -w 200ms --multi z,y,x -- true
has stderr 'held by somebody else' "$err"
ran 75 dibs run -n --multi x,y --status-fd 3 -- true 3>status
grep -q '"members":\[{"name":"x",.*"verdict":"not asked"},{"name":"y",' status ||
    fail "status: $(cat status)"
exec 8>&-
ended 0 $job

case_is 'kinds of several'
ran 0 dibs run --fair --multi f,g -- true
ran 0 dibs run -s --multi r,s -- "$DIBS" run -s -n --multi s,t -- true
ran 0 dibs run -x --multi r,s -- true

case_is 'several, nested'
ran 0 dibs run --multi x,y -- "$DIBS" run -n --multi y,x -- echo in
same stdout in "$out"
ran 0 dibs run --multi x,y -- "$DIBS" run -n --multi y,z -- echo in
same stdout in "$out"
ran 0 dibs run y -- "$DIBS" run -n --multi x,y -- "$DIBS" run -n y -- echo in
same stdout in "$out"

case_is 'what is refused'
ran 64 dibs run --multi x,,y -- true
has stderr "the name '' is empty" "$err"
ran 64 dibs run --multi x,y,x -- true
has stderr "'x' twice" "$err"
ran 64 dibs run --multi x,y z -- true
has stderr "unexpected word 'z'" "$err"
ran 64 dibs run --multi 'x,a b' -- true
has stderr 'has a space' "$err"
ran 64 dibs run --multi x,y --quorum "$all" -- true
has stderr 'cannot be used together' "$err"
ran 64 dibs run -u "$first" --quorum "$all" q -- true
has stderr 'one too many' "$err"
ran 64 dibs run --quorum "$first,$second" q -- true
has stderr '2 addresses given' "$err"
ran 64 dibs run --quorum "$first,$second,$first" q -- true
has stderr 'are the same server' "$err"
ran 64 dibs run --quorum "$first,redis://u:pw@b,$third" q -- true
has stderr 'can be seen by everybody' "$err"
ran 64 dibs run --quorum "$first,redis://,$third" q -- true
has stderr 'is not the address' "$err"

case_is 'a majority'
ran 0 dibs run --quorum "$all" q -- sh -c 'echo "$DIBS_OWNERS" | wc -w'
[ "$out" -ge 2 ] || fail "owners: $out"
ran 0 dibs run --quorum "$all" q -- "$DIBS" run --quorum "$all" -n q -- echo in
same stdout in "$out"
for s in a b c; do
    free $s q || fail "$s: q is held"
done

case_is 'one of three is gone'
kill -9 "$b_pid"
await dead "$b_pid"
ran 0 dibs run --quorum "$all" q -- echo fine
same stdout fine "$out"
ran 0 dibs run -v --quorum "$all" q -- true
has stderr 'taken' "$err"

case_is 'two of three are gone'
kill -9 "$c_pid"
await dead "$c_pid"
ran 69 dibs run -w 1s --quorum "$all" q -- true
has stderr "cannot take 'q'" "$err"
free a q || fail 'a: q is held'

finish
