# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# dibs run on a terminal: keys that send signals, commands that read, job
# control by a shell, pipelines, colors.

$CC -std=c11 -o pty "$HERE/pty.c" || fail 'cannot build pty'
server s
export DIBS_URL=$url

# on_terminal CODE COMMAND...: with the steps from stdin; what was shown is in
# $out, without carriage returns.
on_terminal() {
    local want=$1 code
    shift
    cat >steps.txt
    ./pty steps.txt "$@" >shown.txt 2>err.txt
    code=$?
    out=$(tr -d '\r' <shown.txt)
    [ $code -eq "$want" ] || fail "want code $want, got $code: $(cat err.txt) $out"
}

# The same inside an interactive shell, whose prompt is "$ ".
in_shell() { # CODE
    cat - >inner.txt <<'END'
PS1='$ '
set +o history
unset PROMPT_COMMAND
bind 'set enable-bracketed-paste off' 2>/dev/null
END
    on_terminal "$1" bash --noprofile --rcfile inner.txt -i
}

C=\\003 # Ctrl-C
D=\\004 # Ctrl-D
Z=\\032 # Ctrl-Z

# Succeeds when the process in the file pid runs and has the terminal; with an
# argument, or when dibs, its parent, has it.
cat >in_front.sh <<'END'
read -r p <pid || exit 1
read -r _ _ state parent _ _ _ front _ <"/proc/$p/stat" || exit 1
[ "$state" != T ] || exit 1
[ "$front" = "$p" ] || { [ $# -gt 0 ] && [ "$front" = "$parent" ]; }
END
in_front='until sh in_front.sh'
ours_in_front='until sh in_front.sh or-dibs'

case_is 'Ctrl-C'
on_terminal 130 "$DIBS" run a -- sh -c 'echo ready; exec sleep 1000' <<END
expect ready
send $C
END
free s a || fail 'is still held'

case_is 'Ctrl-\'
on_terminal 131 "$DIBS" run a -- sh -c 'ulimit -c 0; echo ready; exec sleep 1000' <<END
expect ready
send \\034
END

case_is 'Ctrl-C while waiting'
redis s hset b 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1 >/dev/null
on_terminal 130 "$DIBS" run -v b -- true <<END
expect waiting for b
send $C
END
redis s del b >/dev/null

case_is 'the command reads from the terminal'
on_terminal 4 "$DIBS" run a -- bash -c 'read -r x; echo "got <$x>"; exit 4' <<END
send hello\\r
expect got <hello>
END

case_is 'the command sets the terminal up'
on_terminal 0 "$DIBS" run a -- sh -c 'stty -echo && stty echo && echo fine' <<END
expect fine
END

case_is 'Ctrl-C after the command took the terminal'
on_terminal 130 "$DIBS" run a -- \
    bash -c 'read -r x; echo ready; exec sleep 1000' <<END
send x\\r
expect ready
send $C
END
free s a || fail 'is still held'

case_is '--foreground'
on_terminal 5 "$DIBS" run --foreground a -- \
    bash -c 'read -r x; echo "got <$x>"; exit 5' <<END
send hello\\r
expect got <hello>
END
on_terminal 130 "$DIBS" run --foreground a -- \
    sh -c 'echo ready; exec sleep 1000' <<END
expect ready
send $C
END

case_is 'a shell as the command'
on_terminal 7 "$DIBS" run a -- env PS1='% ' bash --norc --noprofile -i <<END
expect %
send echo \$DIBS_NAME-\$((1 + 1))\\r
expect a-2
send sh -c 'echo \$\$ >pid; exec sleep 1000'\\r
$in_front
send $C
expect ^C
expect %
send echo still \$((1 + 1))\\r
expect still 2
send exit 7\\r
END

case_is 'hold until Ctrl-D'
on_terminal 0 "$DIBS" hold a <<END
expect -
send $D
END
free s a || fail 'is still held'

case_is 'the terminal goes away'
"$DIBS" version >/dev/null
on_terminal 129 "$DIBS" run a -- sh -c 'echo ready; exec sleep 1000' <<END
expect ready
hangup
END
await free s a

# ---- inside a shell ----------------------------------------------------

# The shell sees dibs stop; the command stops when it is scheduled next.
state='until grep -q "^State:.T" /proc/\$(cat pid)/status; do sleep 0.02; done; echo "<""T>"'

case_is 'Ctrl-Z, fg, Ctrl-C'
in_shell 3 <<END
expect $
send "\$DIBS" run a -- sh -c 'echo \$\$ >pid; echo rea''dy; exec sleep 1000'\\r
expect ready
send $Z
expect Stopped
send $state\\r
expect <T>
send redis-cli -s s.sock exists a\\r
expect 1
send fg\\r
$ours_in_front
send $C
expect ^C
expect $
send exit 3\\r
END
free s a || fail 'is still held'

case_is 'Ctrl-Z and bg'
mkfifo go
in_shell 3 <<END
expect $
send "\$DIBS" run a -- sh -c 'echo \$\$ >pid; echo rea''dy; read x <go; exit 6'\\r
expect ready
send $Z
expect Stopped
send bg\\r
send echo x >go; wait %1; echo code \$?\\r
expect code 6
send exit 3\\r
END

case_is 'Ctrl-Z after the command took the terminal'
in_shell 3 <<END
expect $
send "\$DIBS" run a -- bash -c 'echo \$\$ >pid; echo "a""sks"; read x; echo "rea""dy"; read y; echo "<\$x\$y>"'\\r
expect asks
send one\\r
expect ready
send $Z
expect Stopped
send echo in \$((1 + 1)) between\\r
expect in 2 between
send fg\\r
$in_front
send two\\r
expect <onetwo>
send exit 3\\r
END

case_is 'in the background, reading: stopped until it is brought to the front'
in_shell 3 <<END
expect $
send "\$DIBS" run a -- bash -c 'echo \$\$ >pid; read x; echo "<\$x>"' &\\r
expect $
send wait %1 2>/dev/null; jobs\\r
expect Stopped
send fg\\r
$in_front
send hello\\r
expect <hello>
send exit 3\\r
END

case_is 'Ctrl-C ends a loop, too'
in_shell 3 <<END
expect $
send while :; do "\$DIBS" run a -- sh -c 'echo rea''dy; exec sleep 1000'; done\\r
expect ready
send $C
expect ^C
expect $
send echo out of \$((1 + 1)) it\\r
expect out of 2 it
send exit 3\\r
END

case_is 'another part of the pipeline has the terminal'
in_shell 3 <<END
expect $
send "\$DIBS" run a -- echo piped | { read x; echo "a""sks"; read y </dev/tty; echo "<\$x \$y>"; }\\r
expect asks
send typed\\r
expect <piped typed>
send exit 3\\r
END

case_is 'hold in the background is not stopped by what is typed elsewhere'
in_shell 3 <<END
expect $
send "\$DIBS" hold a >owner & echo \$! >pid\\r
until test -s owner
send echo typed \$((1 + 1))\\r
expect typed 2
send echo typed \$((2 + 2))\\r
expect typed 4
send jobs\\r
expect Running
send fg\\r
$in_front
send $C
expect ^C
expect $
send exit 3\\r
END
free s a || fail 'is still held'

# A sanitizer must be the first library of a program.
if [ -z "$DIBS_SANITIZE" ]; then
    case_is 'hold is brought to the front between its poll and its read'
    $CC -shared -fPIC -o late_read.so "$HERE/late_read.c" || fail 'late_read.c'
    rm -f owner
    in_shell 3 <<END
expect $
send LD_PRELOAD=./late_read.so "\$DIBS" hold a >owner & echo \$! >pid\\r
until test -s owner
send until test -e polled; do sleep 0.02; done\\r
send echo typed \$((1 + 1))\\r
expect typed 2
send fg\\r
$in_front
send $C
expect ^C
expect $
send exit 3\\r
END
    free s a || fail 'is still held'
fi

# ---- colors -----------------------------------------------------------

case_is colors
TERM=xterm on_terminal 0 "$DIBS" info a </dev/null
has stdout $'\e[32mfree\e[0m' "$out"
TERM=xterm NO_COLOR=1 on_terminal 0 "$DIBS" info a </dev/null
same stdout $'name     a\nstate    free\nserver   '"$url" "$out"
TERM=xterm ran 0 dibs info a
same 'not on a terminal' $'name     a\nstate    free\nserver   '"$url" "$out"
