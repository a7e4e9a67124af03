/* SPDX-License-Identifier: MIT
 *
 * dibs.h - distributed locks on Redis and Valkey: the whole public API.
 *
 * Threads    Any function may be called from any thread. Callbacks run on the
 *            client's callback thread, or on yours through
 *            dibs_client_dispatch, with no library mutex held; never on the
 *            thread that renews leases. A callback must return: if a C++
 *            exception or a longjmp leaves it, the program ends, or the
 *            client goes on believing that this thread is inside it.
 * Ownership  X_new and X_open give you an X, X_free takes it back and accepts
 *            NULL. Strings you pass are copied. Strings you get belong to the
 *            object and live as long as it does.
 * Time       All times are int64_t milliseconds and end in _ms. Zero means
 *            the default the field documents; negative values and values
 *            above DIBS_MS_MAX are DIBS_ERR_INVALID.
 * Outcome    DIBS_OK from an acquire call means held, and nothing else does.
 *            Every call answers DIBS_ERR_INVALID to an argument that makes no
 *            sense. dibs_error_text says which and why, and an event does.
 *            A result is written only on DIBS_OK, unless the function says
 *            otherwise.
 * Structs    One that begins with its size may grow at its end. Set the size
 *            to sizeof, by hand or by its macro: then a program works with a
 *            library that is older or newer than its header. Any size from
 *            that of 0.1 (see dibs(3)) up to 65536 is taken, any other is
 *            DIBS_ERR_INVALID. Options that the library does not know must be
 *            zero; of a result it fills what both know. In what the library
 *            hands out, the size is the library's.
 * fork       A child process cannot use its parent's client: every call
 *            answers DIBS_ERR_FORKED and sends nothing. Open a new one there.
 *
 * The library never prints, never exits, never reads the environment and
 * installs no signal handler.
 */
#ifndef DIBS_DIBS_H
#define DIBS_DIBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DIBS_VERSION_MAJOR 0
#define DIBS_VERSION_MINOR 2
#define DIBS_VERSION_PATCH 0

#if defined(__GNUC__)
#define DIBS_API  __attribute__((visibility("default")))
#define DIBS_MUST __attribute__((warn_unused_result))
#else
#define DIBS_API
#define DIBS_MUST
#endif

/* What this version has beyond 0.1, for #ifdef. */
#define DIBS_HAS_FENCED    1
#define DIBS_HAS_SLOTS     1
#define DIBS_HAS_SEMAPHORE 1
#define DIBS_HAS_LATCH     1
#define DIBS_HAS_ADOPT     1
#define DIBS_HAS_PUBLISH   1
#define DIBS_HAS_STATS     1
#define DIBS_HAS_WATCH     1

/* Limits. */
#define DIBS_NAME_MAX     1024                    /* bytes in a lock's name */
#define DIBS_LEASE_MIN_MS 100                     /* shortest lease */
#define DIBS_MS_MAX       INT64_C(31536000000000) /* a thousand years */
#define DIBS_OWNER_MAX    160  /* text of an owner, with its NUL */
#define DIBS_VALUE_MAX    4096 /* bytes that a holder can publish */
#define DIBS_PERMITS_MAX  INT64_C(2147483647) /* of slots and semaphores */

/* ---- errors ------------------------------------------------------------ */

/* Numbers are never reused. */
#define DIBS_ERR_MAP(X)                                                        \
    X(DIBS_OK, 0, "success")                                                   \
    X(DIBS_ERR_INVALID, -1, "invalid argument or option")                      \
    X(DIBS_ERR_NOMEM, -2, "out of memory")                                     \
    X(DIBS_ERR_BUSY, -3, "held by somebody else")                              \
    X(DIBS_ERR_TIMEOUT, -4, "gave up waiting")                                 \
    X(DIBS_ERR_NOT_OWNER, -5, "not held by this owner")                        \
    X(DIBS_ERR_LOST, -6, "was held, but ended before it was released")         \
    X(DIBS_ERR_CONN, -7, "no usable connection; nothing was done")             \
    X(DIBS_ERR_UNKNOWN, -8, "sent, but no reply came: outcome unknown")        \
    X(DIBS_ERR_CLOSED, -9, "client is shutting down")                          \
    X(DIBS_ERR_DEADLOCK, -10, "blocking call made from a dibs callback")       \
    X(DIBS_ERR_WRONGTYPE, -11,                                                 \
      "the key holds something else: not a lock, or a lock of another kind")   \
    X(DIBS_ERR_AUTH, -12, "the server refused our credentials or rights")      \
    X(DIBS_ERR_SERVER, -13, "the server answered with an error")               \
    X(DIBS_ERR_UPGRADE, -14, "asking for write while holding read")            \
    X(DIBS_ERR_FORKED, -15, "client belongs to the parent process")            \
    X(DIBS_ERR_CANCELED, -16, "canceled by dibs_lock_cancel")                  \
    X(DIBS_ERR_PROTOCOL, -17, "the peer does not speak the Redis protocol")    \
    X(DIBS_ERR_REPLICAS, -18, "too few replicas acknowledged it")              \
    X(DIBS_ERR_TLS, -19, "no TLS connection that can be trusted")

typedef enum dibs_err {
#define DIBS_X(name, value, text) name = value,
    DIBS_ERR_MAP(DIBS_X)
#undef DIBS_X
} dibs_err;

DIBS_API const char *dibs_strerror(dibs_err err); /* never NULL */
/* Why the last dibs call that failed on this thread failed, in one line for
 * people: which argument is INVALID and why; for what went wrong at a server,
 * its address and its own words, or the system's ("redis://127.0.0.1:6379:
 * Connection refused"); for a group, the member. Inside the callback of an
 * async call that failed: why that one did. Never NULL; empty if no more is
 * known than the code. No password is in it. It is this thread's own, and valid
 * until its next dibs call. */
DIBS_API const char *dibs_error_text(void);
DIBS_API const char *dibs_version(void); /* "0.2.0" */

/* ---- client ------------------------------------------------------------ */

typedef struct dibs_client dibs_client;
typedef struct dibs_lock dibs_lock;

/* Who holds a lock. 0 stands for the calling thread. */
typedef uint64_t dibs_owner;

/* What a log would say. */
typedef enum dibs_event_kind {
    DIBS_EVENT_CONNECTED = 1, /* a connection is up */
    DIBS_EVENT_DISCONNECTED,  /* a connection failed; text says why. The same
                                 once a minute */
    DIBS_EVENT_ERROR,         /* the server answered with an error; INVALID: an
                                 argument was refused */
    DIBS_EVENT_UNKNOWN,       /* a reply was lost; it is being resolved */
    DIBS_EVENT_SUSPECT,       /* a renewal failed, the lease still runs */
    DIBS_EVENT_LOST,          /* a lock was lost */
    DIBS_EVENT_REAPED,        /* something granted too late was taken back */
    DIBS_EVENT_WARNING,       /* works, but not as well as it could */
    DIBS_EVENT_REPLICAS       /* too few replicas; text says how many */
} dibs_event_kind;

typedef struct dibs_event {
    size_t size; /* of the library's struct: what is beyond is not there */
    dibs_event_kind kind;
    dibs_err err;     /* the error this is about, or DIBS_OK */
    const char *text; /* one line, for people, which begins with the address
                         of the server it is about; valid during the call */
} dibs_event;

typedef void (*dibs_event_cb)(const dibs_event *ev, void *arg);

