/* SPDX-License-Identifier: MIT
 *
 * test_watch.c - dibs_lock_watch: who has the lock is told whenever that
 * changes, and not any more when the watch was stopped.
 */
#include "server/kit.h"

#include <poll.h>
#include <semaphore.h>

#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

/* What the callback saw last. */
struct seen {
    pthread_mutex_t mu;
    int calls;
    dibs_err err;
    dibs_lock_info info;
    char why[200];
    bool stops;   /* inside the callback */
    sem_t *enter; /* posted inside; then it waits for go */
    sem_t go;
    dibs_watch *w;
};

static void watched(dibs_err err, const dibs_lock_info *info, void *arg)
{
    struct seen *s = arg;

    pthread_mutex_lock(&s->mu);
    s->calls++;
    s->err = err;
    snprintf(s->why, sizeof s->why, "%s", err ? dibs_error_text() : "");
    s->info = info ? *info : (dibs_lock_info){.locked = false};
    pthread_mutex_unlock(&s->mu);
    if (s->enter) {
        sem_post(s->enter);
        while (sem_wait(&s->go) != 0)
            ;
    }
    if (s->stops)
        dibs_watch_stop(s->w);
}

static struct seen *seen_new(void)
{
    struct seen *s = ts_alloc(sizeof *s);

    pthread_mutex_init(&s->mu, NULL);
    sem_init(&s->go, 0, 0);
    return s;
}

static void seen_free(struct seen *s)
{
    sem_destroy(&s->go);
    pthread_mutex_destroy(&s->mu);
    free(s);
}

static int calls(struct seen *s)
{
    pthread_mutex_lock(&s->mu);
    int n = s->calls;
    pthread_mutex_unlock(&s->mu);
    return n;
}

/* owner "": it is free. */
static bool sees(struct seen *s, const char *owner)
{
    pthread_mutex_lock(&s->mu);
    bool yes = s->calls > 0 && s->err == DIBS_OK &&
               s->info.locked == (*owner != '\0') &&
               strcmp(s->info.owner, owner) == 0;
    pthread_mutex_unlock(&s->mu);
    return yes;
}

static bool fails(struct seen *s, dibs_err err)
{
    pthread_mutex_lock(&s->mu);
    bool yes = s->calls > 0 && s->err == err;
    pthread_mutex_unlock(&s->mu);
    return yes;
}

/* The first is how it is, each take and release follows. An hour between two
 * looks: what is seen was heard of, or follows what was heard. */
static void test_watch_changes(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *mine = kit_lock(c, "l"), *l = kit_lock(d, "l");
    struct seen *s = seen_new();
    char owner[DIBS_OWNER_MAX];

    (void)state;
    FINE(dibs_lock_acquire(mine, NULL));
    FINE(dibs_lock_owner_text(mine, 0, owner, sizeof owner));
    FINE(dibs_lock_watch(l, DIBS_WATCH_OPTS(.every_ms = 3600000), watched, s,
                         &s->w));
    dibs_lock_free(l); /* the watch goes on */
    TS_WAIT(sees(s, owner));
    assert_int_equal(s->info.size, sizeof s->info);
    assert_int_equal(s->info.holds, 1);
    assert_true(ts_wait_numsub(srv, "redisson_lock__channel:{l}", 1));
    FINE(dibs_lock_release(mine, NULL));
    TS_WAIT(sees(s, ""));
    dibs_watch_stop(s->w);
    assert_int_equal(calls(s), 2);
    assert_true(ts_wait_numsub(srv, "redisson_lock__channel:{l}", 0));
    seen_free(s);
    dibs_lock_free(mine);
    kit_close(c);
    kit_close(d);
}

static int64_t number_seen(struct seen *s)
{
    pthread_mutex_lock(&s->mu);
    int64_t number = s->calls > 0 && s->err == DIBS_OK ? s->info.published : -1;
    pthread_mutex_unlock(&s->mu);
    return number;
}

static int64_t number_now(dibs_lock *l)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    FINE(dibs_lock_info_get(l, &info));
    return info.published;
}

/* What the holder publishes is heard of, by those who asked for it. An hour
 * between two looks: without the message nobody would see it. */
