/* SPDX-License-Identifier: MIT
 * Errors as codes and exceptions; times as the C API counts them; what a client
 * says when it cannot be opened. */
#include "kit.hpp"

#include <limits>
#include <ratio>
#include <thread>
#include <vector>

static_assert(!std::is_copy_constructible_v<dibs::client>);
static_assert(!std::is_copy_assignable_v<dibs::client>);
static_assert(std::is_nothrow_move_constructible_v<dibs::client>);
static_assert(std::is_nothrow_move_assignable_v<dibs::client>);
static_assert(!std::is_copy_constructible_v<dibs::mutex>);
static_assert(!std::is_copy_constructible_v<dibs::hold>);
static_assert(std::is_nothrow_move_constructible_v<dibs::hold>);
static_assert(std::is_nothrow_move_assignable_v<dibs::hold>);
static_assert(noexcept(std::declval<dibs::mutex &>().unlock()));

TEST(codes_and_conditions)
{
    const std::error_code ec = DIBS_ERR_TIMEOUT;

    CHECK_EQ(std::string(ec.category().name()), "dibs");
    CHECK_EQ(ec.message(), dibs_strerror(DIBS_ERR_TIMEOUT));
    CHECK(ec == std::errc::timed_out);
    CHECK(ec == DIBS_ERR_TIMEOUT);
    CHECK(ec != DIBS_ERR_LOST);
    CHECK(!std::error_code(DIBS_OK));
    CHECK(std::error_code(DIBS_ERR_DEADLOCK) ==
          std::errc::resource_deadlock_would_occur);
    CHECK(std::error_code(DIBS_ERR_NOMEM) == std::errc::not_enough_memory);
#define HAS_TEXT(name, value, text)                                            \
    CHECK_EQ(std::error_code(name).message(), std::string(text));
    DIBS_ERR_MAP(HAS_TEXT)
#undef HAS_TEXT
    CHECK_EQ(dibs::category().message(12345), "unknown error");
}

TEST(waits_are_counted)
{
    using dibs::detail::wait_of;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    struct row {
        std::int64_t got, want;
    };
    const std::vector<row> rows = {
        {wait_of(0ms), 0},
        {wait_of(-1h), 0},
        {wait_of(std::chrono::hours::min()), 0},
        {wait_of(std::chrono::duration<double>(nan)), 0},
        {wait_of(std::chrono::duration<double>(-0.5)), 0},
        {wait_of(1ns), 1},
        {wait_of(1000001ns), 2},
        {wait_of(std::chrono::duration<float>(0.5F)), 500},
        {wait_of(2h), 7200000},
        {wait_of(std::chrono::hours::max()), DIBS_MS_MAX},
        {wait_of(std::chrono::nanoseconds::max()), 9223372036855},
        {wait_of(std::chrono::duration<double>(
             std::numeric_limits<double>::infinity())),
         DIBS_MS_MAX},
    };
    for (std::size_t i = 0; i < rows.size(); i++)
        if (rows[i].got != rows[i].want)
            throw kit::failure("row " + std::to_string(i) + ": " +
                               std::to_string(rows[i].got));

    using dibs::detail::wait_until;
    using clock = std::chrono::system_clock;
    CHECK_EQ(wait_until(clock::time_point::min()), 0);
    CHECK_EQ(wait_until(clock::now() - 1s), 0);
    CHECK(wait_until(clock::now() + 1h) > 3500000);
    CHECK(wait_until(std::chrono::steady_clock::time_point::max()) > 0);
}

TEST(open_says_why)
{
    THROWS(DIBS_ERR_INVALID, dibs::client("nonsense://x"));
    try {
        dibs::client c("unix:///nowhere/at/all.sock");
        CHECK(false);
    } catch (const std::system_error &e) {
        CHECK(e.code() == DIBS_ERR_CONN);
        CHECK(std::string(e.what()).find("/nowhere/at/all.sock") !=
              std::string::npos);
    }
    std::error_code ec;
    dibs::client none("unix:///nowhere/at/all.sock", {}, ec);
    CHECK(ec == DIBS_ERR_CONN);
    CHECK(!none);
    THROWS(DIBS_ERR_INVALID, none.close());
    THROWS(DIBS_ERR_INVALID, dibs::mutex(none, "a"));

    dibs::client_options o;
    o.lease = -1ms;
    THROWS(DIBS_ERR_INVALID, dibs::client(kit::url(), o));
    o.lease = {};
    o.more.max_connections = 1; /* named fields go before this */
    o.max_connections = 65;
    THROWS(DIBS_ERR_INVALID, dibs::client(kit::url(), o));
}

TEST(events_and_moves)
{
    std::atomic<int> connected{0};
    dibs::client_options o;
    o.client_name = "cpp";
    o.on_event = [&connected](const dibs::event &ev) {
        if (ev.kind == DIBS_EVENT_CONNECTED && !ev.text.empty())
            connected++;
    };
    {
        dibs::client one(kit::url(), o);
        const std::string id(one.id());
        dibs::client two(std::move(one));
        CHECK(!one);
        CHECK_EQ(two.id(), id);
        dibs::client three(kit::url(), o);
        three = std::move(two); /* closes what it was */
        CHECK_EQ(three.id(), id);
        WAIT_FOR(ts_client_count(kit::srv) < 3);
        dibs::mutex m(three, "moved");
        m.lock();
        m.unlock();
        CHECK(three.new_owner() != three.this_owner());
        CHECK_EQ(three.fd(), -1);
        three.close(0ms);
        std::error_code ec;
        three.close(0ms, ec);
        CHECK(!ec);
        THROWS(DIBS_ERR_CLOSED, m.lock());
    }
    CHECK(connected > 0);
}
