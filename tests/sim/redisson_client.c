/* SPDX-License-Identifier: MIT
 *
 * redisson_client.c - simulated Redisson clients: they use the same keys and
 * messages as Redisson, by scripts of our own that make the same changes, and
 * wait as it waits. dibs must exclude them, be excluded by them, and wake them.
 *
 * What they do:
 *
 *   plain, fair, read, write   acquire, hold, renew or not, release
 *   permits with a lease       those of the slots lock
 *   permits without            those of the semaphore, in runs without faults:
 *                              a permit without a lease is lost for ever if its
 *                              holder dies
 *
 * A client is one thread with two connections, one for commands and one for
 * subscriptions. After a lost reply it does what a process that crashed does:
 * it forgets everything and continues as another client; what it held, and its
 * queue entry, stay until they expire. Its wall clock is the server's.
 * Re-entry, guards against a second send and checks of replicas are left out.
 */
#include "sim/simulation.h"

#include "sim/wrap.h"

#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPLY_MS  3000
#define FAIR_WAIT "300000"
#define OUT       "{m0}:others" /* permits that dibs knows nothing of */

enum deal { PLAIN, FAIR, READ, WRITE, LEASED, BARE, DEALS };

struct peer {
    struct peer *next;
    struct sim_proc *proc;
    int number, lives;
    struct sim_chance chance;
    char owner[64], wide[72]; /* the second as a writer */
    int command, listen;      /* sockets; -1 = none */
    redisReader *said, *heard;
    int64_t waits_since; /* for the fair lock; SIM_NEVER: it does not */
    /* what it holds */
    enum deal deal;
    const char *name; /* NULL: nothing */
    int64_t until;    /* us; by then its lease is over */
};

static struct peer *peers;

#define OWNER_MARK "-0000-4000-8000-" /* in all names of owners */

/* ---- what it asks for -------------------------------------------------- */

/* KEYS the names that each script needs, ARGV 1 owner 2 lease, others as said.
 * A take gives 'taken', or ms to wait; a release says nothing of interest. */
#define NOW                                                                    \
    "local t = redis.call('time') local now = t[1] * 1000 + "                  \
    "math.floor(t[2] / 1000) "

static const char plain_take[] =
    "if redis.call('exists', KEYS[1]) == 1 and "
    "redis.call('hexists', KEYS[1], ARGV[1]) == 0 then "
    "return redis.call('pttl', KEYS[1]) end "
    "redis.call('hincrby', KEYS[1], ARGV[1], 1) "
    "redis.call('pexpire', KEYS[1], ARGV[2]) return 'taken'";

static const char plain_give[] =
    "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end "
    "if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then "
    "return redis.call('pexpire', KEYS[1], ARGV[2]) end "
    "redis.call('del', KEYS[1]) return redis.call('publish', KEYS[2], '0')";

static const char renew[] =
    "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end "
    "return redis.call('pexpire', KEYS[1], ARGV[2])";

/* Drops heads of the queue whose time is over. KEYS 1 lock 2 queue 3 times */
#define STALE                                                                  \
    NOW "while true do local h = redis.call('lindex', KEYS[2], 0) "            \
        "if not h then break end "                                             \
        "local s = tonumber(redis.call('zscore', KEYS[3], h) or nil) "         \
        "if not s or s > now then break end "                                  \
        "redis.call('zrem', KEYS[3], h) redis.call('lpop', KEYS[2]) end "

/* ARGV 3 the longest wait */
static const char fair_take[] = STALE
    "local free = redis.call('exists', KEYS[1]) == 0 "
    "local head = redis.call('lindex', KEYS[2], 0) "
    "if free and (not head or head == ARGV[1]) then "
    "redis.call('lpop', KEYS[2]) redis.call('zrem', KEYS[3], ARGV[1]) "
    "for _, m in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do "
    "redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), m) end "
    "redis.call('hset', KEYS[1], ARGV[1], 1) "
    "redis.call('pexpire', KEYS[1], ARGV[2]) return 'taken' end "
    "if redis.call('zscore', KEYS[3], ARGV[1]) then "
    "return math.max(0, redis.call('pttl', KEYS[1])) end "
    "local last = redis.call('lindex', KEYS[2], -1) "
    "local ends = last and redis.call('zscore', KEYS[3], last) "
    "local ttl = ends and tonumber(ends) - now or "
    "redis.call('pttl', KEYS[1]) "
    "if redis.call('zadd', KEYS[3], ttl + tonumber(ARGV[3]) + now, ARGV[1]) "
    "== 1 then redis.call('rpush', KEYS[2], ARGV[1]) end return ttl";

