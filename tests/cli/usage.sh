# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Command lines that make no sense: the bad word is named, a line that would be
# right follows, the code is 64, and nothing was started.

example='dibs run backup -- rsync -a /home /mnt'

# wrong 'MESSAGE' 'RIGHT LINE' WORDS...
wrong() {
    local message=$1 right=$2
    shift 2
    case_is "dibs ${*:0:200}"
    ran 64 dibs "$@"
    same stdout '' "$out"
    same stderr "dibs: $message"$'\n'"dibs: right would be: $right" "$err"
}

wrong "what shall it be? 'dibs help' shows what there is" "$example"
wrong "there is no subcommand 'rum'" "$example" rum backup -- true
wrong "there is no subcommand ''" "$example" ''
wrong "unknown option '--frob'" "$example" --frob run a -- true
wrong "unknown option '-n' in '-n'" "$example" -n run a -- true

wrong 'run: the NAME of the lock is missing' "$example" run
wrong 'run: the NAME of the lock is missing' "$example" run -- true
wrong 'run: the command is missing' "$example" run a
wrong 'run: the command is missing' "$example" run a --
wrong "run: unexpected word 'true'; the command stands behind --" "$example" \
    run a true
wrong "run: unknown option '--frob'" "$example" run --frob a -- true
wrong "run: unknown option '-z' in '-nz'" "$example" run -nz a -- true
wrong "run: unknown option '--yes'" "$example" run --yes a -- true
wrong "run: unknown option '--a\\nb\\x1b'" "$example" run $'--a\nb\e' a -- true
wrong "run: --no-wait takes no value: '--no-wait=1'" "$example" \
    run --no-wait=1 a -- true
wrong "run: -c and a command behind --: 'true' is one too many" "$example" \
    run -c true a -- true

with() { # OPTION-AND-VALUE
    echo "dibs run $1 backup -- rsync -a /home /mnt"
}
no_time="is not a time such as 500ms, 10s or 2m"
wrong "run: -w: 'a' $no_time" "$(with '-w 10s')" run -w a -- true
wrong 'run: -w needs a value' "$(with '-w 10s')" run a -w -- true
wrong 'run: -w needs a value' "$(with '-w 10s')" run a -w
wrong "run: -w: '' $no_time" "$(with '-w 10s')" run -w '' a -- true
wrong "run: -w: '-5' is negative" "$(with '-w 10s')" run -w -5 a -- true
wrong "run: -w: '-5s' is negative" "$(with '-w 10s')" run --wait=-5s a -- true
wrong "run: -w: '5 s' $no_time" "$(with '-w 10s')" run -w '5 s' a -- true
wrong "run: -w: '5x' $no_time" "$(with '-w 10s')" run -w5x a -- true
wrong "run: -w: '99999999999999999999' is longer than a thousand years" \
    "$(with '-w 10s')" run -w 99999999999999999999 a -- true
wrong "run: --lease: '9223372036854775807' is longer than a thousand years" \
    "$(with '--lease 30s')" run --lease 9223372036854775807 a -- true
wrong 'run: --lease: shorter than 100 ms' \
    'dibs run --lease 30s backup -- rsync -a x y' run --lease 99ms a -- true
wrong 'run: --lease: shorter than 100 ms' \
    'dibs run --lease 30s backup -- rsync -a x y' run --lease 0 a -- true
wrong 'run: --max-hold: shorter than 100 ms' \
    'dibs run --max-hold 1h backup -- make all' run --max-hold 1ms a -- true
wrong 'run: --max-hold says nothing with --no-renew' \
    'dibs run --no-renew --lease 1h backup -- make all' \
    run --no-renew --max-hold 1s a -- true
wrong 'run: --fair-call: shorter than 100 ms' \
    'dibs run --fair --fair-call 5s backup -- make' \
    run --fair --fair-call 99ms a -- true
wrong 'run: --fair-call says nothing without --fair' \
    'dibs run --fair --fair-call 5s backup -- make' \
    run --fair-call 1s a -- true
wrong "run: -E: '256' is not a code, 0 to 255" "$(with '-E 75')" \
    run -E 256 a -- true
