# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Command lines that make no sense: the bad word is named, the line that was
# typed follows, put right, the code is 64, and nothing was started.

# told 'MESSAGE' 'HINT' WORDS...: the two lines on stderr.
told() {
    local message=$1 hint=$2
    shift 2
    case_is "dibs ${*:0:200}"
    ran 64 dibs "$@"
    same stdout '' "$out"
    same stderr "dibs: $message"$'\n'"dibs: $hint" "$err"
}

# wrong 'MESSAGE' 'RIGHT LINE' WORDS...
wrong() {
    told "$1" "for example: $2" "${@:3}"
}

# meant 'LINE' WORDS...: a subcommand that there is not.
meant() {
    local line=$1
    shift
    told "there is no subcommand '$1'" "did you mean: $line" "$@"
}

wrong "a subcommand is missing; 'dibs help' lists them" \
    'dibs run NAME -- COMMAND'
meant 'dibs run backup -- true' rum backup -- true
meant 'dibs run a -- rsync ...' runn a -- rsync -a --password=secret
meant 'dibs run backup -- COMMAND' lock backup
meant "dibs run -c '...' backup" lock -c 'mysql -psecret' backup
meant 'dibs run [options] NAME -- COMMAND [ARGS...]' lock
meant 'dibs ls [-l | --json] [PATTERN]' list
meant "dibs ls 'a*'" list 'a*'
meant 'dibs release a' unlock a
meant 'dibs release --owner x a' free --owner x a
meant 'dibs extend --owner x --lease 1m a' renew --owner x --lease 1m a
meant 'dibs force-unlock --yes a' kill --yes a
meant 'dibs force-unlock a' force-unlok a
meant 'dibs watch a' wach a
meant 'dibs watch a' follow a
meant 'dibs wait -w 1s a' wiat -w 1s a
meant 'dibs top [--every TIME] [PATTERN]' tpo
meant 'dibs metrics [PATTERN]' metric
meant 'dibs info --json a' status --json a
meant 'dibs doctor -u URL' docter -u redis://me:secret@db1
meant 'dibs doctor --url=URL' docter --url=redis://me:secret@db1
meant 'dibs queue a' qeueu a
told "there is no subcommand 'frobnicate'" \
    "'dibs help' lists the subcommands" frobnicate a
told "there is no subcommand ''" "'dibs help' lists the subcommands" ''
told "help: there is no subcommand 'rum'" 'did you mean: dibs help run' help rum
told "help: there is no subcommand 'unlock'" 'did you mean: dibs help release' \
    help unlock
told "help: there is no subcommand 'xyz'" "'dibs help' lists the subcommands" help xyz

told "unknown option '--frob'" "'dibs help' lists the options" \
    --frob run a -- true
told "unknown option '-n' in '-n'" 'it goes behind the subcommand: run, hold, acquire, wait, sem, latch' \
    -n run a -- true
told "run: unknown option '--nowait'" \
    'did you mean: dibs run --no-wait a -- true' run --nowait a -- true
told "run: unknown option '--no-wiat'" \
    'did you mean: dibs run --no-wait a -- true' run --no-wiat a -- true
told "run: unknown option '--timeout'" \
    'did you mean: dibs run --wait=5s a -- true' run --timeout=5s a -- true
told "hold: unknown option '--timeout'" 'did you mean: dibs hold --wait 5s a' \
    hold --timeout 5s a
told "run: unknown option '--fore'" \
    'did you mean: dibs run --foreground a -- true' run --fore a -- true
told "run: unknown option '--no'" "'dibs help run' lists the options" \
    run --no a -- true
told "run: unknown option '--frob'" \
    "'dibs help run' lists the options" run --frob a -- true
told "run: unknown option '-z' in '-nz'" \
    "'dibs help run' lists the options" run -nz a -- true
told "run: unknown option '--yes'" 'it is an option of: force-unlock' \
    run --yes a -- true
told "hold: unknown option '-t' in '-t'" 'it is an option of: run' hold -t 1s a
told "force-unlock: unknown option '--force'" \
    'did you mean: dibs force-unlock --yes a' force-unlock --force a
told "run: unknown option '--a\\nb\\x1b'" \
    "'dibs help run' lists the options" run $'--a\nb\e' a -- true

