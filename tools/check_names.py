#!/usr/bin/env python3
"""A function's name must tell in a backtrace what it does.

Static functions of src/ and of cli/ have names of two words or more. Each name
is in one file of its tree only. Hooks that everybody knows, with the same
meaning wherever they are, are listed here.
"""
import collections
import glob
import os
import re
import sys

HOOKS = {"on_timer"}
STATIC = re.compile(r"^static (?!inline)[^;{}=]*?\b(\w+)\((?:[^;{}])*?\)"
                    r"[^;{}]*\n\{", re.M)


def check_tree(pattern):
    """How many functions there are, and how many of them are wrong."""
    places = collections.defaultdict(list)
    for path in sorted(glob.glob(pattern)):
        with open(path, encoding="ascii") as f:
            text = re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)
        for name in STATIC.findall(text):
            places[name].append(path)
    bad = 0
    for name, paths in sorted(places.items()):
        if name in HOOKS:
            continue
        if "_" not in name:
            print(f"check_names: {paths[0]}: {name} is one word",
                  file=sys.stderr)
            bad += 1
        if len(paths) > 1:
            print(f"check_names: {name} is in", *paths, file=sys.stderr)
            bad += 1
    return len(places), bad


def main():
    found = [check_tree(pattern) for pattern in ("src/*/*.c", "cli/*.c")]
    bad = sum(tree[1] for tree in found)
    print(f"check_names: {sum(tree[0] for tree in found)} static functions, "
          f"{bad} complaints")
    return 1 if bad else 0


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    sys.exit(main())
