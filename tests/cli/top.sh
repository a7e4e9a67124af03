# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs top: a live screen, seen through a small terminal (vt.h).

$CC -std=c11 -o pty "$HERE/pty.c" || fail 'cannot build pty'
server s
export DIBS_URL=$url TERM=xterm LC_ALL=C.UTF-8

x=00000000-0000-4000-8000-000000000001
y=00000000-0000-4000-8000-000000000002

lock() { # NAME OWNER [TTL]
    redis s hset "$1" "$2" 1 >/dev/null
    [ $# -lt 3 ] || redis s pexpire "$1" "$3" >/dev/null
}

# on_terminal CODE COMMAND...: with the steps from stdin.
on_terminal() {
    local want=$1 code
    shift
    cat >steps.txt
    ./pty steps.txt "$@" >shown.txt 2>err.txt
    code=$?
    [ $code -eq "$want" ] || fail "want code $want, got $code: $(cat err.txt)"
}

cli="redis-cli -s $T/s.sock"

case_is 'not a terminal'
ran 64 dibs top
has stderr 'needs a terminal' "$err"
has stderr 'dibs ls --json' "$err"
TERM=dumb on_terminal 64 "$DIBS" top <<END
expect dibs ls --json
END

case_is 'locks come and go'
lock alpha $x:1
lock beta $y:1 3600000
on_terminal 0 "$DIBS" top --every 100ms <<END
size 24 100
screen dibs top  2 locks, 2 holders
row 2 NAME
row 3 alpha
row 3 $x
row 3 no end
row 4 beta
row 4 59m
row 23 alpha
until $cli hset gamma $x:2 1 >/dev/null
row 5 gamma
screen 3 locks
until $cli del alpha >/dev/null
row 3 beta
gone alpha
keep kept.txt
send q
END
has 'the terminal is given back' $'\e[?25h\e[?1049l' "$(tail -c 40 shown.txt)"
same 'rows below are empty' '' "$(sed -n 6p kept.txt)"

case_is 'who has it, who waits'
"$DIBS" hold --no-stdin delta >held.txt 2>&1 &
job=$!
await test -s held.txt
"$DIBS" run delta -- true &
first=$!
on_terminal 0 "$DIBS" top --every 100ms 'delt*' <<END
size 24 120
row 3 $job
row 3 excl
row 3 1    0
row 23 pid $job
send q
END
kill $job
ended 0 $first

case_is 'sort and filter'
redis s flushall >/dev/null
lock a $x:1 9000000
lock b $x:1 1000000
lock c $y:1 5000000
on_terminal 0 "$DIBS" top --every 100ms <<END
size 24 100
row 3 a
row 5 c
send r
row 3 c
row 5 a
send l
row 2 LEASE+
row 3 b
row 5 a
send r
row 2 LEASE-
row 3 a
send o
row 2 OWNER+
row 5 c
send n
send /$y
row 23 /$y
send \\r
row 1 filter: $y
row 3 c
gone b  
send \\e
row 1 q end
row 5 c
send /zzz\\r
screen (0 shown
gone $x
send /\\e
row 3 a
send j
row 23 b
send \\e[B
row 23 c
send \\eOA
row 23 b
send \\e[1~
row 23 a
send \\e[F
row 23 c
send q
END

case_is 'the size changes'
redis s flushall >/dev/null
for i in 1 2 3 4 5 6 7 8 9; do lock "lock$i" $x:1; done
on_terminal 0 "$DIBS" top --every 100ms <<END
size 24 100
row 11 lock9
size 8 50
gone lock5
row 6 lock4
row 7 lock1
size 24 100
row 11 lock9
size 2 5
size 1 1
size 24 100
row 11 lock9
send q
END

case_is 'only what changes is written'
redis s flushall >/dev/null
redis s eval "for i = 1, 2000 do redis.call('hset', ('many:%05d'):format(i), ARGV[1], 1) end" 0 $x:1 \
    >/dev/null
redis s config resetstat >/dev/null
scans() { redis s info commandstats | sed -n 's/^cmdstat_scan:calls=\([0-9]*\).*/\1/p'; }
on_terminal 0 "$DIBS" top <<END
size 50 120
screen 2000 locks
row 3 many:00001
row 48 many:00046
send \\e[F
row 48 many:02000
send \\e[H
row 3 many:00001
screen CHG
send  
screen stopped
mark
until $cli hset many:00002 $y:1 1 >/dev/null
until $cli hdel many:00002 $x:1 >/dev/null
send  
row 4 $y
below 3000
gone stopped
keep kept.txt
send q
END
same cleared 1 "$(grep -c $'\e\[2J' shown.txt)"
same KEYS 0 "$(redis s info commandstats | grep -c cmdstat_keys:)"
redis s flushall >/dev/null

case_is 'nothing from a server commands a terminal'
evil=$x$':1\e]0;t\a\e[2J\xc2\x9b2J\xe2\x80\xae'
lock "$evil" "$evil"
lock $'\xc3\xbcmlaut' $x:1
on_terminal 0 "$DIBS" top --every 100ms <<END
size 24 160
screen $x:1\\x1b]0;t
send q
END
on_terminal 0 "$DIBS" top --every 100ms <<END
size 24 160
row 4 ümlaut
send q
END
redis s flushall >/dev/null

case_is 'signals give the terminal back'
on_terminal 130 "$DIBS" top <<END
screen 0 locks
send \\003
END
has shown $'\e[?1049l' "$(tail -c 20 shown.txt)"
on_terminal 129 "$DIBS" top <<END
screen 0 locks
hangup
END

case_is 'the server goes and comes back'
on_terminal 0 "$DIBS" top --every 100ms <<END
size 24 120
screen 0 locks
until kill -9 $server_pid
screen cannot look
send q
END
server s
lock back $x:1

case_is 'no server'
on_terminal 69 "$DIBS" -u "unix://$T/none.sock" top <<END
expect none.sock
END
ran 64 dibs top --every 1ms
has stderr 'shorter than 100 ms' "$err"

case_is 'a server that is silent for a while'
redis s flushall >/dev/null
lock quiet $x:1
lock silent $x:1
on_terminal 0 "$DIBS" top --every 200ms <<END
size 24 110
row 4 silent
row 0 every 200 ms
row 0  $url
until kill -STOP $server_pid
row 0 stale for 3 s
row 3 quiet
row 1 cannot look
row 0 stale for
until kill -CONT $server_pid
row 0 every 200 ms
until $cli hset louder $x:2 1 >/dev/null
row 3 louder
gone stale
send q
END
has 'dimmed' $'\e[0;2m' "$(cat shown.txt)"
NO_COLOR=1 on_terminal 0 "$DIBS" top --every 200ms <<END
size 24 110
row 3 louder
until kill -STOP $server_pid
row 0 stale for
until kill -CONT $server_pid
gone stale
send q
END
case $(cat shown.txt) in *$'\e[0;2m'*) fail 'dimmed, in spite of NO_COLOR' ;; esac

case_is 'the address, as far as there is room'
for size in "24 60" "24 40" "6 20"; do
    on_terminal 0 "$DIBS" top <<END
size $size
row 0 dibs top
row 3 louder
send q
END
done
DIBS_URL="unix://default:secret@$T/s.sock" on_terminal 0 "$DIBS" top <<END
size 24 160
row 0  unix://default:***@$T/s.sock
send q
END

case_is 'nothing that turns or hides text reaches the terminal'
redis s flushall >/dev/null
bidi=$'\xe2\x80\xae' hidden=$'\xe2\x80\x8b'
lock "a${bidi}b" "$x:1${bidi}${hidden}"
lock $'e\xcc\x81te' "$x:1"
on_terminal 0 "$DIBS" top <<END
size 24 120
row 4 e$(printf '\xcc\x81')te
row 23 a
send /$bidi
row 23 /?
send \\e
row 1 q end
send q
END
for bytes in "$bidi" "$hidden"; do
    not grep -qaF "$bytes" shown.txt || fail "$(tail -c 2000 shown.txt | cat -v)"
done
