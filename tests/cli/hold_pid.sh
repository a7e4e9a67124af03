# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# A lock for a script: dibs hold --for-pid, dibs release. Each script runs in
# dash and in bash; what ends it, how the lock comes back, what a loss does.

server main
export DIBS_URL=$url

# The processes of this test with that command line; others may run the same.
keepers() { # PATTERN
    local pid
    for pid in $(pgrep -f -- "$1"); do
        ! grep -qsF "$T" "/proc/$pid/environ" || echo "$pid"
    done | grep .
}

# No keeper, watcher or socket is left behind.
gone() {
    await not keepers "hold .*--for-pid .* $1\$"
    [ -z "$(ls "$T/runtime/dibs" 2>/dev/null | grep '^hold-')" ] ||
        fail "a socket is left: $(ls "$T/runtime/dibs")"
}

for shell in dash bash; do
    type $shell >/dev/null 2>&1 || continue

    case_is "$shell: held until released"
    cat >job.sh <<'SH'
set -e
dibs hold --for-pid $$ job
redis-cli -s "$T/main.sock" exists job
dibs release job
redis-cli -s "$T/main.sock" exists job
SH
    mkdir -p path
    ln -sf "$DIBS" path/dibs
    ran 0 env PATH="$T/path:$PATH" $shell job.sh
    same 'held, free' $'1\n0' "$out"
    same stderr '' "$err"
    gone job

    case_is "$shell: free when the script ends"
    ran 3 env PATH="$T/path:$PATH" $shell -c \
        'dibs hold --for-pid $$ job; redis-cli -s "$T/main.sock" exists job; exit 3'
    same held 1 "$out"
    await free main job
    gone job

    case_is "$shell: taken, with set -e"
    redis main hset job 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1 >/dev/null
    ran 75 env PATH="$T/path:$PATH" $shell -ec \
        'dibs hold -n --for-pid $$ job; echo never'
    same stdout '' "$out"
    has stderr 'job is taken' "$err"
    redis main del job >/dev/null
    gone job

    case_is "$shell: a subshell releases"
    ran 0 env PATH="$T/path:$PATH" $shell -ec \
        'dibs hold --for-pid $$ job; (dibs release job); redis-cli -s "$T/main.sock" exists job'
    same free 0 "$out"
    gone job

    case_is "$shell: kill -9 of the script"
    mkfifo stay
    env PATH="$T/path:$PATH" $shell -ec \
        'dibs hold --for-pid $$ job; echo up >up.txt; read x <stay' &
    script=$!
    await test -s up.txt
    held main job || fail 'it is not held'
    kill -9 $script
    ended 137 $script
    await free main job
    rm -f stay up.txt
    gone job

    case_is "$shell: command substitution does not wait for the keeper"
    # shellcheck disable=SC2016
    ran 0 env PATH="$T/path:$PATH" $shell -ec \
        'x=$(dibs hold --json --for-pid $$ job); echo "$x"; dibs release job'
    same name job "$(json name "$out")"
    has stdout '"for_pid":' "$out"
    gone job
done

case_is 'a loss ends the script'
mkfifo stay
env PATH="$T/path:$PATH" bash -ec \
    'dibs hold --lease 10s --for-pid $$ job; echo up >up.txt; read x <stay' 2>lost.txt &
script=$!
await test -s up.txt
redis main del job >/dev/null
ended 143 $script
await said 'lost job; signaling process' lost.txt
rm -f stay up.txt
gone job

case_is 'a loss that only warns'
mkfifo stay
env PATH="$T/path:$PATH" bash -ec \
    'dibs hold --lease 10s --on-lost warn --for-pid $$ job; echo up >up.txt; read x <stay; dibs release job' 2>lost.txt &
script=$!
await test -s up.txt
redis main del job >/dev/null
await said 'lost job; leaving alone process' lost.txt
echo >stay
ended 80 $script
rm -f stay up.txt
gone job

case_is 'a loss that runs a hook'
mkfifo stay
env PATH="$T/path:$PATH" bash -ec \
    'dibs hold --lease 10s --on-lost "exec:echo \$DIBS_PID \$DIBS_NAME >$T/hook.txt; kill \$DIBS_PID" --for-pid $$ job; echo up >up.txt; read x <stay' 2>/dev/null &
script=$!
await test -s up.txt
redis main del job >/dev/null
await test -s hook.txt
same hook "$script job" "$(cat hook.txt)"
ended 143 $script
rm -f stay up.txt
gone job

case_is 'a keeper that is killed takes the script with it'
mkfifo stay
env PATH="$T/path:$PATH" bash -ec \
    'dibs hold --lease 10m --for-pid $$ job; echo up >up.txt; read x <stay' &
