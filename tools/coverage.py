#!/usr/bin/env python3
"""coverage.py BUILD-FOLDER: what of src/ the tests ran.

Reads the counts that programs built with -DDIBS_COVERAGE=ON have left, by way
of gcovr, and prints a summary. Writes BUILD-FOLDER/branches.txt: each branch
that no test took, with the reason that tests/coverage/reasons.txt gives.

That file has sections, each a word and a reason, and rows in them: a file (or
a pattern of files), a function ('*' = any; or a regular expression for its
whole name), and a regular expression for the line. So that reasons do not outlive what they explain, it is an error

  - if more than a few rows fit no branch that was never taken (or only ones
    that a row above has explained already); what two threads do in one moment
    is not the same in each run, so a few are only told,
  - if more than a few branches were never taken and have no reason,
  - if less is covered than the goal.
"""
import fnmatch
import json
import os
import re
import subprocess
import sys

GOAL_LINES, GOAL_BRANCHES = 95.0, 85.0
BARE_MOST = 2.0  # of all branches, in percent: never taken, without a reason
STALE_MOST = 5.0  # of all rows, in percent: they explain nothing in this run
REASONS = "tests/coverage/reasons.txt"


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


def read_reasons():
    """Rows (file, function, regex, word, text as written), and the reasons."""
    rows, why, word = [], {}, None
    for number, line in enumerate(open(REASONS, encoding="utf-8"), 1):
        line = line.rstrip("\n")
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("== "):
            word, text = line[3:].split(": ", 1)
            why[word] = text
            continue
        parts = line.split(None, 2)
        if len(parts) != 3 or word is None:
            sys.exit(f"{REASONS}:{number}: not a row: {line}")
        rows.append((parts[0], parts[1], re.compile(parts[2]), word,
                     f"{REASONS}:{number}: {line}"))
    return rows, why


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
    rows, why = read_reasons()
    used, by_word, bare, bad = set(), {}, 0, False
    lines, branches = print_table(files)
    with open(os.path.join(build, "branches.txt"), "w",
              encoding="utf-8") as out:
        for file, n, func, text, dead, all_ in never_taken(files):
            word = "-"
            for i, (glob, fn, regex, w, _) in enumerate(rows):
                if (fnmatch.fnmatch(file, glob)
                        and (fn == "*" or re.fullmatch(fn, func))
                        and regex.search(text)):
                    used.add(i)
                    word = w
                    break
            by_word[word] = by_word.get(word, 0) + dead
            bare += dead if word == "-" else 0
            out.write(f"{word:<9} {file}:{n}: {func}: {text}"
                      f"   [{dead} of {all_}]\n")
    print("\nNever taken, and why:")
    for word, n in sorted(by_word.items(), key=lambda item: -item[1]):
        print(f"{n:>6}  {why.get(word, 'NO REASON GIVEN')}"
              if word != "-" else f"{n:>6}  no reason given")
    for i, row in enumerate(rows):
        if i not in used:
            print(f"explains nothing in this run: {row[4]}", file=sys.stderr)
    bad |= share(len(rows) - len(used), len(rows)) > STALE_MOST
    all_branches = sum(len(l["branches"]) for f in files for l in f["lines"])
    print(f"\nThe list: {build}/branches.txt")
    if share(bare, all_branches) > BARE_MOST:
        print(f"{bare} branches without a reason are too many",
              file=sys.stderr)
        bad = True
    if lines < GOAL_LINES or branches < GOAL_BRANCHES:
        print(f"less than the goal: {GOAL_LINES} % of lines, "
              f"{GOAL_BRANCHES} % of branches", file=sys.stderr)
        bad = True
    sys.exit(1 if bad else 0)


main()
