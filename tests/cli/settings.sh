# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Settings from files: which one counts, what is refused, and that a wrong file
# never leads to another server.

mkdir -p .config/dibs
config=$T/.config/dibs/config
server main
main_url=$url
server other

# settings LINE...: the user's file.
settings() {
    printf '%s\n' "$@" >"$config"
    chmod 600 "$config"
}

# refused 'MESSAGE': the file ends the command with 64, and no server is asked.
refused() {
    ran 64 dibs run -n job -- true
    same stdout '' "$out"
    same stderr "dibs: $1" "$err"
}

known='there are: url, url-file, lease, wait, each as '\''key = value'\'''

case_is 'the address of the server'
settings '# our server' '' "  url =  $main_url  "
ran 0 dibs run job -- redis-cli -s "$T/main.sock" exists job
same 'on main' 1 "$out"

case_is 'a file with the address'
echo "$main_url" >url.txt
settings "url-file=$T/url.txt"
ran 0 dibs run job -- redis-cli -s "$T/main.sock" exists job
same 'on main' 1 "$out"

case_is 'an option and the environment count more'
settings "url = $main_url"
ran 0 dibs run -u "$url" job -- redis-cli -s "$T/other.sock" exists job
same '-u' 1 "$out"
ran 0 env DIBS_URL="$url" "$DIBS" run job -- redis-cli -s "$T/other.sock" exists job
same 'DIBS_URL' 1 "$out"
ran 64 env DIBS_URL= "$DIBS" run job -- true
has stderr 'DIBS_URL is set, but empty' "$err"

case_is 'lease and wait'
settings "url = $main_url" 'lease = 2m' 'wait = 0'
ran 0 dibs run job -- redis-cli -s "$T/main.sock" pttl job
[ "$out" -gt 60000 ] || fail "the lease is $out ms"
ran 0 dibs run --lease 10s job -- redis-cli -s "$T/main.sock" pttl job
[ "$out" -le 10000 ] || fail "the lease is $out ms, not that of the option"
case_is 'wait of the file: a single try'
mkfifo keep
dibs hold -u "$main_url" taken <keep >held.txt &
holder=$!
exec 7>keep
await held main taken
ran 75 dibs run taken -- true
exec 7>&-
ended 0 $holder

case_is 'what is wrong in a file'
settings 'urll = redis://x'
refused "$config:1: unknown setting 'urll'; $known"
settings '' 'url'
refused "$config:2: no '=' behind 'url'; $known"
settings 'url ='
refused "$config:1: no value for 'url'; $known"
settings 'lease = 1h' '# more' 'lease = 2h'
refused "$config:3: 'lease' is in line 1 already"
settings 'lease = soon'
ran 64 dibs run -n job -- true
has stderr "$config:1: lease: 'soon'" "$err"
settings 'lease = 1ms'
refused "$config:1: lease: '1ms' is shorter than the shortest lease"
settings 'url-file = url.txt'
refused "$config:1: url-file: 'url.txt' is not an absolute path"
settings "url = $main_url" "url-file = $T/url.txt"
refused "$config:2: url and url-file both name the server; drop one"
printf 'url = \0%s\n' "$main_url" >"$config"
ran 64 dibs run -n job -- true
printf 'url = %05000d\n' 1 >"$config"
ran 64 dibs run -n job -- true

case_is 'whose file'
settings "url = $main_url"
chmod o+w "$config"
refused "the settings in '$config' are not used: everybody may write to it; try: chmod o-w"
rm "$config"
mkdir "$config"
refused "the settings in '$config' are not used: it is not a regular file"
rmdir "$config"
mkfifo "$config"
refused "the settings in '$config' are not used: it is not a regular file"
rm "$config"
if [ "$(id -u)" = 0 ]; then
    settings "url = $main_url"
    chown 65534 "$config"
    refused "the settings in '$config' are not used: it belongs to another user"
    rm "$config"
fi

case_is 'a password that everybody can read'
settings "url = redis://:secret@127.0.0.1:1"
chmod 644 "$config"
ran 69 dibs run -n job -- true
has stderr "everybody may read the password in '$config'" "$err"
case $err in *secret*) fail 'the password is shown' ;; esac

case_is 'XDG_CONFIG_HOME'
mkdir -p xdg/dibs
echo "url = $main_url" >xdg/dibs/config
settings 'nonsense'
ran 0 env XDG_CONFIG_HOME="$T/xdg" "$DIBS" run job -- \
    redis-cli -s "$T/main.sock" exists job
same 'on main' 1 "$out"

case_is 'those who ask no server read no file'
ran 0 dibs version
ran 0 dibs help run

case_is 'doctor -v tells where a value comes from'
settings "url = $main_url" 'wait = 5s'
ran 0 dibs doctor -v
has stdout "the server's address comes from $config, line 1" "$out"
has stdout "wait 5.0 s, from $config, line 2" "$out"
has stdout 'lease 30.0 s, from the built-in default' "$out"
ran 0 dibs doctor -v -u "$url" --lease 1m
has stdout "the server's address comes from -u" "$out"
has stdout 'lease 1 min 0 s, from --lease' "$out"
ran 0 dibs doctor
case $out in *settings*) fail 'without -v it is silent' ;; esac

# The system's file, in a copy of /etc that only this case sees.
case_is 'the system'
if unshare -rm true 2>/dev/null; then
    mkdir etc
    cp /etc/passwd /etc/group /etc/nsswitch.conf etc/
    [ ! -e /etc/ld.so.cache ] || cp /etc/ld.so.cache etc/
    printf 'url = %s\nlease = 2m\n' "$main_url" >etc/dibs.conf
    settings 'lease = 3m'
    # shellcheck disable=SC2016
    ran 0 unshare -rm sh -c 'mount --bind "$T/etc" /etc && "$DIBS" doctor -v'
    has stdout "the server's address comes from /etc/dibs.conf, line 1" "$out"
    has stdout "lease 3 min 0 s, from $config, line 1" "$out"
else
    echo 'settings: no namespaces here, the system file is not tried'
fi
