// SPDX-License-Identifier: MIT
//
// Helper - a Redisson client that does what it is told, line by line.
//
// A request is one line of fields with a tab between them:
//
//     id  worker  operation  kind  name  [number ...]
//
// and is answered by one line, in whatever order they end:
//
//     id  ok|error  value  begin  end
//
// The worker is a thread of that name, made when first named: to Redisson a
// thread is an owner. Requests to one worker are done one after the other, so a
// lock() that waits holds up its own worker and nobody else. begin and end are
// System.nanoTime() around the call, which on Linux is CLOCK_MONOTONIC: the
// driver compares them with its own clock.
//
// Kinds: plain, fair, read, write, multi, fenced, spin, single (one that cannot
// be re-entered); the name of a multi lock is the names of its members with "|"
// between them. Operations are in operate(). Objects.java has more kinds.
//
// Arguments: port=N watchdog=MS fairwait=MS. The first line written is
// "ready <version> <fair|nofair>", the second word of it saying whether this
// Redisson has a fairLockWaitTimeout. "quit", or the end of the input, ends it.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisTimeoutException;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public final class Helper {
    private static final PrintStream OUT =
        new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final Map<String, ExecutorService> WORKERS = new HashMap<>();
    private static RedissonClient redisson;
    private static int port;
    private static boolean hasFairWait;

    private Helper() {}

    // ---- the client --------------------------------------------------------

    private static Config config(int database) {
        Config config = new Config();
        config.setThreads(4).setNettyThreads(4);
        config.useSingleServer()
            .setAddress("redis://127.0.0.1:" + port)
            .setDatabase(database)
            .setConnectionMinimumIdleSize(1)
            .setConnectionPoolSize(32)
            .setSubscriptionConnectionMinimumIdleSize(1);
        return config;
    }

    // The setter came with 3.46, so it is looked for at run time.
    private static boolean setFairWait(Config config, long ms) throws Exception {
        try {
            var set = Config.class.getMethod("setFairLockWaitTimeout", long.class);
            if (ms > 0) {
                set.invoke(config, ms);
            }
            return true;
        } catch (NoSuchMethodException e) {
            return false;
        }
    }

    private static void connect(String[] args) throws Exception {
        long watchdog = 0;
        long fairWait = 0;
        for (String arg : args) {
            String[] pair = arg.split("=", 2);
            switch (pair[0]) {
            case "port" -> port = Integer.parseInt(pair[1]);
            case "watchdog" -> watchdog = Long.parseLong(pair[1]);
            case "fairwait" -> fairWait = Long.parseLong(pair[1]);
            default -> throw new IllegalArgumentException(arg);
            }
        }
        Config config = config(0);
        if (watchdog > 0) {
            config.setLockWatchdogTimeout(watchdog);
        }
        hasFairWait = setFairWait(config, fairWait);
        redisson = Redisson.create(config);
    }

    private static RLock lock(String kind, String name) {
        return switch (kind) {
        case "plain" -> redisson.getLock(name);
        case "fair" -> redisson.getFairLock(name);
        case "read" -> redisson.getReadWriteLock(name).readLock();
        case "write" -> redisson.getReadWriteLock(name).writeLock();
        case "fenced" -> redisson.getFencedLock(name);
        case "spin" -> redisson.getSpinLock(name);
        case "single" -> single(name);
        case "multi" -> {
            String[] names = name.split("\\|");
            RLock[] members = new RLock[names.length];
            for (int i = 0; i < names.length; i++) {
                members[i] = redisson.getLock(names[i]);
            }
            yield redisson.getMultiLock(members);
        }
        default -> throw new IllegalArgumentException(kind);
        };
    }

    // It came with 4.4, so it is looked for at run time.
    private static RLock single(String name) {
        try {
            return (RLock) RedissonClient.class.getMethod("getNonReentrantLock", String.class)
                .invoke(redisson, name);
        } catch (ReflectiveOperationException e) {
            throw new UnsupportedOperationException(e);
        }
    }

    // ---- operations --------------------------------------------------------

    private static String flag(boolean b) {
        return b ? "1" : "0";
    }

    // What a request gives, as text. f: its fields.
    private static String operate(String[] f) throws Exception {
        if (Objects.knows(f[3], f[2])) {
            return Objects.operate(redisson, f);
        }
        RLock l = lock(f[3], f[4]);
        switch (f[2]) {
        case "lock": // lease, -1 = renewed
            l.lock(Long.parseLong(f[5]), TimeUnit.MILLISECONDS);
            return "1";
        case "try": // one attempt, renewed
            return flag(l.tryLock());
        case "tryLock": // wait, lease
            return flag(l.tryLock(Long.parseLong(f[5]), Long.parseLong(f[6]),
                TimeUnit.MILLISECONDS));
        case "unlock":
            l.unlock();
            return "1";
        case "forceUnlock":
            return flag(l.forceUnlock());
        case "isLocked":
            return flag(l.isLocked());
        case "isHeld":
            return flag(l.isHeldByCurrentThread());
        case "holdCount":
            return Integer.toString(l.getHoldCount());
        case "ttl":
            return Long.toString(l.remainTimeToLive());
        case "owner":
            return redisson.getId() + ":" + Thread.currentThread().getId();
        case "parked": // is the worker of this name asleep, waiting for a lock?
            return flag(parked(f[4]));
        case "soak": // seconds, seed, threads
            return new Soak(f[4], Integer.parseInt(f[5]), Long.parseLong(f[6]))
                .run(Integer.parseInt(f[7]));
        default:
            throw new IllegalArgumentException(f[2]);
        }
    }

    // A worker between two attempts sleeps on a semaphore of Redisson's.
    private static boolean parked(String name) {
        for (var e : Thread.getAllStackTraces().entrySet()) {
            if (e.getKey().getName().equals(name)) {
                for (StackTraceElement at : e.getValue()) {
                    if (at.getClassName().equals("java.util.concurrent.Semaphore")) {
                        return true;
                    }
                }
            }
        }
        return false;
    }

    private static void perform(String[] f) {
        String outcome = "ok";
        String value;
        long begin = System.nanoTime();
        try {
            value = operate(f);
        } catch (Throwable e) {
            outcome = "error";
            value = e.toString().replaceAll("[\\t\\n\\r]", " ");
        }
        answer(f[0], outcome, value, begin, System.nanoTime());
    }

    private static synchronized void answer(String id, String outcome, String value,
                                            long begin, long end) {
        OUT.print(id + "\t" + outcome + "\t" + value + "\t" + begin + "\t" + end + "\n");
        OUT.flush();
    }

    private static ExecutorService worker(String name) {
        return WORKERS.computeIfAbsent(name, n -> Executors.newSingleThreadExecutor(r -> {
            Thread t = new Thread(r, n);
            t.setDaemon(true);
            return t;
        }));
    }

    // ---- the soak ----------------------------------------------------------

    // Threads that take locks of all kinds at random, and tell a witness in
    // another database of the server. Its cell of a lock is a number: everybody
    // who is in adds to it, a reader 1, whoever must be alone ALONE. What it
    // says on the way in and out shows who else is there. The driver has the
    // same in C.
    private static final class Soak {
        static final long ALONE = 1000000;
        static final int PERMITS = 3;
        static final String[] KINDS = {"plain", "fair", "rw", "fenced", "slots", "semaphore",
            "latch"};

        final String prefix;
        final int perKind;
        final long until;
        final long seed;
        final RedissonClient witness = Redisson.create(config(1));
        long entries;
        long alone;
        long violations;
        long longest;
        String longestKind = "none";
        String first = "none";

        Soak(String prefix, int seconds, long seed) {
            this.prefix = prefix;
            this.perKind = 2;
            this.seed = seed;
            this.until = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        }

        String run(int threads) throws Exception {
            Thread[] all = new Thread[threads];
            for (int i = 0; i < threads; i++) {
                long mine = seed + i;
                all[i] = new Thread(() -> work(new Random(mine)));
                all[i].start();
            }
            for (Thread t : all) {
                t.join();
            }
            witness.shutdown();
            return "entries=" + entries + " alone=" + alone + " violations=" + violations
                + " longest_ms=" + longest + " longest_kind=" + longestKind
                + " first=" + first.replace(' ', '_');
        }

        synchronized void blame(String what) {
            violations++;
            if (violations == 1) {
                first = what.replaceAll("[\\t\\n\\r]", " ");
            }
        }

        void work(Random random) {
            while (System.nanoTime() < until) {
                try {
                    once(random);
                } catch (Throwable e) {
                    if (!cannotSubscribe(e)) {
                        blame(e.toString());
                    }
                }
            }
        }

        synchronized void waited(String kind, long begin) {
            long ms = (System.nanoTime() - begin) / 1000000;
            entries++;
            if (ms > longest) {
                longest = ms;
                longestKind = kind;
            }
        }

        // Before 4 a wait may end with an exception, because no time is left to
        // subscribe, or many do. Only one who has not got it subscribes.
        static boolean cannotSubscribe(Throwable e) {
            return e instanceof RedisTimeoutException
                && e.getMessage().contains("subscription lock");
        }

        boolean tryFor(RLock l, long ms) throws Exception {
            try {
                return l.tryLock(ms, -1, TimeUnit.MILLISECONDS);
            } catch (RedisTimeoutException e) {
                if (!cannotSubscribe(e)) {
                    throw e;
                }
                return false;
            }
        }

        // Takes a lock in one of the ways there are; false: not in time.
        boolean take(RLock l, String kind, Random random) throws Exception {
            long begin = System.nanoTime();
            boolean got = true;
            switch (random.nextInt(4)) {
            case 0 -> got = tryFor(l, random.nextInt(50));
            case 1 -> l.lock(15000, TimeUnit.MILLISECONDS);
            case 2 -> got = l.tryLock();
            default -> l.lock();
            }
            if (got) {
                waited(kind, begin);
            }
            return got;
        }

        void once(Random random) throws Exception {
            String kind = KINDS[random.nextInt(KINDS.length)];
            int which = random.nextInt(perKind);
            String name = prefix + kind + which;
            switch (kind) {
            case "fenced" -> fenced(name, prefix + "latch" + which, random);
            case "slots" -> slots(name, random);
            case "semaphore" -> semaphore(name, random);
            case "latch" -> await(name);
            case "rw" -> {
                if (random.nextInt(3) == 0) {
                    write(name, random);
                } else {
                    read(name, random);
                }
            }
            default -> {
                RLock l = lock(kind, name);
                if (take(l, kind, random)) {
                    again(l, name, random);
                    l.unlock();
                }
            }
            }
        }

        // The token grows; and nobody else counts the latch of this lock.
        void fenced(String name, String latch, Random random) throws Exception {
            var l = redisson.getFencedLock(name);
            var g = redisson.getCountDownLatch(latch);
            long begin = System.nanoTime();
            long token = l.lockAndGetToken();
            waited("fenced", begin);
            long last = number("return redis.call('get', KEYS[1]) or '0'", name + ":token", 0);
            if (token <= last) {
                blame("Java: " + name + " has token " + token + " after " + last);
            }
            number("redis.call('set', KEYS[1], ARGV[1]) return '0'", name + ":token", token);
            if (!g.trySetCount(2)) {
                blame("Java: " + latch + " is set already");
            }
            g.countDown();
            expect(g.getCount(), 1, 1, latch + " was counted down once");
            g.countDown();
            expect(g.getCount(), 0, 0, latch + " was counted down twice");
            alone(name, random);
            l.unlock();
        }

        void slots(String name, Random random) throws Exception {
            var s = redisson.getPermitExpirableSemaphore(name);
            long begin = System.nanoTime();
            String id = switch (random.nextInt(3)) {
            case 0 -> s.tryAcquire();
            case 1 -> s.acquire(60000, TimeUnit.MILLISECONDS);
            default -> s.acquire();
            };
            if (id != null) {
                waited("slots", begin);
                expect(add(name, 1), 1, PERMITS, name + " is taken");
                pause(random);
                expect(add(name, -1), 0, PERMITS - 1, name + " was taken");
                s.release(id);
            }
        }

        void semaphore(String name, Random random) throws Exception {
            var s = redisson.getSemaphore(name);
            int n = 1 + random.nextInt(2);
            long begin = System.nanoTime();
            if (random.nextInt(3) != 0) {
                s.acquire(n);
            } else if (!s.tryAcquire(n)) {
                return;
            }
            waited("semaphore", begin);
            expect(add(name, n), n, PERMITS, name + " is taken");
            pause(random);
            expect(add(name, -n), 0, PERMITS - n, name + " was taken");
            s.release(n);
        }

        void await(String name) throws Exception {
            long begin = System.nanoTime();
            if (!redisson.getCountDownLatch(name).await(60, TimeUnit.SECONDS)) {
                blame("Java: " + name + " stays closed");
            }
            waited("latch", begin);
        }

        // Alone in the lock, sometimes with a second hold inside the first.
        void again(RLock l, String name, Random random) throws Exception {
            if (random.nextInt(4) == 0) {
                l.lock();
                alone(name, random);
                l.unlock();
            }
            alone(name, random);
        }

        void write(String name, Random random) throws Exception {
            RLock w = lock("write", name);
            if (!take(w, "write", random)) {
                return;
            }
            again(w, name, random);
            if (random.nextInt(4) != 0) {
                w.unlock();
                return;
            }
            RLock r = lock("read", name);
            r.lock();
            expect(add(name, 1), 1, 1, name + " reads while it writes");
            w.unlock();
            reading(name, random);
            r.unlock();
        }

        void read(String name, Random random) throws Exception {
            RLock r = lock("read", name);
            if (take(r, "read", random)) {
                expect(add(name, 1), 1, ALONE - 1, name + " reads");
                reading(name, random);
                r.unlock();
            }
        }

        void reading(String name, Random random) throws Exception {
            pause(random);
            expect(add(name, -1), 0, ALONE - 1, name + " has read");
        }

        void alone(String name, Random random) throws Exception {
            expect(add(name, ALONE), ALONE, ALONE, name + " enters alone");
            synchronized (this) {
                alone++;
            }
            long n = number("return redis.call('get', KEYS[1]) or '0'", name + ":count", 0);
            pause(random);
            number("redis.call('set', KEYS[1], ARGV[1]) return '0'", name + ":count", n + 1);
            expect(add(name, -ALONE), 0, 0, name + " leaves");
        }

        void pause(Random random) throws Exception {
            if (random.nextInt(2) == 0) {
                Thread.sleep(random.nextInt(5));
            }
        }

        void expect(long got, long least, long most, String what) {
            if (got < least || got > most) {
                blame("Java: " + what + " and finds " + got);
            }
        }

        long add(String name, long n) {
            return number("return tostring(redis.call('incrby', KEYS[1], ARGV[1]))", name, n);
        }

        // A script gets the numbers across without any encoding of Redisson's.
        long number(String script, String key, long arg) {
            String got = witness.getScript(StringCodec.INSTANCE).eval(
                RScript.Mode.READ_WRITE, script, RScript.ReturnType.VALUE,
                java.util.List.<Object>of(key), Long.toString(arg));
            return Long.parseLong(got);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        connect(args);
        OUT.print("ready\t" + Redisson.class.getPackage().getImplementationVersion() + "\t"
            + (hasFairWait ? "fair" : "nofair") + "\n");
        OUT.flush();
        for (String line = in.readLine(); line != null && !line.equals("quit");
             line = in.readLine()) {
            String[] f = line.split("\t", -1);
            worker(f[1]).execute(() -> perform(f));
        }
        redisson.shutdown();
        System.exit(0);
    }
}
