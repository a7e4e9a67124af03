# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What systemd hears: READY when the lock is held, signs of life while it is,
# STOPPING at the end; and a unit that systemd understands.

server s
export DIBS_URL=$url

# Listens, and writes down each message as one line.
cat >listen.py <<'END'
import os, socket, sys

s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
name = sys.argv[1]
s.bind("\0" + name[1:] if name[0] == "@" else name)
with open(sys.argv[2], "w") as out:
    out.write("listens\n")
    out.flush()
    while True:
        text = s.recv(65536).decode()
        if text == "end":
            break
        out.write(text.replace("\n", " ") + "\n")
        out.flush()
END
listen() { # SOCKET; messages go to heard.txt
    rm -f heard.txt
    python3 listen.py "$1" heard.txt &
    listener=$!
    await said listens heard.txt
    export NOTIFY_SOCKET=$1
}
hush() {
    kill $listener
    wait $listener 2>/dev/null
    unset NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID
}
messages() { # without signs of life, owners cut
    sed -e 1d -e '/^WATCHDOG=1$/d' -e 's/ as [0-9a-f-]*:1$/ as OWNER/' heard.txt
}
wanted="STATUS=waits for a
READY=1 STATUS=holds a as OWNER
STOPPING=1 STATUS=releases a"
end_seen() { said STOPPING=1 heard.txt; }

for socket in "$T/notify.sock" "@dibs-notify-$$"; do
    case_is "run, $socket"
    listen "$socket"
    ran 0 dibs run a -- sh -c 'env; exit 0'
    await end_seen
    same messages "$wanted" "$(messages)"
    ! grep -q '^NOTIFY_SOCKET=' out.txt || fail 'the command got the socket'
    hush
done

case_is 'waiting is not ready'
mkfifo go
"$DIBS" run a -- sh -c 'read x <go' &
first=$!
await held s a
rm -f notify.sock
listen "$T/notify.sock"
"$DIBS" run a -- true &
second=$!
await said 'waits for a' heard.txt
! said READY heard.txt || fail 'ready without the lock'
echo >go
ended 0 $first
ended 0 $second
await end_seen
same messages "$wanted" "$(messages)"
hush

case_is 'not taken: never ready'
"$DIBS" run a -- sh -c 'read x <go' &
first=$!
await held s a
rm -f notify.sock
listen "$T/notify.sock"
ran 75 dibs run -n a -- true
ran 127 dibs run b -- "$T/none"
await said 'waits for b' heard.txt
same messages "STATUS=waits for a
STATUS=waits for b" "$(messages)"
hush
echo >go
ended 0 $first

case_is 'signs of life, until renewals fail'
rm -f notify.sock
listen "$T/notify.sock"
export WATCHDOG_USEC=100000
"$DIBS" run --lease 3s --on-lost warn a -- sh -c 'env >env.txt; read x <go' \
    2>/dev/null &
pid=$!
signs() { [ "$(grep -cx WATCHDOG=1 heard.txt)" -ge "$1" ]; }
await signs 4
! grep -q '^WATCHDOG' env.txt || fail 'the command got the watchdog'
kill -STOP "$server_pid"
quiet() { # none for five times as long as there should be one
    local before
    before=$(grep -cx WATCHDOG=1 heard.txt)
    sleep 0.5
    [ "$(grep -cx WATCHDOG=1 heard.txt)" -eq "$before" ]
}
for ((i = 0; i < 40; i++)); do
    quiet && break
done
[ $i -lt 40 ] || fail 'signs of life of a lock that is not renewed'
alive $pid || fail 'it ended'
kill -CONT "$server_pid"
echo >go
wait $pid
await end_seen
hush

case_is 'signs of life of another process'
rm -f notify.sock
listen "$T/notify.sock"
export WATCHDOG_USEC=2000 WATCHDOG_PID=1
ran 0 dibs run a -- sleep 0.2
await end_seen
! said WATCHDOG heard.txt || fail 'it was not meant'
hush

case_is 'lost'
rm -f notify.sock
listen "$T/notify.sock"
"$DIBS" run --lease 10s a -- sleep 1000 2>/dev/null &
pid=$!
await said READY=1 heard.txt
redis s del a >/dev/null
ended 80 $pid
await end_seen
grep -q '^STOPPING=1 STATUS=lost a: ' heard.txt || fail "$(messages)"
hush

case_is 'hold'
rm -f notify.sock
listen "$T/notify.sock"
export WATCHDOG_USEC=100000
"$DIBS" hold --no-stdin a >held.txt &
pid=$!
await signs 2
kill -TERM $pid
ended 0 $pid
await end_seen
same messages "$wanted" "$(messages)"
hush

