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
