# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Which server: where the URL and the password come from, and what is said when
# it does not work out.

server one
one=$url
server two
two=$url

# Takes the lock m and says on which server it is.
where() { # CODE WANT [VARIABLE=VALUE...] -- WORDS...
    local code=$1 want=$2 vars=()
    shift 2
    while [ "$1" != -- ]; do
        vars+=("$1")
        shift
    done
    shift
    ran "$code" env "${vars[@]}" "$DIBS" "$@" m -- sh -c \
        'echo one $(redis-cli -s one.sock exists m) two $(redis-cli -s two.sock exists m)'
    same 'taken on' "$want" "$out"
}

echo "$two" >two.url
printf '  %s \r\nrest\n' "$one" >one.url
on_one='one 1 two 0'
on_two='one 0 two 1'

case_is 'in this order'
where 0 "$on_one" -- run -u "$one"
where 0 "$on_one" -- -u "$one" run
where 0 "$on_one" -- --url="$one" run
where 0 "$on_one" DIBS_URL="$one" -- run
where 0 "$on_two" -- run --url-file two.url
where 0 "$on_one" -- run --url-file one.url
where 0 "$on_two" DIBS_URL_FILE=two.url -- run
where 0 "$on_one" DIBS_URL="$one" DIBS_URL_FILE=two.url -- run
where 0 "$on_two" DIBS_URL="$one" -- run --url-file two.url
where 0 "$on_one" DIBS_URL="$two" -- run -u "$one" --url-file two.url
where 0 "$on_two" -- -u "$one" run -u "$two"

case_is 'another database is another lock'
ran 0 dibs run -u "$one?db=3" m -- redis-cli -s one.sock exists m
same 'in database 0' 0 "$out"

loading() {
    case_is 'a server that loads its data'
    # It looks at its clients every 1024 bytes: that is every key, of this size.
    server full --dbfilename full.rdb
    redis full config set rdbcompression no >/dev/null
    redis full eval 'local x = ("x"):rep(1000)
        for i = 1, 20000 do redis.call("set", i, x) end' 0 >/dev/null
    redis full save >/dev/null
    "${SERVER:-redis-server}" --port 0 --unixsocket "$T/load.sock" --save '' \
        --appendonly no --dir "$T" --dbfilename full.rdb --logfile load.log \
        --key-load-delay 2000 --loading-process-events-interval-bytes 1024 &
    disown $!
    loads() { redis load ping | grep -q LOADING; }
    await loads
    ran 69 dibs run -n -u "unix://$T/load.sock" a -- echo no
    has stderr "dibs: cannot take 'a': unix://$T/load.sock: LOADING" "$err"
}
beside loading loading

# ---- passwords ---------------------------------------------------------

server three --requirepass sesame
redis_three() {
    redis-cli -s three.sock --no-auth-warning -a sesame "$@"
}
redis_three acl setuser ann on '>secret' '~*' '&*' +@all >/dev/null
redis_three acl setuser bob on '>secret' '~*' '&*' +@all -evalsha -eval >/dev/null
three=$url
echo sesame >right
echo wrong >wrong
printf 'unix://ann:secret@%s/three.sock\n' "$T" >ann.url
chmod 600 right wrong ann.url

works() { # [VARIABLE=VALUE...] -- WORDS...
    where 0 'one 0 two 0' "$@"
}
case_is 'passwords that are right'
works -- run -u "$three" --password-file right
works DIBS_PASSWORD=sesame -- run -u "$three"
works DIBS_URL="unix://:sesame@$T/three.sock" -- run
works -- run --url-file ann.url
works DIBS_PASSWORD=secret -- run -u "unix://ann@$T/three.sock"
works DIBS_PASSWORD=no -- run -u "$three" --password-file right
works DIBS_PASSWORD=sesame DIBS_URL="unix://:no@$T/three.sock" -- run

refused() { # SHOWN [VARIABLE=VALUE...] -- WORDS...
    local shown=$1
    shift
    where 77 '' "$@"
    has stderr "dibs: $shown refused our user, password or rights: " "$err"
    case $err in *NOAUTH* | *WRONGPASS*) ;; *) fail "no reason: $err" ;; esac
}
case_is 'passwords that are wrong'
refused "$three" -- run -u "$three"
refused "$three" -- run -u "$three" --password-file wrong
refused "$three" DIBS_PASSWORD=no -- run -u "$three"
refused "unix://:***@$T/three.sock" DIBS_URL="unix://:no@$T/three.sock" -- run
refused "unix://ann:***@$T/three.sock" DIBS_URL="unix://ann:no@$T/three.sock" \
    -- run

