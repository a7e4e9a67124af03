# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# So many at a time: dibs run -N, dibs slots; --fence and its token;
# --no-reentry and --spin. With what is shown of them, and what is refused.

server s
export DIBS_URL=$url

holder() { # WORDS...: holds until stop_holder
    mkfifo in 2>/dev/null
    : >held.txt
    "$DIBS" hold "$@" <in >held.txt 2>/dev/null 8>&- &
    job=$!
    exec 8>in
    await test -s held.txt
}

stop_holder() {
    exec 8>&-
    ended 0 $job
}

case_is 'three at a time, each with a slot of its own'
ran 0 dibs slots set db 3
same out '' "$out$err"
for i in 1 2 3; do
    mkfifo in$i
    "$DIBS" run -N 3 db -- sh -c 'echo "$DIBS_SLOT $DIBS_PERMIT $DIBS_OWNER" >got.new.$0; mv got.new.$0 got.$0; read -r _' $i <in$i &
    jobs[i]=$!
done
exec 5>in1 6>in2 7>in3
for i in 1 2 3; do
    await test -s got.$i
done
same slots '0 1 2' "$(cat got.? | cut -d ' ' -f 1 | sort | paste -sd ' ')"
ran 75 dibs run -n -N 3 db -- true
has stderr 'all 3 slots are held, one by ' "$err"
ran 0 dibs info db
has stdout 'kind     slots' "$out"
has stdout 'slots    3, 0 free' "$out"
same holders 3 "$(grep -c '^holder ' <<<"$out")"
has stdout "($(uname -n), pid " "$out"
ran 0 dibs info --json db
same kind slots "$(json kind "$out")"
same free 0 "$(json free "$out")"
same owners 3 "$(json owners "$out")"
same modes 4 "$(grep -o '"mode":"slots"' <<<"$out" | wc -l)"
ran 0 dibs ls --json
same mode slots "$(json mode "$out")"
ran 0 dibs ls
has stdout ' slots ' "$out"
has stdout ' +2' "$out"
same lines 2 "$(wc -l <<<"$out")"

ran 0 dibs queue db
same stdout 'nobody waits' "$out"
ran 0 dibs queue --json db
same stdout '[]' "$out"
ran 64 dibs run --publish x -N 3 db -- true
has stderr '--publish is for one lock that one holder has' "$err"

case_is 'the permit is what the server has'
read -r _ permit owner <got.1
same permits "$permit" "$(redis s zrange '{db}:timeout' 0 -1 | xxd -p | tr -d '\n' | grep -o "$permit")"

case_is 'force-unlock must name one of them'
ran 64 dibs force-unlock --yes db
has stderr 'say which holder' "$err"
same held 3 "$(redis s zcard '{db}:timeout')"
ran 75 dibs force-unlock --yes --if-owner 5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1 db
ran 0 dibs force-unlock --yes --if-owner "$owner" db
has stdout "was held by $owner and is free now" "$out"
same held 2 "$(redis s zcard '{db}:timeout')"
ran 0 dibs run -n -N 3 db -- true
exec 5>&- 6>&- 7>&-
for i in 1 2 3; do
    wait ${jobs[i]}
done
same 'all are free' 3 "$(redis s get db)"

case_is 'how many: the server counts'
ran 0 dibs run -N 5 db -- true
has stderr "'db' has 3 slots, not 5: the number on the server is used" "$err"
ran 64 dibs run --strict -N 5 db -- touch ran
has stderr "db has 3 slots, and --slots says 5; 'dibs slots set db 5' changes it" "$err"
[ ! -e ran ] || fail 'the command ran'
ran 0 dibs run --strict -N 3 db -- true
ran 0 dibs run --strict -N 2 new -- true
same number 2 "$(redis s get new)"
ran 0 dibs slots set --json db 5
same slots 5 "$(json slots "$out")"
ran 0 dibs run --strict -N 5 db -- true
ran 0 dibs slots info db
has stdout 'slots    5, 5 free' "$out"

