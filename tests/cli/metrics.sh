# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs metrics: figures in the text format of Prometheus.

server s
export DIBS_URL=$url

x=00000000-0000-4000-8000-000000000001

# The text format, strictly: HELP and TYPE before the samples of each name, each
# name once, no series twice, names, labels and values as they must be.
strict() { # FILE
    awk '
        function bad(why) { print FILENAME ":" FNR ": " why ": " $0; wrong = 1 }
        /^# HELP [a-zA-Z_:][a-zA-Z0-9_:]* [^ ]/ {
            if ($3 in helped) bad("HELP again")
            helped[$3] = 1; next
        }
        /^# TYPE [a-zA-Z_:][a-zA-Z0-9_:]* gauge$/ {
            if (!($3 in helped)) bad("no HELP")
            if ($3 in typed) bad("TYPE again")
            typed[$3] = 1; now = $3; next
        }
        /^[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-z_]+="[^"\\]*"\})? -?[0-9]+(\.[0-9]+)?$/ {
            name = $0; sub(/[{ ].*/, "", name)
            series = $0; sub(/ [^ ]*$/, "", series)
            if (name != now) bad("not behind its TYPE")
            if (series in seen) bad("twice")
            seen[series] = 1; samples++; next
        }
        { bad("not in the format") }
        END { if (samples == 0) bad("nothing"); exit wrong }' "$1"
}

# As Prometheus reads it, and as we do.
checked() { # FILE
    strict "$1" || fail "not in the format: $(cat "$1")"
    [ -n "$(tail -c 1 "$1")" ] && fail 'no newline at the end'
    if command -v promtool >/dev/null; then
        promtool check metrics <"$1" >prom.txt 2>&1 || fail "$(cat prom.txt)"
        same promtool '' "$(cat prom.txt)"
    fi
}

value() { # SERIES
    awk -v series="$1" 'index($0, series " ") == 1 { print $NF }' out.txt
}

case_is 'the checker finds mistakes'
printf '# HELP a b\n# TYPE a gauge\na 1\n' >good.txt
strict good.txt || fail 'good'
for wrong in 'a 1\n' '# HELP a b\n# TYPE a gauge\na x\n' \
    '# HELP a b\n# TYPE a gauge\na 1\na 2\n' '# HELP a b\n# TYPE a gauge\nb 1\n' \
    '# HELP a b\n# TYPE a gauge\na{b="c\n"} 1\n' '' \
    '# HELP a b\n# TYPE a gauge\na{b="c} 1\n'; do
    # shellcheck disable=SC2059
    printf "$wrong" >wrong.txt
    not strict wrong.txt >/dev/null || fail "passed: $wrong"
done

case_is 'no locks'
ran 0 dibs metrics
checked out.txt
same up 1 "$(value dibs_up)"
same locks 0 "$(value 'dibs_locks{kind="exclusive"}')"
same waiters 0 "$(value dibs_waiters)"
same stderr '' "$err"

case_is 'locks'
redis s hset a $x:1 1 >/dev/null
redis s hset b $x:1 1 >/dev/null
redis s pexpire b 3600000 >/dev/null
redis s hset r mode read $x:1 1 $x:2 1 >/dev/null
redis s pexpire r 7200000 >/dev/null
ran 0 dibs latch set l 2
ran 0 dibs sem set m 2
ran 0 dibs sem acquire --lease 1h m
"$DIBS" hold --no-stdin c >held.txt 2>&1 &
job=$!
await test -s held.txt
"$DIBS" run c -- true &
first=$!
waits() { [ "$("$DIBS" metrics | sed -n 's/^dibs_waiters //p')" = 1 ]; }
await waits
ran 0 dibs metrics
checked out.txt
same exclusive 3 "$(value 'dibs_locks{kind="exclusive"}')"
same read 1 "$(value 'dibs_locks{kind="read"}')"
same latch 1 "$(value 'dibs_locks{kind="latch"}')"
same semaphore 1 "$(value 'dibs_holders{kind="semaphore"}')"
same holders 2 "$(value 'dibs_holders{kind="read"}')"
same endless 1 "$(value dibs_locks_without_end)"
has oldest . "$(value dibs_oldest_holder_seconds)"
has shortest . "$(value dibs_shortest_lease_seconds)"
ran 0 dibs metrics 'b*'
checked out.txt
same pattern 1 "$(value 'dibs_locks{kind="exclusive"}')"
same endless 0 "$(value dibs_locks_without_end)"
kill $job
ended 0 $first

case_is "doctor's verdicts"
ran 0 dibs metrics
same problems 0 "$(value 'dibs_doctor_findings{verdict="problem"}')"
redis s config set maxmemory 100mb >/dev/null
redis s config set maxmemory-policy allkeys-lru >/dev/null
ran 0 dibs metrics
checked out.txt
same problem 1 "$(value 'dibs_doctor_findings{verdict="problem"}')"
same eviction 3 "$(value 'dibs_doctor_verdict{check="eviction"}')"
redis s config set maxmemory-policy noeviction >/dev/null

case_is 'no names in it'
redis s hset $'evil"} 1\n\e[31m' $x:1 1 >/dev/null
ran 0 dibs metrics
checked out.txt
not grep -q evil out.txt || fail 'a name'

case_is 'without rights'
redis s acl setuser mute on '>pw' '~*' '&*' +@all -pubsub -client >/dev/null
DIBS_PASSWORD=pw ran 0 dibs -u "unix://mute@$T/s.sock" metrics
checked out.txt
same 'not known' '' "$(value dibs_waiters)"
redis s acl setuser mute -scan >/dev/null
DIBS_PASSWORD=pw ran 77 dibs -u "unix://mute@$T/s.sock" metrics
has stderr NOPERM "$err"

case_is 'no server'
ran 69 dibs -u "unix://$T/none.sock" metrics
checked out.txt
same up 0 "$(value dibs_up)"
unset DIBS_URL
ran 69 dibs metrics
checked out.txt
same up 0 "$(value dibs_up)"

# ---- dibs_up is 0, and why -------------------------------------------------

down() { # CODE REASON WORDS...
    local want=$1 reason=$2
    shift 2
    case_is "down: $reason"
    ran "$want" dibs metrics "$@"
    checked out.txt
    same up 0 "$(value dibs_up)"
    same reason 1 "$(value "dibs_down_reason{reason=\"$reason\"}")"
    has stderr dibs: "$err"
    not grep -q '^dibs_locks' out.txt || fail 'figures'
}
export DIBS_PASSWORD=wrong
down 77 password -u "unix://mute@$T/s.sock"
same server 1 "$(value "dibs_server_info{server=\"unix://mute@$T/s.sock\"}")"
export DIBS_PASSWORD=pw
down 77 noperm -u "unix://mute@$T/s.sock"
unset DIBS_PASSWORD
down 69 no_answer -u "unix://$T/none.sock"
down 69 no_answer
down 64 usage --url-file "$T/none.url"
: >empty.url
down 64 usage --url-file empty.url
kill -STOP $server_pid
down 69 no_answer -u "$url"
kill -CONT $server_pid

case_is 'up: no reason'
DIBS_URL="unix://default:secret@$T/s.sock" ran 0 dibs metrics
not grep -q secret out.txt || fail 'a password'
ran 0 dibs metrics -u "$url"
checked out.txt
same up 1 "$(value dibs_up)"
same server 1 "$(value "dibs_server_info{server=\"$url\"}")"
not grep -q dibs_down_reason out.txt || fail 'a reason'
