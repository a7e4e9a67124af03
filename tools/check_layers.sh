#!/bin/bash
# Who may include whom: a file its own layer and those below it, never above;
# lock and the layers above it only net/resp_reply.h of net; the public header nothing
# of ours; command and examples only the public header.
#
# And who may call whom: file by file, calls go in one direction inside a layer,
# too. The circles that are allowed are in tools/circles.txt, each with a reason.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob

bad=0
complain() {
    echo "check_layers: $*" >&2
    bad=1
}

rank() {
    case $1 in
    base) echo 0 ;;
    net) echo 1 ;;
    client) echo 2 ;;
    lock) echo 3 ;;
    group) echo 4 ;;
    admin) echo 5 ;;
    *) echo 9 ;;
    esac
}

# Prints the includes of a file as they stand, with quotes or brackets.
includes() {
    sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*\(["<][^">]*[">]\).*/\1/p' \
        "$1"
}

check_src() { # FILE
    local layer inc path to
    layer=${1#src/}
    layer=${layer%%/*}
    [ "$(rank "$layer")" -ne 9 ] || complain "$1: $layer is not a layer"
    while read -r inc; do
        path=${inc:1:-1}
        to=${path%%/*}
        case $inc in
        '<dibs/dibs.h>' | '"dibs/dibs.h"') continue ;;
        '"'*..*) complain "$1: $inc goes by .." ;;
        '"'*/*'"')
            if [ "$(rank "$to")" -gt "$(rank "$layer")" ]; then
                complain "$1: $layer may not include $inc"
            elif [ "$(rank "$layer")" -ge "$(rank lock)" ] &&
                [ "$to" = net ] && [ "$path" != net/resp_reply.h ]; then
                complain "$1: of net, $layer may include only net/resp_reply.h"
            fi
            ;;
        '"'*) complain "$1: write $inc with its layer, as in \"base/mem.h\"" ;;
        '<dibs/'* | '<base/'* | '<client/'* | '<lock/'* | '<group/'* | '<admin/'*)
            complain "$1: $inc is ours; use quotes"
            ;;
        esac
    done < <(includes "$1")
}

check_user() { # FILE: a program that knows the public header only
    local inc
    while read -r inc; do
        case $inc in
        '<dibs/dibs.h>') ;;
        '<dibs/'* | '<base/'* | '<client/'* | '<lock/'* | '<group/'* | '<admin/'*)
            complain "$1: may not include $inc"
            ;;
        '"'*)
            [ -e "${1%%/*}/${inc:1:-1}" ] ||
                complain "$1: $inc is not in ${1%%/*}/"
            ;;
        esac
    done < <(includes "$1")
}

check_header() { # FILE
    local inc
    while read -r inc; do
        case $inc in
        '"'* | '<dibs/'*) complain "$1: must include nothing of ours: $inc" ;;
        esac
    done < <(includes "$1")
}

count=0
for f in $(find src -name '*.[ch]'); do
    check_src "$f"
    count=$((count + 1))
done
for f in $(find cli examples -name '*.[ch]'); do
    check_user "$f"
    count=$((count + 1))
done
for f in include/dibs/*.h; do
    check_header "$f"
    count=$((count + 1))
done
tools/call_graph.py --check tools/circles.txt || bad=1
[ $bad -eq 0 ] && echo "check_layers: $count files keep to their layers"
exit $bad
