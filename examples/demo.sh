#!/bin/bash
# SPDX-License-Identifier: MIT
#
# demo.sh [DIBS]: what dibs does, to watch, in half a minute.
#
# Everything happens in a temporary folder with a private server of its own: no
# lock of yours is touched, and nothing is left, also when you press Ctrl-C.
set -u

dibs=${1:-dibs}
case $dibs in
*/*) dibs=$(cd "$(dirname "$dibs")" && pwd)/$(basename "$dibs") ;;
esac
if ! command -v "$dibs" >/dev/null; then
    echo "demo.sh: there is no $dibs; build it first, or name it" >&2
    exit 1
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/dibs-demo.XXXXXX") || exit 1
unset DIBS_URL DIBS_URL_FILE DIBS_PASSWORD DIBS_OWNER DIBS_OWNERS
export XDG_RUNTIME_DIR=$dir dibs dir
cd "$dir" || exit 1

# ---- leaving nothing behind --------------------------------------------

# All we start has our folder in its environment. A process that is being ended
# may just have started another, so we look until there is none.
clean_up() {
    local process found=yes
    trap '' EXIT INT TERM HUP
    while [ $found = yes ]; do
        found=no
        for process in $(env -u XDG_RUNTIME_DIR grep -lsF \
            "XDG_RUNTIME_DIR=$dir" /proc/[0-9]*/environ | cut -d / -f 3); do
            kill -KILL "$process" 2>/dev/null && found=yes
        done
    done
    wait 2>/dev/null
    "$dibs" local stop --force >/dev/null 2>&1
    cd / && rm -rf "$dir"
    printf '%s' "$show_cursor"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# ---- how it looks ------------------------------------------------------

hide_cursor= show_cursor= bold= plain= green= yellow= red=
moving=no
if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then
    moving=yes
    hide_cursor=$'\e[?25l' show_cursor=$'\e[?25h'
    if [ -z "${NO_COLOR:-}" ]; then
        bold=$'\e[1m' plain=$'\e[0m'
        green=$'\e[32m' yellow=$'\e[33m' red=$'\e[31m'
    fi
fi
case ${LC_ALL:-${LC_CTYPE:-${LANG:-}}} in
*[Uu][Tt][Ff]*) waits=· works=█ dies=✗ ;;
*) waits=. works=# dies=X ;;
esac
printf '%s' "$hide_cursor"

say() {
    printf '%s\n' "$*"
}

scene() {
    printf '\n%s%s%s\n\n' "$bold" "$*" "$plain"
}

# ---- who does what -----------------------------------------------------
#
# Everybody has a file that says what they do: w waits, h has the lock and
# works, x was killed, - is done. The lanes below show these files, twenty times
# a second.

# is WHO WHAT: nobody sees it half written.
is() {
    echo "$2" >"new.$1"
    mv "new.$1" "is.$1"
}

# wants WHO SECONDS [OPTIONS...]: a dibs run that works for so long.
wants() {
    local who=$1 seconds=$2
    shift 2
    is "$who" w
    (
        "$dibs" run "$@" "${lock:-printer}" -- sh -c '
            is() { echo "$2" >"new.$1"; mv "new.$1" "is.$1"; }
            is "$1" h
            [ ! "$DIBS_TOKEN" ] || ./sends "$1" "$2"
            echo $$ >"command.$1"
            while [ "$DIBS_SLOT" ] && [ ! -e full ]; do sleep 0.05; done
            sleep "$2"
            is "$1" -' sh "$who" "$seconds" 2>"said.$who" &
        echo $! >"pid.$who"
        wait $!
        code=$?
        echo $code >"code.$who"
        [ $code -eq 0 ] && is "$who" - || is "$who" x
        echo over >"over.$who"
    ) 2>/dev/null &
}

busy() {
    local who is
    for who in $cast; do
        is=
        [ ! -s "is.$who" ] || read -r is <"is.$who"
        case $is in [wh]) return 0 ;; esac
    done
    return 1
}

declare -A lane gone
draw() {
    local who
    for who in $cast; do
        printf '%s  %-5s %s%s\n' "$erase" "$who" "${lane[$who]}" "$plain"
    done
}

# One more column in each lane. The most that worked at a time are in $most; the
# file full is there once all printers were in use.
advance() {
    local who is now=0
    for who in $cast; do
        is=
        [ ! -s "is.$who" ] || read -r is <"is.$who"
        case $is in
        w) lane[$who]+=$yellow$waits ;;
        h)
            lane[$who]+=$green$works
            now=$((now + 1))
            ;;
        x)
            [ -n "${gone[$who]:-}" ] || lane[$who]+=$red$dies
            gone[$who]=1
            lane[$who]+=' '
            ;;
        *) lane[$who]+=' ' ;;
        esac
    done
    [ $now -le $most ] || most=$now
    [ $most -lt 3 ] || : >full
}

