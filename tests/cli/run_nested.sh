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

# ---- the outer hold ends first -----------------------------------------

mkfifo go
# The outer command starts an inner run in the background and ends when it is
# told. With --foreground the outer dibs does not wait for the inner one.
cat >inner.sh <<'END'
"$DIBS" run --status-fd 9 "$@" 9>status.txt 2>err.txt
echo $? >code.txt
END
cat >outer.sh <<'END'
bash inner.sh "$@" &
read -r _ <go
END
cat >work.sh <<'END'
trap 'echo TERM >>heard.txt; exit 5' TERM
echo ready >ready.txt
while [ ! -e end ]; do sleep 0.02; done
END
start_pair() { # OUTER-WORDS... -- INNER-WORDS...
    local words=()
    while [ "$1" != -- ]; do
        words+=("$1")
        shift
    done
    shift
    rm -f ready.txt code.txt heard.txt end status.txt
    "$DIBS" run --foreground "${words[@]}" -- bash outer.sh "$@" 2>/dev/null &
    job=$!
    await test -s ready.txt
}
inner_over() { # CODE CAUSE LOCK
    await test -s code.txt
    same code "$1" "$(cat code.txt)"
    status=$(cat status.txt)
    same cause "$2" "$(json cause "$status")"
    same lock "$3" "$(json lock "$status")"
}

case_is 'the outer one ends: the inner command is stopped'
start_pair d -- d -- bash work.sh
echo on >go
ended 0 $job
inner_over 80 lost lost
same heard TERM "$(cat heard.txt)"
same stderr 'dibs: lost d: the outer dibs run has ended; stopping the command' \
    "$(head -n 1 err.txt)"

case_is 'the outer one ends: it keeps the lock until the inner command is gone'
cat >slow.sh <<'END'
trap 'echo TERM >heard.txt; while [ ! -e end ]; do sleep 0.02; done; exit 5' TERM
echo ready >ready.txt
while :; do sleep 0.02; done
END
start_pair d -- -k 1h d -- bash slow.sh
echo on >go
await test -s heard.txt
held s d || fail 'd was released while the inner command runs'
alive $job || fail 'the outer one did not wait'
ran 75 dibs run -nq d -- true
: >end
ended 0 $job
inner_over 80 lost lost
free s d || fail 'd is still held'

case_is 'the outer one ends: a signal ends its wait for the inner one'
start_pair d -- -k 1h d -- bash slow.sh
echo on >go
await test -s heard.txt
kill -TERM $job
ended 0 $job
free s d || fail 'd is still held'
: >end
inner_over 80 lost lost

case_is 'the outer one ends: the inner one waits for another lock'
redis s hset f 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1 >/dev/null
"$DIBS" run --foreground d -- bash -c \
    '{ "$DIBS" run -v --multi d,f -- true 2>err.txt; echo $? >code.txt; } &
     read -r _ <go' 2>/dev/null &
job=$!
rm -f code.txt
await said 'waiting for d,f' err.txt
echo on >go
ended 0 $job
free s d || fail 'd is still held'
redis s del f >/dev/null
redis s publish 'redisson_lock__channel:{f}' 0 >/dev/null
await test -s code.txt
same code 80 "$(cat code.txt)"
has stderr 'nothing was started' "$(cat err.txt)"
free s f || fail 'f is still held'

case_is 'the outer one ends: --on-lost warn'
start_pair d -- --on-lost warn d -- bash work.sh
echo on >go
ended 0 $job
await said 'the command runs on' err.txt
: >end
inner_over 81 lost-before-end lost

case_is 'the outer one loses it'
start_pair --lease 10s --on-lost warn d -- d -- bash work.sh
redis s del d >/dev/null
inner_over 80 lost lost
same stderr 'dibs: lost d: the outer dibs run lost it; stopping the command' \
    "$(head -n 1 err.txt)"
[ ! -e heard.txt ] || fail 'TERM, though the lock is gone already'
echo on >go
ended 81 $job

case_is 'the outer one is killed'
start_pair d -- d -- bash work.sh
kill -KILL $job
ended 137 $job
inner_over 80 lost lost
redis s del d >/dev/null

