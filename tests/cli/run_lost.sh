# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# The lock is lost: by a key that goes away, a server that is silent, gone, or
# back without its memory, a lease that is not renewed. What counts is that the
# command is dead before anybody else can have the lock, and what we say.

server s
export DIBS_URL=$url

start() { # WORDS...
    rm -f status.txt
    : >out.txt # here, so that nobody sees the last one's
    : >err.txt
    "$DIBS" run --status-fd 9 "$@" >out.txt 2>err.txt 9>status.txt &
    job=$!
}

# over CODE CAUSE EXIT SIGNAL LOCK
over() {
    ended "$1" $job
    local status
    status=$(cat status.txt)
    same cause "$2" "$(json cause "$status")"
    same exit "$3" "$(json exit "$status")"
    same signal "$4" "$(json signal "$status")"
    same lock "$5" "$(json lock "$status")"
}

cat >work.sh <<'END'
# Works until it is told to end, and says so.
trap 'echo TERM; exit 5' TERM
trap 'echo USR1; exit 6' USR1
echo ready
while :; do sleep 0.05; done
END
cat >stubborn.sh <<'END'
trap '' TERM USR1
echo ready
while :; do sleep 0.05; done
END
gone_text='the server says that we do not hold it any more; stopping the command'

# ---- renewals fail -----------------------------------------------------

# What takes seconds runs beside the rest. Each has a server of its own, or a
# lock that no other case has.

# The witness runs inside the command and asks for the key all the time: it
# must never see it gone, for then another could have the lock.
cat >witness.sh <<'END'
trap '' TERM
echo ready
redis-cli -s "$T/$1.sock" --user root --pass root --no-auth-warning \
    -r -1 -i 0.005 exists "$2" | while read -r n; do
    [ "$n" != 0 ] || echo "alone no more" >>violation.txt
done
END
witness() { # SERVER LOCK OPTION...: starts a run of the lock with a witness
    local server=$1 lock=$2
    shift 2
    start "$@" -k 300ms "$lock" -- bash "$T/witness.sh" "$server" "$lock"
}
no_violation() {
    [ ! -e violation.txt ] || fail 'the command outlived its lock'
}
root() { # SERVER
    redis "$1" acl setuser root on '>root' '~*' '&*' +@all >/dev/null
}

renewals_refused() {
    case_is 'renewals are refused: dead before the lease ends'
    server refuses
    root refuses
    DIBS_URL=$url
    witness refuses w --lease 4s
    await said ready out.txt
    redis refuses acl setuser default -evalsha -eval >/dev/null
    over 80 lost null 9 unconfirmed
    no_violation
}

no_renew() {
    case_is '--no-renew: dead before the lease ends'
    witness s w1 --lease 4s --no-renew
    over 80 lost null 9 released
    has stderr 'its lease ends and is not renewed' "$(cat err.txt)"
    no_violation
}

max_hold() {
    case_is '--max-hold: dead before the lock ends'
    witness s w2 --lease 4s --max-hold 5s
    over 80 lost null 9 released
    has stderr '--max-hold is reached' "$(cat err.txt)"
    no_violation
}

max_hold_short() {
    case_is '--max-hold shorter than the lease'
    witness s w3 --max-hold 3s
    over 80 lost null 9 released
    has stderr '--max-hold is reached' "$(cat err.txt)"
    no_violation
}

case_is '--max-hold, and done before it'
start --max-hold 1h w -- sh -c 'exit 2'
over 2 exit 2 null released

beside renewals_refused renewals_refused
beside no_renew no_renew
beside max_hold max_hold
beside max_hold_short max_hold_short

# ---- the server --------------------------------------------------------

silent() {
    case_is 'server silent'
    server silent
    DIBS_URL=$url
    start --lease 4s -k 2s a -- bash "$T/work.sh"
    await said ready out.txt
    kill -STOP $server_pid
    over 80 lost 5 null unconfirmed
    has stderr 'it could not be renewed' "$(cat err.txt)"
    kill -CONT $server_pid
    await free silent a
}

silent_for_a_while() {
    case_is 'server silent for a while only'
    server while
    DIBS_URL=$url
    mkfifo go
    start --lease 30s a -- bash -c 'echo ready; read -r x <go'
    await said ready out.txt
    kill -STOP $server_pid
    await stopped $server_pid
    kill -CONT $server_pid
    echo on >go
    over 0 exit 0 null released
}

no_memory() {
    case_is 'server back without its memory'
    server forgets
    DIBS_URL=$url
    start --lease 10s a -- bash "$T/work.sh"
    await said ready out.txt
    kill -KILL $server_pid
    await dead $server_pid
    server forgets
    over 80 lost 5 null lost
}

server_gone() {
    case_is 'server gone'
    server gone
    DIBS_URL=$url
    start --lease 4s -k 2s a -- bash "$T/work.sh"
    await said ready out.txt
    kill -KILL $server_pid
    over 80 lost 5 null unconfirmed
    ran 69 dibs run a -- true
    same stderr "dibs: no answer from $url: Connection refused; is a server running there, and is this its address?" "$err"
}