static const char fair_give[] = STALE
    "local mine = redis.call('hexists', KEYS[1], ARGV[1]) == 1 "
    "if redis.call('exists', KEYS[1]) == 1 and not mine then return 0 end "
    "if mine then redis.call('del', KEYS[1]) end "
    "local head = redis.call('lindex', KEYS[2], 0) "
    "if head then redis.call('publish', KEYS[4] .. ':' .. head, '0') end "
    "return 1";

static const char fair_leave[] =
    "local behind = false "
    "for _, m in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do "
    "if behind then redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), m) end "
    "behind = behind or m == ARGV[1] end "
    "redis.call('zrem', KEYS[3], ARGV[1]) "
    "return redis.call('lrem', KEYS[2], 0, ARGV[1])";

/* KEYS 1 lock 2 channel 3 prefix of the keys of its holds */
static const char read_take[] =
    "local mode = redis.call('hget', KEYS[1], 'mode') "
    "if mode == 'write' then return redis.call('pttl', KEYS[1]) end "
    "if not mode then redis.call('hset', KEYS[1], 'mode', 'read') end "
    "local i = redis.call('hincrby', KEYS[1], ARGV[1], 1) "
    "redis.call('set', KEYS[3] .. i, '1', 'px', ARGV[2]) "
    "redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), "
    "tonumber(ARGV[2]))) return 'taken'";

static const char read_give[] =
    "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end "
    "local c = redis.call('hincrby', KEYS[1], ARGV[1], -1) "
    "if c == 0 then redis.call('hdel', KEYS[1], ARGV[1]) end "
    "redis.call('del', KEYS[3] .. (c + 1)) "
    "if redis.call('hlen', KEYS[1]) > 1 then local most = -3 "
    "local all = redis.call('hgetall', KEYS[1]) "
    "for f = 1, #all, 2 do for i = tonumber(all[f + 1]) or 0, 1, -1 do "
    "most = math.max(most, redis.call('pttl', ARGV[3] .. all[f] .. "
    "':rwlock_timeout:' .. i)) end end "
    "if most > 0 then return redis.call('pexpire', KEYS[1], most) end "
    "if redis.call('hget', KEYS[1], 'mode') == 'write' then return 0 end end "
    "redis.call('del', KEYS[1]) return redis.call('publish', KEYS[2], '0')";

static const char write_take[] =
    "if redis.call('hexists', KEYS[1], 'mode') == 1 then "
    "return redis.call('pttl', KEYS[1]) end "
    "redis.call('hset', KEYS[1], 'mode', 'write', ARGV[1], '1') "
    "redis.call('pexpire', KEYS[1], ARGV[2]) return 'taken'";

static const char write_give[] =
    "if redis.call('hget', KEYS[1], 'mode') ~= 'write' or "
    "redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end "
    "redis.call('hdel', KEYS[1], ARGV[1]) "
    "if redis.call('hlen', KEYS[1]) > 1 then "
    "return redis.call('hset', KEYS[1], 'mode', 'read') end "
    "redis.call('del', KEYS[1]) return redis.call('publish', KEYS[2], '1')";

/* KEYS 1 count 2 channel 3 permits by the end of their lease */
static const char leased_take[] = NOW
    "local gone = redis.call('zrangebyscore', KEYS[3], 0, now, 'limit', 0, 1) "
    "for _, id in ipairs(gone) do redis.call('zrem', KEYS[3], id) "
    "local v = redis.call('incrby', KEYS[1], 1) "
    "if v > 0 then redis.call('publish', KEYS[2], v) end end "
    "if tonumber(redis.call('get', KEYS[1]) or 0) < 1 then return 50 end "
    "redis.call('decrby', KEYS[1], 1) "
    "redis.call('zadd', KEYS[3], now + tonumber(ARGV[2]), ARGV[1]) "
    "return 'taken'";

