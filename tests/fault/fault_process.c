/* SPDX-License-Identifier: MIT
 *
 * fault_process.c - the client's own process is stopped, killed, interrupted,
 * or loses threads.
 *
 * Processes that are stopped or killed are children of the test that do what
 * they are told over a socket. They are made before the first thread (main).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/kit.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#define LEASE_MS kit_ms(2400)

/* ---- children ---------------------------------------------------------- */

enum what { OPEN, TAKE, LINE_UP, LOOK, GIVE };

struct order {
    enum what what;
    char text[200]; /* OPEN: the URL; TAKE, LINE_UP: the name */
};

struct answer {
    dibs_err err;
    dibs_state state;
    int64_t valid_ms, holds;
    int lost; /* how often it was told */
};

struct life {
    dibs_client *c;
    dibs_lock *l;
    atomic_int lost;
};

static dibs_err obey(struct life *me, const struct order *o)
{
    static struct kit_end end;
    const dibs_lock_opts opts = {
        .size = sizeof opts, .on_lost = kit_lost, .arg = &me->lost};
    dibs_err err = DIBS_OK;

    switch (o->what) {
    case OPEN:
        return dibs_client_open(o->text, DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS),
                                &me->c);
    case TAKE:
    case LINE_UP:
        if (!me->l)
            err = dibs_lock_new(me->c, o->text, &me->l);
        if (err != DIBS_OK)
            return err;
        return o->what == TAKE
                   ? dibs_lock_acquire(me->l, &opts)
                   : dibs_lock_acquire_async(me->l, &opts, kit_ended, &end);
    case LOOK:
        return DIBS_OK;
    case GIVE:
        return dibs_lock_release(me->l, NULL);
    }
    return DIBS_ERR_INVALID;
}

static int child(int fd, void *arg)
{
    struct life me = {.c = NULL};
    struct order o;

    (void)arg;
    while (ts_hear(fd, &o, sizeof o, ts_ms(600000))) {
        struct answer a = {.err = DIBS_OK};
        a.state = dibs_lock_state(me.l, 0); /* before anything else */
        a.valid_ms = dibs_lock_valid_ms(me.l, 0);
        a.err = obey(&me, &o);
        a.holds = dibs_lock_holds(me.l, 0);
        a.lost = atomic_load(&me.lost);
        if (!ts_tell(fd, &a, sizeof a))
            break;
    }
    dibs_lock_free(me.l);
    dibs_client_free(me.c);
    return 0;
}

#define CHILDREN 3
static struct ts_child *children[CHILDREN];

static void tell(struct ts_child *ch, enum what what, const char *text)
{
    struct order o = {.what = what};

    snprintf(o.text, sizeof o.text, "%s", text ? text : "");
    assert_true(ts_tell(ts_child_fd(ch), &o, sizeof o));
}

static struct answer hear(struct ts_child *ch)
{
    struct answer a;

    assert_true(ts_hear(ts_child_fd(ch), &a, sizeof a, TS_SOON));
    return a;
}

static struct answer ask(struct ts_child *ch, enum what what, const char *text)
{
    tell(ch, what, text);
    return hear(ch);
}

/* ---- stopped ----------------------------------------------------------- */

/* A holder is stopped for longer than its lease, and somebody else gets the
 * lock. When it runs again, the first thing it asks the library must already
 * be answered with LOST. The server is stopped too at that moment, so that
 * nobody can have told it. */
static void test_stopped_beyond_the_lease(void **state)
{
    struct ts_child *ch = children[0];
    struct kit_client *k;
    struct answer a;

    (void)state;
    kit_want("opening", ask(ch, OPEN, ts_server_url(kit_srv)).err, DIBS_OK);
    kit_want("taking", ask(ch, TAKE, "stop").err, DIBS_OK);
    assert_int_equal(ask(ch, LOOK, NULL).state, DIBS_HELD);
    ts_child_pause(ch);
    assert_true(ts_wait_exists(kit_srv, "stop", false));
    k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = kit_lock(k, "stop");
    kit_want("a stranger", dibs_lock_try(l, NULL), DIBS_OK);
    ts_server_pause(kit_srv);
    tell(ch, LOOK, NULL);
    ts_child_resume(ch);
    a = hear(ch);
    assert_int_equal(a.state, DIBS_LOST);
    assert_int_equal(a.valid_ms, 0);
    assert_int_equal(a.holds, 0);
    struct ts_wait w = ts_wait_begin(TS_SOON);
    while (ask(ch, LOOK, NULL).lost == 0)
        if (!ts_wait_step(&w))
            fail_msg("not told");
    a = ask(ch, GIVE, NULL);
    kit_want("giving back", a.err, DIBS_ERR_LOST);
    assert_int_equal(a.lost, 1);
    ts_server_resume(kit_srv);
    kit_check("the stranger's", l, 0, "stop", 1);
    kit_want("the child", ask(ch, GIVE, NULL).err, DIBS_ERR_NOT_OWNER);
    assert_int_equal(ask(ch, LOOK, NULL).lost, 1);
    kit_check("the stranger's", l, 0, "stop", 1);
    kit_want("the stranger", dibs_lock_release(l, NULL), DIBS_OK);
    kit_want("the child again", ask(ch, TAKE, "stop").err, DIBS_OK);
    kit_want("the child again", ask(ch, GIVE, NULL).err, DIBS_OK);
    dibs_lock_free(l);
    kit_close(k);
}

