#!/bin/bash
# check_static.sh COMMAND
#
# COMMAND, the dibs without shared libraries, alone in an empty root: nothing is
# in there but that one file and, where a case needs them, /etc/hosts and a
# certificate. It takes locks, looks, examines the server, speaks TLS, and finds
# the server by a name from /etc/hosts, and by one from DNS.
set -euo pipefail
if [ $# -ne 1 ]; then
    echo "usage: check_static.sh COMMAND" >&2
    exit 2
fi
command=$(realpath "$1")

say() { echo "check_static: $*"; }
fail() {
    say "$*" >&2
    exit 1
}

if readelf -d "$command" | grep NEEDED || readelf -l "$command" | grep INTERP; then
    fail "$1 needs something else to run"
fi
if readelf -S "$command" | grep -q '\.symtab'; then
    fail "$1 is not stripped"
fi
say "$(stat -c %s "$command") bytes, alone"

# A change of root needs root, or a user namespace.
if [ "$(id -u)" -eq 0 ]; then
    enter=("$(command -v chroot)")
elif unshare --user --map-root-user true 2>/dev/null; then
    enter=("$(command -v unshare)" --user --map-root-user "$(command -v chroot)")
else
    say "NOT RUN in an empty root: that needs root, or user namespaces"
    exit 0
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/dibs.XXXXXX")
server=
clean_up() {
    if [ -n "$server" ]; then
        kill -KILL "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- a server, outside, with TLS ------------------------------------------

cd "$dir"
make_certificates() {
    openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt \
        -subj /CN=ca -days 2
    openssl req -new -newkey rsa:2048 -nodes -keyout server.key \
        -out server.csr -subj /CN=server
    echo subjectAltName=DNS:lockserver >server.ext
    openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -set_serial 1 \
        -days 2 -extfile server.ext -out server.crt
}
make_certificates >log 2>&1 || fail "no certificates: $(tail -1 log)"

# On ports that are free: another one if somebody has it.
start_server() { # PLAIN-PORT TLS-PORT
    redis-server --port "$1" --bind 127.0.0.1 --unixsocket "$dir/redis.sock" \
        --tls-port "$2" --tls-cert-file server.crt --tls-key-file server.key \
        --tls-ca-cert-file ca.crt --tls-auth-clients no --dir "$dir" \
        --save '' --appendonly no --daemonize no >server.log 2>&1 &
    server=$!
    local i
    for ((i = 0; i < 1000; i++)); do
        if grep -qs 'eady to accept' server.log; then return 0; fi
        if ! kill -0 "$server" 2>/dev/null; then break; fi
        sleep 0.02
    done
    return 1
}
for ((try = 0; try < 20; try++)); do
    port=$((20000 + RANDOM % 20000))
    if start_server $port $((port + 1)); then break; fi
    kill -KILL "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
done
[ -n "$server" ] || fail "redis-server did not start: $(tail -1 server.log)"

# ---- inside ----------------------------------------------------------------

mkdir root
cp "$command" root/dibs
inside() { # ARGUMENT...
    timeout 60 env -i "${enter[@]}" root /dibs "$@"
}
ran() { # WANTED-CODE ARGUMENT...: output goes to $out, errors to $err
    local want=$1 code=0
    shift
    inside "$@" >out 2>err || code=$?
    out=$(cat out)
    err=$(cat err)
    [ $code -eq "$want" ] || fail "dibs $*: code $code, not $want: $out $err"
}
use() { # URL: the only program to run in there is dibs
    ran 0 run -u "$1" outer -- /dibs info -u "$1" outer
    case $out in *outer*) ;; *) fail "$1: info says: $out" ;; esac
    ran 0 doctor -u "$1"
    ran 0 ls -u "$1"
    [ "$(redis-cli -s redis.sock dbsize)" = 0 ] || fail "$1: a key is left"
}

[ "$(find root -type f)" = root/dibs ] || fail "the root is not empty"
ran 0 --version
use "redis://127.0.0.1:$port"
say "run, info, ls and doctor by address, in a root with nothing else"

ran 69 run -u "redis://lockserver:$port" a -- /dibs --version
mkdir root/etc
echo '127.0.0.1 lockserver' >root/etc/hosts
use "redis://lockserver:$port"
say "the same by a name in /etc/hosts"

tls=rediss://lockserver:$((port + 1))
ran 69 run -u "$tls" a -- /dibs --version
case $err in
*'no TLS connection that can be trusted'*) ;;
*) fail "without a certificate it says: $err" ;;
esac
cp ca.crt root/ca.crt
use "$tls?ca=/ca.crt"
say "the same over TLS, with ca=; refused without"

# Where the system's certificates are in Debian's images.
mkdir -p root/etc/ssl/certs root/usr/lib
ln -s /etc/ssl root/usr/lib/ssl
mv root/ca.crt root/etc/ssl/cert.pem
use "$tls"
say "the same with the system's certificates"

# ---- DNS ---------------------------------------------------------------------

# In a network of its own, where the port of DNS is free: a server of names that
# knows every name as 127.0.0.1, and a redis-server.
cat >dns.py <<'END'
import fcntl, socket, struct, subprocess, sys

up = struct.pack("16sh", b"lo", 0x41)  # IFF_UP, IFF_RUNNING
fcntl.ioctl(socket.socket(), 0x8914, up)  # SIOCSIFFLAGS
names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("127.0.0.1", 53))
redis = subprocess.Popen(
    ["redis-server", "--save", "", "--port", "6379", "--bind", "127.0.0.1"],
    stdout=subprocess.PIPE)
code = 1
try:
    while b"eady to accept" not in redis.stdout.readline():
        if redis.poll() is not None:
            sys.exit("redis-server did not start")
    user = subprocess.Popen(sys.argv[1:])
    names.settimeout(0.1)
    while user.poll() is None:
        try:
            asked, who = names.recvfrom(512)
        except socket.timeout:
            continue
        end = asked.index(0, 12) + 5
        ipv4 = asked[end - 4:end - 2] == b"\0\1"
        answer = asked[:2] + b"\x85\x80\0\1\0" + bytes([ipv4]) + b"\0" * 4
        answer += asked[12:end]
        if ipv4:
            answer += b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4\x7f\0\0\1"
        names.sendto(answer, who)
    code = user.returncode
finally:
    redis.kill()
    redis.wait()
sys.exit(code)
END
rm -r root/etc root/usr
mkdir root/etc
echo 'nameserver 127.0.0.1' >root/etc/resolv.conf
apart=(unshare --net)
[ "$(id -u)" -eq 0 ] || apart=(unshare --net --user --map-root-user)
if command -v python3 >/dev/null && "${apart[@]}" true 2>/dev/null; then
    timeout 60 "${apart[@]}" python3 dns.py chroot root /dibs run \
        -u redis://locks.some.example a -- /dibs --version >out 2>&1 ||
        fail "by a name from DNS: $(cat out)"
    grep -q '^dibs [0-9]' out || fail "by a name from DNS: $(cat out)"
    say "run, by a name from DNS"
else
    say "NOT RUN by a name from DNS: needs python3 and a network of its own"
fi

# No URL, and no redis-server to start: it says so.
rm -r root/etc
mkdir -m 700 root/tmp
ran 69 run a -- /dibs --version
case $err in
*redis-server*) ;;
*) fail "without a URL it says: $err" ;;
esac
say "without a URL: $err"
