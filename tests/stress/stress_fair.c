/* SPDX-License-Identifier: MIT
 *
 * stress_fair.c - first come, first served, under load: many waiters in several
 * processes, of which some run out of time, some are called off, and some are
 * killed. The judge is the server's own record of what happened (fifo.h); that
 * no two have the lock at once is seen by the processes themselves (witness.h).
 *
 * Chance is seeded; a failure names the seed, and DIBS_STRESS_SEED repeats it
 * as far as the machine's timing lets it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dibs/dibs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "stress/fifo.h"
#include "support/util.h"
#include "support/witness.h"

#define QUEUE  "redisson_lock_queue:{l}"
#define SCORES "redisson_lock_timeout:{l}"

enum {
    PROCESSES = 5,
    WAITERS = 40, /* of each, in the first test */
    THREADS = 6,  /* of each, in the second */
    ROUNDS = 25,  /* of each thread */
    WORKERS = PROCESSES * WAITERS
};

static struct ts_server *srv;
static struct ts_witness *witness;

static unsigned seed(void)
{
    const char *text = getenv("DIBS_STRESS_SEED");

    return text ? (unsigned)atoi(text) : (unsigned)getpid();
}

/* ---- a process --------------------------------------------------------- */

struct process {
    int number;
    unsigned seed;
    int64_t lease_ms;
    dibs_client *c;
    dibs_lock *l;
};

/* What it tells its parent: who it is, then how it went. */
struct report {
    char id[64];
    unsigned ok, gave_up, bad;
    char why[160]; /* the first thing that was bad */
};

static void note_bad(struct report *r, const char *what, dibs_err err)
{
    if (r->bad++ == 0)
        snprintf(r->why, sizeof r->why, "%s: %s (%s)", what, dibs_strerror(err),
                 err ? dibs_error_text() : "");
}

static void note_close(struct report *r, dibs_client *c)
{
    dibs_err err = dibs_client_close(c, TS_SOON);

    if (err != DIBS_OK)
        note_bad(r, "close", err);
}

static void assert_good(const struct report *r)
{
    if (r->bad)
        fail_msg("%u bad, the first: %s", r->bad, r->why);
}

static bool process_open(struct process *p)
{
    return dibs_client_open(ts_server_url(srv),
                            DIBS_CLIENT_OPTS(.lease_ms = p->lease_ms,
                                             .command_timeout_ms = TS_SOON),
                            &p->c) == DIBS_OK &&
           dibs_fair_lock_new(p->c, "l", &p->l) == DIBS_OK;
}

static bool tell_id(struct process *p, int fd)
{
    struct report r = {.ok = 0};

    snprintf(r.id, sizeof r.id, "%s", dibs_client_id(p->c));
    return ts_tell(fd, &r, sizeof r);
}

static struct report hear_report(struct ts_child *ch)
{
    struct report r;

    if (!ts_hear(ts_child_fd(ch), &r, sizeof r, ts_ms(60000)))
        fail_msg("a process does not report");
    return r;
}

/* ---- who was killed ---------------------------------------------------- */

static char killed[PROCESSES][64]; /* UUIDs */

static bool was_killed(const char *owner, void *arg)
{
    (void)arg;
    for (int i = 0; i < PROCESSES; i++)
        if (killed[i][0] && strncmp(owner, killed[i], strlen(killed[i])) == 0)
            return true;
    return false;
}

static void kill_process(struct ts_child *ch, int number, const char *id)
{
    size_t len = strnlen(id, sizeof killed[number] - 1);

    /* Before anybody can throw its waiters out. */
    memcpy(killed[number], id, len);
    killed[number][len] = '\0';
    ts_child_kill(ch);
    for (size_t i = 0; i < WAITERS; i++)
        ts_witness_forget(witness, (size_t)number * WAITERS + i);
}

static void judge(struct fifo *f, unsigned with_seed)
{
    *f = (struct fifo){.lock = "l", .queue = QUEUE, .dead = was_killed};
    fifo_read(f, srv);
    if (f->bad[0])
        fail_msg("not fair: %s; seed %u", f->bad, with_seed);
    if (ts_witness_violations(witness) != 0)
        fail_msg("%s; seed %u", ts_witness_first(witness), with_seed);
}

/* ---- two hundred in line ----------------------------------------------- */

