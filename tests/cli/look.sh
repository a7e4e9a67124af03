# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs info, ls and force-unlock: what they print, for people and for programs.

server s
export DIBS_URL=$url

x=00000000-0000-4000-8000-000000000001

lock() { # NAME OWNER [TTL]
    redis s hset "$1" "$2" 1 >/dev/null
    [ $# -lt 3 ] || redis s pexpire "$1" "$3" >/dev/null
}

case_is 'info, free'
ran 0 dibs info a
same stdout $'name     a\nstate    free\nserver   '"$url" "$out"
same stderr '' "$err"
ran 0 dibs info --json a
same stdout '{"name":"a","locked":false,"kind":"none","mode":null,"owner":null,"who":null,"owners":0,"holds":0,"ttl_ms":null,"waiters":0,"private_server":false,"server":"'"$url"'","holders":[],"queue":[]}' "$out"

case_is 'info, held'
lock a 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1
ran 0 dibs info a
same stdout "name     a
state    held
mode     exclusive
owner    1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1
holds    1
lease    no end
server   $url" "$out"
ran 0 dibs info --json a
same stdout '{"name":"a","locked":true,"kind":"lock","mode":"exclusive","owner":"1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1","who":null,"owners":1,"holds":1,"ttl_ms":null,"waiters":0,"private_server":false,"server":"'"$url"'","holders":[{"owner":"1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1","who":null,"mode":"exclusive","holds":1,"ttl_ms":null}],"queue":[]}' "$out"
redis s hset a 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 3 >/dev/null
redis s pexpire a 3600000 >/dev/null
ran 0 dibs info a
has stdout 'holds    3' "$out"
grep -Eqx 'lease    59 min [0-9]+ s left, unless it is renewed' out.txt ||
    fail "info: $out"

case_is 'info -q: the exit code tells'
ran 0 dibs info -q a
same stdout '' "$out"
same stderr '' "$err"
ran 0 dibs -q info --json a
has stdout '"locked":true' "$out"
ran 1 dibs info -q nothing-here
same stdout '' "$out"
same stderr '' "$err"
ran 1 dibs info -q --json nothing-here
has stdout '"locked":false' "$out"
ran 69 dibs info -q -u "unix://$T/none.sock" a
has stderr 'none.sock' "$err"

case_is 'data of an application is no lock'
redis s del a >/dev/null
redis s hset user:1 name bob >/dev/null
redis s hset carts u1 v1 >/dev/null
for words in 'force-unlock --yes user:1' \
    'force-unlock --yes --if-owner name user:1' 'info user:1' 'queue user:1' \
    'run user:1 -- true' 'run -w 1m carts -- true' 'run --fair carts -- true' \
    'run -s carts -- true' 'run -x carts -- true' \
    'run --multi user:1,carts -- true'; do
    # shellcheck disable=SC2086 # words
    ran 64 dibs $words
    has "$words" 'something else' "$err"
done
ran 1 dibs doctor user:1
has stdout 'problem  key' "$out"
ran 0 dibs ls
same stdout '' "$out"
ran 0 dibs ls --json
same stdout '[]' "$out"
same user bob "$(redis s hget user:1 name)"
same carts v1 "$(redis s hget carts u1)"
same fields '1 1' "$(redis s hlen user:1) $(redis s hlen carts)"
same ends '-1 -1' "$(redis s pttl user:1) $(redis s pttl carts)"
redis s del user:1 carts >/dev/null

case_is 'ls, nothing'
redis s flushall >/dev/null
ran 0 dibs ls
same stdout '' "$out"
same stderr '' "$err"
ran 0 dibs ls --json
same stdout '[]' "$out"

case_is 'ls'
lock b:2 00000000-0000-4000-8000-000000000002:17
lock a:1 $x:1
lock a:2 $x:2
redis s set string x >/dev/null
redis s sadd set x >/dev/null
ran 0 dibs ls
same stdout "NAME  MODE       LEASE   WHO
a:1   exclusive  no end  $x:1
a:2   exclusive  no end  $x:2
b:2   exclusive  no end  00000000-0000-4000-8000-000000000002:17" "$out"
ran 0 dibs ls -l 'a:*'
same stdout "NAME  MODE       HOLDERS  HOLDS  LEASE   WHO  OWNER
a:1   exclusive        1      1  no end  -    $x:1
a:2   exclusive        1      1  no end  -    $x:2" "$out"
ran 0 dibs ls 'a:*'
same lines 3 "$(wc -l <out.txt)"
ran 0 dibs ls 'zzz*'
same stdout '' "$out"
ran 0 dibs ls --json 'a:?'
row='"locked":true,"kind":"lock","mode":"exclusive","owner":"%s","who":null,"owners":1,"holds":1,"ttl_ms":null,"waiters":0'
# shellcheck disable=SC2059
same stdout "$(printf "[{\"name\":\"a:1\",$row},\n {\"name\":\"a:2\",$row}]" $x:1 $x:2)" "$out"

case_is 'many of them'
redis s flushall >/dev/null
redis s eval "for i = 1, 3000 do redis.call('hset', 'many:' .. i, ARGV[1], 1) end" 0 $x:1 \
    >/dev/null
ran 0 dibs ls
same lines 3001 "$(wc -l <out.txt)"

case_is 'SCAN, never KEYS'
redis s config resetstat >/dev/null
ran 0 dibs ls
same KEYS 0 "$(redis s info commandstats | grep -c cmdstat_keys:)"
redis s flushall >/dev/null

case_is 'names with everything in them'
odd=$'q"\\ \n\t\e[31m\x7f\xc3\xbc\xff\xe2\x82'
lock "$odd" $x:1
ran 0 dibs ls --json
same stdout '[{"name":"q\"\\ \n\t\u001b[31m\u007f'$'\xc3\xbc''\ufffd\ufffd\ufffd","name_hex":"71225c200a091b5b33316d7fc3bcffe282","locked":true,"kind":"lock","mode":"exclusive","owner":"'$x':1","who":null,"owners":1,"holds":1,"ttl_ms":null,"waiters":0}]' "$out"
ran 0 dibs ls
has stdout 'q"\ \n\t\x1b[31m\x7f'$'\xc3\xbc''\xff\xe2\x82' "$out"
ran 0 dibs info "$odd"
has stdout 'state    held' "$out"
ran 0 dibs force-unlock --yes "$odd"
has stdout "was held by $x:1 and is free now" "$out"
redis s flushall >/dev/null

case_is 'nothing from a server commands a terminal'
evil=$x$':1\e]0;t\a\xc2\x9b2J\xe2\x80\xae\xe2\x81\xa6\xe2\x80\x8b\xef\xbb\xbf\xe3\x85\xa4\xf3\xa0\x81\x81'
shown=$x':1\x1b]0;t\x07\xc2\x9b2J\xe2\x80\xae\xe2\x81\xa6\xe2\x80\x8b\xef\xbb\xbf\xe3\x85\xa4\xf3\xa0\x81\x81'
quiet() { # WHAT
    ! grep -q $'[\x01-\x08\x0b-\x1f\x7f]' out.txt err.txt || fail "$1: $out $err"
    ! grep -qaE $'\xc2\x9b|\xe2\x80|\xe2\x81|\xef\xbb|\xe3\x85|\xf3\xa0' out.txt err.txt || fail "$1: $out $err"
}
lock "$evil" "$evil" 3600000
for words in info 'info --json' queue 'run -n --any-name' 'hold -n --any-name'; do
    # shellcheck disable=SC2086
    dibs $words "$evil" $([ "${words%% *}" != run ] || echo -- true) \
        >out.txt 2>err.txt </dev/null
    out=$(cat out.txt) err=$(cat err.txt)
    quiet "$words"
done
redis s hset rw mode read "$evil" 1 >/dev/null
ran 0 dibs info rw
has stdout "reader   $shown" "$out"
quiet readers
redis s rpush 'redisson_lock_queue:{q}' "$evil" >/dev/null
ran 0 dibs queue q
has stdout "waits    1. $shown" "$out"
quiet queue
ran 0 dibs ls
quiet ls
ran 0 dibs ls --json
quiet 'ls --json'
has stdout '\ufeff\u3164\udb40\udc41' "$out"
ran 0 dibs force-unlock --yes "$evil"
same stdout "$shown was held by $shown and is free now" "$out"
ran 75 dibs force-unlock --yes --if-owner y rw
quiet force-unlock
ran 64 dibs "$evil"
quiet usage
ran 64 dibs run "--$evil" a -- true
quiet usage
ran 64 dibs run -u "$evil" a -- true
quiet URL
redis s flushall >/dev/null

case_is 'force-unlock'
lock a 00000000-0000-4000-8000-000000000001:1
ran 0 dibs force-unlock --yes a
same stdout 'a was held by 00000000-0000-4000-8000-000000000001:1 and is free now' "$out"
free s a || fail 'is still held'
ran 0 dibs force-unlock --yes a
same stdout 'a was not held' "$out"
lock a 00000000-0000-4000-8000-000000000001:1
ran 0 dibs force-unlock --json --yes a
same stdout '{"name":"a","freed":true,"owner":"00000000-0000-4000-8000-000000000001:1"}' "$out"
ran 0 dibs force-unlock --json --yes a
same stdout '{"name":"a","freed":false,"owner":null}' "$out"

case_is 'force-unlock --if-owner'
lock a 00000000-0000-4000-8000-000000000001:1
ran 75 dibs force-unlock --yes --if-owner 00000000-0000-4000-8000-000000000009:1 a
same stdout '' "$out"
same stderr 'dibs: a is held by 00000000-0000-4000-8000-000000000001:1: nothing done' "$err"
held s a || fail 'is not held any more'
ran 75 dibs force-unlock --json --yes --if-owner 00000000-0000-4000-8000-000000000009:1 a
same stdout '{"name":"a","freed":false,"owner":"00000000-0000-4000-8000-000000000001:1"}' "$out"
ran 0 dibs force-unlock --yes --if-owner 00000000-0000-4000-8000-000000000001:1 a
free s a || fail 'is still held'
ran 0 dibs force-unlock --yes --if-owner 00000000-0000-4000-8000-000000000001:1 a

case_is 'force-unlock without --yes'
lock a 00000000-0000-4000-8000-000000000001:1
ran 64 dibs force-unlock a
held s a || fail 'is not held any more'

case_is 'force-unlock wakes who waits'
"$DIBS" run -v a -- echo ran >job.txt 2>job.err &
job=$!
await said waiting job.err
dibs force-unlock --yes a >/dev/null
ended 0 $job
same stdout ran "$(cat job.txt)"

case_is 'who waits for a lock without a queue'
waits_for() { # KIND-OF-LOCK WORDS...
    local kind=$1
    shift
    mkfifo in 2>/dev/null
    : >held.txt
    "$DIBS" hold "$@" a <in >held.txt 2>err.txt 8>&- &
    job=$!
    exec 8>in
    await test -s held.txt
    "$DIBS" run "$@" a -- true 8>&- &
    first=$!
    "$DIBS" run "$@" a -- true 8>&- &
    second=$!
    two() { [ "$(json waiters "$("$DIBS" info --json a)")" = 2 ]; }
    await two
    ran 0 dibs ls --json
    same "$kind: ls" 2 "$(json waiters "$out")"
    ran 0 dibs info a
    info=$out
    ran 0 dibs queue a
}
no_more_waiting() {
    exec 8>&-
    ended 0 $job
    ended 0 $first
    ended 0 $second
}
for kind in '' -x; do
    waits_for "plain $kind" $kind
    has info 'waits    2 clients, in no particular order' "$info"
    same stdout 'no queue: only a fair lock has one
waits    2 clients, in no particular order' "$out"
    redis s acl setuser mute on '>pw' '~*' '&*' +@all -pubsub >/dev/null
    DIBS_PASSWORD=pw ran 0 dibs -u "unix://mute@$T/s.sock" info --json a
    same 'not known' null "$(json waiters "$out")"
    DIBS_PASSWORD=pw ran 0 dibs -u "unix://mute@$T/s.sock" ls --json
    same 'not known' null "$(json waiters "$out")"
    DIBS_PASSWORD=pw ran 0 dibs -u "unix://mute@$T/s.sock" info a
    ! grep -q waits out.txt || fail 'who told?'
    DIBS_PASSWORD=pw ran 0 dibs -u "unix://mute@$T/s.sock" queue a
    same stdout 'nobody is in a queue; only a fair lock has one' "$out"
    no_more_waiting
done
waits_for fair --fair
has info 'waits    2. ' "$info"
has stdout 'waits    2. ' "$out"
has stdout ' keeps its place ' "$out"
has stdout ' without a sign of life' "$out"
ran 0 dibs info --json a
has queue '"queue":[{"place":1,"owner":"' "$out"
has queue '{"place":2,"owner":"' "$out"
no_more_waiting
ran 0 dibs queue a
same stdout 'nobody waits' "$out"

case_is 'every holder, in JSON'
redis s hset a mode read $x:1 1 $x:2 2 >/dev/null
redis s set "{a}:$x:1:rwlock_timeout:1" 1 PX 100000 >/dev/null
redis s set "{a}:$x:2:rwlock_timeout:1" 1 PX 100000 >/dev/null
redis s pexpire a 100000 >/dev/null
ran 0 dibs info --json a
for n in 1 2; do
    has holders "{\"owner\":\"$x:$n\",\"who\":null,\"mode\":\"read\",\"holds\":$n,\"ttl_ms\":" "$out"
done
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys
d = json.load(sys.stdin)
assert len(d["holders"]) == 2 and d["queue"] == []' <<<"$out" || fail 'not JSON'
fi
ran 0 dibs info a
has stdout "reader   $x:2, 2 holds, lease 1 min" "$out"
redis s flushall >/dev/null

case_is 'a server that says no is quoted'
redis s acl setuser mute on '>pw' '~*' '&*' +@all -eval -evalsha >/dev/null
for words in 'info a' 'queue a' 'force-unlock --yes a'; do
    # shellcheck disable=SC2086
    DIBS_PASSWORD=pw ran 77 dibs -u "unix://mute@$T/s.sock" $words
    has stderr NOPERM "$err"
done
redis s acl setuser mute +eval +evalsha -scan >/dev/null
DIBS_PASSWORD=pw ran 77 dibs -u "unix://mute@$T/s.sock" ls
has stderr NOPERM "$err"
redis s acl deluser mute >/dev/null

case_is 'a key that is not a lock'
redis s set string x >/dev/null
ran 64 dibs info string
same stderr "dibs: 'string' is not a lock: the server has something else under this name" "$err"
ran 64 dibs queue --json string
same 'half an answer' '' "$out"
ran 64 dibs force-unlock --yes string
same 'left as it is' x "$(redis s get string)"

case_is 'a reader that went away'
ran 70 sh -c '"$DIBS" ls --json >/dev/full'
has stderr 'cannot write to stdout' "$err"

case_is 'completion takes names as they are, and runs nothing'
redis s flushall >/dev/null
lock '$(touch${IFS}pwned)' "$x:1"
lock 'jobs:nightly' "$x:1"
mkdir -p path
ln -sf "$DIBS" path/dibs
printf '#!/bin/sh\nshift\nexec "$@"\n' >path/timeout # a slow machine is none
chmod +x path/timeout
complete_info() { # WORD: prints what is offered
    PATH="$T/path:$PATH" bash --norc -c '
        . "$1"
        COMP_WORDS=(dibs info "$2")
        COMP_CWORD=2
        _dibs
        printf "%s\n" "${COMPREPLY[@]}"' - "$HERE/../../completions/dibs.bash" "$1"
}
ran 0 complete_info jobs
same stdout jobs:nightly "$out"
ran 0 complete_info ''
has stdout '\$\(touch' "$out"
[ ! -e pwned ] || fail 'a name was run'

case_is 'completion asks the server that is on the line'
server other
redis other hset only-here "$x:1" 1 >/dev/null
echo "$url" >other.url
complete_line() { # WORDS...: prints what is offered for the last
    PATH="$T/path:$PATH" bash --norc -c '
        . "$1"
        shift
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        _dibs
        printf "%s\n" "${COMPREPLY[@]}"' - "$HERE/../../completions/dibs.bash" "$@"
}
for words in "-u $url info" "info -u $url" "--url=$url info" \
    "info --url-file other.url" "info --url-file=$T/other.url" \
    "run -n -u $url" "info --url $url"; do
    # shellcheck disable=SC2086
    ran 0 complete_line dibs $words ''
    same "$words" only-here "$out"
done
# As bash does it: words parted at : and =, and the line itself.
complete_typed() { # LINE: prints what is offered for its end
    PATH="$T/path:$PATH" bash --norc -c '
        . "$1"
        COMP_LINE=$2
        COMP_POINT=${#2}
        IFS=" " read -ra COMP_WORDS <<<"${2//[:=]/ & }"
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _dibs
        printf "%s\n" "${COMPREPLY[@]}"' - "$HERE/../../completions/dibs.bash" "$1"
}
redis other hset only:there "$x:1" 1 >/dev/null
for line in "dibs -u $url info only-" "dibs --url=$url info only-" \
    "dibs info -u '$url' only-" "dibs info -u \"$url\" only-"; do
    ran 0 complete_typed "$line"
    same "$line" only-here "$out"
done
ran 0 complete_typed "dibs -u $url info only:t"
same 'behind the colon' there "$out"
ran 0 complete_typed 'dibs -u $(touch${IFS}pwned) info x'
ran 0 complete_line dibs -u '$(touch${IFS}pwned)' info ''
[ ! -e pwned ] || fail 'a URL was run'

case_is 'ls: columns of what a terminal shows, not of bytes'
redis s flushall >/dev/null
lock $'gr\xc3\xbcn' $x:1
lock $'\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e' $x:2
lock $'e\xcc\x81t\xc3\xa9' $x:3
lock ascii $x:4
for locale in C C.UTF-8; do
    LC_ALL=$locale ran 0 dibs ls
    same "$locale" $'ascii   exclusive  no end  '$x$':4
e\xcc\x81t\xc3\xa9     exclusive  no end  '$x$':3
gr\xc3\xbcn    exclusive  no end  '$x$':1
\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e  exclusive  no end  '$x:2 "$(tail -n +2 out.txt)"
done

case_is 'ls: as wide as the terminal, and never cut elsewhere'
long=$(printf 'job%.0s' {1..40})
lock "$long" $x:1
redis s hset shared mode read $x:1 2 $x:2 1 >/dev/null
ran 0 dibs ls
has stdout "$long  exclusive  no end  $x:1" "$out"
has others "shared                            read       no end  $x:1 +1" "$out"
ran 0 dibs ls -l shared
has stdout 'shared  read        2      2  no end  - +1  ' "$out"
$CC -std=c11 -o pty "$HERE/pty.c" || fail 'cannot build pty'
for columns in 40 60 80 200; do
    printf 'columns %d\n' $columns >steps.txt
    ./pty steps.txt env NO_COLOR=1 LC_ALL=C.UTF-8 "$DIBS" ls >shown.txt
    widest=$(tr -d '\r' <shown.txt | LC_ALL=C.UTF-8 wc -L)
    [ "$widest" -le $columns ] || fail "$columns columns: $widest"
    same "$columns: rows" 7 "$(wc -l <shown.txt)"
done
redis s flushall >/dev/null

case_is 'the words of the server, without what is internal'
redis s set string x >/dev/null
ran 64 dibs info string
has stderr "'string' is not a lock" "$err"
not grep -q '@user_script' err.txt || fail "$err"
redis s del string >/dev/null

case_is 'who waits for a latch is not known'
ran 0 dibs latch set l 1
"$DIBS" latch wait l &
waiter=$!
subscribed() { redis s pubsub channels '*l*' | grep -q latch; }
await subscribed
ran 0 dibs queue l
same stdout 'no queue; who waits for a latch or for permits is not known' "$out"
ran 0 dibs info --json l
same waiters null "$(json waiters "$out")"
ran 0 dibs ls --json
same waiters null "$(json waiters "$out")"
ran 0 dibs latch down l
ended 0 $waiter
