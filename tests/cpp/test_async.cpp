/* SPDX-License-Identifier: MIT
 * Async calls with callables: each is called exactly once, at the latest when
 * the client ends; also from a loop of one's own, and in coroutines. */
#include "kit.hpp"

#include <condition_variable>
#include <mutex>
#include <poll.h>
#include <thread>

/* Until it is so, runs callbacks. */
#define DISPATCH_UNTIL(c, expr)                                                \
    do {                                                                       \
        pollfd p = {(c).fd(), POLLIN, 0};                                      \
        while (!(expr)) {                                                      \
            CHECK(poll(&p, 1, static_cast<int>(TS_SOON)) == 1);                \
            (c).dispatch();                                                    \
        }                                                                      \
    } while (0)

static dibs::client_options dispatching()
{
    dibs::client_options o;
    o.dispatch = true;
    return o;
}

TEST(on_the_callback_thread)
{
    std::mutex mu;
    std::condition_variable cv;
    int released = 0;
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    for (int i = 0; i < 10; i++)
        m.acquire_async({}, [&](std::error_code ec, dibs::hold h) {
            if (ec || h.lost())
                return;
            h.release_async([&](std::error_code) {
                const std::lock_guard<std::mutex> guard(mu);
                released++;
                cv.notify_one();
            });
        });
    std::unique_lock<std::mutex> guard(mu);
    cv.wait(guard, [&] { return released == 10; });
    CHECK(!kit::exists("m"));
}

TEST(on_a_loop)
{
    dibs::client c(kit::url(), dispatching());
    dibs::mutex m(c, "m");
    dibs::hold held;
    std::error_code second;
    int calls = 0;
    auto owned =
        std::make_unique<int>(1); /* a callable that cannot be copied */

    m.acquire_async(
        {}, [&, mine = std::move(owned)](std::error_code ec, dibs::hold h) {
            CHECK(!ec);
            calls += *mine;
            held = std::move(h);
        });
    DISPATCH_UNTIL(c, calls == 1);
    CHECK(held && !held.lost());

    dibs::lock_options o;
    o.wait = 0ms; /* tries */
    m.acquire_async(o, [&](std::error_code ec, dibs::hold h) {
        second = h ? std::error_code() : ec;
        calls++;
    });
    DISPATCH_UNTIL(c, calls == 2);
    CHECK(second == DIBS_ERR_BUSY); /* another owner */

    std::error_code ec = DIBS_ERR_LOST;
    held.release_async(
        [&](std::error_code end) {
            second = end;
            calls++;
        },
        ec);
    CHECK(!ec);
    CHECK(!held);
    DISPATCH_UNTIL(c, calls == 3);
    CHECK(!second);
    held.release_async([](std::error_code) {}, ec);
    CHECK(ec == DIBS_ERR_NOT_OWNER);
}

TEST(a_start_that_fails_calls_nobody)
{
    dibs::client c(kit::url(), dispatching());
    dibs::mutex m(c, "m");
    dibs::hold h(m);
    bool called = false;
    auto fn = [&](std::error_code, dibs::hold) { called = true; };
    dibs::lock_options o;
    o.lease = -1ms;
    THROWS(DIBS_ERR_INVALID, m.acquire_async(o, fn));
    std::error_code ec;
    m.acquire_async(o, fn, ec);
    CHECK(ec == DIBS_ERR_INVALID);
    c.close();
    m.acquire_async({}, fn, ec);
    CHECK(ec == DIBS_ERR_CLOSED);
    CHECK_EQ(c.dispatch(), 0);
    CHECK(!called);
}

/* What waits when the client ends is called then, and nothing leaks. */
TEST(the_end_of_the_client_calls)
{
    std::error_code got;
    int calls = 0;
    {
        dibs::client c(kit::url(), dispatching());
        dibs::mutex m(c, "m");
        dibs::hold h(m);
        dibs::lock_options o;
        o.on_lost = [](const dibs::loss &) {};
        m.acquire_async(o, [&](std::error_code ec, dibs::hold) {
            got = ec;
            calls++;
        });
        h.release_async([&](std::error_code) { calls++; });
        m.acquire_async(o, [&](std::error_code, dibs::hold) { calls++; });
    }
    CHECK_EQ(calls, 3);
}

