/* SPDX-License-Identifier: MIT
 * The guard that can tell: what it knows, where it may go, how it ends. */
#include "kit.hpp"

#include <mutex>
#include <thread>

TEST(scope)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    {
        dibs::hold h(m);
        CHECK(h && h.owns_lock());
        CHECK(!h.lost());
        CHECK_EQ(h.state(), DIBS_HELD);
        CHECK(h.valid_for() > 0ms);
        CHECK_EQ(h.owner(), c.this_owner());
        dibs::hold inner = m.acquire(); /* re-entrant */
        CHECK_EQ(m.holds(), 2);
    }
    CHECK(!kit::exists("m"));
    dibs::hold none;
    CHECK(!none && !none.lost());
    CHECK_EQ(none.valid_for(), 0ms);
    THROWS(DIBS_ERR_NOT_OWNER, none.release());
}

TEST(release_has_a_result)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    dibs::hold h(m);
    h.release();
    CHECK(!h);
    CHECK(!kit::exists("m"));
    std::error_code ec;
    h.release(ec);
    CHECK(ec == DIBS_ERR_NOT_OWNER);

    h = m.acquire();
    dibs::release_options o;
    o.keep = 10s;
    h.release(o);
    CHECK(kit::exists("m")); /* by nobody */
    CHECK(!m.try_lock());
    ts_ok(kit::srv, "DEL m");
}

TEST(tries)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    dibs::mutex other = m.with_owner(c.new_owner());
    dibs::hold h(other);
    CHECK_EQ(h.owner(), other.options().owner);
    CHECK(!dibs::hold(m, std::try_to_lock));
    CHECK(!m.try_acquire());
    CHECK(!m.try_acquire(1ms));
    dibs::lock_options o;
    o.wait = 0ms; /* tries */
    THROWS(DIBS_ERR_BUSY, m.acquire(o));
    std::error_code ec;
    CHECK(!m.acquire(o, ec));
    CHECK(ec == DIBS_ERR_BUSY);
    o.wait = 1ms;
    CHECK(!dibs::hold(m, o, ec));
    CHECK(ec == DIBS_ERR_TIMEOUT);
    h.release();
    CHECK(dibs::hold(m, std::try_to_lock));
    CHECK(m.try_acquire());
    ts_ok(kit::srv, "SET m text");
    THROWS(DIBS_ERR_WRONGTYPE, m.try_acquire());
    ts_ok(kit::srv, "DEL m");
}

TEST(options_of_mutex_and_hold)
{
    dibs::client c(kit::url());
    dibs::lock_options o;
    o.lease = 10s;
    dibs::mutex m(c, "m", o);
    m.lock();
    CHECK(ts_pttl(kit::srv, "m") <= 10000);
    m.unlock();
    dibs::hold h(m);
    CHECK(ts_pttl(kit::srv, "m") <= 10000);
    h.release();
    h = dibs::hold(m, dibs::lock_options{});
    CHECK(ts_pttl(kit::srv, "m") <= 10000);
    h.release();
    o.lease = 20s;
    h = m.acquire(o);
    CHECK(ts_pttl(kit::srv, "m") > 10000);
    o.lease = -1ms;
    THROWS(DIBS_ERR_INVALID, m.acquire(o));
}

TEST(travels)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    dibs::hold h(m);
    bool fine = false;
    std::thread t([&fine, mine = std::move(h)]() mutable {
        fine = !mine.lost() && mine.valid_for() > 0ms;
        std::error_code ec;
        mine.release(ec);
        fine = fine && !ec;
    });
    t.join();
    CHECK(fine);
    CHECK(!h);

    dibs::mutex n(c, "n");
    h = m.acquire();
    h = n.acquire(); /* gives the first back */
    CHECK(!kit::exists("m"));
    CHECK(kit::exists("n"));
    dibs::hold other;
    h.swap(other);
    CHECK(!h && other);
}

TEST(outlives_mutex_and_client)
{
    auto c = std::make_unique<dibs::client>(kit::url());
    auto m = std::make_unique<dibs::mutex>(*c, "m");
    dibs::hold h(*m), again(*m);
    m.reset();
    again.release();
    CHECK(kit::exists("m"));
    c.reset();
    CHECK(!kit::exists("m"));
    CHECK_EQ(h.state(), DIBS_NOT_HELD);
    std::error_code ec;
    h.release(ec);
    CHECK(ec == DIBS_ERR_CLOSED);
    CHECK(!h);
}

/* One of several, and the server refuses: still held, and the hold knows. */
TEST(refused_and_still_held)
{
    int told = 0;
    std::error_code why;
    dibs::client_options o;
    o.on_lost = [&](const dibs::loss &what) {
        told++;
        why = what.code;
    };
    dibs::client c(kit::url(), o);
    dibs::mutex m(c, "m");
    {
        dibs::hold outer(m), inner(m);
        ts_ok(kit::srv, "ACL SETUSER default -evalsha -eval");
        std::error_code ec;
        inner.release(ec);
        CHECK(ec == DIBS_ERR_AUTH);
        CHECK(inner);
        CHECK_EQ(m.holds(), 2);
        CHECK(!inner.lost());
        m.lock(ec);
        CHECK(ec == DIBS_ERR_AUTH);
        CHECK_EQ(told, 0);
        {
            dibs::hold ends(std::move(inner)); /* cannot report */
        }
        CHECK_EQ(told, 1);
        CHECK(why == DIBS_ERR_AUTH);
        m.unlock();
        CHECK_EQ(told, 2);
        ts_ok(kit::srv, "ACL SETUSER default +evalsha +eval");
        m.unlock(); /* what is left of inner */
        CHECK_EQ(m.holds(), 1);
    }
    CHECK_EQ(told, 2);
    CHECK(!kit::exists("m"));
}
