/* SPDX-License-Identifier: MIT
 *
 * cpploop.cpp - locks in a program that has an event loop of its own, here
 * poll(2), and one thread:  cpploop [URL]
 *
 * With the option dispatch no callback comes from another thread. The client
 * has a descriptor to watch; dispatch() runs what waits. Each task of the loop
 * gets an owner of its own with its hold, so tasks exclude each other.
 */
#include <dibs/dibs.hpp>

#include <iostream>
#include <poll.h>

using namespace std::chrono_literals;

/* One task: takes the lock, works, gives it back; all without waiting. */
class task
{
public:
    task(dibs::mutex &m, int number) : number_(number)
    {
        dibs::lock_options o;
        o.wait = 5s;
        m.acquire_async(o, [this](std::error_code ec, dibs::hold h) {
            if (ec)
                end(ec);
            else
                work(std::move(h));
        });
    }

    bool over = false;
    std::error_code error;

private:
    void work(dibs::hold h)
    {
        std::cout << "task " << number_ << " has the lock for the next "
                  << h.valid_for().count() << " ms at least\n";
        h.release_async([this](std::error_code ec) { end(ec); });
    }

    void end(std::error_code ec)
    {
        error = ec; /* DIBS_ERR_LOST: somebody else may have had it */
        over = true;
    }

    int number_;
};

int main(int argc, char **argv)
try {
    dibs::client_options o;
    o.dispatch = true;
    dibs::client c(argc > 1 ? argv[1] : "redis://127.0.0.1:6379", o);
    dibs::mutex m(c, "dibs:example:cpploop");
    std::vector<std::unique_ptr<task>> tasks; /* where they are, they stay */
    for (int i = 1; i <= 3; i++)
        tasks.push_back(std::make_unique<task>(m, i));

    pollfd fd = {c.fd(), POLLIN, 0};
    for (const auto &t : tasks)
        while (!t->over && poll(&fd, 1, 10000) > 0)
            c.dispatch();
    for (const auto &t : tasks)
        if (!t->over || t->error)
            return 1;
    std::cout << "all tasks are over\n";
} catch (const dibs::error &e) {
    std::cerr << "cpploop: " << e.what() << "\n";
    return 1;
}
