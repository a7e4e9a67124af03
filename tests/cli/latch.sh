# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs latch: wait until so many are ready.

server s
export DIBS_URL=$url

case_is 'open until it is set'
ran 0 dibs latch wait l
same stdout open "$out"
ran 0 dibs latch info l
same stdout open "$out"
ran 0 dibs latch down l
same stdout open "$out"

case_is 'counted down to zero'
ran 0 dibs latch set l 3
same stdout '3 left' "$out"
ran 1 dibs latch set l 9
has stderr 'l is closed already, 3 left: nothing changed' "$err"
ran 75 dibs latch wait -n l
has stderr 'l is not open' "$err"
ran 75 dibs latch wait -w 50ms l
ran 9 dibs latch wait -n -E 9 l
"$DIBS" latch wait l >opened.txt &
waiter=$!
listening() { [ "$(redis s pubsub numsub 'redisson_countdownlatch__channel__{l}' | tail -n 1)" = 1 ]; }
await listening
ran 0 dibs latch down --as web1 l
same stdout '2 left' "$out"
ran 0 dibs latch down --as web1 l
same 'once for a name' '2 left' "$out"
ran 0 dibs latch down --json l
same stdout '{"name":"l","left":1}' "$out"
ran 0 dibs info l
has stdout 'state    closed' "$out"
has stdout 'kind     latch' "$out"
has stdout 'left     1' "$out"
ran 0 dibs info --json l
same left 1 "$(json left "$out")"
same kind latch "$(json kind "$out")"
ran 0 dibs ls
has stdout ' latch ' "$out"
has stdout ' (1 left)' "$out"
same lines 2 "$(wc -l <<<"$out")"
ran 64 dibs force-unlock --yes l
has stderr "'dibs latch set NAME 0' opens it" "$err"
alive $waiter || fail 'it did not wait'
ran 0 dibs latch down l
same stdout open "$out"
ended 0 $waiter
same waiter open "$(cat opened.txt)"

case_is 'the name may count again when it was set again'
ran 0 dibs latch set l 1
ran 0 dibs latch down --as web1 l
same stdout open "$out"

case_is 'opened by hand'
ran 0 dibs latch set l 3
ran 0 dibs latch set l 0
same stdout open "$out"
ran 0 dibs latch set l 0

case_is 'a deadline'
# The deadline may come before the wait begins: with a later one then.
for deadline in 300ms 3s 30s; do
    ran 0 dibs latch set --deadline $deadline l 3
    "$DIBS" latch wait -w 60s l >out.txt 2>err.txt
    code=$? err=$(cat err.txt)
    [ $code -eq 0 ] || break
done
same code 75 $code
has stderr 'l is not open: ' "$err"
has stderr deadline "$err"
ran 0 dibs latch info l
same stdout open "$out"

case_is 'what is refused, before anything is done'
bad() { # PART WORDS...
    local part=$1
    shift
    ran 64 dibs "$@"
    has stderr "$part" "$err"
}
bad "'-1' is not a number from 0" latch set l -- -1
bad "'2147483648' is not a number" latch set l 2147483648
bad "--as has no effect with 'latch set'" latch set --as x l 3
bad "--deadline has no effect with 'latch down'" latch down --deadline 1h l
bad "-n has no effect with 'latch info'" latch info -n l
bad "--as: '' is empty" latch down --as '' l
bad "'open' is not one of set, down, wait, info" latch open l
bad "unknown option '--lease'" latch wait --lease 1m l
same nothing 0 "$(redis s exists l)"

case_is 'the name is something else'
redis s set text abc >/dev/null
ran 64 dibs latch set text 3
ran 64 dibs latch down text
ran 64 dibs latch info text
ran 64 dibs latch wait -n text
same text abc "$(redis s get text)"

case_is 'completion'
ran 0 dibs complete latch ''
same words 'set down wait info' "$(tail -n +2 <<<"$out" | cut -f 1 | paste -sd ' ')"
ran 0 dibs complete latch down --
has options --as "$out"
case_is 'one that nobody has set: --must-exist'
ran 0 dibs latch wait none
ran 1 dibs latch wait --must-exist none
has stderr 'nobody has set the latch none' "$err"
same stdout '' "$out"
ran 1 dibs latch wait --must-exist -n none
ran 0 dibs latch set made 1
ran 75 dibs latch wait --must-exist -n made
ran 0 dibs latch down made
ran 0 dibs latch wait --must-exist made # it was set, and is open
same stdout open "$out"

case_is 'one that nobody has set: --of'
"$DIBS" latch wait --of 2 pair >wait.txt &
waiter=$!
pair_set() { [ "$(redis s get pair)" = 2 ]; }
await pair_set
ran 75 dibs latch wait -n --of 3 pair
same 'the first one counts' 2 "$(redis s get pair)"
ran 0 dibs latch down pair
ran 0 dibs latch down pair
ended 0 $waiter
same stdout open "$(cat wait.txt)"
ran 0 dibs latch wait -n --of 2 pair # not closed again
free s pair || fail 'it was set again'

case_is 'what does not fit together'
ran 64 dibs latch wait --of 3 --must-exist l
has stderr '--of and --must-exist cannot be used together' "$err"
ran 64 dibs latch wait --of 0 l
ran 64 dibs latch wait --of
ran 64 dibs latch down --of 3 l
has stderr "--of has no effect with 'latch down'" "$err"
ran 64 dibs latch info --must-exist l

finish
