/* SPDX-License-Identifier: MIT
 *
 * fault_quorum_calls.c - every call on a quorum lock, and what comes across it:
 * levels, owners, cancel, clients that close, callbacks, fork.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/quorum_kit.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static dibs_owner me(struct qk_party *p)
{
    return dibs_owner_thread(p->k[0]->c);
}

/* An acquire that waits, as our thread. */
static void wait_for_it(struct qk_party *p, struct kit_end *end)
{
    *end = (struct kit_end){.err = DIBS_OK};
    QK_WANT("waiting",
            dibs_lock_acquire_async(p->q, DIBS_LOCK_OPTS(.owner = me(p)),
                                    kit_ended, end),
            DIBS_OK);
}

/* It has been at it for a while. */
static void some_rounds(size_t at)
{
    unsigned n = ts_proxy_requests(qk_nodes[at].px, "EVAL*");

    assert_true(
        ts_proxy_wait_requests(qk_nodes[at].px, "EVAL*", n + 2, TS_SOON));
}

/* ---- levels and owners ------------------------------------------------- */

static void counts_are(struct qk_party *p, long long want)
{
    assert_int_equal(dibs_lock_holds(p->q, 0), want);
    for (size_t i = 0; i < QK_N; i++)
        TS_WAIT(qk_holds(p, i) == want);
}

static void test_quorum_levels(void **state)
{
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    for (int i = 1; i <= 3; i++) {
        qk_take("levels", &p);
        counts_are(&p, i);
    }
    for (int i = 2; i >= 0; i--) {
        QK_WANT("levels", dibs_lock_release(p.q, NULL), DIBS_OK);
        counts_are(&p, i);
    }
    QK_WANT("levels", dibs_lock_release(p.q, NULL), DIBS_ERR_NOT_OWNER);
    qk_clean("levels", QK_ALL, 0);
    qk_part(&p);
}

/* The inner level got three servers, the outer one five: each gives back what
 * it took. */
static void test_quorum_uneven_levels(void **state)
{
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    qk_take("uneven", &p);
    TS_WAIT(qk_held(&p) == QK_ALL);
    qk_break(QK_CUT_OFF, 0x03);
    qk_take("uneven", &p);
    QK_WANT("uneven", dibs_lock_release(p.q, NULL), DIBS_OK);
    assert_int_equal(dibs_lock_holds(p.q, 0), 1);
    assert_int_equal(dibs_lock_state(p.q, 0), DIBS_HELD);
    qk_mend(0x03);
    for (size_t i = 0; i < QK_N; i++)
        TS_WAIT(qk_holds(&p, i) == 1);
    QK_WANT("uneven", dibs_lock_release(p.q, NULL), DIBS_OK);
    qk_clean("uneven", QK_ALL, 0);
    qk_works("uneven", &p);
    qk_part(&p);
}

/* Of one client or of two: one owner has it, the other does not. */
static void test_quorum_owners(void **state)
{
    struct qk_party p, other;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    qk_join_as(&other, &(struct kit_opts){0}, p.name);
    dibs_owner second = dibs_owner_new(p.k[0]->c);
    qk_take("owners", &p);
    QK_WANT("owners", dibs_lock_try(other.q, NULL), DIBS_ERR_BUSY);
    QK_WANT("owners", dibs_lock_try(p.q, DIBS_LOCK_OPTS(.owner = second)),
            DIBS_ERR_BUSY);
    QK_WANT("owners", dibs_lock_release(p.q, DIBS_LOCK_OPTS(.owner = second)),
            DIBS_ERR_NOT_OWNER);
    assert_int_equal(dibs_lock_state(p.q, second), DIBS_NOT_HELD);
    assert_int_equal(qk_mine(&other, QK_ALL), 0);
    QK_WANT("owners", dibs_lock_release(p.q, NULL), DIBS_OK);
    QK_WANT("owners", dibs_lock_acquire(p.q, DIBS_LOCK_OPTS(.owner = second)),
            DIBS_OK);
    QK_WANT("owners", dibs_lock_try(other.q, NULL), DIBS_ERR_BUSY);
    QK_WANT("owners", dibs_lock_release(p.q, DIBS_LOCK_OPTS(.owner = second)),
            DIBS_OK);
    qk_clean("owners", QK_ALL, 0);
    qk_works("owners", &other);
    qk_part(&other);
    qk_part(&p);
}

