#!/usr/bin/env python3
"""workers.py [URL] - tasks of an asyncio program take turns."""
import asyncio
import sys

from dibs_asyncio import Client, Error, Lost


async def worker(lock, number):
    try:
        async with lock.held(wait_ms=10_000,
                             told=lambda hold: print("lost!")) as hold:
            print(f"worker {number} has the lock")
            await asyncio.sleep(0.02)  # it is renewed meanwhile
            return not hold.lost  # ask before what cannot be undone
    except Lost:
        print(f"worker {number}: somebody else may have had it since")
    except Error as e:
        print(f"worker {number}: {e}")
    return False


async def main(url):
    client = Client(url)
    lock = client.lock("dibs:example:workers")
    fine = await asyncio.gather(*(worker(lock, n) for n in range(5)))
    client.close()
    return 0 if all(fine) else 1


if __name__ == "__main__":
    url = sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:6379"
    sys.exit(asyncio.run(main(url)))
