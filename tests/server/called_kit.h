/* SPDX-License-Identifier: MIT
 *
 * called_kit.h - clients that wait for "l" to be called, whatever kind of lock
 * that is; and others who take and free it without a call.
 */
#ifndef DIBS_TESTS_SERVER_CALLED_KIT_H
#define DIBS_TESTS_SERVER_CALLED_KIT_H

#include "server/kit.h"

#define CHANNEL  "redisson_lock__channel:{l}"
#define PLACES   "redisson_sc:{l}"
#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

enum { CLIENTS = 8 };

/* What "l" is in a test, and how others take it, and free it without a call. */
struct kind {
    dibs_err (*make)(dibs_client *c, const char *name, dibs_lock **out);
    const char *channel, *take, *free;
};

static inline dibs_err one_slot(dibs_client *c, const char *name,
                                dibs_lock **out)
{
    return dibs_slots_lock_new(c, name, 1, out);
}

#define TAKE_HASH                                                              \
    "if redis.call('exists', 'l') == 1 then return 0 end "                     \
    "redis.call('hset', 'l', ARGV[1], '1') "                                   \
    "return redis.call('pexpire', 'l', '600000')"
#define FREE_HASH                                                              \
    "redis.call('del', 'l') return redis.call('publish', ARGV[2], '0')"
#define TAKE_SLOT                                                              \
    "if tonumber(redis.call('get', 'l') or '1') < 1 then return 0 end "        \
    "redis.call('set', 'l', '0') "                                             \
    "return redis.call('zadd', '{l}:timeout', '922337203685477', ARGV[1])"
#define FREE_SLOT                                                              \
    "redis.call('zrem', '{l}:timeout', ARGV[1]) "                              \
    "return redis.call('publish', ARGV[2], redis.call('incr', 'l'))"

enum { PLAIN, FENCED, SLOTS };

static struct kind called_kinds[] = {
    [PLAIN] = {dibs_lock_new, CHANNEL, TAKE_HASH, FREE_HASH},
    [FENCED] = {dibs_fenced_lock_new, CHANNEL, TAKE_HASH, FREE_HASH},
    [SLOTS] = {one_slot, PLACES, TAKE_SLOT, FREE_SLOT},
};

/* What a test is about. */
static inline const struct kind *called_kind(void **state)
{
    return *state;
}

static inline dibs_lock *called_lock(const struct kind *k, dibs_client *c)
{
    dibs_lock *l = NULL;

    FINE(k->make(c, "l", &l));
    return l;
}

static inline bool called_held(const struct kind *k)
{
    return k == &called_kinds[SLOTS] ? ts_exists(srv, "{l}:timeout")
                                     : ts_exists(srv, "l");
}

/* The last token, and how many slots there are, stay. */
static inline int called_after(void **state)
{
    ts_ok(srv, "DEL redisson_lock_token:{l}");
    if (*state == &called_kinds[SLOTS])
        ts_ok(srv, "DEL l {l}:dibs_slot");
    return kit_after(state);
}

#define CALLED_TEST(f, kind)                                                   \
    {                                                                          \
        .name = #f "_" #kind, .test_func = f, .setup_func = kit_before,        \
        .teardown_func = called_after, .initial_state = &called_kinds[kind]    \
    }

/* A client with one call that waits, and gives back when it got in. */
struct waiter {
    dibs_client *c;
    dibs_lock *l;
    dibs_owner owner;
    struct told got, gave;
};

static inline void granted(dibs_err err, void *arg)
{
    struct waiter *w = arg;

    if (err == DIBS_OK)
        err = dibs_lock_release_async(w->l, DIBS_LOCK_OPTS(.owner = w->owner),
                                      kit_tell, &w->gave);
    kit_tell(err, &w->got);
}

static inline void open_waiters(const struct kind *k, struct waiter *w, int n)
{
    memset(w, 0, (size_t)n * sizeof *w);
    for (int i = 0; i < n; i++) {
        w[i].c = kit_open(NULL);
        w[i].l = called_lock(k, w[i].c);
        w[i].owner = dibs_owner_new(w[i].c);
    }
}

/* They come one after the other; the server has so many in its queue then. */
static inline void line_up(struct waiter *w, int n)
{
    for (int i = 0; i < n; i++) {
        FINE(dibs_lock_acquire_async(
            w[i].l, DIBS_LOCK_OPTS(.owner = w[i].owner), granted, &w[i]));
        TS_WAIT(ts_waiting(srv, "l") == i + 1);
    }
}

static inline void come(const struct kind *k, struct waiter *w, int n)
{
    open_waiters(k, w, n);
    line_up(w, n);
}

static inline void go(struct waiter *w)
{
    dibs_lock_free(w->l);
    kit_close(w->c);
}

/* False: somebody has it. */
static inline bool taken_by_stranger(const struct kind *k)
{
    return ts_int(srv, "EVAL %s 0 %s", k->take, STRANGER) == 1;
}

static inline void freed_by_stranger(const struct kind *k)
{
    ts_ok(srv, "EVAL %s 0 %s %s", k->free, STRANGER, k->channel);
}

#endif
