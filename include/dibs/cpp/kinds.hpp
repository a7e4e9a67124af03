/* SPDX-License-Identifier: MIT
 *
 * kinds.hpp - part of dibs.hpp: the kinds of locks. Each is made for a client
 * and a name, and is a handle: all handles of a name are the same lock. What it
 * can do is in lockable.
 */
#ifndef DIBS_CPP_KINDS_HPP
#define DIBS_CPP_KINDS_HPP

#include <dibs/cpp/hold.hpp>

namespace dibs
{

/* One member of a group, as this owner's last acquire left it. */
struct member {
    std::string name;
    std::string server;
    std::error_code verdict;
    dibs_state state;
    milliseconds valid_for;
};

namespace detail
{

/* fn(client, name, len, out) is the C function that makes the handle. */
template <class F>
state_ptr make_state(const client &c, std::string_view name, F fn)
{
    auto state = std::make_shared<lock_state>();

    state->client = c.state();
    state->name = name;
    check(fn(c.get(), state->name.data(), state->name.size(), &state->l),
          state->name);
    return state;
}

/* For C functions that end a name at its first NUL: no name may be cut. */
template <class F>
state_ptr make_named(const client &c, std::string_view name, F fn)
{
    return make_state(
        c, name,
        [fn](dibs_client *cl, const char *s, std::size_t len, dibs_lock **out) {
            if (std::string_view(s).size() != len)
                throw error(make_error_code(DIBS_ERR_INVALID),
                            "the name of this kind has no NUL bytes");
            return fn(cl, s, out);
        });
}

using group_fn = dibs_err (*)(dibs_lock *const *, std::size_t, dibs_lock **);

inline state_ptr make_group(const std::vector<const lockable *> &members,
                            group_fn fn)
{
    auto state = std::make_shared<lock_state>();
    std::vector<dibs_lock *> handles;

    for (const lockable *m : members) {
        handles.push_back(m->get());
        state->others.push_back(m->shared_state()->client);
        for (const auto &other : m->shared_state()->others)
            state->others.push_back(other);
        state->name += (state->name.empty() ? "" : ",") + m->name();
    }
    if (!members.empty())
        state->client = state->others.front();
    check(fn(handles.data(), handles.size(), &state->l), state->name);
    return state;
}

} // namespace detail

/* The plain lock. */
class mutex : public lockable
{
public:
    mutex(const client &c, std::string_view name, lock_options o = {})
        : lockable(detail::make_state(c, name, dibs_lock_new_bytes),
                   std::move(o))
    {
    }

    /* The same lock for an owner that is no thread: locked on one thread, it
     * may be unlocked on another. Lock and unlock by the same object. */
    mutex with_owner(dibs_owner owner) const
    {
        return mutex(shared_state(), options_of(owner));
    }

private:
    using lockable::lockable;
};

/* Granted in the order in which it was asked for. */
class fair_mutex : public lockable
{
public:
    fair_mutex(const client &c, std::string_view name, lock_options o = {})
        : lockable(detail::make_state(c, name, dibs_fair_lock_new_bytes),
                   std::move(o))
    {
    }

    fair_mutex with_owner(dibs_owner owner) const
    {
        return fair_mutex(shared_state(), options_of(owner));
    }

private:
    using lockable::lockable;
};

#ifdef DIBS_HAS_FENCED
/* The plain lock with a token that only grows. */
class fenced_mutex : public lockable
{
public:
    fenced_mutex(const client &c, std::string_view name, lock_options o = {})
        : lockable(detail::make_named(c, name, dibs_fenced_lock_new),
                   std::move(o))
    {
    }

    fenced_mutex with_owner(dibs_owner owner) const
    {
        return fenced_mutex(shared_state(), options_of(owner));
    }

    /* Of the hold of this owner. */
    std::int64_t token(dibs_owner owner = 0) const
    {
        std::int64_t n = 0;
        const dibs_owner who = owner != 0 ? owner : options().owner;
        detail::check(dibs_lock_token(get(), who, &n), name());
        return n;
    }

private:
    using lockable::lockable;
};
#endif

#ifdef DIBS_HAS_SLOTS
/* At most so many holders. */
class slots : public lockable
{
public:
    slots(const client &c, std::string_view name, std::int64_t count,
          lock_options o = {})
        : lockable(
              detail::make_named(
                  c, name,
                  [count](dibs_client *cl, const char *s, dibs_lock **out) {
                      return dibs_slots_lock_new(cl, s, count, out);
                  }),
              std::move(o))
    {
    }

