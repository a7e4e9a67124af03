/* SPDX-License-Identifier: MIT
 * A mutex is a std::timed_mutex: the guards of the standard work, a zero
 * timeout tries, any clock will do, several locks at once do not deadlock. */
#include "kit.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>

/* Runs fn on a thread of its own and waits for it. */
template <class F> static auto elsewhere(F fn)
{
    decltype(fn()) got{};
    std::thread t([&] { got = fn(); });
    t.join();
    return got;
}

TEST(unique_lock)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    {
        std::unique_lock<dibs::mutex> guard(m);
        CHECK(kit::exists("m"));
        CHECK_EQ(m.state(), DIBS_HELD);
        CHECK(m.valid_for() > 0ms);
        CHECK(!elsewhere([&] { return m.try_lock(); }));
        m.lock(); /* re-entrant */
        CHECK_EQ(m.holds(), 2);
        m.unlock();
        CHECK(kit::exists("m"));
        guard.unlock();
        CHECK(!kit::exists("m"));
        CHECK(guard.try_lock());
    }
    CHECK(!kit::exists("m"));
    std::unique_lock<dibs::mutex> tried(m, std::try_to_lock);
    CHECK(tried.owns_lock());
}

TEST(publishes_and_counts)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    {
        std::unique_lock<dibs::mutex> guard(m);
        CHECK(m.published().empty());
        m.publish("db1:8080");
        CHECK(m.published() == "db1:8080");
    }
    CHECK(m.published().empty());
    const dibs_stats s = c.stats();
    CHECK_EQ(s.acquires, 1U);
    CHECK_EQ(s.releases, 1U);
    CHECK_EQ(s.hold.count, 1U);
}

TEST(zero_tries_and_never_waits)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    std::unique_lock<dibs::mutex> guard(m);

    const bool got = elsewhere([&] {
        using clock = std::chrono::steady_clock;
        std::error_code ec = DIBS_ERR_LOST;
        return m.try_lock_for(0s) || m.try_lock_for(0ns) ||
               m.try_lock_for(-1h) ||
               m.try_lock_for(std::chrono::duration<double>(0)) ||
               m.try_lock_until(clock::now()) ||
               m.try_lock_until(clock::time_point::min()) ||
               m.try_lock_for(0s, ec) || ec || m.try_lock(ec) || ec;
    });
    CHECK(!got);
    CHECK_EQ(m.listeners(), 0U);
}

TEST(waits_for_a_while)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    std::unique_lock<dibs::mutex> guard(m);

    CHECK(!elsewhere([&] {
        using namespace std::chrono;
        std::error_code ec = DIBS_ERR_LOST;
        return m.try_lock_for(1ns) || m.try_lock_for(20ms, ec) || ec ||
               m.try_lock_until(system_clock::now() + 20ms) ||
               m.try_lock_until(steady_clock::now() + 20ms, ec) || ec;
    }));

    dibs::client d(kit::url());
    dibs::mutex same(d, "m");
    std::atomic<bool> got{false};
    std::thread waiter([&] {
        got = same.try_lock_for(std::chrono::hours::max()) &&
              same.try_lock_until(std::chrono::system_clock::time_point::max());
        if (got) {
            same.unlock();
            same.unlock();
        }
    });
    WAIT_FOR(m.listeners() > 0);
    guard.unlock();
    waiter.join();
    CHECK(got);
}

/* A clock that is set back while somebody waits: says 0, 10, 20, ... ms. */
struct slow_clock {
    using duration = std::chrono::milliseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<slow_clock>;
    static constexpr bool is_steady = false;
    static int asked;
    static time_point now() { return time_point(10ms * asked++); }
};
int slow_clock::asked;

TEST(any_clock)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    std::unique_lock<dibs::mutex> guard(m);

    /* By now() the wait is over at the sixth look; each wait takes two. */
    CHECK(!elsewhere(
        [&] { return m.try_lock_until(slow_clock::time_point(50ms)); }));
    CHECK_EQ(slow_clock::asked, 6);
}

TEST(errors_are_not_a_no)
{
    dibs::client_options o;
    o.command_timeout = 10s;
    o.connect_timeout = 10s;
    dibs::client c(kit::url(), o);
    dibs::mutex m(c, "m");

    ts_ok(kit::srv, "SET m text");
    THROWS(DIBS_ERR_WRONGTYPE, m.lock());
    THROWS(DIBS_ERR_WRONGTYPE, m.try_lock());
    THROWS(DIBS_ERR_WRONGTYPE, m.try_lock_for(1s));
    std::error_code ec;
    CHECK(!m.try_lock(ec));
    CHECK(ec == DIBS_ERR_WRONGTYPE);
    m.lock(ec);
    CHECK(ec == DIBS_ERR_WRONGTYPE);
    CHECK_EQ(m.state(), DIBS_NOT_HELD);
    ts_ok(kit::srv, "DEL m");
    m.unlock(ec);
    CHECK(ec == DIBS_ERR_NOT_OWNER);
}

TEST(scoped_lock_over_several)
{
    dibs::client c(kit::url());
    dibs::mutex a(c, "a"), b(c, "b");
    int count = 0;
    auto work = [&](dibs::mutex &x, dibs::mutex &y) {
        for (int i = 0; i < 20; i++) {
            std::scoped_lock both(x, y);
            count++;
        }
    };

    std::thread one(work, std::ref(a), std::ref(b));
    std::thread two(work, std::ref(b), std::ref(a));
    one.join();
    two.join();
    CHECK_EQ(count, 40);
}

TEST(condition_variable)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    std::condition_variable_any cv;
    bool ready = false;
    std::thread t([&] {
        std::lock_guard<dibs::mutex> guard(m);
        ready = true;
        cv.notify_one();
    });
    std::unique_lock<dibs::mutex> guard(m);
    cv.wait(guard, [&] { return ready; });
    guard.unlock();
    t.join();
    CHECK(ready);
}

TEST(an_owner_that_is_no_thread)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    dibs::mutex own = m.with_owner(c.new_owner());

    elsewhere([&] {
        own.lock();
        return 0;
    });
    CHECK(!m.try_lock());
    CHECK_EQ(m.state(), DIBS_NOT_HELD);
    CHECK_EQ(own.state(), DIBS_HELD);
    CHECK_EQ(own.owner_text(), m.info().owner);
    own.unlock(); /* on another thread */
    CHECK(m.try_lock());
    m.unlock();
}

TEST(many_threads)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    int count = 0; /* TSan watches it */
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&] {
            for (int n = 0; n < 25; n++) {
                std::lock_guard<dibs::mutex> guard(m);
                count++;
            }
        });
    for (auto &t : threads)
        t.join();
    CHECK_EQ(count, 200);
}

TEST(outlives_its_client)
{
    auto c = std::make_unique<dibs::client>(kit::url());
    dibs::mutex m(*c, "m"), n(*c, "n");
    m.lock();
    c.reset(); /* releases it */
    CHECK(!kit::exists("m"));
    m.unlock();
    std::error_code ec;
    n.lock(ec);
    CHECK(ec == DIBS_ERR_CLOSED);
    CHECK_EQ(n.state(), DIBS_NOT_HELD);
}

TEST_ENDING(unlock_of_what_is_not_locked)
{
    dibs::client c(kit::url());
    dibs::mutex(c, "m").unlock();
}

TEST(unlock_without_lock_ends_the_program)
{
    CHECK(kit::ends_by_terminate("unlock_of_what_is_not_locked",
                                 DIBS_ERR_NOT_OWNER));
}
