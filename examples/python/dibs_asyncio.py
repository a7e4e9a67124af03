"""dibs_asyncio.py - dibs for asyncio, by cffi; copy it and change it.

    client = Client("redis://db1.example")
    lock = client.lock("nightly")
    async with lock.held() as hold:     # or held(wait_ms=500)
        if not hold.lost:
            ...

All callbacks run on the loop: the client's descriptor is one of its readers. A
hold has an owner of its own, since a task is not a thread. A task that is
canceled while it waits leaves nothing behind. A hold that was lost raises
Lost at its end, and calls on_lost as soon as it is known.
"""
import asyncio
import contextlib
import os

import cffi

ffi = cffi.FFI()
with open(os.environ.get("DIBS_CDEF", "/usr/include/dibs/dibs.cdef"),
          encoding="ascii") as text:
    ffi.cdef(text.read())
dibs = ffi.dlopen(os.environ.get("DIBS_LIBRARY", "libdibs.so.0"))

handles = set()  # what the library has pointers to, so that it stays


class Error(Exception):
    def __init__(self, err, why=""):
        super().__init__(why or ffi.string(dibs.dibs_strerror(err)).decode())
        self.err = err


class Lost(Error):
    pass


def check(err):
    if err != dibs.DIBS_OK:
        why = ffi.string(dibs.dibs_error_text()).decode()
        raise (Lost if err == dibs.DIBS_ERR_LOST else Error)(err, why)


def options(kind, **fields):
    return ffi.new(f"{kind} *", {"size": ffi.sizeof(kind), **fields})


@ffi.callback("dibs_cb")
def on_done(err, arg):
    call = ffi.from_handle(arg)
    handles.discard(call.handle)
    if not call.future.cancelled():
        call.future.set_result(err)
    elif call.late:
        call.late(err)  # the task does not wait any more


@ffi.callback("dibs_lost_cb")
def on_lost(_name, _owner, arg):
    ffi.from_handle(arg).on_lost()


class Call:
    """One async call; its future becomes the error that it ended with."""

    def __init__(self, start, lock, opts, late=None):
        self.future = asyncio.get_running_loop().create_future()
        self.late = late
        self.handle = ffi.new_handle(self)
        handles.add(self.handle)
        err = start(lock, opts, on_done, self.handle)
        if err != dibs.DIBS_OK:  # on_done will not come
            handles.discard(self.handle)
            check(err)


class Hold:
    def __init__(self, lock, owner, told):
        self.lock, self.owner, self.told = lock, owner, told

    def on_lost(self):
        if self.told:
            self.told(self)

    @property
    def lost(self):
        return dibs.dibs_lock_state(self.lock, self.owner) == dibs.DIBS_LOST


class Lock:
    def __init__(self, client, name):
        out = ffi.new("dibs_lock **")
        check(dibs.dibs_lock_new(client, name.encode(), out))
        self.client = client
        self.handle = ffi.gc(out[0], dibs.dibs_lock_free)

    @contextlib.asynccontextmanager
    async def held(self, wait_ms=0, lease_ms=0, told=None):
        owner = dibs.dibs_owner_new(self.client)
        hold = Hold(self.handle, owner, told)
        arg = ffi.new_handle(hold)  # until the release has ended
        opts = options("dibs_lock_opts", wait_ms=wait_ms, lease_ms=lease_ms,
                       owner=owner, on_lost=on_lost, arg=arg)

        def release():  # wait_ms was for the acquire
            call = Call(dibs.dibs_lock_release_async, self.handle,
                        options("dibs_lock_opts", owner=owner))
            call.future.add_done_callback(lambda _: handles.discard(arg))
            return call.future

        def late(err):
            if err == dibs.DIBS_OK:
                release()
            else:
                handles.discard(arg)

        handles.add(arg)
        waiting = Call(dibs.dibs_lock_acquire_async, self.handle, opts, late)
        try:
            err = await waiting.future
        except asyncio.CancelledError:
            if waiting.future.cancelled():
                dibs.dibs_lock_cancel(self.handle, owner)
            else:  # it was answered just before, and this task did not run yet
                late(waiting.future.result())
            raise
        if err != dibs.DIBS_OK:
            handles.discard(arg)
            check(err)
        try:
            yield hold
        finally:
            check(await asyncio.shield(release()))


class Client:
    """Made and used while the loop runs, and closed before it ends."""

    def __init__(self, url, **fields):
        out = ffi.new("dibs_client **")
        check(dibs.dibs_client_open(url.encode(), options(
            "dibs_client_opts", callbacks=dibs.DIBS_CALLBACKS_DISPATCH,
            **fields), out))
        self.handle = out[0]
        self.fd = dibs.dibs_client_fd(self.handle)
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(self.fd, dibs.dibs_client_dispatch, self.handle)

    def lock(self, name):
        return Lock(self.handle, name)

    def close(self):
        self.loop.remove_reader(self.fd)
        dibs.dibs_client_close(self.handle, 0)
        while dibs.dibs_client_dispatch(self.handle) > 0:
            pass
        dibs.dibs_client_free(self.handle)
