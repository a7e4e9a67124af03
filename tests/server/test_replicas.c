/* SPDX-License-Identifier: MIT
 *
 * test_replicas.c - locks that replicas must have, too.
 *
 * A real master with two real replicas. A replica that is stopped still counts
 * as connected, and acknowledges nothing: that is how there come to be too few.
 */
#include "server/kit.h"

#define REPLICAS 2
#define SHORT_MS 300 /* what those who will not get enough are given */
/* And those who will. */
#define ACKED_BY(n) .replicas = (n), .replicas_timeout_ms = TS_SOON

static struct ts_server *replica[REPLICAS];

static struct ts_server *start_replica(void)
{
    char *port = ts_text("%d", ts_server_port(srv));
    const char *extra[] = {"--replicaof", "127.0.0.1", port, NULL};
    struct ts_server *s = ts_server_start(extra);

    free(port);
    return s;
}

static bool online(long long n)
{
    redisReply *r = ts_cmd(srv, "ROLE");
    bool yes = r && r->elements >= 3 && r->element[2]->elements == (size_t)n;

    freeReplyObject(r);
    return yes && ts_int(srv, "WAIT %lld 0", n) == n;
}

static int start_all(void **state)
{
    const char *extra[] = {"--repl-diskless-sync-delay", "0", NULL};
    dibs_client *c = NULL;

    (void)state;
    srv = ts_server_start(extra);
    for (int i = 0; i < REPLICAS; i++)
        replica[i] = start_replica();
    TS_WAIT(online(REPLICAS));
    if (dibs_client_open(ts_server_url(srv), NULL, &c) != DIBS_OK)
        return -1; /* the first one leaves a pipe of libuv's */
    dibs_client_free(c);
    return 0;
}

static int stop_all(void **state)
{
    (void)state;
    for (int i = 0; i < REPLICAS; i++)
        ts_server_stop(replica[i]);
    ts_server_stop(srv);
    return 0;
}

/* Whatever the last test left. */
static int before(void **state)
{
    for (int i = 0; i < REPLICAS; i++)
        ts_server_resume(replica[i]);
    ts_ok(srv, "ACL SETUSER default on nopass ~* &* +@all");
    TS_WAIT(online(REPLICAS));
    return kit_before(state);
}

static int after(void **state)
{
    for (int i = 0; i < REPLICAS; i++)
        ts_server_resume(replica[i]);
    return kit_after(state);
}

static const struct {
    const char *name;
    dibs_err (*make)(dibs_client *c, const char *name, dibs_lock **out);
} kinds[] = {
    {"plain", dibs_lock_new},
    {"fair", dibs_fair_lock_new},
    {"read", dibs_read_lock_new},
    {"write", dibs_write_lock_new},
};

/* What the client was told of too few. */
struct heard {
    atomic_int short_;
    atomic_int errors;
    pthread_mutex_t mu;
    char text[200]; /* mu: of the last one of either */
};

static void hear(const dibs_event *ev, void *arg)
{
    struct heard *h = arg;

    if (ev->kind != DIBS_EVENT_REPLICAS && ev->kind != DIBS_EVENT_ERROR)
        return;
    pthread_mutex_lock(&h->mu);
    snprintf(h->text, sizeof h->text, "%s", ev->text);
    pthread_mutex_unlock(&h->mu);
    atomic_fetch_add(ev->kind == DIBS_EVENT_ERROR ? &h->errors : &h->short_, 1);
}

static bool heard_text(struct heard *h, const char *text)
{
    pthread_mutex_lock(&h->mu);
    bool yes = strstr(h->text, text) != NULL;
    pthread_mutex_unlock(&h->mu);
    return yes;
}

#define HEARD                                                                  \
    {                                                                          \
        .mu = PTHREAD_MUTEX_INITIALIZER                                        \
    }

/* ---- enough ------------------------------------------------------------ */

