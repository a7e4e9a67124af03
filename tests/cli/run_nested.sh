# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs run inside dibs run.

server s
export DIBS_URL=$url

case_is 'the same lock: no deadlock, the outer one keeps it'
ran 5 dibs run a -- "$DIBS" run --status-fd 9 a -- sh -c \
    'redis-cli -s s.sock hvals a; echo $DIBS_OWNER; exit 5' 9>status.txt
same 'held once' 1 "$(sed -n 1p out.txt)"
same lock outer "$(json lock "$(cat status.txt)")"
same owner "$(json owner "$(cat status.txt)")" "$(sed -n 2p out.txt)"
free s a || fail 'is still held'

case_is 'still held when the inner one is done'
ran 0 dibs run a -- sh -c '"$DIBS" run a -- true; redis-cli -s s.sock exists a'
same held 1 "$out"

case_is 'through another lock in between'
ran 0 dibs run a -- "$DIBS" run b -- "$DIBS" run -n a -- echo deep
same stdout deep "$out"

case_is 'the same owner, another lock: is taken and released'
ran 0 dibs run a -- sh -c \
    '"$DIBS" run b -- sh -c "redis-cli -s s.sock exists a b"
     redis-cli -s s.sock exists b'
same held '2 0' "$(tr '\n' ' ' <<<"$out" | sed 's/ $//')"

case_is 'what the environment claims is checked'
redis s hset a 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1 >/dev/null
DIBS_OWNER=me:1 DIBS_HELD=1 DIBS_NAME=a ran 75 dibs run -nq a -- true
DIBS_OWNER=other ran 75 dibs run -nq a -- true
DIBS_OWNERS='x:1 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:11 y:2' ran 75 dibs run -nq a -- true
redis s del a >/dev/null
DIBS_OWNER=1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 DIBS_NAME=a ran 0 dibs run -n --status-fd 9 a -- true \
    9>status.txt
same lock released "$(json lock "$(cat status.txt)")"

case_is 'signals reach the innermost command'
"$DIBS" run a -- "$DIBS" run a -- bash -c \
    'trap "echo TERM; exit 6" TERM; echo ready; while :; do sleep 0.05; done' \
    >job.txt 2>/dev/null &
job=$!
await said ready job.txt
kill -TERM $job
ended 6 $job
has stdout TERM "$(cat job.txt)"

case_is 'the outermost one is killed: all go'
"$DIBS" run a -- "$DIBS" run b -- sh -c 'echo $$ >pid; sleep 1000' \
    2>/dev/null &
job=$!
await test -s pid
kill -KILL $job
ended 137 $job
await dead "$(cat pid)"

case_is 'hold inside run'
ran 0 dibs run c -- "$DIBS" hold c </dev/null
case $out in
*-*:*) ;;
*) fail "no owner: '$out'" ;;
esac
