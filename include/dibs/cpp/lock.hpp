/* SPDX-License-Identifier: MIT
 *
 * lock.hpp - part of dibs.hpp: what all kinds of locks share.
 *
 * on_lost and lifetimes. The library gets a pointer to a lost_hook with each
 * acquire, and may use it until the release of that hold has returned. So the
 * hook is counted: one reference is the mutex's or the hold's own, one belongs
 * to each acquire and is dropped after its release. A mutex that ends while it
 * is held leaves its hook to the client, which drops it after the C client is
 * gone. (Of a group of several clients, which may end in any order, the hook
 * then stays for ever.)
 *
 * Told once. The library calls on_lost, or the release finds out first, and
 * either way the release says LOST. The hook writes down whom it has told, so
 * that unlock() tells the others and nobody twice.
 *
 * What an unlock() can end with, and what it does then:
 *
 *   OK                     nothing
 *   UNKNOWN, CLOSED,       nothing: it counts as given back, and the client's
 *   FORKED, refused        event says what happened
 *   LOST                   on_lost, unless it was told before; none: terminate
 *   refused, still held    on_lost with that code; none: terminate
 *   NOT_OWNER              terminate: a lock was unlocked that was not locked
 */
#ifndef DIBS_CPP_LOCK_HPP
#define DIBS_CPP_LOCK_HPP

#include <dibs/cpp/client.hpp>

#include <algorithm>
#include <atomic>

namespace dibs
{

class hold;

/* As dibs_lock_opts, which says what each means. */
struct lock_options {
    std::optional<milliseconds> wait{}; /* none: no limit; zero: try */
    milliseconds lease{};               /* zero: renewed until released */
    dibs_owner owner{};                 /* zero: the calling thread */
    lost_fn on_lost{};
    milliseconds max_hold{};
    milliseconds member{};
    int replicas{};
    milliseconds replicas_timeout{};
    /* Fields of the C struct that have no name here. */
    dibs_lock_opts more = DIBS_LOCK_OPTS_INIT;
};

struct release_options {
    milliseconds limit{}; /* longest time to spend; zero: two commands' worth */
    milliseconds keep{};  /* leave it taken, by nobody, for so long */
};

/* Who holds a lock, and who waits in the queue of a fair one. */
struct holder {
    std::string owner;
    dibs_mode mode;
    std::int64_t holds;
    milliseconds remaining; /* -1: no limit; -2: over, it does not count */
};
struct waiter {
    std::string owner;
    milliseconds remaining; /* -1: nobody knows */
};

namespace detail
{

class lost_hook final : orphan
{
public:
    explicit lost_hook(lost_fn fn) : fn_(std::move(fn)) {}

    /* The mutex or hold ends. */
    void retire(client_state *client) noexcept
    {
        if (lent_.load() == 0) {
            unref();
            return;
        }
        if (!client)
            return; /* stays for ever */
        try {
            const std::lock_guard<std::mutex> guard(client->mu);
            client->orphans.push_back(this);
        } catch (const std::bad_alloc &) {
        }
    }

    void ref() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
    void unref() noexcept
    {
        if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

    /* A reference for the library. One comes back only if one is out there: a
     * lock may be unlocked by another object than the one that locked it. */
    void lend() noexcept
    {
        ref();
        lent_.fetch_add(1, std::memory_order_relaxed);
    }
    void take_back() noexcept
    {
        long lent = lent_.load(std::memory_order_relaxed);
        do {
            if (lent == 0)
                return;
        } while (!lent_.compare_exchange_weak(lent, lent - 1));
        unref();
    }

    void tell(const loss &what) noexcept
    {
        try {
            fn_(what);
        } catch (...) {
            std::terminate(); /* inside, where the exception can be seen */
        }
    }

    /* Was this owner told of a loss that no release has taken note of? */
    bool was_told(dibs_owner owner) noexcept
    {
        const std::lock_guard<std::mutex> guard(mu_);
        const auto at = std::find(told_.begin(), told_.end(), owner);
        if (at == told_.end())
            return false;
        told_.erase(at);
        return true;
    }

    /* What the library calls. The callable may well give back the hold, and so
     * the last reference but this one. */
    static void on_lost(const char *name, dibs_owner owner, void *arg) noexcept
    {
        auto *hook = static_cast<lost_hook *>(arg);
        hook->ref();
        hook->note(owner);
        hook->tell(loss{name, owner, make_error_code(DIBS_ERR_LOST)});
        hook->unref();
    }

private:
    ~lost_hook() = default;

    void drop() noexcept override
    {
        while (lent_.load() > 0)
            take_back();
        unref();
    }

    /* Without memory it is told twice, which is better than never. */
    void note(dibs_owner owner) noexcept
    {
        try {
            const std::lock_guard<std::mutex> guard(mu_);
            told_.push_back(owner);
        } catch (const std::bad_alloc &) {
        }
    }

    std::atomic<long> refs_{1};
    std::atomic<long> lent_{0}; /* of these, the library's */
    std::mutex mu_;
    std::vector<dibs_owner> told_;
    const lost_fn fn_;
};

struct hook_retire {
    client_state *client = nullptr; /* outlives the hook; of one client only */

