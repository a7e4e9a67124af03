# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# The command over TLS: where the settings come from, and what is said when it
# does not work out. server.tls and server.tls_refused have the rest.

make_all() {
    local name
    for name in ca other; do
        openssl req -x509 -newkey rsa:2048 -nodes -keyout $name.key \
            -out $name.crt -subj /CN=$name -days 2
    done
    for name in server client; do
        openssl req -new -newkey rsa:2048 -nodes -keyout $name.key \
            -out $name.csr -subj /CN=$name
        echo subjectAltName=DNS:localhost,IP:127.0.0.1 >$name.ext
        openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key \
            -set_serial 0x$RANDOM -days 2 -extfile $name.ext -out $name.crt
    done
    cat client.crt client.key >both.pem
}
make_all >make.log 2>&1 || fail "no certificates: $(tail -1 make.log)"

server plain
sets() { # NAME VALUE
    [ "$(redis plain config set "$1" "$2")" = OK ]
}
if ! { sets tls-cert-file "$T/server.crt" && sets tls-key-file "$T/server.key" &&
    sets tls-ca-cert-file "$T/ca.crt"; }; then
    echo "this server has no TLS; nothing is tested"
    finish
fi
# Somebody else may have the port: another one then.
port=0
for ((i = 0; i < 20 && port == 0; i++)); do
    try=$((20000 + RANDOM % 20000))
    if sets tls-port $try; then port=$try; fi
done
if [ $port -eq 0 ]; then
    echo "this server has no TLS; nothing is tested"
    finish
fi
tls=rediss://localhost:$port
works=$tls?ca=ca.crt\&cert=client.crt\&key=client.key

case_is 'where the URL comes from'
ran 0 dibs run -u "$works" a -- redis-cli -s plain.sock exists a
same held 1 "$out"
same stderr '' "$err"
DIBS_URL="$tls?ca=ca.crt&cert=both.pem" ran 0 dibs run a -- echo yes
same stdout yes "$out"
echo "$works" >url
ran 0 dibs hold --url-file url a </dev/null
ran 0 dibs ls -u "$works"
ran 0 dibs info -u "$works" a

case_is 'the example of dibs(1)'
. "$HERE/lib_recipes.sh"
recipes
mkdir -p etc/dibs
cp ca.crt etc/dibs/ca.pem
cp both.pem etc/dibs/me.pem
moved localhost:$port <blocks/tls.assignment >assignment
for shell in dash bash; do
    ran 0 $shell -c '. ./assignment; export DIBS_URL; exec "$DIBS" run a -- echo yes'
    same "$shell" yes "$out"
done

refused() { # WHY QUERY
    ran 69 dibs run -u "$tls$2" a -- echo no
    same stdout '' "$out"
    has stderr "cannot use $tls$2: no TLS connection that can be trusted: " "$err"
    has stderr "$1" "$err"
}
case_is 'what does not work'
refused 'unknown CA' ''
refused 'unknown CA' '?ca=other.crt&cert=both.pem'
refused 'for another host than elsewhere' '?ca=ca.crt&cert=both.pem&sni=elsewhere'
refused 'wants a client certificate' '?ca=ca.crt'
refused "cannot read ca 'none': No such file" '?ca=none'
refused "key 'server.key' does not belong" '?ca=ca.crt&cert=client.crt&key=server.key'
ran 64 dibs run -u "$tls?verify=no" a -- echo no
has stderr 'a parameter that dibs does not know' "$err"
ran 64 dibs run -u "$tls?key=client.key" a -- echo no
has stderr 'key needs a cert' "$err"

case_is 'a redis:// URL and the port for TLS'
ran 69 dibs run -u "redis://localhost:$port" a -- echo no
has stderr "no answer from redis://localhost:$port: " "$err"

case_is 'verification can be switched off, and that is told'
ran 0 dibs run -u "$tls?insecure=1&cert=both.pem" a -- echo yes
same stdout yes "$out"
has stderr 'TLS without verification' "$err"
