# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# The private server: started once, closed to others, found again, stopped; and
# every reason not to start it.

dir=$XDG_RUNTIME_DIR/dibs
sock=$dir/redis.sock
told="dibs: no URL given: started a private redis-server on $sock (end it with: dibs local stop)"

case_is 'not running'
ran 69 dibs local status
has stdout 'not running' "$out"
ran 0 dibs local stop
same stdout 'not running' "$out"
ran 70 sh -c '"$DIBS" local status >/dev/full'
ran 69 dibs local status --json
same running false "$(json running "$out")"

case_is 'looking does not start it, and says what it looked at'
idle="dibs: no URL given, and the private server of this user (unix://$sock) does not run: no locks there"
private="private, for this user on this machine: unix://$sock"
ran 0 dibs ls
same stdout '' "$out"
same stderr "$idle" "$err"
ran 0 dibs -q ls
same stderr '' "$err"
ran 0 dibs ls --json
same stdout '[]' "$out"
same stderr "$idle" "$err"
ran 0 dibs queue a
same stdout 'nobody waits' "$out"
same stderr "$idle" "$err"
ran 0 dibs info a
same stdout $'name     a\nstate    free\nserver   '"$private" "$out"
same stderr "$idle" "$err"
ran 0 dibs info --json a
same 'private' true "$(json private_server "$out")"
same waiters 0 "$(json waiters "$out")"
ran 0 dibs force-unlock --yes a
same stdout 'a was not held' "$out"
same 'nothing made' '' "$(ls -A "$XDG_RUNTIME_DIR")"

case_is 'twenty at once start one'
rm err.txt
for i in $(seq 20); do
    "$DIBS" run count -- sh -c 'n=$(cat n 2>/dev/null); echo $((n + 1)) >n' \
        2>"err.$i" &
    jobs[i]=$!
done
for i in $(seq 20); do
    ended 0 "${jobs[i]}"
done
same 'they excluded each other' 20 "$(cat n)"
same 'told once' "$told" "$(cat err.*)"
servers() {
    ps -eo args | grep -c "^redis-server [u]nixsocket:$sock"
}
same 'one server' 1 "$(servers)"

case_is 'told no more, unless asked'
ran 0 dibs run a -- true
same stderr '' "$err"
ran 0 dibs run -v a -- true
has stderr "no URL given: the private server of this user on this machine, $sock" "$err"
ran 0 dibs info a
has stdout "server   $private" "$out"
same stderr '' "$err"
ran 0 dibs ls
same stderr '' "$err"
ran 0 dibs doctor
has stdout "note     server       private, as no URL was given: unix://$sock; other users and other machines do not share its locks" "$out"
ran 0 dibs doctor --json
has stdout '{"check":"server","verdict":"note","text":"private, as no URL was given' "$out"
ran 0 dibs -u "unix://$sock" doctor
! grep -q '^note     server ' out.txt || fail 'it was named'
ran 0 dibs -u "unix://$sock" info a
! grep -q '^server   private' out.txt || fail 'it was named private'

case_is 'closed to others'
same folder 700 "$(stat -c %a "$dir")"
same socket 700 "$(stat -c %a "$sock")"
same 'no port' 0 "$(redis-cli -s "$sock" config get port | tail -n 1)"
same 'no eviction' noeviction \
    "$(redis-cli -s "$sock" config get maxmemory-policy | tail -n 1)"
same 'no snapshots' '' "$(redis-cli -s "$sock" config get save | tail -n 1)"

case_is 'apart from us'
ran 70 sh -c '"$DIBS" local status >/dev/full'
ran 0 dibs local status --json
pid=$(json pid "$out")
same 'its own session' 0 "$(ps -o sid= -p "$pid" | grep -c "^ *$(ps -o sid= -p $$ | tr -d ' ')$")"
same 'no descriptors of ours' 0 \
    "$(find "/proc/$pid/fd" -lname "$T/out.txt" | wc -l)"