# No password in a message.
told "info: unknown option '--urll'" 'did you mean: dibs info --url=URL a' \
    info --urll=redis://me:secret@db1 a
told "there is no subcommand 'URL'" \
    "'dibs help' lists the subcommands" redis://me:secret@db1 info
wrong "info: unexpected word 'URL'" 'dibs info a' info a redis://me:secret@db1
wrong "info: the NAME of the lock is missing" 'dibs info -u URL NAME' \
    info -u redis://me:secret@db1

wrong 'run: the NAME of the lock is missing' 'dibs run NAME -- COMMAND' run
wrong 'run: the NAME of the lock is missing' 'dibs run NAME -- true' run -- true
wrong 'run: the NAME of the lock is missing' 'dibs run -n NAME -- true' \
    run -n -- true
wrong 'run: the command is missing' 'dibs run a -- COMMAND' run a
wrong 'run: the command is missing' 'dibs run a -- COMMAND' run a --
wrong "run: unexpected word 'true'; the command comes behind --" \
    'dibs run a -- true' run a true
wrong "run: unexpected word 'b'" 'dibs run a -- true' run a b -- true
wrong "run: --no-wait takes no value: '--no-wait=1'" \
    'dibs run --no-wait a -- true' run --no-wait=1 a -- true
wrong "run: -c and a command behind --: 'true' is one too many" \
    'dibs run -c STRING NAME' run -c true a -- true

# Values: the same line, with one that would be right.
no_time="is not a time such as 500ms, 10s, 2m or 1h30m"
w='dibs run -w 10s a -- true'
wrong "run: -w: 'a' $no_time" 'dibs run -w 10s NAME -- true' \
    run -w a -- true
wrong 'run: -w needs a value' 'dibs run a -w 10s -- true' run a -w -- true
wrong 'run: -w needs a value' 'dibs run a -w 10s -- COMMAND' run a -w
wrong 'run: --lease needs a value' 'dibs run --lease 30s NAME -- COMMAND' \
    run --lease
wrong 'run: --lease needs a value' \
    'dibs run --multi a,b --lease 30s -- COMMAND' run --multi a,b --lease
wrong 'run: --multi needs a value' 'dibs run --multi stock,orders -- COMMAND' \
    run --multi
wrong "run: -w: '' $no_time" "$w" run -w '' a -- true
wrong "run: -w: '-5' is negative" "$w" run -w -5 a -- true
wrong "run: -w: '-5s' is negative" 'dibs run --wait=10s a -- true' \
    run --wait=-5s a -- true
wrong "run: -w: '5 s' $no_time" "$w" run -w '5 s' a -- true
wrong "run: -w: '5x' $no_time" "$w" run -w5x a -- true
wrong "run: -w: '5x' $no_time" 'dibs run -qw 10s a -- true' run -qw5x a -- true
wrong "run: -w: '99999999999999999999' is longer than a thousand years" \
    "$w" run -w 99999999999999999999 a -- true
wrong "run: --lease: '9223372036854775807' is longer than a thousand years" \
    'dibs run --lease 30s a -- true' run --lease 9223372036854775807 a -- true
wrong "run: -w: '365000d365000d' has a unit twice; write 1h30m" \
    "$w" run -w 365000d365000d a -- true
wrong "run: -w: '365200d99999h' is longer than a thousand years" \
    "$w" run -w 365200d99999h a -- true
wrong "run: -w: '30m1h' has its units in the wrong order; write 1h30m" \
    "$w" run -w 30m1h a -- true
wrong "run: -w: '1h1h' has a unit twice; write 1h30m" \
    "$w" run -w 1h1h a -- true
wrong "run: -w: '1h-3m' has a sign in it; write 1h30m" "$w" run -w 1h-3m a -- true
wrong "run: -w: '1h30' has a number without a unit; write 1h30m" "$w" \
    run -w 1h30 a -- true
wrong "run: -w: '1.5h30m' has a fraction before its last part; write 1h30m" \
    "$w" run -w 1.5h30m a -- true
wrong "run: -w: '1h 30m' $no_time" "$w" run -w '1h 30m' a -- true
wrong "run: -w: '1h30x' $no_time" "$w" run -w 1h30x a -- true
wrong "run: -w: '1hm' $no_time" "$w" run -w 1hm a -- true
wrong 'run: --lease: shorter than 100 ms' \
    'dibs run --lease 30s backup -- rsync -a x y' run --lease 99ms a -- true