struct waiter {
    struct process *p;
    dibs_owner owner;
    size_t worker;
    atomic_int state; /* 0 waits, 1 had it, 2 gave up, 3 something is wrong */
    atomic_int err;   /* with 3; DIBS_OK: it was not alone */
};

static void given_back(dibs_err err, void *arg)
{
    struct waiter *w = arg;

    atomic_store(&w->err, err);
    atomic_store(&w->state, err == DIBS_OK ? 1 : 3);
}

static void granted(dibs_err err, void *arg)
{
    struct waiter *w = arg;

    if (err != DIBS_OK) {
        bool gave_up = err == DIBS_ERR_TIMEOUT || err == DIBS_ERR_CANCELED;
        atomic_store(&w->err, err);
        atomic_store(&w->state, gave_up ? 2 : 3);
        return;
    }
    bool alone = ts_witness_enter(witness, 0, w->worker);
    alone &= ts_witness_leave(witness, 0, w->worker);
    if (!alone ||
        dibs_lock_release_async(w->p->l, DIBS_LOCK_OPTS(.owner = w->owner),
                                given_back, w) != DIBS_OK)
        atomic_store(&w->state, 3);
}

/* Every fifth runs out of time before the lock is freed, every fifth may do so
 * at any moment; the others have all the time there is. */
static int64_t patience(int i, unsigned *chance)
{
    if (i % 5 == 1)
        return 1 + rand_r(chance) % 50;
    return i % 5 == 2 ? 1 + rand_r(chance) % 2000 : 0;
}

static int stand_in_line(int fd, void *arg)
{
    static struct waiter w[WAITERS];
    struct process *p = arg;
    struct report r = {.ok = 0};
    unsigned chance = p->seed;
    char go;

    if (!process_open(p) || !tell_id(p, fd) || !ts_hear(fd, &go, 1, TS_SOON))
        return 1;
    for (int i = 0; i < WAITERS; i++) {
        w[i].p = p;
        w[i].owner = dibs_owner_new(p->c);
        w[i].worker = (size_t)(p->number * WAITERS + i);
        if (dibs_lock_acquire_async(
                p->l,
                DIBS_LOCK_OPTS(.owner = w[i].owner,
                               .wait_ms = patience(i, &chance)),
                granted, &w[i]) != DIBS_OK)
            return 2;
        if (i % 5 == 4) /* called off, at once or later */
            dibs_lock_cancel(
                p->l, w[(unsigned)rand_r(&chance) % (unsigned)(i + 1)].owner);
    }
    for (int i = 0; i < WAITERS; i++) {
        TS_WAIT(atomic_load(&w[i].state) != 0);
        r.ok += atomic_load(&w[i].state) == 1;
        r.gave_up += atomic_load(&w[i].state) == 2;
        if (atomic_load(&w[i].state) == 3)
            note_bad(&r, "a waiter", atomic_load(&w[i].err));
    }
    dibs_lock_free(p->l);
    note_close(&r, p->c);
    dibs_client_free(p->c);
    return ts_tell(fd, &r, sizeof r) ? 0 : 3;
}

static void start(struct ts_child **ch, struct process *p,
                  int (*fn)(int fd, void *arg), int64_t lease_ms)
{
    unsigned from = seed();

    for (int i = 0; i < PROCESSES; i++) {
        p[i] = (struct process){
            .number = i, .seed = from + (unsigned)i, .lease_ms = lease_ms};
        ch[i] = ts_spawn(fn, &p[i]);
    }
}