static void test_quorum_invalid(void **state)
{
    struct qk_party p;
    dibs_lock *q = NULL;
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_member m = DIBS_MEMBER_INIT;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    dibs_lock *bad[][2] = {{p.l[0], p.l[0]}, {p.l[0], p.q}, {p.l[0], NULL}};
    for (size_t i = 0; i < COUNT(bad); i++)
        QK_WANT("members", dibs_quorum_lock_new(bad[i], 2, &q),
                DIBS_ERR_INVALID);
    QK_WANT("none", dibs_quorum_lock_new(p.l, 0, &q), DIBS_ERR_INVALID);
    QK_WANT("out", dibs_quorum_lock_new(p.l, QK_N, NULL), DIBS_ERR_INVALID);
    assert_null(q);
    QK_WANT("patience", dibs_lock_try(p.q, DIBS_LOCK_OPTS(.member_ms = -1)),
            DIBS_ERR_INVALID);
    QK_WANT("info", dibs_lock_info_get(p.q, &info), DIBS_ERR_INVALID);
    QK_WANT("force", dibs_lock_force_release(p.q, NULL), DIBS_ERR_INVALID);
    QK_WANT("sixth", dibs_lock_members(p.q, QK_N, 0, &m), DIBS_ERR_INVALID);
    QK_WANT("plain", dibs_lock_members(p.l[0], 0, 0, &m), DIBS_ERR_INVALID);
    QK_WANT("unasked", qk_member(&p, 0).verdict, DIBS_ERR_NOT_OWNER);
    qk_clean("invalid", QK_ALL, 0);
    qk_part(&p);
}

/* ---- cancel ------------------------------------------------------------ */

static void test_quorum_cancel(void **state)
{
    struct kit_end end;
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    QK_WANT("nobody", dibs_lock_cancel(p.q, 0), DIBS_ERR_NOT_OWNER);
    qk_stranger(0x0b, p.name);
    wait_for_it(&p, &end);
    some_rounds(0);
    QK_WANT("cancel", dibs_lock_cancel(p.q, 0), DIBS_OK);
    QK_WANT("canceled", kit_wait(&end), DIBS_ERR_CANCELED);
    QK_WANT("nobody", dibs_lock_cancel(p.q, 0), DIBS_ERR_NOT_OWNER);
    assert_int_equal(dibs_lock_state(p.q, 0), DIBS_NOT_HELD);
    qk_clean("cancel", QK_ALL, 0x0b);
    for (int i = 0; i < 200; i++) { /* at whatever moment */
        wait_for_it(&p, &end);
        usleep((useconds_t)(i * 37 % 2000));
        QK_WANT("cancel", dibs_lock_cancel(p.q, 0), DIBS_OK);
        QK_WANT("canceled", kit_wait(&end), DIBS_ERR_CANCELED);
    }
    qk_clean("cancel", QK_ALL, 0x0b);
    qk_stranger_off(0x0b, p.name);
    qk_works("cancel", &p);
    qk_part(&p);
}

/* It may come too late; then the lock is ours. */
static void test_quorum_cancel_race(void **state)
{
    struct kit_end end;
    struct qk_party p;
    unsigned got = 0;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    for (int i = 0; i < 300; i++) {
        wait_for_it(&p, &end);
        usleep((useconds_t)(i * 13 % 600));
        dibs_lock_cancel(p.q, 0);
        dibs_err err = kit_wait(&end);
        if (err != DIBS_OK && err != DIBS_ERR_CANCELED)
            fail_msg("cancel: %s", dibs_strerror(err));
        assert_int_equal(dibs_lock_state(p.q, 0),
                         err == DIBS_OK ? DIBS_HELD : DIBS_NOT_HELD);
        got += err == DIBS_OK;
        if (err == DIBS_OK)
            QK_WANT("cancel", dibs_lock_release(p.q, NULL), DIBS_OK);
    }
    print_message("cancel came too late %u times of 300\n", got);
    qk_clean("cancel", QK_ALL, 0);
    qk_works("cancel", &p);
    qk_part(&p);
}

/* Three servers are silent. */
static void test_quorum_cancel_silent(void **state)
{
    struct kit_end end;
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    qk_break(QK_PAUSED, 0x0e);
    wait_for_it(&p, &end);
    some_rounds(0);
    QK_WANT("cancel", dibs_lock_cancel(p.q, 0), DIBS_OK);
    QK_WANT("canceled", kit_wait(&end), DIBS_ERR_CANCELED);
    qk_clean("cancel", 0x11, 0);
    qk_mend(0x0e);
    qk_clean("cancel", QK_ALL, 0);
    qk_works("cancel", &p);
    qk_part(&p);
}