static void test_watch_values(void **state)
{
    static dibs_err (*const kinds[])(dibs_client *, const char *,
                                     dibs_lock **) = {
        dibs_lock_new, dibs_fair_lock_new, dibs_write_lock_new,
        dibs_fenced_lock_new};

    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
        struct seen *s = seen_new(), *deaf = seen_new();
        dibs_lock *mine, *l;
        char text[64];

        FINE(kinds[i](c, "l", &mine));
        FINE(kinds[i](d, "l", &l));
        FINE(dibs_lock_acquire(mine, NULL));
        FINE(dibs_lock_watch(
            l, DIBS_WATCH_OPTS(.every_ms = 3600000, .values = true), watched, s,
            &s->w));
        FINE(dibs_lock_watch(l, DIBS_WATCH_OPTS(.every_ms = 3600000), watched,
                             deaf, &deaf->w));
        TS_WAIT(number_seen(s) == 0 && calls(deaf) == 1);
        assert_true(ts_wait_numsub(srv,
                                   kinds[i] == dibs_write_lock_new
                                       ? "redisson_rwlock:{l}"
                                       : "redisson_lock__channel:{l}",
                                   1));
        FINE(dibs_lock_publish(mine, 0, "one"));
        TS_WAIT(number_seen(s) > 0);
        int64_t one = number_seen(s);
        FINE(dibs_lock_published(l, text, sizeof text));
        assert_string_equal(text, "one");
        FINE(dibs_lock_publish(mine, 0, "two"));
        TS_WAIT(number_seen(s) > one);
        assert_int_equal(number_seen(s), number_now(l));
        FINE(dibs_lock_publish(mine, 0, NULL)); /* taken back */
        TS_WAIT(number_seen(s) == 0);
        assert_int_equal(calls(s), 4);
        assert_int_equal(calls(deaf), 1);
        dibs_watch_stop(s->w);
        dibs_watch_stop(deaf->w);
        FINE(dibs_lock_release(mine, NULL));
        seen_free(s);
        seen_free(deaf);
        dibs_lock_free(mine);
        dibs_lock_free(l);
        kit_close(c);
        kit_close(d);
        ts_ok(srv, "DEL redisson_lock_token:{l}");
    }
}

/* What sends no message is found by looking: a take, the end of a lease. */
static void test_watch_silent_changes(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct seen *s = seen_new();

    (void)state;
    FINE(dibs_lock_watch(l, DIBS_WATCH_OPTS(.every_ms = 100), watched, s,
                         &s->w));
    TS_WAIT(sees(s, ""));
    ts_ok(srv, "HSET l %s 1", STRANGER);
    TS_WAIT(sees(s, STRANGER));
    ts_ok(srv, "PEXPIRE l 50");
    TS_WAIT(sees(s, ""));
    assert_int_equal(calls(s), 3);
    dibs_watch_stop(s->w);
    seen_free(s);

    /* The end of a lease is looked for, however rarely it looks otherwise. */
    s = seen_new();
    ts_ok(srv, "HSET l %s 1", STRANGER);
    ts_ok(srv, "PEXPIRE l 4000");
    FINE(dibs_lock_watch(l, DIBS_WATCH_OPTS(.every_ms = 3600000), watched, s,
                         &s->w));
    TS_WAIT(sees(s, STRANGER));
    TS_WAIT(sees(s, ""));
    assert_int_equal(calls(s), 2);
    dibs_watch_stop(s->w);
    seen_free(s);
    dibs_lock_free(l);
    kit_close(c);
}

/* Each kind of lock, held by another client. */
static void test_watch_kinds(void **state)
{
    static dibs_err (*const make[])(dibs_client *, const char *,
                                    dibs_lock **) = {
        dibs_fair_lock_new, dibs_read_lock_new, dibs_write_lock_new,
        dibs_fenced_lock_new};
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *mine, *l;
    char owner[DIBS_OWNER_MAX];

    (void)state;
    for (size_t i = 0; i <= COUNT(make); i++) {
        struct seen *s = seen_new();
        if (i < COUNT(make)) {
            FINE(make[i](c, "k", &mine));
            FINE(make[i](d, "k", &l));
        } else {
            FINE(dibs_slots_lock_new(c, "k", 3, &mine));
            FINE(dibs_slots_lock_new(d, "k", 3, &l));
        }
        FINE(dibs_lock_watch(l, DIBS_WATCH_OPTS(.every_ms = 100), watched, s,
                             &s->w));
        TS_WAIT(sees(s, ""));
        FINE(dibs_lock_acquire(mine, NULL));
        FINE(dibs_lock_owner_text(mine, 0, owner, sizeof owner));
        TS_WAIT(sees(s, owner));
        FINE(dibs_lock_release(mine, NULL));
        TS_WAIT(sees(s, ""));
        dibs_watch_stop(s->w);
        seen_free(s);
        dibs_lock_free(mine);
        dibs_lock_free(l);
        ts_ok(srv, "FLUSHALL");
    }
    kit_close(c);
    kit_close(d);
}