    void operator()(lost_hook *hook) const noexcept { hook->retire(client); }
};
using hook_ptr = std::unique_ptr<lost_hook, hook_retire>;

struct lock_state {
    std::shared_ptr<client_state> client;
    std::vector<std::shared_ptr<client_state>> others; /* of a group */
    std::string name;
    dibs_lock *l = nullptr;

    lock_state() = default;
    lock_state(const lock_state &) = delete;
    lock_state &operator=(const lock_state &) = delete;
    ~lock_state()
    {
        if (l)
            dibs_lock_free(l);
    }

    /* Whose callbacks are the only ones; none if there are several. */
    client_state *only_client() const noexcept
    {
        for (const auto &other : others)
            if (other != client)
                return nullptr;
        return client.get();
    }

    dibs_owner number(dibs_owner owner) const noexcept
    {
        return owner != 0 ? owner : dibs_owner_thread(client->c);
    }
};
using state_ptr = std::shared_ptr<lock_state>;

/* Not for wait and on_lost. */
inline dibs_lock_opts c_options(const lock_options &o)
{
    dibs_lock_opts c = o.more;

    c.lease_ms = o.lease.count();
    c.owner = o.owner;
    c.max_hold_ms = o.max_hold.count();
    c.member_ms = o.member.count();
    c.replicas = o.replicas;
    c.replicas_timeout_ms = o.replicas_timeout.count();
    return c;
}

/* The callable for these options on this lock: its own, or the client's. */
inline hook_ptr make_hook(const lock_options &o, const lock_state &state)
{
    const lost_fn &fn = o.on_lost ? o.on_lost : state.client->on_lost;

    return fn ? hook_ptr(new lost_hook(fn), hook_retire{state.only_client()})
              : hook_ptr();
}

/* Gives the library a reference to the hook, for one acquire. */
inline void lend(dibs_lock_opts &c, const hook_ptr &hook) noexcept
{
    if (!hook)
        return;
    hook->lend();
    c.on_lost = lost_hook::on_lost;
    c.arg = hook.get();
}

/* That reference comes back: not granted, or released. */
inline void take_back(const hook_ptr &hook) noexcept
{
    if (hook)
        hook->take_back();
}

/* The sync acquire of everybody. */
inline dibs_err acquire(const lock_state &state, dibs_lock_opts c,
                        std::int64_t wait, const hook_ptr &hook) noexcept
{
    lend(c, hook);
    c.wait_ms = wait == no_limit ? 0 : wait;
    const dibs_err err = wait == try_once ? dibs_lock_try(state.l, &c)
                                          : dibs_lock_acquire(state.l, &c);
    if (err != DIBS_OK)
        take_back(hook);
    return err;
}

/* After a release that ended so: must the hold be released once more? One that
 * could not begin (NOMEM) leaves a lost one as it was, too. */
inline bool still_held(const lock_state &state, dibs_owner owner,
                       dibs_err err) noexcept
{
    switch (err) {
    case DIBS_OK:
    case DIBS_ERR_NOT_OWNER:
    case DIBS_ERR_LOST:
    case DIBS_ERR_UNKNOWN:
    case DIBS_ERR_CLOSED:
    case DIBS_ERR_FORKED:
        return false;
    default: /* the last hold counts as given back; one of several does not */
        return dibs_lock_state(state.l, owner) != DIBS_NOT_HELD;
    }
}

/* An unlock() or a destructor ended so, and nobody was told yet. */
inline void settle(const lock_state &state, dibs_owner owner, dibs_err err,
                   const hook_ptr &hook) noexcept
{
    if (err == DIBS_ERR_NOT_OWNER)
        give_up(err, state.name);
    if (err != DIBS_ERR_LOST && !still_held(state, owner, err))
        return;
    if (!hook)
        give_up(err, state.name);
    hook->tell(loss{state.name, owner, make_error_code(err)});
}

/* "No" to a question, or an error. */
inline bool granted(dibs_err err, std::error_code &ec) noexcept
{
    const bool no = err == DIBS_ERR_BUSY || err == DIBS_ERR_TIMEOUT;

    ec = no ? DIBS_OK : err;
    return err == DIBS_OK;
}
inline bool granted(dibs_err err, const std::string &name)
{
    if (err == DIBS_ERR_BUSY || err == DIBS_ERR_TIMEOUT)
        return false;
    check(err, name);
    return true;
}

} // namespace detail

/* What all kinds share. Meets TimedLockable. */
class lockable
{
public:
    lockable(lockable &&) noexcept = default;
    lockable &operator=(lockable &&other) noexcept
    {
        hook_ = std::move(other.hook_); /* first: it may need the old client */
        state_ = std::move(other.state_);
        options_ = std::move(other.options_);
        c_options_ = other.c_options_;
        return *this;
    }
    ~lockable() = default;