/* OK means that they have it: they are asked without any waiting. */
static void test_replicas_enough(void **state)
{
    static const int wants[] = {1, 2, DIBS_REPLICAS_ALL};
    dibs_client *c = kit_open(NULL);

    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (size_t i = 0; i < COUNT(wants); i++) {
            const dibs_lock_opts *o = DIBS_LOCK_OPTS(ACKED_BY(wants[i]));
            long long waits = ts_command_calls(srv, "wait");
            int have = 0;
            dibs_lock *l;

            FINE(kinds[k].make(c, "l", &l));
            FINE(dibs_lock_acquire(l, o));
            for (int r = 0; r < REPLICAS; r++)
                have += ts_exists(replica[r], "l");
            if (have < (wants[i] < 0 ? REPLICAS : wants[i]))
                fail_msg("%s, %d: %d have it", kinds[k].name, wants[i], have);
            FINE(dibs_lock_try(l, o)); /* a re-entry, acknowledged as well */
            assert_int_equal(dibs_lock_holds(l, 0), 2);
            assert_true(ts_command_calls(srv, "wait") >= waits + 2);
            FINE(dibs_lock_release(l, NULL));
            FINE(dibs_lock_release(l, NULL));
            dibs_lock_free(l);
        }
    kit_close(c);
}

static void test_replicas_async(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct told told = {0}, again = {0}, freed = {0};
    dibs_owner owner = dibs_owner_new(c);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(ACKED_BY(2), .owner = owner),
                                 kit_tell, &told));
    FINE(kit_answer(&told));
    assert_true(ts_exists(replica[0], "l") && ts_exists(replica[1], "l"));
    FINE(dibs_lock_try_async(l, DIBS_LOCK_OPTS(ACKED_BY(2), .owner = owner),
                             kit_tell, &again));
    FINE(kit_answer(&again));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = owner)));
    FINE(dibs_lock_release_async(l, DIBS_LOCK_OPTS(.owner = owner), kit_tell,
                                 &freed));
    FINE(kit_answer(&freed));
    dibs_lock_free(l);
    kit_close(c);
}

/* What comes with a lock comes whole, though replicas are waited for. */
static void test_replicas_with_a_number(void **state)
{
    const dibs_lock_opts *o = DIBS_LOCK_OPTS(ACKED_BY(2));
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.replicas = 2));
    dibs_lock *fenced = NULL, *one = NULL, *two = NULL;
    dibs_owner other = dibs_owner_new(c);
    dibs_semaphore *s = NULL;
    int64_t token = 0, slot = -1, left = 0;
    bool fresh = false;

    (void)state;
    FINE(dibs_fenced_lock_new(c, "f", &fenced));
    FINE(dibs_lock_acquire(fenced, o));
    FINE(dibs_lock_token(fenced, 0, &token));
    assert_int_equal(ts_int(srv, "EVAL %s 1 %s",
                            "return tonumber(redis.call('get', KEYS[1]))",
                            "redisson_lock_token:{f}"),
                     token);
    assert_true(token > 0);
    FINE(dibs_lock_release(fenced, NULL));
    FINE(dibs_slots_lock_new(c, "s", 2, &one));
    FINE(dibs_slots_lock_new(c, "s", 2, &two));
    FINE(dibs_lock_acquire(one, o));
    FINE(dibs_lock_slot(one, 0, &slot));
    assert_int_equal(slot, 0);
    FINE(dibs_lock_acquire(two, DIBS_LOCK_OPTS(ACKED_BY(2), .owner = other)));
    FINE(dibs_lock_slot(two, other, &slot));
    assert_int_equal(slot, 1);
    FINE(dibs_lock_release(one, NULL));
    FINE(dibs_lock_release(two, DIBS_LOCK_OPTS(.owner = other)));
    FINE(dibs_semaphore_new(c, "p", &s));
    FINE(dibs_semaphore_set(s, 3, &fresh));
    FINE(dibs_semaphore_acquire(s, DIBS_SEMAPHORE_OPTS(.permits = 3)));
    FINE(dibs_semaphore_release(s, DIBS_SEMAPHORE_OPTS(.permits = 3)));
    FINE(dibs_semaphore_available(s, &left));
    assert_int_equal(left, 3);
    dibs_lock_free(fenced);
    dibs_lock_free(one);
    dibs_lock_free(two);
    dibs_semaphore_free(s);
    kit_close(c);
    ts_ok(srv, "FLUSHALL");
}

