# SPDX-License-Identifier: MIT
"""What a comparison found, as tables and plots.

read_holds turns the logs of one round into figures; write makes the page. Every
figure is the median of the rounds, with the least and the greatest behind it
where rounds differ. Nothing is left out because dibs looks bad in it: the rows
in which another library is better are collected under a heading of their own.
"""
import html
import os
import platform
import statistics

THREADS = (1, 4, 16, 64)
MANY_TASKS = 256
PROCESSES = 4
LIMIT = "the server's limit"
COLORS = ("#0b6e4f", "#5bb98c", "#8c8c8c", "#c0392b", "#2e86c1", "#85c1e9",
          "#1b4f72", "#b9770e", "#d4ac0d", "#7d3c98", "#bb8fce")


# ---- one round -----------------------------------------------------------

class Holds:
    """What happened in one round of contention."""

    def __init__(self):
        self.acquires = self.changes = self.violations = 0
        self.longest_wait_ms = self.wake_us = 0.0
        self.per_second = self.changes_per_second = 0.0


def read_holds(files, seconds, shared=False):
    """A hold is (got, end, asked, who). Two holders at a time are two holds of
    different owners that overlap; for readers that is as it should be."""
    holds = []
    for number, file in enumerate(files):
        for line in open(file):
            who, asked, got, end = map(int, line.split())
            holds.append((got, end, asked, (number, who)))
    holds.sort()
    result = Holds()
    result.acquires = len(holds)
    result.per_second = len(holds) / seconds
    result.longest_wait_ms = max(((h[0] - h[2]) / 1e6 for h in holds), default=0.0)
    wakes = []
    for before, after in zip(holds, holds[1:]):
        if before[3] == after[3]:
            continue
        result.changes += 1
        if not shared and after[0] < before[1]:
            result.violations += 1
        if after[2] < before[1]:  # it was waiting already
            wakes.append((after[0] - before[1]) / 1e3)
    result.changes_per_second = result.changes / seconds
    result.wake_us = statistics.median(wakes) if wakes else float("nan")
    return result


def violations(result):
    """Names of libraries that had two holders at a time, with how often."""
    found = {}
    for part in ("one", "greedy", "paced", "fair"):
        for name, rounds in result[part].items():
            bad = sum(r.violations for r in rounds)
            if bad:
                found[name] = found.get(name, 0) + bad
    return found


# ---- text ----------------------------------------------------------------

def number(value):
    if value != value:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def spread(values):
    if len(values) < 2:
        return number(values[0])
    middle = statistics.median(values)
    return f"{number(middle)} ({number(min(values))} to {number(max(values))})"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def machine():
    model = "unknown processor"
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{os.cpu_count()} cores ({model}), Linux {platform.release()}"


def pairs_table(libs, result):
    counts = THREADS + (MANY_TASKS,)
    rows = []
    for lib in libs:
        cells = [spread(result["pairs"][lib.name, n]) if (lib.name, n) in result["pairs"] else "-"
                 for n in counts]
        rows.append([f"{lib.name} ({lib.language})"] + cells)
    return table(["pairs a second"] + [f"{n}" for n in counts], rows)


def ratio_table(libs, result):
    """dibs and dibs async next to the floor and to the best of the others."""
    middle = {key: statistics.median(v) for key, v in result["pairs"].items()}
    ours = [lib.name for lib in libs if lib.name.startswith("dibs")]
    others = [lib.name for lib in libs if not lib.name.startswith("dibs") and lib.name not in (LIMIT, "plain hiredis")]
    rows = []
    for name in ours:
        floor, best = [], []
        for n in THREADS:
            floor.append(number(middle[name, n] / middle["plain hiredis", n]) if ("plain hiredis", n) in middle else "-")
            rivals = [(middle[o, n], o) for o in others if (o, n) in middle]
            best.append(f"{middle[name, n] / max(rivals)[0]:.2f} ({max(rivals)[1]})" if rivals else "-")
        rows.append([f"{name} / plain hiredis"] + floor)
        rows.append([f"{name} / best other"] + best)
    return table(["ratio"] + [f"{n}" for n in THREADS], rows)


def contend_table(rounds_by_name, columns):
    rows = []
    for name, rounds in rounds_by_name.items():
        rows.append([name] + [spread([getattr(r, field) for r in rounds]) for _, field in columns])
    return table(["library"] + [title for title, _ in columns], rows)


def plain_table(title, unit, values):
    return table([title, unit], [[name, number(v)] for name, v in values.items()])


# ---- where dibs is behind ------------------------------------------------

