# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs watch: values that holders publish, when they are there and when they
# change.

server s
export DIBS_URL=$url

x=00000000-0000-4000-8000-000000000001
y=00000000-0000-4000-8000-000000000002

lock() { # NAME OWNER [TTL]
    redis s hset "$1" "$2" 1 >/dev/null
    [ $# -lt 3 ] || redis s pexpire "$1" "$3" >/dev/null
}

follow() { # WORDS...: watches in the background, into out.w and err.w
    : >out.w
    "$DIBS" watch --every 100ms "$@" >out.w 2>err.w 8>&- &
    watcher=$!
}

unfollow() {
    kill $watcher
    ended 143 $watcher
}

publish() { # NAME OWNER NUMBER TEXT: as a holder does it
    redis s set "dibs_lock_value:{$1}" "$2 $3 $4" >/dev/null
}
calls() { # COMMAND: how often the server was asked
    redis s info commandstats | sed -n "s/^cmdstat_$1:calls=\([0-9]*\).*/\1/p"
}
looked() { # N: so many times, since $before
    [ $(($(calls pttl) - before)) -ge "$1" ]
}

case_is 'values that holders publish'
mkfifo go
"$DIBS" run --publish 'db1:8080, rack 7' a -- sh -c 'read x <go' &
job=$!
has_value() { [ "$(redis s exists 'dibs_lock_value:{a}')" = 1 ]; }
await has_value
follow a
await said 'value: db1:8080, rack 7' out.w
has held "a: held by $(redis s hkeys a)" "$(cat out.w)"
echo >go
ended 0 $job
await said 'a: free; ' out.w
unfollow
redis s flushall >/dev/null

case_is 'values that change; and nothing in them for a terminal'
follow a
await said 'a: free' out.w
lock a $x:1
await said "a: taken by $x:1" out.w
publish a $x:1 5 $'x\e[31m\ny'
await said 'a: value: x\x1b[31m\ny' out.w
publish a $x:1 6 ''
await said 'a: no value any more' out.w
publish a $y:1 7 'not the holder'
before=$(calls pttl)
await looked 4
publish a $x:1 8 again
await said 'a: value: again' out.w
asked=$(calls hexists) before=$(calls pttl)
await looked 4
same 'asked again for a value that did not change' "$asked" "$(calls hexists)"
unfollow
not grep -q 'not the holder' out.w || fail 'the value of somebody else'
not grep -qa $'\e' out.w || fail 'an escape'
same lines 5 "$(wc -l <out.w)"
redis s flushall >/dev/null

case_is 'values, in JSON'
lock first $y:1
follow --json
await said '"name":"first"' out.w
redis s eval "redis.call('hset', KEYS[1], ARGV[1], 1)
    redis.call('set', KEYS[2], ARGV[1] .. ' 5 \"one\"')" \
    2 j 'dibs_lock_value:{j}' $x:1 >/dev/null
await said '"event":"taken","name":"j"' out.w
publish j $x:1 6 two
await said '"event":"value","name":"j"' out.w
publish j $x:1 7 ''
told_twice() { [ "$(grep -c '"event":"value"' out.w)" = 2 ]; }
await told_twice
redis s del j >/dev/null
await said '"event":"free","name":"j"' out.w
unfollow
values() { sed -n 's/.*"event":"'"$1"'","name":"j".*"value":\(.*\)}$/\1/p' out.w; }
same taken '"\"one\""' "$(values taken)"
same changed $'"two"\nnull' "$(values value)"
same free null "$(values free)"
redis s flushall >/dev/null