case_is 'nested: the same slot, not a second one'
ran 0 dibs run -N 1 one -- "$DIBS" run -N 1 one -- sh -c 'echo "$DIBS_SLOT $DIBS_PERMIT"'
has stdout '0 d1b501' "$out"
ran 0 dibs run -N 1 one -- "$DIBS" run --strict -N 1 one -- true
ran 64 dibs run -N 1 one -- "$DIBS" run --strict -N 2 one -- touch ran
has stderr 'one has 1 slot, and --slots says 2' "$err"
[ ! -e ran ] || fail 'the command ran'
ran 75 dibs run -N 1 one -- "$DIBS" run --no-reentry -N 1 one -- touch ran
has stderr 'one is held by the dibs run around this command; --no-reentry' "$err"
ran 75 dibs run a -- "$DIBS" run --no-reentry a -- touch ran
ran 75 dibs run a -- "$DIBS" run --no-reentry --multi a,b -- touch ran
[ ! -e ran ] || fail 'the command ran'
ran 0 dibs run --no-reentry a -- true
free s a || fail 'a is still held'

case_is 'acquire, extend, release of a slot'
ran 0 dibs acquire -N 2 --lease 10m two
handle=$out
has handle slot: "$handle"
ran 0 dibs acquire -N 2 --lease 10m --json two
same slot 1 "$(json slot "$out")"
has permit d1b501 "$(json permit "$out")"
other=$(json owner "$out")
ran 75 dibs run -n -N 2 two -- true
ran 0 dibs extend --owner "$handle" --lease 20m two
ran 0 dibs release --owner "$handle" two
ran 80 dibs release --owner "$handle" two
same free 1 "$(redis s get two)"
ran 0 dibs release --owner "$other" two
same free 2 "$(redis s get two)"

case_is '--min-hold keeps the slot'
ran 0 dibs run -N 2 --min-hold 10m two -- true
same free 1 "$(redis s get two)"
same out 1 "$(redis s zcard '{two}:timeout')"

case_is 'killed with -9: the slot comes back'
killed() { # OPTIONS... NAME
    rm -f pid.command
    "$DIBS" run --lease 10m "$@" -- \
        sh -c 'echo $$ >pid.new; mv pid.new pid.command; exec sleep 1000' 2>err.txt &
    job=$!
    await test -s pid.command
    kill -KILL $job
    ended 137 $job
    await dead "$(cat pid.command)"
}
killed -N 1 kill
ran 0 dibs run -w 60s -N 1 kill -- true
same free 1 "$(redis s get kill)"
killed --fence fkill
ran 0 dibs run -w 60s --fence fkill -- true
await free s fkill

case_is 'tokens grow'
ran 0 dibs run --fence f -- sh -c 'echo $DIBS_TOKEN'
first=$out
[ "$first" -gt 0 ] || fail "no token: $first"
ran 0 dibs run --fence f -- sh -c 'echo $DIBS_TOKEN'
[ "$out" -gt "$first" ] || fail "$out after $first"
ran 0 dibs run --fence f -- "$DIBS" run --fence f -- sh -c 'echo $DIBS_TOKEN'
last=$out
[ "$last" -gt "$first" ] || fail 'a nested run has no token'
same last "$last" "$(redis s get 'redisson_lock_token:{f}')"
ran 64 dibs run f -- "$DIBS" run --fence f -- touch ran
has stderr 'whose token is not known here' "$err"
ran 0 dibs run --fence f -- "$DIBS" run g -- sh -c 'echo "<$DIBS_TOKEN>"'
same 'not that of another lock' '<>' "$out"
ran 0 dibs run --fence f -- "$DIBS" info f
has stdout 'token    ' "$out"
holder --fence --json f
token=$(json token "$(cat held.txt)")
same token "$token" "$(json token "$("$DIBS" info --json f)")"
ran 75 dibs run -n f -- true
stop_holder
ran 0 dibs acquire --fence --lease 10m --json f
[ "$(json token "$out")" -gt "$token" ] || fail 'acquire: no token'
handle=$(json owner "$out")
has handle fence: "$handle"
ran 0 dibs extend --owner "$handle" --lease 11m f
ran 0 dibs release --owner "$handle" f
await free s f

