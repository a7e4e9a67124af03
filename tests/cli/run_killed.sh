# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs run is killed with -9: its command ends with it, and the lock is given
# back, long before its lease of ten minutes is over.

server s
export DIBS_URL=$url

# Is a guard of this test left, or what became of it?
guards() {
    local dir
    for dir in /proc/[0-9]*; do
        case $(cat "$dir/comm" 2>/dev/null) in
        dibs-guard | dibs-give-back) ;;
        *) continue ;;
        esac
        grep -qsF "$T" "$dir/environ" && return 0
    done
    return 1
}

# The options of a run, then its name; it is killed once its command runs.
killed() { # OPTIONS... NAME
    rm -f pid.command
    "$DIBS" run --lease 10m "$@" -- \
        sh -c 'sleep 1000 & echo $$ >pid.new; mv pid.new pid.command; wait' \
        2>err.txt &
    job=$!
    await test -s pid.command
    kill -KILL $job
    ended 137 $job
    await dead "$(cat pid.command)"
}

case_is 'the next one need not wait for the lease'
killed a
ran 0 dibs run -w 60s a -- true
await free s a

case_is 'the command kills it at once'
for i in 1 2 3 4 5; do
    "$DIBS" run --lease 10m a -- \
        sh -c 'kill -KILL $PPID; sleep 1000' 2>err.txt &
    ended 137 $!
    ran 0 dibs run -w 60s a -- true
done

case_is 'a fair lock, and those who wait for it'
rm -f pid.command
"$DIBS" run --fair --lease 10m f -- \
    sh -c 'echo $$ >pid.new; mv pid.new pid.command; exec sleep 1000' &
job=$!
await test -s pid.command
"$DIBS" run --fair -v f -- true 2>wait.txt &
waiter=$!
await said waiting wait.txt
kill -KILL $job
ended 137 $job
ended 0 $waiter
await free s f

case_is 'to write'
killed -x w
ran 0 dibs run -w 60s -x w -- true
ran 0 dibs run -w 60s -s w -- true

case_is 'to read: other readers go on'
"$DIBS" hold --no-stdin -s r >hold.txt &
reader=$!
await test -s hold.txt
killed -s r
alone() { [ "$(redis s hlen r)" = 2 ]; } # that reader, and the mode
await alone
redis s hexists r "$(cat hold.txt)" | grep -q 1 || fail 'the other reader is gone'
kill -TERM $reader
ended 0 $reader
await free s r

case_is 'several at once'
killed --multi m1,m2
ran 0 dibs run -w 60s --multi m2,m1 -- true
await free s m1
await free s m2

case_is 'in the foreground'
killed --foreground g
ran 0 dibs run -w 60s g -- true

case_is 'a quorum'
server q1
one=$url
server q2
two=$url
server q3
quorum=$one,$two,$url
(
    unset DIBS_URL
    killed --quorum "$quorum" q
    exit $failures
) || fail 'see above'
ran 0 env -u DIBS_URL "$DIBS" run -w 60s --quorum "$quorum" q -- true

case_is 'only that hold is released, never another one'
rm -f pid.command
"$DIBS" run --lease 10m a -- \
    sh -c 'echo $$ >pid.new; mv pid.new pid.command; exec sleep 1000' &
job=$!
await test -s pid.command
kill -STOP $job
await stopped $job
redis s del a >/dev/null
"$DIBS" hold --no-stdin --lease 10m a >hold.txt &
holder=$!
await test -s hold.txt
kill -KILL $job
ended 137 $job
await dead "$(cat pid.command)"
await not guards
held s a || fail 'the other one lost it'
redis s hexists a "$(cat hold.txt)" | grep -q 1 || fail 'it is not its hold'
kill -TERM $holder
ended 0 $holder

case_is '--min-hold counts all the same'
killed --min-hold 10m k
await not guards
held s k || fail 'it was freed'
redis s del k >/dev/null

case_is 'not before a run inside of it has ended its command'
cat >inner.sh <<'END'
echo $$ >pid.inner.new
mv pid.inner.new pid.inner
exec sleep 1000
END
"$DIBS" run --lease 10m n -- "$DIBS" run n -- sh inner.sh &
job=$!
await test -s pid.inner
"$DIBS" run -w 60s n -- sh -c \
    'case $(cut -d " " -f 3 /proc/$(cat pid.inner)/stat 2>/dev/null) in
     "" | Z | X) ;; *) echo both >both.txt ;; esac' &
next=$!
kill -KILL $job
ended 137 $job
ended 0 $next
[ ! -e both.txt ] || fail 'two at once'

case_is 'if the guard dies, too, it is the lease'
rm -f pid.command
"$DIBS" run --lease 10m a -- \
    sh -c 'echo $$ >pid.new; mv pid.new pid.command; exec sleep 1000' &
job=$!
await test -s pid.command
has_guard() { guard=$(pgrep -P $job dibs-guard); }
await has_guard
kill -STOP $job
kill -KILL "$guard" $job
ended 137 $job
held s a || fail 'who released it?'
redis s del a >/dev/null

case_is 'a password is neither on a command line nor in an environment'
server p --requirepass sesame
(
    unset DIBS_URL
    printf 'unix://:sesame@%s/p.sock\n' "$T" >url.txt
    chmod 600 url.txt
    killed --url-file url.txt a
    exit $failures
) || fail 'see above'
freed() { [ "$(redis-cli -s "$T/p.sock" -a sesame exists a 2>/dev/null)" = 0 ]; }
await freed

case_is 'it is nothing for people'
ran 64 dibs give-back 3<&-
