#!/usr/bin/env python3
"""Which file of src/ uses which other one, and where that goes in circles.

A file is a noun: base.h and base.c are one. There is an edge from A to B when
code in A uses a function or a table that B defines. Code is what is in .c
files, and the inline functions in headers; a prototype is not a use. A call
through a pointer is no edge either: that is how a lower file reaches a higher
one without knowing it.

    tools/call_graph.py            files, edges, and each circle
    tools/call_graph.py --edges    the same, with one line for each edge
    tools/call_graph.py --check F  fails on a circle that is not named in F

F has a line for each circle that is allowed: its files, then " : " and why.
"""
import glob
import os
import re
import sys

NAME = re.compile(r"\b(dibs_\w+)")
# A definition begins in the first column and has its body or value behind it.
FUNCTION = re.compile(
    r"^(?!static|typedef|extern|struct \w+ \{|#)[A-Za-z_][^;{}=]*?"
    r"\b(dibs_\w+)\((?:[^;{}])*?\)[^;{}]*\n\{", re.M)
TABLE = re.compile(
    r"^(?!static|typedef|extern|#)[A-Za-z_][^;{}()=\n]*?\b(dibs_\w+)"
    r"(?:\[[^\]]*\])*\s*=", re.M)
INLINE = re.compile(r"^static inline.*?^\}", re.M | re.S)


def without_noise(text):
    """The code without comments and strings."""
    return re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.S)


def read_tree():
    """Each noun's code, and who defines which name."""
    code, owner = {}, {}
    for path in sorted(glob.glob("src/**/*.[ch]", recursive=True)):
        noun = os.path.splitext(path)[0][len("src/"):]
        with open(path, encoding="ascii") as f:
            text = without_noise(f.read())
        if path.endswith(".h"):
            text = "\n".join(INLINE.findall(text))
            for name in re.findall(r"^static inline[^;{]*?\b(dibs_\w+)\(",
                                   text, re.M):
                owner[name] = noun
        else:
            for pattern in FUNCTION, TABLE:
                for name in pattern.findall(text):
                    owner[name] = noun
        code[noun] = code.get(noun, "") + text
    return code, owner


def edges_of(code, owner):
    graph = {}
    for noun, text in code.items():
        used = {owner[n] for n in NAME.findall(text) if n in owner}
        graph[noun] = sorted(used - {noun})
    return graph


def circles_of(graph):
    """Sets of files that all reach each other: Tarjan's algorithm."""
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph[v]:
            if w not in index:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == index[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for v in graph:
        if v not in index:
            visit(v)
    return sorted(found)


def allowed_in(path):
    with open(path, encoding="ascii") as f:
        lines = [line.split("#")[0].strip() for line in f]
    return [sorted(line.split(" : ")[0].split()) for line in lines if line]


def main(args):
    code, owner = read_tree()
    graph = edges_of(code, owner)
    circles = circles_of(graph)
    count = sum(len(to) for to in graph.values())
    if args[:1] == ["--check"]:
        allowed = allowed_in(args[1])
        bad = [c for c in circles if c not in allowed]
        gone = [c for c in allowed if c not in circles]
        for c in bad:
            print("call_graph: a circle without a name:", *c, file=sys.stderr)
        for c in gone:
            print("call_graph: named, but no circle:", *c, file=sys.stderr)
        if bad or gone:
            return 1
    if args[:1] == ["--edges"]:
        for noun, to in graph.items():
            print(noun, "->", *to)
    for c in circles:
        if args[:1] != ["--check"]:
            print(f"circle of {len(c)}:", *c)
    print(f"call_graph: {len(graph)} files, {count} edges, "
          f"{len(circles)} circles with {sum(map(len, circles))} files")
    return 0


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    sys.exit(main(sys.argv[1:]))
