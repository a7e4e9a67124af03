# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# The examples in the man pages and in README.md, taken from the pages and run
# (lib_recipes.sh says how they are found): what is for a shell by dash and by
# bash, on a server of this test; what is C is compiled and, if it is a whole
# program, run. So a page that changes is a test that changes.
#
# What the examples call (backup, ./job.sh, pg_dump ...) are stand-ins here.
# Each writes down under which lock it ran, and whether that was held.

. "$HERE/lib_recipes.sh"
# With a replica, for --replicas; replicas come by TCP.
server_with_port s --repl-diskless-sync-delay 0
export DIBS_URL=$url
server replica --replicaof 127.0.0.1 $port
online() { [ "$(redis s wait 1 100)" = 1 ]; }
await online
redis s acl setuser worker on '>sesame' '~*' '&*' +@all >/dev/null

mkdir -p path bin etc work
ln -s "$DIBS" path/dibs
echo sesame >etc/dibs.pw
chmod 600 etc/dibs.pw
cat >bin/stand-in <<'END'
#!/bin/sh
name=${DIBS_NAME:-${LOCK:-}} # LOCK: of a script with dibs hold
held=
old=$IFS
IFS=,
for one in $name; do
    held=$held$(redis-cli -s "${SOCK:-$T/s.sock}" exists "$one")
done
IFS=$old
echo "${0##*/} $* <$name> $held" >>"$BOX/steps"
hook=$BOX/hook.${0##*/}
[ ! -x "$hook" ] || "$hook"
END
chmod +x bin/stand-in
for name in backup sync-all nightly reindex serve; do
    ln -s stand-in bin/$name
done
for name in pg_dump; do
    ln -s ../bin/stand-in path/$name
done
for name in import deploy.sh job.sh move.sh dump migrate serve; do
    ln -s ../bin/stand-in work/$name
done
export BOX=$T # where steps are written down
# As an installed program would be found.
export PATH=$T/path:$PATH
# Sanitizers want to be in every program.
flags=()
case ${DIBS_SANITIZE:-} in
address) flags=(-fsanitize=address,undefined) ;;
?*) flags=("-fsanitize=$DIBS_SANITIZE") ;;
esac

