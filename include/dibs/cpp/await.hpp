/* SPDX-License-Identifier: MIT
 *
 * await.hpp - part of dibs.hpp: for coroutines of C++20.
 *
 *   dibs::hold h = co_await dibs::co_acquire(m, options);
 *   co_await dibs::co_release(h);
 *
 * Both throw dibs::error. The coroutine goes on inside a callback: on the
 * client's callback thread, or with the option dispatch on the thread that
 * dispatches. It needs no library, and fits any type of coroutine. m, and the
 * hold that is released, must live until then.
 */
#ifndef DIBS_CPP_AWAIT_HPP
#define DIBS_CPP_AWAIT_HPP

#ifdef __cpp_impl_coroutine

#include <dibs/cpp/hold.hpp>

#include <coroutine>

namespace dibs
{

namespace detail
{

/* An outcome that a callback leaves for the coroutine. After a start that
 * succeeded, the coroutine may have gone on and this may be gone. */
class awaitable
{
public:
    bool await_ready() const noexcept { return false; }

protected:
    void leave(std::error_code ec)
    {
        ec_ = ec;
        if (ec)
            text_ = dibs_error_text();
    }
    void check() const
    {
        if (ec_)
            throw error(ec_, text_);
    }

private:
    std::error_code ec_;
    std::string text_;
};

class acquire_awaitable : public awaitable
{
public:
    acquire_awaitable(lockable &m, lock_options o) : m_(m), o_(std::move(o)) {}

    bool await_suspend(std::coroutine_handle<> caller)
    {
        std::error_code start;
        m_.acquire_async(
            o_,
            [this, caller](std::error_code ec, hold h) {
                leave(ec);
                hold_ = std::move(h);
                caller.resume();
            },
            start);
        if (start)
            leave(start);
        return !start;
    }
    hold await_resume()
    {
        check();
        return std::move(hold_);
    }

private:
    lockable &m_;
    lock_options o_;
    hold hold_;
};

class release_awaitable : public awaitable
{
public:
    explicit release_awaitable(hold &h) : hold_(h) {}

    bool await_suspend(std::coroutine_handle<> caller)
    {
        std::error_code start;
        hold_.release_async(
            [this, caller](std::error_code ec) {
                leave(ec);
                caller.resume();
            },
            start);
        if (start)
            leave(start);
        return !start;
    }
    void await_resume() const { check(); }

private:
    hold &hold_;
};

} // namespace detail

inline detail::acquire_awaitable co_acquire(lockable &m, lock_options o = {})
{
    return {m, std::move(o)};
}

inline detail::release_awaitable co_release(hold &h)
{
    return detail::release_awaitable(h);
}

} // namespace dibs

#endif
#endif
