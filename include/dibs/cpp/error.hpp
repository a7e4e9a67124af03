/* SPDX-License-Identifier: MIT
 *
 * error.hpp - part of dibs.hpp: errors as std::error_code and as exceptions,
 * and times as the C API counts them.
 *
 * dibs_err itself is the enum of the error codes, so each new error of the
 * library is one here at once. The usual ones equal a std::errc, too:
 * ec == std::errc::timed_out.
 */
#ifndef DIBS_CPP_ERROR_HPP
#define DIBS_CPP_ERROR_HPP

#include <dibs/dibs.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <string>
#include <system_error>
#include <type_traits>

namespace dibs
{

namespace detail
{

class error_category final : public std::error_category
{
public:
    const char *name() const noexcept override { return "dibs"; }

    /* A number that no error has must not become an enum: that is undefined. */
    std::string message(int number) const override
    {
        return number <= 0 && number >= -31
                   ? dibs_strerror(static_cast<dibs_err>(number))
                   : "unknown error";
    }

    std::error_condition
    default_error_condition(int number) const noexcept override
    {
        switch (number) {
        case DIBS_ERR_INVALID:
            return std::errc::invalid_argument;
        case DIBS_ERR_NOMEM:
            return std::errc::not_enough_memory;
        case DIBS_ERR_BUSY:
            return std::errc::device_or_resource_busy;
        case DIBS_ERR_TIMEOUT:
            return std::errc::timed_out;
        case DIBS_ERR_NOT_OWNER:
            return std::errc::operation_not_permitted;
        case DIBS_ERR_CONN:
            return std::errc::not_connected;
        case DIBS_ERR_DEADLOCK:
        case DIBS_ERR_UPGRADE:
            return std::errc::resource_deadlock_would_occur;
        case DIBS_ERR_AUTH:
            return std::errc::permission_denied;
        case DIBS_ERR_CANCELED:
            return std::errc::operation_canceled;
        case DIBS_ERR_PROTOCOL:
            return std::errc::protocol_error;
        default:
            return {number, *this};
        }
    }
};

} // namespace detail

inline const std::error_category &category() noexcept
{
    static const detail::error_category the;
    return the;
}

/* what() has the name of the lock and the server's own words. */
class error : public std::system_error
{
public:
    using std::system_error::system_error;
};

} // namespace dibs

/* In the namespace of dibs_err, where it is looked for. */
inline std::error_code make_error_code(dibs_err err) noexcept
{
    return {static_cast<int>(err), dibs::category()};
}

template <> struct std::is_error_code_enum<dibs_err> : std::true_type {
};

namespace dibs
{

using std::chrono::milliseconds;

namespace detail
{

/* Throws for the last call of this thread, which ended with err. */
[[noreturn]] inline void fail(dibs_err err, const std::string &name)
{
    std::string what = name;
    const char *text = dibs_error_text();

    if (*text != '\0')
        what += (what.empty() ? "" : ": ") + std::string(text);
    throw error(make_error_code(err), what);
}

/* Ends the program with that exception at hand, so that the terminate handler
 * can say what it was. */
[[noreturn]] inline void give_up(dibs_err err, const std::string &name) noexcept
{
    try {
        fail(err, name);
    } catch (...) {
        std::terminate();
    }
}

inline void check(dibs_err err, const std::string &name)
{
    if (err != DIBS_OK)
        fail(err, name);
}

/* How long to wait. A number of milliseconds, or one of these. */
constexpr std::int64_t try_once = 0;
constexpr std::int64_t no_limit = -1;

/* Rounded up; never no_limit. What is not above zero is zero, NaN as well.
 * Counted with fractions of a wide type, since hours::max() is a duration,
 * too. */
template <class Rep, class Period>
std::int64_t wait_of(const std::chrono::duration<Rep, Period> &d)
{
    using wide = std::chrono::duration<long double, std::milli>;
    const long double ms = std::ceil(wide(d).count());

    if (!(ms > 0))
        return try_once;
    return ms < static_cast<long double>(DIBS_MS_MAX)
               ? static_cast<std::int64_t>(ms)
               : DIBS_MS_MAX;
}

template <class Clock, class Duration>
std::int64_t wait_until(const std::chrono::time_point<Clock, Duration> &t)
{
    using wide = std::chrono::duration<long double, std::milli>;

    return wait_of(wide(t.time_since_epoch()) -
                   wide(Clock::now().time_since_epoch()));
}

} // namespace detail

} // namespace dibs

#endif