/* ---- clients that close ------------------------------------------------ */

/* One of the five closes while the lock is held: the others have it. */
static void test_quorum_close_one_held(void **state)
{
    (void)state;
    for (size_t i = 0; i < QK_N; i++) {
        struct qk_party p;
        qk_join(&p, &(struct kit_opts){0});
        qk_take("close one", &p);
        TS_WAIT(qk_held(&p) == QK_ALL);
        QK_WANT("close one", dibs_client_close(p.k[i]->c, TS_SOON), DIBS_OK);
        qk_clean("close one", 1u << i, 0);
        assert_int_equal(qk_mine(&p, QK_ALL), QK_ALL & ~(1u << i));
        assert_int_equal(dibs_lock_state(p.q, 0), DIBS_HELD);
        QK_WANT("close one", dibs_lock_release(p.q, NULL), DIBS_OK);
        qk_clean("close one", QK_ALL, 0);
        qk_take("four", &p); /* four are a majority of five */
        QK_WANT("four", dibs_lock_release(p.q, NULL), DIBS_OK);
        qk_clean("four", QK_ALL, 0);
        qk_part(&p);
    }
}

/* The same while somebody waits: it is told so, or goes on with the others. */
static void test_quorum_close_one_waiting(void **state)
{
    (void)state;
    for (size_t i = 0; i < QK_N; i++) {
        struct kit_end end;
        struct qk_party p;
        qk_join(&p, &(struct kit_opts){0});
        qk_stranger(0x07, p.name);
        wait_for_it(&p, &end);
        some_rounds(3);
        QK_WANT("close one", dibs_client_close(p.k[i]->c, TS_SOON), DIBS_OK);
        qk_stranger_off(0x07, p.name);
        dibs_err err = kit_wait(&end);
        if (err == DIBS_OK)
            QK_WANT("close one", dibs_lock_release(p.q, NULL), DIBS_OK);
        else
            QK_WANT("close one", err, DIBS_ERR_CLOSED);
        qk_clean("close one", QK_ALL, 0);
        qk_part(&p);
    }
}

static void close_all(struct qk_party *p, unsigned strangers)
{
    for (size_t i = 0; i < QK_N; i++)
        QK_WANT("close all", dibs_client_close(p->k[i]->c, TS_SOON), DIBS_OK);
    qk_clean("close all", QK_ALL, strangers);
}

static void test_quorum_close_all(void **state)
{
    struct kit_end end;
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0}); /* held */
    qk_take("close all", &p);
    qk_take("close all", &p);
    close_all(&p, 0);
    QK_WANT("closed", dibs_lock_try(p.q, NULL), DIBS_ERR_CLOSED);
    assert_int_not_equal(dibs_lock_state(p.q, 0), DIBS_HELD);
    qk_part(&p);
    qk_join(&p, &(struct kit_opts){0}); /* waited for */
    qk_stranger(0x1c, p.name);
    wait_for_it(&p, &end);
    some_rounds(2);
    close_all(&p, 0x1c);
    QK_WANT("close all", kit_wait(&end), DIBS_ERR_CLOSED);
    qk_part(&p);
}

/* At whatever moment of an acquire, from the other end each time. */
static void test_quorum_close_race(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 40; round++) {
        struct kit_end end;
        struct qk_party p;
        qk_join(&p, &(struct kit_opts){0});
        wait_for_it(&p, &end);
        usleep(round * 29 % 500);
        for (size_t i = 0; i < QK_N; i++)
            QK_WANT("close race",
                    dibs_client_close(p.k[(i + round) % QK_N]->c, TS_SOON),
                    DIBS_OK);
        dibs_err err = kit_wait(&end);
        if (err != DIBS_OK && err != DIBS_ERR_CLOSED)
            fail_msg("close race: %s", dibs_strerror(err));
        qk_clean("close race", QK_ALL, 0);
        qk_part(&p);
    }
}

/* Three are silent, and nobody is there to wait for them any more. */
static void test_quorum_close_silent(void **state)
{
    struct kit_end end;
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){.lease_ms = kit_ms(2000)});
    qk_break(QK_PAUSED, 0x0d);
    wait_for_it(&p, &end);
    some_rounds(1);
    for (size_t i = 0; i < QK_N; i++)
        dibs_client_close(p.k[i]->c, 50); /* it cannot be sure */
    dibs_err err = kit_wait(&end);
    if (err != DIBS_ERR_CLOSED)
        fail_msg("closed: %s", dibs_strerror(err));
    qk_mend(0x0d);
    qk_clean("close silent", QK_ALL, 0);
    qk_drop(&p);
}

