# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs watch and dibs wait: what changes is printed, and a wait takes nothing.

server s
export DIBS_URL=$url

x=00000000-0000-4000-8000-000000000001
y=00000000-0000-4000-8000-000000000002
on=s # the server of lock

lock() { # NAME OWNER [TTL]
    redis $on eval "redis.call('hset', KEYS[1], ARGV[1], 1)
        if ARGV[2] then redis.call('pexpire', KEYS[1], ARGV[2]) end" \
        1 "$@" >/dev/null
}

follow() { # WORDS...: watches in the background, into out.w and err.w
    : >out.w
    : >err.w
    "$DIBS" watch --every 100ms "$@" >out.w 2>err.w 8>&- &
    watcher=$!
}

unfollow() {
    kill $watcher
    ended 143 $watcher
}

case_is 'one lock'
follow a
await said 'a: free' out.w
lock a $x:1
await said "a: taken by $x:1" out.w
redis s eval "redis.call('del', KEYS[1]) redis.call('hset', KEYS[1], ARGV[1], 1)" \
    1 a $y:1 >/dev/null
await said "a: taken by $y:1, before: $x:1" out.w
redis s del a >/dev/null
await said "a: free; $y:1 had it for" out.w
unfollow
same stderr '' "$(cat err.w)"
same lines 4 "$(wc -l <out.w)"

case_is 'held when it begins; and who it is'
"$DIBS" hold --no-stdin a >held.txt 2>&1 &
job=$!
await test -s held.txt
follow a
await said "a: held by $(head -c 36 held.txt)" out.w
has who "pid $job" "$(cat out.w)"
kill $job
await said 'had it for at least' out.w
unfollow
wait $job

lease_ends() {
    case_is 'a lease that runs out is a loss'
    on=l
    server l
    DIBS_URL=$url
    follow lease
    await said 'lease: free' out.w
    lock lease $x:1 3000 # as one step: who sees it taken, sees its end
    await said "taken by $x:1" out.w
    await said "lease: lost by $x:1: its lease ran out" out.w
    unfollow
}
beside lease_ends lease_ends

case_is 'more wait'
mkfifo in
: >held.txt
"$DIBS" hold a <in >held.txt 2>&1 &
job=$!
exec 8>in
await test -s held.txt
follow a
await said 'a: held by' out.w
"$DIBS" run a -- true 8>&- &
first=$!
await said 'a: 1 waits, before: 0' out.w
exec 8>&-
ended 0 $job
ended 0 $first
await said 'a: free' out.w
unfollow

case_is 'a pattern, in JSON'
lock 'j:1' $x:1
lock other $x:1
follow --json 'j:*'
await said '"event":"held"' out.w
redis s hset j:2 mode read $x:1 1 >/dev/null
await said '"event":"taken"' out.w
redis s hset j:2 $y:1 1 >/dev/null
await said '"event":"holders"' out.w
redis s del j:1 >/dev/null
await said '"event":"free"' out.w
unfollow
not grep -q other out.w || fail 'a lock that does not match'
has held '"event":"held","name":"j:1","locked":true,"kind":"lock","mode":"exclusive","owner":"'$x':1"' \
    "$(cat out.w)"
has free '"event":"free","name":"j:1","locked":false' "$(cat out.w)"
has free '"previous":"'$x':1"' "$(cat out.w)"
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys
for line in sys.stdin:
    assert json.loads(line)["time"].endswith("Z")' <out.w || fail 'not JSON lines'
fi
redis s flushall >/dev/null

case_is 'latches and semaphores, which have no owners'
follow
ran 0 dibs latch set l 2
await said 'l: closed, 2 left' out.w
ran 0 dibs latch set l 0
await said 'l: open after ' out.w
ran 0 dibs sem set m 3
handle=$(dibs sem acquire --lease 1m m)
await said 'm: taken, 2 free' out.w
ran 0 dibs sem release --owner "$handle" m
await said 'm: all permits are back after ' out.w
unfollow
follow --json
ran 0 dibs latch set l 2
await said '"name":"l","locked":true' out.w
ran 0 dibs latch set l 0
await said '"event":"free","name":"l"' out.w
unfollow
not grep -q '"previous":""' out.w || fail 'an owner without a name'
redis s flushall >/dev/null

case_is 'it ends with its reader'
lock a $x:1
"$DIBS" watch > >(head -n 1 >out.w) &
watcher=$!
ended 0 $watcher
await said "a: held by $x:1" out.w # head may write it when the pipe is closed
redis s flushall >/dev/null

case_is 'nothing from a server commands a terminal'
evil=$x$':1\e]0;t\a\xc2\x9b2J'
lock "$evil" "$evil"
follow
await said 'held by' out.w
redis s del "$evil" >/dev/null
await said 'free; ' out.w
unfollow
not grep -q $'[\x01-\x08\x0b-\x1f\x7f]' out.w || fail 'a control character'
not grep -qa $'\xc2\x9b' out.w || fail 'a control character of two bytes'

