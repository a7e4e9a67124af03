/* SPDX-License-Identifier: MIT
 * Loss inside a guard is never silent: told once for each hold, by the library
 * or by the release that finds out; with nobody to tell, the program ends. What
 * is called is there as long as it can be called. */
#include "kit.hpp"

extern "C" {
#include "base/mem.h"
}

#include <condition_variable>
#include <mutex>
#include <thread>

namespace
{

/* What on_lost heard. */
struct ear {
    std::mutex mu;
    int times = 0;
    std::string name;
    dibs_owner owner = 0;
    std::error_code code;
    std::thread::id where;

    void hear(const dibs::loss &what)
    {
        const std::lock_guard<std::mutex> guard(mu);
        times++;
        name = std::string(what.name);
        owner = what.owner;
        code = what.code;
        where = std::this_thread::get_id();
    }
    int heard()
    {
        const std::lock_guard<std::mutex> guard(mu);
        return times;
    }
    dibs::lost_fn fn()
    {
        return [this](const dibs::loss &what) { hear(what); };
    }
};

/* Renewed soon, so that a loss is noticed soon. */
dibs::client_options renewing()
{
    dibs::client_options o;
    o.lease = kit::lease();
    return o;
}

dibs::lock_options telling(ear &e)
{
    dibs::lock_options o;
    o.on_lost = e.fn();
    return o;
}

} // namespace

TEST(unlock_finds_out)
{
    ear e;
    dibs::client c(kit::url());
    dibs::mutex m(c, "m", telling(e));
    {
        std::lock_guard<dibs::mutex> guard(m);
        ts_ok(kit::srv, "FLUSHALL");
    }
    CHECK_EQ(e.heard(), 1);
    CHECK_EQ(e.name, "m");
    CHECK_EQ(e.owner, c.this_owner());
    CHECK(e.code == DIBS_ERR_LOST);
    CHECK(e.where == std::this_thread::get_id());

    m.lock();
    ts_ok(kit::srv, "FLUSHALL");
    std::error_code ec;
    m.unlock(ec); /* told by its result */
    CHECK(ec == DIBS_ERR_LOST);
    CHECK_EQ(e.heard(), 1);
    m.lock(); /* begins anew */
    m.unlock();
    CHECK_EQ(e.heard(), 1);
}

#ifdef DIBS_FAULTS
/* The release of a group that cannot begin leaves it as it was: here, lost. So
 * there is something to give back still. */
TEST(release_without_memory)
{
    ear e;
    dibs::client c(kit::url());
    dibs::mutex a(c, "a"), b(c, "b");
    dibs::multi_mutex m(a, b);
    dibs::lock_options o = telling(e);
    std::error_code first, second;

    o.lease = 300ms;
    dibs::hold h = m.acquire(o);
    WAIT_FOR(e.heard() == 1);
    dibs__mem_fail_at(1, true);
    h.release(first);
    dibs__mem_fail_at(0, false);
    CHECK(first == DIBS_ERR_NOMEM);
    CHECK(h.owns_lock());
    h.release(second);
    CHECK(second == DIBS_ERR_LOST);
    CHECK(!h.owns_lock());
    CHECK_EQ(e.heard(), 1);
    m.lock(); /* the same owner starts anew */
    m.unlock();
}
#endif

TEST(library_finds_out)
{
    ear e;
    dibs::client c(kit::url(), renewing());
    dibs::mutex m(c, "m", telling(e));
    m.lock();
    m.lock();
    ts_ok(kit::srv, "FLUSHALL");
    WAIT_FOR(e.heard() == 2); /* once for each */
    CHECK(e.where != std::this_thread::get_id());
    CHECK_EQ(m.state(), DIBS_LOST);
    m.unlock(); /* not told again */
    std::error_code ec;
    m.unlock(ec);
    CHECK(ec == DIBS_ERR_LOST);
    CHECK_EQ(e.heard(), 2);
    m.lock();
    ts_ok(kit::srv, "FLUSHALL");
    WAIT_FOR(e.heard() == 3); /* nothing is left of the old ones */
    m.unlock();
    CHECK_EQ(e.heard(), 3);
}

