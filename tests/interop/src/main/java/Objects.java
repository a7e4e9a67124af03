// SPDX-License-Identifier: MIT
//
// Objects - what the helper does with what is more, or less, than a lock.
//
// Kinds: fenced (its tokens), permits (RPermitExpirableSemaphore), semaphore,
// latch. What an operation gives is text: a number, or ids of permits with a
// comma between them; "none" where Redisson gives null. Async operations are
// waited for: what matters is that Redisson waits in another way then.

import java.util.concurrent.TimeUnit;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

final class Objects {
    private Objects() {}

    // Is it one of ours? A fenced lock is a lock, too.
    static boolean knows(String kind, String operation) {
        return switch (kind) {
        case "permits", "semaphore", "latch" -> true;
        case "fenced" -> operation.contains("oken");
        default -> false;
        };
    }

    // f: the fields of the request.
    static String operate(RedissonClient redisson, String[] f) throws Exception {
        return switch (f[3]) {
        case "fenced" -> fenced(redisson.getFencedLock(f[4]), f);
        case "permits" -> permits(redisson.getPermitExpirableSemaphore(f[4]), f);
        case "semaphore" -> semaphore(redisson.getSemaphore(f[4]), f);
        default -> latch(redisson.getCountDownLatch(f[4]), f);
        };
    }

    private static long number(String[] f, int at) {
        return Long.parseLong(f[at]);
    }

    private static int small(String[] f, int at) {
        return Integer.parseInt(f[at]);
    }

    private static String flag(boolean b) {
        return b ? "1" : "0";
    }

    private static String orNone(Object value) {
        return value == null ? "none" : value.toString();
    }

    private static String fenced(RFencedLock l, String[] f) {
        return switch (f[2]) {
        case "lockToken" -> orNone(l.lockAndGetToken());
        case "tryToken" -> orNone(l.tryLockAndGetToken( // wait, lease
            number(f, 5), number(f, 6), TimeUnit.MILLISECONDS));
        case "token" -> orNone(l.getToken());
        default -> throw new IllegalArgumentException(f[2]);
        };
    }

    // A lease of 0 is none: such a permit never ends.
    private static String permits(RPermitExpirableSemaphore s, String[] f) throws Exception {
        switch (f[2]) {
        case "set":
            return flag(s.trySetPermits(small(f, 5)));
        case "total": // all there are from now on
            s.setPermits(small(f, 5));
            return "1";
        case "add":
            s.addPermits(small(f, 5));
            return "1";
        case "try":
            return orNone(s.tryAcquire());
        case "acquire": // lease
            return number(f, 5) > 0
                ? s.acquire(number(f, 5), TimeUnit.MILLISECONDS) : s.acquire();
        case "acquireAsync":
            return s.acquireAsync().get();
        case "acquireMany": // how many
            return String.join(",", s.acquire(small(f, 5)));
        case "tryFor": // wait, lease
            return orNone(s.tryAcquire(number(f, 5), number(f, 6), TimeUnit.MILLISECONDS));
        case "release": // ids
            for (String id : f[5].split(",")) {
                s.release(id);
            }
            return "1";
        case "tryRelease": // id
            return flag(s.tryRelease(f[5]));
        case "extend": // id, lease
            return flag(s.updateLeaseTime(f[5], number(f, 6), TimeUnit.MILLISECONDS));
        case "available":
            return Integer.toString(s.availablePermits());
        case "acquired":
            return Integer.toString(s.acquiredPermits());
        case "permits":
            return Integer.toString(s.getPermits());
        default:
            throw new IllegalArgumentException(f[2]);
        }
    }

    private static String semaphore(RSemaphore s, String[] f) throws Exception {
        switch (f[2]) {
        case "set":
            return flag(s.trySetPermits(small(f, 5)));
        case "try":
            return flag(s.tryAcquire(small(f, 5)));
        case "tryFor": // how many, wait
            return flag(s.tryAcquire(small(f, 5), number(f, 6), TimeUnit.MILLISECONDS));
        case "acquire":
            s.acquire(small(f, 5));
            return "1";
        case "acquireAsync":
            s.acquireAsync(small(f, 5)).get();
            return "1";
        case "release":
            s.release(small(f, 5));
            return "1";
        case "releaseIfExists": // not in 3.27
            return flag((Boolean) RSemaphore.class.getMethod("releaseIfExists", int.class)
                .invoke(s, small(f, 5)));
        case "add":
            s.addPermits(small(f, 5));
            return "1";
        case "drain":
            return Integer.toString(s.drainPermits());
        case "available":
            return Integer.toString(s.availablePermits());
        case "delete":
            return flag(s.delete());
        default:
            throw new IllegalArgumentException(f[2]);
        }
    }

    private static String latch(RCountDownLatch l, String[] f) throws Exception {
        switch (f[2]) {
        case "set":
            return flag(l.trySetCount(number(f, 5)));
        case "down":
            l.countDown();
            return "1";
        case "count":
            return Long.toString(l.getCount());
        case "wait":
            l.await();
            return "1";
        case "waitFor":
            return flag(l.await(number(f, 5), TimeUnit.MILLISECONDS));
        case "waitAsync":
            l.awaitAsync().get();
            return "1";
        case "delete":
            return flag(l.delete());
        default:
            throw new IllegalArgumentException(f[2]);
        }
    }
}
