# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs is stopped and continued. While it is stopped nothing is renewed, so the
# command must not run on, and may go on only if the lock is still ours.

# Runs a command in a process group of its own, as a shell with job control
# would: a group whose parents are all in it cannot be stopped.
cat >apart.c <<'END'
#include <unistd.h>
int main(int argc, char **argv)
{
    setpgid(0, 0);
    execvp(argv[1], argv + 1);
    return argc > 0;
}
END
$CC -o apart apart.c || fail 'no compiler'

server s
export DIBS_URL=$url

start() { # WORDS...
    rm -f status.txt pid.command
    "$T/apart" "$DIBS" run --status-fd 9 "$@" >out.txt 2>err.txt 9>status.txt &
    job=$!
    await test -s pid.command
    command=$(cat pid.command)
}

cat >wait.sh <<'END'
echo $$ >pid.command
read -r x <go
exit 3
END
mkfifo go

# ---- what takes seconds runs beside the rest ----------------------------

cat >count.sh <<'END'
echo $$ >pid.command
while :; do echo x >>beats; sleep 0.02; done
END
stopped_long() {
    case_is 'stopped for longer than the lease: never continued'
    start --lease 1s c -- bash "$T/count.sh"
    kill -TSTP $job
    await stopped "$command"
    beats=$(wc -l <beats)
    await free s c
    kill -CONT $job
    ended 80 $job
    same 'worked on' "$beats" "$(wc -l <beats)"
    same cause lost "$(json cause "$(cat status.txt)")"
}

cat >witness.sh <<'END'
trap '' TERM
echo $$ >pid.command
redis-cli -s "$T/s.sock" -r -1 -i 0.005 exists w | while read -r n; do
    [ "$n" != 0 ] || echo no >>violation.txt
done
END
dibs_stopped() {
    case_is 'SIGSTOP of dibs alone: the guard ends the command in time'
    start --lease 4s w -- bash "$T/witness.sh"
    kill -STOP $job
    await dead "$command"
    [ ! -e violation.txt ] || fail 'the command outlived its lease'
    kill -CONT $job
    ended 80 $job
}

warned() {
    case_is '--on-lost warn: stopped for longer than the lease, then it goes on'
    mkfifo go
    start --lease 1s --on-lost warn d -- bash "$T/wait.sh"
    kill -TSTP $job
    await stopped "$command"
    await free s d
    kill -CONT $job
    await running "$command"
    echo on >go
    ended 81 $job
    same exit 3 "$(json exit "$(cat status.txt)")"
}
# The command stops dibs before dibs has sent its first message to the guard: on
# one processor the command mostly runs first.
cat >stop.c <<'END'
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    cpu_set_t one;
    if (argc > 1) { /* dibs, on this processor only */
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        sched_setaffinity(0, sizeof one, &one);
        execvp(argv[1], argv + 1);
        return 1;
    }
    kill(getppid(), SIGSTOP);
    FILE *f = fopen("pid.command", "w");
    fprintf(f, "%d\n", (int)getpid());
    fclose(f);
    for (;;)
        pause();
}
END
$CC -static -o stop stop.c 2>cc.txt || $CC -o stop stop.c || fail 'no compiler'
stopped_at_start() {
    case_is 'dibs is stopped as soon as its command runs: the guard ends it'
    rm -f pid.command
    "$T/apart" "$T/stop" "$DIBS" run --lease 1s e -- "$T/stop" 2>err.txt &
    job=$!
    await test -s pid.command
    command=$(cat pid.command)
    await dead "$command"
    kill -CONT $job
    ended 80 $job
}

beside stopped_at_start stopped_at_start
beside stopped_long stopped_long
beside dibs_stopped dibs_stopped
beside warned warned

# ---- the rest -----------------------------------------------------------

case_is 'TSTP stops both, CONT continues both'
start a -- bash wait.sh
kill -TSTP $job
await stopped $job
await stopped "$command"
held s a || fail 'is not held any more'
kill -CONT $job
await running $job
await running "$command"
echo on >go
ended 3 $job

case_is 'TSTP while waiting'
redis s hset b 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1 >/dev/null
: >err.txt
./apart "$DIBS" run -v b -- sh -c 'exit 4' >out.txt 2>err.txt &
job=$!
await said 'waiting' err.txt
kill -TSTP $job
await stopped $job
redis s del b >/dev/null
kill -CONT $job
ended 4 $job

case_is 'SIGSTOP of dibs alone, and not for long'
start --lease 1h a -- bash wait.sh
kill -STOP $job
await stopped $job
running "$command" || fail 'the command does not run'
kill -CONT $job
echo on >go
ended 3 $job

case_is 'SIGSTOP of the guard: the lock is free when the command is done'
start a -- bash wait.sh
has_guard() { guard=$(pgrep -P $job dibs-guard); }
await has_guard
kill -STOP "$guard"
await stopped "$guard"
echo on >go
ended 3 $job
free s a || fail 'is still held'

case_is 'without a parent to continue it, TSTP stops nothing'
rm -f pid.command
setsid "$DIBS" run a -- bash wait.sh 2>/dev/null &
await test -s pid.command
leader=$(ps -o ppid= -p "$(cat pid.command)" | tr -d ' ')
kill -TSTP "$leader"
echo on >go
await free s a
