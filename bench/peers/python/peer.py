# SPDX-License-Identifier: MIT
"""The Python side of the comparison: redis-py, with threads and with asyncio,
used as its documents say.

    peer.py redis-py|redis-py-asyncio URL

Orders come one a line on standard input; see bench/peers/run.py.
"""
import asyncio
import json
import sys
import threading
import time

import redis
import redis.asyncio

LEASE = 30
CONNECTIONS = 2000  # each that wants a lock needs one; the default is 100
now = time.monotonic_ns  # the clock that all processes share


class Order:
    def __init__(self, text):
        words = text.split() + [""] * 8
        self.verb, self.kind, n, ms, self.name = words[:5]
        self.n, self.ms = int(n or 0), int(ms or 0)
        self.hold = int(words[5] or 0) / 1e6
        self.pause = int(words[6] or 0) / 1e6
        self.file = words[7]


class Threads:
    """A thread for each that wants a lock."""

    def __init__(self, url):
        self.client = redis.Redis.from_url(url, max_connections=CONNECTIONS)
        self.client.ping()

    def lock(self, name):
        return self.client.lock(name, timeout=LEASE, thread_local=False)

    def crew(self, o, body):
        counts = [0] * o.n
        stop = threading.Event()

        def member(who):
            counts[who] = body(who, stop)

        threads = [threading.Thread(target=member, args=(i,)) for i in range(o.n)]
        for t in threads:
            t.start()
        time.sleep(o.ms / 1000)
        stop.set()
        for t in threads:
            t.join()
        return sum(counts)

    def pairs(self, o):
        def body(who, stop):
            lock, count = self.lock(o.name + str(who)), 0
            while not stop.is_set():
                lock.acquire()
                lock.release()
                count += 1
            return count

        return self.crew(o, body)

    def contend(self, o):
        log = []

        def body(who, stop):
            lock, holds = self.lock(o.name), 0
            while not stop.is_set():
                asked = now()
                lock.acquire()
                got = now()
                if o.hold:
                    time.sleep(o.hold)
                end = now()
                lock.release()
                log.append(f"{who} {asked} {got} {end}\n")
                holds += 1
                if o.pause:
                    time.sleep(o.pause)
            return holds

        count = self.crew(o, body)
        with open(o.file, "w") as file:
            file.writelines(log)
        return count

    def hold(self, o):
        self.kept = [self.lock(o.name + str(i)) for i in range(o.n)]
        for lock in self.kept:
            lock.acquire()
        return o.n

    def wait(self, o):
        threading.stack_size(256 * 1024)
        for _ in range(o.n):
            lock = self.lock(o.name)
            threading.Thread(target=lock.acquire, daemon=True).start()
        return o.n

    def run(self):
        print('{"ready": true}', flush=True)
        for text in sys.stdin:
            o = Order(text)
            if o.verb == "quit":
                break
            start = now()
            count = getattr(self, o.verb)(o)
            seconds = (now() - start) / 1e9
            print(json.dumps({"count": count, "seconds": seconds}), flush=True)


class Tasks:
    """A task for each that wants a lock."""

    def __init__(self, url):
        self.url = url

    def lock(self, name):
        return self.client.lock(name, timeout=LEASE, thread_local=False)

    async def crew(self, o, body):
        self.stop = False
        tasks = [asyncio.create_task(body(i)) for i in range(o.n)]
        await asyncio.sleep(o.ms / 1000)
        self.stop = True
        return sum(await asyncio.gather(*tasks))

    async def pairs(self, o):
        async def body(who):
            lock, count = self.lock(o.name + str(who)), 0
            while not self.stop:
                await lock.acquire()
                await lock.release()
                count += 1
            return count

        return await self.crew(o, body)

    async def contend(self, o):
        log = []

        async def body(who):
            lock, holds = self.lock(o.name), 0
            while not self.stop:
                asked = now()
                await lock.acquire()
                got = now()
                if o.hold:
                    await asyncio.sleep(o.hold)
                end = now()
                await lock.release()
                log.append(f"{who} {asked} {got} {end}\n")
                holds += 1
                if o.pause:
                    await asyncio.sleep(o.pause)
            return holds

        count = await self.crew(o, body)
        with open(o.file, "w") as file:
            file.writelines(log)
        return count

    async def hold(self, o):
        self.kept = [self.lock(o.name + str(i)) for i in range(o.n)]
        for lock in self.kept:
            await lock.acquire()
        return o.n

    async def wait(self, o):
        self.waiting = [
            asyncio.create_task(self.lock(o.name).acquire()) for _ in range(o.n)
        ]
        return o.n

    async def run(self):
        self.client = redis.asyncio.Redis.from_url(self.url, max_connections=CONNECTIONS)
        await self.client.ping()
        print('{"ready": true}', flush=True)
        loop = asyncio.get_running_loop()
        while text := await loop.run_in_executor(None, sys.stdin.readline):
            o = Order(text)
            if o.verb == "quit":
                break
            start = now()
            count = await getattr(self, o.verb)(o)
            seconds = (now() - start) / 1e9
            print(json.dumps({"count": count, "seconds": seconds}), flush=True)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("redis-py", "redis-py-asyncio"):
        sys.exit("usage: peer.py redis-py|redis-py-asyncio URL")
    if sys.argv[1] == "redis-py":
        Threads(sys.argv[2]).run()
    else:
        asyncio.run(Tasks(sys.argv[2]).run())


main()