    /* ---- as std::timed_mutex ------------------------------------------ */

    void lock() { detail::check(take(detail::no_limit), name()); }
    void lock(std::error_code &ec) { ec = take(detail::no_limit); }

    bool try_lock() { return detail::granted(take(detail::try_once), name()); }
    bool try_lock(std::error_code &ec)
    {
        return detail::granted(take(detail::try_once), ec);
    }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &d)
    {
        return detail::granted(take(detail::wait_of(d)), name());
    }
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &d,
                      std::error_code &ec)
    {
        return detail::granted(take(detail::wait_of(d)), ec);
    }

    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &t)
    {
        return detail::granted(take_until(t), name());
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &t,
                        std::error_code &ec)
    {
        return detail::granted(take_until(t), ec);
    }

    /* Cannot report: the table on top says what happens instead. */
    void unlock() noexcept
    {
        const dibs_owner who = state_->number(options_.owner);
        bool told = false;
        const dibs_err err = give(who, told);
        if (err != DIBS_OK && !told)
            detail::settle(*state_, who, err, hook_);
    }
    /* Can. on_lost is not called then. */
    void unlock(std::error_code &ec) noexcept
    {
        bool told = false;
        ec = give(state_->number(options_.owner), told);
    }

    /* ---- with a guard that can tell ------------------------------------- */

    hold acquire();
    hold acquire(const lock_options &o);
    hold acquire(const lock_options &o, std::error_code &ec);
    /* Empty if somebody else has it. */
    hold try_acquire(milliseconds wait = {});

    /* Calls fn(std::error_code, hold) once, in a callback, with a hold that is
     * empty if the code says so. The owner is a new one unless o names one. If
     * this throws, or ec is set, fn is not called. */
    template <class F> void acquire_async(const lock_options &o, F fn);
    template <class F>
    void acquire_async(const lock_options &o, F fn, std::error_code &ec);

    /* ---- what is known, without asking ---------------------------------- */

    dibs_state state(dibs_owner owner = 0) const noexcept
    {
        return dibs_lock_state(get(), who(owner));
    }
    milliseconds valid_for(dibs_owner owner = 0) const noexcept
    {
        return milliseconds(dibs_lock_valid_ms(get(), who(owner)));
    }
    std::int64_t holds(dibs_owner owner = 0) const noexcept
    {
        return dibs_lock_holds(get(), who(owner));
    }
    std::string owner_text(dibs_owner owner = 0) const
    {
        char text[DIBS_OWNER_MAX];
        detail::check(
            dibs_lock_owner_text(get(), who(owner), text, sizeof text), name());
        return text;
    }
    const std::string &name() const noexcept { return state_->name; }

    /* ---- what the server says ------------------------------------------- */

    lock_info info() const
    {
        dibs_lock_info c = DIBS_LOCK_INFO_INIT;
        detail::check(dibs_lock_info_get(get(), &c), name());
        return detail::cpp_info(c);
    }
    lock_info info(std::error_code &ec) const
    {
        dibs_lock_info c = DIBS_LOCK_INFO_INIT;
        ec = dibs_lock_info_get(get(), &c);
        return detail::cpp_info(c);
    }

    std::vector<holder> holders() const
    {
        std::vector<holder> all;
        auto fn = [&all](const char *owner, dibs_mode mode, std::int64_t holds,
                         std::int64_t ms) {
            all.push_back(holder{owner, mode, holds, milliseconds(ms)});
        };
        using visitor = detail::visitor<decltype(fn)>;
        visitor v{fn};
        const dibs_err err = dibs_lock_holders(
            get(),
            [](const char *owner, dibs_mode mode, std::int64_t holds,
               std::int64_t ms, void *arg) {
                return static_cast<visitor *>(arg)->visit(owner, mode, holds,
                                                          ms);
            },
            &v);
        v.rethrow();
        detail::check(err, name());
        return all;
    }

    /* From the head; only a fair lock has one. */
    std::vector<waiter> queue() const
    {
        std::vector<waiter> all;
        auto fn = [&all](const char *owner, std::int64_t ms) {
            all.push_back(waiter{owner, milliseconds(ms)});
        };
        using visitor = detail::visitor<decltype(fn)>;
        visitor v{fn};
        const dibs_err err = dibs_lock_queue(
            get(),
            [](std::size_t, const char *owner, std::int64_t ms, void *arg) {
                return static_cast<visitor *>(arg)->visit(owner, ms);
            },
            &v);
        v.rethrow();
        detail::check(err, name());
        return all;
    }

    std::size_t listeners() const
    {
        std::size_t n = 0;
        detail::check(dibs_lock_listeners(get(), &n), name());
        return n;
    }