/* What the client says counts where the lock says nothing. */
static void test_replicas_default(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.replicas = REPLICAS + 1));
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.replicas_timeout_ms = SHORT_MS)),
         DIBS_ERR_REPLICAS);
    FINE(dibs_lock_try(l, DIBS_LOCK_OPTS(ACKED_BY(1))));
    FINE(dibs_lock_try(l, DIBS_LOCK_OPTS(.replicas = DIBS_REPLICAS_NONE)));
    FINE(dibs_lock_release(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

static void test_replicas_invalid(void **state)
{
    dibs_client *c = kit_open(NULL), *bad = NULL;
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.replicas = -3)), DIBS_ERR_INVALID);
    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.replicas_timeout_ms = -1)),
         DIBS_ERR_INVALID);
    WANT(dibs_client_open(ts_server_url(srv), DIBS_CLIENT_OPTS(.replicas = -3),
                          &bad),
         DIBS_ERR_INVALID);
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- too few ----------------------------------------------------------- */

/* When the call returns it is given back, and no matter who asks for less gets
 * it. */
static void test_replicas_too_few(void **state)
{
    static const int wants[] = {2, DIBS_REPLICAS_ALL};
    struct heard heard = HEARD;
    dibs_client *c =
        kit_open(DIBS_CLIENT_OPTS(.on_event = hear, .event_arg = &heard));
    int times = 0;

    (void)state;
    ts_server_pause(replica[1]);
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (size_t i = 0; i < COUNT(wants); i++) {
            const dibs_lock_opts *o =
                DIBS_LOCK_OPTS(.replicas = wants[i],
                               .replicas_timeout_ms = SHORT_MS);
            dibs_lock *l;

            FINE(kinds[k].make(c, "l", &l));
            /* On a busy machine even the first replica may be too late. */
            struct ts_wait w = ts_wait_begin(TS_SOON);
            do {
                WANT(dibs_lock_try(l, o), DIBS_ERR_REPLICAS);
                assert_false(ts_exists(srv, "l"));
                assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
                times++;
                TS_WAIT(atomic_load(&heard.short_) == times);
            } while (!heard_text(&heard, "1 of 2") && ts_wait_step(&w));
            assert_true(heard_text(&heard, "1 of 2"));

            FINE(kit_elsewhere(l, DIBS_LOCK_OPTS(ACKED_BY(1), .owner = 7),
                               dibs_lock_try));
            FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = 7)));
            WANT(dibs_lock_acquire(l, o), DIBS_ERR_REPLICAS); /* not a wait */
            times++;
            assert_int_equal(ts_nkeys(srv), 0);
            dibs_lock_free(l);
        }
    kit_close(c);
}

/* The outer hold stays as it was. */
static void test_replicas_too_few_reentry(void **state)
{
    dibs_client *c = kit_open(NULL);
    const dibs_lock_opts *o =
        DIBS_LOCK_OPTS(.replicas = 2, .replicas_timeout_ms = SHORT_MS);

    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++) {
        dibs_lock *l;

        FINE(kinds[k].make(c, "l", &l));
        FINE(dibs_lock_try(l, NULL));
        ts_server_pause(replica[0]);
        WANT(dibs_lock_try(l, o), DIBS_ERR_REPLICAS);
        assert_int_equal(dibs_lock_holds(l, 0), 1);
        assert_int_equal(dibs_lock_state(l, 0), DIBS_HELD);
        assert_int_equal(kit_count(l, "l", 0), 1);
        ts_server_resume(replica[0]);
        FINE(dibs_lock_try(l, DIBS_LOCK_OPTS(ACKED_BY(2))));
        assert_int_equal(kit_count(l, "l", 0), 2);
        FINE(dibs_lock_release(l, NULL));
        FINE(dibs_lock_release(l, NULL));
        assert_false(ts_exists(srv, "l"));
        dibs_lock_free(l);
    }
    kit_close(c);
}

