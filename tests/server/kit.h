/* SPDX-License-Identifier: MIT
 *
 * kit.h - what the tests of promises share: a server for the whole program, a
 * clean one for each test, and short words for what every test does.
 *
 * After each test nothing may be left: no key, no subscription, no connection.
 * So each test ends with kit_close for every client it opened.
 *
 * Checks must be made on the main thread: cmocka jumps out of the function
 * that fails. Other threads and callbacks write down what they saw.
 */
#ifndef DIBS_TESTS_SERVER_KIT_H
#define DIBS_TESTS_SERVER_KIT_H

#include <dibs/dibs.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/run.h"
#include "support/server.h"
#include "support/util.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* The call must end so. A failure names the call and both ends. */
#define WANT(call, want) kit_want((call), (want), #call, __FILE__, __LINE__)
#define FINE(call)       WANT(call, DIBS_OK)

static inline void kit_want(dibs_err got, dibs_err want, const char *call,
                            const char *file, int line)
{
    if (got == want)
        return;
    print_error("%s: \"%s\", not \"%s\"\n", call, dibs_strerror(got),
                dibs_strerror(want));
    _fail(file, line);
}

/* ---- the server -------------------------------------------------------- */

static struct ts_server *srv;
static int kit_clients;       /* opened and not closed */
static long long kit_strange; /* connections that were there before the test */

/* The first client of a process has libuv make a pipe that stays; so that one
 * comes and goes before anything is counted. */
static inline int kit_start(void **state)
{
    dibs_client *c = NULL;

    (void)state;
    srv = ts_server_start(NULL);
    if (dibs_client_open(ts_server_url(srv), NULL, &c) != DIBS_OK)
        return -1;
    dibs_client_free(c);
    return 0;
}

static inline int kit_stop(void **state)
{
    (void)state;
    ts_server_stop(srv);
    return 0;
}

static inline int kit_before(void **state)
{
    (void)state;
    ts_ok(srv, "FLUSHALL");
    kit_clients = 0;
    kit_strange = ts_client_count(srv);
    return 0;
}

/* A test that failed leaves its clients open; then there is no point. */
static inline int kit_after(void **state)
{
    (void)state;
    if (kit_clients != 0)
        return 0;
    if (ts_nkeys(srv) != 0)
        fail_msg("%lld keys are left", ts_nkeys(srv));
    if (!ts_wait_clients(srv, kit_strange))
        fail_msg("%lld connections are left", ts_client_count(srv));
    if (ts_nchannels(srv) != 0)
        fail_msg("%lld channels are left", ts_nchannels(srv));
    return 0;
}

#define KIT_TEST(f) cmocka_unit_test_setup_teardown(f, kit_before, kit_after)
#define KIT_RUN(name, tests)                                                   \
    cmocka_run_group_tests_name(name, tests, kit_start, kit_stop)
/* For programs that mostly wait. */
#define KIT_RUN_PARALLEL(name, tests)                                          \
    TS_RUN_PARALLEL(name, tests, kit_start, kit_stop)

/* ---- clients and locks ------------------------------------------------- */

static inline dibs_client *kit_open_at(const char *url,
                                       const dibs_client_opts *opts)
{
    dibs_client *c = NULL;

    FINE(dibs_client_open(url, opts, &c));
    kit_clients++;
    return c;
}

static inline dibs_client *kit_open(const dibs_client_opts *opts)
{
    return kit_open_at(ts_server_url(srv), opts);
}

/* All that it held is released, and it is gone. */
static inline void kit_close(dibs_client *c)
{
    FINE(dibs_client_close(c, TS_SOON));
    dibs_client_free(c);
    kit_clients--;
}

static inline dibs_lock *kit_lock(dibs_client *c, const char *name)
{
    dibs_lock *l = NULL;

    FINE(dibs_lock_new(c, name, &l));
    return l;
}

