# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs sem: permits of Redisson's semaphore, for scripts.

server s
export DIBS_URL=$url

case_is 'how many there are'
ran 0 dibs sem set p 5
same stdout '5 free' "$out"
ran 1 dibs sem set p 9
has stderr 'p has a number already, 5 free: nothing changed' "$err"
same number 5 "$(redis s get p)"
ran 0 dibs sem info p
same stdout '5 free' "$out"
ran 0 dibs sem info --json p
same stdout '{"name":"p","free":5}' "$out"
ran 0 dibs sem add p 2
same stdout '7 free' "$out"
ran 64 dibs sem add p -2
has stderr 'a negative number goes behind --: -- -2' "$err"
ran 0 dibs sem add p -- -2
same stdout '5 free' "$out"

case_is 'a holder whose lease is over does not count'
redis s set old 1 >/dev/null
redis s zadd '{old}:dibs_held' 1000 2:x >/dev/null
ran 0 dibs info old
has stdout 'kind     semaphore' "$out"
has stdout 'free     3' "$out"
has stdout 'holders  0' "$out"
has stdout 'state    free' "$out"
ran 1 dibs info -q old
redis s zadd '{old}:dibs_held' 9000000000000 1:y >/dev/null
ran 0 dibs info --json old
has stdout '"owners":1' "$out"
has stdout '"free":3' "$out"
ran 0 dibs ls --json old
has stdout '"owners":1' "$out"
same 'taken back by a look' 2 "$(redis s zcard '{old}:dibs_held')"
redis s del old '{old}:dibs_held' >/dev/null

case_is 'permits that outlive their process'
ran 0 dibs sem acquire --permits 3 --lease 10m p
three=$out
same handle 3: "${three:0:2}"
same book 1 "$(redis s zcard '{p}:dibs_held')"
same number 2 "$(redis s get p)"
ran 0 dibs info p
has stdout 'kind     semaphore' "$out"
has stdout 'free     2' "$out"
has stdout 'holders  1, the first lease ends in ' "$out"
ran 0 dibs ls
has stdout ' semaphore ' "$out"
same lines 2 "$(wc -l <<<"$out")"
ran 75 dibs sem acquire -n --permits 3 --lease 1m p
same stdout '' "$out"
has stderr 'not enough permits are free' "$err"
ran 9 dibs sem acquire -n -E 9 --permits 3 --lease 1m p
ran 75 dibs sem acquire -w 50ms --permits 3 --lease 1m p
same number 2 "$(redis s get p)"
ran 64 dibs force-unlock --yes p
has stderr 'a semaphore' "$err"

case_is 'given back once; who waits is woken'
"$DIBS" sem acquire --permits 4 --lease 10m --json p >got.txt &
waiter=$!
listening() { [ "$(redis s pubsub numsub 'redisson_sc:{p}' | tail -n 1)" = 1 ]; }
await listening
ran 0 dibs sem release --owner "$three" p
same stdout '3 released' "$out"
ended 0 $waiter
four=$(json owner "$(cat got.txt)")
same permits 4 "$(json permits "$(cat got.txt)")"
same lease 600000 "$(json lease_ms "$(cat got.txt)")"
same number 1 "$(redis s get p)"
ran 80 dibs sem release --owner "$three" p
has stderr 'had come back before' "$err"
same number 1 "$(redis s get p)"
ran 0 dibs sem release --owner "$four" p
same number 5 "$(redis s get p)"

case_is 'nobody gives them back: their lease does'
ran 0 dibs sem acquire --permits 5 --lease 2s p
handle=$out
ran 0 dibs sem acquire -w 60s --permits 5 --lease 10m p
next=$out
ran 80 dibs sem release --owner "$handle" p
ran 0 dibs sem release --owner "$next" p
same number 5 "$(redis s get p)"