static const char leased_give[] =
    "if redis.call('zrem', KEYS[3], ARGV[1]) == 0 then return 0 end "
    "return redis.call('publish', KEYS[2], redis.call('incrby', KEYS[1], 1))";

/* KEYS 3 number of acquired permits, for the checker */
static const char bare_take[] =
    "if tonumber(redis.call('get', KEYS[1]) or 0) < 1 then return 50 end "
    "redis.call('decrby', KEYS[1], 1) redis.call('incr', KEYS[3]) "
    "return 'taken'";

static const char bare_give[] =
    "redis.call('decr', KEYS[3]) "
    "return redis.call('publish', KEYS[2], redis.call('incrby', KEYS[1], 1))";

static const struct {
    const char *name, *channel, *take, *give, *leave;
    bool shared;
} deals[DEALS] = {
    [PLAIN] = {"p0", "redisson_lock__channel:{p0}", plain_take, plain_give,
               NULL, false},
    [FAIR] = {"f0", "redisson_lock__channel:{f0}", fair_take, fair_give,
              fair_leave, false},
    [READ] = {"rw0", "redisson_rwlock:{rw0}", read_take, read_give, NULL, true},
    [WRITE] = {"rw0", "redisson_rwlock:{rw0}", write_take, write_give, NULL,
               false},
    [LEASED] = {"s0", "redisson_sc:{s0}", leased_take, leased_give, NULL, true},
    [BARE] = {"m0", "redisson_sc:{m0}", bare_take, bare_give, NULL, true},
};

/* ---- its connections --------------------------------------------------- */

static void hang_up(struct peer *p)
{
    if (p->command >= 0)
        close(p->command);
    if (p->listen >= 0)
        close(p->listen);
    p->command = p->listen = -1;
    redisReaderFree(p->said);
    redisReaderFree(p->heard);
    p->said = p->heard = NULL;
}

static int dial(void)
{
    struct sim_server *sv = sim_master("p0");
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)sv->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct pollfd pfd = {.fd = fd, .events = POLLOUT};
    int failed = 0;
    socklen_t len = sizeof failed;

    if (fd < 0)
        return -1;
    inet_pton(AF_INET, sv->host, &to.sin_addr);
    connect(fd, (struct sockaddr *)&to, sizeof to);
    if (poll(&pfd, 1, REPLY_MS) == 1 &&
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) == 0 && !failed)
        return fd;
    close(fd);
    return -1;
}

/* The next reply, within that many ms. *broken: the connection is closed. */
static redisReply *next_reply(int fd, redisReader *r, int64_t ms, bool *broken)
{
    int64_t until = sim_now() + ms * 1000;
    void *reply = NULL;
    char bytes[4096];

    for (;;) {
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        if (redisReaderGetReply(r, &reply) != REDIS_OK) {
            *broken = true;
            return NULL;
        }
        if (reply)
            return reply;
        int64_t left = (until - sim_now() + 999) / 1000;
        if (left <= 0 || poll(&pfd, 1, (int)left) == 0)
            return NULL;
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0) {
            *broken = true;
            return NULL;
        }
        redisReaderFeed(r, bytes, (size_t)n);
    }
}

static bool send_all(int fd, int argc, const char **argv)
{
    char *text = NULL;
    long long n = redisFormatCommandArgv(&text, argc, argv, NULL);
    long long at = 0;

    while (at < n) {
        ssize_t part = send(fd, text + at, (size_t)(n - at), 0);
        if (part < 0)
            break;
        at += part;
    }
    redisFreeCommand(text);
    return at == n;
}

static redisReply *ask_server(struct peer *p, int argc, const char **argv)
{
    bool broken = false;

    if (p->command < 0 || !send_all(p->command, argc, argv))
        return NULL;
    redisReply *r = next_reply(p->command, p->said, REPLY_MS, &broken);
    if (r && r->type == REDIS_REPLY_ERROR) { /* nor does it know then */
        freeReplyObject(r);
        r = NULL;
    }
    return r;
}

