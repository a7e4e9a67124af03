# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs acquire, extend, release --owner: a lock that no process holds.

server s
export DIBS_URL=$url

case_is 'it stays taken when acquire has ended'
ran 0 dibs acquire --lease 10m a
handle=$out
same stderr '' "$err"
same count 1 "$(redis s hget a "$handle")"
[ "$(redis s pttl a)" -gt 300000 ] || fail 'its lease is too short'
ran 75 dibs run -nq a -- true
ran 75 dibs acquire -n --lease 1m a
same handle '' "$out"
ran 9 dibs acquire -n -E 9 --lease 1m a
ran 75 dibs acquire -w 100ms --lease 1m a

case_is extend
ran 0 dibs extend --owner "$handle" --lease 20m a
same out '' "$out$err"
[ "$(redis s pttl a)" -gt 900000 ] || fail 'was not extended'
ran 0 dibs extend --owner "$handle" --lease 1m a
[ "$(redis s pttl a)" -gt 900000 ] || fail 'was shortened'
same count 1 "$(redis s hget a "$handle")"

case_is 'release, which wakes who waits'
"$DIBS" run -v a -- true 2>wait.txt &
waiter=$!
await said waiting wait.txt
ran 0 dibs release --owner "$handle" a
ended 0 $waiter
await free s a
ran 80 dibs release --owner "$handle" a
has stderr 'not held by that owner' "$err"
ran 80 dibs extend --owner "$handle" --lease 1m a

case_is 'the hold of another one is left alone'
ran 0 dibs acquire --lease 10m a
other=$out
ran 80 dibs release --owner "$handle" a
ran 80 dibs extend --owner "$handle" --lease 1h a
[ "$(redis s pttl a)" -le 600000 ] || fail 'was extended'
same count 1 "$(redis s hget a "$other")"
ran 0 dibs release --owner "$other" a
free s a || fail 'is still held'

for kind in --fair -s -x; do
    case_is "kind $kind"
    ran 0 dibs acquire $kind --lease 10m k
    handle=$out
    ran 0 dibs extend --owner "$handle" --lease 20m k
    : >wait.txt # not the last one's
    "$DIBS" run $([ $kind = --fair ] && echo --fair || echo -x) -v k -- true 2>wait.txt &
    waiter=$!
    await said waiting wait.txt
    ran 0 dibs release --owner "$handle" k
    ended 0 $waiter
    await free s k
done

case_is 'of several readers only that one goes'
ran 0 dibs acquire -s --lease 10m k
first=$out
ran 0 dibs acquire -s --lease 10m k
second=$out
ran 0 dibs release --owner "$first" k
held s k || fail 'the other one is gone'
ran 80 dibs release --owner "$first" k
ran 0 dibs release --owner "$second" k
free s k || fail 'is still held'

case_is multi
ran 0 dibs acquire --multi m1,m2 --lease 10m
handle=$out
held s m1 && held s m2 || fail 'not held'
ran 0 dibs extend --multi m2,m1 --owner "$handle" --lease 20m
[ "$(redis s pttl m1)" -gt 900000 ] || fail 'm1 was not extended'
[ "$(redis s pttl m2)" -gt 900000 ] || fail 'm2 was not extended'
redis s del m1 >/dev/null
ran 80 dibs extend --multi m1,m2 --owner "$handle" --lease 20m
ran 80 dibs release --multi m1,m2 --owner "$handle"
free s m2 || fail 'the rest was not released'

case_is quorum
server q1
one=$url
server q2
two=$url
server q3
third=$server_pid
quorum=$one,$two,$url
(
    unset DIBS_URL
    ran 0 dibs acquire --quorum "$quorum" --lease 10m q
    handle=$out
    kill -KILL $third
    ran 0 dibs extend --quorum "$url,$two,$one" --owner "$handle" --lease 20m q
    [ "$(redis q1 pttl q)" -gt 900000 ] || fail 'was not extended'
    ran 0 dibs release --quorum "$quorum" --owner "$handle" q
    free q1 q && free q2 q || fail 'still held'
    exit $failures
) || fail 'see above'

case_is json
ran 0 dibs acquire --json --lease 10m j
same name j "$(json name "$out")"
same lease 600000 "$(json lease_ms "$out")"
handle=$(json owner "$out")
ran 0 dibs extend --json --owner "$handle" --lease 20m j
same lease 1200000 "$(json lease_ms "$out")"
ran 0 dibs release --json --owner "$handle" j
same owner "$handle" "$(json owner "$out")"

case_is 'a handle that cannot be printed is no handle'
ran 70 sh -c '"$DIBS" acquire --lease 10m full >/dev/full'
has stderr 'releasing full' "$err"
free s full || fail 'is still held'

case_is 'inside of a run of the same lock'
ran 75 dibs run n -- "$DIBS" acquire --lease 1m n
has stderr 'around this command' "$err"
ran 0 dibs run n -- sh -c '"$DIBS" acquire --lease 1m n2 >handle.txt'
ran 0 dibs run n2x -- "$DIBS" release --owner "$(cat handle.txt)" n2

case_is 'no server'
ran 69 dibs release -u "unix://$T/none.sock" --owner "$handle" a
ran 69 dibs extend -u "unix://$T/none.sock" --owner "$handle" --lease 1m a
ran 69 dibs acquire -u "unix://$T/none.sock" --lease 1m a

case_is 'no answer to the release: nobody knows'
server t
ran 0 dibs acquire -u "$url" --lease 10m a
kill -STOP $server_pid
ran 69 timeout 60 "$DIBS" release -u "$url" --owner "$out" a
kill -CONT $server_pid

case_is 'what makes no sense'
ran 64 dibs acquire a
has stderr '--lease is missing' "$err"
ran 64 dibs acquire --lease 1m
ran 64 dibs acquire --lease 1ms a
ran 64 dibs acquire --lease 1m -s -x a
ran 64 dibs acquire --lease 1m 'a b'
ran 64 dibs extend --lease 1m a
has stderr '--owner is missing' "$err"
ran 64 dibs extend --owner "$handle" a
for bad in x '' , "$handle," "$handle x" fair: "fair:$handle:write" \
    "$handle,$handle:write"; do
    [ "$bad" = "$handle," ] || ran 64 dibs release --owner "$bad" a
done
ran 64 dibs release --owner "$handle" --for-pid $$ a
redis s set string x >/dev/null
ran 64 dibs release --owner "$handle" string
same 'it is left alone' x "$(redis s get string)"

# ---- a handle that nobody can read -----------------------------------------

case_is 'stdout is closed: nothing is taken'
redis s config resetstat >/dev/null
for closed in '>&-' '1</dev/null'; do
    ran 70 bash -c "exec \"\$DIBS\" acquire --lease 10m lost $closed"
    has stderr 'lost is not taken' "$err"
    free s lost || fail "$closed: it is held"
    ran 70 bash -c "exec \"\$DIBS\" acquire --json --lease 10m lost $closed"
done
redis s info commandstats >stats.txt
! grep -q 'cmdstat_eval' stats.txt || fail 'the server was asked'

case_is 'stdout is full: given back'
for words in lost '--json lost' '-s lost' '--multi lost,other'; do
    # shellcheck disable=SC2086
    ran 70 bash -c 'exec "$DIBS" acquire --lease 10m "$@" >/dev/full' a $words
    has stderr 'cannot write to stdout: No space left on device' "$err"
    free s lost || fail "$words: it is held"
done
ran 0 dibs acquire --lease 10m lost
ran 0 dibs release --owner "$out" lost