wrong "run: -E: '-1' is not a code, 0 to 255" "$(with '-E 75')" \
    run -E -1 a -- true
wrong "run: --on-lost: 'pray' is none of term, kill, warn, exec:CMD or a signal" \
    "$(with '--on-lost term')" run --on-lost pray a -- true
wrong "run: --status-fd: 'x' is not a descriptor" "$(with '--status-fd 3')" \
    run --status-fd x a -- true
for n in x -1 1.5 ALL '' 99999999999; do
    wrong "run: --replicas: '$n' is neither a number nor all" \
        "$(with '--replicas 1')" run --replicas "$n" a -- true
done
wrong 'run: --status-fd: descriptor 77 is not open for writing' \
    'dibs run --status-fd 3 backup -- make 3>status' \
    run --status-fd 77 a -- true
wrong "run: --log: 'xml' is neither text nor json" "$(with '--log json')" \
    run --log xml a -- true
wrong "run: -u: '' is empty" "$(with '-u redis://db1.example:6379')" \
    run -u '' a -- true

wrong "run: --multi: 'c,d' is a second one; put all of them behind the first" \
    'dibs run --multi stock,orders -- ./move' \
    run --multi a,b --multi c,d -- true
DIBS_URL='' wrong '$DIBS_URL is set, but empty' 'unset DIBS_URL DIBS_URL_FILE' \
    run a -- true
DIBS_URL_FILE='' wrong '$DIBS_URL_FILE is set, but empty' \
    'unset DIBS_URL DIBS_URL_FILE' run a -- true

# Names.
hint='   (or, if you mean it, --any-name)'
wrong "run: the name '' is empty" "$example" run '' -- true
wrong "run: the name 'a b' has a space in it" "$example$hint" run 'a b' -- true
wrong "run: the name 'a\\nb' has a control character in it" "$example$hint" \
    run $'a\nb' -- true
long=$(printf '%2048s' '' | tr ' ' x)
wrong "run: the name 'xxxxxxxxxxxxxxxxxxxx...' has 2048 bytes, 1024 are allowed" \
    "$example" run "$long" -- true

# The others.
wrong 'hold: the NAME of the lock is missing' 'dibs hold backup' hold
wrong "hold: unexpected word 'b'" 'dibs hold backup' hold a b
wrong "hold: unknown option '-t' in '-t'" 'dibs hold backup' hold -t 1s a
wrong "hold: the name 'a b' has a space in it" "dibs hold backup$hint" \
    hold 'a b'
wrong 'info: the NAME of the lock is missing' 'dibs info backup' info
wrong "ls: unexpected word 'b'" "dibs ls 'backup*'" ls a b
wrong 'force-unlock: the NAME of the lock is missing' \
    'dibs force-unlock --yes backup' force-unlock --yes
wrong "force-unlock: whoever holds 'a' will lose it while at work; say --yes if that is what you want" \
    'dibs force-unlock --yes NAME' force-unlock a
wrong 'local: status or stop is missing' 'dibs local status' local
wrong "local: 'start' is neither status nor stop" 'dibs local status' \
    local start
wrong "help: there is no subcommand 'rum'" 'dibs help run' help rum
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
refused "'db1.example' is not the address of a server: it begins with no scheme that dibs knows; right would be: redis://db1.example:6379 or unix:///run/redis.sock" \
    run -u db1.example a -- true

case_is 'a password is not shown'
DIBS_URL='nonsense://me:secret@db1' ran 64 dibs info a
has stderr "'nonsense://me:***@db1' is not" "$err"

case_is 'nothing was started'
same runtime '' "$(ls -A "$XDG_RUNTIME_DIR")"

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
for sub in run hold info queue ls force-unlock doctor local version help; do
    case_is "help $sub"
    ran 0 dibs help $sub
    page=$out
    ran 0 dibs $sub --help
    same "$sub --help" "$page" "$out"
    [ "$(wc -L <out.txt)" -le 80 ] || fail 'wider than a screen'
    case $sub in
    local | version | help)
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
has stdout 'when the lock is being lost, never more than a third' "$(tr -s ' \n' ' ' <out.txt)"
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
