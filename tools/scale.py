#!/usr/bin/env python3
"""scale.py PROGRAM [--quick] [--into docs]: runs the simulated world with more
and more clients, and writes the tables of docs/scale.md, between its marks, and
docs/scale.svg. PROGRAM is tests/sim/scale of a build; what it does is told
there. Everything is simulated, so the figures are the same on any machine.
"""
import math
import os
import subprocess
import sys

# work, clients, locks, nodes, seconds
RUNS = (
    [("spread", n, 10 * n, 0, 5) for n in (10, 100, 1000, 10000)]
    + [("spread", n, 10 * n, 16, 5) for n in (10, 100, 1000, 4000)]
    + [("held", n, l, 0, 31) for n, l in
       ((10, 1000), (100, 10000), (1000, 10000), (100, 100000),
        (10000, 100000))]
    + [("plain", n, 1, 0, 2) for n in (2, 10, 30, 100, 300)]
    + [("fair", n, 1, 0, 4) for n in (2, 10, 30, 100, 300, 1000)]
    + [("storm", n, 10 * n, 0, 20) for n in (100, 1000, 10000)]
)
QUICK = [r for r in RUNS if r[1] <= 100 and r[2] <= 10000]


def run(program, work, clients, locks, nodes, seconds):
    out = subprocess.run(
        [program, "--work", work, "--clients", str(clients), "--locks",
         str(locks), "--nodes", str(nodes), "--seconds", str(seconds)],
        check=True, capture_output=True, text=True).stdout
    row = dict(item.split("=") for item in out.split())
    print(f"scale: {work}, {clients} clients, {locks} locks, {nodes} nodes",
          file=sys.stderr)
    return {k: v if k == "work" else float(v) for k, v in row.items()}


def number(x, digits=0):
    return f"{x:,.{digits}f}"


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |",
             "| " + " | ".join("---:" for _ in heads) + " |"]
    lines += ["| " + " | ".join(r) + " |" for r in rows]
    return "\n".join(lines) + "\n"


def spread_table(rows):
    return table(
        ["clients", "locks", "connections", "commands/s", "an acquire",
         "messages/s", "server busy", "acquire, median", "99 %"],
        [[number(r["clients"]), number(r["locks"]), number(r["connections"]),
          number(r["requests"]), number(r["per_acquire"], 2),
          number(r["messages"], 1), number(r["busy"], 1) + " %",
          number(r["p50_ms"], 1) + " ms", number(r["p99_ms"], 1) + " ms"]
         for r in rows])


def held_table(rows):
    return table(
        ["clients", "held locks", "commands/s", "locks a command",
         "server busy"],
        [[number(r["clients"]), number(r["held"]), number(r["requests"], 1),
          number(r["held"] / (r["requests"] * 10)), number(r["busy"], 2) + " %"]
         for r in rows])


def hot_table(rows):
    return table(
        ["clients", "acquires/s", "commands an acquire",
         "messages an acquire", "server busy", "wait, median", "99 %",
         "longest"],
        [[number(r["clients"]), number(r["acquires"]),
          number(r["per_acquire"], 1), number(r["messages_per_acquire"], 1),
          number(r["busy"], 1) + " %", number(r["p50_ms"]) + " ms",
          number(r["p99_ms"]) + " ms", number(r["max_ms"]) + " ms"]
         for r in rows])


def storm_table(rows):
    return table(
        ["clients", "held locks", "all are back after", "connects/s at most",
         "commands/s at most", "commands a client", "locks lost"],
        [[number(r["clients"]), number(r["held"]),
          number(r["back_ms"] / 1000, 1) + " s", number(r["connects_peak"]),
          number(r["requests_peak"]),
          number(r["requests_all"] / r["clients"], 1), number(r["lost"])]
         for r in rows])


COLORS = {"plain": "#b3261e", "fair": "#1f6f43", "spread": "#2b5c9e"}
NAMES = {"plain": "one plain lock, all want it",
         "fair": "one fair lock, all want it",
         "spread": "ten locks a client"}


def svg(rows):
    """Commands an acquire costs, by clients; both scales are powers of ten."""
    left, top, wide, high = 60, 20, 480, 260
    def x(v):
        return left + wide * math.log10(v) / 4
    def y(v):
        return top + high * (1 - math.log10(max(v, 1)) / 3)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + wide + 20}"'
           f' height="{top + high + 50}" font-family="sans-serif"'
           ' font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>']
    for i in range(5):
        out.append(f'<line x1="{x(10**i):.0f}" y1="{top}" x2="{x(10**i):.0f}" '
                   f'y2="{top + high}" stroke="#ddd"/><text x="{x(10**i):.0f}" '
                   f'y="{top + high + 16}" text-anchor="middle">{10**i:,}'
                   '</text>')
    for i in range(4):
        out.append(f'<line x1="{left}" y1="{y(10**i):.0f}" x2="{left + wide}" '
                   f'y2="{y(10**i):.0f}" stroke="#ddd"/><text x="{left - 6}" '
                   f'y="{y(10**i) + 4:.0f}" text-anchor="end">{10**i:,}</text>')
    out.append(f'<text x="{left + wide / 2:.0f}" y="{top + high + 38}" '
               'text-anchor="middle">clients</text>')
    out.append(f'<text x="{left}" y="{top - 6}">commands an acquire</text>')
    for work, color in COLORS.items():
        mine = [r for r in rows if r["work"] == work and r["nodes"] == 0]
        points = " ".join(f'{x(r["clients"]):.1f},{y(r["per_acquire"]):.1f}'
                          for r in mine)
        out.append(f'<polyline points="{points}" fill="none" '
                   f'stroke="{color}" stroke-width="2"/>')
        for r in mine:
            out.append(f'<circle cx="{x(r["clients"]):.1f}" '
                       f'cy="{y(r["per_acquire"]):.1f}" r="3" '
                       f'fill="{color}"/>')
    for i, (work, color) in enumerate(COLORS.items()):
        out.append(f'<text x="{left + 12}" y="{top + 18 + 16 * i}" '
                   f'fill="{color}">{NAMES[work]}</text>')
    return "\n".join(out) + "\n</svg>\n"


def replace(text, mark, new):
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    at, to = text.index(begin) + len(begin), text.index(end)
    return text[:at] + "\n" + new + "\n" + text[to:]


def main():
    program = os.path.abspath(sys.argv[1])
    quick = "--quick" in sys.argv
    into = sys.argv[sys.argv.index("--into") + 1] if "--into" in sys.argv else ""
    rows = [run(program, *r) for r in (QUICK if quick else RUNS)]

    def pick(work, nodes=0):
        return [r for r in rows if r["work"] == work and r["nodes"] == nodes]

    tables = {
        "spread": spread_table(pick("spread")),
        "cluster": spread_table(pick("spread", 16)),
        "held": held_table(pick("held")),
        "plain": hot_table(pick("plain")),
        "fair": hot_table(pick("fair")),
        "storm": storm_table(pick("storm")),
    }
    for name, text in tables.items():
        print(f"{name}:\n{text}")
    if into:
        path = os.path.join(into, "scale.md")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for name, new in tables.items():
            text = replace(text, name, new)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        with open(os.path.join(into, "scale.svg"), "w", encoding="utf-8") as f:
            f.write(svg(rows))


main()
