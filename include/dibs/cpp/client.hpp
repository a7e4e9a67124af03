/* SPDX-License-Identifier: MIT
 *
 * client.hpp - part of dibs.hpp: the client and its options.
 *
 * A client is one owner of a shared state; locks and holds are others. So the C
 * client is freed when the last of them is gone, and no call can meet a client
 * that is not there any more. It is closed when the client object ends.
 */
#ifndef DIBS_CPP_CLIENT_HPP
#define DIBS_CPP_CLIENT_HPP

#include <dibs/cpp/error.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace dibs
{

/* What a log would say; see dibs_event. The text is valid during the call. */
struct event {
    dibs_event_kind kind;
    std::error_code code;
    std::string_view text;
};

/* A hold that ended without a release: code is DIBS_ERR_LOST. With another
 * code, unlock() could not give back one of several holds of this owner, and
 * the owner still holds the lock. The name is valid during the call. */
struct loss {
    std::string_view name;
    dibs_owner owner;
    std::error_code code;
};

using event_fn = std::function<void(const event &)>;
using lost_fn = std::function<void(const loss &)>;

/* As dibs_client_opts, which says what each means. Zero and empty are the
 * defaults. */
struct client_options {
    milliseconds command_timeout{};
    milliseconds connect_timeout{};
    milliseconds lease{};
    unsigned max_connections{};
    bool dispatch{}; /* callbacks run in dispatch() */
    bool lazy{};
    std::string user{};
    std::string password{};
    std::string client_name{};
    event_fn on_event{};
    lost_fn on_lost{}; /* of locks that have none of their own */
    milliseconds fair_wait{};
    milliseconds fair_call{};
    bool prefer_readers{};
    std::string tls_ca{};
    std::string tls_cert{};
    std::string tls_key{};
    std::string tls_sni{};
    bool tls_insecure{};
    int replicas{};
    std::string sentinel_user{};
    std::string sentinel_password{};
    dibs_pubsub pubsub{};
    /* Fields of the C struct that have no name here. */
    dibs_client_opts more = DIBS_CLIENT_OPTS_INIT;
};

/* What the server says of a lock; see dibs_lock_info. */
struct lock_info {
    bool locked{};
    dibs_mode mode{};
    std::optional<milliseconds> ttl{}; /* none: it never ends by itself */
    std::int64_t holds{};
    std::size_t owners{};
    std::size_t waiters{};
    std::string owner{};
};

namespace detail
{

/* Something that the library may call back with, and that nobody else has any
 * more. It goes when the library cannot call any more. */
class orphan
{
public:
    virtual void drop() noexcept = 0;

protected:
    ~orphan() = default;
};

struct client_state {
    dibs_client *c = nullptr;
    event_fn on_event;
    lost_fn on_lost;
    std::mutex mu;
    std::vector<orphan *> orphans;

    client_state() = default;
    client_state(const client_state &) = delete;
    client_state &operator=(const client_state &) = delete;
    ~client_state()
    {
        if (c) /* no call after an open that failed: its reason is kept */
            dibs_client_free(c);
        for (orphan *o : orphans)
            o->drop();
    }

    static void event_hook(const dibs_event *ev, void *arg) noexcept
    {
        try {
            static_cast<client_state *>(arg)->on_event(
                event{ev->kind, make_error_code(ev->err), ev->text});
        } catch (...) {
            std::terminate(); /* inside, where the exception can be seen */
        }
    }
};

inline const char *text_or_null(const std::string &s)
{
    return s.empty() ? nullptr : s.c_str();
}

/* Points into o, which must live as long. */
inline dibs_client_opts c_options(const client_options &o, client_state &state)
{
    dibs_client_opts c = o.more;

    c.command_timeout_ms = o.command_timeout.count();
    c.connect_timeout_ms = o.connect_timeout.count();
    c.lease_ms = o.lease.count();
    c.max_connections = o.max_connections;
    c.callbacks = o.dispatch ? DIBS_CALLBACKS_DISPATCH : DIBS_CALLBACKS_THREAD;
    c.lazy = o.lazy;
    c.user = text_or_null(o.user);
    c.password = text_or_null(o.password);
    c.client_name = text_or_null(o.client_name);
    if (o.on_event) {
        c.on_event = client_state::event_hook;
        c.event_arg = &state;
    }
    c.fair_wait_ms = o.fair_wait.count();
    c.fair_call_ms = o.fair_call.count();
    c.prefer_readers = o.prefer_readers;
    c.tls_ca = text_or_null(o.tls_ca);
    c.tls_cert = text_or_null(o.tls_cert);
    c.tls_key = text_or_null(o.tls_key);
    c.tls_sni = text_or_null(o.tls_sni);
    c.tls_insecure = o.tls_insecure;
    c.replicas = o.replicas;
    c.sentinel_user = text_or_null(o.sentinel_user);
    c.sentinel_password = text_or_null(o.sentinel_password);
    c.pubsub = o.pubsub;
    return c;
}

inline lock_info cpp_info(const dibs_lock_info &c)
{
    lock_info info;

    info.locked = c.locked;
    info.mode = c.mode;
    if (c.ttl_ms >= 0)
        info.ttl = milliseconds(c.ttl_ms);
    info.holds = c.holds;
    info.owners = c.owners;
    info.waiters = c.waiters;
    info.owner = c.owner;
    return info;
}

/* A callable that C calls for each of many things. No exception may pass
 * through C: it is kept, ends the walk, and is thrown when C has returned. */
template <class F> struct visitor {
    F &fn;
    std::exception_ptr thrown{};

    template <class... Args> bool visit(Args &&...args) noexcept
    {
        try {
            using result = decltype(fn(std::forward<Args>(args)...));
            if constexpr (std::is_void_v<result>) {
                fn(std::forward<Args>(args)...);
                return true;
            } else {
                return static_cast<bool>(fn(std::forward<Args>(args)...));
            }
        } catch (...) {
            thrown = std::current_exception();
            return false;
        }
    }

    void rethrow() const
    {
        if (thrown)
            std::rethrow_exception(thrown);
    }
};

} // namespace detail

/* One program's access to one server, sentinels or cluster. Move-only; an empty
 * one is of no use but to be assigned to. */
class client
{
public:
    client() noexcept = default;

    explicit client(const std::string &url, const client_options &o = {})
    {
        detail::check(open(url, o), "");
    }

    /* Empty if ec is set. */
    client(const std::string &url, const client_options &o, std::error_code &ec)
    {
        ec = open(url, o);
    }

    client(client &&other) noexcept = default;

    client &operator=(client &&other) noexcept
    {
        if (this != &other) {
            end();
            state_ = std::move(other.state_);
        }
        return *this;
    }

    ~client() { end(); }

    explicit operator bool() const noexcept { return state_ != nullptr; }

    /* Releases all that is held. DIBS_ERR_UNKNOWN: closed, but not every
     * release was confirmed in time (zero: 5 seconds). */
    void close(milliseconds timeout = {})
    {
        detail::check(dibs_client_close(get(), timeout.count()), "close");
    }
    void close(milliseconds timeout, std::error_code &ec) noexcept
    {
        ec = dibs_client_close(get(), timeout.count());
    }

    std::string_view id() const noexcept { return dibs_client_id(get()); }

    /* With the option dispatch: a descriptor to watch, and the call that runs
     * the callbacks that wait. */
    int fd() const noexcept { return dibs_client_fd(get()); }
    int dispatch() noexcept { return dibs_client_dispatch(get()); }

#ifdef DIBS_HAS_STATS
    /* What it counted and measured until now. */
    dibs_stats stats() const
    {
        dibs_stats now = DIBS_STATS_INIT;
        detail::check(dibs_client_stats(get(), &now), "stats");
        return now;
    }
#endif

    /* An owner that is no thread, and the number of this thread. */
    dibs_owner new_owner() noexcept
    {
        return dibs_owner_new(get());
    }
    dibs_owner this_owner() noexcept
    {
        return dibs_owner_thread(get());
    }

    /* Calls fn(std::string_view name, const lock_info &) for each lock. fn may
     * return false to stop. An empty pattern is all. */
    template <class F> void list(const std::string &pattern, F &&fn)
    {
        detail::visitor<F> v{fn};
        dibs_err err = dibs_client_list(
            get(), detail::text_or_null(pattern),
            [](const char *name, std::size_t len, const dibs_lock_info *info,
               void *arg) {
                return static_cast<detail::visitor<F> *>(arg)->visit(
                    std::string_view(name, len), detail::cpp_info(*info));
            },
            &v);
        v.rethrow();
        detail::check(err, "list");
    }

    /* Calls fn(std::string_view check, dibs_verdict, std::string_view text) for
     * each finding. fn may return false to stop. */
    template <class F> void doctor(const std::string &name, F &&fn)
    {
        detail::visitor<F> v{fn};
        dibs_err err = dibs_client_doctor(
            get(), detail::text_or_null(name),
            [](const char *check, dibs_verdict verdict, const char *text,
               void *arg) {
                return static_cast<detail::visitor<F> *>(arg)->visit(
                    std::string_view(check), verdict, std::string_view(text));
            },
            &v);
        v.rethrow();
        detail::check(err, "doctor");
    }

    dibs_client *get() const noexcept
    {
        return state_ ? state_->c : nullptr;
    }

    const std::shared_ptr<detail::client_state> &state() const noexcept
    {
        return state_;
    }

private:
    dibs_err open(const std::string &url, const client_options &o)
    {
        auto state = std::make_shared<detail::client_state>();
        state->on_event = o.on_event;
        state->on_lost = o.on_lost;
        dibs_client_opts c = detail::c_options(o, *state);
        dibs_err err = dibs_client_open(url.c_str(), &c, &state->c);
        if (err == DIBS_OK)
            state_ = std::move(state);
        return err;
    }

    /* What ended because of the close waits to be dispatched. */
    void end() noexcept
    {
        if (!state_)
            return;
        (void)dibs_client_close(state_->c, 0);
        while (dibs_client_dispatch(state_->c) > 0)
            ;
        state_.reset();
    }

    std::shared_ptr<detail::client_state> state_;
};

} // namespace dibs

#endif
