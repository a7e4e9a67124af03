"""The shared library from Python, by cffi and dibs.cdef."""
import os
import threading

import cffi

import kit

ffi = cffi.FFI()
with open(os.environ["DIBS_CDEF"], encoding="ascii") as text:
    ffi.cdef(text.read())
dibs = ffi.dlopen(os.environ["DIBS_LIBRARY"])


def options(kind, **fields):
    return ffi.new(f"{kind} *", {"size": ffi.sizeof(kind), **fields})


class Cffi(kit.Test):
    def setUp(self):
        super().setUp()
        out = ffi.new("dibs_client **")
        opts = options("dibs_client_opts", lease_ms=kit.LEASE)
        self.fine(dibs.dibs_client_open(kit.URL.encode(), opts, out))
        self.client = out[0]
        out = ffi.new("dibs_lock **")
        self.fine(dibs.dibs_lock_new(self.client, b"m", out))
        self.lock = out[0]

    def tearDown(self):
        dibs.dibs_lock_free(self.lock)
        dibs.dibs_client_free(self.client)
        super().tearDown()

    def fine(self, err):
        self.assertEqual(err, dibs.DIBS_OK,
                         ffi.string(dibs.dibs_strerror(err)).decode())

    def test_version(self):
        self.assertEqual(
            ffi.string(dibs.dibs_version()).decode(),
            f"{dibs.DIBS_VERSION_MAJOR}.{dibs.DIBS_VERSION_MINOR}."
            f"{dibs.DIBS_VERSION_PATCH}")

    def test_every_function_is_there(self):
        found = [n for n in dir(dibs) if n.startswith("dibs_")]
        self.assertGreater(len(found), 40)
        for name in found:
            self.assertTrue(getattr(dibs, name), name)

    def test_acquire_and_release(self):
        self.fine(dibs.dibs_lock_acquire(self.lock, ffi.NULL))
        self.assertEqual(redis_exists("m"), True)
        self.assertEqual(dibs.dibs_lock_state(self.lock, 0), dibs.DIBS_HELD)
        self.assertGreater(dibs.dibs_lock_valid_ms(self.lock, 0), 0)
        got = []
        other = threading.Thread(target=lambda: got.append(
            dibs.dibs_lock_try(self.lock, ffi.NULL)))
        other.start()
        other.join()
        self.assertEqual(got, [dibs.DIBS_ERR_BUSY])
        info = options("dibs_lock_info")
        self.fine(dibs.dibs_lock_info_get(self.lock, info))
        self.assertTrue(info.locked)
        self.assertEqual(info.holds, 1)
        self.assertTrue(ffi.string(info.owner).startswith(
            ffi.string(dibs.dibs_client_id(self.client))))
        self.fine(dibs.dibs_lock_release(self.lock, ffi.NULL))
        self.assertEqual(dibs.dibs_lock_release(self.lock, ffi.NULL),
                         dibs.DIBS_ERR_NOT_OWNER)

    def test_on_lost(self):
        lost = []

        @ffi.callback("dibs_lost_cb")
        def on_lost(name, owner, arg):
            lost.append((ffi.string(name), owner, ffi.from_handle(arg),
                         threading.get_ident()))

        mark = object()
        arg = ffi.new_handle(mark)
        owner = dibs.dibs_owner_new(self.client)
        opts = options("dibs_lock_opts", owner=owner, on_lost=on_lost, arg=arg)
        self.fine(dibs.dibs_lock_acquire(self.lock, opts))
        kit.redis("DEL", "m")
        kit.wait_for(lambda: lost)
        # A release that waits for on_lost does not keep it from running.
        self.assertEqual(dibs.dibs_lock_release(self.lock, opts),
                         dibs.DIBS_ERR_LOST)
        self.assertEqual(len(lost), 1)
        self.assertEqual(lost[0][:3], (b"m", owner, mark))
        self.assertNotEqual(lost[0][3], threading.get_ident())

    def test_error_text(self):
        opts = options("dibs_lock_opts", wait_ms=-1)
        self.assertEqual(dibs.dibs_lock_acquire(self.lock, opts),
                         dibs.DIBS_ERR_INVALID)
        self.assertIn(b"wait_ms", ffi.string(dibs.dibs_error_text()))
        # A struct without its size is refused, not read beyond its end.
        self.assertEqual(
            dibs.dibs_lock_acquire(self.lock, ffi.new("dibs_lock_opts *")),
            dibs.DIBS_ERR_INVALID)


def redis_exists(name):
    return kit.redis("EXISTS", name) == "1"


if __name__ == "__main__":
    kit.main()