/* Two readers lose it. One is told by the library and one by its unlock; the
 * second must hear although the first was told. */
TEST(each_owner_is_told)
{
    ear e;
    dibs::client c(kit::url());
    dibs::lock_options o = telling(e);
    o.lease = 300ms;
    dibs::shared_mutex m(c, "rw", o);
    dibs::shared_mutex other = m.with_owner(c.new_owner());
    m.lock_shared();
    other.lock_shared();
    WAIT_FOR(e.heard() == 2);
    m.unlock_shared();
    other.unlock_shared();
    CHECK_EQ(e.heard(), 2);

    dibs::mutex renewed(c, "m", telling(e));
    dibs::mutex ends(c, "n", o);
    renewed.lock();
    ends.lock();
    WAIT_FOR(e.heard() == 3); /* of "n" */
    ts_ok(kit::srv, "FLUSHALL");
    renewed.unlock();
    CHECK_EQ(e.heard(), 4);
    CHECK_EQ(e.name, "m");
    ends.unlock();
    CHECK_EQ(e.heard(), 4);
}

TEST(handlers_of_hold_mutex_client)
{
    ear of_client, of_mutex, of_hold;
    dibs::client_options o;
    o.on_lost = of_client.fn();
    dibs::client c(kit::url(), o);
    dibs::mutex plain(c, "m"), own(c, "m", telling(of_mutex));
    auto lose = [](dibs::hold) { ts_ok(kit::srv, "FLUSHALL"); };
    lose(plain.acquire());
    CHECK_EQ(of_client.heard(), 1);
    lose(own.acquire());
    CHECK_EQ(of_mutex.heard(), 1);
    lose(own.acquire(telling(of_hold)));
    CHECK_EQ(of_hold.heard(), 1);
    {
        std::lock_guard<dibs::mutex> guard(plain);
        ts_ok(kit::srv, "FLUSHALL");
    }
    CHECK_EQ(of_client.heard(), 2);
    CHECK_EQ(of_mutex.heard(), 1);
}

TEST(who_asked_is_not_told_again)
{
    dibs::client c(kit::url(), renewing());
    dibs::mutex m(c, "m");
    {
        dibs::hold h(m); /* nobody to tell: would end the program */
        ts_ok(kit::srv, "FLUSHALL");
        WAIT_FOR(h.lost());
        CHECK_EQ(h.valid_for(), 0ms);
    }
    {
        dibs::hold h(m);
        ts_ok(kit::srv, "FLUSHALL");
        WAIT_FOR(h.valid_for() == 0ms);
        dibs::hold moved(std::move(h)); /* knows it, too */
    }
    dibs::hold h(m);
    ts_ok(kit::srv, "FLUSHALL");
    THROWS(DIBS_ERR_LOST, h.release());
    CHECK(!h);
    h = m.acquire(); /* a new hold has not been told */
    h.release();
}

TEST(hold_told_by_library)
{
    ear e;
    dibs::client c(kit::url(), renewing());
    dibs::mutex m(c, "m");
    {
        dibs::hold h(m, telling(e));
        ts_ok(kit::srv, "FLUSHALL");
        WAIT_FOR(e.heard() == 1);
    }
    CHECK_EQ(e.heard(), 1);
    CHECK(e.where != std::this_thread::get_id());
}

/* on_lost ends the very hold that it is about, callable included. */
TEST(hold_ends_inside_on_lost)
{
    std::mutex mu;
    std::condition_variable cv;
    bool done = false;
    std::unique_ptr<dibs::hold> h;
    dibs::client c(kit::url(), renewing());
    dibs::mutex m(c, "m");
    auto captured = std::make_shared<int>(7);
    const std::weak_ptr<int> watch = captured;
    std::unique_lock<std::mutex> guard(mu);
    dibs::lock_options o;
    o.on_lost = [&, captured](const dibs::loss &) {
        const std::lock_guard<std::mutex> inside(mu);
        h.reset();
        done = *captured == 7;
        cv.notify_one();
    };
    h = std::make_unique<dibs::hold>(m, o);
    o = {};
    captured.reset();
    ts_ok(kit::srv, "FLUSHALL");
    cv.wait(guard, [&] { return done; });
    guard.unlock();
    WAIT_FOR(watch.expired());
    CHECK(m.try_lock());
    m.unlock();
}

