/* SPDX-License-Identifier: MIT
 *
 * hold.hpp - part of dibs.hpp: the guard.
 *
 * A hold is empty, or has something to give back:
 *
 *   state   what can happen                          next
 *   empty   constructed with a lock, and granted     has
 *   has     moved from; released with any answer;    empty
 *           release_async started; destroyed
 *   has     release refused, and the owner holds     has
 *           the lock more than once; or it could
 *           not begin
 *
 * Whether what it has is still ours is another question: lost().
 */
#ifndef DIBS_CPP_HOLD_HPP
#define DIBS_CPP_HOLD_HPP

#include <dibs/cpp/lock.hpp>

namespace dibs
{

/* One hold, given back at the end of its scope. Movable, to any thread. */
class hold
{
public:
    hold() noexcept = default;

    /* With the options of the mutex, but for the wait. */
    explicit hold(lockable &m)
    {
        lock_options o = m.options();
        o.wait.reset();
        detail::check(take(m, o), m.name());
    }
    /* With these; what they leave zero, the mutex's options say. */
    hold(lockable &m, const lock_options &o)
    {
        detail::check(take(m, o), m.name());
    }
    /* Empty if ec is set. A wait that is over is an error here, too. */
    hold(lockable &m, const lock_options &o, std::error_code &ec)
    {
        ec = take(m, o);
    }
    /* Empty if somebody else has it. */
    hold(lockable &m, std::try_to_lock_t)
    {
        lock_options once = m.options();
        once.wait = milliseconds(0);
        detail::granted(take(m, once), m.name());
    }

    hold(hold &&other) noexcept { swap(other); }
    hold &operator=(hold &&other) noexcept
    {
        hold(std::move(other)).swap(*this);
        return *this;
    }

    /* Gives it back. Cannot report; see unlock(). */
    ~hold()
    {
        if (!held_)
            return;
        bool told = false;
        const dibs_err err = give({}, told);
        if (err != DIBS_OK && !told)
            detail::settle(*state_, owner_, err, hook_);
    }

    void swap(hold &other) noexcept
    {
        state_.swap(other.state_);
        std::swap(owner_, other.owner_);
        hook_.swap(other.hook_);
        std::swap(held_, other.held_);
        seen_ = other.seen_.exchange(seen_);
    }

    /* Something is to be given back. That it is still ours, lost() says. */
    explicit operator bool() const noexcept { return held_; }
    bool owns_lock() const noexcept { return held_; }
    dibs_owner owner() const noexcept { return owner_; }

    /* No I/O, no waiting: ask before each step that cannot be undone. A program
     * that was told of a loss by one of these is not told again at the end. */
    bool lost() const noexcept { return state() == DIBS_LOST; }
    dibs_state state() const noexcept
    {
        if (!held_)
            return DIBS_NOT_HELD;
        const dibs_state now = dibs_lock_state(state_->l, owner_);
        if (now == DIBS_LOST)
            seen_ = true;
        return now;
    }
    milliseconds valid_for() const noexcept
    {
        if (state() == DIBS_LOST || !held_)
            return milliseconds(0);
        const milliseconds left(dibs_lock_valid_ms(state_->l, owner_));
        if (left.count() == 0)
            seen_ = true;
        return left;
    }

#ifdef DIBS_HAS_FENCED
    /* Grows with each grant: give it to what the lock protects. */
    std::int64_t token() const
    {
        std::int64_t n = 0;
        detail::check(dibs_lock_token(get(), owner_, &n), name());
        return n;
    }
#endif
#ifdef DIBS_HAS_SLOTS
    std::int64_t slot() const
    {
        std::int64_t n = 0;
        detail::check(dibs_lock_slot(get(), owner_, &n), name());
        return n;
    }
#endif

    /* Gives it back and says what became of it. DIBS_ERR_LOST: somebody else
     * may have had it since. Afterwards the hold is empty, unless the server
     * refused to give back one of several holds of this owner, or the release
     * of a group had no memory to begin. An empty one is DIBS_ERR_NOT_OWNER. */
    void release(const release_options &o = {})
    {
        bool told = false;
        detail::check(give(o, told), name());
    }
    void release(std::error_code &ec) noexcept
    {
        release({}, ec);
    }
    void release(const release_options &o, std::error_code &ec) noexcept
    {
        bool told = false;
        ec = give(o, told);
    }

    /* Calls fn(std::error_code) once, in a callback. Empty at once, unless this
     * throws or sets ec. */
    template <class F> void release_async(F fn)
    {
        detail::check(start_release(std::move(fn)), name());
    }
    template <class F> void release_async(F fn, std::error_code &ec)
    {
        ec = start_release(std::move(fn));
    }

private:
    friend class lockable;

    /* What o does not say, the mutex does. The owner gets its number, so that
     * the hold can travel. */
    static lock_options merged(const lockable &m, const lock_options &o)
    {
        const lock_options &base = m.options();
        lock_options all = o;

        if (!all.on_lost)
            all.on_lost = base.on_lost;
        if (all.lease.count() == 0)
            all.lease = base.lease;
        if (all.max_hold.count() == 0)
            all.max_hold = base.max_hold;
        if (all.member.count() == 0)
            all.member = base.member;
        if (all.replicas == 0)
            all.replicas = base.replicas;
        if (all.replicas_timeout.count() == 0)
            all.replicas_timeout = base.replicas_timeout;
        all.owner = m.shared_state()->number(o.owner ? o.owner : base.owner);
        return all;
    }

    dibs_lock *get() const noexcept
    {
        return state_ ? state_->l : nullptr;
    }
    const std::string &name() const
    {
        static const std::string none;
        return state_ ? state_->name : none;
    }

