/* SPDX-License-Identifier: MIT
 *
 * test_rw_peers.c - the read-write lock together with another client of the
 * same keys, a Redisson one, which is played here: scripts that do to the keys
 * what it does, with a read key for each hold and its own idea of who counts.
 *
 * Its weak spots are played too. Where they hurt it and not us, that is shown;
 * we must live with them.
 */
#include "server/rw_kit.h"

#define PEER  "8743c9c0-0795-4907-87fd-6c719a6b4586:45"
#define OTHER "8743c9c0-0795-4907-87fd-6c719a6b4586:46"

/* ---- the other client -------------------------------------------------- */

/* KEYS lock, channel. ARGV owner, lease, head of read keys. */

static const char peer_read[] =
    "local o, l = ARGV[1], ARGV[2] "
    "local p = ARGV[3] .. o .. ':rwlock_timeout:' "
    "local mode = redis.call('hget', KEYS[1], 'mode') "
    "if not mode then "
    "  redis.call('hset', KEYS[1], 'mode', 'read', o, 1) "
    "  redis.call('set', p .. 1, 1, 'px', l) "
    "  redis.call('pexpire', KEYS[1], l) return false end "
    "if mode == 'read' or "
    "  redis.call('hexists', KEYS[1], o .. ':write') == 1 then "
    "  local n = redis.call('hincrby', KEYS[1], o, 1) "
    "  redis.call('set', p .. n, 1, 'px', l) "
    "  redis.call('pexpire', KEYS[1], "
    "    math.max(redis.call('pttl', KEYS[1]), tonumber(l))) "
    "  return false end "
    "return redis.call('pttl', KEYS[1])";

static const char peer_unread[] =
    "local o, head = ARGV[1], ARGV[3] "
    "local t = ':rwlock_timeout:' "
    "local mode = redis.call('hget', KEYS[1], 'mode') "
    "if not mode then redis.call('publish', KEYS[2], 0) return false end "
    "if redis.call('hexists', KEYS[1], o) == 0 then return false end "
    "local c = redis.call('hincrby', KEYS[1], o, -1) "
    "if c == 0 then redis.call('hdel', KEYS[1], o) end "
    "redis.call('del', head .. o .. t .. (c + 1)) "
    "if redis.call('hlen', KEYS[1]) > 1 then "
    "  local m = -3 "
    "  local all = redis.call('hgetall', KEYS[1]) "
    "  for i = 1, #all, 2 do "
    "    for n = tonumber(all[i + 1]) or 0, 1, -1 do "
    "      m = math.max(m, redis.call('pttl', head .. all[i] .. t .. n)) "
    "    end end "
    "  if m > 0 then redis.call('pexpire', KEYS[1], m) return 0 end "
    "  if mode == 'write' then return 0 end end "
    "redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], 0) return 1";

static const char peer_write[] =
    "local o, l = ARGV[1] .. ':write', tonumber(ARGV[2]) "
    "local mode = redis.call('hget', KEYS[1], 'mode') "
    "if not mode then redis.call('hset', KEYS[1], 'mode', 'write', o, 1) "
    "  redis.call('pexpire', KEYS[1], l) return false end "
    "if mode == 'write' and redis.call('hexists', KEYS[1], o) == 1 then "
    "  redis.call('hincrby', KEYS[1], o, 1) "
    "  redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + l) "
    "  return false end "
    "return redis.call('pttl', KEYS[1])";

static const char peer_unwrite[] =
    "local o = ARGV[1] .. ':write' "
    "local mode = redis.call('hget', KEYS[1], 'mode') "
    "if not mode then redis.call('publish', KEYS[2], 1) return false end "
    "if mode ~= 'write' or redis.call('hexists', KEYS[1], o) == 0 then "
    "  return false end "
    "local c = redis.call('hincrby', KEYS[1], o, -1) "
    "if c > 0 then redis.call('pexpire', KEYS[1], ARGV[2]) return 0 end "
    "redis.call('hdel', KEYS[1], o) "
    "if redis.call('hlen', KEYS[1]) == 1 then "
    "  redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], 1) "
    "else redis.call('hset', KEYS[1], 'mode', 'read') end "
    "return 1";

#define NIL (-100) /* no number */

/* What the other client's script answers. */
static long long peer(const char *script, const char *owner, long long lease)
{
    redisReply *r = ts_cmd(srv, "EVAL %s 2 l " CHANNEL " %s %lld {l}:", script,
                           owner, lease);

    if (!r || (r->type != REDIS_REPLY_INTEGER && r->type != REDIS_REPLY_NIL))
        fail_msg("the other client: %s", r ? r->str : "no reply");
    long long n = r->type == REDIS_REPLY_NIL ? NIL : r->integer;
    freeReplyObject(r);
    return n;
}

