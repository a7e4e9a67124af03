/* SPDX-License-Identifier: MIT
 *
 * dibs.hpp - dibs for C++17 and later, over dibs.h and nothing else.
 *
 * Kinds      mutex, fair_mutex, shared_mutex, multi_mutex, quorum_mutex, and
 *            where the library has them fenced_mutex and slots. All are
 *            TimedLockable, so std::unique_lock, std::scoped_lock and
 *            std::condition_variable_any work; shared_mutex also works with
 *            std::shared_lock. All are re-entrant.
 * Guards     hold is the guard that can tell what std's cannot: lost(),
 *            valid_for(), owner(), release() with its result. It may move to
 *            another thread.
 * Owner      lock() and unlock() act for the calling thread, unless the mutex
 *            was made for an owner of its own (with_owner). A hold that was
 *            acquired async has an owner of its own.
 * Time       std::chrono. A wait of zero or less tries once. A fraction of a
 *            millisecond is rounded up. Zero in an option is the C default.
 * Errors     A function throws dibs::error, or fills a std::error_code if it
 *            is given one. Codes compare with dibs_err: ec == DIBS_ERR_LOST.
 *            try functions answer false to BUSY and TIMEOUT and to nothing
 *            else: a server that is away is an error, not a "no".
 * Loss       unlock() and a guard's destructor cannot report. If they find that
 *            the lock was lost, they call on_lost: that of the hold, of the
 *            mutex, or of the client, whichever is there first. If there is
 *            none they call std::terminate with a dibs::error at hand: work
 *            was done without the lock, and nobody else would know. The same
 *            happens to a std::thread that nobody joined. A hold that told its
 *            user before (lost(), state(), valid_for()) stays quiet.
 * on_lost    Is called once for each hold that was lost, either at once by the
 *            library or by the unlock that finds out first. The callable is
 *            kept alive until the hold is given back, whatever happens to the
 *            mutex. It must not throw; an exception ends the program.
 * Lifetimes  A lock or hold may outlive its client: its calls then answer
 *            DIBS_ERR_CLOSED. ~client closes, and so releases all that is held,
 *            and runs the callbacks that still wait. Never end a client from
 *            inside a callback.
 * Threads    A mutex and a client may be used by all threads at once, a hold by
 *            one at a time.
 */
#ifndef DIBS_DIBS_HPP
#define DIBS_DIBS_HPP

#include <dibs/cpp/error.hpp>

#include <dibs/cpp/client.hpp>

#include <dibs/cpp/lock.hpp>

#include <dibs/cpp/hold.hpp>

#include <dibs/cpp/kinds.hpp>

#include <dibs/cpp/await.hpp>

#endif
