/* SPDX-License-Identifier: MIT
 *
 * fair_kit.h - what the tests of the fair lock share: waiters, looks at the
 * queue, and Redisson's part, played by scripts of our own that do to the keys
 * what Redisson does.
 */
#ifndef DIBS_TESTS_SERVER_FAIR_KIT_H
#define DIBS_TESTS_SERVER_FAIR_KIT_H

#include "server/kit.h"

#define QUEUE  "redisson_lock_queue:{l}"
#define SCORES "redisson_lock_timeout:{l}"
#define CALL   "redisson_lock__channel:{l}:"
#define UUID   "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b"
#define HOLDER UUID ":7"

static inline dibs_lock *fair_lock(dibs_client *c)
{
    dibs_lock *l = NULL;

    FINE(dibs_fair_lock_new(c, "l", &l));
    return l;
}

/* The lock is somebody's whom we do not know, for so long. */
static inline void taken_by_stranger(int64_t ms)
{
    ts_ok(srv, "HSET l %s 1", HOLDER);
    ts_ok(srv, "PEXPIRE l %lld", (long long)ms);
}

static inline long long server_now(void)
{
    return ts_int(srv, "EVAL %s 0",
                  "local t = redis.call('time') "
                  "return t[1] * 1000 + math.floor(t[2] / 1000)");
}

/* ---- the queue --------------------------------------------------------- */

static inline long long queued(void)
{
    return ts_int(srv, "LLEN %s", QUEUE);
}

/* Until so many stand in it. */
static inline void wait_queued(long long n)
{
    TS_WAIT(queued() == n);
}

/* How many different owners stand in it. What is no owner's text, or an owner's
 * second place, does not count: a client that asks removes those at any time.
 */
static inline long long queued_owners(void)
{
    return ts_int(srv, "EVAL %s 1 %s",
                  "local seen, n = {}, 0 "
                  "for _, who in ipairs(redis.call('lrange', KEYS[1], 0, -1)) "
                  "do if who:find(':') and not seen[who] then "
                  "seen[who] = true n = n + 1 end end return n",
                  QUEUE);
}

/* Who stands at this place; free() it. NULL: nobody. */
static inline char *queue_at(int place)
{
    return ts_str(srv, "LINDEX %s %d", QUEUE, place);
}

/* The whole queue as one text; free() it. */
static inline char *queue_text(void)
{
    return ts_str(srv, "EVAL %s 1 %s",
                  "return table.concat(redis.call('lrange', KEYS[1], 0, -1), "
                  "' ')",
                  QUEUE);
}

/* Queue and scores are about the same owners, each once, with one TTL that
 * ends behind the last score. An empty queue has no scores either. */
static inline void check_queue_sound(void)
{
    char *bad = ts_str(
        srv, "EVAL %s 2 %s %s",
        TS_LUA_ENDS
        "local all = redis.call('lrange', KEYS[1], 0, -1) local seen = {} "
        "for _, o in ipairs(all) do "
        "  if seen[o] then return o .. ' is there twice' end "
        "  seen[o] = true "
        "  if not redis.call('zscore', KEYS[2], o) then "
        "    return o .. ' has no score' end "
        "end "
        "if #all ~= redis.call('zcard', KEYS[2]) then "
        "  return 'scores without an entry' end "
        "if #all == 0 then return false end "
        "local q, z = ends(KEYS[1]), ends(KEYS[2]) "
        "if math.abs(q - z) > 2 then return 'two TTLs' end "
        "local last = redis.call('zrange', KEYS[2], -1, -1, 'WITHSCORES')[2] "
        "if q <= tonumber(last) then return 'the TTL ends too early' end "
        "return false",
        QUEUE, SCORES);

    if (bad)
        fail_msg("the queue: %s", bad);
}

/* One who never asks again stands in it, with so much time left. */
static inline void queue_dead(const char *owner, long long ms)
{
    ts_ok(srv, "RPUSH %s %s", QUEUE, owner);
    ts_ok(srv, "ZADD %s %lld %s", SCORES, server_now() + ms, owner);
}

/* ---- waiters ----------------------------------------------------------- */

static atomic_int served;

struct waiter {
    dibs_lock *l;
    dibs_owner owner;
    struct told got, gave;
    atomic_int place; /* in the order of grants; -1 not yet */
    bool keeps;       /* does not give back by itself */
};

static inline void waiter_granted(dibs_err err, void *arg)
{
    struct waiter *w = arg;

    if (err == DIBS_OK) {
        atomic_store(&w->place, atomic_fetch_add(&served, 1));
        if (!w->keeps)
            err = dibs_lock_release_async(
                w->l, DIBS_LOCK_OPTS(.owner = w->owner), kit_tell, &w->gave);
    }
    kit_tell(err, &w->got);
}

