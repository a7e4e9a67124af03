# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# -n, -w and no limit at all, where it is not the lock that is waited for: a
# server that refuses, is not there yet, or is just being started.

# Each line of the file is there once.
no_line_twice() {
    sort "$1" | uniq -d >twice.txt
    same 'told more than once' '' "$(cat twice.txt)"
}

# ---- a replica ---------------------------------------------------------

server_with_port m --repl-diskless-sync-delay 0
replica_of_m() { # NAME
    replica=unix://$T/$1.sock
    server "$1" --replicaof 127.0.0.1 $port
    linked() { redis "$1" info replication | grep -q '^master_link_status:up'; }
    await linked "$1"
}
refusals() { # NAME
    redis "$1" info commandstats | grep -o 'evalsha:.*' |
        grep -o '\(rejected\|failed\)_calls=[0-9]*' |
        grep -o '[0-9]*$' | sort -n | tail -n 1
}
refused_often() { [ "$(refusals "$1")" -ge 3 ]; }

replica_of_m r
limited() { # LIMIT...
    case_is "a replica, $*"
    ran 69 dibs run "$@" -u "$replica" a -- echo no
    same stdout '' "$out"
    no_line_twice err.txt
    same last "dibs: cannot take 'a': $replica is a replica of 127.0.0.1:$port (READONLY); give the master's address" \
        "$(tail -n 1 err.txt)"
    [ "$*" != -n ] || same lines 1 "$(wc -l <err.txt)"
}
beside replica-n limited -n
beside replica-w limited -w 3s
beside replica-v limited -w 3s -v

unlimited() { # REPLICA OPTION...
    local name=$1
    shift
    case_is "a replica, no limit $*: quiet, and goes on when it is a master"
    replica_of_m "$name"
    "$DIBS" run "$@" -u "$replica" a -- echo ran >out.txt 2>err.txt &
    job=$!
    await refused_often "$name"
    [ -s err.txt ] || fail 'nothing was told'
    no_line_twice err.txt
    alive $job || fail 'it gave up'
    redis "$name" replicaof no one >/dev/null
    ended 0 $job
    same stdout ran "$(cat out.txt)"
}
beside unlimited unlimited quiet
beside unlimited-v unlimited verbose -v

# ---- a server that is not there yet ------------------------------------

not_there() {
    case_is '-w waits for the server, too'
    late=unix://$T/late.sock
    "$DIBS" run -w 1h -u "$late" a -- echo ran >out.txt 2>err.txt &
    job=$!
    await said 'trying again' err.txt
    has stderr "dibs: no answer from $late: No such file or directory; trying again for " \
        "$(cat err.txt)"
    server late
    ended 0 $job
    same stdout ran "$(cat out.txt)"
    same lines 1 "$(wc -l <err.txt)"

    case_is '-w: what the server cost is not there for the lock'
    kill -KILL $server_pid
    await dead $server_pid
    ran 69 dibs run -w 2s -u "$late" --status-fd 9 a -- echo no 9>status.txt
    same stdout '' "$out"
    has stderr "no answer from $late: Connection refused; trying again" "$err"
    same last "dibs: no answer from $late: Connection refused; is a server running there, and is this its address?" \
        "$(tail -n 1 err.txt)"
    same cause server "$(json cause "$(cat status.txt)")"

    case_is 'a signal ends it'
    "$DIBS" run -w 1h -u "$late" a -- echo no >out.txt 2>err.txt &
    job=$!
    await said 'trying again' err.txt
    kill -TERM $job
    ended 143 $job

    case_is '-n, and no limit: once'
    for limit in -n '-w 0' ''; do
        # shellcheck disable=SC2086
        ran 69 dibs run $limit -u "$late" a -- echo no
        same stderr "dibs: no answer from $late: Connection refused; is a server running there, and is this its address?" "$err"
    done

    case_is '-w: a refusal is not waited for'
    server p --requirepass sesame
    ran 77 dibs run -w 1h -u "$url" a -- echo no
}
beside not_there not_there

# ---- the private server is being started -------------------------------

dir=$XDG_RUNTIME_DIR/dibs
mkdir -m 700 "$dir"
mkfifo go
flock "$dir/start.lock" sh -c 'echo locked; read -r _ <go' >lock.txt &
locker=$!
await said locked lock.txt
not_done() { # LIMIT...
    case_is "another process starts it and does not get done, $*"
    ran 69 timeout -s KILL 60 "$DIBS" run "$@" a -- echo no
    same stdout '' "$out"
    same last "dibs: another process starts or stops the private redis-server and does not finish; it has locked $dir/start.lock" \
        "$(tail -n 1 err.txt)"
}
beside not_done-n not_done -n
beside not_done-w not_done -w 100ms