/* Where callbacks run. */
typedef enum dibs_callbacks {
    DIBS_CALLBACKS_THREAD = 0, /* on a thread of the library's own */
    DIBS_CALLBACKS_DISPATCH    /* inside your dibs_client_dispatch calls */
} dibs_callbacks;

/* How many replicas must have a lock before it counts as taken: a number, or
 * one of these. All that are connected means those that the server has at that
 * moment; if it has none, that is too few. */
#define DIBS_REPLICAS_ALL  (-1)
#define DIBS_REPLICAS_NONE (-2) /* none, whatever the client's default is */
/* How wake-ups travel in a cluster. The same for all clients of a lock, or they
 * do not hear each other and find out by looking. */
typedef enum dibs_pubsub {
    DIBS_PUBSUB_AUTO = 0, /* sharded if the servers can, as Redisson does it */
    DIBS_PUBSUB_CLASSIC,  /* PUBLISH: every node hears every message */
    DIBS_PUBSUB_SHARDED,  /* SPUBLISH: only the lock's node does */
    DIBS_PUBSUB_BOTH      /* to be heard by either */
} dibs_pubsub;

/* Zero is the default of every field but the size. In C, DIBS_CLIENT_OPTS fills
 * it in place. C++ has no compound literals, so the macros ..._OPTS(...) are
 * not there. In both, begin with ..._INIT and set what is wanted:
 *
 *   dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;
 *   o.wait_ms = 500;
 *   err = dibs_lock_acquire(l, &o);
 */
typedef struct dibs_client_opts {
    size_t size;                /* sizeof(dibs_client_opts) */
    int64_t command_timeout_ms; /* wait for one reply; 0 = 3000 */
    int64_t connect_timeout_ms; /* name look-up included; 0 = 3000 */
    int64_t lease_ms;           /* lease of renewed locks; 0 = 30000 */
    unsigned max_connections;   /* for commands, to each server; 0 = 8, at
                                   most 64 */
    dibs_callbacks callbacks;   /* where callbacks run */
    bool lazy;                  /* open without waiting for a connection */
    const char *user;           /* instead of the URL's; NULL = the URL's */
    const char *password;       /* instead of the URL's; NULL = the URL's */
    const char *client_name;    /* for CLIENT LIST; NULL = the program.
                                   Connections are dibs/UUID/HOST/PID/NAME */
    dibs_event_cb on_event;     /* may be NULL */
    void *event_arg;
    int64_t fair_wait_ms; /* fair locks: how long a waiter that shows no
                             sign of life keeps its place; 0 = 300000.
                             The same for all clients of a lock, Redisson
                             ones (fairLockWaitTimeout) included */
    bool prefer_readers;  /* read-write locks: a writer that waits does
                             not keep new readers out */
    /* TLS, instead of what the URL says; NULL = as the URL says. Only for a
     * URL that begins with rediss. The files are read anew for each
     * connection. */
    const char *tls_ca;   /* trusted certificates: a PEM file, or a folder */
    const char *tls_cert; /* our own certificate, with its chain; PEM */
    const char *tls_key;  /* its key; NULL = in the file of the certificate */
    const char *tls_sni;  /* whom to ask for and expect; NULL = the host */
    bool tls_insecure;    /* do not check who answers */
    int replicas;         /* for acquires that do not say; 0 = none */
    const char *sentinel_user;     /* instead of the URL's; NULL = the URL's */
    const char *sentinel_password; /* the same */
    dibs_pubsub pubsub;            /* in a cluster: how wake-ups travel */
    int64_t fair_call_ms; /* fair locks: how long the lock is kept for the
                             first in line when that was called and does not
                             ask, as a stopped process; 0 = 5000, at least
                             100. It queues anew when it wakes */
    bool small_tokens;    /* fenced locks: tokens count from 1, so that they
                             fit into 32 bits. They go back if the server
                             loses its data. The same for all clients of a
                             lock */
} dibs_client_opts;

#ifdef __cplusplus
#define DIBS_CLIENT_OPTS_INIT dibs_client_opts_init()
static inline dibs_client_opts dibs_client_opts_init(void)
{
    dibs_client_opts o = dibs_client_opts();
    o.size = sizeof o;
    return o;
}
#else
#define DIBS_CLIENT_OPTS_INIT                                                  \
    {                                                                          \
        .size = sizeof(dibs_client_opts)                                       \
    }
#define DIBS_CLIENT_OPTS(...)                                                  \
    (&(const dibs_client_opts){.size = sizeof(dibs_client_opts), __VA_ARGS__})
#endif

/* Opens a client. opts may be NULL. Unless opts say lazy, one connection is
 * made, so that a bad address or password shows here. When it fails,
 * dibs_error_text says why, and events that say so reach on_event before this
 * returns, with DIBS_CALLBACKS_DISPATCH on the calling thread. The URL:
 *
 *   redis://[user[:password]@]host[:port][/db]
 *   unix:///path[?db=N]
 *   redis-sentinel://[user[:password]@]host[:port],.../service[?db=N]
 *       the hosts are sentinels; sentinel_user= and sentinel_password= may
 *       follow. The client goes where the master goes.
 *   redis-cluster://[user[:password]@]host[:port],...
 *       some nodes of a cluster; they tell of the others.
 *
 * rediss://, rediss-sentinel:// and rediss-cluster:// are the same over TLS;
 * dibs_client(3) has their query. In all of these valkey may stand for redis
 * (valkey://, valkeys://, valkey-sentinel:// and so on).
 *
 * OK        *out is yours; give it back with dibs_client_free.
 * INVALID   The URL or an option makes no sense; dibs_error_text says which.
 * TLS       The server could not prove who it is, or did not accept our
 *           certificate, or a file for TLS is of no use; the event says which.
 * CONN      No connection within connect_timeout_ms.
 * AUTH      The server refused user, password, or a needed right.
 * PROTOCOL  Whatever answered is not Redis.
 * SERVER    The server answered the set-up with an error.
 */
DIBS_API DIBS_MUST dibs_err dibs_client_open(const char *url,
                                             const dibs_client_opts *opts,
                                             dibs_client **out);

/* Ends the client: refuses new calls, ends pending ones with CLOSED, releases
 * every lock held, ends threads and connections. Calling it again is fine.
 *
 * OK        Everything that was held is released, confirmed by the server.
 * UNKNOWN   Closed, but timeout_ms (0 = 5000) passed before every release
 *           was confirmed; what is left ends with its lease.
 * DEADLOCK  Called from a callback. Nothing was done.
 */
DIBS_API dibs_err dibs_client_close(dibs_client *c, int64_t timeout_ms);

/* Closes if need be, then frees. Must not be called from a callback. */
DIBS_API void dibs_client_free(dibs_client *c);

DIBS_API const char *dibs_client_id(const dibs_client *c); /* the UUID */

/* With DIBS_CALLBACKS_DISPATCH: a descriptor that is readable when callbacks
 * wait, or replies to what they began (-1 without it); and the call that runs
 * them; returns how many ran, which may be none. */
DIBS_API int dibs_client_fd(const dibs_client *c);
DIBS_API int dibs_client_dispatch(dibs_client *c);

/* How long something took, how often. Buckets are powers of two: bucket[0] has
 * what took less than a microsecond, bucket[i] what took less than 2 to the i
 * microseconds and not less than half of that, the last one all that took
 * longer. */