case_is 'it is the lock in question that counts: another one is lost'
start_pair d -- --on-lost warn d -- "$DIBS" run --lease 10s --on-lost warn e -- \
    sh -c '"$DIBS" run d -- bash work.sh; echo $? >deep.txt'
redis s del e >/dev/null
await said 'lost e' err.txt
: >end
inner_over 81 exit outer
same 'the inner one of d' 0 "$(cat deep.txt)"
echo on >go
ended 0 $job

case_is 'it is the lock in question that counts: through another one'
start_pair d -- --on-lost warn d -- "$DIBS" run e -- \
    sh -c '"$DIBS" run d -- bash work.sh; echo $? >deep.txt'
echo on >go
ended 0 $job
await test -s code.txt
same 'the inner one of d' 80 "$(cat deep.txt)"
same heard TERM "$(cat heard.txt)"

case_is 'a part of --multi is the outer one'"'"'s'
start_pair d -- --multi d,f -- bash work.sh
held s f || fail 'f is not held'
echo on >go
ended 0 $job
await test -s code.txt
same code 80 "$(cat code.txt)"
free s f || fail 'f is still held'

case_is 'the word is left for others to read'
cat >reads.sh <<'END'
echo ready >ready.txt
read -r what <&$DIBS_LOST_FD
echo "$what" >heard.txt
while [ ! -e end ]; do sleep 0.02; done
END
start_pair --lease 10s --on-lost warn d -- --on-lost warn d -- bash reads.sh
redis s del d >/dev/null
await said 'the command runs on' err.txt
await test -s heard.txt
: >end
inner_over 81 lost-before-end lost
same heard lost "$(cat heard.txt)"
echo on >go
ended 81 $job

case_is 'hold inside run'
rm -f code.txt
mkfifo keep
exec 8<>keep
"$DIBS" run --foreground d -- bash -c \
    '{ "$DIBS" hold d <keep >owner.txt 2>err.txt; echo $? >code.txt; } &
     read -r _ <go' &
job=$!
await test -s owner.txt
echo on >go
ended 0 $job
await test -s code.txt
same code 80 "$(cat code.txt)"
has stderr 'lost d: the outer dibs run has ended' "$(cat err.txt)"
exec 8>&-

case_is 'another file has the number of its descriptor'
ran 4 dibs run d -- bash -c \
    'eval "exec $DIBS_LOST_FD< <(:)"; "$DIBS" run d -- sh -c "sleep 0.1; exit 4"'

case_is 'an outer one of dibs 0.1: it has no DIBS_LOST_FDS'
rm -f code.txt ready.txt end
"$DIBS" run --foreground d -- env -u DIBS_LOST_FDS bash outer.sh d -- bash work.sh &
job=$!
await test -s ready.txt
echo on >go
ended 0 $job
inner_over 80 lost lost

case_is 'how long it waited, and how long it was held'
from=$(date +%s%3N)
ran 0 dibs run d -- "$DIBS" run --status-fd 9 d -- sleep 1 9>status.txt
all=$(($(date +%s%3N) - from))
status=$(cat status.txt)
[ "$(json held_ms "$status")" -ge 1000 ] || fail "held: $status"
[ $(($(json waited_ms "$status") + $(json held_ms "$status"))) -le $((all + 2)) ] ||
    fail "waited: $status, and all took $all ms"

case_is 'the descriptor was closed: fine, for the outer one waits'
ran 4 dibs run d -- bash -c \
    'eval "exec $DIBS_LOST_FD<&-"; "$DIBS" run d -- sh -c "exit 4"'
case_is 'the descriptor was closed, and the outer one does not wait'
ran 64 dibs run --foreground d -- bash -c \
    'eval "exec $DIBS_LOST_FD<&-"; "$DIBS" run d -- echo ran'
same stdout '' "$out"
has stderr 'leave it open' "$err"
ran 64 dibs run --foreground d -- bash -c \
    'eval "exec $DIBS_LOST_FD< <(:)"; "$DIBS" hold d </dev/null'
