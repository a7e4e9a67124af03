/* SPDX-License-Identifier: MIT
 *
 * topology_sentinel.c - locks on a master that sentinels look after.
 *
 * The client finds the master although most sentinels are away, believes none
 * that points to a replica, and goes where the master goes: at once when it is
 * told, at the latest when commands fail. Locks that survive a failover are
 * held on without anybody noticing; those that do not are lost, and their
 * holders learn it. The one that waits gets its turn.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "topology/kit.h"

#define LEASE_MS   ts_ms(8000)
#define LONG_MS    ts_ms(30000) /* longer than a failover takes, or several */
#define COMMAND_MS ts_ms(1000)

static struct top_sentinels top;

static int up(void **state)
{
    (void)state;
    top_sentinels_start(&top);
    return 0;
}

static int down(void **state)
{
    (void)state;
    top_sentinels_stop(&top);
    return 0;
}

static dibs_client *open_with(struct top_events *e, int64_t lease_ms)
{
    dibs_client *c = NULL;

    want("opening",
         dibs_client_open(top.url,
                          DIBS_CLIENT_OPTS(.lease_ms = lease_ms,
                                           .command_timeout_ms = COMMAND_MS,
                                           .on_event = e ? top_hear : NULL,
                                           .event_arg = e),
                          &c),
         DIBS_OK);
    return c;
}

static dibs_client *open_client(struct top_events *e)
{
    return open_with(e, LEASE_MS);
}

static void all_kinds(void **state)
{
    dibs_client *c = open_client(NULL);

    (void)state;
    top_all_kinds(c, "all");
    want("closing", dibs_client_close(c, 0), DIBS_OK);
    dibs_client_free(c);
    assert_int_equal(ts_nkeys(top.server[top_master(&top)]), 0);
}

/* ---- who can be asked -------------------------------------------------- */

/* One is dead, one is silent, the third knows. */
static void most_sentinels_away(void **state)
{
    struct top_events e = {0};

    (void)state;
    top_sentinels_patience(&top, TOP_PATIENT_MS);
    ts_server_kill(top.sentinel[0]);
    ts_server_pause(top.sentinel[1]);
    dibs_client *c = open_client(&e);
    top_all_kinds(c, "away");
    dibs_client_free(c);
    ts_server_resume(top.sentinel[1]);
    ts_server_restart(top.sentinel[0]);
}

/* The first that is asked points to a replica: one of a stranger, for at one of
 * ours it would meet the others, and tell of them. */
static void a_sentinel_is_wrong(void **state)
{
    struct ts_server *stranger = ts_server_start(NULL);
    struct ts_server *replica = ts_server_start(NULL);
    char lines[300], url[200];
    dibs_client *c = NULL;

    (void)state;
    assert_true(top_follow(replica, stranger));
    snprintf(lines, sizeof lines,
             "sentinel monitor " SERVICE " 127.0.0.1 %d 5\n"
             "sentinel down-after-milliseconds " SERVICE " 600000\n",
             ts_server_port(replica));
    struct ts_server *wrong = ts_sentinel_start(lines);
    snprintf(url, sizeof url,
             "redis-sentinel://127.0.0.1:%d,127.0.0.1:%d/" SERVICE,
             ts_server_port(wrong), ts_server_port(top.sentinel[2]));
    want("opening", dibs_client_open(url, NULL, &c), DIBS_OK);
    top_all_kinds(c, "wrong");
    dibs_client_free(c);
    /* With nobody else to ask it must not be believed. */
    snprintf(url, sizeof url, "redis-sentinel://127.0.0.1:%d/" SERVICE,
             ts_server_port(wrong));
    struct top_events e = {0};
    want("opening at a replica",
         dibs_client_open(url,
                          DIBS_CLIENT_OPTS(.connect_timeout_ms = ts_ms(1500),
                                           .on_event = top_hear,
                                           .event_arg = &e),
                          &c),
         DIBS_ERR_CONN);
    ts_server_stop(wrong);
    ts_server_stop(replica);
    ts_server_stop(stranger);
}