    /* Fills in all but held_, for an acquire with these options. */
    void prepare(const lockable &m, const lock_options &all)
    {
        state_ = m.shared_state();
        owner_ = all.owner;
        hook_ = detail::make_hook(all, *state_);
    }

    static std::int64_t wait_of(const lock_options &o)
    {
        return o.wait ? detail::wait_of(*o.wait) : detail::no_limit;
    }

    dibs_err take(const lockable &m, const lock_options &o)
    {
        const lock_options all = merged(m, o);

        prepare(m, all);
        const dibs_err err = detail::acquire(*state_, detail::c_options(all),
                                             wait_of(all), hook_);
        held_ = err == DIBS_OK;
        return err;
    }

    dibs_err give(const release_options &o, bool &told) noexcept
    {
        if (!held_)
            return DIBS_ERR_NOT_OWNER;
        dibs_lock_opts c = DIBS_LOCK_OPTS_INIT;
        c.owner = owner_;
        c.wait_ms = o.limit.count();
        c.keep_ms = o.keep.count();
        const dibs_err err = dibs_lock_release(state_->l, &c);
        held_ = detail::still_held(*state_, owner_, err);
        if (err == DIBS_ERR_LOST)
            told = seen_ || (hook_ && hook_->was_told(owner_));
        detail::take_back(hook_);
        return err;
    }

    template <class F> struct acquire_op;
    template <class F> struct release_op;
    template <class F>
    static dibs_err start_acquire(lockable &m, lock_options o, F fn);
    template <class F> dibs_err start_release(F fn);

    detail::state_ptr state_;
    dibs_owner owner_ = 0;
    detail::hook_ptr hook_;
    bool held_ = false;
    mutable std::atomic<bool> seen_{false};
};

/* ---- async: what a callback needs, on the heap until it has run ---------- */

template <class F> struct hold::acquire_op {
    hold h;
    F fn;

    static void done(dibs_err err, void *arg) noexcept
    {
        const std::unique_ptr<acquire_op> op(static_cast<acquire_op *>(arg));
        op->h.held_ = err == DIBS_OK;
        if (err != DIBS_OK)
            detail::take_back(op->h.hook_);
        op->fn(make_error_code(err),
               err == DIBS_OK ? std::move(op->h) : hold());
    }
};

template <class F>
dibs_err hold::start_acquire(lockable &m, lock_options o, F fn)
{
    if (o.owner == 0 && m.options().owner == 0)
        o.owner = dibs_owner_new(m.shared_state()->client->c);
    const lock_options all = merged(m, o);
    const detail::state_ptr keep = m.shared_state(); /* during the call */
    std::unique_ptr<acquire_op<F>> op(new acquire_op<F>{hold(), std::move(fn)});
    op->h.prepare(m, all);
    dibs_lock_opts c = detail::c_options(all);
    detail::lend(c, op->h.hook_);
    const std::int64_t wait = wait_of(all);
    c.wait_ms = wait == detail::no_limit ? 0 : wait;
    const auto start = wait == detail::try_once ? dibs_lock_try_async
                                                : dibs_lock_acquire_async;
    const dibs_err err = start(keep->l, &c, acquire_op<F>::done, op.get());
    if (err == DIBS_OK)
        (void)op.release(); /* the callback has it, or had it already */
    else
        detail::take_back(op->h.hook_);
    return err;
}

/* If one of several holds could not be given back, the end of the operation
 * tries once more, and then does what ~hold does. */
template <class F> struct hold::release_op {
    hold h;
    F fn;

    static void done(dibs_err err, void *arg) noexcept
    {
        const std::unique_ptr<release_op> op(static_cast<release_op *>(arg));
        detail::take_back(op->h.hook_);
        op->h.held_ = detail::still_held(*op->h.state_, op->h.owner_, err);
        op->fn(make_error_code(err));
    }
};

template <class F> dibs_err hold::start_release(F fn)
{
    if (!held_)
        return DIBS_ERR_NOT_OWNER;
    std::unique_ptr<release_op<F>> op(new release_op<F>{hold(), std::move(fn)});
    dibs_lock_opts c = DIBS_LOCK_OPTS_INIT;
    c.owner = owner_;
    const detail::state_ptr keep = state_; /* during the call */
    op->h.swap(*this);
    const dibs_err err =
        dibs_lock_release_async(keep->l, &c, release_op<F>::done, op.get());
    if (err == DIBS_OK)
        (void)op.release(); /* the callback has it, or had it already */
    else
        swap(op->h);
    return err;
}

inline hold lockable::acquire(const lock_options &o)
{
    return hold(*this, o);
}

inline hold lockable::acquire(const lock_options &o, std::error_code &ec)
{
    return hold(*this, o, ec);
}

inline hold lockable::acquire()
{
    return hold(*this);
}

inline hold lockable::try_acquire(milliseconds wait)
{
    lock_options o;
    std::error_code ec;

    o.wait = wait;
    hold h(*this, o, ec);
    if (ec && ec != DIBS_ERR_BUSY && ec != DIBS_ERR_TIMEOUT)
        detail::fail(static_cast<dibs_err>(ec.value()), name());
    return h;
}

template <class F> void lockable::acquire_async(const lock_options &o, F fn)
{
    detail::check(hold::start_acquire(*this, o, std::move(fn)), name());
}

template <class F>
void lockable::acquire_async(const lock_options &o, F fn, std::error_code &ec)
{
    ec = hold::start_acquire(*this, o, std::move(fn));
}

} // namespace dibs

#endif