/* Of several owners, their number counts; of a fenced lock, its token. */
static void test_watch_holders(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *read, *fenced;
    struct seen *s = seen_new();
    const dibs_watch_opts *often = DIBS_WATCH_OPTS(.every_ms = 100);
    const dibs_lock_opts *two = DIBS_LOCK_OPTS(.owner = dibs_owner_new(c));

    (void)state;
    FINE(dibs_read_lock_new(c, "r", &read));
    FINE(dibs_lock_acquire(read, NULL));
    FINE(dibs_lock_watch(read, often, watched, s, &s->w));
    TS_WAIT(calls(s) == 1);
    FINE(dibs_lock_acquire(read, two));
    TS_WAIT(calls(s) == 2);
    assert_int_equal(s->info.owners, 2);
    FINE(dibs_lock_release(read, two));
    TS_WAIT(calls(s) == 3);
    dibs_watch_stop(s->w);
    FINE(dibs_lock_release(read, NULL));
    seen_free(s);

    s = seen_new();
    ts_ok(srv, "SET redisson_lock_token:{f} 7");
    ts_ok(srv, "HSET f %s 1", STRANGER);
    FINE(dibs_fenced_lock_new(c, "f", &fenced));
    FINE(dibs_lock_watch(fenced, often, watched, s, &s->w));
    TS_WAIT(sees(s, STRANGER));
    assert_int_equal(s->info.token, 7);
    ts_ok(srv, "INCR redisson_lock_token:{f}"); /* it was free in between */
    TS_WAIT(calls(s) == 2);
    assert_int_equal(s->info.token, 8);
    dibs_watch_stop(s->w);
    seen_free(s);
    ts_ok(srv, "FLUSHALL");
    dibs_lock_free(read);
    dibs_lock_free(fenced);
    kit_close(c);
}

/* However much is published, the server is asked 20 times a second at most. */
static void test_watch_asks_seldom(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct seen *s = seen_new();

    (void)state;
    FINE(dibs_lock_watch(l, NULL, watched, s, &s->w));
    TS_WAIT(sees(s, ""));
    assert_true(ts_wait_numsub(srv, "redisson_lock__channel:{l}", 1));
    ts_reset_stats(srv);
    int64_t began = ts_now_ms();
    for (int i = 0; i < 2000; i++)
        ts_ok(srv, "PUBLISH redisson_lock__channel:{l} 0");
    long long asked = ts_command_calls(srv, "evalsha");
    int64_t took = ts_now_ms() - began;
    assert_true(asked <= took / 50 + 2);
    assert_int_equal(calls(s), 1); /* nothing has changed */
    dibs_watch_stop(s->w);
    seen_free(s);
    dibs_lock_free(l);
    kit_close(c);
}

/* The server goes and comes back: told once each, and then it goes on. */
static void test_watch_server_away(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.command_timeout_ms = 200));
    dibs_lock *l = kit_lock(c, "l");
    struct seen *s = seen_new();

    (void)state;
    ts_ok(srv, "HSET l %s 1", STRANGER);
    FINE(dibs_lock_watch(l, DIBS_WATCH_OPTS(.every_ms = 100), watched, s,
                         &s->w));
    TS_WAIT(sees(s, STRANGER));
    ts_server_kill(srv);
    TS_WAIT(fails(s, DIBS_ERR_CONN));
    pthread_mutex_lock(&s->mu);
    assert_true(s->why[0] != '\0');
    pthread_mutex_unlock(&s->mu);
    ts_server_restart(srv);
    TS_WAIT(sees(s, ""));
    assert_true(ts_wait_numsub(srv, "redisson_lock__channel:{l}", 1));
    ts_ok(srv, "SET l x"); /* no lock: an error, told as one */
    TS_WAIT(fails(s, DIBS_ERR_WRONGTYPE));
    ts_ok(srv, "DEL l");
    TS_WAIT(sees(s, ""));
    dibs_watch_stop(s->w);
    seen_free(s);
    dibs_lock_free(l);
    kit_close(c);
    kit_strange = 0; /* they went with the server */
}

struct stopper {
    dibs_watch *w;
    atomic_bool begun, over;
};