    slots with_owner(dibs_owner owner) const
    {
        return slots(shared_state(), options_of(owner));
    }

    /* Which of them this owner has, from 0. */
    std::int64_t slot(dibs_owner owner = 0) const
    {
        std::int64_t n = 0;
        const dibs_owner who = owner != 0 ? owner : options().owner;
        detail::check(dibs_lock_slot(get(), who, &n), name());
        return n;
    }

private:
    using lockable::lockable;
};
#endif

/* Many readers, or one writer. As a lockable it is the write lock; reader() is
 * the other half. Meets SharedTimedLockable. */
class shared_mutex : public lockable
{
public:
    shared_mutex(const client &c, std::string_view name, lock_options o = {})
        : lockable(detail::make_named(c, name, dibs_write_lock_new), o),
          reader_(detail::make_named(c, name, dibs_read_lock_new), std::move(o))
    {
    }

    shared_mutex with_owner(dibs_owner owner) const
    {
        return shared_mutex(shared_state(), reader_.shared_state(),
                            options_of(owner));
    }

    void lock_shared() { reader_.lock(); }
    void lock_shared(std::error_code &ec) { reader_.lock(ec); }
    bool try_lock_shared() { return reader_.try_lock(); }
    bool try_lock_shared(std::error_code &ec) { return reader_.try_lock(ec); }
    template <class Rep, class Period, class... Ec>
    bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &d,
                             Ec &...ec)
    {
        return reader_.try_lock_for(d, ec...);
    }
    template <class Clock, class Duration, class... Ec>
    bool
    try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &t,
                          Ec &...ec)
    {
        return reader_.try_lock_until(t, ec...);
    }
    void unlock_shared() noexcept { reader_.unlock(); }
    void unlock_shared(std::error_code &ec) noexcept { reader_.unlock(ec); }

    /* For a hold, or to be a member. */
    lockable &reader() noexcept { return reader_; }
    const lockable &reader() const noexcept { return reader_; }

private:
    struct half : lockable {
        half(detail::state_ptr state, lock_options o)
            : lockable(std::move(state), std::move(o))
        {
        }
    };

    shared_mutex(detail::state_ptr write, detail::state_ptr read,
                 const lock_options &o)
        : lockable(std::move(write), o), reader_(std::move(read), o)
    {
    }

    half reader_;
};

/* Several locks as one; see dibs_multi_lock_new. Better than std::scoped_lock
 * over several: one command where that asks and gives back, no back-off, and a
 * loss of one is a loss of all. */
class group_mutex : public lockable
{
public:
    std::vector<member> members(dibs_owner owner = 0) const
    {
        const dibs_owner who = owner != 0 ? owner : options().owner;
        std::vector<member> all;
        dibs_member m = DIBS_MEMBER_INIT;

        for (std::size_t i = 0; dibs_lock_members(get(), i, who, &m) == DIBS_OK;
             i++)
            all.push_back(member{std::string(m.name, m.name_len), m.server,
                                 make_error_code(m.verdict), m.state,
                                 milliseconds(m.valid_ms)});
        return all;
    }

protected:
    using lockable::lockable;
};

class multi_mutex : public group_mutex
{
public:
    explicit multi_mutex(const std::vector<const lockable *> &all,
                         lock_options o = {})
        : group_mutex(detail::make_group(all, dibs_multi_lock_new),
                      std::move(o))
    {
    }
    template <class... More>
    multi_mutex(const lockable &one, const lockable &two, const More &...more)
        : multi_mutex(std::vector<const lockable *>{&one, &two, &more...})
    {
    }

    multi_mutex with_owner(dibs_owner owner) const
    {
        return multi_mutex(shared_state(), options_of(owner));
    }

private:
    using group_mutex::group_mutex;
};

/* More than half of several; see dibs_quorum_lock_new. */
class quorum_mutex : public group_mutex
{
public:
    explicit quorum_mutex(const std::vector<const lockable *> &all,
                          lock_options o = {})
        : group_mutex(detail::make_group(all, dibs_quorum_lock_new),
                      std::move(o))
    {
    }

    quorum_mutex with_owner(dibs_owner owner) const
    {
        return quorum_mutex(shared_state(), options_of(owner));
    }

private:
    using group_mutex::group_mutex;
};

} // namespace dibs

#endif