script=$!
await test -s up.txt
kill -9 "$(pgrep -f "hold --lease 10m --for-pid $script job" | head -1)"
ended 143 $script
await free main job # long before its lease is over
rm -f stay up.txt "$T"/runtime/dibs/hold-*
await not keepers "hold --lease 10m --for-pid $script job"

case_is 'what a killed keeper left is replaced'
bash -c 'exec sleep 1000' &
sleeper=$!
ran 0 dibs hold --on-lost warn --for-pid $sleeper job # without a watcher
kill -9 "$(pgrep -f "hold --on-lost warn --for-pid $sleeper job")"
await not keepers "hold --on-lost warn --for-pid $sleeper job"
redis main del job >/dev/null
ran 0 dibs hold --for-pid $sleeper job
ran 0 dibs release --for-pid $sleeper job
await free main job
kill $sleeper
ended 143 $sleeper
gone job

case_is 'the wait ends with the script'
redis main hset job 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1 >/dev/null
bash -c 'exec sleep 1000' &
sleeper=$!
dibs hold -q --for-pid $sleeper job &
waiting=$!
listened() {
    [ "$(redis main pubsub numsub "redisson_lock__channel:{$1}" | tail -1)" = 1 ]
}
await listened job
kill -9 $sleeper
ended 137 $sleeper
ended 143 $waiting
redis main del job >/dev/null
gone job

case_is 'twice for one process'
ran 0 dibs hold --for-pid $$ job
ran 75 dibs hold --for-pid $$ job
has stderr "job is already held for process $$" "$err"
ran 0 dibs release job
gone job

# In a container the script is often process 1 and leads its group. A signal to
# that group would be one to every process there is.
if unshare -rpf --mount-proc true 2>/dev/null; then
    case_is 'a loss for process 1 signals nobody else'
    cat >first.sh <<'SH'
set -e
trap 'told=yes; echo told' TERM
setsid sleep 1000 &
other=$!
dibs hold --for-pid $$ --lease 10s job
redis-cli -s "$T/main.sock" del job >/dev/null || : # its group is told, too
while [ ! "${told:-}" ]; do sleep 0.02 || :; done
kill -0 $other && echo alive
SH
    ran 0 env PATH="$T/path:$PATH" unshare -rpf --mount-proc setsid \
        bash first.sh
    same 'the other one' $'told\nalive' "$out"
    has stderr 'process 1 cannot be killed' "$err"
    rm -f "$T"/runtime/dibs/hold-1-* # its keeper was killed with it
fi

case_is 'wrong words'
ran 80 dibs release job
has stderr "job is not held for this process by 'dibs hold --for-pid', or not any more" "$err"
ran 64 dibs hold --for-pid 0 job
ran 64 dibs hold --for-pid 4000000 job
has stderr 'No such process' "$err"
ran 64 dibs hold --on-lost kill job
has stderr '--on-lost has nobody to signal without --for-pid' "$err"
ran 69 dibs hold -n -u unix:///no/such --for-pid $$ job
ran 0 dibs hold -n --ok-if-busy --for-pid $$ job
ran 0 dibs release job

case_is 'several locks'
ran 0 dibs hold --multi a,b --for-pid $$
same a 1 "$(redis main exists a)"
ran 0 dibs release a,b
same b 0 "$(redis main exists b)"

# ---- signals that the script ignores --------------------------------------

for shell in dash bash; do
    type $shell >/dev/null 2>&1 || continue
    case_is "$shell: a script that ignores TERM ends"
    ran 0 env PATH="$T/path:$PATH" $shell -c \
        'trap "" TERM HUP INT; dibs hold --for-pid $$ deaf'
    await free main deaf
    gone deaf

    case_is "$shell: the ignored signal is inherited"
    ran 0 env PATH="$T/path:$PATH" $shell -c \
        'trap "" TERM; exec $0 -c "dibs hold --for-pid \$\$ deaf; :"' $shell
    await free main deaf
    gone deaf
done

case_is 'all signals blocked, and ignored'
ran 0 python3 - "$DIBS" <<'END'
import os, signal, subprocess, sys

for sig in range(1, 65):
    try:
        signal.signal(sig, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
sys.exit(subprocess.call(
    [sys.argv[1], "hold", "--for-pid", str(os.getpid()), "deaf"]))
END
await free main deaf
gone deaf

case_is 'a keeper of a deaf script is ended by TERM'
bash -c 'exec sleep 1000' &
sleeper=$!
ran 0 bash -c 'trap "" TERM; "$DIBS" hold --for-pid '$sleeper' deaf'
held main deaf || fail 'it is not held'
kill "$(pgrep -x dibs-keeper | while read -r pid; do
    ! grep -qsF "$T" "/proc/$pid/environ" || echo "$pid"
done)"
await free main deaf
kill $sleeper
ended 143 $sleeper
gone deaf