/* A mutex that ends while it is held; on_lost is still there for the hold. */
TEST(mutex_ends_while_held)
{
    auto heard = std::make_shared<std::atomic<int>>(0);
    const std::weak_ptr<std::atomic<int>> watch = heard;
    {
        dibs::client c(kit::url(), renewing());
        {
            dibs::lock_options o;
            o.on_lost = [heard](const dibs::loss &) { (*heard)++; };
            dibs::mutex m(c, "m", o);
            m.lock();
        }
        ts_ok(kit::srv, "FLUSHALL");
        WAIT_FOR(*heard == 1);
        dibs::mutex again(c, "m");
        std::error_code ec;
        again.unlock(ec);
        CHECK(ec == DIBS_ERR_LOST);
    }
    heard.reset();
    CHECK(watch.expired()); /* went with the client */
}

/* Another object of the same lock unlocks it; no count may go wrong. */
TEST(unlocked_by_another_object)
{
    ear e;
    dibs::client c(kit::url());
    dibs::mutex one(c, "m", telling(e)), two(c, "m", telling(e));
    one.lock();
    two.unlock();
    two.lock();
    ts_ok(kit::srv, "FLUSHALL");
    two.unlock();
    CHECK_EQ(e.heard(), 1);
    one = std::move(two);
    one.lock();
    one.unlock();
}

/* Losses and releases at the same time, for the sanitizers. */
TEST(races)
{
    std::atomic<int> told{0}, ended{0};
    dibs::client_options o;
    o.lease = 100ms; /* shortest */
    dibs::client c(kit::url(), o);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&, i] {
            dibs::lock_options lo;
            lo.on_lost = [&](const dibs::loss &) { told++; };
            dibs::mutex m(c, "m" + std::to_string(i), lo);
            for (int n = 0; n < 15; n++) {
                {
                    std::error_code ec;
                    dibs::hold h(m, lo, ec);
                    if (ec == DIBS_ERR_UNKNOWN) { /* heard too late */
                        n--;
                        continue;
                    }
                    CHECK(!ec);
                    ts_ok(kit::srv, "DEL m%d", i);
                    if (n % 3 == 0)
                        std::this_thread::sleep_for(
                            std::chrono::milliseconds(30 + n));
                }
                ended++;
            }
        });
    for (auto &t : threads)
        t.join();
    CHECK_EQ(ended.load(), 60);
    CHECK_EQ(told.load(), 60); /* once for each */
}

TEST_ENDING(lost_mutex)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    std::lock_guard<dibs::mutex> guard(m);
    CHECK(m.force_release());
}

TEST_ENDING(lost_hold)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    dibs::hold h(m);
    CHECK(m.force_release());
}

TEST_ENDING(throwing_on_lost)
{
    dibs::client_options o;
    o.lease = 200ms * ts_slow();
    o.on_lost = [](const dibs::loss &what) {
        throw dibs::error(what.code, "from on_lost");
    };
    dibs::client c(kit::url(), o);
    dibs::mutex m(c, "m");
    m.lock();
    CHECK(m.force_release());
    std::this_thread::sleep_for(std::chrono::hours(1)); /* ends before */
}

TEST(nobody_to_tell_ends_the_program)
{
    CHECK(kit::ends_by_terminate("lost_mutex", DIBS_ERR_LOST));
    CHECK(kit::ends_by_terminate("lost_hold", DIBS_ERR_LOST));
    CHECK(kit::ends_by_terminate("throwing_on_lost", DIBS_ERR_LOST));
}
