"""The example for asyncio: tasks take turns, a loss is told and raised, and a
task that is canceled leaves nothing behind."""
import asyncio
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "..", "examples", "python"))
import kit  # noqa: E402
import dibs_asyncio  # noqa: E402
from dibs_asyncio import Client, Error, Lost, dibs  # noqa: E402


def on_loop(test):
    """Each test runs on a loop of its own, with a client, and leaves no handle
    of a call that is over."""
    def run(self):
        async def body():
            client = Client(kit.URL, lease_ms=kit.LEASE)
            try:
                await test(self, client, client.lock("m"))
            finally:
                client.close()
        asyncio.run(asyncio.wait_for(body(), kit.SOON))
        self.assertEqual(dibs_asyncio.handles, set())
    return run


class Asyncio(kit.Test):
    @on_loop
    async def test_take_turns(self, _client, lock):
        inside, most, turns = 0, 0, 0

        async def worker():
            nonlocal inside, most, turns
            async with lock.held() as hold:
                self.assertFalse(hold.lost)
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1
                turns += 1
        await asyncio.gather(*(worker() for _ in range(10)))
        self.assertEqual((most, turns), (1, 10))

    @on_loop
    async def test_wait_is_over(self, client, lock):
        async with lock.held():
            with self.assertRaises(Error) as caught:
                async with client.lock("m").held(wait_ms=10):
                    self.fail("two have it")
        self.assertEqual(caught.exception.err, dibs.DIBS_ERR_TIMEOUT)

    @on_loop
    async def test_body_raises(self, _client, lock):
        with self.assertRaises(KeyError):
            async with lock.held():
                raise KeyError
        self.assertEqual(kit.redis("EXISTS", "m"), "0")

    @on_loop
    async def test_lost(self, _client, lock):
        told = asyncio.get_running_loop().create_future()
        with self.assertRaises(Lost):
            async with lock.held(told=told.set_result) as hold:
                kit.redis("DEL", "m")
                self.assertIs(await told, hold)
                self.assertTrue(hold.lost)

    @on_loop
    async def test_canceled_while_waiting(self, _client, lock):
        async def wait():
            async with lock.held():
                self.fail("was canceled")
        async with lock.held():
            task = asyncio.create_task(wait())
            await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        async with lock.held(wait_ms=1000 * kit.SOON):
            pass

    @on_loop
    async def test_canceled_when_granted(self, _client, lock):
        async def wait():
            async with lock.held():
                self.fail("was canceled")
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)  # has asked; the answer is not dispatched
        kit.wait_for(lambda: kit.redis("EXISTS", "m") == "1")
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        while dibs_asyncio.handles:  # it is given back
            await asyncio.sleep(0.002)
        self.assertEqual(kit.redis("EXISTS", "m"), "0")

    @on_loop
    async def test_canceled_once_dispatched(self, client, lock):
        async def wait():
            async with lock.held():
                self.fail("was canceled")
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)  # has asked
        # The future gets its result, but the task does not run before cancel.
        kit.wait_for(lambda: dibs.dibs_client_dispatch(client.handle) > 0)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        while dibs_asyncio.handles:  # it is given back
            await asyncio.sleep(0.002)
        self.assertEqual(kit.redis("EXISTS", "m"), "0")


if __name__ == "__main__":
    kit.main()
