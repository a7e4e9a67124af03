#!/usr/bin/env python3
"""coverage.py BUILD-FOLDER: what of src/ the tests ran.

Reads the counts that programs built with -DDIBS_COVERAGE=ON have left, by way
of gcovr, and prints a summary. Writes BUILD-FOLDER/branches.txt: each branch
that no test took. It is an error if less is covered than the goal, or if a
function never ran that tests/coverage/gaps.txt does not list. That file has one
function per line, and why no test counts it.
"""
import json
import os
import re
import subprocess
import sys

GOAL_LINES, GOAL_BRANCHES = 95.0, 85.0
GAPS = "tests/coverage/gaps.txt"


def counts_of(build):
    """What gcovr says, a file a dict."""
    out = os.path.join(build, "coverage.json")
    subprocess.run(
        ["gcovr", "--root", ".", "--filter", "src/", "--json", out,
         # of an assertion one branch is never to be taken
         "--exclude-branches-by-pattern", r".*\bassert\(.*", build],
        check=True, stdout=subprocess.DEVNULL)
    with open(out, encoding="utf-8") as f:
        return json.load(f)["files"]


def functions_of(source):
    """The function that each line is in; '' = none."""
    name, names = "", []
    for i, line in enumerate(source):
        head = re.match(r"[A-Za-z_].*?\b([A-Za-z_]\w*)\(", line)
        if head and "=" not in line and not line.rstrip().endswith(";"):
            name = head.group(1)
        names.append(name)
        if line.startswith("}"):
            name = ""
    return names


def read_gaps():
    """The functions that are known never to be counted."""
    with open(GAPS, encoding="utf-8") as f:
        return {line.split()[0] for line in f
                if line.strip() and not line.startswith("#")}


def never_run(files):
    """(file, function) of each function of which no line ran."""
    for f in files:
        with open(f["file"], encoding="utf-8") as src:
            names = functions_of(src.read().split("\n"))
        ran = {}
        for l in f["lines"]:
            name = names[l["line_number"] - 1]
            if name and not l.get("gcovr/noncode"):
                ran[name] = ran.get(name, False) or l["count"] > 0
        yield from ((f["file"], name) for name, any_ in ran.items()
                    if not any_)


def never_taken(files):
    """(file, line, function, text, how many of how many) of each line."""
    for f in files:
        if not any(l["branches"] for l in f["lines"]):
            continue
        with open(f["file"], encoding="utf-8") as src:
            source = src.read().split("\n")
        names = functions_of(source)
        for l in f["lines"]:
            dead = sum(b["count"] == 0 for b in l["branches"])
            if dead:
                n = l["line_number"]
                yield (f["file"], n, names[n - 1], source[n - 1].strip(),
                       dead, len(l["branches"]))


def share(part, whole):
    return 100.0 * part / whole if whole else 100.0


def print_table(files):
    table = {}
    for f in files:
        row = table.setdefault(os.path.dirname(f["file"]), [0, 0, 0, 0])
        for l in f["lines"]:
            if l.get("gcovr/noncode"):
                continue
            row[0] += 1
            row[1] += l["count"] > 0
            row[2] += len(l["branches"])
            row[3] += sum(b["count"] > 0 for b in l["branches"])
    table["all"] = [sum(r[i] for r in table.values()) for i in range(4)]
    print(f"{'folder':<12} {'lines':>7} {'run':>7} {'branches':>9} {'taken':>7}")
    for name, (lines, ran, branches, taken) in table.items():
        print(f"{name:<12} {lines:>7} {share(ran, lines):>6.1f}% "
              f"{branches:>9} {share(taken, branches):>6.1f}%")
    lines, ran, branches, taken = table["all"]
    return share(ran, lines), share(taken, branches)


def main():
    build = sys.argv[1]
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    files = counts_of(build)
    bad = False
    lines, branches = print_table(files)
    with open(os.path.join(build, "branches.txt"), "w",
              encoding="utf-8") as out:
        for file, n, func, text, dead, all_ in never_taken(files):
            out.write(f"{file}:{n}: {func}: {text}   [{dead} of {all_}]\n")
    print(f"\nBranches that were never taken: {build}/branches.txt")
    gaps = read_gaps()
    for file, func in never_run(files):
        if func not in gaps:
            print(f"never ran, and not in {GAPS}: {file}: {func}",
                  file=sys.stderr)
            bad = True
    if lines < GOAL_LINES or branches < GOAL_BRANCHES:
        print(f"less than the goal: {GOAL_LINES} % of lines, "
              f"{GOAL_BRANCHES} % of branches", file=sys.stderr)
        bad = True
    sys.exit(1 if bad else 0)


main()