/* ---- stopped, with answers on their way -------------------------------- */

#define CHAINS   16
#define HASTY_MS kit_ms(300)

struct chain {
    dibs_lock *l;
    dibs_lock_opts opts;
    atomic_int pairs;
};

static void chain_released(dibs_err err, void *arg);

static void chain_acquired(dibs_err err, void *arg)
{
    struct chain *ch = arg;

    if (err == DIBS_OK)
        (void)!dibs_lock_release_async(ch->l, &ch->opts, chain_released, ch);
}

static void chain_released(dibs_err err, void *arg)
{
    struct chain *ch = arg;

    atomic_fetch_add(&ch->pairs, 1);
    if (err == DIBS_OK)
        (void)!dibs_lock_acquire_async(ch->l, &ch->opts, chain_acquired, ch);
}

static bool start_chain(dibs_client *c, struct chain *ch, int number)
{
    char name[24];

    snprintf(name, sizeof name, "chain%d", number);
    if (dibs_lock_new(c, name, &ch->l) != DIBS_OK)
        return false;
    ch->opts =
        (dibs_lock_opts){.size = sizeof ch->opts, .owner = dibs_owner_new(c)};
    return dibs_lock_acquire_async(ch->l, &ch->opts, chain_acquired, ch) ==
           DIBS_OK;
}

/* Every chain has gone on. */
static bool chains_go_on(struct chain *chains)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    for (int i = 0; i < CHAINS; i++) {
        int before = atomic_load(&chains[i].pairs);
        while (atomic_load(&chains[i].pairs) < before + 3)
            if (!ts_wait_step(&w))
                return false;
    }
    return true;
}

/* Takes and gives back CHAINS locks in callbacks, for ever. The first order is
 * the URL. Each is answered, once the chains have gone on, with the number of
 * answers that were lost so far; -1: they do not. */
static int chains_child(int fd, void *arg)
{
    struct chain chains[CHAINS] = {0};
    dibs_stats stats = {.size = sizeof stats};
    dibs_client *c = NULL;
    bool good = true;
    struct order o;

    (void)arg;
    while (good && ts_hear(fd, &o, sizeof o, ts_ms(600000))) {
        if (!c) {
            good = dibs_client_open(
                       o.text, DIBS_CLIENT_OPTS(.command_timeout_ms = HASTY_MS),
                       &c) == DIBS_OK;
            for (int i = 0; good && i < CHAINS; i++)
                good = start_chain(c, &chains[i], i);
        }
        good = good && chains_go_on(chains) &&
               dibs_client_stats(c, &stats) == DIBS_OK;
        int64_t lost = good ? (int64_t)stats.unknown : -1;
        if (!ts_tell(fd, &lost, sizeof lost))
            break;
    }
    for (int i = 0; i < CHAINS; i++)
        dibs_lock_free(chains[i].l);
    dibs_client_free(c);
    return 0;
}

static struct ts_child *chains;

static int64_t hear_lost(void)
{
    int64_t lost;

    assert_true(ts_hear(ts_child_fd(chains), &lost, sizeof lost, TS_SOON));
    assert_true(lost >= 0);
    return lost;
}

static int64_t ask_lost(const char *text)
{
    tell(chains, LOOK, text);
    return hear_lost();
}

/* How many answers are lost when it is stopped for longer than they may take.
 */
static int64_t lost_by_a_stop(void)
{
    int64_t before = ask_lost(NULL), none;

    ts_child_pause(chains);
    tell(chains, LOOK, NULL);
    assert_false(ts_hear(ts_child_fd(chains), &none, sizeof none,
                         HASTY_MS + HASTY_MS / 2));
    ts_child_resume(chains);
    return hear_lost() - before;
}

/* What the server answered while the process was stopped counts, though its
 * time is over. Calls that are with io go by the clock then, and now and then
 * there are some: so, three times in a row, of some. */
static void test_stopped_with_answers(void **state)
{
    int good = 0;

    (void)state;
    (void)ask_lost(ts_server_url(kit_srv));
    for (int i = 0; i < 40 && good < 3; i++)
        good = lost_by_a_stop() == 0 ? good + 1 : 0;
    assert_int_equal(good, 3);
}