case_is 'a holder that was stopped is refused by its token'
# The store takes what has a token that is not smaller than the largest.
cat >store.sh <<'END'
[ "$DIBS_TOKEN" -ge "$(cat largest 2>/dev/null || echo 0)" ] || exit 9
echo "$DIBS_TOKEN" >largest
END
mkfifo go
"$DIBS" run --fence --lease 10m --on-lost warn store -- sh -c 'sh store.sh; : >first; read -r _ <go; sh store.sh' 2>/dev/null &
job=$!
await test -e first
ran 0 dibs force-unlock --yes store # as if its lease had ended meanwhile
ran 0 dibs run --fence store -- sh store.sh
echo >go
ended 81 $job # its command was refused, and the lock lost before
same largest "$(redis s get 'redisson_lock_token:{store}')" "$(cat largest)"

case_is 'spin: no message is needed'
holder sp
"$DIBS" run --spin -v sp -- true 2>wait.txt 8>&- &
waiter=$!
await said waiting wait.txt
same subscribers 0 "$(redis s pubsub numsub 'redisson_lock__channel:{sp}' | tail -n 1)"
stop_holder
ended 0 $waiter

case_is 'what does not fit together'
bad() { # PART WORDS...
    local part=$1
    shift
    ran 64 dibs "$@"
    has stderr "$part" "$err"
    [ ! -e ran ] || fail 'the command ran'
}
bad '--fence and --fair cannot be used together' run --fence --fair a -- touch ran
bad '--fence and --multi cannot be used together' run --fence --multi a,b -- touch ran
bad '--fence and --quorum cannot' run --fence --quorum redis://a,redis://b,redis://c a -- touch ran
bad '--slots and --multi cannot' run -N 2 --multi a,b -- touch ran
bad 'use only one of --fair, -s, -x, --fence and -N' run -N 2 -s a -- touch ran
bad 'use only one of' run --fence -x a -- touch ran
bad '--spin and --fair cannot' run --spin --fair a -- touch ran
bad '--strict has no effect without --slots' run --strict a -- touch ran
bad "'0' is not a number from 1" run -N 0 a -- touch ran
bad "'x' is not a number from 1" run --slots x a -- touch ran
bad "'-1' is not a number from 1" run -N -1 a -- touch ran
bad "'2147483648' is not a number" run -N 2147483648 a -- touch ran
bad 'the verb is missing: set, info' slots
bad "'put' is not one of set, info" slots put db 3
bad 'the NAME is missing' slots set
bad 'the number is missing' slots set db
bad "'0' is not a number from 1 to 2147483647" slots set db 0
bad "'three' is not a number" slots set db three
bad "unexpected word '4'" slots info db 4
bad "unexpected word 'x'" slots set db 4 x
bad "the name '' is empty" slots set '' 4
same number 5 "$(redis s get db)"

case_is 'another kind has the name'
redis s set text abc >/dev/null
ran 64 dibs run -n -N 2 text -- touch ran
ran 64 dibs slots set text 3
ran 64 dibs slots info text
same text abc "$(redis s get text)"
holder h
ran 64 dibs run -n -N 2 h -- touch ran
stop_holder
[ ! -e ran ] || fail 'the command ran'

case_is 'no server'
DIBS_URL=unix://$T/nobody.sock ran 69 dibs slots set db 3
# ---- a number that is somebody else's --------------------------------------

case_is 'the name of a semaphore that is in use'
ran 0 dibs sem set license 5
ran 0 dibs sem acquire --lease 10m license
handle=$out
for words in 'slots set license 3' 'run -N 3 license -- true' \
    'acquire -N 3 --lease 1m license' 'hold -N 3 --no-stdin license'; do
    # shellcheck disable=SC2086
    ran 64 dibs $words
    has stderr "license is a semaphore: 'dibs sem' is for it; take another name" "$err"
done
same free 4 "$(redis s get license)"
ran 0 dibs sem release --owner "$handle" license
same free 5 "$(redis s get license)"

case_is 'the name of a latch'
ran 0 dibs latch set door 2
ran 64 dibs slots set door 3
has stderr "door is a latch: 'dibs latch' is for it" "$err"
ran 64 dibs run -N 3 door -- true
same count 2 "$(redis s get door)"

finish
