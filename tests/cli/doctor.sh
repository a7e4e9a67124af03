# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs doctor: what a server means for locks, as text and as JSON.

export XDG_RUNTIME_DIR=$T/run
mkdir -m 700 "$XDG_RUNTIME_DIR"

case_is 'nobody there'
ran 69 dibs doctor
has stderr 'the private server does not run' "$err"
same stdout '' "$out"
ran 69 dibs -u "unix://$T/none.sock" doctor
has stderr 'no answer' "$err"

case_is 'usage'
ran 64 dibs doctor a b
ran 64 dibs doctor --lease 1ms
ran 64 dibs doctor ''
ran 0 dibs help doctor
has stdout '--json' "$out"

server s
export DIBS_URL=$url

case_is 'well enough'
ran 0 dibs doctor
has stdout 'ok       version      Redis' "$out"
has stdout 'warning  persistence  none' "$out"
same stderr '' "$err"
ran 0 dibs doctor --lease 24h a
has stdout 'warning  uptime' "$out"

case_is 'a problem'
redis s config set maxmemory-policy allkeys-lru >/dev/null
redis s config set maxmemory 100mb >/dev/null
ran 1 dibs doctor
has stdout 'problem  eviction     maxmemory-policy allkeys-lru' "$out"

case_is 'JSON'
ran 1 dibs doctor --json
same verdict problem "$(json verdict "$(tail -n 1 <<<"$out" | sed 's/.*]//')")"
has stdout "\"server\":\"$url\"" "$out"
has stdout '{"checks":[{"check":"version","verdict":"ok","text":"' "$out"
has stdout '{"check":"eviction","verdict":"problem","text":"' "$out"
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys
d = json.load(sys.stdin)
assert len(d["checks"]) > 10 and set(d) == {"checks", "verdict", "server"}' <<<"$out" ||
        fail 'not one JSON object'
fi
case_is 'a full server'
redis s config set maxmemory-policy noeviction >/dev/null
redis s config set maxmemory 1 >/dev/null
ran 1 dibs doctor
has stdout 'problem  eviction     noeviction, and all of maxmemory is used: no lock can be taken' "$out"
redis s config set maxmemory 0 >/dev/null

case_is 'rights'
redis s acl setuser jobs on '>pw' '~*' '&*' +@all -hset >/dev/null
redis s acl setuser default -eval >/dev/null
ran 1 dibs doctor
has stdout 'problem  scripting' "$out"
ran 1 env DIBS_PASSWORD=pw "$DIBS" -u "unix://jobs@$T/s.sock" doctor
has stdout 'may not HSET: locks do not work' "$out"
ran 77 env DIBS_PASSWORD=wrong "$DIBS" -u "unix://jobs@$T/s.sock" doctor

case_is 'a key that our user may not read, without ACL DRYRUN'
redis s acl setuser default +eval >/dev/null
redis s acl setuser some on '>pw' '~lock:*' '&*' +@all -acl >/dev/null
some() { # CODE WORDS...
    local want=$1
    shift
    ran "$want" env DIBS_PASSWORD=pw "$DIBS" "$@" -u "unix://some@$T/s.sock"
}
some 77 info other
some 1 doctor other
has stdout 'problem  key          the lock cannot be read' "$out"
has stdout NOPERM "$out"
has stdout 'with this name, may not HEXISTS' "$out"
has stdout 'no fair locks' "$out"
some 0 doctor lock:1
not grep -q 'with this name.*locks do not work' out.txt || fail "$out"
some 0 doctor
not grep -q 'with this name' out.txt || fail "$out"

case_is 'which server'
ran 0 dibs doctor
same 'first line' "ok       server       $url" "$(head -n 1 out.txt)"
DIBS_URL="redis+unix://u:secret@$T/s.sock" ran 64 dibs doctor
DIBS_URL="unix://some:pw@$T/s.sock" ran 0 dibs doctor
same 'no password' "ok       server       unix://some:***@$T/s.sock" "$(head -n 1 out.txt)"

case_is 'slots, semaphores and latches are no problem'
ran 0 dibs latch set l 2
ran 0 dibs doctor l
has stdout 'ok       key          a latch' "$out"
ran 0 dibs sem set m 2
ran 0 dibs doctor m
has stdout 'note     key          a number: slots, a semaphore or a latch' "$out"
ran 0 dibs sem acquire --lease 1h m
ran 0 dibs doctor m
has stdout 'ok       key          a semaphore' "$out"
finish
