#!/usr/bin/env python3
"""cdef.py --write | --check

Makes include/dibs/dibs.cdef out of include/dibs/dibs.h: the same declarations
without a macro, a directive or an attribute, for foreign function interfaces
that read C, such as Python's cffi.

--check compares the file with what would be written, and has a C compiler
compare it with dibs.h: the type of every function and callback, the size of
every struct, offset and size of every field, the value of every constant.
"""
import os
import re
import subprocess
import sys
import tempfile

HEADER = "include/dibs/dibs.h"
CDEF = "include/dibs/dibs.cdef"
TOP = """\
/* SPDX-License-Identifier: MIT
 *
 * dibs.cdef - dibs.h without macros, for foreign function interfaces. Made by
 * tools/cdef.py; do not edit. What each function does is in dibs.h and in the
 * manual, how to call it from other languages in docs/ffi.md.
 *
 * Needs int64_t, uint64_t, size_t and bool. Times end at DIBS_MS_MAX,
 * %s ms, which fits no enum.
 */
"""
# Macros that are numbers, for people without macros.
CONSTANT = re.compile(r"^#define (DIBS_[A-Z_]+) +(?:INT64_C)?\(?(-?[0-9]{1,10})\)?"
                      r"(?: |$)", re.M)
CC = os.environ.get("CC", "cc")


def run_cc(arguments, text=""):
    return subprocess.run([CC, *arguments], input=text, text=True, check=True,
                          stdout=subprocess.PIPE).stdout


def preprocessed():
    """The header as the compiler sees it, without those of the system."""
    with tempfile.TemporaryDirectory() as empty:
        for name in ("stdbool.h", "stddef.h", "stdint.h"):
            with open(os.path.join(empty, name), "w", encoding="ascii"):
                pass
        return run_cc(["-E", "-P", "-std=c11", "-nostdinc", "-isystem", empty,
                       "-U__GNUC__", "-DINT64_C(x)=x", "-x", "c", HEADER])


def statements(text):
    """Splits at every ; that is not inside braces."""
    depth, start = 0, 0
    for i, ch in enumerate(text):
        depth += {"{": 1, "}": -1}.get(ch, 0)
        if ch == ";" and depth == 0:
            yield text[start:i].strip()
            start = i + 1


def tidy(text):
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r" ?([(),*\[\]]) ?", r"\1", text)
    text = re.sub(r",", ", ", text)
    text = re.sub(r"(\w)\*", r"\1 *", text)
    text = re.sub(r"(\w)\((\*)", r"\1 (\2", text)  # pointers to functions
    text = re.sub(r"\*(const)\b", r"*\1", text)
    return re.sub(r"\*const(\w|\*)", r"*const \1", text)


def wrapped(text, indent="    "):
    lines, line = [], ""
    for part in re.findall(r".*?, |.+$", text):
        if line and len(line) + len(part.rstrip()) > 79:
            lines.append(line.rstrip())
            line = indent
        line += part
    return "\n".join(lines + [line])


def with_body(text):
    """A struct or an enum: one member a line."""
    head, rest = text.split("{", 1)
    body, tail = rest.rsplit("}", 1)
    comma = " enum " in head
    members = [tidy(m) for m in body.split("," if comma else ";")]
    end = "," if comma else ";"
    lines = [f"    {m}{end}" for m in members if m]
    if comma:
        lines[-1] = lines[-1][:-1]
    return "\n".join([tidy(head) + " {", *lines, "} " + tidy(tail) + ";"])


def made():
    with open(HEADER, encoding="ascii") as f:
        source = f.read()
    limit = re.search(r"DIBS_MS_MAX +INT64_C\((\d+)\)", source).group(1)
    names = [f"    {n} = {v}" for n, v in CONSTANT.findall(source)]
    parts = ["enum {\n" + ",\n".join(names) + "\n};"]
    for text in statements(preprocessed()):
        if text:
            parts.append(with_body(text) if "{" in text
                         else wrapped(tidy(text) + ";"))
    return TOP % limit + "\n".join(parts) + "\n"


def proof(text):
    """C that compiles only if text says what dibs.h says."""
    out = ["#include <dibs/dibs.h>"]
    body = text[text.index("*/") + 2:]
    macros = re.match(r"\s*enum \{(.*?)\};", body, re.S)
    for name, value in re.findall(r"(DIBS_\w+) = (-?\d+)", macros.group(1)):
        out.append(f'_Static_assert({name} == {value}, "{name}");')
    for one in statements(body[macros.end():]):
        if "{" not in one:
            out.append(one + ";")  # said twice: must be the same
            continue
        mine = re.sub(r"\b(dibs|DIBS)_(?=\w)", r"cdef_\1_", one)
        name = one.rsplit("}", 1)[1].strip()
        # What it is made of keeps its name: those are compared themselves.
        inner = one[one.index("{") + 1:one.rindex("}")]
        if " enum " in f" {one.split('{')[0]}":
            out.append(mine + ";")
            for value in re.findall(r"(DIBS_\w+)", inner):
                out.append(f"_Static_assert((int){value} == "
                           f'(int)cdef_{value}, "{value}");')
        else:
            out.append(f"struct cdef_{name} {{{inner}}};")
            for field in re.findall(r"(\w+)(?:\[\d+\])?;", inner):
                for what in (f"offsetof({{}}, {field})",
                             f"sizeof(({{}} *)0)->{field}"):
                    out.append(compare(what, name, f"{name}.{field}"))
        kind = "enum" if "enum" in one.split("{")[0] else "struct"
        whole = f"sizeof({kind} {{}})"
        out.append(f"_Static_assert({whole.format(name)} == "
                   f'{whole.format("cdef_" + name)}, "{name}");')
    return "\n".join(out) + "\n"


def compare(what, name, label):
    ours, theirs = (what.format(f"struct {n}") for n in (name, "cdef_" + name))
    ours, theirs = (re.sub(r"sizeof\(\((.*) \*\)0\)->(\w+)",
                           r"sizeof(((\1 *)0)->\2)", w)
                    for w in (ours, theirs))
    return f'_Static_assert({ours} == {theirs}, "{label}");'


def main():
    if sys.argv[1:] not in (["--write"], ["--check"]):
        print(__doc__.split("\n", 1)[0], file=sys.stderr)
        return 2
    text = made()
    if sys.argv[1] == "--write":
        with open(CDEF, "w", encoding="ascii") as f:
            f.write(text)
        print(f"cdef: wrote {CDEF}")
        return 0
    with open(CDEF, encoding="ascii") as f:
        there = f.read()
    c = proof(there)
    try:
        run_cc(["-std=c11", "-Wall", "-Werror", "-Iinclude", "-fsyntax-only",
                "-x", "c", "-"], c)
    except subprocess.CalledProcessError:
        print(f"cdef: {CDEF} does not say what {HEADER} says", file=sys.stderr)
        return 1
    if there != text:
        print(f"cdef: {CDEF} is not what {HEADER} gives; "
              "tools/cdef.py --write makes it anew", file=sys.stderr)
        return 1
    print(f"cdef: {c.count('_Static_assert')} sizes, offsets and values, "
          f"{text.count('(')} functions and callbacks, as in dibs.h")
    return 0


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    sys.exit(main())
