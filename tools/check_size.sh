#!/bin/bash
# No file over 600 lines, no function over 80. A function is what stands
# between a "{" and a "}" in the first column, as our formatting has it, and is
# counted with the lines of its signature.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob

files=(src/*/*.[ch] cli/*.[ch] tests/sim/*.[ch] include/dibs/*.hpp
    include/dibs/cpp/*.hpp tests/cpp/*.[ch]pp)
if [ ${#files[@]} -eq 0 ]; then
    echo "check_size: no files"
    exit 0
fi
awk -v max_file=600 -v max_function=80 '
    function complain(text) {
        print "check_size: " text > "/dev/stderr"
        bad = 1
    }
    function end_file() {
        if (lines > max_file)
            complain(name ": " lines " lines, more than " max_file)
    }
    FNR == 1 {
        if (name != "")
            end_file()
        name = FILENAME
        start = 0
        inside = 0
    }
    { lines = FNR }
    FILENAME ~ /\.hpp$/ { next } # what is in braces there is a class
    inside && /^}/ {
        length_ = FNR - start + 1
        functions++
        if (length_ > longest) {
            longest = length_
            longest_at = name ":" start
        }
        if (length_ > max_function)
            complain(name ":" start ": function of " length_ \
                " lines, more than " max_function)
        inside = 0
        start = 0
        next
    }
    inside { next }
    /^{/ { inside = 1; if (!start) start = FNR; next }
    # A signature starts in the first column and runs on until its brace; a
    # blank line, a comment, a directive or a ";" shows that it was none.
    /^[A-Za-z_]/ { if (!start) start = FNR }
    /^$/ || /^#/ || /^\/\*/ || /;[ \t]*(\/\*.*)?$/ { start = 0 }
    END {
        end_file()
        if (!bad)
            printf "check_size: %d files, %d functions; the longest has %d " \
                "lines (%s)\n", ARGC - 1, functions, longest, longest_at
        exit bad
    }' "${files[@]}"
