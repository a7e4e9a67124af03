#!/bin/bash
# deps.sh [build] [test] [check] [coverage] [interop] [servers] [package]
#         [versions]
#
# Installs the Debian or Ubuntu packages that are missing for building, for
# testing, for the checks, for counting what tests run, for the tests against
# Redisson, for bringing other servers, for making and trying packages, or for
# making roots of other versions of Debian; says what it does, and does nothing
# when nothing is missing. Needs root or sudo then, and only then.
set -euo pipefail

# What is needed, how to see that it is there, and which packages bring it.
# A probe is a command; it runs silently.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/dibs.XXXXXX")
compiles() {
    echo 'int main(void) { return 0; }' | "$@" -o "$scratch/out" -
}
# Maven needs a compiler, not only the machine.
has_java() {
    javac -version 2>&1 | grep -qE '^javac (1[7-9]|[2-9][0-9])'
}
# cffi, of the Python that comes first or of the system's.
has_cffi() {
    python3 -c 'import cffi' || /usr/bin/python3 -c 'import cffi'
}
needs_build=(
    "compiles cc -x c|gcc libc6-dev"
    "command -v cmake|cmake"
    "command -v make|make"
    "command -v pkg-config|pkg-config"
    "pkg-config --exists libuv|libuv1-dev"
    "pkg-config --exists hiredis|libhiredis-dev"
    "pkg-config --exists openssl|libssl-dev"
)
needs_test=(
    "compiles c++ -x c++|g++"
    "has_cffi|python3 python3-cffi"
    "pkg-config --exists cmocka|libcmocka-dev"
    "pkg-config --exists lua5.1|liblua5.1-0-dev"
    "pkg-config --exists sqlite3|libsqlite3-dev"
    "command -v redis-server|redis-server"
    "command -v redis-cli|redis-tools"
    "command -v openssl|openssl"
    "command -v zsh|zsh"
    "command -v fish|fish"
    "command -v systemd-analyze|systemd"
)
needs_check=(
    "compiles gcc -x c|gcc libc6-dev"
    "compiles g++ -x c++|g++"
    "compiles clang-14 -x c|clang-14"
    "command -v python3|python3"
    "compiles clang-14 -x c -fsanitize=address|libclang-rt-14-dev"
    "command -v clang-format-14|clang-format-14"
    "command -v groff|groff-base"
    "command -v nm|binutils"
    "command -v promtool|prometheus"
    "command -v luacheck|lua-check"
    "command -v python3|python3"
)
needs_coverage=(
    "compiles gcc -x c --coverage|gcc libc6-dev"
    "command -v python3|python3"
    "command -v gcovr|gcovr"
)
needs_interop=(
    "has_java|openjdk-17-jdk-headless"
    "command -v mvn|maven"
)
needs_servers=(
    "python3 -m pip --version|python3 python3-pip"
)
needs_package=(
    "command -v dpkg-buildpackage|dpkg-dev"
    "dpkg -s build-essential|build-essential"
    "command -v dh|debhelper"
    "command -v lintian|lintian"
    "command -v man|man-db"
    "command -v chroot|coreutils"
    "command -v unshare|util-linux"
    "command -v abidiff|abigail-tools"
)
needs_versions=(
    "command -v mmdebstrap|mmdebstrap"
    "command -v unshare|util-linux"
)

policy=/usr/sbin/policy-rc.d
policy_is_ours=no
as_root=()
clean_up() {
    rm -rf "$scratch"
    if [ $policy_is_ours = yes ]; then
        "${as_root[@]}" rm -f "$policy"
    fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { echo "deps: $*"; }

find_missing() { # KIND: adds to packages
    local -n needs=needs_$1
    local need
    for need in "${needs[@]}"; do
        local probe=${need%|*} names=${need#*|}
        # shellcheck disable=SC2086 # both are lists of words
        if ! $probe >/dev/null 2>&1; then
            packages+=($names)
        fi
    done
}

packages=()
for kind in "${@:-build}"; do
    case $kind in
    build | test | check | coverage | interop | servers | package | versions)
        find_missing "$kind"
        ;;
    *)
        echo "deps.sh: $kind is none of:" \
            "build test check coverage interop servers package versions" >&2
        exit 2
        ;;
    esac
done
if [ ${#packages[@]} -eq 0 ]; then
    exit 0
fi
mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)

say "missing: ${packages[*]}"
if ! command -v apt-get >/dev/null; then
    say "there is no apt-get here; please install what these packages bring"
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        say "neither root nor sudo; please run as root:"
        say "  apt-get install ${packages[*]}"
        exit 1
    fi
    as_root=(sudo)
fi

# Debian starts a service when its package is installed, and again at every
# boot. We want redis-server's program, which tests start themselves, and no
# service. policy-rc.d is how Debian is told not to start anything; an existing
# one is left alone, and ours is gone when we are.
wants_server=no
case " ${packages[*]} " in
*' redis-server '* | *' prometheus '*) wants_server=yes ;;
esac
if [ $wants_server = yes ] && [ ! -e "$policy" ]; then
    say "keeping services from being started, by $policy while installing"
    policy_is_ours=yes
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi

say "installing with apt-get${as_root[*]:+ and ${as_root[*]}}"
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=5 "$@"
}
# A mirror may be away for a moment, or just be renewed.
for pause in 5 20 0; do
    apt update ||
        say "the lists could not be renewed; trying with those there are"
    if apt install -y --no-install-recommends "${packages[@]}"; then
        break
    elif [ $pause -eq 0 ]; then
        exit 1
    fi
    say "that did not work; again in $pause s"
    sleep $pause
done

if [ $wants_server = yes ]; then
    if "${as_root[@]}" update-rc.d redis-server disable >/dev/null 2>&1; then
        say "redis-server was not started, and will not be at boot"
    else
        say "redis-server was not started; whether it is at boot is up to you"
    fi
fi