/* The handle goes while answers are still out. */
static void test_quorum_free_early(void **state)
{
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    qk_break(QK_SLOW, 0x11);
    qk_take("free", &p);
    QK_WANT("free", dibs_lock_release(p.q, NULL), DIBS_OK);
    dibs_lock_free(p.q);
    p.q = NULL;
    qk_clean("free", QK_ALL, 0);
    qk_part(&p);
}

/* ---- callbacks --------------------------------------------------------- */

struct crowd {
    struct qk_party *p;
    atomic_int inside, met, done;
};

struct one {
    struct crowd *crowd;
    dibs_owner owner;
};

static void one_left(dibs_err err, void *arg)
{
    struct one *o = arg;

    if (err != DIBS_OK)
        atomic_fetch_add(&o->crowd->met, 1000);
    atomic_fetch_add(&o->crowd->done, 1);
}

static void one_in(dibs_err err, void *arg)
{
    struct one *o = arg;
    struct crowd *c = o->crowd;

    if (err != DIBS_OK || atomic_fetch_add(&c->inside, 1) != 0)
        atomic_fetch_add(&c->met, 1);
    atomic_fetch_sub(&c->inside, 1);
    if (dibs_lock_release_async(c->p->q, DIBS_LOCK_OPTS(.owner = o->owner),
                                one_left, o) != DIBS_OK)
        atomic_fetch_add(&c->met, 100);
}

/* Many owners of one party, all at once: each has its turn. */
static void test_quorum_crowd(void **state)
{
    enum { MANY = 20 };
    struct qk_party p;
    struct crowd crowd = {.p = &p};
    struct one ones[MANY];

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    for (size_t i = 0; i < MANY; i++) {
        ones[i] = (struct one){&crowd, dibs_owner_new(p.k[0]->c)};
        QK_WANT("crowd",
                dibs_lock_acquire_async(p.q,
                                        DIBS_LOCK_OPTS(.owner = ones[i].owner),
                                        one_in, &ones[i]),
                DIBS_OK);
    }
    TS_WAIT(atomic_load(&crowd.done) == MANY);
    assert_int_equal(atomic_load(&crowd.met), 0);
    qk_clean("crowd", QK_ALL, 0);
    qk_part(&p);
}

struct inside {
    struct qk_party *p;
    dibs_err acquire, close;
    atomic_bool over;
};

static void from_inside(dibs_err err, void *arg)
{
    struct inside *in = arg;

    (void)err;
    in->acquire = dibs_lock_acquire(
        in->p->q, DIBS_LOCK_OPTS(.owner = dibs_owner_new(in->p->k[0]->c)));
    in->close = dibs_client_close(in->p->k[0]->c, TS_SOON);
    atomic_store(&in->over, true);
}

/* A callback that would have to wait for another holder does not. */
static void test_quorum_inside_callback(void **state)
{
    struct qk_party p;
    struct inside in = {.p = &p};

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    qk_take("inside", &p);
    QK_WANT("inside",
            dibs_lock_try_async(
                p.q, DIBS_LOCK_OPTS(.owner = dibs_owner_new(p.k[0]->c)),
                from_inside, &in),
            DIBS_OK);
    TS_WAIT(atomic_load(&in.over));
    QK_WANT("inside", in.acquire, DIBS_ERR_DEADLOCK);
    QK_WANT("inside", dibs_lock_release(p.q, NULL), DIBS_OK);
    qk_clean("inside", QK_ALL, 0);
    qk_part(&p);
}

static int dispatch_all(struct qk_party *p)
{
    int n = 0;

    for (size_t i = 0; i < QK_N; i++)
        n += dibs_client_dispatch(p->k[i]->c);
    return n;
}