case_is 'files that others can read or write'
readable() { # CODE STDERR MODE WORDS...
    local code=$1 stderr=$2
    chmod "$3" right ann.url two.url
    shift 3
    ran "$code" dibs run "$@" m -- true
    same stderr "${stderr:+dibs: }$stderr" "$err"
}
read="everybody may read the password in"
readable 0 '' 600 -u "$three" --password-file right
readable 0 '' 640 -u "$three" --password-file right
readable 0 "$read 'right'; try: chmod 600 'right'" 644 \
    -u "$three" --password-file right
readable 0 '' 644 -q -u "$three" --password-file right
readable 0 "$read 'ann.url'; try: chmod 600 'ann.url'" 604 --url-file ann.url
readable 0 '' 644 --url-file two.url
write=", so the password in it is not used; try: chmod 600 'right'"
readable 64 "everybody may write to 'right'$write" 602 \
    -u "$three" --password-file right
readable 64 "everybody may write to 'two.url', so the URL in it is not used; try: chmod 600 'two.url'" \
    666 --url-file two.url
chmod 600 right ann.url two.url
ran 0 dibs run -u "$three" --password-file <(cat right) m -- true
same 'a pipe' '' "$err"

case_is 'a pipe that nobody writes to'
mkfifo nobody
timeout --foreground -k 10 1 "$DIBS" run -u "$three" --password-file nobody m -- true
same code 124 $?

case_is 'a password where a URL is expected'
ran 64 dibs run --url-file right m -- true
has stderr "'***' is not the address of a server" "$err"
ran 64 env DIBS_URL_FILE=right "$DIBS" ls
has stderr "'***' is not the address of a server" "$err"

case_is 'rights that are missing'
where 77 '' DIBS_URL="unix://bob:secret@$T/three.sock" -- run

case_is 'a password is not for the private server'
DIBS_PASSWORD=no ran 0 dibs run -q a -- true
dibs local stop >/dev/null

case_is 'a password does not reach the arguments of any process'
# One that no other test has on a command line just now.
secret=open$$-$RANDOM
redis_three acl setuser cleo on ">$secret" '~*' '&*' +@all >/dev/null
DIBS_PASSWORD=$secret ran 0 dibs run -u "unix://cleo@$T/three.sock" a -- sh -c \
    'cat /proc/*/cmdline 2>/dev/null | tr "\0" "\n" | grep -c "^$DIBS_PASSWORD$"; exit 0'
same found 0 "$out"

# ---- what does not work ------------------------------------------------

case_is 'nobody there'
where 69 '' -- run -u "unix://$T/none.sock"
same stderr "dibs: no answer from unix://$T/none.sock: No such file or directory; is a server running there, and is this its address?" "$err"
where 69 '' -- run -u redis://127.0.0.1:1
same stderr 'dibs: no answer from redis://127.0.0.1:1: Connection refused; is a server running there, and is this its address?' "$err"
for sub in "hold a" "info a" ls "force-unlock --yes a"; do
    case_is "nobody there: $sub"
    # shellcheck disable=SC2086
    ran 69 dibs -u "unix://$T/none.sock" $sub
    same stdout '' "$out"
    same stderr "dibs: no answer from unix://$T/none.sock: No such file or directory; is a server running there, and is this its address?" "$err"
done

never_answers() {
    case_is 'somebody who never answers'
    kill -STOP $server_pid
    where 69 '' DIBS_PASSWORD=sesame -- run -u "$three"
    kill -CONT $server_pid
}
beside never_answers never_answers # the last case of this server

case_is 'a URL that is wrong'
for bad in 127.0.0.1 http://x redis:// redis://h:99999 'redis://h /0' unix://x; do
    ran 64 dibs run -u "$bad" a -- true
    has stderr "'$bad' is not the address of a server" "$err"
done

# The server's own words, its address, and what to try next.
said_why() { # WORDS STEP
    has address "dibs: cannot take 'a': $one: $1" "$err"
    has step "$2" "$err"
    same lines 1 "$(wc -l <err.txt)"
}