/* No replicas at all: none is not all, and 1 is too many. */
static void test_replicas_none_connected(void **state)
{
    struct ts_server *alone = ts_server_start(NULL);
    dibs_client *c = kit_open_at(ts_server_url(alone), NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.replicas = DIBS_REPLICAS_ALL)),
         DIBS_ERR_REPLICAS);
    WANT(dibs_lock_try(
             l, DIBS_LOCK_OPTS(.replicas = 1, .replicas_timeout_ms = SHORT_MS)),
         DIBS_ERR_REPLICAS);
    assert_false(ts_exists(alone, "l"));
    dibs_lock_free(l);
    kit_close(c);
    ts_server_stop(alone);
}

/* One that joins counts from then on: what WAIT was given before is not enough
 * any more. */
static void test_replicas_all_grows(void **state)
{
    const dibs_lock_opts *all = DIBS_LOCK_OPTS(ACKED_BY(DIBS_REPLICAS_ALL));
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_try(l, all));
    FINE(dibs_lock_release(l, NULL));
    struct ts_server *third = start_replica();
    TS_WAIT(online(REPLICAS + 1));
    FINE(dibs_lock_try(l, all));
    assert_true(ts_exists(third, "l"));
    FINE(dibs_lock_release(l, NULL));
    ts_server_stop(third);
    TS_WAIT(online(REPLICAS));
    /* Waits for one too many, once. */
    FINE(dibs_lock_try(l, DIBS_LOCK_OPTS(.replicas = DIBS_REPLICAS_ALL,
                                         .replicas_timeout_ms = 3000)));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* All of several: one script and one WAIT for them, and too few means none. */
static void test_replicas_multi(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *m[] = {kit_lock(c, "a"), kit_lock(c, "b"), NULL}, *all;
    const dibs_lock_opts *o =
        DIBS_LOCK_OPTS(.replicas = 2, .replicas_timeout_ms = SHORT_MS);

    (void)state;
    FINE(dibs_read_lock_new(c, "c", &m[2])); /* never in one script */
    for (size_t n = 2; n <= COUNT(m); n++) {
        FINE(dibs_multi_lock_new(m, n, &all));
        FINE(dibs_lock_try(all, DIBS_LOCK_OPTS(ACKED_BY(2))));
        for (int r = 0; r < REPLICAS; r++)
            assert_true(ts_exists(replica[r], "a") &&
                        ts_exists(replica[r], "b"));
        ts_server_pause(replica[0]);
        WANT(dibs_lock_try(all, o), DIBS_ERR_REPLICAS); /* a re-entry */
        assert_int_equal(kit_count(m[0], "a", 0), 1);
        assert_int_equal(kit_count(m[1], "b", 0), 1);
        FINE(dibs_lock_release(all, NULL));
        WANT(dibs_lock_acquire(all, o), DIBS_ERR_REPLICAS);
        assert_int_equal(dibs_lock_state(all, 0), DIBS_NOT_HELD);
        assert_int_equal(ts_nkeys(srv), 0);
        ts_server_resume(replica[0]);
        dibs_lock_free(all);
    }
    for (size_t i = 0; i < COUNT(m); i++)
        dibs_lock_free(m[i]);
    kit_close(c);
}

/* ---- waiting ----------------------------------------------------------- */

/* The attempt that takes is the one that is acknowledged; a release here does
 * not hand over to somebody who needs more than the server's word. */
static void test_replicas_after_a_wait(void **state)
{
    dibs_client *c = kit_open(NULL), *other = kit_open(NULL);

    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (int here = 0; here < 2; here++) {
            dibs_lock *held, *l;
            struct call call;

            /* Readers do not wait for readers. */
            FINE((k == 2 ? dibs_write_lock_new
                         : kinds[k].make)(here ? c : other, "l", &held));
            FINE(kinds[k].make(c, "l", &l));
            FINE(dibs_lock_try(held, NULL));
            kit_call_start(&call, l, DIBS_LOCK_OPTS(ACKED_BY(2), .owner = 9),
                           dibs_lock_acquire);
            TS_WAIT(ts_nchannels(srv) > 0 || here);
            long long waits = ts_command_calls(srv, "wait");
            FINE(dibs_lock_release(held, NULL));
            FINE(kit_call_end(&call));
            assert_true(ts_command_calls(srv, "wait") > waits);
            assert_true(ts_exists(replica[0], "l"));
            assert_true(ts_exists(replica[1], "l"));
            FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = 9)));
            dibs_lock_free(held);
            dibs_lock_free(l);
        }
    kit_close(other);
    kit_close(c);
}