[ "$(json url "$out")" = "unix://$sock" ] || fail "url: $out"

case_is 'stop is refused while locks are held'
mkfifo in
"$DIBS" hold --lease 2s a <in >hold.txt 2>/dev/null &
job=$!
exec 8>in
await test -s hold.txt
ran 75 dibs local stop
same stderr 'dibs: 1 lock is held there (dibs ls); --force stops it anyway' \
    "$err"
alive "$pid" || fail 'it was stopped'

case_is 'stop --force'
ran 0 dibs local stop --force
same stdout "stopped process $pid" "$out"
dead "$pid" || fail 'it lives'
exec 8>&-
wait $job
[ $? -ne 0 ] || fail 'the holder did not notice'

case_is 'a socket that nobody listens on'
ran 0 dibs run a -- true
same stderr "$told" "$err"
ran 0 dibs local status --json
kill -KILL "$(json pid "$out")"
await dead "$(json pid "$out")"
test -S "$sock" || fail 'it is gone'
ran 0 dibs run a -- true
same stderr "$told" "$err"

case_is '-q'
dibs local stop >/dev/null
ran 0 dibs run -q a -- true
same stderr '' "$err"

case_is 'started by a command with closed descriptors and ignored signals'
dibs local stop >/dev/null
(
    trap '' HUP TERM
    "$DIBS" run a -- true <&- >&- 2>&-
)
ran 0 dibs local status
ran 0 dibs local stop

case_is 'a server that was named is never replaced'
DIBS_URL=unix://$T/none.sock ran 69 dibs run a -- echo no
same stdout '' "$out"
same stderr "dibs: no answer from unix://$T/none.sock: No such file or directory; is a server running there, and is this its address?" "$err"
ran 69 dibs run -u "unix://$T/none.sock" a -- true
ran 69 dibs -u "unix://$T/none.sock" info a
same 'nothing started' 0 "$(servers)"
rm -rf "$dir"

# ---- refused -----------------------------------------------------------

hint='; give a server with -u URL, or another folder in XDG_RUNTIME_DIR'
refused() { # WHY...
    local why=$1
    ran 69 dibs run a -- echo no
    same stdout '' "$out"
    same stderr "dibs: no place for a private server: $why$hint" "$err"
    same 'nothing started' 0 "$(servers)"
}

case_is 'a folder open to others'
mkdir -m 755 "$dir"
refused "$dir is open to others (chmod 700 it)"
rmdir "$dir"

case_is 'a link'
mkdir -m 700 elsewhere
ln -s "$T/elsewhere" "$dir"
refused "$dir is not a folder"
rm "$dir"

case_is 'a file'
: >"$dir"
refused "$dir is not a folder"
rm "$dir"

case_is 'no such folder'
XDG_RUNTIME_DIR=$T/none refused "$T/none No such file or directory"

case_is 'a relative path'
XDG_RUNTIME_DIR=runtime refused 'runtime is not an absolute path'

case_is 'too long a path'
long=$T/$(printf '%120s' '' | tr ' ' x)
mkdir -m 700 "$long"
XDG_RUNTIME_DIR=$long refused "$long is too long for a socket's address"

case_is 'somebody else'"'"'s folder'
if [ "$(id -u)" -eq 0 ]; then
    mkdir -m 700 theirs
    chown 65534 theirs
    XDG_RUNTIME_DIR=$T/theirs refused "$T/theirs belongs to somebody else"
    mkdir -m 700 "$dir"
    chown 65534 "$dir"
    refused "$dir belongs to somebody else"
    rmdir "$dir"
else
    XDG_RUNTIME_DIR=/ refused '/ belongs to somebody else'
fi

case_is 'an unwritable folder'
mkdir -m 700 sealed
chmod 500 sealed
if [ "$(id -u)" -eq 0 ]; then
    # Nothing is unwritable for root, except where nobody can write.
    XDG_RUNTIME_DIR=/proc/self ran 69 dibs run a -- true
    has stderr 'no place for a private server: /proc/self/dibs ' "$err"