#define DIBS_BUCKETS 40
typedef struct dibs_histogram {
    uint64_t count;  /* all buckets together */
    uint64_t sum_us; /* all times together */
    uint64_t bucket[DIBS_BUCKETS];
} dibs_histogram;

/* What a client did since it was opened. Locks of all kinds count, semaphores,
 * and each member of a group. */
typedef struct dibs_stats {
    size_t size;        /* fill in with sizeof, or use DIBS_STATS_INIT */
    uint64_t acquires;  /* that took the lock; re-entries, too */
    uint64_t tries;     /* calls of dibs_lock_try, whatever they answered */
    uint64_t waits;     /* acquires that had to wait, whatever came of it */
    uint64_t busy;      /* acquires that ended with BUSY */
    uint64_t timeouts;  /* with TIMEOUT */
    uint64_t failures;  /* with another error */
    uint64_t releases;  /* that ended with OK */
    uint64_t handovers; /* of these: to a waiter of this client */
    uint64_t renewals;  /* of one hold each */
    uint64_t renewals_failed; /* tried again */
    uint64_t losses;          /* holds that were lost */
    uint64_t reaped;          /* granted too late, and taken back */
    uint64_t unknown;         /* replies that were lost */
    uint64_t commands;   /* sent; again counts, too. Without those that set up
                            connections, subscribe, and ask other things than
                            locks */
    uint64_t connects;   /* connections for commands that were made */
    uint64_t reconnects; /* a server was reached again */
    uint64_t wakeups;    /* messages that woke waiters */
    dibs_histogram acquire; /* from the call until the lock is taken */
    dibs_histogram wait; /* of those that had to wait: from the call to its end
                          */
    dibs_histogram hold; /* from taking the lock to the begin of its release, or
                            its loss */
    dibs_histogram renew; /* from sending renewals, many at once, to the answer
                           */
} dibs_stats;

#ifdef __cplusplus
#define DIBS_STATS_INIT dibs_stats_init()
static inline dibs_stats dibs_stats_init(void)
{
    dibs_stats s = dibs_stats();
    s.size = sizeof s;
    return s;
}
#else
#define DIBS_STATS_INIT                                                        \
    {                                                                          \
        .size = sizeof(dibs_stats)                                             \
    }
#endif

/* What the client counted and measured until now. No I/O, no waiting; also when
 * the client is closed. The numbers never fall. INVALID also if out->size is
 * not set. */
DIBS_API DIBS_MUST dibs_err dibs_client_stats(dibs_client *c, dibs_stats *out);

/* An owner of its own, not tied to a thread: for async calls, and for locks
 * taken on one thread and released on another. Never 0, never used again. */
DIBS_API dibs_owner dibs_owner_new(dibs_client *c);
/* The number that 0 stands for on this thread. */
DIBS_API dibs_owner dibs_owner_thread(dibs_client *c);

/* ---- locks ------------------------------------------------------------- */

/* Tells that a lock is gone although nobody released it: once for each acquire
 * that gave one, unless a release finds out first and says LOST. When the
 * release has returned (of an async one: when its callback runs), on_lost of
 * that hold does not run on another thread and will not come, so arg may be on
 * the stack of the releasing thread; a release inside on_lost does not wait for
 * it. So on_lost must not wait for a thread that is releasing that hold. That
 * is so whatever the release answered; after one that says "still held" (below)
 * the next release tells of a loss. */
typedef void (*dibs_lost_cb)(const char *name, dibs_owner owner, void *arg);

typedef struct dibs_lock_opts {
    size_t size;          /* sizeof(dibs_lock_opts) */
    int64_t wait_ms;      /* longest wait; 0 = no limit. For a release: the
                             longest time to spend, 0 = two commands' worth */
    int64_t lease_ms;     /* 0 = renewed until released */
    dibs_owner owner;     /* 0 = the calling thread */
    dibs_lost_cb on_lost; /* may be NULL */
    void *arg;            /* for on_lost */
    int64_t max_hold_ms;  /* renewed locks: renew no longer than this; 0 = no
                             limit */
    int64_t keep_ms;      /* release: leave the lock taken, by nobody, for so
                             long; 0 = free it. Not for the read lock, nor
                             while the writer reads too */
    int64_t member_ms;    /* acquire of a quorum: the longest wait for one
                             server; 0 = a fiftieth of the lease, at least 20
                             and at most 500 */
    int replicas;         /* acquire: so many replicas must have it, or it is
                             given back; 0 = the client's default */
    int64_t replicas_timeout_ms; /* how long they have; 0 = 1000, but a tenth
                                    of the lease at most. Never more than half
                                    the lease */
    bool no_reentry; /* acquire: if the owner holds the lock already, answer
                        DEADLOCK at once, and ask no server */
    bool poll;       /* acquire: ask again and again, with growing pauses of up
                        to 128 ms, instead of listening for the release. For
                        servers without pub/sub; not for fair locks */
    bool leave;      /* release: forget the hold and leave it on the server,
                        where it ends with its lease, or is adopted (see
                        dibs_lock_adopt). Nothing is sent. INVALID for one half
                        of a read-write lock whose owner has both, or asks for
                        the other just now; a group gives that one back */
} dibs_lock_opts;

#ifdef __cplusplus
#define DIBS_LOCK_OPTS_INIT dibs_lock_opts_init()
static inline dibs_lock_opts dibs_lock_opts_init(void)
{
    dibs_lock_opts o = dibs_lock_opts();
    o.size = sizeof o;
    return o;
}
#else
#define DIBS_LOCK_OPTS_INIT                                                    \
    {                                                                          \
        .size = sizeof(dibs_lock_opts)                                         \
    }
#define DIBS_LOCK_OPTS(...)                                                    \
    (&(const dibs_lock_opts){.size = sizeof(dibs_lock_opts), __VA_ARGS__})
#endif

/* A lock by name. Every handle of a name in a client is the same lock; one
 * handle serves all threads. Free handles before or after the client. Freeing
 * a handle releases nothing.
 *
 * The plain lock is re-entrant: an owner may take it again, and holds it until
 * it has released it as often. */
DIBS_API DIBS_MUST dibs_err dibs_lock_new(dibs_client *c, const char *name,
                                          dibs_lock **out);
/* The same for names with NUL bytes in them. */
DIBS_API DIBS_MUST dibs_err dibs_lock_new_bytes(dibs_client *c,
                                                const void *name, size_t len,
                                                dibs_lock **out);
/* The fair lock: granted in the order in which it was asked for, over all
 * threads, processes and hosts. Re-entrant. A waiter that died costs the next
 * one about a second, one that is stopped fair_call_ms. dibs_lock_try neither
 * queues nor overtakes a queue. On the server it is one lock with the plain one
 * of that name: an owner that holds the one gets DIBS_ERR_WRONGTYPE for the
 * other. */
DIBS_API DIBS_MUST dibs_err dibs_fair_lock_new(dibs_client *c, const char *name,
                                               dibs_lock **out);
DIBS_API DIBS_MUST dibs_err dibs_fair_lock_new_bytes(dibs_client *c,
                                                     const void *name,
                                                     size_t len,
                                                     dibs_lock **out);
/* The two halves of a read-write lock: many readers, or one writer. Both are
 * re-entrant. A writer may read too, and go on reading after it has given
 * back the write lock. A reader that asks for the write lock would
 * wait for itself: that is DIBS_ERR_UPGRADE, and it goes on reading. A writer
 * that waits keeps new readers out, unless the client prefers readers. A name
 * must not be used for a read-write lock and another kind: what comes second
 * gets DIBS_ERR_WRONGTYPE. */