# watch COLUMN COMMAND...: shows the lanes until all are done, and runs COMMAND
# when it comes to that column.
watch() {
    local columns=0 at=$1 first=yes
    shift
    erase=
    while busy || [ $columns -lt "$at" ]; do
        [ $columns -ne "$at" ] || "$@"
        advance
        if [ $moving = yes ]; then
            [ $first = yes ] || printf '\e[%dA' "$(wc -w <<<"$cast")"
            erase=$'\e[2K'
            draw
        fi
        first=no
        columns=$((columns + 1))
        [ $columns -lt 160 ] || break # nothing here takes eight seconds
        sleep 0.05
    done
    [ $moving = yes ] || draw
}

await() {
    local i
    for ((i = 0; i < 1500; i++)); do # that long only if something is wrong
        [ -s "$1" ] && return
        sleep 0.02
    done
}

# Until all have left the stage: who is done works no more, but may still give
# back the lock, and say so once more.
all_over() {
    local who
    for who in $cast; do
        await "over.$who"
    done
}

cast=
begin() { # WHO...
    local who
    all_over
    cast=$* most=0
    for who in $cast; do
        lane[$who]=
        gone[$who]=
        rm -f "is.$who" "pid.$who" "code.$who" "command.$who" "said.$who" \
            "over.$who"
    done
}

# A dead process whose new parent has not asked for it yet is dead.
alive() {
    local state
    state=$(ps -o stat= -p "$1")
    [ -n "$state" ] && [ "${state#Z}" = "$state" ]
}

# ---- the play ----------------------------------------------------------

say "${bold}dibs: one at a time.${plain} ($waits waits, $works has the lock and works, $dies is stopped)"

scene '1. Four people, one printer:  dibs run printer -- ...'
begin ann bob cleo dan
for who in $cast; do
    wants "$who" 0.6
done
watch 0 true
say
say "  $(grep -hs 'started a private' said.* | head -n 1)"

scene '2. Ann is killed with -9 while she has the lock (a lease of 10 minutes)'
begin ann bob
wants ann 30 --lease 10m
await is.ann
await command.ann
wants bob 0.6
ann_dies() {
    kill -KILL "$(cat pid.ann)"
}
watch 12 ann_dies
say
if alive "$(cat command.ann)"; then
    say "  Her command lives on. That should not be."
else
    say "  Her command died with her, and her guard gave the lock back at once."
fi

scene "3. Somebody breaks Ann's lock:  dibs force-unlock --yes printer"
begin ann bob
wants ann 30
await command.ann
wants bob 0.8
broken() {
    "$dibs" force-unlock --yes printer >broken.txt
}
watch 30 broken
say
say "  Bob had it at once. Ann was told at once, too, and her command was stopped,"
say "  although her lease is 30 s. Meanwhile there were two of them for a moment,"
say "  which is why it takes a --yes."
say "  $(head -n 1 said.ann)"
say "  Her exit code is $(cat code.ann): lost."

scene '4. Three printers, five people:  dibs run -N 3 printers -- ...'
begin ann bob cleo dan eve
lock=printers
for who in $cast; do
    wants "$who" 0.6 -N 3
done
watch 0 true
say
say "  At most $most at a time. \$DIBS_SLOT is the number of the printer."

scene '5. Ann is stopped for longer than her lease; her page arrives late'
cat >store <<'END'
#!/bin/sh
# store WHO TOKEN: takes nothing that is older than what it has.
if [ "$2" -lt "$(cat largest 2>/dev/null || echo 0)" ]; then
    echo "  The store refused the page of $1: its token is older."
else
    echo "$2" >largest
    echo "  The store took the page of $1."
fi >>pages
END
cat >sends <<'END'
#!/bin/sh
# sends WHO SECONDS: Bob's page is there at once, Ann's is on its way when she
# is stopped.
[ "$1" = ann ] || exec ./store "$1" "$DIBS_TOKEN"
setsid sh -c 'echo sent >sent
    n=0
    while [ ! -e arrived ] && [ $n -lt 400 ]; do
        sleep 0.05
        n=$((n + 1))
    done
    ./store ann "$DIBS_TOKEN"' >/dev/null 2>&1 &
END
chmod +x store sends
begin ann bob
lock=paper
wants ann 30 --fence --lease 3s
await command.ann
await sent
kill -STOP "$(cat pid.ann)"
wants bob 0.8 --fence --lease 3s
ann_wakes() {
    await pages
    : >arrived
    kill -CONT "$(cat pid.ann)"
}
watch 60 ann_wakes
arrives() {
    local i
    for ((i = 0; i < 1500; i++)); do
        [ "$(wc -l <pages)" -ge 2 ] && return
        sleep 0.02
    done
}
arrives
say
cat pages
say "  Each hold has a larger token (\$DIBS_TOKEN) than all before it."

scene 'What is left?'
all_over
say "  locks:   $("$dibs" ls | wc -l)"
say "  server:  $("$dibs" local stop)"
