/* SPDX-License-Identifier: MIT
 * Each kind of lock is what it says, and what the server says of it can be
 * read. */
#include "kit.hpp"

#include <mutex>
#include <shared_mutex>
#include <thread>

template <class F> static auto elsewhere(F fn)
{
    decltype(fn()) got{};
    std::thread t([&] { got = fn(); });
    t.join();
    return got;
}

TEST(shared)
{
    dibs::client c(kit::url());
    dibs::shared_mutex m(c, "rw");
    {
        std::shared_lock<dibs::shared_mutex> reads(m);
        CHECK_EQ(m.info().mode, DIBS_MODE_READ);
        CHECK(elsewhere([&] {
            std::error_code ec;
            bool all = m.try_lock_shared();
            m.unlock_shared();
            all = all && m.try_lock_shared_for(0s) &&
                  m.try_lock_shared_for(1s, ec) && !ec &&
                  m.try_lock_shared_until(std::chrono::steady_clock::now());
            m.unlock_shared();
            m.unlock_shared();
            m.unlock_shared(ec);
            return all && !ec && !m.try_lock() && !m.try_lock_for(1ms);
        }));
        THROWS(DIBS_ERR_UPGRADE, m.lock());
    }
    std::unique_lock<dibs::shared_mutex> writes(m);
    CHECK_EQ(m.info().mode, DIBS_MODE_WRITE);
    CHECK(!elsewhere([&] { return m.try_lock_shared(); }));
    m.lock_shared(); /* who writes may read */
    m.unlock_shared();
    writes.unlock();

    dibs::hold h(m.reader());
    CHECK_EQ(m.info().mode, DIBS_MODE_READ);
    h.release();
    dibs::shared_mutex own = m.with_owner(c.new_owner());
    own.lock_shared();
    CHECK(elsewhere([&] {
        own.unlock_shared();
        return true;
    }));
}

TEST(fair)
{
    dibs::client c(kit::url());
    dibs::fair_mutex m(c, "fair");
    std::unique_lock<dibs::fair_mutex> guard(m);
    std::atomic<bool> got{false};
    std::thread t([&] {
        std::lock_guard<dibs::fair_mutex> inside(m);
        got = true;
    });

    WAIT_FOR(m.queue().size() == 1);
    CHECK_EQ(m.info().waiters, 1U);
    CHECK(!m.queue()[0].owner.empty());
    guard.unlock();
    t.join();
    CHECK(got);
    dibs::fair_mutex own = m.with_owner(c.new_owner());
    own.lock();
    own.unlock();
}

TEST(names_of_any_bytes)
{
    dibs::client c(kit::url());
    const std::string name("a\0b", 3);
    dibs::mutex m(c, name);
    std::lock_guard<dibs::mutex> guard(m);
    int seen = 0;

    c.list("", [&](std::string_view found, const dibs::lock_info &info) {
        CHECK_EQ(found, name);
        CHECK(info.locked);
        CHECK(info.ttl > 0ms);
        seen++;
    });
    CHECK_EQ(seen, 1);
    THROWS(DIBS_ERR_INVALID, dibs::shared_mutex(c, name));
    THROWS(DIBS_ERR_INVALID, dibs::mutex(c, ""));
}

TEST(multi)
{
    dibs::client c(kit::url()), d(kit::url());
    dibs::mutex a(c, "a"), b(d, "b");
    dibs::shared_mutex rw(c, "rw");
    dibs::multi_mutex all(a, b, rw.reader());
    {
        std::lock_guard<dibs::multi_mutex> guard(all);
        CHECK(kit::exists("a") && kit::exists("b") && kit::exists("rw"));
        const auto members = all.members();
        CHECK_EQ(members.size(), 3U);
        for (const dibs::member &m : members) {
            CHECK(!m.verdict);
            CHECK_EQ(m.state, DIBS_HELD);
            CHECK(m.valid_for > 0ms);
        }
        CHECK_EQ(members[1].name, "b");
        CHECK(elsewhere([&] { return !a.try_lock() && !all.try_lock(); }));
    }
    CHECK_EQ(ts_nkeys(kit::srv), 0);

    dibs::multi_mutex own = all.with_owner(c.new_owner());
    dibs::hold h(own);
    dibs::mutex other = b.with_owner(d.new_owner());
    CHECK(!other.try_lock());
    h.release();
    THROWS(DIBS_ERR_INVALID,
           dibs::multi_mutex(std::vector<const dibs::lockable *>{}));
    THROWS(DIBS_ERR_INVALID, dibs::multi_mutex(a, a));
}