DIBS_API DIBS_MUST dibs_err dibs_read_lock_new(dibs_client *c, const char *name,
                                               dibs_lock **out);
DIBS_API DIBS_MUST dibs_err dibs_write_lock_new(dibs_client *c,
                                                const char *name,
                                                dibs_lock **out);

/* The plain lock with a token: a number that grows with each hold. Give it to
 * what the lock protects, and have that refuse a smaller one than the largest
 * it has seen: then a holder that lost the lock and does not know it yet does
 * no harm. On the server it is one lock with the plain one of that name, as the
 * fair lock is. */
DIBS_API DIBS_MUST dibs_err dibs_fenced_lock_new(dibs_client *c,
                                                 const char *name,
                                                 dibs_lock **out);
/* At most `slots` holders at a time, over all threads, processes and hosts. A
 * hold is one slot, and has a lease as that of any lock: the slot of a holder
 * that died comes back. Re-entrant: an owner that holds a slot takes no second
 * one. The first to acquire says how many slots there are. From then on the
 * server's number counts; a handle with another one gets a WARNING event.
 *
 * INVALID  Also for fewer than 1 slot, or more than DIBS_PERMITS_MAX. */
DIBS_API DIBS_MUST dibs_err dibs_slots_lock_new(dibs_client *c,
                                                const char *name, int64_t slots,
                                                dibs_lock **out);
/* Changes how many slots there are. With fewer than are held nobody loses one:
 * no more are granted until enough came back. Errors as of acquire; INVALID
 * also if it is not a slots lock. */
DIBS_API DIBS_MUST dibs_err dibs_slots_set(dibs_lock *l, int64_t slots);

/* Several locks as one, of any kinds and clients; n of them, at most 1000.
 * Members may be freed afterwards; the order in which they are given does not
 * matter. All calls below work on it but those that ask the server (info,
 * holders, queue, force release) and owner_text: those are INVALID, ask the
 * members. The members' holds are ordinary ones: an owner that has one of
 * them already then has it once more. A hold of a group belongs to this handle.
 *
 * multi   All or none. Members of one client that are plain or write locks are
 *         taken by one command. A multi lock may be a member. If one member is
 *         lost, the whole is, told once; release gives back all the same, and
 *         reports the first error.
 * quorum  More than half, each on a server of its own that has no replicas
 *         (RedLock). Held as long as a majority is, counted by our own clock
 *         from when each was asked for. See docs/guarantees.md for what it does
 *         not give. A waiter asks again when most servers say that the lock
 *         is free, and every second or two.
 *
 * OK       *out is yours; give it back with dibs_lock_free.
 * INVALID  No members, or too many; one of them twice; a quorum among them, or
 *          in a quorum any group; two servers of a quorum are one and the same,
 *          whatever their addresses. (A server of a quorum that cannot be
 *          reached now is looked at when it can: then acquire says INVALID.) */
DIBS_API DIBS_MUST dibs_err dibs_multi_lock_new(dibs_lock *const *members,
                                                size_t n, dibs_lock **out);
DIBS_API DIBS_MUST dibs_err dibs_quorum_lock_new(dibs_lock *const *members,
                                                 size_t n, dibs_lock **out);
DIBS_API void dibs_lock_free(dibs_lock *l);

/* Takes the lock, waiting as opts say. opts may be NULL. A wait limit bounds
 * the wait for others; a server that does not answer can cost one command
 * timeout more, and another one to leave the queue of a fair lock, or to take
 * back the request of a writer.
 *
 * OK         Held. Give it back with dibs_lock_release.
 * TIMEOUT    wait_ms passed. Not held, nothing to undo.
 * LOST       An earlier hold of this owner has ended by itself, and was not
 *            released yet: release it as often as it was acquired, then acquire
 *            again. Not held.
 * CANCELED   dibs_lock_cancel came first. Not held.
 * CLOSED     The client is going away. Not held.
 * CONN       No connection within the time there was. Not held.
 * UNKNOWN    The server did not answer in time. Not held by you; should it
 *            have been granted all the same, it is taken back for you.
 * TLS        There is no server that can be trusted. Not held.
 * UPGRADE    The write lock, and this owner holds the read lock. Not held.
 * REPLICAS   Fewer replicas than asked for had it in time, or the server cannot
 *            tell. It was given back: not held. dibs_error_text says how many.
 * DEADLOCK   In a callback, and it would have to wait; or no_reentry, and this
 *            owner holds it already. Nothing changed.
 * WRONGTYPE, AUTH, SERVER, PROTOCOL   The server said no, or no server of ours
 *            answered. Not held.
 * INVALID, NOMEM, FORKED   Nothing was sent. Not held. (NOMEM of a lock that
 * was granted just then: it is taken back.)
 */
DIBS_API DIBS_MUST dibs_err dibs_lock_acquire(dibs_lock *l,
                                              const dibs_lock_opts *opts);

/* One attempt. As acquire, but BUSY instead of waiting. */
DIBS_API DIBS_MUST dibs_err dibs_lock_try(dibs_lock *l,
                                          const dibs_lock_opts *opts);

/* Gives back one hold. Of opts only owner, wait_ms, keep_ms and leave count.
 *
 * OK         Done: free, or held once less.
 * NOT_OWNER  This owner does not hold it and did not lose it.
 * LOST       It was held and is not any more: somebody else may have had it
 *            since. Each level of a nested hold hears of it; after the last
 *            one the owner starts anew.
 * UNKNOWN    No answer in time. It counts as given back; the library goes on
 *            trying to free it until its lease has ended.
 * WRONGTYPE, AUTH, SERVER, PROTOCOL   The server refused. The last hold counts
 *            as given back, as above; one of several is still held.
 * CONN       One of several holds, and no connection: still held.
 * CLOSED     The client is going away, and releases it.
 * NOMEM      A group, and there is no memory to begin: held or lost, as it was.
 *            Release it again.
 */
DIBS_API dibs_err dibs_lock_release(dibs_lock *l, const dibs_lock_opts *opts);

/* Makes a hold that another client took, on this host or any other, one of this
 * client: `owner_text` is what dibs_lock_owner_text said there. The client that
 * took it must have left it (release with the option leave), or be gone; only
 * one may adopt it. The handle is of the same name and kind. From then on it is
 * kept, lost, extended and released like any other hold; the client's end
 * releases it, too. However often it was held, it counts once. Of opts
 * lease_ms, max_hold_ms, on_lost and arg count. The lease is never shortened.
 *
 * OK         Held. *out is its owner here: a new one. Release with it.
 * NOT_OWNER  That owner does not hold the lock, or not any more.
 * INVALID    Also for a group (adopt its members), a text that is no owner, and
 *            a hold that this client has.
 * UNKNOWN    No answer in time. Not adopted; its lease may be longer now.
 * others     As of dibs_lock_info_get. Not adopted.
 */
DIBS_API DIBS_MUST dibs_err dibs_lock_adopt(dibs_lock *l,
                                            const char *owner_text,
                                            const dibs_lock_opts *opts,
                                            dibs_owner *out);

