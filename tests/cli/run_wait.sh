# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What a waiting run says: on a terminal a line that changes and goes away,
# elsewhere a message, and more of them with -v.

$CC -std=c11 -o pty "$HERE/pty.c" || fail 'cannot build pty'
export DIBS_URL
owner=5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1

# The cases take seconds each, so all run at once. Each begins with alone: a
# server and a folder of its own.
alone() { # NAME
    on=$1
    server "$on"
    DIBS_URL=$url
    release="until redis-cli -s $T/$on.sock del b >/dev/null; redis-cli -s $T/$on.sock publish 'redisson_lock__channel:{b}' 0 >/dev/null"
}

take() { # NAME
    redis "$on" hset "$1" $owner 1 >/dev/null
}
give_back() { # NAME
    redis "$on" del "$1" >/dev/null
    redis "$on" publish "redisson_lock__channel:{$1}" 0 >/dev/null
}

# on_terminal CODE COMMAND...: with the steps from stdin; what was shown is in
# $out, carriage returns as newlines.
on_terminal() {
    local want=$1 code
    shift
    cat >steps.txt
    "$T/pty" steps.txt "$@" >shown.txt 2>pty.err
    code=$?
    out=$(tr '\r' '\n' <shown.txt)
    [ $code -eq "$want" ] || fail "want code $want, got $code: $(cat pty.err) $out"
}

# What is left on the screen: of each line, what was written over the rest.
on_screen() {
    awk 'BEGIN { RS = "\n" } {
        n = split($0, part, "\r"); line = ""
        for (i = 1; i <= n; i++)
            line = part[i] substr(line, length(part[i]) + 1)
        sub(/ +$/, "", line); print line
    }' shown.txt
}

shown() {
    case_is 'on a terminal: who has it, for how long we have waited; then gone'
    alone shown
    take b
    on_terminal 0 "$DIBS" run b -- echo ran <<END
match dibs: waited [2-9]
expect held by $owner
match dibs: waited [3-9]
$release
expect ran
END
    same 'left on the screen' ran "$(on_screen)"
}

interrupted() {
    case_is 'interrupted: gone, too'
    alone interrupted
    take b
    on_terminal 130 "$DIBS" run b -- echo ran <<END
match dibs: waited [2-9]
send \\003
END
    case $(on_screen) in *waited*) fail "left on the screen: $(on_screen)" ;; esac
}

narrow() {
    case_is 'a narrow terminal: no line is wider than it'
    alone narrow
    take b
    on_terminal 0 "$DIBS" run b -- echo ran <<END
columns 30
match dibs: waited [2-9]
match dibs: waited ([4-9]|[1-9][0-9])
$release
expect ran
END
    [ "$(tr '\r' '\n' <shown.txt | wc -L)" -lt 30 ] || fail "too wide: $out"
    same 'left on the screen' ran "$(on_screen)"
}

escapes() {
    case_is 'a name that could command a terminal'
    alone escapes
    name=$(printf 'x\033[2J\nö')
    redis "$on" hset "$name" "$(printf '1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1\033[31m')" 1 >/dev/null
    on_terminal 130 "$DIBS" run --any-name "$name" -- true <<END
columns 200
match waited [2-9]
expect x\\x1b[2J\\n
expect held by 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1\\x1b[31m
send \\003
END
    case $(cat shown.txt) in *$'\033'*) fail "escapes: $(cat -v shown.txt)" ;; esac
}

between() {
    case_is 'a message in between has a line of its own'
    alone between
    take b
    on_terminal 0 "$DIBS" run -v b -- echo ran <<END
expect waiting for b
match dibs: waited [3-9]
$release
expect got b after
expect ran
END
    grep -q '^dibs: got b after' <<<"$(on_screen)" || fail "screen: $(on_screen)"
}

quiet() { # SERVER OPTION...
    case_is "not with ${*:2}"
    alone "$1"
    take b
    on_terminal 0 "$DIBS" run "${@:2}" b -- echo ran <<END
until sleep 3
$release
expect ran
END
    same shown ran "$(tr -d '\r' <shown.txt)"
}

background() {
    case_is 'not in the background of the terminal'
    alone background
    take b
    on_terminal 0 bash -mc '"$DIBS" run b -- echo ran & wait' <<END
until sleep 3
$release
expect ran
END
    case $out in *waited*) fail "shown: $out" ;; esac
}

