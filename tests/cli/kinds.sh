# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# The kinds: --fair, -s and -x; dibs queue, and what info says of them.

server s
export DIBS_URL=$url

holder() { # WORDS...: holds until stop_holder
    mkfifo in 2>/dev/null
    : >held.txt
    "$DIBS" hold "$@" <in >held.txt 2>/dev/null 8>&- &
    job=$!
    exec 8>in
    await test -s held.txt
}

stop_holder() {
    exec 8>&-
    ended 0 $job
}

case_is 'readers share'
holder -s a
ran 0 dibs run -s -n a -- true
ran 75 dibs run -x -n a -- true
ran 0 dibs info a
has stdout 'mode     read' "$out"
has stdout "reader   $(cat held.txt) ($(uname -n), pid " "$out"
has stdout '), 1 hold' "$out"
stop_holder

case_is 'a writer is alone'
holder -x a
ran 75 dibs run -s -n a -- true
ran 75 dibs run -x -n a -- true
ran 0 dibs info a
has stdout 'mode     write' "$out"
has stdout "writer   $(cat held.txt) ($(uname -n), pid " "$out"
has stdout '), 1 hold' "$out"
ran 64 dibs run -n a -- true
same stderr "dibs: cannot take 'a': it is a read-write lock: use -s or -x" "$err"
stop_holder
free s a || fail 'is still held'

case_is 'nested'
ran 0 dibs run -x a -- "$DIBS" run -s a -- "$DIBS" run -x a -- echo in
same stdout in "$out"
ran 0 dibs run -s a -- "$DIBS" run -s a -- echo in
same stdout in "$out"
ran 64 dibs run -s a -- "$DIBS" run -x a -- echo in
has stderr 'asking for write while holding read' "$err"

case_is 'a fair lock and its queue'
ran 0 dibs queue f
same stdout 'nobody waits' "$out"
ran 0 dibs queue --json f
same stdout '[]' "$out"
holder --fair f
"$DIBS" run --fair f -- true 8>&- &
waiter=$!
queued() { [ "$(redis s llen 'redisson_lock_queue:{f}')" = 1 ]; }
await queued
ran 75 dibs run --fair -n f -- true
ran 75 dibs run --fair -w 10ms f -- true
ran 0 dibs queue f
has stdout "waits    1. $(redis s lindex 'redisson_lock_queue:{f}' 0) ($(uname -n), pid " "$out"
ran 0 dibs queue --json f
has stdout '"place":1' "$out"
ran 0 dibs info f
has stdout 'waits    1. ' "$out"
stop_holder
ended 0 $waiter
free s f || fail 'is still held'
same queue 0 "$(redis s exists 'redisson_lock_queue:{f}')"

case_is 'the next in line is stopped: the one behind it gets the lock'
holder --fair f
queue_is() { [ "$(redis s llen 'redisson_lock_queue:{f}')" = "$1" ]; }
"$DIBS" run --fair --fair-call 300ms f -- sh -c 'echo first >>order' 8>&- &
first=$!
await queue_is 1
"$DIBS" run --fair --fair-call 300ms f -- sh -c 'echo second >>order' 8>&- &
second=$!
await queue_is 2
kill -STOP $first
await stopped $first
stop_holder
ended 0 $second
kill -CONT $first
ended 0 $first
same order 'second first' "$(tr '\n' ' ' <order | sed 's/ $//')"
free s f || fail 'is still held'
same queue 0 "$(redis s exists 'redisson_lock_queue:{f}')"

case_is 'broken by force'
holder -s a
ran 0 dibs force-unlock --yes a
has stdout 'is free now' "$out"
exec 8>&-
ended 80 $job
free s a || fail 'is still held'

case_is 'a name of another kind: which one, what to use instead, and code 64'
clash() { # NAME TEXT WORDS...: of the command, without its name
    local name=$1 text=$2
    shift 2
    ran 64 dibs "$@"
    same stderr "dibs: $text" "$err"
    same stdout '' "$out"
}
handle=$(dibs acquire --lease 1m lock)
dibs acquire -x --lease 1m rw >/dev/null
dibs slots set slots 3 >/dev/null
dibs acquire -N 3 --lease 1m slots >/dev/null
dibs sem set sem 5 >/dev/null
dibs sem acquire --lease 1m sem >/dev/null
dibs latch set latch 2 >/dev/null
redis s set counter 3 >/dev/null
redis s set text hello >/dev/null
redis s rpush list hello >/dev/null
redis s hset hash field hello >/dev/null
clash lock "cannot take 'lock': it is a plain lock: leave out -s" run -s lock -- true
clash lock "cannot take 'lock': it is a plain lock: leave out -x" acquire -n -x --lease 1m lock
clash lock "cannot take 'lock': it is a plain lock: leave out -N" run -n -N 3 lock -- true
clash lock "cannot use 'lock': it is a plain lock: use 'dibs run'" sem acquire -n --lease 1m lock
clash lock "cannot use 'lock': it is a plain lock: use 'dibs run'" latch down lock
clash lock "cannot use 'lock': it is a plain lock: use 'dibs run'" slots set lock 3
clash rw "cannot take 'rw': it is a read-write lock: use -s or -x" run --fair rw -- true
clash rw "cannot take 'rw': it is a read-write lock: use -s or -x" run --fence rw -- true
clash rw "cannot take 'rw': it is a read-write lock: use -s or -x" hold -N 2 rw
clash rw "cannot use 'rw': it is a read-write lock: use 'dibs run -s' or 'dibs run -x'" sem info rw
for kind in '' --fair --fence -s -x; do
    # shellcheck disable=SC2086
    clash slots "cannot take 'slots': it is a lock with 3 slots: use -N 3" run -n $kind slots -- true
    # shellcheck disable=SC2086
    clash sem "cannot take 'sem': it is a semaphore: use 'dibs sem'" run -n $kind sem -- true
    # shellcheck disable=SC2086
    clash latch "cannot take 'latch': it is a latch: use 'dibs latch'" run -n $kind latch -- true
    # shellcheck disable=SC2086
    clash counter "cannot take 'counter': it is a number, for slots, a semaphore or a latch: use -N, 'dibs sem' or 'dibs latch'" run -n $kind counter -- true
done
clash sem "sem is a semaphore: use 'dibs sem acquire'" wait sem
for other in text list hash; do
    clash $other "cannot take '$other': the server has something else under this name: take another name" run -n $other -- true
    clash $other "cannot take '$other': the server has something else under this name: take another name" run -n -N 2 $other -- true
    clash $other "cannot use '$other': the server has something else under this name: take another name" latch info $other
    clash $other "'$other' is not a lock: the server has something else under this name" info $other
done
ran 64 dibs run -n --multi other,text -- true
has stderr "'text' (or a key that belongs to it) is something else, or a lock of another kind" "$err"
ran 64 dibs release --owner "$handle" text
case $err in *user_script* | *_acquire* | *WRONGTYPE*) fail "internals: $err" ;; esac
ran 0 dibs release --owner "$handle" lock

case_is 'what does not go together'
ran 64 dibs run -s -x a -- true
has stderr 'only one of --fair, -s, -x, --fence and -N' "$err"
ran 64 dibs run --fair -s a -- true
ran 64 dibs run -s --min-hold 1s a -- true
has stderr '--min-hold does not work with -s' "$err"

finish
