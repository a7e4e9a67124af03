#!/bin/bash
# Checks the expanded Lua scripts with luacheck: globals, unused and redefined
# names, syntax. Parameters of a part may shadow a script's locals (431), and a
# part may provide more than a script uses.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d "${TMPDIR:-/tmp}/dibs.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
scripts=$(find lua -name '*.lua' ! -path 'lua/lib/*' | sort | paste -sd ';')
cmake "-DOUT=$scratch/scripts_gen.c" -DRESULTS=src/lock/type/lock_type.h \
    "-DIN=$scripts" -P cmake/embed_lua.cmake
luacheck --quiet --no-color --no-config --std lua51 \
    --read-globals KEYS redis --globals ARGV \
    --max-line-length 80 \
    --ignore 431 '211/receivers_unknown' '211/all_holds' '211/reclaim' \
    -- "$scratch/lua"/*.lua >"$scratch/report" || {
    sed "s|$scratch/lua/||" "$scratch/report" >&2
    echo "check_lua: see above; lines are those of the expanded scripts" >&2
    exit 1
}
echo "check_lua: $(find "$scratch/lua" -name '*.lua' | wc -l) scripts are clean"