static bool come_up(struct peer *p)
{
    p->lives++;
    snprintf(p->owner, sizeof p->owner, "%08x" OWNER_MARK "%012x:%d", p->number,
             p->lives, 17);
    snprintf(p->wide, sizeof p->wide, "%s:write", p->owner);
    p->said = redisReaderCreate();
    p->heard = redisReaderCreate();
    p->command = dial();
    p->listen = p->command < 0 ? -1 : dial();
    return p->listen >= 0;
}

/* ---- what it does ------------------------------------------------------ */

static const char *owner_for(const struct peer *p, enum deal d)
{
    return d == WRITE ? p->wide : p->owner;
}

static redisReply *run_script(struct peer *p, enum deal d, const char *script,
                              int64_t lease_ms)
{
    char lease[24], holds[120], queue[60], times[60], tag[20];
    const char *name = deals[d].name;
    const char *argv[12] = {"EVAL", script};
    int n = 2;

    snprintf(lease, sizeof lease, "%lld", (long long)lease_ms);
    snprintf(holds, sizeof holds, "{%s}:%s:rwlock_timeout:", name, p->owner);
    snprintf(queue, sizeof queue, "redisson_lock_queue:{%s}", name);
    snprintf(times, sizeof times, "redisson_lock_timeout:{%s}", name);
    snprintf(tag, sizeof tag, "{%s}:", name);
    if (d == LEASED)
        snprintf(holds, sizeof holds, "{%s}:timeout", name);
    if (d == BARE)
        snprintf(holds, sizeof holds, "%s", OUT);
    argv[n++] = d == FAIR ? "4" : "3";
    argv[n++] = name;
    argv[n++] = d == FAIR ? queue : deals[d].channel;
    argv[n++] = d == FAIR ? times : holds;
    if (d == FAIR)
        argv[n++] = deals[d].channel;
    argv[n++] = owner_for(p, d);
    argv[n++] = lease;
    argv[n++] = d == FAIR ? FAIR_WAIT : tag;
    return ask_server(p, n, argv);
}

static bool listens(struct peer *p, enum deal d, const char *word)
{
    char channel[160];
    const char *argv[2] = {word, channel};

    snprintf(channel, sizeof channel, d == FAIR ? "%s:%s" : "%s",
             deals[d].channel, p->owner);
    return send_all(p->listen, 2, argv);
}

/* Asks until it is granted or times out. False: outcome unknown. */
static bool take_deal(struct peer *p, enum deal d, int64_t lease_ms, bool *got)
{
    int64_t until =
        sim_now() + sim_skewed(&p->chance, 6 * sim_plan.lease_ms * 1000);
    bool listening = false, broken = false;

    p->waits_since = d == FAIR ? sim_now() : SIM_NEVER;
    for (*got = false;;) {
        int64_t sent = sim_now();
        redisReply *r = run_script(p, d, deals[d].take, lease_ms);
        if (!r)
            return false;
        int64_t ms = r->type == REDIS_REPLY_INTEGER ? r->integer : 200;
        *got = r->type == REDIS_REPLY_STRING;
        freeReplyObject(r);
        if (*got)
            p->until = sent + lease_ms * 990;
        if (*got || sim_now() >= until || sim_faults_ended)
            break;
        if (!listening) {
            listening = listens(p, d, "SUBSCRIBE");
            continue;
        }
        int64_t left = (until - sim_now()) / 1000 + 1;
        if (ms < 5) /* it would ask without end */
            ms = 5;
        r = next_reply(p->listen, p->heard,
                       ms < left    ? ms
                       : left < 500 ? left
                                    : 500,
                       &broken);
        if (r)
            freeReplyObject(r);
        if (broken)
            return false;
    }
    p->waits_since = SIM_NEVER;
    if (!*got && deals[d].leave) {
        redisReply *r = run_script(p, d, deals[d].leave, lease_ms);
        if (!r)
            return false;
        freeReplyObject(r);
    }
    return !listening || listens(p, d, "UNSUBSCRIBE");
}