case_is 'a full server says no, and what was taken is given back'
redis one config set maxmemory 1 >/dev/null
ran 69 dibs run -u "$one" a -- echo no
same stdout '' "$out"
said_why 'OOM ' "; try: dibs doctor -u $one a"
DIBS_URL=$one ran 69 dibs run a -- echo no
said_why 'OOM ' '; try: dibs doctor a'
redis one config set maxmemory 0 >/dev/null
ran 0 dibs run -u "$one" a -- redis-cli -s one.sock config set maxmemory 1
redis one config set maxmemory 0 >/dev/null
free one a || fail 'is still held'

case_is 'the words of the server have no digest and no line of a script'
redis one config set maxmemory 1 >/dev/null
DIBS_URL=$one ran 69 dibs run -n a -- echo no
case $err in *script* | *_acquire*) fail "internals: $err" ;; esac
redis one config set maxmemory 0 >/dev/null

case_is 'no descriptor is left: whose limit it is'
if [ -z "$DIBS_SANITIZE" ]; then
    few() { # LIMIT WORDS...
        (ulimit -n "$1" && shift && exec "$DIBS" "$@")
    }
    for limit in 8 10 12 14; do
        few $limit run -n -u "$one" a -- true 2>err.txt
        err=$(cat err.txt)
        has "limit $limit" 'too many open files: this process has reached its limit (ulimit -n)' "$err"
        case $err in *memory* | *address?*) fail "limit $limit: $err" ;; esac
    done
fi

case_is 'redis:// to a sentinel, and to a node of a cluster: the right scheme'
: >sentinel.conf
sentinel_up() { redis sentinel ping; }
redis-server sentinel.conf --sentinel --port 0 --unixsocket "$T/sentinel.sock" --dir "$T" \
    --logfile sentinel.log &
disown $!
await sentinel_up
ran 69 dibs run -n -u "unix://$T/sentinel.sock" a -- echo no
has stderr 'redis-sentinel://HOST:PORT/SERVICE' "$err"
case $err in *EVALSHA*) fail "internals: $err" ;; esac

case_is 'ls in a cluster with a node that is down: a part, and a warning'
other=5b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1
cluster() { server_with_port "$1" --cluster-enabled yes --cluster-config-file "$1.conf" \
    --cluster-require-full-coverage no; }
cluster left
left_port=$port left_pid=$server_pid
cluster right
redis left cluster addslotsrange 0 8191 >/dev/null
redis right cluster addslotsrange 8192 16383 >/dev/null
redis left cluster meet 127.0.0.1 "$port" >/dev/null
joined() { redis left cluster slots | grep -q "^$port\$" && redis right cluster slots | grep -q "^$left_port\$"; }
await joined
up() { redis left cluster info | grep -q state:ok && redis right cluster info | grep -q state:ok; }
await up
both="redis-cluster://127.0.0.1:$left_port,127.0.0.1:$port"
redis left hset b $other 1 >/dev/null # slot 3300
redis right hset a $other 1 >/dev/null # slot 15495
ran 0 dibs ls -u "$both"
has stdout 'a  ' "$out"
has stdout 'b  ' "$out"
same stderr '' "$err"
kill -KILL $left_pid
ran 0 dibs ls -u "$both"
has stdout 'a  ' "$out"
has stderr 'dibs: the list is not complete: redis://127.0.0.1:' "$err"
ran 0 dibs ls --json -u "$both"
has stdout '"name":"a"' "$out"
has stdout '"partial":true' "$out"
ran 69 dibs ls -u "$both" 'none*'

case_is 'a right is missing: which command'
redis one acl setuser default -evalsha >/dev/null
DIBS_URL=$one ran 77 dibs run a -- echo no
said_why NOPERM '; try: dibs doctor a'
has command evalsha "$err"
redis one acl setuser default +evalsha -hset >/dev/null
DIBS_URL=$one ran 77 dibs run a -- echo no
has command hset "$err"
redis one acl setuser default +hset >/dev/null

case_is 'a key that is something else'
redis one set a x >/dev/null
DIBS_URL=$one ran 64 dibs run a -- echo no
same stderr "dibs: cannot take 'a': the server has something else under this name: take another name" "$err"
redis one del a >/dev/null