/* Makes the lease of a hold last at least lease_ms from now (0 = the client's
 * lease); it is never shortened. For holds with a lease of their own: one that
 * is renewed needs no such call. Of opts owner and lease_ms count.
 *
 * OK         Extended.
 * LOST       It is lost; release tells the same.
 * NOT_OWNER  This owner does not hold it.
 * INVALID    Also for a group: extend its members.
 * others     As of dibs_lock_info_get. The hold is as it was, or extended.
 */
DIBS_API DIBS_MUST dibs_err dibs_lock_extend(dibs_lock *l,
                                             const dibs_lock_opts *opts);

/* Publishes a text with the hold of this owner: what others should know of the
 * holder, as the address of a leader. It replaces the one before; "" or NULL
 * takes it back. It lasts as long as the hold: renewal keeps it, and it goes
 * with the release, the loss or the end of the lease. A failover may lose it;
 * the next renewal brings it back. A text of at most DIBS_VALUE_MAX bytes, for
 * locks that one owner has at a time: plain, fair, fenced and write.
 *
 * OK         Published. dibs_lock_published of any client tells it.
 * NOT_OWNER  This owner does not hold it.
 * LOST       It is lost; release tells the same.
 * INVALID    Also for a group, a read or slots lock, and a text that is longer.
 * CONN, UNKNOWN, SERVER   Nobody knows, or not now. It is sent again with each
 *            renewal of the hold.
 * AUTH, WRONGTYPE, PROTOCOL   The server refused. Nothing is published.
 */
DIBS_API DIBS_MUST dibs_err dibs_lock_publish(dibs_lock *l, dibs_owner owner,
                                              const char *value);
/* What the present holder published, in any client: a text, cut to size - 1
 * bytes; "" if nobody holds the lock, or the holder published nothing. Errors
 * as of dibs_lock_info_get. INVALID also for a slots lock. */
DIBS_API DIBS_MUST dibs_err dibs_lock_published(dibs_lock *l, char *buf,
                                                size_t size);

/* Frees the lock, whichever owner holds it. was_locked may be NULL. The holder
 * it found is the one it ends: should the lock change hands meanwhile, the next
 * holder keeps it. INVALID for a slots lock, which many may hold: name the
 * owner. */
DIBS_API dibs_err dibs_lock_force_release(dibs_lock *l, bool *was_locked);
/* The same, only if this owner (as dibs_lock_info has it) holds the lock. */
DIBS_API dibs_err dibs_lock_force_release_owner(dibs_lock *l, const char *owner,
                                                bool *was_locked);

/* Ends this owner's waiting acquires of this lock, from any thread, with
 * CANCELED. One that is being granted at that moment ends with OK all the same,
 * so look at what the acquire itself says.
 *
 * OK         Something was waiting, and is being canceled.
 * NOT_OWNER  Nothing was waiting.
 */
DIBS_API dibs_err dibs_lock_cancel(dibs_lock *l, dibs_owner owner);

/* ---- what is known without asking the server --------------------------- */

typedef enum dibs_state {
    DIBS_NOT_HELD = 0,
    DIBS_HELD,    /* ours until dibs_lock_valid_ms runs out */
    DIBS_SUSPECT, /* ours, but the last renewal failed */
    DIBS_LOST     /* was ours; stays so until released */
} dibs_state;

/* No I/O, no waiting. A client of the parent process, or NULL, holds
 * nothing. */
DIBS_API dibs_state dibs_lock_state(const dibs_lock *l, dibs_owner owner);
/* Time left by our own clock, drift margin taken off; 0 when not held. */
DIBS_API int64_t dibs_lock_valid_ms(const dibs_lock *l, dibs_owner owner);
/* How often this owner holds it; 0 when not held or lost. */
DIBS_API int64_t dibs_lock_holds(const dibs_lock *l, dibs_owner owner);
/* The owner as the server knows it, "uuid:number", of a hold. */
DIBS_API dibs_err dibs_lock_owner_text(const dibs_lock *l, dibs_owner owner,
                                       char *buf, size_t size);

/* The token of this owner's hold of a fenced lock: larger than that of every
 * earlier hold, also when the server has lost its data. A nested hold has the
 * token of the first. It stays readable when the hold is lost, until it is
 * released.
 *
 * OK         *token is filled.
 * NOT_OWNER  This owner does not hold it.
 * INVALID    It is not a fenced lock, or the hold was adopted and the server
 *            does not know its token.
 */
DIBS_API DIBS_MUST dibs_err dibs_lock_token(const dibs_lock *l,
                                            dibs_owner owner, int64_t *token);
/* Which slot of a slots lock this owner has, from 0: the lowest that no other
 * client of this library had. Outcomes as of dibs_lock_token. */
DIBS_API DIBS_MUST dibs_err dibs_lock_slot(const dibs_lock *l, dibs_owner owner,
                                           int64_t *slot);

/* One member of a group, as this owner's last acquire left it. */
typedef struct dibs_member {
    size_t size;      /* fill in with sizeof, or use DIBS_MEMBER_INIT */
    const char *name; /* its lock; lives as long as the group's handle */
    size_t name_len;
    const char
        *server;      /* host:port/db, path/db; by a sentinel host:port/name/db
                         of one that was given; lives as long */
    dibs_err verdict; /* OK: taken. BUSY: somebody has it. LOST: it was taken.
                         CANCELED: not asked, or not taken because of another.
                         UNKNOWN: no answer (yet). NOT_OWNER: nothing is
                         known. Others as of acquire */
    dibs_state state; /* of the member; NOT_HELD unless it was taken */
    int64_t valid_ms; /* what is left of that */
} dibs_member;

#ifdef __cplusplus /* every field, or compilers warn */
#define DIBS_MEMBER_INIT                                                       \
    {                                                                          \
        sizeof(dibs_member), nullptr, 0, nullptr, DIBS_OK, DIBS_NOT_HELD, 0    \
    }
#else
#define DIBS_MEMBER_INIT                                                       \
    {                                                                          \
        .size = sizeof(dibs_member)                                            \
    }
#endif

/* The members by index, from 0, as they were given (those of a multi lock in
 * its place). No I/O, no waiting. The verdicts of acquires that failed or were
 * released are kept for the last few of a handle.
 *
 * OK       *out is filled.
 * INVALID  Not a group, or it has no more members.
 */
DIBS_API DIBS_MUST dibs_err dibs_lock_members(dibs_lock *l, size_t index,
                                              dibs_owner owner,
                                              dibs_member *out);

/* ---- what the server says ---------------------------------------------- */

typedef enum dibs_mode {
    DIBS_MODE_NONE = 0,
    DIBS_MODE_EXCLUSIVE,
    DIBS_MODE_READ,
    DIBS_MODE_WRITE
} dibs_mode;

/* What is under a name. */
typedef enum dibs_kind {
    DIBS_KIND_NONE = 0, /* nothing */
    DIBS_KIND_LOCK,     /* a plain, fair or fenced lock */
    DIBS_KIND_RW,       /* a read-write lock */
    DIBS_KIND_SLOTS,
    DIBS_KIND_SEMAPHORE,
    DIBS_KIND_LATCH,
    DIBS_KIND_COUNTER, /* a number that no dibs client has used since it was
                          set: of slots, of a semaphore, or of a latch */
    DIBS_KIND_OTHER    /* not one of ours */
} dibs_kind;