TEST(quorum)
{
    ts_server *more[2] = {ts_server_start(nullptr), ts_server_start(nullptr)};
    {
        dibs::client a(kit::url()), b(ts_server_url(more[0])),
            c(ts_server_url(more[1]));
        dibs::mutex x(a, "q"), y(b, "q"), z(c, "q");
        dibs::quorum_mutex most({&x, &y, &z});
        ts_ok(more[1], "SET q text");
        std::lock_guard<dibs::quorum_mutex> guard(most);
        CHECK_EQ(most.members()[0].state, DIBS_HELD);
        WAIT_FOR(most.members()[2].verdict == DIBS_ERR_WRONGTYPE);
    }
    for (ts_server *s : more)
        ts_server_stop(s);
}

TEST(what_the_server_says)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    CHECK(!m.info().locked);
    CHECK(m.holders().empty());
    CHECK(!m.force_release());
    m.lock();
    m.lock();
    const dibs::lock_info info = m.info();
    CHECK(info.locked);
    CHECK_EQ(info.mode, DIBS_MODE_EXCLUSIVE);
    CHECK_EQ(info.holds, 2);
    CHECK_EQ(info.owner, m.owner_text());
    CHECK_EQ(m.holders().size(), 1U);
    CHECK_EQ(m.holders()[0].owner, info.owner);
    CHECK(!m.force_release("nobody:1"));
    CHECK(m.force_release(info.owner));
    std::error_code ec;
    m.unlock(ec);
    CHECK(ec == DIBS_ERR_LOST);
    m.unlock(ec);
    CHECK(ec == DIBS_ERR_LOST);
    CHECK(!m.info(ec).locked);
    CHECK(!ec);
    ts_ok(kit::srv, "SET m text");
    m.info(ec);
    CHECK(ec == DIBS_ERR_WRONGTYPE);
    ts_ok(kit::srv, "DEL m");
}

TEST(walks_end_with_an_exception)
{
    dibs::client c(kit::url());
    dibs::mutex a(c, "a"), b(c, "b");
    std::scoped_lock both(a, b);
    int calls = 0;
    try {
        c.list("*", [&](std::string_view, const dibs::lock_info &) {
            calls++;
            throw std::runtime_error("enough");
        });
        CHECK(false);
    } catch (const std::runtime_error &e) {
        CHECK_EQ(std::string(e.what()), "enough");
    }
    CHECK_EQ(calls, 1);
    c.list("*", [&](std::string_view, const dibs::lock_info &) {
        calls++;
        return false;
    });
    CHECK_EQ(calls, 2);
    c.doctor("a",
             [&](std::string_view check, dibs_verdict, std::string_view text) {
                 if (!check.empty() && !text.empty())
                     calls++;
             });
    CHECK(calls > 3);
}

TEST(cancel)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    std::unique_lock<dibs::mutex> guard(m);
    dibs::mutex waits = m.with_owner(c.new_owner());
    std::error_code ec;
    CHECK(!m.cancel(waits.options().owner));
    std::thread t([&] { waits.lock(ec); });
    WAIT_FOR(m.cancel(waits.options().owner));
    t.join();
    CHECK(ec == DIBS_ERR_CANCELED);
    CHECK(ec == std::errc::operation_canceled);
}

#ifdef DIBS_HAS_FENCED
TEST(fenced)
{
    dibs::client c(kit::url());
    dibs::fenced_mutex m(c, "fenced");
    std::int64_t first = 0;
    {
        std::lock_guard<dibs::fenced_mutex> guard(m);
        first = m.token();
        CHECK(first > 0);
    }
    dibs::hold h(m);
    CHECK(h.token() > first);
    CHECK_EQ(h.token(), m.token());
    h.release();
    THROWS(DIBS_ERR_NOT_OWNER, m.token());
    dibs::fenced_mutex own = m.with_owner(c.new_owner());
    own.lock();
    CHECK(own.token() > first + 1);
    own.unlock();
    ts_ok(kit::srv, "FLUSHALL"); /* the counter stays otherwise */
}
#endif

#ifdef DIBS_HAS_SLOTS
TEST(slots)
{
    dibs::client c(kit::url());
    dibs::slots m(c, "slots", 2);
    dibs::slots one = m.with_owner(c.new_owner());
    dibs::slots two = m.with_owner(c.new_owner());
    one.lock();
    two.lock();
    CHECK(one.slot() != two.slot());
    CHECK(one.slot() >= 0 && one.slot() < 2);
    CHECK(!m.try_lock());
    one.unlock();
    dibs::hold h(m, std::try_to_lock);
    CHECK(h);
    CHECK(h.slot() >= 0 && h.slot() < 2);
    h.release();
    two.unlock();
    ts_ok(kit::srv, "FLUSHALL"); /* the total stays otherwise */
}
#endif
