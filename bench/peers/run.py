#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares dibs with what one would use instead, on one server, in one run.

    bench/peers/run.py PROGRAMS [--quick | --smoke] [--docs FOLDER] [--only A,B]

PROGRAMS is the folder that bench/peers/build.sh filled. With --docs the result is
written there as benchmarks.md with plots; without, it is printed.

Every program is started once and stays, so that each is warm (a Java virtual
machine needs seconds for that). It reads orders from standard input and answers
each with a line of JSON:

    pairs KIND N MS PREFIX                       N threads or tasks, each with a
                                                 lock of its own, for MS
    contend KIND N MS NAME HOLD_US PAUSE_US FILE N of them want one lock; each
                                                 hold is noted in FILE
    hold KIND N 0 PREFIX                         takes N locks and keeps them
    wait KIND N 0 NAME                           N wait for a lock kept elsewhere
    quit

A line of FILE is one hold: who, when it asked, when it had the lock, when it
began to let go, in nanoseconds of CLOCK_MONOTONIC, which all processes share. So
waits, changes of hands and two holders at a time are seen here, the same way for
all.

The programs take turns within each round, since a machine that is slow now and
fast later must not favor one; what counts is the median of the rounds.
"""
import argparse
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import report
from report import MANY_TASKS, PROCESSES, THREADS

HOLD_US, PAUSE_US = 1000, 2000
ANSWER_S = 40  # an order takes a few seconds; who needs longer hangs
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Plan:
    """How long everything takes."""

    def __init__(self, rounds, lap_ms, warm_ms, contend_ms, contend_rounds, locks, waiters):
        self.rounds, self.lap_ms, self.warm_ms = rounds, lap_ms, warm_ms
        self.contend_ms, self.contend_rounds = contend_ms, contend_rounds
        self.locks, self.waiters = locks, waiters


FULL = Plan(7, 1000, 4000, 10000, 3, 10000, 1000)
QUICK = Plan(3, 400, 2000, 3000, 1, 2000, 300)
SMOKE = Plan(1, 100, 100, 300, 1, 50, 20)


class Library:
    """A library, and the program that uses it."""

    def __init__(self, name, language, version, argv, needs, can, unit="threads"):
        self.name, self.language, self.version = name, language, version
        self.argv, self.needs, self.can, self.unit = argv, needs, can, unit


def libraries(folder):
    at = lambda *parts: os.path.join(folder, *parts)
    java = at("java", "classpath")
    path = at("java", "classes") + ":" + (open(java).read().strip() if os.path.exists(java) else "")
    every = {"pairs", "contend", "hold", "wait"}
    go = [at("go-peer")]
    return [
        Library("dibs", "C", "", [at("c-peer"), "dibs"], at("c-peer"), every | {"fair", "read"}),
        Library("dibs async", "C", "", [at("c-peer"), "tasks"], at("c-peer"), {"pairs", "many", "wait"}, "tasks"),
        Library("plain hiredis", "C", "", [at("c-peer"), "hiredis"], at("c-peer"), {"pairs", "contend"}),
        Library("Redisson", "Java", "4.7.0", ["java", "-cp", path, "Peer", "redisson"], java, every | {"fair", "read"}),
        Library("redsync", "Go", "4.18.1", go + ["redsync"], go[0], every, "goroutines"),
        Library("redislock", "Go", "0.9.4", go + ["redislock"], go[0], every, "goroutines"),
        Library("rueidislock", "Go", "1.0.79", go + ["rueidislock"], go[0], every, "goroutines"),
        Library("rslock", "Rust", "0.10.0", [at("rust-peer"), "rslock"], at("rust-peer"), every | {"many"}, "tasks"),
        Library("node-redlock", "JavaScript", "5.0.0-beta.2", ["node", at("node", "peer.cjs"), "node-redlock"],
                at("node", "node_modules"), every | {"many"}, "promises"),
        Library("redis-py", "Python", "8.1.0", [at("python", "bin", "python"), at("python", "peer.py"), "redis-py"],
                at("python", "peer.py"), every),
        Library("redis-py asyncio", "Python", "8.1.0",
                [at("python", "bin", "python"), at("python", "peer.py"), "redis-py-asyncio"],
                at("python", "peer.py"), every | {"many"}, "tasks"),
        Library("the server's limit", "C", "", [at("c-peer"), "limit"], at("c-peer"), {"limit"}),
    ]


class Server:
    """A redis-server of our own, on loopback."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="dibs-peers.")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no", "--dir", self.folder, "--maxclients", "4000"],
            stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        self.url = f"redis://127.0.0.1:{self.port}"
        for _ in range(500):
            try:
                self.command("PING")
                return
            except OSError:
                time.sleep(0.01)
        raise SystemExit("peers: redis-server did not start")

    def command(self, *words):
        with socket.create_connection(("127.0.0.1", self.port), 5) as s:
            s.sendall((" ".join(words) + "\r\n").encode())
            return s.recv(65536).decode()

    def version(self):
        for line in self.command("INFO", "server").splitlines():
            if line.startswith("redis_version:"):
                return line.split(":")[1]
        return "unknown"

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def cpu_seconds(pid):
    """User and system time of all threads."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def resident_bytes(pid):
    return int(open(f"/proc/{pid}/statm").read().split()[1]) * PAGE


class Peer:
    """A running program."""

    def __init__(self, library, url):
        self.library = library
        self.process = subprocess.Popen(
            library.argv + [url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.read()

    def read(self):
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_S)
        text = self.process.stdout.readline() if ready else ""
        if not text:
            raise RuntimeError(f"{self.library.name} does not answer")
        return json.loads(text)

    def send(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def ask(self, *words):
        self.send(*words)
        return self.read()

    def stop(self):
        try:
            self.send("quit")
            self.process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass  # what it did not read any more


class Comparison:
    def __init__(self, plan, libs, server):
        self.plan, self.libs, self.server = plan, libs, server
        self.folder = server.folder
        self.running = []
        self.hung = []  # libraries that did not come to an end, and where
        self.serial = 0

    def start(self, library):
        peer = Peer(library, self.server.url)
        self.running.append(peer)
        return peer

    def stop(self, peer):
        self.running.remove(peer)
        peer.stop()

    def stop_all(self):
        for peer in list(self.running):
            self.stop(peer)

    def fresh(self, what):
        self.serial += 1
        return f"peers:{what}:{self.serial}:"

    def having(self, ability):
        return [lib for lib in self.libs if ability in lib.can]

    # ---- each has a lock of its own ----

    def pairs(self):
        """Pairs a second and processor time a pair, by library and threads."""
        peers = {lib: self.start(lib) for lib in self.libs if lib.can & {"pairs", "limit"}}
        for peer in peers.values():
            peer.ask("pairs", "plain", 4, self.plan.warm_ms, self.fresh("warm"))
        rates, cpu = {}, {}
        for n in THREADS + (MANY_TASKS,):
            wanted = {lib: p for lib, p in peers.items()
                      if "limit" in lib.can or n != MANY_TASKS or "many" in lib.can}
            for _ in range(self.plan.rounds):
                for lib, peer in wanted.items():
                    before = cpu_seconds(peer.process.pid)
                    got = peer.ask("pairs", "plain", n, self.plan.lap_ms, self.fresh("pairs"))
                    used = cpu_seconds(peer.process.pid) - before
                    rates.setdefault((lib.name, n), []).append(got["count"] / got["seconds"])
                    cpu.setdefault((lib.name, n), []).append(1e6 * used / max(1, got["count"]))
        self.stop_all()
        return rates, cpu

    # ---- all want the same one ----

    def contend(self, kind, processes, threads, hold_us, pause_us, ability="contend"):
        """By library, a list of what report.read_holds says of each round."""
        results = {}
        sets = {lib: [self.start(lib) for _ in range(processes)] for lib in self.having(ability)}
        for peers in sets.values():
            for peer in peers:
                peer.ask("pairs", kind, 2, self.plan.warm_ms // 2, self.fresh("warm"))
        for _ in range(self.plan.contend_rounds):
            for lib, peers in sets.items():
                if not peers:
                    continue  # it hung before
                name = self.fresh("contend")
                files = [os.path.join(self.folder, f"holds.{i}") for i in range(processes)]
                try:
                    for peer, file in zip(peers, files):
                        peer.send("contend", kind, threads, self.plan.contend_ms, name, hold_us, pause_us, file)
                    for peer in peers:
                        peer.read()
                except (RuntimeError, OSError):
                    self.hung.append(f"{lib.name} ({processes} processes, {threads} each)")
                    for peer in peers:
                        peer.process.kill()
                    sets[lib] = []
                    continue
                results.setdefault(lib.name, []).append(
                    report.read_holds(files, self.plan.contend_ms / 1000, shared=kind == "read"))
        self.stop_all()
        return results

    # ---- memory ----

    def settled_bytes(self, pid):
        last, now = -1, resident_bytes(pid)
        for _ in range(40):
            if now == last:
                break
            time.sleep(0.1)
            last, now = now, resident_bytes(pid)
        return now

    def memory(self):
        """Bytes of a held lock and of a waiter, by library."""
        held, waiting = {}, {}
        for lib in self.having("hold"):
            peer = self.start(lib)
            peer.ask("hold", "plain", 10, 0, self.fresh("warm"))
            before = self.settled_bytes(peer.process.pid)
            peer.ask("hold", "plain", self.plan.locks, 0, self.fresh("held"))
            held[lib.name] = (self.settled_bytes(peer.process.pid) - before) / self.plan.locks
            self.stop(peer)
        keeper = next(lib for lib in self.libs if lib.name == "dibs")
        for lib in self.having("wait"):
            name = self.fresh("waited")
            holder = self.start(lib if "hold" in lib.can else keeper)
            holder.ask("hold", "plain", 1, 0, name)
            peer = self.start(lib)
            before = self.settled_bytes(peer.process.pid)
            peer.ask("wait", "plain", self.plan.waiters, 0, name + "0")
            time.sleep(1)
            waiting[lib.name] = (self.settled_bytes(peer.process.pid) - before) / self.plan.waiters
            self.stop(peer)
            self.stop(holder)
            self.server.command("FLUSHALL")
        return held, waiting

    def all(self):
        say = lambda text: print(f"peers: {text}", file=sys.stderr, flush=True)
        result = {}
        say("pairs")
        result["pairs"], result["cpu"] = self.pairs()
        say("one name, one process")
        result["one"] = self.contend("plain", 1, 8, 0, 0)
        say(f"one name, {PROCESSES} processes, greedy")
        result["greedy"] = self.contend("plain", PROCESSES, 1, HOLD_US, 0)
        say(f"one name, {PROCESSES} processes, with a pause")
        result["paced"] = self.contend("plain", PROCESSES, 1, HOLD_US, PAUSE_US)
        say("fair and read locks")
        result["fair"] = self.contend("fair", 1, 100 if self.plan is FULL else 16, 0, 0, "fair")
        result["read"] = self.contend("read", 1, 8, 0, 0, "read")
        say("memory")
        result["held"], result["waiting"] = self.memory()
        return result


def dibs_version(top):
    for line in open(os.path.join(top, "include", "dibs", "dibs.h")):
        words = line.split()
        if line.startswith("#define DIBS_VERSION_") and len(words) == 3:
            yield words[2]


def main():
    parser = argparse.ArgumentParser(description="dibs next to other lock libraries")
    parser.add_argument("programs")
    parser.add_argument("--quick", action="store_true", help="about five minutes, less exact")
    parser.add_argument("--smoke", action="store_true", help="a few seconds: does all of it run?")
    parser.add_argument("--docs", help="write benchmarks.md and its plots into this folder")
    parser.add_argument("--only", help="names of libraries, with commas")
    args = parser.parse_args()

    plan = SMOKE if args.smoke else QUICK if args.quick else FULL
    there = [lib for lib in libraries(args.programs) if os.path.exists(lib.needs)]
    missing = [lib.name for lib in libraries(args.programs) if not os.path.exists(lib.needs)]
    if args.only:
        there = [lib for lib in there if lib.name in args.only.split(",") + ["dibs"]]
    top = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    server = Server()
    comparison = Comparison(plan, there, server)
    started = time.time()
    try:
        result = comparison.all()
        about = {"server": server.version(), "seconds": time.time() - started, "plan": plan,
                 "missing": missing, "hung": comparison.hung, "version": ".".join(dibs_version(top))}
    finally:
        try:
            comparison.stop_all()
        finally:
            server.stop()
    text = report.write(there, result, about, args.docs)
    if not args.docs:
        print(text)
    bad = report.violations(result)
    if bad:
        print(f"peers: two holders at a time: {bad}", file=sys.stderr)
    return 1 if any(name.startswith("dibs") for name in bad) else 0


if __name__ == "__main__":
    sys.exit(main())