static inline void waiter_start(struct waiter *w, dibs_client *c, dibs_lock *l,
                                int64_t wait_ms)
{
    memset(w, 0, sizeof *w);
    w->l = l;
    w->owner = dibs_owner_new(c);
    atomic_store(&w->place, -1);
    FINE(dibs_lock_acquire_async(
        l, DIBS_LOCK_OPTS(.owner = w->owner, .wait_ms = wait_ms),
        waiter_granted, w));
}

/* They arrive in the order of their numbers, and are there, with ears. */
static inline void line_up(struct waiter *w, int n, dibs_client *c,
                           dibs_lock *l)
{
    long long before = queued_owners();

    for (int i = 0; i < n; i++) {
        waiter_start(&w[i], c, l, 0);
        TS_WAIT(queued_owners() == before + i + 1);
    }
    TS_WAIT(ts_int(srv, "EVAL %s 1 %s %s %d",
                   "local deaf = 0 "
                   "for _, who in ipairs(redis.call('lrange', KEYS[1], "
                   "-tonumber(ARGV[2]), -1)) do "
                   "if redis.call('pubsub', 'numsub', ARGV[1] .. who)[2] == 0 "
                   "then deaf = deaf + 1 end end return deaf",
                   QUEUE, CALL, n) == 0);
}

/* Each had it, in the order of their numbers, and gave it back. */
static inline void check_served(struct waiter *w, int n, int first)
{
    for (int i = 0; i < n; i++) {
        FINE(kit_answer(&w[i].got));
        FINE(kit_answer(&w[i].gave));
        assert_int_equal(atomic_load(&w[i].place), first + i);
    }
}

/* ---- Redisson's part --------------------------------------------------- */

#define EVICT_STALE                                                            \
    "while true do "                                                           \
    "  local h = redis.call('lindex', KEYS[2], 0) if not h then break end "    \
    "  local s = redis.call('zscore', KEYS[3], h) "                            \
    "  if not s or tonumber(s) > tonumber(ARGV[4]) then break end "            \
    "  redis.call('zrem', KEYS[3], h) redis.call('lpop', KEYS[2]) "            \
    "end "

/* An attempt of Redisson's waiting form: drops those whose time is over by the
 * caller's clock, takes the lock if it is its turn and then takes its W off
 * everybody's score, or queues behind the last score. Nil: taken. */
#define REDISSON_TRY                                                           \
    EVICT_STALE                                                                \
    "local o, w, now = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]) "         \
    "local free = redis.call('exists', KEYS[1]) == 0 "                         \
    "local head = redis.call('lindex', KEYS[2], 0) "                           \
    "if free and (not head or head == o) then "                                \
    "  redis.call('lpop', KEYS[2]) redis.call('zrem', KEYS[3], o) "            \
    "  for _, m in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do "           \
    "    redis.call('zincrby', KEYS[3], -w, m) "                               \
    "  end "                                                                   \
    "  redis.call('hset', KEYS[1], o, 1) "                                     \
    "  redis.call('pexpire', KEYS[1], ARGV[2]) return nil "                    \
    "end "                                                                     \
    "if redis.call('zscore', KEYS[3], o) then "                                \
    "  return math.max(0, redis.call('pttl', KEYS[1])) "                       \
    "end "                                                                     \
    "local last = redis.call('lindex', KEYS[2], -1) "                          \
    "local s = last and redis.call('zscore', KEYS[3], last) "                  \
    "local ttl = s and s - now or redis.call('pttl', KEYS[1]) "                \
    "if redis.call('zadd', KEYS[3], ttl + w + now, o) == 1 then "              \
    "  redis.call('rpush', KEYS[2], o) "                                       \
    "end return ttl"

#define REDISSON_UNLOCK                                                        \
    EVICT_STALE                                                                \
    "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end "     \
    "redis.call('del', KEYS[1]) "                                              \
    "local h = redis.call('lindex', KEYS[2], 0) "                              \
    "if h then redis.call('publish', ARGV[5] .. h, '0') end return 1"

/* off: how far this client's clock is off. True: taken, or given back. */
static inline bool redisson(const char *script, const char *owner,
                            long long lease, long long w, long long off)
{
    redisReply *r =
        ts_cmd(srv, "EVAL %s 3 l %s %s %s %lld %lld %lld %s", script, QUEUE,
               SCORES, owner, lease, w, server_now() + off, CALL);

    if (!r || r->type == REDIS_REPLY_ERROR)
        fail_msg("the other client: %s", r ? r->str : "no reply");
    bool done = strcmp(script, REDISSON_TRY) == 0 ? r->type == REDIS_REPLY_NIL
                                                  : r->type != REDIS_REPLY_NIL;
    freeReplyObject(r);
    return done;
}

/* The stranger gives back what it has, and calls the head. */
static inline void stranger_gives_back(void)
{
    assert_true(redisson(REDISSON_UNLOCK, HOLDER, 0, 0, 0));
}

#endif
