# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs hold: until stdin ends, until a signal, until the lock is lost.

server s
export DIBS_URL=$url
mkfifo in

start() { # WORDS...
    : >out.txt
    "$DIBS" hold --status-fd 9 "$@" <in >out.txt 2>err.txt 9>status.txt \
        8>&- &
    job=$!
    exec 8>in
}

case_is 'until stdin ends'
start a
await test -s out.txt
same owner "$(redis s hkeys a)" "$(cat out.txt)"
echo 'what comes on stdin is nothing to us' >&8
held s a || fail 'is not held any more'
exec 8>&-
ended 0 $job
free s a || fail 'is still held'
same lock released "$(json lock "$(cat status.txt)")"

case_is 'an empty stdin'
: >empty
ran 0 dibs hold a <empty
same stderr '' "$err"
free s a || fail 'is still held'
ran 0 dibs hold a < <(:)
same stderr '' "$err"

case_is 'no stdin, as in the background of a script'
null="dibs: stdin is /dev/null, so the hold ends at once (in a script, '&' does that); use --no-stdin, or give hold a pipe to read from"
ran 0 sh -c '"$DIBS" hold a & wait $!'
same stderr "$null" "$err"
free s a || fail 'is still held'
ran 0 dibs hold -q a </dev/null
same stderr '' "$err"

case_is 'its owner cannot be printed'
ran 70 sh -c '"$DIBS" hold --status-fd 9 a >/dev/full 9>status.txt'
same stderr 'dibs: cannot write to stdout: No space left on device; releasing a' \
    "$err"
same lock released "$(json lock "$(cat status.txt)")"
free s a || fail 'is still held'
ran 70 sh -c '"$DIBS" hold --json a >/dev/full'
ran 70 sh -c '"$DIBS" run a -- "$DIBS" hold a >/dev/full'

# Runs with a pipe that is full, and that nobody reads, as descriptor 7.
cat >full.py <<'END'
import fcntl, os, sys
r, w = os.pipe()
os.write(w, b'x' * fcntl.fcntl(w, 1032))  # F_GETPIPE_SZ
os.set_inheritable(r, True)
os.dup2(w, 7)
os.execvp(sys.argv[1], sys.argv[1:])
END

# --foreground: no CONT comes with the TERM. At the end of a program that is
# built with ASan, a CONT can stop the search for leaks for ever.
owner_unread() {
    case_is 'nobody reads its owner'
    python3 "$T/full.py" sh -c 'exec timeout -s KILL 20 "$0" "$@" >&7' \
        timeout --foreground 1 "$DIBS" hold --no-stdin full1
    same code 124 $?
    free s full1 || fail 'is still held'
}
messages_unread() {
    case_is 'nobody reads its messages'
    python3 "$T/full.py" sh -c 'exec timeout -s KILL 20 "$0" "$@" 2>&7' \
        "$DIBS" run -v full2 -- true
    same code 0 $?
    free s full2 || fail 'is still held'
}
if command -v python3 >/dev/null; then
    beside owner_unread owner_unread
    beside messages_unread messages_unread
fi

case_is JSON
start --json --lease 7s a
await test -s out.txt
same name a "$(json name "$(cat out.txt)")"
same owner "$(redis s hkeys a)" "$(json owner "$(cat out.txt)")"
same lease 7000 "$(json lease_ms "$(cat out.txt)")"

for sig in TERM HUP USR1; do
    case_is "until $sig comes"
    await test -s out.txt
    kill -s $sig $job
    ended 0 $job
    free s a || fail 'is still held'
    start a
done
exec 8>&-
ended 0 $job

case_is '--no-stdin'
: >out.txt
"$DIBS" hold --no-stdin a </dev/null >out.txt &
job=$!
await test -s out.txt
held s a || fail 'is not held any more'
kill -TERM $job
ended 0 $job

case_is 'lost'
start --lease 10s a
await test -s out.txt
redis s del a >/dev/null
ended 80 $job
same stderr 'dibs: lost a' "$(cat err.txt)"
same cause lost "$(json cause "$(cat status.txt)")"
exec 8>&-

case_is 'not renewed'
start --lease 300ms --no-renew a
ended 80 $job
exec 8>&-

case_is taken
redis s hset b 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1 >/dev/null
ran 75 dibs hold -n b </dev/null
same stdout '' "$out"
same stderr 'dibs: b is taken: held by 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1, lease without end' "$err"
redis s pexpire b 3600000 >/dev/null
ran 75 dibs hold -n b </dev/null
same stderr 'dibs: b is taken: held by 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1, lease ends in 59 min N s unless it is renewed' \
    "$(sed 's/ [0-9]* s unless/ N s unless/' <<<"$err")"
redis s persist b >/dev/null
ran 0 dibs hold -n --ok-if-busy b </dev/null
ran 9 dibs hold -w 50ms -E 9 -q b </dev/null
same stderr '' "$err"

case_is 'a signal while it waits'
"$DIBS" hold -v b </dev/null >out.txt 2>err.txt &
job=$!
await said waiting err.txt
kill -TERM $job
ended 143 $job

case_is '--min-hold'
ran 0 dibs hold --min-hold 1h c </dev/null
held s c || fail 'is not held'

case_is 'every subcommand notices that stdout is full'
held s c || fail 'there is no lock to show'
for sub in "info c" "info --json c" ls "ls --json" doctor "doctor --json" \
    "queue --json c" version help "help run" "local status" \
    "force-unlock --yes c"; do
    ran 70 sh -c "\"\$DIBS\" $sub >/dev/full"
done
