# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs acl: a user with exactly these rights can use every kind, and is refused
# nothing; with one right less, something is.

server s
all=$url
socket=$T/s.sock

# user KINDS [MORE...]: the user dibs has these rights, and no others.
user() {
    local kinds=$1 line
    shift
    redis s acl deluser dibs >/dev/null
    line=$("$DIBS" acl --kinds "$kinds" 'jobs:*' | sed 's/<PASSWORD>/>sesame/')
    # shellcheck disable=SC2086
    same setuser OK "$(set -f && redis s $line "$@")"
    redis s acl log reset >/dev/null
    redis s script flush >/dev/null
}
echo sesame >password
chmod 600 password
as() { # CODE WORDS...: as that user
    local code=$1
    shift
    ran "$code" dibs -u "unix://dibs@$socket" --password-file password "$@"
}
refused() { # WHAT: what the server refused; "" nothing
    same "refused" "$1" "$(redis s --json acl log | tr -d ' \n' | grep -o '"object":"[^"]*"' | sort -u | cut -d '"' -f 4 | paste -sd ' ')"
}

case_is plain
user plain
as 0 run jobs:1 -- true
as 0 acquire --lease 10m jobs:1
handle=$out
"$DIBS" -u "unix://dibs@$socket" --password-file password run -v jobs:1 -- true 2>wait.txt &
waiter=$!
await said waiting wait.txt
as 0 extend --owner "$handle" --lease 11m jobs:1
as 0 release --owner "$handle" jobs:1
ended 0 $waiter
refused ''
as 77 run other -- true
as 77 run -n -N 2 jobs:2 -- true
as 77 run -n --fair jobs:2 -- true
as 77 latch set jobs:2 1

# Each kind; then without one of its rights.
redis s flushall >/dev/null
for row in 'fair --fair -exists' 'rw -x -exists' 'fence --fence -time' 'slots -N1 -zadd'; do
    set -f
    # shellcheck disable=SC2086
    set -- $row
    word=$1 option=$2 right=$3
    set +f
    case_is "kind $word"
    user "$word"
    as 0 run $option jobs:1 -- true
    as 0 acquire $option --lease 10m jobs:1
    handle=$out
    as 75 run -q -w 50ms $option jobs:1 -- true
    as 0 extend --owner "$handle" --lease 11m jobs:1
    as 0 release --owner "$handle" jobs:1
    refused ''
    case_is "kind $word $right"
    redis s flushall >/dev/null
    user "$word" "$right"
    as 77 run -n $option jobs:1 -- true
    refused "${right#-}"
    redis s flushall >/dev/null
done

case_is 'kind sem'
user sem
as 0 sem set jobs:1 2
as 0 sem acquire --lease 10m jobs:1
handle=$out
as 75 sem acquire -w 50ms --permits 2 --lease 10m jobs:1
as 0 sem release --owner "$handle" jobs:1
as 0 sem add jobs:1 1
as 0 sem info jobs:1
as 0 sem drain jobs:1
refused ''
user sem -incrby
as 77 sem add jobs:1 1
refused incrby
redis s flushall >/dev/null

case_is 'kind latch'
user latch
as 0 latch set --deadline 1h jobs:1 2
as 0 latch down --as me jobs:1
as 75 latch wait -w 50ms jobs:1
as 0 latch down jobs:1
as 0 latch wait jobs:1
refused ''
user latch -hincrby
as 77 latch set jobs:1 2
refused hincrby
redis s flushall >/dev/null

case_is 'a value'
user value,look
as 0 run --publish here jobs:v -- "$DIBS" -u "unix://dibs@$socket" --password-file password info jobs:v
has stdout here "$out"

case_is 'to look'
user fair,rw,fence,slots,sem,latch,value,look
as 0 latch set jobs:l 2
as 0 sem set jobs:p 2
as 0 sem acquire --lease 10m jobs:p
as 0 acquire -N 2 --lease 10m jobs:s
as 0 acquire --lease 10m jobs:a
as 0 ls --json 'jobs:*'
same locks 4 "$(grep -c '"name"' <<<"$out")"
for name in l p s a; do
    as 0 info jobs:$name
done
as 0 queue jobs:a
refused ''
as 0 doctor jobs:a
ran 0 dibs -u "$all" doctor jobs:a

case_is 'metrics'
user plain,fair,rw,fence,slots,sem,latch,metrics
as 0 metrics 'jobs:*'
has stdout dibs_up "$out"
refused ''

case_is 'doctor: nothing is refused to the examination itself'
user fair,rw,fence,slots,sem,latch,look,replicas,doctor
as 0 doctor jobs:a
not grep -q ' may not' out.txt || fail "$out"
case $(redis s --json acl log | tr -d ' \n' | grep -o '"object":"[^"]*"' | sort -u) in
*config* | *role* | *info* | *whoami* | *dryrun*) fail "refused: $(redis s --json acl log)" ;;
esac

case_is 'the line as it is makes no user; another name, and a password'
redis s acl deluser dibs >/dev/null
line=$("$DIBS" acl 'jobs:*')
# shellcheck disable=SC2086
has 'as it is' ERR "$(set -f && redis s $line)"
same 'no user' 0 "$(redis s acl list | grep -c 'user dibs ')"
ran 0 dibs acl --user joe --password-file password 'jobs:*'
has line 'ACL SETUSER joe on >sesame resetkeys ' "$out"
# shellcheck disable=SC2086
same setuser OK "$(set -f && redis s $out)"
ran 0 dibs run -u "unix://joe@$socket" --password-file password jobs:1 -- true
ran 64 dibs acl --user 'a b' job
echo 'two words' >blank
ran 64 dibs acl --password-file blank job
same stdout '' "$out"
user plain

case_is 'doctor misses what acl grants'
user plain,look
as 0 doctor jobs:a
has stdout 'no fair locks' "$out"
has stdout 'no slots' "$out"
has stdout 'no latches' "$out"

case_is 'what is printed'
ran 0 dibs acl job
has line ' ~job ' "$out"
has line ' &redisson_lock__channel:{job}* ' "$out"
ran 0 dibs acl 'a:{*}'
has line ' ~redisson_lock_token:a:{*} ' "$out"
ran 0 dibs acl --kinds plain job
case $out in *rpush* | *zcount* | *spublish*) fail "too much: $out" ;; esac
ran 0 dibs acl --kinds cluster job
has line ' +spublish ' "$out "
has line ' +cluster|slots ' "$out "
ran 64 dibs acl --kinds plain,nothing job
has stderr "'nothing' is not one of plain" "$err"
ran 64 dibs acl --kinds plain, job
ran 64 dibs acl 'two words'
has stderr 'no blanks, quotes or backslashes' "$err"
ran 64 dibs acl
same stdout '' "$out"
finish