TEST(loss_on_a_loop)
{
    dibs::client_options o = dispatching();
    o.lease = kit::lease();
    dibs::client c(kit::url(), o);
    int lost = 0;
    dibs::lock_options lo;
    lo.on_lost = [&](const dibs::loss &what) {
        CHECK_EQ(what.name, "m");
        lost++;
    };
    dibs::mutex m(c, "m", lo);
    dibs::hold held;
    m.acquire_async(
        {}, [&](std::error_code, dibs::hold h) { held = std::move(h); });
    DISPATCH_UNTIL(c, held);
    ts_ok(kit::srv, "FLUSHALL");
    DISPATCH_UNTIL(c, lost == 1);
    std::error_code end;
    bool ended = false;
    held.release_async([&](std::error_code ec) {
        end = ec;
        ended = true;
    });
    DISPATCH_UNTIL(c, ended);
    CHECK(end == DIBS_ERR_LOST);
    CHECK_EQ(lost, 1);
}

#ifdef __cpp_impl_coroutine

/* The smallest coroutine: starts at once, and nobody waits for it. */
struct job {
    struct promise_type {
        job get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
};

static job work(dibs::mutex &m, int &inside, int &most, int &done)
{
    dibs::hold h = co_await dibs::co_acquire(m);
    most = std::max(most, ++inside);
    inside--;
    co_await dibs::co_release(h);
    done++;
}

TEST(coroutines_on_a_loop)
{
    dibs::client c(kit::url(), dispatching());
    dibs::mutex m(c, "m");
    int inside = 0, most = 0, done = 0;
    for (int i = 0; i < 5; i++)
        work(m, inside, most, done);
    DISPATCH_UNTIL(c, done == 5);
    CHECK_EQ(most, 1);
    CHECK(!kit::exists("m"));
}

static job fails(dibs::mutex &m, dibs::lock_options o, std::error_code &got,
                 std::atomic<bool> &done)
{
    try {
        dibs::hold h = co_await dibs::co_acquire(m, o);
        co_await dibs::co_release(h);
        co_await dibs::co_release(h); /* empty by now */
    } catch (const dibs::error &e) {
        got = e.code();
    }
    done = true;
}

TEST(coroutines_throw)
{
    dibs::client c(kit::url());
    dibs::mutex m(c, "m");
    struct row {
        std::chrono::milliseconds wait, lease;
        dibs_err want;
    };
    const row rows[] = {
        {1ms, 0ms, DIBS_ERR_TIMEOUT}, /* in the callback */
        {0ms, 0ms, DIBS_ERR_BUSY},
        {1ms, -1ms, DIBS_ERR_INVALID}, /* at the start */
    };
    std::unique_lock<dibs::mutex> guard(m);
    for (const row &r : rows) {
        std::error_code got;
        std::atomic<bool> done{false};
        dibs::lock_options o;
        o.wait = r.wait;
        o.lease = r.lease;
        fails(m, o, got, done);
        WAIT_FOR(done);
        CHECK_EQ(got, std::error_code(r.want));
    }
    guard.unlock();
    std::error_code got;
    std::atomic<bool> done{false};
    fails(m, {}, got, done);
    WAIT_FOR(done);
    CHECK(got == DIBS_ERR_NOT_OWNER);
}

TEST(coroutines_end_with_the_client)
{
    std::error_code got;
    std::atomic<bool> ended{false};
    {
        dibs::client c(kit::url(), dispatching());
        dibs::mutex m(c, "m");
        std::lock_guard<dibs::mutex> guard(m);
        fails(m, {}, got, ended);
        c.close();
        CHECK(!ended); /* it waits to be dispatched */
    }
    CHECK(ended);
    CHECK(got == DIBS_ERR_CLOSED);
}

#endif