wrong 'run: --lease: shorter than 100 ms' \
    'dibs run --lease 30s backup -- rsync -a x y' run --lease 0 a -- true
wrong 'run: --max-hold: shorter than 100 ms' \
    'dibs run --max-hold 1h backup -- make all' run --max-hold 1ms a -- true
wrong 'run: --max-hold has no effect with --no-renew' \
    'dibs run --no-renew --lease 1h backup -- make all' \
    run --no-renew --max-hold 1s a -- true
wrong 'run: --min-hold is longer than --max-hold: nobody would hold the lock in between' \
    'dibs run --min-hold 1m --max-hold 1h backup -- make' \
    run --min-hold 1h --max-hold 1m a -- true
wrong 'hold: --min-hold is longer than --max-hold: nobody would hold the lock in between' \
    'dibs run --min-hold 1m --max-hold 1h backup -- make' \
    hold --max-hold 1m --min-hold 61s a
three='dibs run --quorum redis://a,redis://b,redis://c backup -- make'
few='at least 3 are needed: a majority must be left when one server is gone'
wrong "--quorum: 1 address given, and $few" "$three" \
    run --quorum redis://a a -- true
wrong "--quorum: 2 addresses given, and $few" "$three" \
    run --quorum redis://a,redis://b a -- true
one='counts as one address; each server needs its own scheme, such as redis://'
wrong "--quorum: 'a,b' $one" "$three" run --quorum a,b a -- true
wrong "--quorum: 'redis://a,b,c' $one" "$three" run --quorum redis://a,b,c a -- true
wrong "--quorum: 'redis://a,b' $one" "$three" \
    run --quorum redis://a,b,redis://c a -- true
wrong 'run: --fair-call: shorter than 100 ms' \
    'dibs run --fair --fair-call 5s backup -- make' \
    run --fair --fair-call 99ms a -- true
wrong 'run: --fair-call: shorter than 100 ms' \
    'dibs run --fair --fair-call 5s backup -- make' \
    run --fair --fair-call 0 a -- true
wrong 'run: --fair-call has no effect without --fair' \
    'dibs run --fair --fair-call 5s backup -- make' \
    run --fair-call 1s a -- true
wrong "run: -E: '256' is not a code, 0 to 255" 'dibs run -E 75 a -- true' \
    run -E 256 a -- true
wrong "run: -E: '-1' is not a code, 0 to 255" 'dibs run -E 75 a -- true' \
    run -E -1 a -- true
wrong "run: --on-lost: 'pray' is not one of term, kill, warn, exec:CMD or a signal" \
    'dibs run --on-lost term a -- true' run --on-lost pray a -- true
wrong "run: --status-fd: 'x' is not a descriptor" \
    'dibs run --status-fd 3 a -- true' run --status-fd x a -- true
for n in x -1 1.5 ALL '' 99999999999; do
    wrong "run: --replicas: '$n' is neither a number nor all" \
        'dibs run --replicas 1 a -- true' run --replicas "$n" a -- true
done
wrong 'run: --status-fd: descriptor 77 is not open for writing' \
    'dibs run --status-fd 3 backup -- make 3>status' \
    run --status-fd 77 a -- true
wrong "run: --log: 'xml' is neither text nor json" \
    'dibs run --log json a -- true' run --log xml a -- true
wrong "run: -u: '' is empty" 'dibs run -u redis://db1.example:6379 a -- true' \
    run -u '' a -- true

wrong "run: --multi: 'c,d' is given a second time; put all of them into one option" \
    'dibs run --multi a,b --multi stock,orders -- true' \
    run --multi a,b --multi c,d -- true
DIBS_URL='' wrong '$DIBS_URL is set, but empty' 'unset DIBS_URL DIBS_URL_FILE' \
    run a -- true
DIBS_URL_FILE='' wrong '$DIBS_URL_FILE is set, but empty' \
    'unset DIBS_URL DIBS_URL_FILE' run a -- true

# Names.
any='   (or, if you mean it, --any-name)'
synopsis='dibs run [options] NAME -- COMMAND [ARGS...]'
wrong "run: the name '' is empty" "$synopsis" run '' -- true
wrong "run: the name 'a b' has a space in it" "dibs run NAME -- COMMAND$any" \
    run 'a b' -- true
