"""What the tests of foreign functions share: the server, by redis-cli.

Each test program gets the server's URL as its last argument, a Unix socket, and
finds the library in $DIBS_LIBRARY and dibs.cdef in $DIBS_CDEF.
"""
import os
import subprocess
import sys
import time
import unittest

URL = sys.argv.pop()
SLOW = int(os.environ.get("DIBS_TEST_SLOWNESS", "1"))
LEASE = 3000 * SLOW  # of locks that are renewed during a test, ms
SOON = 20 * SLOW  # a guard against hanging, s


def redis(*words):
    """What redis-cli says, without the end of the line."""
    path = URL[len("unix://"):]
    return subprocess.run(["redis-cli", "-s", path, *words], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.rstrip()


def wait_for(condition):
    until = time.monotonic() + SOON
    while not condition():
        if time.monotonic() > until:
            raise AssertionError("never came true")
        time.sleep(0.002)


class Test(unittest.TestCase):
    def setUp(self):
        redis("FLUSHALL")

    def tearDown(self):
        self.assertEqual(redis("DBSIZE"), "0", "keys are left")


def main():
    unittest.main(verbosity=2)