static void a_service_nobody_knows(void **state)
{
    struct top_events e = {0};
    char url[200];
    dibs_client *c = NULL;

    (void)state;
    snprintf(url, sizeof url, "redis-sentinel://127.0.0.1:%d/nonesuch",
             ts_server_port(top.sentinel[0]));
    want("opening",
         dibs_client_open(url,
                          DIBS_CLIENT_OPTS(.connect_timeout_ms = ts_ms(1500),
                                           .on_event = top_hear,
                                           .event_arg = &e),
                          &c),
         DIBS_ERR_CONN);
    if (!strstr(e.last, "does not know the service"))
        fail_msg("it said: %s", e.last);
}

/* The one that is asked is no sentinel, but an ordinary server. */
static void no_sentinel(void **state)
{
    struct ts_server *s = ts_server_start(NULL);
    struct top_events e = {0};
    char url[200];
    dibs_client *c = NULL;

    (void)state;
    snprintf(url, sizeof url, "redis-sentinel://127.0.0.1:%d/" SERVICE,
             ts_server_port(s));
    want("opening",
         dibs_client_open(url,
                          DIBS_CLIENT_OPTS(.connect_timeout_ms = ts_ms(1500),
                                           .on_event = top_hear,
                                           .event_arg = &e),
                          &c),
         DIBS_ERR_CONN);
    if (!strstr(e.last, "unknown command"))
        fail_msg("it said: %s", e.last);
    ts_server_stop(s);
}

/* Sentinels may have a password of their own. */
static void sentinels_with_a_password(void **state)
{
    int port = ts_server_port(top.server[top_master(&top)]);
    char lines[300], url[200];
    dibs_client *c = NULL;

    (void)state;
    snprintf(lines, sizeof lines,
             "sentinel monitor " SERVICE " 127.0.0.1 %d 5\n"
             "requirepass open-sesame\n",
             port);
    struct ts_server *s = ts_sentinel_start(lines);
    snprintf(url, sizeof url, "redis-sentinel://127.0.0.1:%d/" SERVICE,
             ts_server_port(s));
    want("without",
         dibs_client_open(
             url, DIBS_CLIENT_OPTS(.connect_timeout_ms = ts_ms(1500)), &c),
         DIBS_ERR_AUTH);
    want("with",
         dibs_client_open(
             url, DIBS_CLIENT_OPTS(.sentinel_password = "open-sesame"), &c),
         DIBS_OK);
    top_all_kinds(c, "password");
    dibs_client_free(c);
    ts_server_stop(s);
}

/* ---- failover ---------------------------------------------------------- */

struct load {
    dibs_client *c;
    atomic_bool stop;
    atomic_uint pairs[COUNT(top_kinds)], odd;
    pthread_t thread[COUNT(top_kinds)];
};

struct work {
    struct load *load;
    size_t kind;
};

static void *work(void *arg)
{
    struct work *w = arg;
    char name[40];

    snprintf(name, sizeof name, "load:%s", top_kinds[w->kind].name);
    dibs_lock *l = top_lock(w->load->c, w->kind, name);
    while (!atomic_load(&w->load->stop)) {
        bool good = dibs_lock_acquire(l, NULL) == DIBS_OK &&
                    dibs_lock_release(l, NULL) == DIBS_OK;
        atomic_fetch_add(good ? &w->load->pairs[w->kind] : &w->load->odd, 1);
    }
    dibs_lock_free(l);
    free(w);
    return NULL;
}

static void load_start(struct load *load)
{
    for (size_t k = 0; k < COUNT(top_kinds); k++) {
        struct work *w = ts_alloc(sizeof *w);
        *w = (struct work){load, k};
        pthread_create(&load->thread[k], NULL, work, w);
    }
}

/* All kinds work, from now on. */
static void load_goes_on(struct load *load)
{
    for (size_t k = 0; k < COUNT(top_kinds); k++) {
        unsigned before = atomic_load(&load->pairs[k]);
        TS_WAIT(atomic_load(&load->pairs[k]) > before + 5);
    }
}

static void load_stop(struct load *load)
{
    atomic_store(&load->stop, true);
    for (size_t k = 0; k < COUNT(top_kinds); k++)
        pthread_join(load->thread[k], NULL);
}

static dibs_lock *take_all(dibs_client *c, dibs_lock *held[COUNT(top_kinds)],
                           const char *prefix, struct top_events *e)
{
    for (size_t k = 0; k < COUNT(top_kinds); k++) {
        char name[60];
        snprintf(name, sizeof name, "%s:%s", prefix, top_kinds[k].name);
        held[k] = top_lock(c, k, name);
        want("taking",
             dibs_lock_acquire(held[k],
                               DIBS_LOCK_OPTS(.on_lost = top_lost, .arg = e)),
             DIBS_OK);
    }
    return held[0];
}