case_is 'the server goes and comes back'
server t
follow -u "$url" b
await said 'b: free' out.w
kill -9 $server_pid
await said 'cannot look' err.w
server t
await said 'answers again' err.w
redis t hset b $x:1 1 >/dev/null
await said "b: taken by $x:1" out.w
unfollow
same 'told once' 1 "$(grep -c 'cannot look' err.w)"

case_is 'a scan, never KEYS; and not too often'
redis s config resetstat >/dev/null
follow
scans() { redis s info commandstats | grep -q 'cmdstat_scan:calls=[4-9]'; }
await scans
unfollow
same KEYS 0 "$(redis s info commandstats | grep -c cmdstat_keys:)"

case_is 'errors'
ran 64 dibs watch --every 99ms
has stderr '--every: shorter than 100 ms' "$err"
ran 64 dibs watch a b
redis s set string x >/dev/null
ran 64 dibs watch string
has stderr 'something else' "$err"
redis s acl setuser mute on '>pw' '~*' '&*' +@all -scan >/dev/null
DIBS_PASSWORD=pw ran 77 dibs -u "unix://mute@$T/s.sock" watch
has stderr NOPERM "$err"
redis s acl deluser mute >/dev/null
redis s del string >/dev/null
ran 69 dibs -u "unix://$T/none.sock" watch

# ---- wait -----------------------------------------------------------------

case_is 'wait: it is free'
ran 0 dibs wait a
same stdout '' "$out"
same stderr '' "$err"
free s a || fail 'it was taken'

case_is 'wait: -n, and a time'
lock a $x:1
ran 75 dibs wait -n a
same stderr 'dibs: a is still held' "$err"
ran 75 dibs wait -w 100ms a
ran 75 dibs wait -q -w 0 a
same stderr '' "$err"
ran 9 dibs wait -E 9 -n a
held s a || fail 'it is not held any more'

case_is 'wait: until it is released, without taking it'
for kind in '' --fair -s -x '-N 2'; do
    redis s flushall >/dev/null
    rm -f in
    mkfifo in
    : >held.txt
    # shellcheck disable=SC2086
    "$DIBS" hold $kind a <in >held.txt 2>&1 &
    job=$!
    exec 8>in
    await test -s held.txt
    : >err.w
    "$DIBS" wait -v a 2>err.w 8>&- &
    waiter=$!
    await said 'a is held by' err.w
    alive $waiter || fail "$kind: it did not wait"
    exec 8>&-
    ended 0 $job
    ended 0 $waiter
    "$DIBS" info -q a && fail "$kind: it was taken"
done

case_is 'wait: not for what has a wait of its own'
redis s flushall >/dev/null
ran 0 dibs latch set l 2
ran 64 dibs wait l
has stderr "l is a latch: use 'dibs latch wait'" "$err"
ran 0 dibs sem set m 1
ran 0 dibs sem acquire --lease 1m m
ran 64 dibs wait m
has stderr "m is a semaphore: use 'dibs sem acquire'" "$err"
redis s flushall >/dev/null

case_is 'wait: a lease runs out'
lock a $x:1 300
ran 0 dibs wait a

case_is 'wait: a signal ends it'
lock a $x:1
: >err.w
"$DIBS" wait -v a 2>err.w &
waiter=$!
await said 'a is held by' err.w
kill $waiter
ended 143 $waiter

case_is 'wait: the server goes and comes back'
redis t hset b $x:1 1 >/dev/null
: >err.w
"$DIBS" wait -v -u "unix://$T/t.sock" b 2>err.w &
waiter=$!
await said 'b is held by' err.w
kill -9 $server_pid
await said 'no usable connection' err.w
alive $waiter || fail 'it gave up'
server t
ended 0 $waiter

case_is 'wait: errors'
ran 64 dibs wait
ran 69 dibs -u "unix://$T/none.sock" wait a
redis s set string x >/dev/null
ran 64 dibs wait string
has stderr 'something else' "$err"
redis s acl setuser mute on '>pw' '~*' '&*' +@all -eval -evalsha >/dev/null
DIBS_PASSWORD=pw ran 77 dibs -u "unix://mute@$T/s.sock" wait a

case_is 'watch: a server that was silent is looked at again soon'
server u
u_pid=$server_pid
follow -u "$url" c
await said 'c: free' out.w
kill -STOP $u_pid
await said 'cannot look' err.w
kill -CONT $u_pid
# Gone long before a pause of twice the silence would end.
redis u eval "redis.call('hset', KEYS[1], ARGV[1], 1)
    redis.call('pexpire', KEYS[1], 5000)" 1 c $x:1 >/dev/null
await said "c: taken by $x:1" out.w
unfollow
