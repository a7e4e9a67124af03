# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# lib.sh - what the tests of the command share. They run in $T, a folder of
# their own, and call the command as "dibs".
#
# Nothing here sleeps to let things settle: await waits for a condition, and
# gives up after a time that is only there to end a hang.

cd "$T" || exit 1
failures=0
case_name=
besides=()

dibs() {
    "$DIBS" "$@"
}

# Says which case the next checks belong to.
case_is() {
    case_name=$*
}

fail() {
    echo "FAIL: $case_name: $*" >&2
    failures=$((failures + 1))
}

finish() {
    join
    [ $failures -eq 0 ] || echo "$failures failed" >&2
    [ $failures -eq 0 ]
    exit
}

# beside NAME COMMAND...: runs the command, often a function with cases, at the
# same time as what follows, in the folder NAME below the current one.
beside() {
    (
        mkdir -p "$1" && cd "$1" || exit 1
        shift
        failures=0
        besides=()
        "$@"
        [ $failures -eq 0 ]
    ) &
    besides+=($!)
}

# Waits for all that run beside.
join() {
    local pid
    for pid in "${besides[@]}"; do
        wait "$pid" || failures=$((failures + 1))
    done
    besides=()
}

# same WHAT WANT GOT
same() {
    [ "$2" = "$3" ] || fail "$1: want '$2', got '$3'"
}

# has WHAT PART TEXT
has() {
    case $3 in
    *"$2"*) ;;
    *) fail "$1: no '$2' in '$3'" ;;
    esac
}

# ran CODE COMMAND...: runs it; its output is then in $out and $err.
ran() {
    local want=$1 code
    shift
    "$@" >out.txt 2>err.txt
    code=$?
    out=$(cat out.txt)
    err=$(cat err.txt)
    [ $code -eq "$want" ] || fail "$*: want code $want, got $code ($err)"
}

# ended CODE PID: waits for a background job.
ended() {
    local code
    wait "$2" 2>/dev/null
    code=$?
    [ $code -eq "$1" ] || fail "want code $1, got $code"
}

# await COMMAND...: until it succeeds.
await() {
    local i
    for ((i = 0; i < 3000 * DIBS_TEST_SLOWNESS; i++)); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.02
    done
    fail "never happened: $*"
    return 1
}

not() {
    ! "$@"
}

alive() {
    kill -0 "$1" 2>/dev/null
}

# The state of a process, as ps shows it; nothing when there is none.
state() {
    cut -d ' ' -f 3 "/proc/$1/stat" 2>/dev/null
}

# It does not run any more, though its parent may not have noticed.
dead() {
    case $(state "$1") in '' | Z | X) ;; *) return 1 ;; esac
}

stopped() {
    [ "$(state "$1")" = T ]
}

running() {
    case $(state "$1") in R | S | D) ;; *) return 1 ;; esac
}

# Is this text in the file?
said() {
    grep -qF -- "$1" "$2"
}

# json FIELD TEXT: the value of a field of flat JSON, strings without quotes.
json() {
    sed -n 's/.*"'"$1"'":\("\([^"]*\)"\|\([^,}]*\)\).*/\2\3/p' <<<"$2"
}

# ---- servers ------------------------------------------------------------

# server NAME [OPTION...]: starts $SERVER (redis-server) on $T/NAME.sock; its process
# is in $server_pid, its URL in $url.
server() {
    local name=$1
    shift
    "${SERVER:-redis-server}" --port 0 --unixsocket "$T/$name.sock" --save '' \
        --appendonly no --dir "$T" --logfile "$T/$name.log" "$@" &
    server_pid=$!
    disown $server_pid
    url=unix://$T/$name.sock
    await redis "$name" ping
}

# server_with_port NAME [OPTION...]: the same, also on 127.0.0.1:$port. Somebody
# else may have a port, or get it before us: another one then.
server_with_port() {
    local name=$1 i
    shift
    answers_or_dead() {
        redis "$name" ping | grep -q PONG || dead $server_pid
    }
    for ((i = 0; i < 50; i++)); do
        port=$((20000 + RANDOM % 12000))
        "${SERVER:-redis-server}" --port $port --bind 127.0.0.1 \
            --unixsocket "$T/$name.sock" --save '' --appendonly no --dir "$T" \
            --logfile "$T/$name.log" "$@" &
        server_pid=$!
        disown $server_pid
        url=unix://$T/$name.sock
        await answers_or_dead
        dead $server_pid || return 0
    done
    fail "no port for $name"
}

# redis NAME COMMAND...
redis() {
    local name=$1
    shift
    redis-cli -s "$T/$name.sock" "$@" 2>&1
}

# Is a lock of that name held there?
held() { # SERVER NAME
    [ "$(redis "$1" exists "$2")" = 1 ]
}

free() {
    [ "$(redis "$1" exists "$2")" = 0 ]
}