case_is 'one line, whatever the name'
rm -f notify.sock
listen "$T/notify.sock"
ran 0 dibs run --any-name $'a\nREADY=1' -- true
await end_seen
same lines 3 "$(messages | wc -l)"
! grep -q '^STATUS=waits for a READY' heard.txt || fail "$(messages)"
hush

case_is 'the command tells by itself'
rm -f notify.sock
listen "$T/notify.sock"
export WATCHDOG_USEC=100000 WATCHDOG_PID=1
ran 0 dibs run --pass-notify a -- env
has environment "NOTIFY_SOCKET=$T/notify.sock" "$out"
has environment "WATCHDOG_USEC=100000" "$out"
! grep -q '^WATCHDOG_PID' out.txt || fail 'a number that is not its own'
same messages '' "$(messages)"
hush

case_is 'nobody listens, or no address'
for socket in "$T/none.sock" @none-$$ x / "/$(printf '%0200d' 0)"; do
    NOTIFY_SOCKET=$socket ran 0 dibs run -v a -- true
    grep -q 'systemd\|NOTIFY_SOCKET' err.txt || fail "$socket: $err"
done

case_is 'the unit is one'
unit=$HERE/../../examples/dibs-leader.service
if command -v systemd-analyze >/dev/null; then
    # With programs that are there.
    sed -e "s|/usr/bin/dibs|$DIBS|" -e 's|/usr/bin/serve|/bin/true|' "$unit" \
        >dibs-leader.service
    ran 0 systemd-analyze verify --man=no "$T/dibs-leader.service"
    same 'what it says' '' "$(grep -F dibs-leader err.txt)"
fi
# And its line runs.
rm -f notify.sock
listen "$T/notify.sock"
line=$(sed -n 's/^ExecStart=//p' "$unit")
line=${line//\/usr\/bin\/dibs/$DIBS}
line=${line//\/usr\/bin\/serve/true}
line=${line//%H/host}
ran 0 sh -c "$line"
await end_seen
has ready 'READY=1' "$(messages)"
hush

case_is '--ready waiting: started while it waits'
rm -f notify.sock
listen "$T/notify.sock"
export WATCHDOG_USEC=100000
redis s hset w 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1 >/dev/null
"$DIBS" run -q --ready waiting w -- true &
first=$!
await signs 3 # or systemd would end it
same messages 'READY=1 STATUS=waits for w' "$(messages)"
redis s del w >/dev/null
ended 0 $first
await end_seen
same messages 'READY=1 STATUS=waits for w
STATUS=holds w as OWNER
STOPPING=1 STATUS=releases w' "$(messages)"
hush

case_is '--ready waiting: hold, and a server that is away'
rm -f notify.sock
listen "$T/notify.sock"
export WATCHDOG_USEC=100000
"$DIBS" hold --no-stdin --ready waiting --server-wait forever \
    -u "unix://$T/away.sock" w >held.txt 2>/dev/null &
first=$!
await signs 3
alive $first || fail 'it gave up'
server away
await test -s held.txt
kill $first
ended 0 $first
await end_seen
same messages 'READY=1 STATUS=waits for w
STATUS=holds w as OWNER
STOPPING=1 STATUS=releases w' "$(messages)"
hush

# ---- all units -------------------------------------------------------------

. "$HERE/lib_recipes.sh"
recipes
mkdir -p units
for unit in "$top"/examples/*.service "$top"/debian/*.service; do
    [ ! -e "$unit" ] || cp "$unit" units/
done
for unit in blocks/*.unit blocks/*.unitsteps; do
    [ ! -e "$unit" ] || cp "$unit" "units/$(basename "$unit" | tr . -).service"
done
same 'units that there are' 4 "$(ls units | wc -l)"
for unit in units/*.service; do
    case_is "$unit"
    if grep -q '^Restart=' "$unit"; then
        grep -qx 'StartLimitIntervalSec=0' "$unit" || fail 'systemd gives up on it'
        grep -q -- '--server-wait forever' "$unit" || fail 'it gives up on the server'
    fi
    if grep -qx 'Type=notify' "$unit"; then
        grep -q -- '--ready waiting' "$unit" || fail 'the boot waits for it'
    fi
    command -v systemd-analyze >/dev/null || continue
    # The programs need not be here.
    sed -i 's#^\(Exec[A-Za-z]*=-\{0,1\}\)/[^ ]*#\1/bin/true#' "$unit"
    ran 0 systemd-analyze verify --man=no "$T/$unit"
    same 'what it says' '' "$(grep -F "$(basename "$unit" .service)" err.txt)"
done

case_is 'the leader waits for a server that is away'
rm -f notify.sock
listen "$T/notify.sock"
server_gone=unix://$T/gone.sock
# shellcheck disable=SC2086
DIBS_URL=$server_gone sh -c "exec $line" 2>err.txt &
first=$!
await said 'trying again' err.txt
await said READY=1 heard.txt
server gone
ended 0 $first
await end_seen
hush

finish