/* The master ends or stops while all kinds are held, waited for and busy. What
 * was copied before is held on. */
static void master_gone(bool kill)
{
    struct top_events e = {0};
    dibs_client *c = open_with(&e, LONG_MS), *other = open_client(NULL);
    struct load load = {.c = open_client(NULL)};
    dibs_lock *held[COUNT(top_kinds)];
    struct top_end end = {.err = DIBS_OK};
    int old = top_master(&top);

    top_sentinels_patience(&top, TOP_IMPATIENT_MS);
    dibs_lock *first = take_all(c, held, kill ? "kill" : "stop", &e);
    dibs_lock *waits = top_lock(other, 0, kill ? "kill:plain" : "stop:plain");
    want("lining up", dibs_lock_acquire_async(waits, NULL, top_ended, &end),
         DIBS_OK);
    load_start(&load);
    load_goes_on(&load);
    top_in_step(&top, old);
    if (kill)
        ts_server_kill(top.server[old]);
    else
        ts_server_pause(top.server[old]);
    int now = top_master_after(&top, old);
    load_goes_on(&load);
    /* Still there, and renewed by its holder at the new place. */
    for (size_t k = 0; k < COUNT(top_kinds); k++) {
        TS_WAIT(dibs_lock_valid_ms(held[k], 0) > LONG_MS * 9 / 10);
        assert_int_equal(dibs_lock_state(held[k], 0), DIBS_HELD);
    }
    assert_true(ts_exists(top.server[now], kill ? "kill:plain" : "stop:plain"));
    assert_int_equal(atomic_load(&e.lost), 0);
    assert_false(atomic_load(&end.over));
    want("giving back", dibs_lock_release(first, NULL), DIBS_OK);
    want("waiting on", top_wait(&end), DIBS_OK);
    for (size_t k = 1; k < COUNT(top_kinds); k++)
        want("giving back", dibs_lock_release(held[k], NULL), DIBS_OK);
    load_stop(&load);
    for (size_t k = 0; k < COUNT(top_kinds); k++)
        dibs_lock_free(held[k]);
    dibs_lock_free(waits);
    dibs_client_free(c);
    dibs_client_free(other);
    dibs_client_free(load.c);
    top_heal(&top, old);
}

static void master_killed(void **state)
{
    (void)state;
    master_gone(true);
}

static void master_stopped(void **state)
{
    (void)state;
    master_gone(false);
}

/* A client of ours listens there. */
static bool watched(struct ts_server *sentinel)
{
    char *text = ts_str(sentinel, "CLIENT LIST");
    bool yes = false;

    for (char *line = text; line && *line; line += strcspn(line, "\n") + 1) {
        size_t len = strcspn(line, "\n");
        yes |= memmem(line, len, " name=dibs/", 11) &&
               memmem(line, len, " sub=1 ", 7);
    }
    free(text);
    return yes;
}

/* No command goes out and no connection breaks: only the sentinels tell. */
static void told_of_the_switch(void **state)
{
    struct top_events e = {0};
    dibs_client *c = open_client(&e);
    int old = top_master(&top);

    (void)state;
    top_sentinels_patience(&top, TOP_IMPATIENT_MS);
    top_all_kinds(c, "told");
    /* It listens to a sentinel. */
    TS_WAIT(watched(top.sentinel[0]) || watched(top.sentinel[1]) ||
            watched(top.sentinel[2]));
    int ups = atomic_load(&e.of[DIBS_EVENT_CONNECTED]);
    ts_server_pause(top.server[old]);
    top_master_after(&top, old);
    TS_WAIT(atomic_load(&e.of[DIBS_EVENT_CONNECTED]) > ups);
    top_all_kinds(c, "told");
    dibs_client_free(c);
    top_heal(&top, old);
}

/* A lock that no replica had heard of is gone with its master. The holder
 * learns it, and somebody else has it. */