/* ---- killed ------------------------------------------------------------ */

/* A holder is killed. Its lock ends with its lease, and who waits gets it. */
static void test_holder_killed(void **state)
{
    struct ts_child *ch = children[1];
    struct kit_end end = {.err = DIBS_OK};

    (void)state;
    kit_want("opening", ask(ch, OPEN, ts_server_url(kit_srv)).err, DIBS_OK);
    kit_want("taking", ask(ch, TAKE, "kill").err, DIBS_OK);
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = kit_lock(k, "kill");
    kit_want("trying", dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    kit_want("lining up", dibs_lock_acquire_async(l, NULL, kit_ended, &end),
             DIBS_OK);
    ts_child_kill(ch);
    kit_want("waiting", kit_wait(&end), DIBS_OK);
    kit_check("the waiter's", l, 0, "kill", 1);
    kit_want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    kit_gone("afterwards", "kill");
    dibs_lock_free(l);
    kit_close(k);
}

/* A waiter is killed. Nobody misses it. */
static void test_waiter_killed(void **state)
{
    struct ts_child *ch = children[2];
    struct kit_end end = {.err = DIBS_OK};

    (void)state;
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    struct kit_client *other = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = kit_lock(k, "wait"), *ol = kit_lock(other, "wait");
    kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    kit_want("opening", ask(ch, OPEN, ts_server_url(kit_srv)).err, DIBS_OK);
    kit_want("the child", ask(ch, LINE_UP, "wait").err, DIBS_OK);
    assert_true(ts_wait_numsub(kit_srv, "redisson_lock__channel:{wait}", 1));
    kit_want("lining up", dibs_lock_acquire_async(ol, NULL, kit_ended, &end),
             DIBS_OK);
    ts_child_kill(ch);
    kit_want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    kit_want("waiting", kit_wait(&end), DIBS_OK);
    kit_check("the other's", ol, 0, "wait", 1);
    kit_want("giving back", dibs_lock_release(ol, NULL), DIBS_OK);
    kit_gone("afterwards", "wait");
    assert_true(ts_wait_numsub(kit_srv, "redisson_lock__channel:{wait}", 0));
    dibs_lock_free(l);
    dibs_lock_free(ol);
    kit_close(k);
    kit_close(other);
}

/* ---- threads that are canceled ----------------------------------------- */

/* A canceled thread leaves its functions without returning from them. What
 * AddressSanitizer noted about their stack would then be held against the one
 * that uses it next, so it is to note nothing. */
#define LEFT_BY_CANCEL __attribute__((no_sanitize_address))

struct doomed {
    pthread_t thread;
    dibs_lock *l;
    dibs_client *c;
    const char *url;
    atomic_bool started;
    atomic_int rounds;
};

/* What a program has to do that cancels threads: what the thread holds is
 * given back by its cleanup handler. */
static void clean_up(void *arg)
{
    struct doomed *d = arg;

    while (dibs_lock_holds(d->l, 0) > 0)
        dibs_lock_release(d->l, NULL);
}

LEFT_BY_CANCEL static void *lock_for_ever(void *arg)
{
    struct doomed *d = arg;

    pthread_cleanup_push(clean_up, d);
    for (;;) {
        atomic_store(&d->started, true);
        if (dibs_lock_acquire(d->l, NULL) != DIBS_OK)
            break;
        pthread_testcancel();
        if (dibs_lock_release(d->l, NULL) != DIBS_OK)
            break;
        atomic_fetch_add(&d->rounds, 1);
    }
    pthread_cleanup_pop(1);
    return NULL;
}

/* Threads are canceled anywhere in taking and giving back. */
static void test_threads_canceled(void **state)
{
    enum { THREADS = 4, TIMES = 25 };
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = kit_lock(k, "cancel");
    struct doomed d[THREADS];
    void *end;

    (void)state;
    for (int n = 0; n < TIMES; n++) {
        memset(d, 0, sizeof d);
        for (int i = 0; i < THREADS; i++) {
            d[i].l = l;
            pthread_create(&d[i].thread, NULL, lock_for_ever, &d[i]);
        }
        for (int i = 0; i < THREADS; i++)
            TS_WAIT(atomic_load(&d[i].started) &&
                    (i > 0 || atomic_load(&d[i].rounds) > n));
        for (int i = 0; i < THREADS; i++)
            pthread_cancel(d[i].thread);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(d[i].thread, &end);
            assert_ptr_equal(end, PTHREAD_CANCELED);
        }
        kit_gone("canceled", "cancel");
    }
    kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    kit_want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    dibs_lock_free(l);
    kit_close(k);
}