/* How often the server says that this owner of l holds it; 0 not at all. */
static inline long long kit_count(dibs_lock *l, const char *name,
                                  dibs_owner owner)
{
    char text[DIBS_OWNER_MAX];

    if (dibs_lock_owner_text(l, owner, text, sizeof text) != DIBS_OK)
        return 0;
    char *count = ts_hget(srv, name, text);
    long long n = count ? atoll(count) : 0;
    free(count);
    return n;
}

/* A lease for locks that are renewed during the test. A third of it passes
 * before a renewal, and the rest is for a machine that stands still. */
static inline int64_t kit_lease(void)
{
    return ts_slow() > 1 ? 4800 : 2400;
}

/* A lease that is to end by itself: long enough for the answer to come, and
 * for a look at what is held, also on such a machine. */
static inline int64_t kit_short(void)
{
    return ts_slow() > 1 ? 2400 : 1200;
}

/* So long has what must not happen its chance. And the lease is not much longer
 * where very many are sat out. */
static inline int64_t kit_chance(void)
{
    return ts_slow() > 1 ? 1000 : 300;
}

/* ---- what callbacks and threads saw ------------------------------------ */

struct told {
    atomic_int times;
    _Atomic(dibs_err) err; /* the last */
    pthread_t thread;      /* of the last */
    char name[16];         /* of that thread */
};

/* A dibs_cb whose arg is a struct told. */
static inline void kit_tell(dibs_err err, void *arg)
{
    struct told *t = arg;

    t->thread = pthread_self();
    pthread_getname_np(t->thread, t->name, sizeof t->name);
    atomic_store(&t->err, err);
    atomic_fetch_add(&t->times, 1);
}

/* The one answer, once it is there. */
#define kit_answer(t) kit_answer_at((t), __FILE__, __LINE__)

static inline dibs_err kit_answer_at(struct told *t, const char *file, int line)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while (atomic_load(&t->times) == 0 && ts_wait_step(&w))
        continue;
    if (atomic_load(&t->times) != 1) {
        print_error("%d answers within %lld ms, not 1\n",
                    atomic_load(&t->times), (long long)TS_SOON);
        _fail(file, line);
    }
    return atomic_load(&t->err);
}

struct lost {
    atomic_int times;
    dibs_owner owner;
    char lock[64];
};

/* A dibs_lost_cb whose arg is a struct lost. */
static inline void kit_lose(const char *name, dibs_owner owner, void *arg)
{
    struct lost *lost = arg;

    snprintf(lost->lock, sizeof lost->lock, "%s", name);
    lost->owner = owner;
    atomic_fetch_add(&lost->times, 1);
}

/* A call on a thread of its own. */
struct call {
    dibs_lock *l;
    dibs_lock_opts opts;
    dibs_err (*fn)(dibs_lock *l, const dibs_lock_opts *opts);
    dibs_err err;
    atomic_bool done;
    pthread_t thread;
};

static inline void *kit_call_main(void *arg)
{
    struct call *call = arg;

    call->err = call->fn(call->l, &call->opts);
    atomic_store(&call->done, true);
    return NULL;
}

static inline void
kit_call_start(struct call *call, dibs_lock *l, const dibs_lock_opts *opts,
               dibs_err (*fn)(dibs_lock *, const dibs_lock_opts *))
{
    memset(call, 0, sizeof *call);
    call->l = l;
    call->opts = opts ? *opts : *DIBS_LOCK_OPTS(0);
    call->fn = fn;
    if (pthread_create(&call->thread, NULL, kit_call_main, call) != 0)
        ts_fatal("no thread");
}

static inline dibs_err kit_call_end(struct call *call)
{
    TS_WAIT(atomic_load(&call->done));
    pthread_join(call->thread, NULL);
    return call->err;
}

/* The same, waited for: what another thread gets. */
static inline dibs_err kit_elsewhere(dibs_lock *l, const dibs_lock_opts *opts,
                                     dibs_err (*fn)(dibs_lock *,
                                                    const dibs_lock_opts *))
{
    struct call call;

    kit_call_start(&call, l, opts, fn);
    return kit_call_end(&call);
}

#endif
