/* SPDX-License-Identifier: MIT
 *
 * kit.hpp - what the tests of dibs.hpp share: a server, and words for checks.
 *
 *   TEST(lock_is_taken)
 *   {
 *       dibs::client c(kit::url());
 *       CHECK(...);
 *   }
 *
 * A check that fails throws, so checks belong on the main thread; other threads
 * write down what they saw. After each test nothing may be left on the server:
 * no key, no connection, no channel.
 *
 * What ends the program is tried in a process of its own: TEST_ENDING is a
 * body that runs in there, and ends_by_terminate runs it.
 */
#ifndef DIBS_TESTS_CPP_KIT_HPP
#define DIBS_TESTS_CPP_KIT_HPP

#include <dibs/dibs.hpp>

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <sstream>
#include <stdexcept>
#include <string>

#define _Noreturn [[noreturn]]
extern "C" {
#include "support/server.h"
#include "support/util.h"
}
#undef _Noreturn

using namespace std::chrono_literals;

namespace kit
{

extern ts_server *srv;

std::string url();

/* Registers a test; with ending, a body for ends_by_terminate. */
bool add(const char *name, void (*fn)(), bool ending = false);

/* Runs that body in a process of its own. True if it ended by std::terminate
 * because of a dibs::error with this code. */
bool ends_by_terminate(const char *ending, dibs_err want);

struct failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

template <class A, class B>
void check_eq(const A &a, const B &b, const char *text, const char *file,
              int line)
{
    if (a == b)
        return;
    std::ostringstream s;
    s << file << ":" << line << ": " << text;
    throw failure(s.str());
}

/* Looks until it is so; fails after TS_SOON. */
template <class F>
void wait_for(F cond, const char *text, const char *file, int line)
{
    ts_wait w = ts_wait_begin(TS_SOON);
    while (!cond())
        if (!ts_wait_step(&w))
            check_eq(true, false, text, file, line);
}

/* The code of the dibs::error that fn throws; DIBS_OK if none. */
template <class F> std::error_code thrown_by(F fn)
{
    try {
        fn();
    } catch (const dibs::error &e) {
        return e.code();
    }
    return {};
}

/* A lease for locks that are renewed during the test. */
inline std::chrono::milliseconds lease()
{
    return ts_slow() > 1 ? 3000ms : 1500ms;
}

inline bool exists(const char *key)
{
    return ts_exists(srv, key);
}

} // namespace kit

#define CHECK(expr)                                                            \
    kit::check_eq(static_cast<bool>(expr), true, #expr, __FILE__, __LINE__)
#define CHECK_EQ(a, b) kit::check_eq(a, b, #a " is not " #b, __FILE__, __LINE__)
#define WAIT_FOR(expr)                                                         \
    kit::wait_for([&] { return static_cast<bool>(expr); }, #expr, __FILE__,    \
                  __LINE__)
#define THROWS(code, stmt)                                                     \
    kit::check_eq(kit::thrown_by([&] { stmt; }), std::error_code(code),        \
                  #stmt " did not throw " #code, __FILE__, __LINE__)

#define TEST(name)                                                             \
    static void test_##name();                                                 \
    static const bool added_##name = kit::add(#name, test_##name);             \
    static void test_##name()
#define TEST_ENDING(name)                                                      \
    static void test_##name();                                                 \
    static const bool added_##name = kit::add(#name, test_##name, true);       \
    static void test_##name()

#endif
