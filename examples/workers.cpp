/* SPDX-License-Identifier: MIT
 * workers.cpp - a pool of workers, in this and in any other process; each job
 * is done by one of them at a time:  workers [URL] */
#include <dibs/dibs.hpp>
#include <iostream>
#include <thread>

static std::atomic<int> done{0};

static void work(dibs::client &c)
{
    for (int job = 0; job < 20; job++) {
        dibs::mutex m(c, "dibs:example:job:" + std::to_string(job));
        dibs::hold h(m, std::try_to_lock);
        if (!h)
            continue; /* somebody else does it */
        /* Ours, and renewed for us. Ask before what cannot be undone. */
        if (!h.lost())
            done++;
    }
}

int main(int argc, char **argv)
try {
    dibs::client_options o;
    o.on_lost = [](const dibs::loss &what) {
        std::cerr << "lost " << what.name << " while working on it\n";
    };
    dibs::client c(argc > 1 ? argv[1] : "redis://127.0.0.1:6379", o);
    std::vector<std::thread> pool;
    for (int i = 0; i < 4; i++)
        pool.emplace_back(work, std::ref(c));
    for (std::thread &t : pool)
        t.join();
    std::cout << "workers: " << done << " turns at 20 jobs\n";
} catch (const dibs::error &e) {
    std::cerr << "workers: " << e.what() << "\n";
    return 1;
}