LEFT_BY_CANCEL static void *open_slowly(void *arg)
{
    struct doomed *d = arg;

    atomic_store(&d->started, true);
    if (dibs_client_open(d->url, DIBS_CLIENT_OPTS(.connect_timeout_ms = 300),
                         &d->c) != DIBS_OK)
        d->c = NULL;
    pthread_testcancel();
    return NULL;
}

LEFT_BY_CANCEL static void *close_slowly(void *arg)
{
    struct doomed *d = arg;

    atomic_store(&d->started, true);
    dibs_client_close(d->c, 300);
    pthread_testcancel();
    return NULL;
}

/* A thread is canceled while it opens a client, or closes one, and waits for a
 * server that does not answer. Nothing is left of the one, and the other can
 * still be freed. */
static void test_canceled_in_open_and_close(void **state)
{
    size_t threads = ts_threads(), fds = ts_fds();
    struct doomed d = {.url = ts_server_url(kit_srv)};

    (void)state;
    ts_server_pause(kit_srv);
    pthread_create(&d.thread, NULL, open_slowly, &d);
    TS_WAIT(atomic_load(&d.started));
    pthread_cancel(d.thread);
    pthread_join(d.thread, NULL);
    assert_null(d.c);
    TS_WAIT(ts_threads() <= threads);
    assert_int_equal(ts_fds(), fds);
    ts_server_resume(kit_srv);

    kit_want("opening", dibs_client_open(d.url, NULL, &d.c), DIBS_OK);
    kit_want("a name", dibs_lock_new(d.c, "close", &d.l), DIBS_OK);
    kit_want("taking", dibs_lock_acquire(d.l, NULL), DIBS_OK);
    ts_server_pause(kit_srv);
    atomic_store(&d.started, false);
    pthread_create(&d.thread, NULL, close_slowly, &d);
    TS_WAIT(atomic_load(&d.started));
    pthread_cancel(d.thread);
    pthread_join(d.thread, NULL);
    ts_server_resume(kit_srv);
    dibs_lock_free(d.l);
    dibs_client_free(d.c);
    TS_WAIT(ts_threads() <= threads);
    assert_int_equal(ts_fds(), fds);
}

/* ---- signals ----------------------------------------------------------- */

static volatile sig_atomic_t alarms;

static void on_alarm(int sig)
{
    (void)sig;
    alarms++;
}

static void alarm_every(suseconds_t us)
{
    const struct itimerval t = {{0, us}, {0, us}};

    setitimer(ITIMER_REAL, &t, NULL);
}

/* A signal every millisecond interrupts every system call that waits. Nobody
 * notices; and time limits are kept, though each call starts again. */
static void test_interrupted(void **state)
{
    struct kit_client *k =
        kit_open(&(struct kit_opts){.direct = true, .timeout_ms = kit_ms(300)});
    struct sigaction sa = {.sa_handler = on_alarm}, before;
    dibs_lock *l = kit_lock(k, "alarm");
    dibs_err err = DIBS_OK;

    (void)state;
    sigaction(SIGALRM, &sa, &before);
    alarm_every(1000);
    for (int i = 0; i < 10000 && err == DIBS_OK && alarms < 100; i++) {
        err = dibs_lock_acquire(l, NULL);
        if (err == DIBS_OK)
            err = dibs_lock_release(l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON));
    }
    alarm_every(0);
    kit_want("taking and giving", err, DIBS_OK);
    ts_server_pause(kit_srv);
    alarm_every(1000);
    err = dibs_lock_try(l, NULL);
    alarm_every(0);
    ts_server_resume(kit_srv);
    sigaction(SIGALRM, &before, NULL);
    kit_want("trying", err, DIBS_ERR_UNKNOWN);
    kit_free_for_all("afterwards", "alarm");
    dibs_lock_free(l);
    kit_close(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_stopped_beyond_the_lease, kit_fresh),
        cmocka_unit_test_setup(test_stopped_with_answers, kit_fresh),
        cmocka_unit_test_setup(test_holder_killed, kit_fresh),
        cmocka_unit_test_setup(test_waiter_killed, kit_fresh),
        cmocka_unit_test_setup(test_threads_canceled, kit_fresh),
        cmocka_unit_test_setup(test_canceled_in_open_and_close, kit_fresh),
        cmocka_unit_test_setup(test_interrupted, kit_fresh),
    };

    for (size_t i = 0; i < CHILDREN; i++)
        children[i] = ts_spawn(child, NULL);
    chains = ts_spawn(chains_child, NULL);
    int failed = cmocka_run_group_tests(tests, kit_up, kit_down);
    for (size_t i = 0; i < CHILDREN; i++)
        ts_child_free(children[i]);
    ts_child_free(chains);
    return failed;
}
