// SPDX-License-Identifier: MIT
//
// The Java side of the comparison: Redisson, used as its documents say. A
// thread for each that wants a lock; waiters of the memory test are
// asynchronous.
//
//   java Peer redisson URL
//
// Orders come one a line on standard input; see bench/peers/run.py.
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public final class Peer {
    private static RedissonClient client;
    private static volatile boolean stop;

    private record Order(
            String verb, String kind, int n, int ms, String name, int hold, int pause, String file) {
        static Order read(String text) {
            String[] words = text.trim().split(" +");
            return new Order(words[0], word(words, 1), number(words, 2), number(words, 3),
                    word(words, 4), number(words, 5), number(words, 6), word(words, 7));
        }

        private static String word(String[] words, int i) {
            return i < words.length ? words[i] : "";
        }

        private static int number(String[] words, int i) {
            return i < words.length ? Integer.parseInt(words[i]) : 0;
        }
    }

    private static RLock lock(String kind, String name) {
        return switch (kind) {
            case "fair" -> client.getFairLock(name);
            case "read" -> client.getReadWriteLock(name).readLock();
            default -> client.getLock(name);
        };
    }

    private static void sleepMicros(int us) {
        if (us > 0) {
            LockSupport.parkNanos(us * 1000L);
        }
    }

    private interface Body {
        long run(int who);
    }

    /** Runs the body in n threads for so long; gives the sum. */
    private static long crew(int n, int ms, Body body) throws InterruptedException {
        long[] counts = new long[n];
        List<Thread> threads = new ArrayList<>();
        stop = false;
        for (int i = 0; i < n; i++) {
            int who = i;
            Thread t = new Thread(() -> counts[who] = body.run(who));
            threads.add(t);
            t.start();
        }
        Thread.sleep(ms);
        stop = true;
        long sum = 0;
        for (int i = 0; i < n; i++) {
            threads.get(i).join();
            sum += counts[i];
        }
        return sum;
    }

    /** Each of n with a lock of its own. */
    private static long pairs(Order o) throws InterruptedException {
        return crew(o.n, o.ms, who -> {
            RLock lock = lock(o.kind, o.name + who);
            long count = 0;
            while (!stop) {
                lock.lock();
                lock.unlock();
                count++;
            }
            return count;
        });
    }

    /** All of n want one lock; each hold is noted. */
    private static long contend(Order o) throws InterruptedException, IOException {
        StringBuilder log = new StringBuilder();
        long count = crew(o.n, o.ms, who -> {
            RLock lock = lock(o.kind, o.name);
            long holds = 0;
            while (!stop) {
                long asked = System.nanoTime();
                lock.lock();
                long got = System.nanoTime();
                sleepMicros(o.hold);
                long end = System.nanoTime();
                lock.unlock();
                holds++;
                synchronized (log) {
                    log.append(who).append(' ').append(asked).append(' ').append(got);
                    log.append(' ').append(end).append('\n');
                }
                sleepMicros(o.pause);
            }
            return holds;
        });
        Files.writeString(Path.of(o.file), log);
        return count;
    }

    private static long run(Order o) throws Exception {
        switch (o.verb) {
            case "pairs":
                return pairs(o);
            case "contend":
                return contend(o);
            case "hold":
                for (int i = 0; i < o.n; i++) {
                    lock(o.kind, o.name + i).lock();
                }
                return o.n;
            case "wait":
                for (int i = 0; i < o.n; i++) {
                    lock(o.kind, o.name).lockAsync(1000000L + i);
                }
                return o.n;
            default:
                throw new IllegalArgumentException(o.verb);
        }
    }

    public static void main(String[] args) throws Exception {
        if (args.length != 2 || !args[0].equals("redisson")) {
            System.err.println("usage: Peer redisson URL");
            System.exit(2);
        }
        Config config = new Config();
        config.useSingleServer().setAddress(args[1]);
        client = Redisson.create(config);
        System.out.println("{\"ready\": true}");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String text = in.readLine(); text != null; text = in.readLine()) {
            Order o = Order.read(text);
            if (o.verb.equals("quit")) {
                break;
            }
            long start = System.nanoTime();
            long count = run(o);
            double seconds = (System.nanoTime() - start) / 1e9;
            System.out.println("{\"count\": " + count + ", \"seconds\": " + seconds + "}");
        }
        Runtime.getRuntime().halt(0);
    }
}