wrong "run: the name 'a\\nb' has a control character in it" \
    "dibs run NAME -- COMMAND$any" run $'a\nb' -- true
long=$(printf '%2048s' '' | tr ' ' x)
wrong "run: the name 'xxxxxxxxxxxxxxxxxxxx...' has 2048 bytes, 1024 are allowed" \
    "$synopsis" run "$long" -- true

# The others.
wrong 'hold: the NAME of the lock is missing' 'dibs hold NAME' hold
wrong "hold: unexpected word 'b'" 'dibs hold a' hold a b
wrong "hold: the name 'a b' has a space in it" "dibs hold NAME$any" hold 'a b'
wrong 'info: the NAME of the lock is missing' 'dibs info NAME' info
wrong "ls: unexpected word 'b'" 'dibs ls a' ls a b
wrong 'force-unlock: the NAME of the lock is missing' \
    'dibs force-unlock --yes NAME' force-unlock --yes
wrong "force-unlock: the holder of 'a' loses it while it works; add --yes if you want that" \
    'dibs force-unlock --yes NAME' force-unlock a
wrong 'local: status or stop is missing' 'dibs local status' local
wrong "local: 'start' is neither status nor stop" 'dibs local status' \
    local start
wrong "a password in -u can be seen by everybody (ps); use --password-file, --url-file, \$DIBS_URL or \$DIBS_PASSWORD" \
    'dibs run -u redis://db1.example --password-file FILE' \
    run -u redis://me:secret@db1.example a -- true
wrong "--password-file without a server: the private one has no password" \
    'dibs run -u redis://db1.example --password-file FILE backup -- make' \
    run --password-file x a -- true

# What is not quite a usage error but belongs here: files and addresses.
refused() { # MESSAGE WORDS...
    local message=$1
    shift
    case_is "dibs $*"
    ran 64 dibs "$@"
    same stdout '' "$out"
    same stderr "dibs: $message" "$err"
}
refused "cannot read the URL from '$T/none': No such file or directory" \
    run --url-file "$T/none" a -- true
: >empty
refused "there is no URL in '$T/empty'" run --url-file "$T/empty" a -- true
refused "there is no password in '$T/empty'" \
    run -u redis://h --password-file "$T/empty" a -- true
refused "'db1.example' is not the address of a server: it begins with no scheme that dibs knows; for example: redis://db1.example:6379 or unix:///run/redis.sock" \
    run -u db1.example a -- true

case_is 'a password is not shown'
DIBS_URL='nonsense://me:secret@db1' ran 64 dibs info a
has stderr "'nonsense://me:***@db1' is not" "$err"

case_is 'nothing was started'
same runtime '' "$(ls -A "$XDG_RUNTIME_DIR")"

# Times that are right, by what they come to.
server s
for row in 1h30m=5400000 1d=86400000 1m1.5s=61500 2m500ms=120500 90=90000 \
    1.5=1500 0.5m=30000 1d1h1m1s1ms=90061001 .2s=200; do
    case_is "--lease ${row%=*}"
    ran 0 dibs run -u "$url" --lease "${row%=*}" a -- sh -c 'echo $DIBS_LEASE_MS'
    same ms "${row#*=}" "$out"
done

# Help, by contrast, is what was asked for.
case_is help
ran 0 dibs help
same stderr '' "$err"
has stdout 'dibs run NAME -- COMMAND' "$out"
[ "$(wc -l <out.txt)" -le 24 ] || fail 'the first page is longer than a screen'
[ "$(wc -L <out.txt)" -le 80 ] || fail 'the first page is wider than a screen'
first=$out
ran 0 dibs --help
same '--help' "$first" "$out"
for sub in run hold acquire extend release info queue ls watch top wait metrics \
    force-unlock doctor slots sem latch acl local completion version help; do
    case_is "help $sub"
    ran 0 dibs help $sub
    page=$out
    ran 0 dibs $sub --help
    same "$sub --help" "$page" "$out"
    [ "$(wc -L <out.txt)" -le 80 ] || fail 'wider than a screen'
    case $sub in
    local | acl | completion | version | help)
        ! grep -q -e --url out.txt || fail "there is no server to name"
        ;;
    *) has stdout '--url URL' "$out" ;;
    esac
    # Only run has one.
    [ $sub = run ] || ! grep -q 'the command' out.txt || fail 'which command?'