case_is 'a signal ends the wait, and takes nothing'
ran 0 dibs sem drain p
same stdout '5 drained' "$out"
ran 0 dibs sem drain p
same stdout '0 drained' "$out"
"$DIBS" sem acquire --lease 10m p >got.txt 2>&1 &
waiter=$!
await listening
kill -TERM $waiter
ended 143 $waiter
same stdout '' "$(cat got.txt)"
ran 0 dibs sem add p 1
same number 1 "$(redis s get p)"
same book 0 "$(redis s zcard '{p}:dibs_held')"

case_is 'a handle that cannot be printed'
"$DIBS" sem acquire --lease 10m p >/dev/full 2>err.txt
same code 70 $?
same number 1 "$(redis s get p)"

case_is 'nobody has said how many: it waits'
ran 75 dibs sem acquire -n --lease 10m fresh
ran 0 dibs sem info fresh
same stdout '0 free' "$out"

case_is 'what is refused, before anything is done'
bad() { # PART WORDS...
    local part=$1
    shift
    ran 64 dibs "$@"
    has stderr "$part" "$err"
}
bad '--lease is missing' sem acquire p
bad '--owner is missing' sem release p
bad "is not what 'dibs sem acquire' printed" sem release --owner x p
bad "is not what 'dibs sem acquire' printed" sem release --owner "${handle#*:}" p
bad "'-1' is not a number from 0" sem set p -- -1
bad "'2147483648' is not a number" sem set p 2147483648
bad "'x' is not a number" sem add p x
bad "-w has no effect with 'sem set'" sem set -w 5s p 3
bad "--owner has no effect with 'sem acquire'" sem acquire --owner x --lease 1m p
bad "--permits has no effect with 'sem info'" sem info --permits 2 p
bad "'0' is not a number from 1" sem acquire --permits 0 --lease 1m p
bad '--lease: shorter than 100 ms' sem acquire --lease 1ms p
bad 'the verb is missing: set, add, acquire, release, drain, info' sem
bad "unknown option '--slots'" sem set --slots 3 p
same number 1 "$(redis s get p)"

case_is 'the name is something else'
redis s hset h a b >/dev/null
for verb in 'set h 3' 'add h 3' 'drain h' 'info h' 'acquire -n --lease 1m h'; do
    # shellcheck disable=SC2086
    ran 64 dibs sem $verb
done
redis s set text abc >/dev/null
ran 64 dibs sem info text
ran 64 dibs sem add text 1
same text abc "$(redis s get text)"

case_is 'help, and what was meant'
ran 0 dibs help sem
has stdout 'acquire NAME' "$out"
has stdout '--permits N' "$out"
ran 64 dibs semm info p
has stderr 'did you mean: dibs sem info p' "$err"
case_is 'stdout is closed, or full: nothing is taken'
ran 0 dibs sem set lost 5
ran 70 bash -c 'exec "$DIBS" sem acquire --lease 10m lost >&-'
has stderr 'lost is not taken' "$err"
ran 70 bash -c 'exec "$DIBS" sem acquire --lease 10m lost >/dev/full'
same free 5 "$(redis s get lost)"
same book 0 "$(redis s zcard '{lost}:dibs_held')"

case_is 'the name of a lock with slots that is in use'
ran 0 dibs acquire -N 3 --lease 10m slotted
handle=$out
ran 64 dibs sem set slotted 5
has stderr "slotted is a lock with slots: 'dibs slots' and 'dibs run -N' are for it" "$err"
same free 2 "$(redis s get slotted)"
ran 0 dibs release --owner "$handle" slotted
same free 3 "$(redis s get slotted)"

case_is 'a server that is away'
ran 69 dibs sem acquire -u "unix://$T/away.sock" --lease 1m p
"$DIBS" sem acquire -u "unix://$T/away.sock" --server-wait forever --lease 1m p \
    >out.txt 2>err.txt &
waiter=$!
await said 'trying again' err.txt
kill -TERM $waiter
ended 143 $waiter
"$DIBS" sem set -u "unix://$T/away.sock" --server-wait 1h p 2 >out.txt 2>err.txt &
waiter=$!
await said 'trying again for' err.txt
server away
ended 0 $waiter
same stdout '2 free' "$(cat out.txt)"

finish