static void peer_gets(const char *script, long long lease)
{
    assert_int_equal(peer(script, PEER, lease), NIL);
}

static void peer_must_wait(const char *script)
{
    long long left = peer(script, PEER, LONG_MS);

    if (left < 0)
        fail_msg("the other client got in");
}

/* ---- side by side ------------------------------------------------------ */

/* A reader of ours stays when theirs leave, whatever order and nesting. */
static void test_rw_peers_our_reader_stays(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);

    (void)state;
    for (int nested = 1; nested <= 3; nested++)
        for (int first = 0; first < 2; first++) {
            if (first)
                peer_gets(peer_read, LONG_MS);
            for (int i = 0; i < nested; i++)
                FINE(dibs_lock_acquire(h.r, NULL));
            if (!first)
                peer_gets(peer_read, LONG_MS);
            assert_int_equal(peer(peer_read, OTHER, LONG_MS), NIL);
            assert_int_equal(peer(peer_unread, PEER, 0), 0);
            assert_int_equal(peer(peer_unread, OTHER, 0), 0);
            kit_state("theirs left", "read", 1);
            peer_must_wait(peer_write);
            assert_int_equal(kit_count(h.r, "l", 0), nested);
            for (int i = 0; i < nested; i++)
                FINE(dibs_lock_release(h.r, NULL));
            assert_int_equal(ts_nkeys(srv), 0);
        }
    kit_halves_free(&h);
    kit_close(c);
}

/* A reader of theirs stays when ours leaves. */
static void test_rw_peers_their_reader_stays(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);

    (void)state;
    for (int nested = 1; nested <= 3; nested++) {
        for (int i = 0; i < nested; i++)
            peer_gets(peer_read, LONG_MS);
        FINE(dibs_lock_acquire(h.r, NULL));
        FINE(dibs_lock_acquire(h.r, NULL));
        FINE(dibs_lock_release(h.r, NULL));
        FINE(dibs_lock_release(h.r, NULL));
        kit_state("ours left", "read", 1);
        assert_true(ts_pttl(srv, "l") > LONG_MS / 2);
        WANT(dibs_lock_try(h.w, NULL), DIBS_ERR_BUSY);
        for (int i = nested; i > 0; i--)
            assert_int_equal(peer(peer_unread, PEER, 0), i > 1 ? 0 : 1);
        assert_int_equal(ts_nkeys(srv), 0);
    }
    kit_halves_free(&h);
    kit_close(c);
}

/* Of its nested holds the first has ended, the second goes on: it reads. */
static void test_rw_peers_lease_of_each_hold(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);

    (void)state;
    peer_gets(peer_read, LONG_MS);
    peer_gets(peer_read, LONG_MS);
    ts_ok(srv, "PEXPIRE {l}:" PEER ":rwlock_timeout:1 50");
    assert_true(ts_wait_exists(srv, "{l}:" PEER ":rwlock_timeout:1", false));
    FINE(dibs_lock_acquire(h.r, NULL));
    FINE(dibs_lock_release(h.r, NULL));
    assert_true(ts_pttl(srv, "l") > LONG_MS / 2);
    WANT(dibs_lock_try(h.w, NULL), DIBS_ERR_BUSY);
    kit_state("it reads", "read", 1);
    ts_ok(srv, "DEL {l}:" PEER ":rwlock_timeout:2");
    FINE(dibs_lock_try(h.w, NULL)); /* and now it does not */
    FINE(dibs_lock_release(h.w, NULL));
    kit_halves_free(&h);
    kit_close(c);
}

/* One of theirs that crashed: its lease ends, ours go on; then only ours
 * count. */
static void test_rw_peers_their_reader_dies(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);

    (void)state;
    FINE(dibs_lock_acquire(h.r, NULL));
    peer_gets(peer_read, 100);
    assert_true(ts_wait_exists(srv, "{l}:" PEER ":rwlock_timeout:1", false));
    FINE(dibs_lock_release(h.r, NULL));
    assert_int_equal(ts_nkeys(srv), 0);
    kit_halves_free(&h);
    kit_close(c);
}