/* The one that cannot have enough goes, and the next in line gets it. */
static void test_replicas_too_few_after_a_wait(void **state)
{
    dibs_client *c = kit_open(NULL);

    (void)state;
    ts_server_pause(replica[0]);
    for (size_t k = 0; k < 2; k++) {
        struct told first = {0}, second = {0};
        dibs_lock *l;

        FINE(kinds[k].make(c, "l", &l));
        FINE(dibs_lock_try(l, NULL));
        FINE(dibs_lock_acquire_async(
            l,
            DIBS_LOCK_OPTS(.replicas = 2, .owner = 8,
                           .replicas_timeout_ms = SHORT_MS),
            kit_tell, &first));
        /* On another connection, so it might overtake it on the way. */
        TS_WAIT(k == 0 || ts_int(srv, "LLEN redisson_lock_queue:{l}") == 1);
        FINE(dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.owner = 9), kit_tell,
                                     &second));
        FINE(dibs_lock_release(l, NULL));
        WANT(kit_answer(&first), DIBS_ERR_REPLICAS);
        FINE(kit_answer(&second));
        FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = 9)));
        dibs_lock_free(l);
    }
    kit_close(c);
}

#define MANY 100

static void test_replicas_many_wait(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.replicas = 1));
    struct told *told = ts_alloc(MANY * sizeof *told);
    dibs_lock *l = kit_lock(c, "l");
    int left = MANY;

    (void)state;
    for (dibs_owner i = 0; i < MANY; i++)
        FINE(dibs_lock_acquire_async(
            l, DIBS_LOCK_OPTS(ACKED_BY(1), .owner = 1000 + i), kit_tell,
            &told[i]));
    while (left > 0) {
        dibs_owner has = 0;
        TS_WAIT(atomic_load(&told[MANY - left].times) == 1); /* in order */
        FINE(atomic_load(&told[MANY - left].err));
        has = 1000 + (dibs_owner)(MANY - left);
        assert_int_equal(kit_count(l, "l", has), 1);
        FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = has)));
        left--;
    }
    free(told);
    dibs_lock_free(l);
    kit_close(c);
}

/* Many names at a time go in groups: a replica that hangs is waited for a few
 * times, and not once for each of them. */
static void test_replicas_in_groups(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct told *told = ts_alloc(MANY * sizeof *told);
    dibs_lock *l[MANY];
    char name[16];

    (void)state;
    ts_server_pause(replica[1]);
    long long waits = ts_command_calls(srv, "wait");
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "l%d", i);
        l[i] = kit_lock(c, name);
        FINE(dibs_lock_try_async(
            l[i],
            DIBS_LOCK_OPTS(.replicas = 1 + i % 2,
                           .replicas_timeout_ms = 5 * SHORT_MS),
            kit_tell, &told[i]));
    }
    for (int i = 0; i < MANY; i++)
        WANT(kit_answer(&told[i]), i % 2 ? DIBS_ERR_REPLICAS : DIBS_OK);
    assert_in_range(ts_command_calls(srv, "wait") - waits, 1, MANY / 4);
    assert_int_equal(ts_nkeys(srv), MANY / 2);
    kit_close(c); /* with what is held */
    for (int i = 0; i < MANY; i++)
        dibs_lock_free(l[i]);
    free(told);
}

/* ---- nobody else waits for a WAIT -------------------------------------- */

static void test_replicas_others_go_on(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *renewed = kit_lock(c, "renewed"), *slow = kit_lock(c, "slow");
    dibs_lock *quick = kit_lock(c, "quick");
    struct told told = {0};
    struct lost lost = {0};
    int pairs = 0;

    (void)state;
    FINE(dibs_lock_try(renewed,
                       DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)));
    ts_server_pause(replica[1]);
    FINE(dibs_lock_try_async(
        slow,
        DIBS_LOCK_OPTS(.replicas = 2, .owner = 9, .lease_ms = 100000,
                       .replicas_timeout_ms = 3 * kit_lease() / 2),
        kit_tell, &told));
    while (atomic_load(&told.times) == 0) {
        FINE(dibs_lock_try(quick, NULL));
        FINE(dibs_lock_release(quick, NULL));
        pairs++;
    }
    WANT(kit_answer(&told), DIBS_ERR_REPLICAS);
    assert_true(pairs > 10); /* that is, while it was unanswered */
    TS_WAIT(dibs_lock_state(renewed, 0) == DIBS_HELD);
    assert_int_equal(atomic_load(&lost.times), 0);
    FINE(dibs_lock_release(renewed, NULL));
    dibs_lock_free(renewed);
    dibs_lock_free(slow);
    dibs_lock_free(quick);
    kit_close(c);
}

