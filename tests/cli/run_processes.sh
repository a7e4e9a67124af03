# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What becomes of processes: the wrapper is killed, the command leaves others
# behind, closes its descriptors, becomes a daemon.

server s
export DIBS_URL=$url

# ---- the wrapper is killed ---------------------------------------------

cat >family.sh <<'END'
# A child, a grandchild, a great-grandchild, and who they are.
sleep 1000 &
echo $! >pid.child
sh -c 'sleep 1000 & echo $! >pid.grandchild; wait' &
echo $$ >pid.command
trap '' TERM
echo ready
wait
END
kill_family() { # COMMAND...: runs the family under it, then kills it
    rm -f pid.* out.txt
    "$@" bash family.sh >out.txt 2>err.txt &
    job=$!
    await said ready out.txt
    await test -s pid.grandchild
    kill -KILL $job
    ended 137 $job
    for who in command child grandchild; do
        await dead "$(cat pid.$who)" || fail "$who lives"
    done
}
case_is 'killed with -9, it takes the command and all its children with it'
kill_family "$DIBS" run a --
case_is 'its lock is given back'
await free s a

case_is 'no guard is left'
guards() {
    local dir
    for dir in /proc/[0-9]*; do
        [ "$(cat "$dir/comm" 2>/dev/null)" = dibs-guard ] || continue
        grep -qsF "$T" "$dir/environ" && return 0
    done
    return 1
}
await not guards

case_is 'killed while waiting, it leaves nothing'
mkfifo hold.fifo
"$DIBS" hold b <hold.fifo >hold.txt &
holder=$!
exec 8>hold.fifo
await test -s hold.txt
"$DIBS" run -v b -- true 2>err.txt 8>&- &
job=$!
await said 'waiting' err.txt
kill -KILL $job
ended 137 $job
exec 8>&-
ended 0 $holder
ran 0 dibs run -n b -- true

# ---- leftovers ---------------------------------------------------------

case_is 'the lock outlasts the command by what it left in the background'
mkfifo go
"$DIBS" run --status-fd 9 a -- \
    sh -c 'sh -c "echo ready; read -r x <go; echo \$x" & exit 4' \
    >job.txt 2>job.err 9>status.txt &
job=$!
await said ready job.txt
await said 'left processes in its group' job.err
held s a || fail 'is not held any more'
ran 75 dibs run -nq a -- true
echo bye >go
ended 4 $job
same order 'ready bye ' "$(tr '\n' ' ' <job.txt)"
same lock released "$(json lock "$(cat status.txt)")"
free s a || fail 'is still held'

case_is 'leftovers are stopped by -t, too'
"$DIBS" run -q -t 300ms a -- sh -c \
    'sleep 1000 & echo $! >pid.left; exit 0' >out.txt 2>err.txt
same code 124 $?
dead "$(cat pid.left)" || fail 'it lives'

case_is 'one that ignores TERM is killed'
"$DIBS" run -q -t 100ms -k 100ms a -- bash -c \
    'trap "" TERM; (while :; do sleep 0.05; done) & echo $! >pid.left; wait' \
    >out.txt 2>err.txt
same code 124 $?
dead "$(cat pid.left)" || fail 'it lives'
free s a || fail 'is still held'

case_is 'what leaves the group is not waited for'
ran 0 dibs run a -- sh -c 'setsid sleep 1000 >/dev/null 2>&1 & echo $!'
free s a || fail 'is still held'
alive "$out" || fail 'it was killed'
kill -KILL "$out"

case_is 'the dead of a parent that left the group do not count'
# The parent leaves the group, its child stays in it, dies, and is not reaped.
cat >keeper.c <<'END'
#include <stdio.h>
#include <unistd.h>
int main(void)
{
    if (fork() > 0)
        return 0;
    if (fork() == 0)
        _exit(0); /* stays in the group, as a zombie */
    setsid();
    freopen("/dev/null", "w", stdout);
    FILE *f = fopen("pid.keeper", "w");
    fprintf(f, "%d\n", getpid());
    fclose(f);
    pause();
    return 0;
}
END
$CC -o keeper keeper.c || fail 'no compiler'
ran 0 dibs run a -- ./keeper
free s a || fail 'is still held'
await test -s pid.keeper
kill -KILL "$(cat pid.keeper)"

