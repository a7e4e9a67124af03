"""The shared library from Python, by ctypes: structs and prototypes by hand, and
dispatch on an asyncio loop."""
import asyncio
import ctypes as ct
import os

import kit

dibs = ct.CDLL(os.environ["DIBS_LIBRARY"])
OK, BUSY, LOST = 0, -3, -6
HELD = 1
CALLBACKS_DISPATCH = 1

ON_DONE = ct.CFUNCTYPE(None, ct.c_int, ct.c_void_p)
ON_LOST = ct.CFUNCTYPE(None, ct.c_char_p, ct.c_uint64, ct.c_void_p)


class Opts(ct.Structure):
    """Every struct of options begins with its size."""

    def __init__(self, **fields):
        super().__init__(size=ct.sizeof(self), **fields)


class LockOpts(Opts):
    _fields_ = [
        ("size", ct.c_size_t), ("wait_ms", ct.c_int64),
        ("lease_ms", ct.c_int64), ("owner", ct.c_uint64),
        ("on_lost", ON_LOST), ("arg", ct.c_void_p),
        ("max_hold_ms", ct.c_int64), ("keep_ms", ct.c_int64),
        ("member_ms", ct.c_int64), ("replicas", ct.c_int),
        ("replicas_timeout_ms", ct.c_int64),
    ]


class ClientOpts(Opts):
    """Only what 0.1 had and this needs; the library fills in the rest."""
    _fields_ = [
        ("size", ct.c_size_t), ("command_timeout_ms", ct.c_int64),
        ("connect_timeout_ms", ct.c_int64), ("lease_ms", ct.c_int64),
        ("max_connections", ct.c_uint), ("callbacks", ct.c_int),
        ("lazy", ct.c_bool), ("user", ct.c_char_p),
        ("password", ct.c_char_p), ("client_name", ct.c_char_p),
        ("on_event", ct.c_void_p), ("event_arg", ct.c_void_p),
        ("fair_wait_ms", ct.c_int64), ("prefer_readers", ct.c_bool),
        ("tls_ca", ct.c_char_p), ("tls_cert", ct.c_char_p),
        ("tls_key", ct.c_char_p), ("tls_sni", ct.c_char_p),
        ("tls_insecure", ct.c_bool), ("replicas", ct.c_int),
        ("sentinel_user", ct.c_char_p), ("sentinel_password", ct.c_char_p),
        ("pubsub", ct.c_int),
    ]


PLACE = ct.POINTER(ct.c_void_p)
OPTS = ct.POINTER(LockOpts)
for name, result, arguments in (
        ("dibs_client_open", ct.c_int,
         (ct.c_char_p, ct.POINTER(ClientOpts), PLACE)),
        ("dibs_client_close", ct.c_int, (ct.c_void_p, ct.c_int64)),
        ("dibs_client_free", None, (ct.c_void_p,)),
        ("dibs_client_fd", ct.c_int, (ct.c_void_p,)),
        ("dibs_client_dispatch", ct.c_int, (ct.c_void_p,)),
        ("dibs_owner_new", ct.c_uint64, (ct.c_void_p,)),
        ("dibs_lock_new", ct.c_int, (ct.c_void_p, ct.c_char_p, PLACE)),
        ("dibs_lock_free", None, (ct.c_void_p,)),
        ("dibs_lock_try", ct.c_int, (ct.c_void_p, OPTS)),
        ("dibs_lock_release", ct.c_int, (ct.c_void_p, OPTS)),
        ("dibs_lock_state", ct.c_int, (ct.c_void_p, ct.c_uint64)),
        ("dibs_lock_acquire_async", ct.c_int,
         (ct.c_void_p, OPTS, ON_DONE, ct.c_void_p)),
        ("dibs_lock_release_async", ct.c_int,
         (ct.c_void_p, OPTS, ON_DONE, ct.c_void_p))):
    getattr(dibs, name).restype = result
    getattr(dibs, name).argtypes = arguments


class Ctypes(kit.Test):
    def setUp(self):
        super().setUp()
        self.client, self.lock = ct.c_void_p(), ct.c_void_p()
        opts = ClientOpts(callbacks=CALLBACKS_DISPATCH, lease_ms=kit.LEASE)
        self.assertEqual(dibs.dibs_client_open(
            kit.URL.encode(), opts, ct.byref(self.client)), OK)
        self.assertEqual(dibs.dibs_lock_new(
            self.client, b"m", ct.byref(self.lock)), OK)

    def tearDown(self):
        dibs.dibs_lock_free(self.lock)
        dibs.dibs_client_free(self.client)
        super().tearDown()

    def test_try_and_release(self):
        other = LockOpts(owner=dibs.dibs_owner_new(self.client))
        self.assertEqual(dibs.dibs_lock_try(self.lock, None), OK)
        self.assertEqual(dibs.dibs_lock_try(self.lock, other), BUSY)
        self.assertEqual(dibs.dibs_lock_state(self.lock, 0), HELD)
        self.assertEqual(dibs.dibs_lock_release(self.lock, None), OK)
        self.assertEqual(kit.redis("EXISTS", "m"), "0")

    def test_dispatch_on_a_loop(self):
        asyncio.run(asyncio.wait_for(self.on_loop(), kit.SOON))

    async def on_loop(self):
        loop = asyncio.get_running_loop()
        fd = dibs.dibs_client_fd(self.client)
        self.assertGreaterEqual(fd, 0)
        loop.add_reader(fd, dibs.dibs_client_dispatch, self.client)
        taken, ended = loop.create_future(), loop.create_future()
        lost = loop.create_future()
        on_taken = ON_DONE(lambda err, _: taken.set_result(err))
        on_ended = ON_DONE(lambda err, _: ended.set_result(err))
        on_lost = ON_LOST(lambda name, owner, _: lost.set_result((name, owner)))
        opts = LockOpts(owner=dibs.dibs_owner_new(self.client),
                        on_lost=on_lost)
        self.assertEqual(dibs.dibs_lock_acquire_async(
            self.lock, opts, on_taken, None), OK)
        self.assertEqual(await taken, OK)
        kit.redis("DEL", "m")
        self.assertEqual(await lost, (b"m", opts.owner))
        self.assertEqual(dibs.dibs_lock_release_async(
            self.lock, opts, on_ended, None), OK)
        self.assertEqual(await ended, LOST)
        loop.remove_reader(fd)


if __name__ == "__main__":
    kit.main()
