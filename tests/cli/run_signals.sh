# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Signals at every moment: before there is a connection, while waiting, while
# the command runs, while it is being stopped, while the lock is given back.

server s
export DIBS_URL=$url
pid=$server_pid

# ---- before there is a connection --------------------------------------

# Its second thread is there once signals are taken care of.
has_threads() { # PID
    [ "$(ls "/proc/$1/task" 2>/dev/null | wc -l)" -ge 2 ]
}

# Background jobs of a script ignore INT and QUIT, and dibs honors that; so
# these tests start it through a program that sets them back.
start() { # WORDS...: $job is dibs
    : >out.txt # here, so that nobody sees the last one's
    : >err.txt
    env --default-signal=INT,QUIT "$DIBS" run --log json -v --status-fd 9 "$@" \
        >out.txt 2>err.txt 9>status.txt &
    job=$!
}

cause() {
    json cause "$(cat status.txt)"
}

for sig in TERM INT HUP QUIT USR1 ALRM RTMIN+3; do
    case_is "$sig before the server answers"
    kill -STOP $pid # takes connections, never answers
    start a -- echo no
    await has_threads $job
    kill -s $sig $job
    ended $((128 + $(kill -l $sig))) $job
    same cause interrupted "$(cause)"
    same stdout '' "$(cat out.txt)"
    kill -CONT $pid
done

# ---- while waiting -----------------------------------------------------

mkfifo hold.fifo
"$DIBS" hold b <hold.fifo >hold.txt &
holder=$!
exec 8>hold.fifo
await test -s hold.txt

for sig in TERM INT HUP QUIT USR2; do
    case_is "$sig while waiting"
    start b -- echo no 8>&-
    await said '"event":"waiting"' err.txt
    kill -s $sig $job
    ended $((128 + $(kill -l $sig))) $job
    same cause interrupted "$(cause)"
    same lock not-taken "$(json lock "$(cat status.txt)")"
    same stdout '' "$(cat out.txt)"
    same holder "$(cat hold.txt)" "$(redis s hkeys b)"
done

case_is 'WINCH while waiting changes nothing; nor does what was ignored'
: >err.txt
(
    trap '' HUP
    exec "$DIBS" run -v --log json b -- sh -c 'kill -HUP $$; echo ran'
) >out.txt 2>err.txt 8>&- &
job=$!
await said '"event":"waiting"' err.txt
kill -WINCH $job
kill -HUP $job
exec 8>&-
ended 0 $holder
ended 0 $job
same 'ran, ignoring HUP' ran "$(cat out.txt)"

# ---- while the command runs --------------------------------------------

cat >catch.sh <<'END'
# Says which signals it gets; TERM ends it.
for s in HUP INT QUIT USR1 USR2 WINCH ALRM RTMIN RTMAX; do
    trap "echo $s" $s
done
trap 'echo TERM; exit 5' TERM
echo ready
while :; do sleep 0.05; done
END
case_is 'signals are passed on while the command runs'
start a -- bash catch.sh
await said ready out.txt
for sig in HUP INT QUIT USR1 USR2 WINCH ALRM RTMIN RTMAX; do
    kill -s $sig $job
    await said $sig out.txt
done
held s a || fail 'is not held any more'
kill -TERM $job
ended 5 $job
same cause exit "$(cause)"
free s a || fail 'is still held'

case_is 'the whole group gets them'
start a -- sh -c 'bash catch.sh & echo started; wait'
await said ready out.txt
kill -TERM $job
await said TERM out.txt
ended 143 $job
free s a || fail 'is still held'

case_is 'the command died of one'
start a -- sh -c 'echo ready; exec sleep 1000'
await said ready out.txt
kill -INT $job
ended 130 $job
same cause signal "$(cause)"

# ---- while it is being stopped -----------------------------------------

case_is 'a command that ignores TERM keeps its lock until it ends'
mkfifo go
start a -- bash -c 'trap "" TERM; echo ready; read -r x <go; echo "$x"; exit 3'
await said ready out.txt
kill -TERM $job
kill -TERM $job
held s a || fail 'is not held any more'
echo done >go
ended 3 $job
same output 'ready done' "$(tr '\n' ' ' <out.txt | sed 's/ $//')"

case_is 'a signal while it is being stopped is passed on, too'
# It must be that far before its time is over: if not, with more time.
told_or_dead() { said TERM out.txt || dead $job; }
for limit in 100ms 1s 10s; do
    start -t $limit -k 1h a -- bash -c \
        'trap "echo TERM" TERM; trap "echo USR1; exit 9" USR1; echo ready
         while :; do sleep 0.05; done'
    await told_or_dead
    ! said TERM out.txt || break
done
said TERM out.txt || fail 'it got no TERM'
held s a || fail 'is not held any more'
kill -USR1 $job
ended 124 $job
same cause max-run "$(cause)"
same exit 9 "$(json exit "$(cat status.txt)")"

# ---- while the lock is given back --------------------------------------

case_is 'a signal while nobody confirms the release'
start --lease 1h a -- bash -c "kill -STOP $pid"
await said '"event":"release"' err.txt
kill -TERM $job
ended 143 $job
same lock unconfirmed "$(json lock "$(cat status.txt)")"
same exit 0 "$(json exit "$(cat status.txt)")"
kill -CONT $pid
