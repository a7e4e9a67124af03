# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# lib_recipes.sh - takes the examples out of the man pages and README.md, for
# tests that run them as they stand there.
#
# Every literal block of a man page says in a comment right before it what it
# is, every fenced block of README.md by the word behind its fence, or in a
# comment right before it:
#
#   .\" recipe: KIND [NAME]             <!-- recipe: KIND [NAME] -->
#
# A block that does not say so is an error, so none can be forgotten. One line
# of its own (.Dl) is a statement in C. recipes writes all of them to
# blocks/PAGE.NUMBER.KIND, or blocks/NAME.KIND.

top=$(cd "$HERE/../.." && pwd)

# recipes_of PAGE FILE
recipes_of() {
    awk -v page="$1" '
        function begin(kind) {
            n++
            file = "blocks/" (name != "" ? name : page "." n) "." kind
            printf "" >file
        }
        { line = $0 }
        /^\.\\" recipe: / { split($0, w, " "); kind = w[3]; name = w[4]; next }
        /^<!-- recipe: / { split($0, w, " "); kind = w[3]
                           name = w[4] == "-->" ? "" : w[4]; next }
        /^\.D[l1] / {
            begin("statement")
            print substr(line, 5) >file
            close(file)
            file = ""
            next
        }
        /^\.Bd -literal/ || (/^```/ && !file) {
            if (/^```./) kind = kind != "" ? kind : substr($0, 4)
            begin(kind != "" ? kind : "unmarked")
            next
        }
        /^\.Ed/ || /^```/ { close(file); file = kind = name = ""; next }
        file {
            if (page != "README") {
                gsub(/\\e/, "\\", line); gsub(/\\-/, "-", line)
                gsub(/\\&/, "", line)
            }
            print line >file
        }
        !file { if ($0 != "") kind = name = "" }' "$2"
}

recipes() {
    local page
    mkdir -p blocks
    for page in "$top"/docs/man/*.[1-9]; do
        recipes_of "$(basename "$page")" "$page"
    done
    recipes_of README "$top/README.md"
}

# Every place that an example names and a test cannot have is moved to $T: in
# what comes in, for what goes out.
moved() { # HOST-AND-PORT
    sed -e "s#redis://worker@db1\.example#unix://worker@$T/s.sock#g" \
        -e "s#redis://db1\.example:6379#unix://$T/s.sock#g" \
        -e "s#redis://127\.0\.0\.1:6379#unix://$T/s.sock#g" \
        -e "s#//db1\.example#//${1:-}#g" \
        -e "s#/usr/bin/dibs #$T/path/dibs #g" \
        -e "s#/etc/dibs#$T/etc/dibs#g" \
        -e "s#/usr/local/bin/#$T/bin/#g; s#/usr/bin/#$T/bin/#g" \
        -e "s#/opt/#$T/bin/#g"
}
