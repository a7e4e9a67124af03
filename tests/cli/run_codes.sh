# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs run when all goes its way: exit codes, output, environment, stdin,
# arguments, what --status-fd says.

server s
export DIBS_URL=$url

# row CODE STDOUT STDERR CAUSE LOCK WORDS...: run with --status-fd.
row() {
    local code=$1 stdout=$2 stderr=$3 cause=$4 lock=$5
    shift 5
    case_is "dibs run $*"
    ran "$code" dibs run --status-fd 9 "$@" 9>status.txt
    same stdout "$stdout" "$out"
    same stderr "$stderr" "$err"
    status=$(cat status.txt)
    same lines 1 "$(wc -l <status.txt)"
    same code "$code" "$(json code "$status")"
    same cause "$cause" "$(json cause "$status")"
    same lock "$lock" "$(json lock "$status")"
}

row 0 '' '' exit released a -- true
row 1 '' '' exit released a -- false
row 0 'x y' '' exit released a -- echo 'x y'
row 7 o e exit released a -- sh -c 'echo o; echo e >&2; exit 7'
row 75 '' '' exit released a -- sh -c 'exit 75'
row 255 '' '' exit released a -- sh -c 'exit 255'
row 143 '' '' signal released a -- sh -c 'kill -TERM $$'
row 137 '' '' signal released a -- sh -c 'kill -KILL $$'
row 127 '' "dibs: cannot run 'no-such-command': No such file or directory" \
    not-found released a -- no-such-command
words='this is one word with spaces in it; use -c for a line of shell'
row 127 '' "dibs: cannot run 'echo hi': No such file or directory; $words" \
    not-found released a -- 'echo hi'
row 127 '' "dibs: cannot run 'echo hi': No such file or directory" \
    not-found released a -- 'echo hi' x
row 127 '' "dibs: cannot run './none/x': No such file or directory" \
    not-found released a -- ./none/x
row 126 '' "dibs: cannot run '/': Permission denied" \
    cannot-execute released a -- /
: >plain
row 126 '' "dibs: cannot run './plain': Permission denied" \
    cannot-execute released a -- ./plain
row 3 2 '' exit released -c 'echo $((1 + 1)) | cat; exit 3' a
row 0 '-x --' '' exit released a -- echo -x --
row 0 '' '' exit released -n a -- true
row 0 '' '' exit released -w 61s a -- true
row 0 '' '' exit released -qw61.5s --lease=60500ms -t 1h -k 2m -E 3 a -- true
row 0 '' '' exit released --max-hold 1h a -- true
row 0 '' '' exit released --foreground a -- true
row 5 '' '' exit released --any-name 'a b'$'\n' -- sh -c 'exit 5'
row 124 '' 'dibs: the command still runs after 100 ms (-t); stopping it' \
    max-run released -t 100ms a -- sleep 1000
row 124 '' 'dibs: the command still runs after 100 ms (-t); stopping it' max-run released \
    -t 100ms -k 100ms a -- sh -c 'trap "" TERM; while :; do sleep 0.1; done'
row 124 '' 'dibs: the command still runs after 100 ms (-t); stopping it' max-run released \
    -t 100ms -k 0 a -- sleep 1000

case_is 'every lock is free again'
same keys '' "$(redis s keys '*')"

case_is 'the status has the command in it'
row 9 '' '' exit released a -- sh -c 'exit 9'
same exit 9 "$(json exit "$status")"
same signal null "$(json signal "$status")"
same name a "$(json name "$status")"
row 129 '' '' signal released a -- sh -c 'kill -HUP $$'
same exit null "$(json exit "$status")"
same signal 1 "$(json signal "$status")"

case_is 'nobody reads the status: it is dropped, and the code stays'
mkfifo full
exec 9<>full
head -c 65536 /dev/zero >&9
ran 5 timeout 60 "$DIBS" run --status-fd 9 a -- sh -c 'exit 5'
has stderr 'cannot write the status to descriptor 9: nobody reads it' "$err"
free s a || fail 'is still held'
exec 9>&-

case_is 'the descriptor of --status-fd is not passed on'
ran 0 dibs run --status-fd 9 a -- sh -c '! [ -e /proc/self/fd/9 ]' 9>status.txt

# ---- environment -------------------------------------------------------

case_is environment
ran 0 dibs run --lease 12s a -- sh -c \
    'echo $DIBS_HELD $DIBS_NAME $DIBS_LEASE_MS $DIBS_OWNER; dibs_info=$("$DIBS" info --json a); echo "$dibs_info"'