typedef struct dibs_lock_info {
    size_t size; /* fill in with sizeof, or use DIBS_LOCK_INFO_INIT */
    bool locked; /* false: all the rest is zero or empty. Asked by one half of a
                    read-write lock: whether that half is held; false with a
                    mode: the other half is, and the rest is about that */
    dibs_mode mode;
    int64_t ttl_ms; /* what is left of the lease; -1: it has none */
    int64_t holds;  /* of the owner below */
    size_t owners;  /* how many owners; more than one only for readers, of a
                       slots lock, and for a writer that reads, too: it counts
                       twice */
    size_t waiters; /* in the queue of a fair lock; for the other kinds see
                       dibs_lock_listeners */
    char owner[DIBS_OWNER_MAX]; /* the holder, or one of the readers; cut if
                                   longer, and a NUL ends it. Of a slots lock:
                                   the one whose lease ends first */
    int64_t token; /* of a fenced lock: the last one given to anybody; 0 none */
    int64_t slots; /* of a slots lock: how many there are; 0 nobody said */
    int64_t free_slots; /* and how many nobody has; may be below 0 */
    dibs_kind kind;     /* NONE also when a lock is free */
    int64_t left;       /* of a latch: what is left */
    int64_t published;  /* 0: the holder published no value. Otherwise a number
                           that differs from one value to the next;
                           dibs_lock_published tells the value itself */
} dibs_lock_info;

#ifdef __cplusplus
#define DIBS_LOCK_INFO_INIT                                                    \
    {                                                                          \
        sizeof(dibs_lock_info), false, DIBS_MODE_NONE, 0, 0, 0, 0, "", 0, 0,   \
            0, DIBS_KIND_NONE, 0, 0                                            \
    }
#else
#define DIBS_LOCK_INFO_INIT                                                    \
    {                                                                          \
        .size = sizeof(dibs_lock_info)                                         \
    }
#endif

/* OK, or an error as of acquire. INVALID also if out->size is not set. */
DIBS_API DIBS_MUST dibs_err dibs_lock_info_get(dibs_lock *l,
                                               dibs_lock_info *out);

/* Everybody who holds the lock: owner, how often, and for how long still (-1:
 * no limit, -2: its lease is over, it does not count any more). At most 10,000
 * are told. fn runs on the calling thread and returns false to stop. */