case_is 'the wait of a deaf script ends with it, and with its command'
redis main hset deaf 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1 >/dev/null
bash -c 'exec sleep 1000' &
sleeper=$!
(trap '' TERM && exec "$DIBS" hold -q --for-pid $sleeper deaf) &
waiting=$!
await listened deaf
kill -9 $sleeper
ended 137 $sleeper
ended 143 $waiting
gone deaf
bash -c 'exec sleep 1000' &
sleeper=$!
(trap '' TERM && exec "$DIBS" hold -q --for-pid $sleeper deaf) &
waiting=$!
await listened deaf
kill -9 $waiting # the command that the script started
ended 137 $waiting
gone deaf
redis main del deaf >/dev/null
kill $sleeper
ended 143 $sleeper

# A sanitizer must be the first library of a program.
if [ -z "$DIBS_SANITIZE" ]; then
    case_is 'what is granted to a command that was killed is released'
    bash -c 'exec sleep 1000' &
    sleeper=$!
    $CC -shared -fPIC -o late_listen.so "$HERE/late_listen.c" ||
        fail 'cannot build late_listen'
    (export LD_PRELOAD=./late_listen.so &&
        exec "$DIBS" hold --for-pid $sleeper late) &
    waiting=$!
    await test -e listens
    held main late || fail 'it is not held'
    kill -9 $waiting
    ended 137 $waiting
    touch go
    await free main late
    gone late
    alive $sleeper || fail 'the script was ended, too'
    kill $sleeper
    ended 143 $sleeper
fi

# ---- an older kernel -------------------------------------------------------

$CC -o nosys "$HERE/nosys.c" || fail 'cannot build nosys'
if ./nosys true; then
    case_is 'without pidfd_open'
    ran 0 env PATH="$T/path:$PATH" "$T/nosys" bash -c \
        'trap "" TERM; dibs hold --for-pid $$ old; redis-cli -s "$T/main.sock" exists old'
    same held 1 "$out"
    await free main old
    gone old
    ran 0 env PATH="$T/path:$PATH" "$T/nosys" bash -ec \
        'dibs hold --for-pid $$ old; dibs release old'
    gone old
    mkfifo stay
    env PATH="$T/path:$PATH" "$T/nosys" bash -ec \
        'dibs hold --lease 10s --for-pid $$ old; echo up >up.txt; read x <stay' 2>lost.txt &
    script=$!
    await test -s up.txt
    redis main del old >/dev/null
    ended 143 $script
    rm -f stay up.txt
    gone old
    ran 64 ./nosys "$DIBS" hold --for-pid 4000000 old
    has stderr 'No such process' "$err"
fi

# ---- inside of a run of the same lock --------------------------------------

case_is 'nested: hold and release'
# shellcheck disable=SC2016
ran 0 env PATH="$T/path:$PATH" dibs run nest -- sh -c \
    'dibs hold --for-pid $$ nest && dibs release nest && redis-cli -s "$T/main.sock" exists nest'
same 'still held by the run' 1 "$out"
same stderr '' "$err"
free main nest || fail 'it is held'
gone nest

case_is 'nested: twice, and not released'
# shellcheck disable=SC2016
ran 0 env PATH="$T/path:$PATH" dibs run nest -- sh -c \
    'dibs hold --for-pid $$ nest && dibs hold --for-pid $$ nest; [ $? = 75 ]'
has stderr 'nest is already held for process' "$err"
free main nest || fail 'it is held'
gone nest

case_is 'nested: the outer run loses the lock'
mkfifo stay
# shellcheck disable=SC2016
env PATH="$T/path:$PATH" dibs run --lease 10s --on-lost warn nest -- setsid sh -c \
    'dibs hold --for-pid $$ nest; echo up >up.txt; read x <stay; echo never' \
    >never.txt 2>lost.txt &
script=$!
await test -s up.txt
redis main del nest >/dev/null
await said 'lost nest; signaling process' lost.txt
wait $script
same 'the script went on' '' "$(cat never.txt)"
rm -f stay up.txt
gone nest

case_is 'nested: the outer run ends first'
mkfifo stay
# shellcheck disable=SC2016
env PATH="$T/path:$PATH" dibs run --foreground nest -- sh -c \
    'sh -c "dibs hold --for-pid \$\$ nest; echo up >up.txt; read x <stay; echo never" & while [ ! -s up.txt ]; do sleep 0.02; done' \
    >never.txt 2>lost.txt
said 'lost nest; signaling process' lost.txt || fail "$(cat lost.txt)"
same 'the script went on' '' "$(cat never.txt)"
await free main nest
rm -f stay up.txt
gone nest