done
case_is 'help suits the subcommand'
ran 0 dibs help doctor
has stdout uptime "$out"
ran 0 dibs help local
has stdout 'dibs local status|stop [--force]' "$out"
ran 0 dibs help run
has stdout 'when the lock is being lost, a third of the lease at most' "$(tr -s ' \n' ' ' <out.txt)"
case_is 'help of run: the options in the groups of the man page'
same groups 'Waiting:
The lock:
The command:
The server:
Messages:' "$(grep -x '[TWM][a-z ]*:' out.txt)"
listed() { sed -n 's/^  *\(-., \)\{0,1\}--\([a-z-]*\).*/\2/p' out.txt | sort; }
same 'each option once' "$(listed | uniq)" "$(listed)"
ran 0 dibs help release
has stdout "Release what 'dibs hold --for-pid PID' holds" "$out"
not grep -q 'Hold in the background' out.txt || fail "hold's text: $out"

case_is 'help of a verb'
ran 0 dibs help sem set
has stdout 'dibs sem set [options] NAME NUMBER' "$out"
not grep -qe '--lease' out.txt || fail 'an option of another verb'
page=$out
ran 0 dibs sem set --help
same '--help' "$page" "$out"
ran 0 dibs help sem acquire
has stdout '--lease TIME' "$out"
wrong "sem: 'lend' is not one of set, add, acquire, release, drain, info" \
    'dibs sem acquire --lease 30m license' help sem lend
wrong "help: 'run' has no verbs: 'fast' is one word too many" \
    'dibs run backup -- rsync -a /home /mnt' help run fast

case_is 'release without an owner: what acquire needs'
DIBS_URL=$url ran 80 dibs release a
has stderr "what 'dibs acquire' took is released with --owner HANDLE" "$err"

case_is 'a name that begins with a dash'
export DIBS_URL=$url
ran 0 dibs run -n -- -x -- echo in
same stdout in "$out"
ran 0 dibs run -n -c 'echo in' -- -x
same stdout in "$out"
ran 0 dibs acquire --lease 1m -- -x
handle=$out
ran 0 dibs extend --owner "$handle" --lease 2m -- -x
for words in info queue ls watch metrics doctor; do
    [ $words = watch ] || ran 0 dibs $words -- -x
done
ran 75 dibs wait -n -- -x
ran 75 dibs run -n -- -x -- true
ran 0 dibs release --owner "$handle" -- -x
ran 0 dibs wait -n -- -x
ran 0 dibs hold -- -x </dev/null
ran 0 dibs force-unlock --yes -- -x
ran 0 dibs slots set -- -slots 2
ran 0 dibs slots info -- -slots
ran 0 dibs sem set -- -sem 2
ran 0 dibs latch set -- -latch 0
ran 0 dibs acl -- '-x*'
wrong 'run: the NAME of the lock is missing' 'dibs run NAME -- a ...' run -- a b
unset DIBS_URL

case_is version
ran 0 dibs version
case $out in
'dibs '[0-9]*.[0-9]*.[0-9]*) ;;
*) fail "version says '$out'" ;;
esac
version=$out
ran 0 dibs --version
same '--version' "$version" "$out"

case_is 'a full disk is not success'
for words in version --version help 'help run'; do
    # shellcheck disable=SC2086 # words
    ran 70 sh -c '"$DIBS" "$@" >/dev/full' sh $words
    same stderr 'dibs: cannot write to stdout' "$err"
done

for pattern in 'ls [-l | --json] [PATTERN]' 'metrics [PATTERN]' \
    'top [--every TIME] [PATTERN]' \
    'watch [--json] [--every TIME] [NAME | PATTERN]'; do
    wrong "${pattern%% *}: the pattern '' is empty; leave it out for all locks" \
        "dibs $pattern" "${pattern%% *}" ''
done
wrong "queue: the name '' is empty" 'dibs queue [--json] NAME' queue ''
wrong 'watch: --every: shorter than 100 ms' 'dibs watch --every 1s' \
    watch --every 99ms
wrong 'top: --every: shorter than 100 ms' 'dibs top --every 1s' top --every 99ms
wrong 'ls: --long takes no value: '"'--long=1'" 'dibs ls --long' ls --long=1