static void *stop_it(void *arg)
{
    struct stopper *st = arg;

    atomic_store(&st->begun, true);
    dibs_watch_stop(st->w);
    atomic_store(&st->over, true);
    return NULL;
}

/* Stop waits for a callback that runs, and none comes afterwards. */
static void test_watch_stop(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct seen *s = seen_new();
    struct stopper st = {.over = false};
    pthread_t thread;
    sem_t enter;

    (void)state;
    sem_init(&enter, 0, 0);
    s->enter = &enter;
    FINE(dibs_lock_watch(l, DIBS_WATCH_OPTS(.every_ms = 100), watched, s,
                         &s->w));
    while (sem_wait(&enter) != 0)
        ;
    st.w = s->w;
    assert_int_equal(pthread_create(&thread, NULL, stop_it, &st), 0);
    ts_ok(srv, "HSET l %s 1", STRANGER); /* news that nobody shall hear */
    TS_WAIT(atomic_load(&st.begun));
    for (int i = 0; i < 1000; i++) { /* a stop that does not wait is quicker */
        assert_false(atomic_load(&st.over));
        assert_int_equal(ts_int(srv, "HLEN l"), 1);
    }
    sem_post(&s->go);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&st.over));
    assert_int_equal(calls(s), 1);
    seen_free(s); /* a callback that came now would be found by ASan */
    assert_true(ts_wait_numsub(srv, "redisson_lock__channel:{l}", 0));
    ts_ok(srv, "DEL l");

    /* Inside the callback; at once; with NULL. */
    s = seen_new();
    s->stops = true;
    FINE(dibs_lock_watch(l, NULL, watched, s, &s->w));
    TS_WAIT(calls(s) == 1);
    assert_true(ts_wait_numsub(srv, "redisson_lock__channel:{l}", 0));
    struct seen *brief = seen_new();
    for (int i = 0; i < 200; i++) {
        dibs_watch *w;
        FINE(dibs_lock_watch(l, NULL, watched, brief, &w));
        dibs_watch_stop(w);
    }
    dibs_watch_stop(NULL);
    sem_destroy(&enter);
    dibs_lock_free(l);
    kit_close(c);
    seen_free(s);
    seen_free(brief);
}

/* The client closes: that is told, last, and stop is still to be called. */
static void test_watch_close(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        dibs_client *c = kit_open(NULL);
        dibs_lock *l = kit_lock(c, "l");
        struct seen *s = seen_new();
        FINE(dibs_lock_watch(l, NULL, watched, s, &s->w));
        if (i % 2)
            TS_WAIT(sees(s, ""));
        dibs_lock_free(l);
        FINE(dibs_client_close(c, TS_SOON));
        assert_true(fails(s, DIBS_ERR_CLOSED));
        if (i % 4 < 2)
            dibs_watch_stop(s->w);
        dibs_client_free(c);
        if (i % 4 >= 2)
            dibs_watch_stop(s->w);
        kit_clients--;
        seen_free(s);
    }
}

/* A program that takes its callbacks by itself. One that does not gets the
 * last news, once. */
static void test_watch_dispatch(void **state)
{
    dibs_client *c =
        kit_open(DIBS_CLIENT_OPTS(.callbacks = DIBS_CALLBACKS_DISPATCH));
    dibs_client *d = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l"), *other = kit_lock(d, "l");
    struct seen *s = seen_new();
    struct pollfd p = {.fd = dibs_client_fd(c), .events = POLLIN};

    (void)state;
    FINE(dibs_lock_watch(l, DIBS_WATCH_OPTS(.every_ms = 100), watched, s,
                         &s->w));
    assert_int_equal(poll(&p, 1, (int)TS_SOON), 1);
    assert_int_equal(calls(s), 0);
    assert_int_equal(dibs_client_dispatch(c), 1);
    assert_true(sees(s, ""));
    for (int i = 0; i < 3; i++) {
        FINE(dibs_lock_acquire(other, NULL));
        FINE(dibs_lock_release(other, NULL));
    }
    ts_ok(srv, "HSET l %s 1", STRANGER);
    assert_int_equal(poll(&p, 1, (int)TS_SOON), 1);
    struct ts_wait wait = ts_wait_begin(TS_SOON);
    while (!sees(s, STRANGER) && ts_wait_step(&wait))
        assert_true(dibs_client_dispatch(c) <= 1);
    assert_true(sees(s, STRANGER));
    ts_ok(srv, "DEL l");
    assert_int_equal(poll(&p, 1, (int)TS_SOON),
                     1); /* not dispatched: dropped */
    int before = calls(s);
    dibs_watch_stop(s->w);
    (void)dibs_client_dispatch(c);
    assert_int_equal(calls(s), before);
    FINE(dibs_lock_watch(l, NULL, watched, s, &s->w));
    assert_int_equal(poll(&p, 1, (int)TS_SOON), 1);
    dibs_lock_free(l);
    dibs_lock_free(other);
    kit_close(c);
    assert_int_equal(calls(s), before);
    dibs_watch_stop(s->w);
    seen_free(s);
    kit_close(d);
}

