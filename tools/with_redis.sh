#!/bin/bash
# with_redis.sh COMMAND [ARGS...]
#
# Starts a redis-server of its own on a Unix socket in a folder of its own, runs
# COMMAND with the server's URL as its last argument, and ends with COMMAND's
# exit code. Nothing is left behind.
set -euo pipefail

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

# The server's log comes through a pipe, so that we can wait for the line that
# says it is there. What it logs later stays in the pipe, which is big enough.
mkfifo "$dir/log"
redis-server --port 0 --unixsocket "$dir/redis.sock" --dir "$dir" \
    --save '' --appendonly no --daemonize no >"$dir/log" 2>&1 &
server=$!
exec 3<"$dir/log"
ready=no
while IFS= read -r -t 60 line <&3; do
    case $line in
    *[Rr]'eady to accept connections'*)
        ready=yes
        break
        ;;
    esac
    echo "$line" >>"$dir/start.txt"
done
if [ $ready = no ]; then
    echo "with_redis.sh: redis-server did not start:" >&2
    cat "$dir/start.txt" >&2 || true
    exit 1
fi

status=0
"$@" "unix://$dir/redis.sock" 3<&- || status=$?
exit $status