def behind(result):
    """Rows in which another library is at least 5 % better."""
    found = []

    def compare(what, mine, others, more_is_better):
        for name, value in others.items():
            if name.startswith("dibs") or name == LIMIT or value != value or mine != mine:
                continue
            ratio = mine / value if more_is_better else value / mine
            if value and mine and ratio < 0.95:
                found.append(f"{what}: {name} {number(value)}, dibs {number(mine)}")

    for n in THREADS:
        middle = {name: statistics.median(v) for (name, m), v in result["pairs"].items() if m == n}
        mine = max(v for name, v in middle.items() if name.startswith("dibs"))
        compare(f"pairs a second, {n} at a time (the better of dibs and dibs async)", mine, middle, True)
    for part, title in (("one", "one process"), ("greedy", f"{PROCESSES} processes, greedy"),
                        ("paced", f"{PROCESSES} processes, with a pause"),
                        ("fair", "fair"), ("read", "readers")):
        for field, what, more in (("per_second", "acquires a second", True),
                                  ("changes_per_second", "changes of hands a second", True),
                                  ("longest_wait_ms", "longest wait in ms", False),
                                  ("wake_us", "wake-up in us", False)):
            if (part == "read" and field != "per_second") or (part != "paced" and field == "wake_us"):
                continue
            middle = {name: statistics.median(getattr(r, field) for r in rounds)
                      for name, rounds in result[part].items()}
            if "dibs" in middle:
                compare(f"{title}, {what}", middle["dibs"], middle, more)
    for part, what in (("held", "bytes of a held lock"), ("waiting", "bytes of a waiter")):
        mine = [v for name, v in result[part].items() if name.startswith("dibs")]
        if mine:
            compare(what, min(mine), result[part], False)
    return found


# ---- plots ---------------------------------------------------------------