#ifdef DIBS_HAS_PUBLISH
    /* A text that goes with the hold of this owner; "" takes it back. */
    void publish(const std::string &value, dibs_owner owner = 0)
    {
        detail::check(dibs_lock_publish(get(), owner, value.c_str()), name());
    }
    /* What the present holder published, in any client; "" nothing. */
    std::string published() const
    {
        char text[DIBS_VALUE_MAX + 1];
        detail::check(dibs_lock_published(get(), text, sizeof text), name());
        return text;
    }
#endif

    /* Returns whether anybody held it. With an owner's text: only that one. */
    bool force_release()
    {
        bool was = false;
        detail::check(dibs_lock_force_release(get(), &was), name());
        return was;
    }
    bool force_release(const std::string &owner)
    {
        bool was = false;
        detail::check(dibs_lock_force_release_owner(get(), owner.c_str(), &was),
                      name());
        return was;
    }

    /* Ends the waiting acquires of this owner; false if there are none. */
    bool cancel(dibs_owner owner) noexcept
    {
        return dibs_lock_cancel(get(), owner) == DIBS_OK;
    }

    dibs_lock *get() const noexcept
    {
        return state_->l;
    }
    const detail::state_ptr &shared_state() const noexcept
    {
        return state_;
    }
    const lock_options &options() const noexcept
    {
        return options_;
    }

protected:
    lockable(detail::state_ptr state, lock_options o)
        : state_(std::move(state)), options_(std::move(o)),
          c_options_(detail::c_options(options_)),
          hook_(detail::make_hook(options_, *state_))
    {
    }

    /* For with_owner: the same lock, acting for another owner. */
    lock_options options_of(dibs_owner owner) const
    {
        lock_options o = options_;
        o.owner = owner;
        return o;
    }

private:
    dibs_owner who(dibs_owner owner) const noexcept
    {
        return owner != 0 ? owner : options_.owner;
    }

    dibs_err take(std::int64_t wait) noexcept
    {
        return detail::acquire(*state_, c_options_, wait, hook_);
    }

    /* The clock may be set back meanwhile; then there is time left. */
    template <class Clock, class Duration>
    dibs_err take_until(const std::chrono::time_point<Clock, Duration> &t)
    {
        dibs_err err;
        std::int64_t wait;

        do {
            wait = detail::wait_until(t);
            err = take(wait);
        } while (err == DIBS_ERR_TIMEOUT && wait != detail::try_once &&
                 Clock::now() < t);
        return err;
    }

    dibs_err give(dibs_owner who, bool &told) noexcept
    {
        dibs_lock_opts c = DIBS_LOCK_OPTS_INIT;
        c.owner = who;
        const dibs_err err = dibs_lock_release(get(), &c);
        if (err == DIBS_ERR_NOT_OWNER)
            return err;
        told = err == DIBS_ERR_LOST && hook_ && hook_->was_told(who);
        detail::take_back(hook_);
        return err;
    }

    detail::state_ptr state_;
    lock_options options_;
    dibs_lock_opts c_options_;
    detail::hook_ptr hook_;
};

} // namespace dibs

#endif