/* A writer excludes everybody, of either side. */
static void test_rw_peers_writers_exclude(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);

    (void)state;
    FINE(dibs_lock_acquire(h.w, NULL));
    peer_must_wait(peer_read);
    peer_must_wait(peer_write);
    FINE(dibs_lock_acquire(h.r, NULL));
    peer_must_wait(peer_read);
    FINE(dibs_lock_release(h.w, NULL));
    peer_must_wait(peer_write);
    peer_gets(peer_read, LONG_MS); /* after our downgrade */
    FINE(dibs_lock_release(h.r, NULL));
    assert_int_equal(peer(peer_unread, PEER, 0), 1);

    peer_gets(peer_write, LONG_MS);
    WANT(dibs_lock_try(h.r, NULL), DIBS_ERR_BUSY);
    WANT(dibs_lock_try(h.w, NULL), DIBS_ERR_BUSY);
    peer_gets(peer_read, LONG_MS);
    WANT(dibs_lock_try(h.r, NULL), DIBS_ERR_BUSY);
    assert_int_equal(peer(peer_unwrite, PEER, LONG_MS), 1);
    WANT(dibs_lock_try(h.w, NULL), DIBS_ERR_BUSY);
    FINE(dibs_lock_try(h.r, NULL)); /* after their downgrade */
    assert_int_equal(peer(peer_unread, PEER, 0), 0);
    FINE(dibs_lock_release(h.r, NULL));
    assert_int_equal(ts_nkeys(srv), 0);
    kit_halves_free(&h);
    kit_close(c);
}

/* ---- waiting for each other -------------------------------------------- */

/* Our waiters hear of their releases: often, so that looking by themselves
 * would take too long. */
static void test_rw_peers_wake_us(void **state)
{
    enum { ROUNDS = 20 };
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    int64_t start = ts_now_ms();

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        bool they_write = i % 2, we_write = !they_write || i % 4 == 1;
        dibs_lock *l = we_write ? h.w : h.r;
        struct told t = {0};
        dibs_owner o = dibs_owner_new(c);
        peer_gets(they_write ? peer_write : peer_read, LONG_MS);
        FINE(dibs_lock_acquire_async(l, OWNED(o), kit_tell, &t));
        assert_true(ts_wait_numsub(srv, CHANNEL, 1));
        assert_int_equal(peer(they_write ? peer_unwrite : peer_unread, PEER, 0),
                         1);
        FINE(kit_answer(&t));
        FINE(dibs_lock_release(l, OWNED(o)));
        TS_WAIT(ts_waiting(srv, "l") == 0);
    }
    assert_true(ts_now_ms() - start < TS_SOON);
    kit_halves_free(&h);
    kit_close(c);
}

/* Their downgrade tells nobody; our readers find out by themselves. */
static void test_rw_peers_silent_downgrade(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    struct told t = {0};

    (void)state;
    peer_gets(peer_write, LONG_MS);
    peer_gets(peer_read, LONG_MS);
    FINE(dibs_lock_acquire_async(h.r, NULL, kit_tell, &t));
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    assert_int_equal(peer(peer_unwrite, PEER, LONG_MS), 1);
    FINE(kit_answer(&t));
    assert_int_equal(peer(peer_unread, PEER, 0), 0);
    FINE(dibs_lock_release(h.r, NULL));
    kit_halves_free(&h);
    kit_close(c);
}

/* What the channel says next. */
static void hears(redisContext *cn, const char *want)
{
    redisReply *r = NULL;

    assert_int_equal(redisGetReply(cn, (void **)&r), REDIS_OK);
    assert_int_equal(r->elements, 3);
    assert_string_equal(r->element[0]->str, "message");
    assert_string_equal(r->element[2]->str, want);
    freeReplyObject(r);
}

/* Their waiters are told what they know: 1, which wakes all who sleep, and 0,
 * which wakes one that is about to, when somebody stopped writing; 0 when the
 * last reader left. Nothing that is not a number. */
static void test_rw_peers_told(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    redisContext *cn = ts_connect(srv);

    (void)state;
    freeReplyObject(redisCommand(cn, "SUBSCRIBE " CHANNEL));
    FINE(dibs_lock_acquire(h.w, NULL));
    FINE(dibs_lock_release(h.w, NULL));
    hears(cn, "1");
    hears(cn, "0"); /* for one that was about to sleep */
    FINE(dibs_lock_acquire(h.r, NULL));
    FINE(dibs_lock_acquire(h.r, NULL));
    FINE(dibs_lock_release(h.r, NULL));
    FINE(dibs_lock_release(h.r, NULL));
    hears(cn, "0");
    FINE(dibs_lock_acquire(h.w, NULL));
    FINE(dibs_lock_acquire(h.r, NULL));
    FINE(dibs_lock_release(h.w, NULL)); /* here they would be silent */
    hears(cn, "1");
    hears(cn, "0"); /* for one that was about to sleep */
    FINE(dibs_lock_force_release(h.r, NULL));
    hears(cn, "0");
    WANT(dibs_lock_release(h.r, NULL), DIBS_ERR_LOST);
    FINE(dibs_lock_acquire(h.w, NULL));
    FINE(dibs_lock_force_release(h.w, NULL));
    hears(cn, "1");
    hears(cn, "0"); /* for one that was about to sleep */
    WANT(dibs_lock_release(h.w, NULL), DIBS_ERR_LOST);
    redisFree(cn);
    kit_halves_free(&h);
    kit_close(c);
}