def bars(title, unit, values):
    """Horizontal bars, the greatest first. values: name to number."""
    rows = sorted(((v, k) for k, v in values.items() if v == v), reverse=True)
    top, step, left, width = 44, 26, 170, 420
    greatest = max((v for v, _ in rows), default=1) or 1
    height = top + step * len(rows) + 12
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 110} {height}" '
           f'font-family="sans-serif" font-size="13" role="img">',
           f'<title>{html.escape(title)}</title>',
           '<rect width="100%" height="100%" fill="#ffffff"/>',
           f'<text x="12" y="24" font-size="15" font-weight="bold">{html.escape(title)}</text>']
    for i, (value, name) in enumerate(rows):
        y = top + i * step
        color = "#0b6e4f" if name.startswith("dibs") else "#9aa5b1"
        out.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{html.escape(name)}</text>')
        out.append(f'<rect x="{left}" y="{y}" width="{max(1, width * value / greatest):.1f}" height="18" fill="{color}"/>')
        out.append(f'<text x="{left + width * value / greatest + 6:.1f}" y="{y + 14}">{number(value)} {unit}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def lines(title, result, libs):
    """Pairs a second over threads, both on a doubling scale of threads."""
    left, top, width, height = 70, 44, 420, 260
    names = [lib.name for lib in libs if (lib.name, THREADS[0]) in result["pairs"]]
    middle = {key: statistics.median(v) for key, v in result["pairs"].items()}
    greatest = max(middle[name, n] for name in names for n in THREADS)
    x = lambda i: left + width * i / (len(THREADS) - 1)
    y = lambda v: top + height - height * v / greatest
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 190} {top + height + 40}" '
           f'font-family="sans-serif" font-size="12" role="img">',
           f'<title>{html.escape(title)}</title>',
           '<rect width="100%" height="100%" fill="#ffffff"/>',
           f'<text x="12" y="24" font-size="15" font-weight="bold">{html.escape(title)}</text>']
    for part in range(5):
        value = greatest * part / 4
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.0f}</text>')
    for i, n in enumerate(THREADS):
        out.append(f'<text x="{x(i):.1f}" y="{top + height + 18}" text-anchor="middle">{n}</text>')
    for i, name in enumerate(names):
        color = COLORS[i % len(COLORS)] if name != LIMIT else "#222222"
        dash = ' stroke-dasharray="6 4"' if name == LIMIT else ""
        thick = 3 if name.startswith("dibs") else 1.5
        points = " ".join(f"{x(k):.1f},{y(middle[name, n]):.1f}" for k, n in enumerate(THREADS))
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{thick}"{dash}/>')
        at = top + 8 + 18 * i
        out.append(f'<line x1="{left + width + 14}" x2="{left + width + 34}" y1="{at}" y2="{at}" '
                   f'stroke="{color}" stroke-width="{thick}"{dash}/>')
        out.append(f'<text x="{left + width + 40}" y="{at + 4}">{html.escape(name)}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def plots(libs, result):
    middle = lambda part, field: {name: statistics.median(getattr(r, field) for r in rounds)
                                  for name, rounds in result[part].items()}
    return {
        "pairs.svg": lines("acquire + release a second, by threads or tasks", result, libs),
        "hands.svg": bars(f"{PROCESSES} processes that ask again at once: changes of hands", "/s",
                          middle("greedy", "changes_per_second")),
        "wake.svg": bars("from the release to the next holder (median)", "us", middle("paced", "wake_us")),
    }


# ---- the page ------------------------------------------------------------

PAGE = """# dibs next to others

Written by `make peers`; do not edit. dibs {version}, server {server}, TCP on
loopback, {machine}. The run took {minutes:.0f} minutes: {rounds} rounds of
{lap_ms} ms for pairs, {contend_rounds} of {contend_s:.1f} s for one name. Each figure is
the median of the rounds, with the least and the greatest behind it.

Every library is used as its own documents say, with a lease of 30 s and its
usual way to wait. All programs run all the time and take turns within each round; a
virtual machine is warm before it counts. **plain hiredis** is what one would
write by hand: a connection a thread, the scripts of dibs, no renewal, no repair.
**The server's limit** is one connection that sends the same scripts in batches, as
many pairs in a batch as there are threads elsewhere. Most other libraries use a simpler command (SET NX and a
compare-and-delete) which costs the server half as much: they have no re-entry, and
nobody is woken by their release.
{missing}
## Each has a lock of its own

![pairs a second](benchmarks/pairs.svg)

Columns: threads, or tasks where the library has tasks.

{pairs}
{ratios}
Processor time of the client for one pair, in microseconds:

{cpu}
## All want the same lock

Eight threads or tasks of one process, which ask again at once:

{one}
Four processes, {hold_ms} ms in the lock, which ask again at once. A change of hands is
an acquire by another process than the last one:

![changes of hands](benchmarks/hands.svg)

{greedy}
The same with a pause of {pause_ms} ms after each release. Wake-up: from before the
release is called to when the next one has the lock, if that one was waiting:

![wake-up](benchmarks/wake.svg)

{paced}
## Fair locks and readers

{fair}
Eight readers of one lock:

{read}
## Memory

{held}
{waiting}
## Two holders at a time

{violations}
{hung}
## Where dibs is behind

{behind}
"""

BOTH = (("acquires a second", "per_second"), ("longest wait, ms", "longest_wait_ms"))
HANDS = (("acquires a second", "per_second"), ("changes of hands a second", "changes_per_second"),
         ("longest wait, ms", "longest_wait_ms"))


def page(libs, result, about):
    plan = about["plan"]
    bad = violations(result)
    late = behind(result)
    middle_cpu = [[lib.name] + [spread(result["cpu"][lib.name, n]) if (lib.name, n) in result["cpu"] else "-"
                                for n in THREADS] for lib in libs if lib.name != LIMIT]
    return PAGE.format(
        version=about["version"], server=about["server"], machine=machine(), minutes=about["seconds"] / 60,
        rounds=plan.rounds, lap_ms=plan.lap_ms, contend_rounds=plan.contend_rounds,
        contend_s=plan.contend_ms / 1000, hold_ms=1, pause_ms=2,
        missing="\nNot measured, since it could not be built here: " + ", ".join(about["missing"]) + ".\n"
        if about["missing"] else "",
        hung="\nDid not come to an end within 40 s, and was ended: " + ", ".join(about["hung"]) + ".\n"
        if about["hung"] else "",
        pairs=pairs_table(libs, result), ratios=ratio_table(libs, result),
        cpu=table(["library"] + [f"{n}" for n in THREADS], middle_cpu),
        one=contend_table(result["one"], BOTH), greedy=contend_table(result["greedy"], HANDS),
        paced=contend_table(result["paced"], HANDS + (("wake-up, us", "wake_us"),)),
        fair=contend_table(result["fair"], HANDS), read=contend_table(result["read"], BOTH),
        held=plain_table("a held lock", "bytes", result["held"]),
        waiting=plain_table("a waiter", "bytes", result["waiting"]),
        violations="None was seen, in any library." if not bad else
        "Seen: " + ", ".join(f"{name} {n} times" for name, n in bad.items()) + ".",
        behind="\n".join("- " + text for text in late) if late else "In no row of this run.")


def write(libs, result, about, folder):
    text = page(libs, result, about)
    if folder:
        os.makedirs(os.path.join(folder, "benchmarks"), exist_ok=True)
        with open(os.path.join(folder, "benchmarks.md"), "w") as file:
            file.write(text)
        for name, svg in plots(libs, result).items():
            with open(os.path.join(folder, "benchmarks", name), "w") as file:
                file.write(svg)
    return text
