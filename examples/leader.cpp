/* SPDX-License-Identifier: MIT
 *
 * leader.cpp - one of several candidates leads, until it steps down or is not
 * the leader any more:  leader [URL]
 *
 * A candidate waits for a lock and leads while it holds it. on_lost tells it at
 * once that it must stop; the loop also looks at the hold before each step,
 * since a process that was stopped hears of nothing in time. How long a leader
 * that vanished still counts is the lease of the client.
 */
#include <dibs/dibs.hpp>

#include <condition_variable>
#include <iostream>
#include <mutex>
#include <thread>

using namespace std::chrono_literals;

/* What on_lost and the leader share. */
struct term {
    std::mutex mu;
    std::condition_variable changed;
    bool over = false;

    void end()
    {
        const std::lock_guard<std::mutex> guard(mu);
        over = true;
        changed.notify_all();
    }
    bool lasts(std::chrono::milliseconds pause)
    {
        std::unique_lock<std::mutex> guard(mu);
        return !changed.wait_for(guard, pause, [this] { return over; });
    }
};

static int lead(dibs::mutex &office)
{
    term t;
    int steps = 0;
    dibs::lock_options o;
    o.on_lost = [&t](const dibs::loss &) { t.end(); };
    /* The hold ends first, so on_lost never meets a term that is gone. */
    dibs::hold h(office, o);

    while (steps < 3 && !h.lost()) {
        steps++; /* the work of a leader */
        if (!t.lasts(20ms))
            break;
    }
    return steps;
}

int main(int argc, char **argv)
try {
    dibs::client_options o;
    o.lease = 5s;
    dibs::client c(argc > 1 ? argv[1] : "redis://127.0.0.1:6379", o);
    dibs::mutex office(c, "dibs:example:leader");
    std::mutex out;
    std::vector<std::thread> candidates;
    for (int i = 1; i <= 3; i++)
        candidates.emplace_back([&, i] {
            const int steps = lead(office);
            const std::lock_guard<std::mutex> guard(out);
            std::cout << "candidate " << i << " led for " << steps
                      << " steps\n";
        });
    for (std::thread &t : candidates)
        t.join();
} catch (const dibs::error &e) {
    std::cerr << "leader: " << e.what() << "\n";
    return 1;
}