/* Their readers do not know of our gate: they get in while a writer of ours
 * waits, and it gets in when all have left. */
static void test_rw_peers_gate(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    struct told t = {0};

    (void)state;
    peer_gets(peer_read, LONG_MS);
    FINE(dibs_lock_acquire_async(h.w, NULL, kit_tell, &t));
    assert_true(ts_wait_exists(srv, GATE, true));
    WANT(dibs_lock_try(h.r, OWNED(dibs_owner_new(c))), DIBS_ERR_BUSY);
    assert_int_equal(peer(peer_read, OTHER, LONG_MS), NIL);
    assert_int_equal(peer(peer_unread, PEER, 0), 0);
    assert_int_equal(atomic_load(&t.times), 0);
    assert_int_equal(peer(peer_unread, OTHER, 0), 1);
    FINE(kit_answer(&t));
    FINE(dibs_lock_release(h.w, NULL));
    kit_halves_free(&h);
    kit_close(c);
}

/* ---- looking and breaking ---------------------------------------------- */

static bool remember(const char *owner, dibs_mode mode, int64_t holds,
                     int64_t remaining_ms, void *arg)
{
    dibs_lock_info *info = arg;

    info->mode = mode;
    info->holds = holds;
    info->ttl_ms = remaining_ms;
    snprintf(info->owner, sizeof info->owner, "%s", owner);
    return true;
}

static void test_rw_peers_look_and_break(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    bool was = false;

    (void)state;
    peer_gets(peer_read, LONG_MS / 4);
    peer_gets(peer_read, LONG_MS);
    FINE(dibs_lock_holders(h.r, remember, &info));
    assert_string_equal(info.owner, PEER);
    assert_int_equal(info.mode, DIBS_MODE_READ);
    assert_int_equal(info.holds, 2);
    assert_true(info.ttl_ms > LONG_MS / 2); /* its longest */
    FINE(dibs_lock_force_release(h.w, &was));
    assert_false(was);
    FINE(dibs_lock_force_release(h.r, &was));
    assert_true(was);
    assert_false(ts_exists(srv, "l"));
    assert_int_equal(peer(peer_unread, PEER, 0), NIL);

    peer_gets(peer_write, LONG_MS);
    FINE(dibs_lock_info_get(h.r, &info));
    assert_int_equal(info.mode, DIBS_MODE_WRITE);
    assert_string_equal(info.owner, PEER ":write");
    FINE(dibs_lock_force_release(h.r, &was));
    assert_false(was);
    FINE(dibs_lock_force_release_owner(h.w, PEER ":write", &was));
    assert_true(was);
    assert_int_equal(peer(peer_unwrite, PEER, 0), NIL);
    ts_ok(srv, "FLUSHALL"); /* the read key of its second hold */
    kit_halves_free(&h);
    kit_close(c);
}

/* Breaking their lock their way: a read key is left, and fools nobody. */
static void test_rw_peers_orphan_key(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);

    (void)state;
    FINE(dibs_lock_acquire(h.r, NULL));
    char *key = kit_read_key(h.r, 0);
    ts_ok(srv, "DEL l");
    ts_ok(srv, "PUBLISH " CHANNEL " 0");
    FINE(dibs_lock_try(h.w, OWNED(dibs_owner_new(c))));
    WANT(dibs_lock_release(h.r, NULL), DIBS_ERR_LOST);
    kit_state("the writer", "write", 1);
    ts_ok(srv, "DEL %s", key);
    free(key);
    kit_halves_free(&h);
    kit_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_rw_peers_our_reader_stays),
        KIT_TEST(test_rw_peers_their_reader_stays),
        KIT_TEST(test_rw_peers_lease_of_each_hold),
        KIT_TEST(test_rw_peers_their_reader_dies),
        KIT_TEST(test_rw_peers_writers_exclude),
        KIT_TEST(test_rw_peers_wake_us),
        KIT_TEST(test_rw_peers_silent_downgrade),
        KIT_TEST(test_rw_peers_told),
        KIT_TEST(test_rw_peers_gate),
        KIT_TEST(test_rw_peers_look_and_break),
        KIT_TEST(test_rw_peers_orphan_key),
    };

    return KIT_RUN("rw_peers", tests);
}