typedef bool (*dibs_holder_fn)(const char *owner, dibs_mode mode, int64_t holds,
                               int64_t remaining_ms, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_lock_holders(dibs_lock *l, dibs_holder_fn fn,
                                              void *arg);

/* The queue of a fair lock, from its head; others have none. remaining_ms: for
 * how long the waiter keeps its place without a sign of life, -1 if nobody
 * knows. fn runs on the calling thread and returns false to stop. */
typedef bool (*dibs_queue_fn)(size_t place, const char *owner,
                              int64_t remaining_ms, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_lock_queue(dibs_lock *l, dibs_queue_fn fn,
                                            void *arg);

/* How many clients wait for a plain or read-write lock of this name, whatever
 * the kind of the handle, as far as the server can tell: clients that have
 * asked to be called, and others who listen for its release. A client counts
 * once, however many of its threads wait; Redisson's count, too, and so do
 * those who watch the lock. In a cluster without sharded channels only those
 * are counted that listen at the node which has the lock.
 *
 * OK      *out is filled.
 * AUTH    The right to PUBSUB NUMSUB is missing.
 * others  As of dibs_lock_info_get.
 */
DIBS_API DIBS_MUST dibs_err dibs_lock_listeners(dibs_lock *l, size_t *out);

/* What is under a name, of whatever kind it is. kind is filled, and the rest as
 * dibs_lock_info_get by a handle of that kind does it; token, if a fenced lock
 * of that name was ever held. Of a semaphore: free_slots is how many permits
 * are free, owners how many acquires of dibs clients have some, ttl_ms when the
 * first of their leases ends, and locked that there are any. Of a latch: left,
 * locked while it is closed, and ttl_ms when it opens by itself. Of a counter:
 * free_slots is the number. Errors as of dibs_lock_info_get. */
DIBS_API DIBS_MUST dibs_err dibs_client_look(dibs_client *c, const char *name,
                                             dibs_lock_info *out);

/* Calls fn for every lock on the server whose name matches the glob-style
 * pattern (NULL = all), in no order; a lock taken or freed meanwhile may be
 * missing or old. Slots that are held, semaphores of which a dibs client has
 * permits, and latches that a dibs client closed are told, too, as by
 * dibs_client_look: see kind. Of these owner may be empty. fn runs on the
 * calling thread and returns false to stop. The name is len bytes with a NUL
 * behind them. In a cluster, servers that do not answer are left out; when all
 * others were asked, the error of the first of them is returned: what fn was
 * called for is then a part. */
typedef bool (*dibs_list_fn)(const char *name, size_t len,
                             const dibs_lock_info *info, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_client_list(dibs_client *c,
                                             const char *pattern,
                                             dibs_list_fn fn, void *arg);

/* Who an owner is, as its connections are named. The texts are cut to 64 bytes,
 * and what is not printable ASCII in them is '?'. */
typedef struct dibs_who {
    const char *host, *program; /* program: or the client_name of its client */
    const char *address;        /* from where the server sees it */
    int64_t pid;
    int64_t age_ms; /* of its oldest connection */
} dibs_who;

/* Calls fn for those of the owners (texts as dibs_lock_info has them) that are
 * known; index is the place in owners. Known are clients of dibs that are
 * connected to the server. Redisson's are not: nothing connects their owners
 * with their connections. What a client says of itself is not proved. One
 * CLIENT LIST answers for all owners; in a cluster one of each node, until all
 * are known. fn runs on the calling thread and returns false to stop.
 *
 * OK      fn was called for those that are known.
 * AUTH    The right to CLIENT LIST is missing.
 * others  As of dibs_lock_info_get.
 */
typedef bool (*dibs_who_fn)(size_t index, const dibs_who *who, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_client_who(dibs_client *c,
                                            const char *const owners[],
                                            size_t count, dibs_who_fn fn,
                                            void *arg);

/* What a check of dibs_client_doctor found. */
typedef enum dibs_verdict {
    DIBS_VERDICT_OK = 0,
    DIBS_VERDICT_NOTE,    /* good to know */
    DIBS_VERDICT_WARNING, /* locks can be lost, or late, if something fails */
    DIBS_VERDICT_PROBLEM  /* locks do not work here as they should */
} dibs_verdict;

/* Examines the server: what it means for locks. fn is called for each finding,
 * with a word for the check (there may be several of one), the verdict and a
 * line for people; on the calling thread, and returns false to stop. name is
 * that of a lock whose rights are looked at, or NULL. Nothing is changed on the
 * server, but commands are tried, in forms that do nothing.
 *
 * OK      It was examined; what is wrong, fn was told.
 * others  As of dibs_lock_info_get: the server could not be asked (any more).
 */
typedef bool (*dibs_doctor_fn)(const char *check, dibs_verdict verdict,
                               const char *text, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_client_doctor(dibs_client *c, const char *name,
                                               dibs_doctor_fn fn, void *arg);

/* Calls fn for each rule of an ACL that a user needs for locks whose names
 * match the pattern: "~jobs:*", "&redisson_lock__channel:{jobs:*}*", "+eval".
 * kinds: words with commas between them, of plain, fair, rw, fence, slots, sem,
 * latch, value, look, metrics, doctor, replicas and cluster; NULL = all but the
 * last four. What the doctor misses is in these rules. fn runs on the calling
 * thread and returns false to stop. No server is asked.
 *
 * OK       fn was called for each.
 * INVALID  A word that is no kind, or a pattern with blanks, quotes or
 *          backslashes, which no rule can have.
 */
typedef bool (*dibs_rule_fn)(const char *rule, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_acl_rules(const char *pattern,
                                           const char *kinds, dibs_rule_fn fn,
                                           void *arg);

/* ---- the async twins --------------------------------------------------- */

/* The callback comes exactly once after DIBS_OK from the start call, and never
 * if the start call failed. (With DIBS_CALLBACKS_DISPATCH it comes when the
 * program dispatches; what waits when the client is freed is dropped.) With
 * owner 0 the owner is the thread that makes the start call. From inside a
 * callback a sync acquire never waits for another holder: it answers DEADLOCK
 * instead. The other calls only wait for the server.
 *
 * A start call that failed has done nothing. So after NOMEM from that of a
 * release the lock is held or lost as it was, and must be released again. The
 * sync release of a single lock needs no memory. */
typedef void (*dibs_cb)(dibs_err err, void *arg);
typedef void (*dibs_force_cb)(dibs_err err, bool was_locked, void *arg);
typedef void (*dibs_info_cb)(dibs_err err, const dibs_lock_info *info,
                             void *arg);

/* who: NULL if the owner is not known; valid during the call. */
typedef void (*dibs_who_cb)(dibs_err err, const dibs_who *who, void *arg);

DIBS_API DIBS_MUST dibs_err dibs_lock_acquire_async(dibs_lock *l,
                                                    const dibs_lock_opts *opts,
                                                    dibs_cb cb, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_lock_try_async(dibs_lock *l,
                                                const dibs_lock_opts *opts,
                                                dibs_cb cb, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_lock_release_async(dibs_lock *l,
                                                    const dibs_lock_opts *opts,
                                                    dibs_cb cb, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_lock_force_release_async(dibs_lock *l,
                                                          dibs_force_cb cb,
                                                          void *arg);
DIBS_API DIBS_MUST dibs_err dibs_lock_info_get_async(dibs_lock *l,
                                                     dibs_info_cb cb,
                                                     void *arg);
DIBS_API DIBS_MUST dibs_err dibs_lock_publish_async(dibs_lock *l,
                                                    dibs_owner owner,
                                                    const char *value,
                                                    dibs_cb cb, void *arg);
/* owner: who published it, "" if nobody did. Both are valid during the call,
 * and NULL unless err is OK. */
typedef void (*dibs_value_cb)(dibs_err err, const char *owner,
                              const char *value, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_lock_published_async(dibs_lock *l,
                                                      dibs_value_cb cb,
                                                      void *arg);
/* The twin of dibs_client_who, for one owner: the server of this lock is asked.
 */
DIBS_API DIBS_MUST dibs_err dibs_lock_who_async(dibs_lock *l, const char *owner,
                                                dibs_who_cb cb, void *arg);

/* ---- following a lock --------------------------------------------------- */

/* A watch tells who has a lock, and each time that this changes: to follow a
 * leader. Nothing is taken, and nobody has to wait longer because of it.
 *
 * The callback comes once with what is found first, then after each change:
 * free or taken, another owner, mode or number of owners; of a fenced lock also
 * another token, which is another hold of the same owner. With the option
 * values, it comes also when the holder published another value. A change that
 * is undone before the next look is not seen. If the callback is slow, it gets
 * the last of several changes.
 *
 * err    OK: info is what dibs_lock_info_get would say; valid during the call.
 *        Others: nobody knows now (info is NULL, and dibs_error_text says why).
 *        That is told once, and the watch goes on: what it finds then is told.
 *        CLOSED: the client closes; this is the last call. */
typedef struct dibs_watch dibs_watch;
typedef void (*dibs_watch_cb)(dibs_err err, const dibs_lock_info *info,
                              void *arg);

typedef struct dibs_watch_opts {
    size_t size;      /* sizeof(dibs_watch_opts) */
    int64_t every_ms; /* look at least so often; 0 = 1000, at least 100 */
    bool values;      /* a value that changes is told, too: see published of
                         dibs_lock_info */
} dibs_watch_opts;

#ifdef __cplusplus
#define DIBS_WATCH_OPTS_INIT dibs_watch_opts_init()
static inline dibs_watch_opts dibs_watch_opts_init(void)
{
    dibs_watch_opts o = dibs_watch_opts();
    o.size = sizeof o;
    return o;
}
#else
#define DIBS_WATCH_OPTS_INIT                                                   \
    {                                                                          \
        .size = sizeof(dibs_watch_opts)                                        \
    }
#define DIBS_WATCH_OPTS(...)                                                   \
    (&(const dibs_watch_opts){.size = sizeof(dibs_watch_opts), __VA_ARGS__})
#endif

/* Begins to watch a lock of any kind. opts may be NULL. A release is heard of,
 * except that of a fair lock, and so is a new value of the holder. A take and
 * the end of a lease send no message: the server is asked for them every
 * every_ms, and when the lease that was seen ends. However often the lock
 * changes, it is asked at most 20 times a second. Those who watch count as
 * listeners (see dibs_lock_listeners). The handle may be freed meanwhile.
 *
 * OK       *out is yours; give it back with dibs_watch_stop.
 * INVALID  Also for a group: watch its members.
 * NOMEM, CLOSED, FORKED   Nothing is watched.
 */
DIBS_API DIBS_MUST dibs_err dibs_lock_watch(dibs_lock *l,
                                            const dibs_watch_opts *opts,
                                            dibs_watch_cb cb, void *arg,
                                            dibs_watch **out);
/* Ends a watch, and frees it; accepts NULL. When it has returned, the callback
 * does not run on another thread and will not come, so arg may be freed. Inside
 * the callback it does not wait for it. So the callback must not wait for a
 * thread that stops its watch. To be called once, before or after the client is
 * closed and freed. */
DIBS_API void dibs_watch_stop(dibs_watch *w);

/* ---- semaphores --------------------------------------------------------- */

/* A number of permits, and no owners: Redisson's RSemaphore, for names that are
 * used from there. For anything else a slots lock is better. What this library
 * adds: each acquire has a lease that is renewed while the process lives, so
 * that the permits of one that died come back. */
typedef struct dibs_semaphore dibs_semaphore;

typedef struct dibs_semaphore_opts {
    size_t size;          /* sizeof(dibs_semaphore_opts) */
    int64_t permits;      /* how many; 0 = 1 */
    int64_t wait_ms;      /* longest wait; 0 = no limit. For a release: the
                             longest time to spend, 0 = two commands' worth */
    int64_t lease_ms;     /* acquire: 0 = renewed until released */
    dibs_lost_cb on_lost; /* acquire: its permits are gone; may be NULL. The
                             owner that it gets is a number of its own */
    void *arg;            /* for on_lost */
} dibs_semaphore_opts;

typedef struct dibs_latch_opts {
    size_t size;         /* sizeof(dibs_latch_opts) */
    int64_t wait_ms;     /* wait: the longest; 0 = no limit */
    int64_t deadline_ms; /* set: the latch opens by itself after this; 0 =
                            never */
    const char *ticket;  /* count_down: a name that counts once, however often
                            it is used, until the latch opens; NULL = each call
                            counts */
} dibs_latch_opts;

#ifdef __cplusplus
#define DIBS_SEMAPHORE_OPTS_INIT dibs_semaphore_opts_init()
#define DIBS_LATCH_OPTS_INIT     dibs_latch_opts_init()
static inline dibs_semaphore_opts dibs_semaphore_opts_init(void)
{
    dibs_semaphore_opts o = dibs_semaphore_opts();
    o.size = sizeof o;
    return o;
}
static inline dibs_latch_opts dibs_latch_opts_init(void)
{
    dibs_latch_opts o = dibs_latch_opts();
    o.size = sizeof o;
    return o;
}
#else
#define DIBS_SEMAPHORE_OPTS_INIT                                               \
    {                                                                          \
        .size = sizeof(dibs_semaphore_opts)                                    \
    }
#define DIBS_SEMAPHORE_OPTS(...)                                               \
    (&(const dibs_semaphore_opts){.size = sizeof(dibs_semaphore_opts),         \
                                  __VA_ARGS__})
#define DIBS_LATCH_OPTS_INIT                                                   \
    {                                                                          \
        .size = sizeof(dibs_latch_opts)                                        \
    }
#define DIBS_LATCH_OPTS(...)                                                   \
    (&(const dibs_latch_opts){.size = sizeof(dibs_latch_opts), __VA_ARGS__})
#endif

DIBS_API DIBS_MUST dibs_err dibs_semaphore_new(dibs_client *c, const char *name,
                                               dibs_semaphore **out);
/* Releases nothing. Permits that were taken by it are given back by another
 * handle of that name and client, or when the client closes. */
DIBS_API void dibs_semaphore_free(dibs_semaphore *s);

/* Says how many permits there are, if nobody has. Until then an acquire waits.
 * was_set may be NULL; false: there is a number already, and it stays. */
DIBS_API DIBS_MUST dibs_err dibs_semaphore_set(dibs_semaphore *s,
                                               int64_t permits, bool *was_set);
/* Takes permits, waiting as opts say. opts may be NULL: one, without a limit.
 * Outcomes as of dibs_lock_acquire. */
DIBS_API DIBS_MUST dibs_err
dibs_semaphore_acquire(dibs_semaphore *s, const dibs_semaphore_opts *opts);
/* One attempt. As acquire, but BUSY instead of waiting. */
DIBS_API DIBS_MUST dibs_err dibs_semaphore_try(dibs_semaphore *s,
                                               const dibs_semaphore_opts *opts);
/* Gives back what one acquire of this client took: the oldest one that took as
 * many as opts say. Of opts permits and wait_ms count; NULL: one.
 *
 * OK         Given back.
 * NOT_OWNER  No acquire of this client has taken so many.
 * LOST       They were taken, and had come back before: its lease was over, or
 *            the semaphore was deleted.
 * others     As of dibs_lock_release: they count as given back.
 */
DIBS_API dibs_err dibs_semaphore_release(dibs_semaphore *s,
                                         const dibs_semaphore_opts *opts);
/* Permits can outlive the client that took them, as a hold can. leave forgets
 * what one acquire of this client took, picked as release does it, and leaves
 * it on the server, where it ends with its lease, or is adopted. buf gets a
 * text that names it; size is at least DIBS_OWNER_MAX. Nothing is sent.
 * Outcomes as of release; buf is filled on OK. */
DIBS_API DIBS_MUST dibs_err dibs_semaphore_leave(
    dibs_semaphore *s, const dibs_semaphore_opts *opts, char *buf, size_t size);
/* Makes such permits some of this client's: they are renewed, lost and given
 * back as those of an acquire that took so many. Of opts lease_ms, on_lost and
 * arg count; the lease is never shortened. permits may be NULL: how many there
 * are. Outcomes as of dibs_lock_adopt. */
DIBS_API DIBS_MUST dibs_err
dibs_semaphore_adopt(dibs_semaphore *s, const char *text,
                     const dibs_semaphore_opts *opts, int64_t *permits);
/* How many permits are free; below 0 if more were taken away than there
 * were. */
DIBS_API DIBS_MUST dibs_err dibs_semaphore_available(dibs_semaphore *s,
                                                     int64_t *available);
/* Makes permits, or takes some away if below 0; with 0 it only wakes waiters of
 * other clients that missed a message. What is out stays out.
 * available may be NULL: how many are free then. Should the answer get lost it
 * is sent again, and counts once; UNKNOWN: nobody knows whether it did. */
DIBS_API DIBS_MUST dibs_err dibs_semaphore_add(dibs_semaphore *s,
                                               int64_t permits,
                                               int64_t *available);
/* Takes away all permits that are free. They are nobody's then: a program that
 * wants them back makes them, by dibs_semaphore_add. drained may be NULL. */
DIBS_API DIBS_MUST dibs_err dibs_semaphore_drain(dibs_semaphore *s,
                                                 int64_t *drained);

/* ---- latches ------------------------------------------------------------ */

/* Closed until it was counted down to zero: Redisson's RCountDownLatch. A latch
 * that nobody has set, or whose key is lost, is open. */
typedef struct dibs_latch dibs_latch;

DIBS_API DIBS_MUST dibs_err dibs_latch_new(dibs_client *c, const char *name,
                                           dibs_latch **out);
DIBS_API void dibs_latch_free(dibs_latch *l);

/* Closes an open latch; with a count of 0, opens a closed one. was_set may be
 * NULL; false: it was closed (open) already, and stays as it is; waiters of
 * other clients that missed that it is open are told once more. Of opts
 * deadline_ms counts; NULL: none. */
DIBS_API DIBS_MUST dibs_err dibs_latch_set(dibs_latch *l, int64_t count,
                                           const dibs_latch_opts *opts,
                                           bool *was_set);
/* Counts down by one; at zero the latch opens. Of opts ticket counts; NULL:
 * none. left may be NULL: what is left then. Should the answer get lost it is
 * sent again, and counts once.
 *
 * OK       Counted, or the ticket has counted before, or the latch is open.
 * UNKNOWN  Nobody knows whether it was counted.
 */
DIBS_API DIBS_MUST dibs_err dibs_latch_count_down(dibs_latch *l,
                                                  const dibs_latch_opts *opts,
                                                  int64_t *left);
/* What is left; 0 when open. */
DIBS_API DIBS_MUST dibs_err dibs_latch_count(dibs_latch *l, int64_t *left);
/* Waits until the latch is open. Of opts wait_ms counts; NULL: no limit.
 *
 * OK       It is open.
 * TIMEOUT  wait_ms passed, or the latch's own deadline did: then
 *          dibs_error_text says so.
 * others   As of dibs_lock_acquire.
 */
DIBS_API DIBS_MUST dibs_err dibs_latch_wait(dibs_latch *l,
                                            const dibs_latch_opts *opts);

/* The async twins, as those of locks. */
DIBS_API DIBS_MUST dibs_err dibs_semaphore_acquire_async(
    dibs_semaphore *s, const dibs_semaphore_opts *opts, dibs_cb cb, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_semaphore_try_async(
    dibs_semaphore *s, const dibs_semaphore_opts *opts, dibs_cb cb, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_semaphore_release_async(
    dibs_semaphore *s, const dibs_semaphore_opts *opts, dibs_cb cb, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_latch_count_down_async(
    dibs_latch *l, const dibs_latch_opts *opts, dibs_cb cb, void *arg);
DIBS_API DIBS_MUST dibs_err dibs_latch_wait_async(dibs_latch *l,
                                                  const dibs_latch_opts *opts,
                                                  dibs_cb cb, void *arg);

#ifdef __cplusplus
}
#endif
#endif
