# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# A value with a lock: run and hold --publish, who sees it, and how it ends.

server s
export DIBS_URL=$url
key='dibs_lock_value:{a}'

shows() { # LOCK VALUE
    dibs info "$1" | grep -qxF "value    $2"
}
no_value() {
    [ "$(redis s exists "$key")" = 0 ]
}
bad() { # OPTION...: refused, and nothing was run
    ran 64 dibs run "$@" -- touch ran
    [ ! -e ran ] || fail "ran: $*"
}

case_is 'run'
mkfifo go
"$DIBS" run --publish 'db1:8080, rack 7' a -- sh -c 'read x <go' &
pid=$!
await shows a 'db1:8080, rack 7'
ran 0 dibs info --json a
has json '"value":"db1:8080, rack 7"' "$out"
ran 75 dibs run -n --publish other a -- true
shows a 'db1:8080, rack 7' || fail 'one that did not get the lock changed it'
echo >go
ended 0 $pid
no_value || fail 'the value is left'
ran 0 dibs info a
same state "name     a
state    free" "$(head -n 2 <<<"$out")"

case_is 'without a value there is no key'
ran 0 dibs run a -- redis-cli -s "$T/s.sock" --raw keys '*'
same keys a "$out"

case_is 'hold'
for kind in '' --fair -x; do
    mkfifo in
    # shellcheck disable=SC2086 # no option is no word
    "$DIBS" hold $kind --publish here a <in >held.txt &
    pid=$!
    exec 5>in
    await shows a here
    exec 5>&-
    ended 0 $pid
    no_value || fail "the value is left: $kind"
    rm in
done

case_is 'nothing for a terminal'
"$DIBS" run --publish $'x\e[31m\ny' a -- sh -c 'read x <go' &
pid=$!
await shows a 'x\x1b[31m\ny'
! LC_ALL=C grep -q $'\e' <(dibs info a) || fail 'an escape'
echo >go
ended 0 $pid

case_is 'bad input'
bad --publish '' a
bad --publish x -s a
bad --publish x --multi a,b
bad --publish x --quorum unix:///a,unix:///b,unix:///c a
bad --publish "$(printf '%04097d' 0)" a
has message '4096' "$(cat err.txt)"
ran 0 dibs run --publish "$(printf '%04096d' 0)" a -- true

case_is 'lost'
"$DIBS" run --lease 10s --publish mine a -- sleep 1000 2>lost.txt &
pid=$!
await shows a mine
redis s del a >/dev/null
ended 80 $pid
await no_value

case_is 'force-unlock takes the value of the holder along'
for kind in '' -x; do
    owner=00000000-0000-4000-8000-000000000001:1
    if [ "$kind" ]; then
        redis s hset a mode write >/dev/null
        owner=$owner:write
    fi
    redis s hset a $owner 1 >/dev/null
    redis s set "$key" "$owner 5 here" >/dev/null
    shows a here || fail "not shown: $kind"
    ran 0 dibs force-unlock --yes a
    no_value || fail "the value is left: $kind"
done
redis s set "$key" "$owner 5 here" >/dev/null
redis s hset a 00000000-0000-4000-8000-000000000002:1 1 >/dev/null
ran 0 dibs force-unlock --yes a
! no_value || fail 'the value of somebody else is gone'
redis s del "$key" >/dev/null

case_is 'killed: what is left stands for nobody'
"$DIBS" run --publish dead a -- sleep 1000 2>/dev/null &
pid=$!
await shows a dead
left=$(redis s get "$key")
kill -KILL $pid
wait $pid 2>/dev/null
await free s a
redis s set "$key" "$left" >/dev/null
"$DIBS" run a -- sh -c 'read x <go' &
pid=$!
await held s a
ran 0 dibs info a
! grep -q '^value' out.txt || fail "an old value: $out"
echo >go
ended 0 $pid
redis s del "$key" >/dev/null

case_is 'refused: the lock is given back, and nothing is run'
redis s hset "$key" f v >/dev/null
"$DIBS" run --publish x a -- touch ran 2>err.txt
same code 64 $?
has message 'cannot publish the value of a' "$(cat err.txt)"
[ ! -e ran ] || fail 'it was run'
free s a || fail 'still held'
redis s del "$key" >/dev/null

case_is 'nested: the outer run has it'
ran 0 dibs run --publish outer a -- "$DIBS" run --publish inner a -- "$DIBS" info a
grep -qx 'value    outer' out.txt || fail "info: $out"
has warning 'nothing is published' "$err"

case_is 'the example: one leads, the other follows, and takes over'
leaderd=$(dirname "$DIBS")/../examples/leaderd
"$leaderd" "$url" one:1 0 >one.txt 2>&1 &
one=$!
await said 'leading at one:1' one.txt
"$leaderd" "$url" two:2 0 >two.txt 2>&1 &
two=$!
await said 'following one:1' two.txt
ran 0 dibs force-unlock --yes leaders
await said 'lost, stepping down' one.txt
leads_again() { grep -qx 'leading at .*' <(tail -n 1 one.txt two.txt); }
await leads_again
kill $one $two
wait $one $two 2>/dev/null

finish
