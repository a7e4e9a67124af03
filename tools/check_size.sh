#!/bin/bash
# No function over 80 lines. A function is what stands between a "{" and a "}" in
# the first column, as our formatting has it, and is counted with the lines of its
# signature. Files over 800 lines are named, which is only advice.
set -euo pipefail
cd "$(dirname "$0")/.."

awk -v max=80 -v advice=800 '
    FNR == 1 { start = inside = 0 }
    FNR == advice + 1 { print "check_size: " FILENAME ": over " advice " lines" }
    inside && /^}/ {
        functions++
        if (FNR - start + 1 > max) {
            print "check_size: " FILENAME ":" start ": function of " \
                FNR - start + 1 " lines, more than " max > "/dev/stderr"
            bad = 1
        }
        start = inside = 0
        next
    }
    inside { next }
    /^{/ { inside = 1; if (!start) start = FNR; next }
    # A signature starts in the first column and runs on until its brace; a
    # blank line, a comment, a directive or a ";" shows that it was none.
    /^[A-Za-z_]/ { if (!start) start = FNR }
    /^$/ || /^#/ || /^\/\*/ || /;[ \t]*(\/\*.*)?$/ { start = 0 }
    END {
        if (!bad)
            print "check_size: " functions " functions, none over " max " lines"
        exit bad
    }' $(find src cli tests/sim tests/support -name '*.[ch]')