static bool hold_deal(struct peer *p, enum deal d, int64_t lease_ms)
{
    int64_t us = sim_skewed(&p->chance, lease_ms * 600);
    bool late = d != BARE && sim_now() >= p->until;

    sim_totals.foreign++;
    p->deal = d;
    p->name = late ? NULL : deals[d].name;
    sim_note("another client has %s%s", deals[d].name,
             late ? ", and hears so too late" : "");
    if (!late && d != LEASED && d != BARE)
        sim_check_redisson_grant(p->name, deals[d].shared, p->proc->name);
    sim_sleep(us + 1);
    if ((d == PLAIN || d == FAIR || d == WRITE) && sim_once_in(&p->chance, 3)) {
        int64_t sent = sim_now();
        redisReply *r = run_script(p, d, renew, lease_ms);
        if (!r)
            return false;
        if (r->type == REDIS_REPLY_INTEGER && r->integer == 1)
            p->until = sent + lease_ms * 990;
        freeReplyObject(r);
        sim_sleep(sim_skewed(&p->chance, lease_ms * 600) + 1);
    }
    p->name = NULL;
    redisReply *r = run_script(p, d, deals[d].give, lease_ms);
    if (!r)
        return false;
    freeReplyObject(r);
    return true;
}

/* False: it has to begin anew. */
static bool play_deal(struct peer *p)
{
    bool calm = sim_plan.may == 0;
    enum deal d = (enum deal)sim_between(&p->chance, 0, calm ? BARE : LEASED);
    int64_t lease = sim_between(&p->chance, 1, 3) * sim_plan.lease_ms;
    bool got;

    if (!take_deal(p, d, lease, &got))
        return false;
    return !got || hold_deal(p, d, lease);
}

static void *redisson_main(void *arg)
{
    struct peer *p = arg;

    while (!sim_faults_ended) {
        if (p->command < 0 && !come_up(p)) {
            hang_up(p);
            sim_sleep(300000);
        } else if (!play_deal(p)) {
            sim_note("another client forgets everything");
            p->name = NULL;
            hang_up(p);
        }
        sim_sleep(sim_skewed(&p->chance, sim_plan.busy_us) + 1);
    }
    hang_up(p);
    return NULL;
}

void sim_redisson_begin(void)
{
    for (int i = 0; i < sim_plan.peers; i++) {
        struct peer *p = calloc(1, sizeof *p);
        char name[16];
        snprintf(name, sizeof name, "j%d", i);
        p->number = i + 1;
        p->command = p->listen = -1;
        p->proc = sim_proc_new(name, sim_plan.seed);
        p->chance = sim_stream(sim_plan.seed, (uint64_t)(9000 + i));
        p->next = peers;
        peers = p;
        sim_spawn(p->proc, "main", redisson_main, p);
    }
}

/* ---- for the invariant checker ------------------------------------------ */

bool sim_redisson_wait(const char *owner, int64_t *since)
{
    *since = SIM_NEVER;
    for (const struct peer *p = peers; p; p = p->next)
        if (strcmp(p->owner, owner) == 0)
            *since = p->waits_since;
    return strstr(owner, OWNER_MARK) != NULL;
}

const char *sim_redisson_hold(const char *name, bool shared)
{
    for (const struct peer *p = peers; p; p = p->next)
        if (p->name && p->deal != LEASED && p->deal != BARE &&
            strcmp(p->name, name) == 0 && p->until > sim_now() &&
            !(shared && deals[p->deal].shared))
            return p->proc->name;
    return NULL;
}

int sim_redisson_slots(void)
{
    int n = 0;

    for (const struct peer *p = peers; p; p = p->next)
        n += p->name && p->deal == LEASED && p->until > sim_now();
    return n;
}

int64_t sim_redisson_permits(void)
{
    struct sim_server *sv = sim_master("m0");
    const char *a = peers ? sim_server_ask(sv, "GET %s", OUT) : NULL;

    return a && a[0] == '$' && a[1] != '-' ? atoll(strchr(a, '|') + 1) : 0;
}