beside silent silent
beside silent_for_a_while silent_for_a_while
beside no_memory no_memory
beside server_gone server_gone

# ---- release -----------------------------------------------------------

unconfirmed() { # CODE CAUSE EXIT: of a command that ends with EXIT
    server "unconfirmed$3"
    DIBS_URL=$url
    start --lease 1s a -- bash -c "kill -STOP $server_pid; exit $3"
    over "$1" "$2" "$3" null unconfirmed
}

not_confirmed() {
    case_is 'a release that nobody confirms is no success'
    unconfirmed 82 release-unconfirmed 0
    has stderr 'did not confirm' "$(cat err.txt)"
}

command_failed() {
    case_is 'a command that failed says so itself'
    unconfirmed 9 exit 9
}

confirmed_late() {
    case_is 'a release that is confirmed late is one'
    server late
    DIBS_URL=$url
    start --lease 30s a -- bash -c "kill -STOP $server_pid"
    await said 'does not confirm' err.txt
    kill -CONT $server_pid
    over 0 exit 0 null released
    free late a || fail 'is still held'
}

back_while_waiting() {
    case_is 'server gone while waiting, and back'
    server back
    DIBS_URL=$url
    redis back hset b 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1 >/dev/null
    start b -- echo ran
    listens() { redis back pubsub channels | grep -qF 'channel:{b}'; }
    await listens
    kill -KILL $server_pid
    await dead $server_pid
    server back
    over 0 exit 0 null released
    same stdout ran "$(cat out.txt)"
}

beside not_confirmed not_confirmed
beside command_failed command_failed
beside confirmed_late confirmed_late
beside back_while_waiting back_while_waiting

# ---- the key goes away under the holder --------------------------------

case_is 'key deleted'
start --lease 10s a -- bash work.sh
await said ready out.txt
redis s del a >/dev/null
over 80 lost 5 null lost
has stdout TERM "$(cat out.txt)"
has stderr "dibs: lost a: $gone_text" "$(cat err.txt)"

case_is 'key deleted, a command that ignores TERM'
start --lease 10s -k 100ms a -- bash stubborn.sh
await said ready out.txt
redis s del a >/dev/null
over 80 lost null 9 lost

case_is 'force-unlock, and somebody else has it meanwhile'
start --lease 10s a -- bash work.sh
await said ready out.txt
dibs force-unlock --yes a >forced.txt || fail 'force-unlock'
has force-unlock 'is free now' "$(cat forced.txt)"
"$DIBS" run b -- true
over 80 lost 5 null lost

case_is '--on-lost kill'
start --lease 10s --on-lost kill a -- bash work.sh
await said ready out.txt
redis s del a >/dev/null
over 80 lost null 9 lost

case_is '--on-lost USR1'
start --lease 10s --on-lost USR1 a -- bash work.sh
await said ready out.txt
redis s del a >/dev/null
over 80 lost 6 null lost
has stdout USR1 "$(cat out.txt)"

case_is '--on-lost exec: the hook can end the command itself'
start --lease 10s --on-lost 'exec:echo hook $DIBS_NAME >hook.txt; kill -USR1 -$DIBS_PID' \
    a -- bash work.sh
await said ready out.txt
redis s del a >/dev/null
over 80 lost 6 null lost
await test -s hook.txt
same hook 'hook a' "$(cat hook.txt)"

case_is '--on-lost exec: if it does not, KILL does'
start --lease 10s -k 100ms --on-lost exec:true a -- bash work.sh
await said ready out.txt
redis s del a >/dev/null
over 80 lost null 9 lost

case_is '--on-lost warn: the command runs on'
mkfifo go
start --lease 10s --on-lost warn a -- bash -c 'echo ready; read -r x <go; exit 0'
await said ready out.txt
redis s del a >/dev/null
await said 'lost a' err.txt
echo go on >go
over 81 lost-before-end 0 null lost
has stderr 'the command runs on' "$(cat err.txt)"

case_is 'DIBS_LOST_FD'
start --lease 10s --on-lost warn a -- bash -c \
    'echo ready; read -r what <&$DIBS_LOST_FD; echo "fd: $what"'
await said ready out.txt
redis s del a >/dev/null
over 81 lost-before-end 0 null lost
has stdout 'fd: lost' "$(cat out.txt)"

case_is 'lost, and the command is done before anybody noticed'
start a -- bash -c "redis-cli -s '$T/s.sock' del a >/dev/null"
over 81 lost-before-end 0 null lost
has stderr 'before the command ended' "$(cat err.txt)"

case_is 'somebody else has it when the command ends'
start a -- bash -c "redis-cli -s '$T/s.sock' del a >/dev/null
    redis-cli -s '$T/s.sock' hset a 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1 >/dev/null; exit 3"
over 81 lost-before-end 3 null lost
same 'the other one keeps it' 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 "$(redis s hkeys a)"
redis s del a >/dev/null