static void lock_that_did_not_survive(void **state)
{
    struct top_events e = {0};
    dibs_client *c = open_client(&e), *other = open_client(NULL);
    int old = top_master(&top);
    struct top_end end = {.err = DIBS_OK};
    dibs_lock *held[COUNT(top_kinds)];

    (void)state;
    top_sentinels_patience(&top, TOP_IMPATIENT_MS);
    for (int i = 0; i < 3; i++)
        if (i != old)
            ts_server_pause(top.server[i]);
    ts_ok(top.server[old], "CLIENT KILL TYPE replica");
    dibs_lock *l = take_all(c, held, "gone", &e);
    dibs_lock *waits = top_lock(other, 0, "gone:plain");
    want("lining up", dibs_lock_acquire_async(waits, NULL, top_ended, &end),
         DIBS_OK);
    ts_server_kill(top.server[old]);
    for (int i = 0; i < 3; i++)
        if (i != old)
            ts_server_resume(top.server[i]);
    top_master_after(&top, old);
    want("waiting on", top_wait(&end), DIBS_OK);
    for (size_t k = 0; k < COUNT(top_kinds); k++)
        TS_WAIT(dibs_lock_state(held[k], 0) == DIBS_LOST);
    TS_WAIT(atomic_load(&e.lost) == (int)COUNT(top_kinds));
    want("giving back", dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    want("giving back", dibs_lock_release(waits, NULL), DIBS_OK);
    for (size_t k = 0; k < COUNT(top_kinds); k++)
        dibs_lock_free(held[k]);
    dibs_lock_free(waits);
    dibs_client_free(c);
    dibs_client_free(other);
    top_heal(&top, old);
}

/* READONLY on a connection that works: nobody told, but it shows. */
static void demoted_in_silence(void **state)
{
    struct ts_server *a = ts_server_start(NULL), *b = ts_server_start(NULL);
    struct top_events e = {0};
    char lines[300], url[200];
    dibs_client *c = NULL;

    (void)state;
    snprintf(lines, sizeof lines, "sentinel monitor " SERVICE " 127.0.0.1 %d 1",
             ts_server_port(a));
    struct ts_server *s = ts_sentinel_start(lines);
    snprintf(url, sizeof url, "redis-sentinel://127.0.0.1:%d/" SERVICE,
             ts_server_port(s));
    want("opening",
         dibs_client_open(
             url, DIBS_CLIENT_OPTS(.on_event = top_hear, .event_arg = &e), &c),
         DIBS_OK);
    top_all_kinds(c, "silence");
    /* The sentinel is told of another master, which it does not announce. */
    ts_ok(a, "REPLICAOF 127.0.0.1 %d", ts_server_port(b));
    ts_ok(s, "SENTINEL REMOVE " SERVICE);
    ts_ok(s, "SENTINEL MONITOR " SERVICE " 127.0.0.1 %d 1", ts_server_port(b));
    top_all_kinds(c, "silence");
    assert_true(ts_command_calls(b, "evalsha") + ts_command_calls(b, "eval") >
                0);
    dibs_client_free(c);
    ts_server_stop(s);
    ts_server_stop(a);
    ts_server_stop(b);
}

/* ---- the doctor -------------------------------------------------------- */

static bool look_for(const char *check, dibs_verdict verdict, const char *text,
                     void *arg)
{
    if (strcmp(check, "sentinels") == 0)
        snprintf(arg, 200, "%d %s", (int)verdict, text);
    return true;
}

static void doctor(void **state)
{
    dibs_client *c = open_client(NULL);
    struct ts_wait w = ts_wait_begin(TS_SOON);
    char found[200] = "", wanted[200];

    (void)state;
    snprintf(wanted, sizeof wanted, "%d 3 known, one of them is subscribed to",
             DIBS_VERDICT_OK);
    while (strcmp(found, wanted) != 0) { /* until one of them is watched */
        if (!ts_wait_step(&w))
            fail_msg("the doctor says: %s", found);
        want("doctor", dibs_client_doctor(c, NULL, look_for, found), DIBS_OK);
    }
    dibs_client_free(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doctor),
        cmocka_unit_test(all_kinds),
        cmocka_unit_test(a_sentinel_is_wrong),
        cmocka_unit_test(a_service_nobody_knows),
        cmocka_unit_test(no_sentinel),
        cmocka_unit_test(sentinels_with_a_password),
        cmocka_unit_test(demoted_in_silence),
        cmocka_unit_test(master_killed),
        cmocka_unit_test(told_of_the_switch),
        cmocka_unit_test(master_stopped),
        cmocka_unit_test(lock_that_did_not_survive),
        cmocka_unit_test(most_sentinels_away),
    };

    if (argc > 1) /* one alone, or some: with a star */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, up, down);
}