rate() {
    case_is 'the server is not asked more often than every two seconds'
    alone rate
    take b
    redis "$on" config resetstat >/dev/null
    on_terminal 0 "$DIBS" run b -- echo ran <<END
match dibs: waited [2-9]
match dibs: waited ([6-9]|[1-9][0-9])
$release
expect ran
END
    # Each look is one script; those of the waiter itself come as often at most.
    n=$(redis "$on" info commandstats | grep -o 'cmdstat_evalsha\(_ro\)\?:calls=[0-9]*' |
        grep -o '[0-9]*$' | paste -sd+ | bc)
    [ "$n" -le 20 ] || fail "$n scripts"
}

pipe() {
    case_is 'not a terminal: messages, and nothing with -q'
    alone pipe
    take b
    "$DIBS" run -q b -- echo ran >out.txt 2>err.txt &
    job=$!
    "$DIBS" run -v b -- echo ran >out2.txt 2>err2.txt &
    job2=$!
    await said "held by $owner, no end left" err2.txt
    same stderr '' "$(cat err.txt)"
    give_back b
    ended 0 $job
    ended 0 $job2
    same stderr '' "$(cat err.txt)"
    grep -q '^dibs: waited [2-9]' err2.txt || fail "-v: $(cat err2.txt)"
}

json_fields() {
    case_is 'JSON: owner and times are fields'
    alone json_fields
    take b
    "$DIBS" run -v --log json b -- echo ran >out.txt 2>err.txt &
    job=$!
    await said '"left_ms"' err.txt
    line=$(grep -m 1 '"left_ms"' err.txt)
    same event waiting "$(json event "$line")"
    same owner $owner "$(json owner "$line")"
    same left -1 "$(json left_ms "$line")"
    [ "$(json waited_ms "$line")" -ge 2000 ] || fail "waited: $line"
    give_back b
    ended 0 $job
    line=$(grep '"acquired"' err.txt)
    has owner : "$(json owner "$line")"
    [ "$(json waited_ms "$line")" -ge 2000 ] || fail "waited: $line"
    line=$(grep '"released"' err.txt)
    has owner : "$(json owner "$line")"
    [ "$(json held_ms "$line")" -ge 0 ] || fail "held: $line"
    take b
    ran 75 dibs run -n --log json b -- true
    same owner $owner "$(json owner "$err")"
    same left -1 "$(json left_ms "$err")"
    [ "$(json waited_ms "$err")" -ge 0 ] || fail "waited: $err"
}

half_of_rw() {
    case_is 'half of a read-write lock: who has the other half'
    alone half_of_rw
    redis "$on" hset b mode write "$owner:write" 1 >/dev/null
    ran 75 dibs run -n -s b -- echo ran
    has stderr "b is taken: held by $owner:write" "$err"
    "$DIBS" run -v -s b -- echo ran >out.txt 2>err.txt &
    job=$!
    await said "held by $owner:write, no end left" err.txt
    redis "$on" del b >/dev/null
    redis "$on" publish 'redisson_rwlock:{b}' 1 >/dev/null
    ended 0 $job
}

no_terminal() {
    case_is 'without a terminal: a line after two seconds'
    alone no_terminal
    take quiet
    "$DIBS" run quiet -- echo ran >out.txt 2>err.txt &
    job=$!
    await said 'dibs: waited 2' err.txt
    has stderr "for quiet: held by $owner" "$(cat err.txt)"
    same lines 1 "$(wc -l <err.txt)"
    give_back quiet
    ended 0 $job
    same stdout ran "$(cat out.txt)"
    take quiet
    ran 75 dibs run -w 3s -q quiet -- true
    same stderr '' "$err"
}

days() {
    case_is 'days'
    alone days
    take quiet
    redis "$on" pexpire quiet 93700000 >/dev/null
    ran 75 dibs run -n quiet -- true
    has stderr 'lease ends in 1 d 2 h' "$err"
    ran 0 dibs info quiet
    has stdout '1 d 2 h' "$out"
}

for name in \
    shown interrupted narrow escapes between \
    background rate pipe json_fields half_of_rw no_terminal days; do
    beside $name $name
done
beside quiet quiet quiet -q
beside quiet_json quiet quiet_json --log json