recipes
case_is 'every example says what it is'
for block in blocks/*.unmarked; do
    [ ! -e "$block" ] || fail "$block: $(head -n 1 "$block")"
done

# Each kind is run by a function of its name; what is run, is moved away.
done_with() {
    mkdir -p done
    mv "$1" done/
}

# in_shell SHELL BLOCK: runs it in work; its end is only against hanging.
in_shell() {
    : >"$BOX/steps"
    moved <"$2" >"$BOX/script"
    (cd work && exec timeout $((60 * DIBS_TEST_SLOWNESS)) "$1" "$BOX/script" \
        >"$BOX/out.txt" 2>"$BOX/err.txt" </dev/null)
}

# All steps ran while their locks were held.
all_held() {
    local line
    while read -r line; do
        case ${line##* } in
        *0* | *'>') fail "ran without its lock: $line" ;;
        esac
    done <steps
}

# ---- whole scripts ------------------------------------------------------

for block in blocks/*.sh; do
    case $block in blocks/steps-* | blocks/objects-*) continue ;; esac
    for shell in dash bash; do
        case_is "$shell: $(head -n 1 "$block")"
        in_shell $shell "$block"
        code=$?
        [ $code -eq 0 ] || fail "code $code: $(cat err.txt)"
        runs=$(grep -c '^ *dibs run' "$block")
        [ "$(wc -l <steps)" -ge "$runs" ] || fail "not all ran: $(cat steps)"
        all_held
    done
    done_with "$block"
done

# ---- permits and latches ------------------------------------------------

for shell in dash bash; do
    case_is "$shell: permits"
    in_shell $shell blocks/objects-permits.sh || fail "code $?: $(cat err.txt)"
    same steps job.sh "$(cut -d ' ' -f 1 steps)"
    same permits 5 "$(redis s get license)"
    same book 0 "$(redis s zcard '{license}:dibs_held')"
    case_is "$shell: latch"
    in_shell $shell blocks/objects-latch.sh || fail "code $?: $(cat err.txt)"
    same steps deploy.sh "$(cut -d ' ' -f 1 steps)"
    free s ready || fail 'the latch is closed'
    case_is "$shell: no server"
    for block in blocks/objects-*.sh; do
        DIBS_URL=unix://$T/none.sock in_shell $shell "$block"
        same code 69 $?
        same steps '' "$(cat steps)"
    done
done
done_with blocks/objects-permits.sh
done_with blocks/objects-latch.sh

# ---- several steps of a script under one lock ---------------------------

# Takes the lock away while the step is at work, or kills what holds it. A step
# that dibs runs is then stopped; a step of a script that runs dibs hold goes on
# when the script has been signaled.
cat >lose <<'END'
#!/bin/sh
script=$(ps -o ppid= -p "$PPID" | tr -d ' ')
if [ "${KILLED:-}" ]; then
    kill -KILL $(pgrep -f "hold --for-pid $script migrate" | head -n 1)
else
    redis-cli -s "$SOCK" del migrate >/dev/null
fi
n=0
while [ $n -lt 3000 ]; do
    [ "${DIBS_NAME:-}" ] ||
        ! grep -q "signaling process $script" "$BOX/err.txt" || exit 0
    sleep 0.02
    n=$((n + 1))
done
END
chmod +x lose

export LOCK=migrate

# A loss is heard at the next renewal, which takes a while: all at once, each
# with a server of its own.
lose_it() { # SHELL BLOCK NUMBER
    export BOX=$T/lost.$3 SOCK=$T/lost$3.sock DIBS_URL=unix://$T/lost$3.sock
    mkdir "$BOX"
    cp lose "$BOX/hook.dump"
    in_shell "$1" "$2"
    echo $? >"$BOX/code"
}
n=0
losing=()
for block in blocks/steps-*.sh; do
    for shell in dash bash; do
        n=$((n + 1))
        server lost$n
        lose_it $shell "$block" $n &
        losing[n]=$!
    done
done
wait "${losing[@]}"
[ $n -eq 6 ] || fail "$n recipes of several steps"
for ((; n > 0; n--)); do
    case_is "lost: $(head -n 1 "lost.$n/script")"
    same code 80 "$(cat "lost.$n/code")"
    same steps dump "$(cut -d ' ' -f 1 "lost.$n/steps")"
    await free lost$n migrate
    redis lost$n shutdown nosave
done

for block in blocks/steps-*.sh; do
    for shell in dash bash; do
        case_is "$shell: $block"
        in_shell $shell "$block"
        code=$?
        [ $code -eq 0 ] || fail "code $code: $(cat err.txt)"
        same steps $'dump  <migrate> 1\nmigrate  <migrate> 1' \
            "$(cat steps)"
        await free s migrate

        case_is "$shell: $block, no server"
        DIBS_URL=unix://$T/none.sock in_shell $shell "$block"
        same code 69 $?
        same steps '' "$(cat steps)"
        has stderr 'no answer from' "$(cat err.txt)"
    done
    case $block in
    *hold*)
        for shell in dash bash; do
            case_is "$shell: $block, hold is killed"
            redis s del migrate >/dev/null # as the lease would end
            cp lose hook.dump
            KILLED=1 SOCK=$T/s.sock in_shell $shell "$block"
            same code 80 $?
            same steps dump "$(cut -d ' ' -f 1 steps)"
            rm hook.dump
        done
        redis s del migrate >/dev/null
        ;;
    esac
    same 'nothing left behind' '' "$(find "$T" -type p)"
    done_with "$block"
done
unset LOCK

# ---- other formats ------------------------------------------------------

# As cron reads it: variables, then lines with five fields before the command.
for block in blocks/*.crontab; do
    case_is "$(head -n 1 "$block")"
    : >steps
    moved <"$block" >tab
    sed -n 's/^\([A-Z_]*=.*\)/export \1/p' tab >job
    sed -n 's/^\([^ ]* \)\{5\} *\([^ ].*\)/\2/p' tab >>job
    ran 0 sh job
    same 'ran once' 1 "$(wc -l <steps)"
    all_held
    redis s flushall >/dev/null # --min-hold
    done_with "$block"
done

for block in blocks/*.unit; do
    case_is "$(head -n 1 "$block")"
    : >steps
    moved <"$block" | sed -e :a -e '/\\$/N; s/\\\n//; ta' >unit
    sed -n 's/^Environment=/export /p; s/^ExecStart=//p' unit >job
    ran 0 sh job
    same 'ran once' 1 "$(wc -l <steps)"
    all_held
    done_with "$block"
done

# Steps under a lock that no process holds.
export LOCK
for block in blocks/*.pipeline; do
    for shell in dash bash; do
        case_is "$shell: $(head -n 2 "$block" | tail -n 1)"
        LOCK=deploy
        in_shell $shell "$block"
        same code 0 $?
        same steps 'deploy.sh  <deploy> 1' "$(cat steps)"
        free s deploy || fail 'is still held'
    done
    done_with "$block"
done
for block in blocks/*.unitsteps; do
    case_is "$(grep ExecStartPre "$block")"
    LOCK=reindex
    : >steps
    moved <"$block" | sed "s|/run/|$T/run.|" >unit
    for step in ExecStartPre ExecStart ExecStopPost; do
        sed -n "s/^$step=-\{0,1\}//p" unit >job
        ran 0 sh job
    done
    same steps 'reindex  <reindex> 1' "$(cat steps)"
    free s reindex || fail 'is still held'
    done_with "$block"
done
unset LOCK

for block in blocks/*.makefile; do
    case_is "$(head -n 1 "$block")"
    : >steps
    moved <"$block" >work/Makefile
    ran 0 make -C work ENV=test
    same steps 'deploy.sh test <deploy-test> 1' "$(cat steps)"
    done_with "$block"
done

for block in blocks/*.settings; do
    case_is "$(head -n 1 "$block")"
    mkdir -p config/dibs
    moved <"$block" >config/dibs/config
    XDG_CONFIG_HOME=$T/config ran 0 env -u DIBS_URL "$DIBS" run a -- \
        sh -c 'echo $DIBS_LEASE_MS'
    same lease 60000 "$out"
    same stderr '' "$err"
    done_with "$block"
done

# ---- C ------------------------------------------------------------------

build=$(cd "$(dirname "$DIBS")/.." && pwd)
for block in blocks/*.c; do
    case_is "$block"
    moved <"$block" >example.c
    compile=("$CC" -std=c11 -Wall -Wextra -Werror "${flags[@]}"
        "-I$top/include" example.c)
    if grep -q '^int main' example.c; then
        ran 0 "${compile[@]}" -o example "-L$build" "-Wl,-rpath,$build" -ldibs
        ran 0 timeout $((60 * DIBS_TEST_SLOWNESS)) ./example "$DIBS_URL"
        [ -n "$out" ] || fail 'it says nothing'
        same 'locks left' '' "$(redis s keys '*')"
    else
        ran 0 "${compile[@]}" -c -o example.o
    fi
    done_with "$block"
done

# Statements, in a function that has what they need.
as_function() { # BLOCK
    printf '#include <dibs/dibs.h>\n%s\n' \
        'dibs_err use(dibs_lock *l); dibs_err use(dibs_lock *l) { dibs_err err;'
    cat "$1"
    echo 'return err; }'
}
for block in blocks/*.statement; do
    case_is "$block"
    as_function "$block" >example.c
    ran 0 "$CC" -std=c11 -Wall -Wextra -Werror "-I$top/include" -fsyntax-only \
        example.c
    done_with "$block"
done
for block in blocks/*.cpp; do
    case_is "$block"
    if grep -q '^int main' "$block"; then
        moved <"$block" >example.cpp
        ran 0 "${CXX:-g++}" -std=c++17 -Wall -Wextra -Werror "${flags[@]}" \
            "-I$top/include" example.cpp -o example "-L$build" \
            "-Wl,-rpath,$build" -ldibs
        ran 0 timeout $((60 * DIBS_TEST_SLOWNESS)) ./example "$DIBS_URL"
        [ -n "$out" ] || fail 'it says nothing'
        same 'locks left' '' "$(redis s keys '*')"
        done_with "$block"
        continue
    fi
    as_function "$block" >example.cpp
    ran 0 "${CXX:-g++}" -std=c++11 -Wall -Wextra -Werror "-I$top/include" \
        -fsyntax-only example.cpp
    done_with "$block"
done

# ---- what README says of installing and of make -------------------------

# Made already: what make does here is to install. The test has no sudo.
cat >path/sudo <<'END'
#!/bin/sh
[ "$1" = ldconfig ] || exec "$@"
END
cat >path/make <<'END'
#!/bin/sh
[ $# -gt 0 ] || exit 0
DESTDIR=$T/root exec cmake --install "$BUILD"
END
printf '#!/bin/sh\nexec %s %s "$@"\n' "$(command -v "$CC")" "${flags[*]}" >path/cc
chmod +x path/sudo path/make path/cc
case_is 'README: install'
for block in blocks/*.install; do
    moved <"$top/README.md" | sed -n '/^```c$/,/^```$/{/^```/!p}' >work/job.c
    lib=$T/root$(sed -n 's/^libdir=//p' "$build/dibs.pc")
    BUILD=$build PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$T/root \
        in_shell dash "$block"
    code=$?
    [ $code -eq 0 ] || fail "code $code: $(cat err.txt)"
    LD_LIBRARY_PATH=$lib ran 0 work/job
    has stdout 'ours: one at a time' "$out"
    done_with "$block"
done
for block in blocks/*.cmake; do
    case_is 'README: with CMake'
    mkdir -p project
    cp work/job.c project/
    {
        echo 'cmake_minimum_required(VERSION 3.18)'
        echo 'project(job LANGUAGES C)'
        echo 'add_executable(job job.c)'
        cat "$block"
    } >project/CMakeLists.txt
    ran 0 env PATH="${PATH#*:}" cmake -S project -B project/build \
        -DCMAKE_PREFIX_PATH="$T/root$(sed -n 's/^prefix=//p' "$build/dibs.pc")" "-DCMAKE_C_FLAGS=${flags[*]}"
    ran 0 env PATH="${PATH#*:}" cmake --build project/build
    ran 0 project/build/job
    done_with "$block"
done
rm -f path/sudo path/make path/cc

for block in blocks/*.targets; do
    case_is 'README: make'
    while read -r _ target _; do
        ran 0 make -n -C "$top" "$target"
    done <"$block"
    done_with "$block"
done

# What these make is tried by `make check-deb` and `make check-static`.
for block in blocks/*.made; do
    case_is "README: $(head -n 1 "$block")"
    read -r _ target _ <"$block"
    ran 0 make -n -C "$top" "$target"
    done_with "$block"
done

case_is 'README: what doctor says'
dibs doctor >doctor.txt
for block in blocks/*.findings; do
    while read -r verdict check _; do
        [ "$verdict" != ... ] || continue
        grep -qE "^(ok|note|warning|problem) +$check " doctor.txt ||
            fail "doctor has no check '$check'"
        case $verdict in
        ok | note | warning | problem) ;;
        *) fail "doctor has no verdict '$verdict'" ;;
        esac
    done <"$block"
    done_with "$block"
done

case_is 'nothing was left out'
rm -f blocks/*.demo       # demo.sh
rm -f blocks/*.assignment # those are for TLS: tls.sh
same blocks '' "$(ls blocks)"