static void test_fair_two_hundred(void **state)
{
    struct ts_child *ch[PROCESSES];
    static struct process p[PROCESSES];
    struct report r[PROCESSES];
    struct fifo f;
    unsigned ok = 0;

    (void)state;
    ts_ok(srv, "HSET l 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7 1");
    ts_ok(srv, "PEXPIRE l 600000");
    start(ch, p, stand_in_line, ts_ms(30000));
    for (int i = 0; i < PROCESSES; i++)
        r[i] = hear_report(ch[i]);
    /* Some of those who will die are there before all others. */
    assert_true(ts_tell(ts_child_fd(ch[1]), "g", 1));
    TS_WAIT(ts_command_calls(srv, "rpush") >= WAITERS / 5);
    for (int i = 0; i < PROCESSES; i++)
        if (i != 1)
            assert_true(ts_tell(ts_child_fd(ch[i]), "g", 1));
    /* Nearly all: one that is called off may never have come. */
    TS_WAIT(ts_command_calls(srv, "rpush") >= WORKERS * 9 / 10);
    kill_process(ch[1], 1, r[1].id);
    ts_ok(srv, "DEL l");
    for (int i = 0; i < PROCESSES; i++) {
        if (i != 1) {
            r[i] = hear_report(ch[i]);
            assert_good(&r[i]);
            assert_int_equal(r[i].ok + r[i].gave_up, WAITERS);
            ok += r[i].ok;
            assert_int_equal(ts_child_wait(ch[i], TS_SOON), 0);
        }
        ts_child_free(ch[i]);
    }
    judge(&f, seed());
    assert_int_equal(f.grants, 1 + ok); /* the stranger's */
    assert_true(f.evicted > 0);
    assert_true(ok >= (PROCESSES - 1) * WAITERS / 3);
    fifo_clear(&f);
}

/* ---- random histories -------------------------------------------------- */

struct worker {
    struct process *p;
    size_t number;
    unsigned chance;
    struct report r;
    _Atomic(dibs_owner) waits; /* for whom, so that it can be called off */
    pthread_t thread;
};

static void one_round(struct worker *w)
{
    struct process *p = w->p;
    dibs_owner owner = dibs_owner_new(p->c);
    int dice = rand_r(&w->chance) % 10;
    int64_t wait_ms = dice < 3 ? 1 + rand_r(&w->chance) % 40 : 0;
    const dibs_lock_opts *o =
        DIBS_LOCK_OPTS(.owner = owner, .wait_ms = wait_ms);

    atomic_store(&w->waits, owner);
    dibs_err err =
        dice == 9 ? dibs_lock_try(p->l, o) : dibs_lock_acquire(p->l, o);
    atomic_store(&w->waits, 0);
    if (err == DIBS_ERR_TIMEOUT || err == DIBS_ERR_CANCELED ||
        err == DIBS_ERR_BUSY) {
        w->r.gave_up++;
        return;
    }
    if (err != DIBS_OK) {
        note_bad(&w->r, dice == 9 ? "try" : "acquire", err);
        return;
    }
    bool alone = ts_witness_enter(witness, 0, w->number);
    if (dice > 6)
        usleep((useconds_t)(rand_r(&w->chance) % 1500));
    alone &= ts_witness_leave(witness, 0, w->number);
    /* wait_ms would be the limit of the release, too. */
    err = dibs_lock_release(p->l, DIBS_LOCK_OPTS(.owner = owner));
    w->r.ok += err == DIBS_OK && alone;
    if (err != DIBS_OK || !alone)
        note_bad(&w->r, alone ? "release" : "not alone", err);
}

static void *work(void *arg)
{
    struct worker *w = arg;

    for (int i = 0; i < ROUNDS; i++)
        one_round(w);
    return NULL;
}

/* Calls somebody off, now and then. */
static void *meddle(void *arg)
{
    struct worker *w = arg; /* all of them; ends with the last one's p gone */
    unsigned chance = w[0].p->seed;

    for (int i = 0; i < 2 * ROUNDS; i++) {
        dibs_owner owner =
            atomic_load(&w[(unsigned)rand_r(&chance) % THREADS].waits);
        if (owner)
            dibs_lock_cancel(w[0].p->l, owner);
        usleep((useconds_t)(rand_r(&chance) % 20000));
    }
    return NULL;
}

static int live_wildly(int fd, void *arg)
{
    static struct worker w[THREADS];
    struct process *p = arg;
    struct report r = {.ok = 0};
    pthread_t meddler;
    char go;

    if (!process_open(p) || !tell_id(p, fd) || !ts_hear(fd, &go, 1, TS_SOON))
        return 1;
    for (int i = 0; i < THREADS; i++) {
        w[i].p = p;
        w[i].number = (size_t)(p->number * WAITERS + i);
        w[i].chance = p->seed * 31 + (unsigned)i;
        if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0)
            return 2;
    }
    if (pthread_create(&meddler, NULL, meddle, w) != 0)
        return 2;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(w[i].thread, NULL);
        r.ok += w[i].r.ok;
        r.gave_up += w[i].r.gave_up;
        if (w[i].r.bad && r.bad == 0)
            memcpy(r.why, w[i].r.why, sizeof r.why);
        r.bad += w[i].r.bad;
    }
    pthread_join(meddler, NULL);
    dibs_lock_free(p->l);
    note_close(&r, p->c);
    dibs_client_free(p->c);
    return ts_tell(fd, &r, sizeof r) ? 0 : 3;
}