static void test_watch_refused(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l"), *group;
    struct seen *s = seen_new();
    dibs_watch *w = NULL;
    dibs_watch_opts o = DIBS_WATCH_OPTS_INIT;

    (void)state;
    WANT(dibs_lock_watch(NULL, NULL, watched, s, &w), DIBS_ERR_INVALID);
    WANT(dibs_lock_watch(l, NULL, NULL, s, &w), DIBS_ERR_INVALID);
    WANT(dibs_lock_watch(l, NULL, watched, s, NULL), DIBS_ERR_INVALID);
    o.every_ms = 99;
    WANT(dibs_lock_watch(l, &o, watched, s, &w), DIBS_ERR_INVALID);
    assert_non_null(strstr(dibs_error_text(), "every_ms"));
    o.every_ms = -1;
    WANT(dibs_lock_watch(l, &o, watched, s, &w), DIBS_ERR_INVALID);
    o.size = 3;
    WANT(dibs_lock_watch(l, &o, watched, s, &w), DIBS_ERR_INVALID);
    FINE(dibs_multi_lock_new(&l, 1, &group));
    WANT(dibs_lock_watch(group, NULL, watched, s, &w), DIBS_ERR_INVALID);
    assert_non_null(strstr(dibs_error_text(), "member"));
    dibs_lock_free(group);
    FINE(dibs_client_close(c, TS_SOON));
    WANT(dibs_lock_watch(l, NULL, watched, s, &w), DIBS_ERR_CLOSED);
    assert_null(w);
    assert_int_equal(calls(s), 0);
    dibs_lock_free(l);
    dibs_client_free(c);
    kit_clients--;
    seen_free(s);
}

/* Two callbacks, each on a thread of its own, stop each other's watch. */
struct pair {
    dibs_watch *other;
    sem_t *mine, *theirs;
    atomic_bool over;
};

static void stop_other(dibs_err err, const dibs_lock_info *info, void *arg)
{
    struct pair *p = arg;

    (void)err;
    (void)info;
    sem_post(p->theirs);
    while (sem_wait(p->mine) != 0)
        ;
    dibs_watch_stop(p->other);
    atomic_store(&p->over, true);
}

static void test_watch_stop_each_other(void **state)
{
    dibs_client *c[2] = {kit_open(NULL), kit_open(NULL)};
    dibs_lock *l[2] = {kit_lock(c[0], "a"), kit_lock(c[1], "b")};
    struct pair p[2] = {{.over = false}, {.over = false}};
    sem_t sems[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        sem_init(&sems[i], 0, 0);
    for (int i = 0; i < 2; i++) {
        p[i].mine = &sems[i];
        p[i].theirs = &sems[!i];
    }
    /* The second is written before the first can have heard of it. */
    FINE(dibs_lock_watch(l[0], NULL, stop_other, &p[0], &p[1].other));
    FINE(dibs_lock_watch(l[1], NULL, stop_other, &p[1], &p[0].other));
    TS_WAIT(atomic_load(&p[0].over) && atomic_load(&p[1].over));
    for (int i = 0; i < 2; i++) {
        dibs_lock_free(l[i]);
        kit_close(c[i]);
        sem_destroy(&sems[i]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(test_watch_changes),
        KIT_TEST(test_watch_values),
        KIT_TEST(test_watch_silent_changes),
        KIT_TEST(test_watch_kinds),
        KIT_TEST(test_watch_holders),
        KIT_TEST(test_watch_asks_seldom),
        KIT_TEST(test_watch_server_away),
        KIT_TEST(test_watch_stop),
        KIT_TEST(test_watch_close),
        KIT_TEST(test_watch_dispatch),
        KIT_TEST(test_watch_refused),
        KIT_TEST(test_watch_stop_each_other),
    };

    return KIT_RUN_PARALLEL("watch", tests);
}