/* Nothing is called before somebody dispatches; losses neither. */
static void test_quorum_dispatch(void **state)
{
    struct kit_end end = {.err = DIBS_OK};
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){.dispatch = true, .lease_ms = kit_ms(1500)});
    QK_WANT("dispatch",
            dibs_lock_acquire_async(p.q,
                                    DIBS_LOCK_OPTS(.owner = me(&p),
                                                   .on_lost = kit_lost,
                                                   .arg = &p.lost),
                                    kit_ended, &end),
            DIBS_OK);
    TS_WAIT(dibs_lock_state(p.q, 0) == DIBS_HELD);
    assert_false(atomic_load(&end.over));
    TS_WAIT((dispatch_all(&p), atomic_load(&end.over)));
    QK_WANT("dispatch", end.err, DIBS_OK);
    TS_WAIT(qk_held(&p) == QK_ALL);
    qk_stranger_off(0x07, p.name);
    TS_WAIT(dibs_lock_state(p.q, 0) == DIBS_LOST);
    assert_int_equal(atomic_load(&p.lost), 0);
    TS_WAIT((dispatch_all(&p), atomic_load(&p.lost) == 1));
    QK_WANT("dispatch", dibs_lock_release(p.q, NULL), DIBS_ERR_LOST);
    qk_clean("dispatch", QK_ALL, 0);
    dispatch_all(&p);
    assert_int_equal(atomic_load(&p.lost), 1);
    qk_part(&p);
}

/* ---- fork -------------------------------------------------------------- */

/* In the child: what is not refused. */
static int refused(struct qk_party *p)
{
    dibs_member m = DIBS_MEMBER_INIT;
    dibs_lock *q = NULL;
    struct kit_end end = {.err = DIBS_OK};

    if (dibs_lock_acquire(p->q, NULL) != DIBS_ERR_FORKED)
        return 1;
    if (dibs_lock_try(p->q, NULL) != DIBS_ERR_FORKED)
        return 2;
    if (dibs_lock_release(p->q, NULL) != DIBS_ERR_FORKED)
        return 3;
    if (dibs_lock_state(p->q, 0) != DIBS_NOT_HELD)
        return 4;
    if (dibs_lock_members(p->q, 0, 0, &m) != DIBS_ERR_FORKED)
        return 5;
    if (dibs_quorum_lock_new(p->l, QK_N, &q) != DIBS_ERR_FORKED)
        return 6;
    if (dibs_lock_cancel(p->q, 0) != DIBS_ERR_FORKED)
        return 7;
    if (dibs_lock_try_async(p->q, NULL, kit_ended, &end) != DIBS_ERR_FORKED)
        return 8;
    dibs_lock_free(p->q);
    for (size_t i = 0; i < QK_N; i++) {
        dibs_lock_free(p->l[i]);
        dibs_client_free(p->k[i]->c);
    }
    return 0;
}

static void test_quorum_fork(void **state)
{
    struct qk_party p;
    int status = 0;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    qk_take("fork", &p);
    TS_WAIT(qk_held(&p) == QK_ALL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm((unsigned)(TS_SOON / 1000)); /* it may hang, then it dies */
        _exit(refused(&p));
    }
    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(qk_mine(&p, QK_ALL), QK_ALL);
    assert_int_equal(dibs_lock_state(p.q, 0), DIBS_HELD);
    QK_WANT("fork", dibs_lock_release(p.q, NULL), DIBS_OK);
    qk_clean("fork", QK_ALL, 0);
    qk_works("fork", &p);
    qk_part(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_quorum_levels, qk_fresh),
        cmocka_unit_test_setup(test_quorum_uneven_levels, qk_fresh),
        cmocka_unit_test_setup(test_quorum_owners, qk_fresh),
        cmocka_unit_test_setup(test_quorum_invalid, qk_fresh),
        cmocka_unit_test_setup(test_quorum_cancel, qk_fresh),
        cmocka_unit_test_setup(test_quorum_cancel_race, qk_fresh),
        cmocka_unit_test_setup(test_quorum_cancel_silent, qk_fresh),
        cmocka_unit_test_setup(test_quorum_close_one_held, qk_fresh),
        cmocka_unit_test_setup(test_quorum_close_one_waiting, qk_fresh),
        cmocka_unit_test_setup(test_quorum_close_all, qk_fresh),
        cmocka_unit_test_setup(test_quorum_close_race, qk_fresh),
        cmocka_unit_test_setup(test_quorum_close_silent, qk_fresh),
        cmocka_unit_test_setup(test_quorum_free_early, qk_fresh),
        cmocka_unit_test_setup(test_quorum_crowd, qk_fresh),
        cmocka_unit_test_setup(test_quorum_inside_callback, qk_fresh),
        cmocka_unit_test_setup(test_quorum_dispatch, qk_fresh),
        cmocka_unit_test_setup(test_quorum_fork, qk_fresh),
    };

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return TS_RUN_PARALLEL("fault.quorum_calls", tests, qk_up, qk_down);
}
