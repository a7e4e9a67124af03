#!/bin/sh
# Builds the programs of the comparison into a folder. What cannot be built
# here, because a tool or a package is missing, is left out with a word; run.py
# compares what is there.
#
# Usage: bench/peers/build.sh BUILD-FOLDER OUT      (the first has libdibs.a)
# PEERS=c builds only the C programs, for which no network is needed.
set -u
build=$(cd "$1" && pwd) || exit 1
mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 1
top=$(cd "$(dirname "$0")/../.." && pwd)
here=$top/bench/peers

skip() { # WHAT WHY
    echo "peers: $1 is left out: $2" >&2
}

# Runs a build step quietly; what it said is shown only if it failed.
step() { # WHAT COMMAND...
    what=$1
    shift
    if "$@" >"$out/$what.log" 2>&1; then
        return 0
    fi
    tail -n 3 "$out/$what.log" >&2
    skip "$what" "it could not be built (all of it: $out/$what.log)"
    return 1
}

have() { # WHAT TOOL
    command -v "$2" >/dev/null 2>&1 || { skip "$1" "there is no $2"; return 1; }
}

build_go() {
    cd "$here/go" && GOFLAGS=-buildvcs=false go build -o "$out/go-peer" .
}

build_rust() {
    mkdir -p "$out/rust" && cp -R "$here/rust/Cargo.toml" "$here/rust/src" \
        "$out/rust/" && cd "$out/rust" &&
        cargo build --release --target-dir "$out/cargo" &&
        cp "$out/cargo/release/peer" "$out/rust-peer"
}

build_java() {
    mvn -q -B -f "$here/java/pom.xml" -Dout="$out/java" package \
        dependency:build-classpath
}

build_node() {
    mkdir -p "$out/node" && cp "$here/node/package.json" \
        "$here/node/peer.cjs" "$out/node/" && cd "$out/node" &&
        npm install --silent --no-audit --no-fund --no-package-lock
}

build_python() {
    python3 -m venv "$out/python" &&
        "$out/python/bin/pip" install -q -r "$here/python/requirements.txt" &&
        cp "$here/python/peer.py" "$out/python/"
}

build_c() {
    cc=${CC:-cc}
    # shellcheck disable=SC2046 # words on purpose
    "$cc" -std=gnu11 -O2 -Wall -Wextra -I"$top/include" -I"$top/src" \
        -o "$out/c-peer" "$here"/c/*.c "$build/libdibs.a" -lpthread \
        $(pkg-config --libs hiredis libuv openssl)
}

build_c || { echo "peers: the C programs could not be built" >&2; exit 1; }
[ "${PEERS:-all}" != c ] || exit 0
have Go go && step go build_go
have Rust cargo && step rust build_rust
have Java mvn && step java build_java
have JavaScript npm && step node build_node
have Python python3 && step python build_python
exit 0
