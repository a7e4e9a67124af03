# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Who has it, who waits: host, pid and program of every owner, wherever an owner
# is shown; and nothing that could control a terminal.

server s
export DIBS_URL=$url

host=$(uname -n)
host=${host:0:64}

# A script with a name that no terminal should see.
odd=$'job \e[31m\xc3\xbc'
printf '#!/bin/sh\nexec sleep 1000\n' >"$odd"
chmod +x "$odd"

no_escapes() { # FILE...
    ! LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]' "$@" || fail "an escape in $*"
}

"$DIBS" run --fair a -- "./$odd" &
holder=$!
await held s a
"$DIBS" run --fair a -- true &
waiter=$!
queued() { [ "$(redis s llen 'redisson_lock_queue:{a}')" = 1 ]; }
await queued

case_is 'info'
who="$host, pid $holder, job__\[31m__, [0-9]+ (s|min)"
ran 0 dibs info a
grep -Eqx "who      $who" out.txt || fail "info: $out"
grep -Eq "^waits    1\. [0-9a-f-]{36}:1 \($host, pid $waiter, true, " out.txt ||
    fail "info: $out"
no_escapes out.txt
ran 0 dibs info --json a
has who "\"who\":{\"host\":\"$host\",\"pid\":$holder,\"program\":\"job__[31m__\",\"address\":\"" \
    "$out"
has queue "\"pid\":$waiter,\"program\":\"true\"" "$out"

case_is 'queue'
ran 0 dibs queue a
has queue "($host, pid $waiter, true, " "$out"
ran 0 dibs queue --json a
has queue "\"who\":{\"host\":\"$host\",\"pid\":$waiter,\"program\":\"true\"" "$out"

case_is 'ls: one question for all of them'
redis s hset b 00000000-0000-4000-8000-000000000001:1 1 >/dev/null
redis s config resetstat >/dev/null
ran 0 dibs ls
grep -Eq '^NAME .* LEASE +WHO$' out.txt || fail "ls: $out"
grep -Eq "^a .*  $who\$" out.txt || fail "ls: $out"
grep -Eq '^b .*  no end  *00000000-0000-4000-8000-000000000001:1$' out.txt || fail "ls: $out"
no_escapes out.txt
has 'CLIENT LIST' 'calls=1,' \
    "$(redis s info commandstats | grep -F 'client|list:' || echo 'calls=1,')"
ran 0 dibs ls --json 'b'
has unknown '"who":null' "$out"

case_is 'taken'
ran 75 dibs run -n --fair a -- true
grep -Eq "^dibs: a is taken: held by [0-9a-f-]{36}:1 \($who\), lease ends in" \
    err.txt || fail "busy: $err"
no_escapes err.txt
ran 75 dibs run -n --log json --fair a -- true
has fact "\"who\":\"$host, pid $holder, job__[31m__, " "$err"
: >err.w
"$DIBS" run -v a -- true 2>err.w &
job=$!
await grep -E "^dibs: waited .* held by [0-9a-f-]{36}:1 \($who\), " err.w
kill $job
ended 143 $job
no_escapes err.w

case_is 'on a terminal'
$CC -std=c11 -o pty "$HERE/pty.c" || fail 'cannot build pty'
cat >steps.txt <<END
expect held by $host, pid $holder, job__[31m__, 
send \\003
END
./pty steps.txt "$DIBS" run a -- true >shown.txt 2>err.txt
same code 130 $?
case $(cat shown.txt) in *$'\033'*) fail "escapes: $(cat -v shown.txt)" ;; esac

case_is 'no right to CLIENT LIST: the UUID by itself'
redis s acl setuser shy on '>pw' '~*' '&*' +@all -client '+client|setname' >/dev/null
for words in 'info a' 'ls' 'queue a' 'info --json a' 'ls --json'; do
    # shellcheck disable=SC2086 # words
    DIBS_PASSWORD=pw ran 0 dibs -u "unix://shy@$T/s.sock" $words
    same "$words" '' "$err"
    case $out in *"pid"*) fail "$words: who told? $out" ;; esac
done
DIBS_PASSWORD=pw ran 0 dibs -u "unix://shy@$T/s.sock" doctor
has doctor 'CLIENT LIST: who an owner is' "$out"

case_is 'a lie in a name is only a lie'
id=00000000-0000-4000-8000-000000000001
mkfifo lie
redis s <lie >/dev/null &
liar=$!
exec 9>lie
echo "client setname dibs/$id/\$(touch-x)/1/%s%n" >&9
lied() { redis s client list | grep -q "name=dibs/$id/"; }
await lied
ran 0 dibs info b
has who 'who      $(touch-x), pid 1, %s%n, ' "$out"
exec 9>&-
ended 0 $liar

kill $holder
ended 143 $holder
ended 0 $waiter