# ---- odd commands ------------------------------------------------------

case_is 'a command that closes its descriptors'
ran 3 dibs run a -- bash -c \
    'for f in $(ls /proc/$$/fd); do eval "exec $f>&-"; done; sleep 0.2; exit 3'
free s a || fail 'is still held'

case_is 'a command that stops itself is still a command'
"$DIBS" run a -- sh -c 'echo $$ >pid.stopped; kill -STOP $$; exit 6' &
job=$!
await test -s pid.stopped
await stopped "$(cat pid.stopped)"
held s a || fail 'is not held any more'
kill -CONT "$(cat pid.stopped)"
ended 6 $job

case_is 'a group of its own, and of ours with --foreground'
group='ps -o pgid= -p $$ | tr -d " "'
ran 0 dibs run a -- sh -c "[ \$($group) = \$\$ ]"
ran 0 dibs run --foreground a -- sh -c "[ \$($group) != \$\$ ]"

case_is 'SIGCHLD ignored by the caller'
ran 7 bash -c 'trap "" CHLD; exec "$DIBS" run a -- sh -c "exit 7"'

case_is 'children of somebody else, inherited through exec'
ran 7 bash -c 'sleep 0.1 & exec "$DIBS" run a -- sh -c "sleep 0.3; exit 7"'

# ---- an older Linux ----------------------------------------------------

$CC -o nosys "$HERE/nosys.c" || fail 'cannot build nosys'
if ./nosys true; then
    case_is 'without close_range it ends anyway'
    ran 7 timeout 20 ./nosys "$DIBS" run old -- sh -c 'exit 7'
    free s old || fail 'still held'

    case_is 'without close_range, killed with -9, it takes its children with it'
    kill_family ./nosys "$DIBS" run old --
fi

case_is 'DIBS_LOST_FD has one digit, if one is free'
for shell in dash bash; do
    type $shell >/dev/null 2>&1 || continue
    # The word is read by a plain shell.
    # shellcheck disable=SC2016
    "$DIBS" run --lease 10s --on-lost warn fd -- $shell -c \
        'case $DIBS_LOST_FD in [3-9]) ;; *) exit 3 ;; esac
         echo up >up.txt; eval "read word <&$DIBS_LOST_FD"; echo "$word"' \
        >out.txt 2>/dev/null &
    job=$!
    await test -s up.txt
    redis s del fd >/dev/null
    ended 81 $job
    same word lost "$(cat out.txt)"
    rm -f up.txt
done
# shellcheck disable=SC2016
ran 0 dibs run fd -- sh -c 'readlink /proc/$$/fd/7; echo $DIBS_LOST_FD' 7</dev/null
same 'one that was given stays' $'/dev/null\n6' "$out"
# shellcheck disable=SC2016
ran 0 bash -c 'for fd in 3 4 5 6 7 8 9; do eval "exec $fd</dev/null"; done
    exec "$DIBS" run fd -- sh -c "[ \$DIBS_LOST_FD -gt 9 ] && readlink /proc/\$\$/fd/\$DIBS_LOST_FD"'
has 'none is free' pipe: "$out"
# shellcheck disable=SC2016
ran 0 dibs run one -- "$DIBS" run two -- "$DIBS" run one -- sh -c \
    'echo $DIBS_LOST_FD; tr " " "\n" <<END | sed -n "s/.*=\([0-9]*\):.*/\1/p" | sort -u | wc -l
$DIBS_LOST_FDS
END'
same 'each of two has its own' $'7\n2' "$out"