/* Closing does not leave what is being waited for behind. */
static void test_replicas_close_meanwhile(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct told told = {0};

    (void)state;
    ts_server_pause(replica[1]);
    FINE(dibs_lock_acquire_async(l,
                                 DIBS_LOCK_OPTS(.replicas = 2,
                                                .lease_ms = 200000,
                                                .replicas_timeout_ms = 100000),
                                 kit_tell, &told));
    TS_WAIT(ts_exists(srv, "l"));
    kit_close(c);
    assert_int_equal(atomic_load(&told.times), 1);
    assert_int_equal(atomic_load(&told.err), DIBS_ERR_CLOSED);
    assert_false(ts_exists(srv, "l"));
    dibs_lock_free(l);
}

/* ---- servers that cannot say ------------------------------------------- */

static void test_replicas_no_right(void **state)
{
    struct heard heard = HEARD;
    dibs_client *c =
        kit_open(DIBS_CLIENT_OPTS(.on_event = hear, .event_arg = &heard));
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    ts_ok(srv, "ACL SETUSER default -role");
    FINE(dibs_lock_try(l, DIBS_LOCK_OPTS(ACKED_BY(2))));
    FINE(dibs_lock_release(l, NULL));
    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.replicas = DIBS_REPLICAS_ALL)),
         DIBS_ERR_AUTH);
    assert_false(ts_exists(srv, "l"));
    ts_ok(srv, "ACL SETUSER default -wait");
    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.replicas = 1)), DIBS_ERR_AUTH);
    assert_false(ts_exists(srv, "l"));
    TS_WAIT(atomic_load(&heard.errors) > 0);
    FINE(dibs_lock_try(l, NULL));
    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.replicas = 1)), DIBS_ERR_AUTH);
    assert_int_equal(kit_count(l, "l", 0), 1);
    FINE(dibs_lock_release(l, NULL));
    ts_ok(srv, "ACL SETUSER default +@all");
    dibs_lock_free(l);
    kit_close(c);
}

static void test_replicas_no_command(void **state)
{
    const char *extra[] = {"--rename-command", "WAIT", "", NULL};
    struct ts_server *old = ts_server_start(extra);
    struct heard heard = HEARD;
    dibs_client *c =
        kit_open_at(ts_server_url(old),
                    DIBS_CLIENT_OPTS(.on_event = hear, .event_arg = &heard));
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.replicas = 1)), DIBS_ERR_REPLICAS);
    TS_WAIT(atomic_load(&heard.short_) == 1);
    assert_int_equal(atomic_load(&heard.errors), 1);
    assert_false(ts_exists(old, "l"));
    FINE(dibs_lock_try(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
    ts_server_stop(old);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, before, after)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_replicas_enough),
        TEST(test_replicas_async),
        TEST(test_replicas_with_a_number),
        TEST(test_replicas_default),
        TEST(test_replicas_invalid),
        TEST(test_replicas_too_few),
        TEST(test_replicas_too_few_reentry),
        TEST(test_replicas_none_connected),
        TEST(test_replicas_all_grows),
        TEST(test_replicas_multi),
        TEST(test_replicas_after_a_wait),
        TEST(test_replicas_too_few_after_a_wait),
        TEST(test_replicas_many_wait),
        TEST(test_replicas_in_groups),
        TEST(test_replicas_others_go_on),
        TEST(test_replicas_close_meanwhile),
        TEST(test_replicas_no_right),
        TEST(test_replicas_no_command),
    };
    return TS_RUN_PARALLEL("server.replicas", tests, start_all, stop_all);
}