read -r h n l o <<<"$(head -n 1 out.txt)"
same DIBS_HELD 1 "$h"
same DIBS_NAME a "$n"
same DIBS_LEASE_MS 12000 "$l"
same DIBS_OWNER "$o" "$(json owner "$(tail -n 1 out.txt)")"
DIBS_TOKEN=5 DIBS_SLOT=1 ran 0 dibs run a -- \
    sh -c 'echo ${DIBS_TOKEN-none} ${DIBS_SLOT-none}'
same 'of other kinds' 'none none' "$out"

case_is 'only DIBS_LOST_FD is inherited beyond what was there'
list='ls -1 /proc/self/fd | grep -vx "${DIBS_LOST_FD:-none}" | tr "\n" " "'
ran 0 dibs run a -- sh -c "$list"
same descriptors "$(sh -c "$list" 2>/dev/null)" "$out"

case_is 'other descriptors of the caller are'
ran 0 dibs run a -- sh -c 'cat <&7' 7<<<seven
same inherited seven "$out"

# ---- input, arguments, closed descriptors ------------------------------

case_is stdin
ran 0 dibs run a -- cat <<<'to the command'
same stdin 'to the command' "$out"

case_is '100 KB of arguments'
big=$(printf '%100000s' '' | tr ' ' y)
ran 0 dibs run a -- printf %s "$big"
same bytes 100000 "$(wc -c <out.txt)"
many=$(seq 1 20000)
# shellcheck disable=SC2086
ran 0 dibs run a -- sh -c 'echo $#' sh $many
same 'many arguments' 20000 "$out"

case_is 'started without stdin, stdout and stderr'
"$DIBS" run a -- sh -c 'exit 6' <&- >&- 2>&-
same code 6 $?
"$DIBS" run a -- sh -c 'ls /proc/self/fd >'"$T"'/fds; exit 0' <&- >&- 2>&-
same 'closed for the command, too' 0 "$(grep -cx 1000 fds)"

case_is 'a reader that has gone away does not end the lock'
{ "$DIBS" run -v a -- sh -c 'exit 4' 2>&1; echo $? >code; } | true
await test -s code
same code 4 "$(cat code)"

# ---- taken -------------------------------------------------------------

mkfifo hold.fifo
"$DIBS" hold b <hold.fifo >hold.txt 2>/dev/null &
holder=$!
exec 8>hold.fifo
await test -s hold.txt
owner=$(cat hold.txt)

taken() { # CODE STDERR CAUSE WORDS...
    local code=$1 stderr=$2
    shift 2
    case_is "taken: dibs run $*"
    ran "$code" dibs run --status-fd 9 "$@" b -- echo no 9>status.txt
    same stdout '' "$out"
    same stderr "$stderr" "$(sed -e 's/ [0-9.]* s unless/ N s unless/' \
        -e "s/($(uname -n), pid [0-9]*, dibs, [0-9]* s)/(WHO)/" err.txt)"
    same cause busy "$(json cause "$(cat status.txt)")"
    same lock not-taken "$(json lock "$(cat status.txt)")"
}
message="dibs: b is taken: held by $owner (WHO), lease ends in N s unless it is renewed"
taken 75 "$message" -n
taken 75 "$message" -w 0
taken 75 "$message" -w 50ms
taken 3 "$message" -n -E 3
taken 0 "$message" -n -E 0
taken 0 '' -n --ok-if-busy
taken 0 '' -w 50ms --ok-if-busy
taken 0 "dibs: $url: connected"$'\ndibs: b is taken' -n -v --ok-if-busy
taken 75 '' -n -q
taken 64 '' -nq -E 64

case_is 'log in JSON'
ran 75 dibs run -n --log json b -- true
same level warning "$(json level "$err")"
same event busy "$(json event "$err")"
same name b "$(json name "$err")"

case_is 'waits, then runs'
"$DIBS" run -v b -- echo ran >waiter.txt 2>waiter.err 8>&- &
waiter=$!
await said 'waiting for b' waiter.err
exec 8>&-
ended 0 $holder
ended 0 $waiter
same stdout ran "$(cat waiter.txt)"
has 'wait time' 'got b after' "$(cat waiter.err)"

# ---- --min-hold --------------------------------------------------------

case_is '--min-hold'
row 0 '' '' exit kept --min-hold 1h a -- true
held s a || fail 'is not held'
[ "$(redis s pttl a)" -gt 3000000 ] || fail 'ends too soon'
ran 75 dibs run -n a -- true
redis s del a >/dev/null
row 127 '' "dibs: cannot run 'none': No such file or directory" not-found \
    released --min-hold 1h a -- none

# ---- another type, errors of the server --------------------------------

case_is 'a key that is not a lock'
redis s set str x >/dev/null
ran 64 dibs run str -- true
has stderr 'the server has something else under this name' "$err"
same 'left as it is' x "$(redis s get str)"
