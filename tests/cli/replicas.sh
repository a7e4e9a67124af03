# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# --replicas: a lock that replicas must have, too.

# Replicas come by TCP, so the master needs a port.
server_with_port m --repl-diskless-sync-delay 0
export DIBS_URL=$url
server r1 --replicaof 127.0.0.1 $port
server r2 --replicaof 127.0.0.1 $port
r2_pid=$server_pid
DIBS_URL=unix://$T/m.sock
online() { [ "$(redis m wait 2 100)" = 2 ]; }
await online

case_is 'enough'
for n in 0 1 2 all; do
    ran 0 dibs run --replicas $n a -- redis-cli -s "$T/r1.sock" exists a
    [ $n = 0 ] || [ $n = 1 ] || same "on a replica, $n" 1 "$out"
done
for kind in --fair -s -x; do
    ran 0 dibs run $kind --replicas all a -- redis-cli -s "$T/r2.sock" exists a
    same "on a replica, $kind" 1 "$out"
done
ran 0 dibs hold --replicas=2 a </dev/null

case_is 'too few'
kill -STOP $r2_pid
await stopped $r2_pid
for n in 2 3 all; do
    ran 69 dibs run --lease 3s --replicas $n a --status-fd 3 -- echo in 3>status
    same stdout '' "$out"
    has stderr "1 of ${n/all/2} replicas have it" "$err"
    same cause replicas "$(json cause "$(cat status)")"
    same lock not-taken "$(json lock "$(cat status)")"
    free m a || fail 'is still held'
done
ran 69 dibs hold --lease 3s --replicas 2 a </dev/null
ran 69 dibs run --lease 3s --replicas 2 --multi a,b -- true
has stderr '1 of 2 replicas have it' "$err"
free m a && free m b || fail 'is still held'
# Taken is another matter than too few.
ran 69 dibs run --lease 3s -n --ok-if-busy --replicas 2 a -- true
ran 0 dibs run --replicas 1 a -- echo in
same stdout in "$out"
kill -CONT $r2_pid

case_is 'none at all'
server alone
ran 69 dibs run -u "$url" --replicas all a -- echo in
same stdout '' "$out"
has stderr 'the server has no replicas connected' "$err"
ran 69 dibs run -u "$url" --lease 3s --replicas 1 a -- echo in
has stderr '0 of 1 replicas have it' "$err"
ran 69 dibs run -u "$url" --replicas all --multi a,b -- echo in
has stderr 'the server has no replicas connected' "$err"

case_is 'no right'
redis m acl setuser default -wait >/dev/null
ran 77 dibs run --replicas 1 a -- true
free m a || fail 'is still held'
ran 0 dibs run a -- true
finish