case_is 'no limit: waits, says why, and goes on'
"$DIBS" run a -- echo ran >out.txt 2>err.txt &
job=$!
await said "it has locked $dir/start.lock" err.txt
alive $job || fail 'it gave up'
join
echo on >go
ended 0 $locker
ended 0 $job
same stdout ran "$(cat out.txt)"
ran 0 dibs local stop

# ---- --server-wait ----------------------------------------------------------

case_is '--server-wait: for the server, not for the lock'
away=unix://$T/away.sock
for words in 'run -n' 'run' 'hold --no-stdin' 'acquire --lease 1m' 'acquire -w 1h --lease 1m'; do
    # shellcheck disable=SC2086
    ran 69 dibs $words --server-wait 1s -u "$away" a $([ "${words%% *}" != run ] || echo -- true)
    has stderr "no answer from $away: No such file or directory; trying again for " "$err"
    same stdout '' "$out"
done

case_is '--server-wait forever'
"$DIBS" run -n --server-wait forever -u "$away" a -- echo ran >out.txt 2>err.txt &
job=$!
await said 'trying again' err.txt
same stderr "dibs: no answer from $away: No such file or directory; trying again" "$(cat err.txt)"
"$DIBS" hold --for-pid $$ --server-wait forever -u "$away" held 2>hold.txt &
hold=$!
"$DIBS" wait --server-wait forever -u "$away" a 2>wait.txt &
wait=$!
"$DIBS" latch wait --server-wait forever -u "$away" a >/dev/null 2>latch.txt &
latch=$!
for file in hold wait latch; do
    await said 'trying again' $file.txt
done
server away
ended 0 $job
same stdout ran "$(cat out.txt)"
ended 0 $hold
held away held || fail 'it is not held'
ended 0 $wait
ended 0 $latch
ran 0 dibs release held

case_is '--server-wait: then -w begins'
kill -KILL $server_pid
await dead $server_pid
"$DIBS" run -w 1m --server-wait forever -u "$away" a -- echo ran >out.txt 2>err.txt &
job=$!
await said 'trying again' err.txt
server away
ended 0 $job
redis away hset a 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1 >/dev/null
ran 75 dibs run -w 100ms --server-wait forever -u "$away" a -- true

case_is '--server-wait: a signal ends it'
kill -KILL $server_pid
await dead $server_pid
"$DIBS" run --server-wait forever -u "$away" a -- true 2>err.txt &
job=$!
await said 'trying again' err.txt
kill -TERM $job
ended 143 $job

case_is '--server-wait: a new size of the terminal does not end it'
taken() { # SIGNAL PROCESS
    local waiting
    waiting=$(sed -n 's/^ShdPnd:\t//p' "/proc/$2/status" 2>/dev/null)
    [ $((0x${waiting:-0} >> ($(kill -l "$1") - 1) & 1)) -eq 0 ]
}
"$DIBS" sem acquire --lease 10s --server-wait forever -u "$away" s 2>err.txt &
job=$!
await said 'trying again' err.txt
for sig in WINCH CONT; do
    kill -$sig $job
    await taken $sig $job
done
not dead $job || fail 'it has ended'
kill -TERM $job
ended 143 $job
not said 'is a server running there' err.txt || fail 'it says more than once'

case_is '--server-wait, --release-wait, --ready: what is refused'
ran 64 dibs run --server-wait ever a -- true
has stderr "--server-wait: 'ever' is not a time" "$err"
ran 64 dibs run --server-wait -1s a -- true
ran 64 dibs run --server-wait -- true
ran 64 dibs info --server-wait 1s a
ran 64 dibs run --release-wait x a -- true
ran 64 dibs acquire --release-wait 1s --lease 1m a
ran 64 dibs run --ready soon a -- true
has stderr "--ready: 'soon' is neither held nor waiting" "$err"
ran 64 dibs run --ready waiting --pass-notify a -- true
has stderr '--ready has no effect with --pass-notify' "$err"
ran 64 dibs hold --ready waiting --for-pid $$ a

# ---- --release-wait -----------------------------------------------------------

case_is 'a server that is gone at the end: not for the whole lease'
for words in '--release-wait 0' '--release-wait 1s --status-fd 9'; do
    server end
    # shellcheck disable=SC2086
    ran 82 timeout -s KILL 60 "$DIBS" run --lease 1h $words -u "$url" a -- \
        sh -c "kill -KILL $server_pid" 9>status.txt
    has stderr 'the server did not confirm the release of a' "$err"
    await dead $server_pid
    rm -f end.sock
done
same lock unconfirmed "$(json lock "$(cat status.txt)")"
server end
mkfifo keep
"$DIBS" hold --lease 1h --release-wait 1s -u "$url" a <keep >held.txt 2>err.txt &
job=$!
exec 8>keep
await test -s held.txt
kill -KILL $server_pid
exec 8>&-
ended 82 $job
rm -f keep