static void test_fair_random_history(void **state)
{
    struct ts_child *ch[PROCESSES];
    static struct process p[PROCESSES];
    struct report r[PROCESSES];
    struct fifo f;
    unsigned ok = 0;

    (void)state;
    start(ch, p, live_wildly, 3000 * ts_slow());
    for (int i = 0; i < PROCESSES; i++)
        r[i] = hear_report(ch[i]);
    for (int i = 0; i < PROCESSES; i++)
        assert_true(ts_tell(ts_child_fd(ch[i]), "g", 1));
    /* Two are killed, whatever they are doing. */
    for (int i = 0; i < 2; i++) {
        long long grants = ts_command_calls(srv, "lpop");
        TS_WAIT(ts_command_calls(srv, "lpop") > grants + 30);
        kill_process(ch[i], i, r[i].id);
    }
    for (int i = 0; i < PROCESSES; i++) {
        if (i >= 2) {
            r[i] = hear_report(ch[i]);
            assert_good(&r[i]);
            assert_int_equal(r[i].ok + r[i].gave_up, THREADS * ROUNDS);
            ok += r[i].ok;
            assert_int_equal(ts_child_wait(ch[i], TS_SOON), 0);
        }
        ts_child_free(ch[i]);
    }
    judge(&f, seed());
    assert_true(f.grants >= ok);
    assert_true(f.waited > 50);
    fifo_clear(&f);
}

/* ---- the judge, judged ------------------------------------------------- */

static void test_fair_judge(void **state)
{
    static const struct {
        const char *story;
        bool fair;
    } rows[] = {
        {"hset l a,rpush q b,rpush q c,del l,lpop q,hset l b", true},
        {"hset l a,rpush q b,rpush q c,hdel l a,lpop q,hset l b", true},
        {"hset l a,rpush q b,rpush q c,hdel l x,lpop q,hset l b", false},
        {"hset l a,rpush q b,rpush q c,del l,lpop q,hset l c", false},
        {"hset l a,rpush q b,del l,hset l c", false},
        {"hset l a,hset l b", false},
        {"rpush q b,rpush q b", false},
        {"rpush q b,lrem q 0 b,hset l c", true},
        {"rpush q b,lrem q 1 b,hset l c", false},
        {"rpush q dead,lrem q 1 dead,hset l c", true},
        {"rpush q dead,rpush q c,lrem q 1 dead,rpush q dead,lpop q,hset l c",
         true},
        {"rpush q b,del q,hset l c", false},
    };

    (void)state;
    snprintf(killed[0], sizeof killed[0], "dead");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fifo f = {.lock = "l", .queue = "q", .dead = was_killed};
        char *copy = ts_strdup(rows[i].story), *save = NULL;
        for (char *step = strtok_r(copy, ",", &save); step;
             step = strtok_r(NULL, ",", &save)) {
            char *argv[5] = {0}, *word = NULL;
            int argc = 0;
            for (char *w = strtok_r(step, " ", &word); w && argc < 4;
                 w = strtok_r(NULL, " ", &word))
                argv[argc++] = w;
            fifo_step(&f, argc, argv);
        }
        if ((f.bad[0] == '\0') != rows[i].fair)
            fail_msg("row %zu: '%s'", i, f.bad);
        free(copy);
        fifo_clear(&f);
    }
}

static int before(void **state)
{
    (void)state;
    memset(killed, 0, sizeof killed);
    srv = ts_server_start(fifo_server);
    witness = ts_witness_new(1, WORKERS);
    return 0;
}

static int after(void **state)
{
    (void)state;
    ts_witness_free(witness);
    ts_server_stop(srv);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fair_two_hundred, before, after),
        cmocka_unit_test_setup_teardown(test_fair_random_history, before,
                                        after),
        cmocka_unit_test_setup_teardown(test_fair_judge, before, after),
    };

    return cmocka_run_group_tests_name("stress.fair", tests, NULL, NULL);
}