else
    XDG_RUNTIME_DIR=$T/sealed refused "$T/sealed/dibs Permission denied"
fi

case_is 'no redis-server'
mkdir bin
ln -s "$(command -v env)" bin/env
ran 69 env PATH="$T/bin" "$DIBS" run a -- env
same stderr "dibs: no URL given, and no redis-server or valkey-server to start: install one, or give a server with -u URL" "$err"
same stdout '' "$out"

case_is 'a redis-server that does not start'
printf '#!/bin/sh\nexit 1\n' >bin/redis-server
chmod +x bin/redis-server
ran 69 env PATH="$T/bin:$PATH" "$DIBS" run a -- true
has stderr "the private redis-server ended at once; see $dir/redis.log" "$err"

case_is 'a redis-server that never listens: -w counts'
printf '#!/bin/sh\necho $$ >%s/slow.pid\nexec sleep 1000\n' "$T" >bin/redis-server
ran 69 timeout 60 env PATH="$T/bin:$PATH" "$DIBS" run -w 1s a -- true
has stderr 'the private redis-server did not start in time' "$err"
await test -s slow.pid
kill "$(cat slow.pid)"

case_is 'valkey-server will do'
rm bin/redis-server
ln -s "$(command -v redis-server)" bin/valkey-server
ran 0 env PATH="$T/bin" "$DIBS" run a -- env
ran 0 dibs local stop

case_is 'odd characters in the path'
odd="$T/a b%c?d"
mkdir -m 700 "$odd"
XDG_RUNTIME_DIR=$odd ran 0 dibs run a -- echo here
same stdout here "$out"
XDG_RUNTIME_DIR=$odd dibs local stop >/dev/null

case_is 'stopped where a process has no descriptor'
$CC -o nosys "$HERE/nosys.c" || fail 'cannot build nosys'
if ./nosys true; then
    ran 0 ./nosys "$DIBS" run a -- true
    ran 0 dibs local status
    pid=$(grep -o 'process [0-9]*' <<<"$out" | grep -o '[0-9]*')
    ran 0 ./nosys "$DIBS" local stop
    has stdout "stopped process $pid" "$out$err"
    dead "$pid" || fail 'it lives'
fi

# The server has noticed that its clients have left.
unused() {
    ! awk -v path="$T/gone/dibs/redis.sock" \
        '$6 == "03" && $8 == path { print }' /proc/net/unix | grep -q .
}

case_is 'its folder is removed: no second server while the first is in use'
mkdir -m 700 gone
export XDG_RUNTIME_DIR=$T/gone
"$DIBS" hold --no-stdin a >held.txt 2>/dev/null &
job=$!
await test -s held.txt
ran 0 dibs local status
pid=$(grep -o 'process [0-9]*' <<<"$out" | grep -o '[0-9]*')
rm -rf gone/dibs
ran 69 dibs run -n a -- echo here
has stderr "its socket is gone (process $pid)" "$err"
same stdout '' "$out"
kill $job
ended 0 $job
await unused
ran 0 dibs run -n a -- echo here
same stdout here "$out"
dead "$pid" || fail 'the first server lives'

case_is 'its socket is removed'
ran 0 dibs local status
pid=$(grep -o 'process [0-9]*' <<<"$out" | grep -o '[0-9]*')
await unused
rm gone/dibs/redis.sock
ran 0 dibs run -n a -- echo here
same stdout here "$out"
dead "$pid" || fail 'the first server lives'
ran 0 dibs local stop

case_is 'SIGCHLD is ignored: it is started all the same'
for words in 'latch set l 1' 'slots set n 2' 'run a -- true' 'acquire --lease 1m k'; do
    # shellcheck disable=SC2016,SC2086
    ran 0 bash -c 'trap "" CHLD; exec "$DIBS" "$@"' bash $words
    ran 0 dibs local stop --force
done
