/* SPDX-License-Identifier: MIT
 *
 * topology_oom.c - memory ends, at every point there is, with several servers.
 *
 * A client is opened, a lock is taken, waited for, given back, and the client
 * closed; first with its first allocation failing, then with its second, and so
 * on, until it runs through untouched; in a cluster whose map is out of date,
 * and with sentinels. Nothing crashes or hangs or leaks (the address sanitizer
 * says), and what says OK is true.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "topology/kit.h"

#include "client/topology/hash_slot.h"

#ifdef DIBS_FAULTS

#include "base/mem.h"

#define LEASE_MS ts_ms(500)

static bool excusable(dibs_err err)
{
    return err == DIBS_OK || err == DIBS_ERR_NOMEM || err == DIBS_ERR_CONN ||
           err == DIBS_ERR_UNKNOWN || err == DIBS_ERR_TIMEOUT ||
           err == DIBS_ERR_LOST || err == DIBS_ERR_NOT_OWNER ||
           err == DIBS_ERR_CLOSED;
}

static void check(const char *what, long n, dibs_err err)
{
    if (!excusable(err))
        fail_msg("%s, allocation %ld: %s", what, n, dibs_strerror(err));
}

static void hush(const dibs_event *ev, void *arg)
{
    (void)ev, (void)arg;
}

/* Taken by one owner while another waits for it. */
static void use(dibs_lock *l, dibs_owner one, dibs_owner two, long n)
{
    struct top_end end = {.err = DIBS_OK};
    const dibs_lock_opts *a = DIBS_LOCK_OPTS(.owner = one, .wait_ms = 300);
    const dibs_lock_opts *b = DIBS_LOCK_OPTS(.owner = two, .wait_ms = 300);

    int64_t from = ts_now_ms();
    dibs_err err = dibs_lock_acquire(l, a);
    check("taking", n, err);
    bool held = dibs_lock_state(l, one) == DIBS_HELD;
    bool over = ts_now_ms() - from > LEASE_MS / 2; /* it may be lost by now */
    if ((err == DIBS_OK) != held && !(err == DIBS_OK && over))
        fail_msg("allocation %ld: it is not as it says", n);
    dibs_err lined = dibs_lock_acquire_async(l, b, top_ended, &end);
    check("lining up", n, lined);
    if (err == DIBS_OK)
        check("giving back", n, dibs_lock_release(l, a));
    if (lined != DIBS_OK)
        return;
    check("waiting", n, top_wait(&end));
    if (end.err == DIBS_OK)
        check("giving back", n, dibs_lock_release(l, b));
}

/* False: the failure was not met any more. */
static bool one_run(const char *url, const char *name, size_t kind, long n)
{
    dibs_client *c = NULL;
    dibs_lock *l = NULL;

    dibs__mem_fail_at(n, false);
    dibs_err err = dibs_client_open(
        url,
        DIBS_CLIENT_OPTS(.connect_timeout_ms = 300, .command_timeout_ms = 300,
                         .lease_ms = LEASE_MS, .on_event = hush),
        &c);
    check("opening", n, err);
    if (err == DIBS_OK) {
        err = top_kinds[kind].make(c, name, &l);
        check("a lock", n, err);
        if (err == DIBS_OK)
            use(l, dibs_owner_new(c), dibs_owner_new(c), n);
        check("closing", n, dibs_client_close(c, 500));
        dibs_lock_free(l);
        dibs_client_free(c);
    }
    return dibs__mem_fail_at(0, false) >= n;
}

static void walk(const char *url, const char *name, size_t kind)
{
    one_run(url, name, kind, 0); /* what the process opens once for all */
    size_t threads = ts_threads(), fds = ts_fds();
    long n = 1;

    while (one_run(url, name, kind, n)) {
        TS_WAIT(ts_threads() <= threads);
        TS_WAIT(ts_fds() <= fds);
        if (++n > 1000)
            fail_msg("it never ends");
    }
}

static void in_a_cluster(void **state)
{
    struct top_cluster top;
    int slot;

    (void)state;
    top_cluster_start(&top, NULL);
    slot = dibs__hash_slot_of("plain", 5);
    walk(top.url, "plain", 0);
    /* One node still has it elsewhere in its map: MOVED, or ASK. */
    top_begin_move(&top, slot, top_owner(&top, slot),
                   (top_owner(&top, slot) + 1) % 3);
    walk(top.url, "plain", 0);
    walk(top.url, "fair", 1);
    top_cluster_stop(&top);
}

static void with_sentinels(void **state)
{
    struct top_sentinels top;

    (void)state;
    top_sentinels_start(&top);
    walk(top.url, "plain", 0);
    top_sentinels_stop(&top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_a_cluster),
        cmocka_unit_test(with_sentinels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return 0; /* nothing can be made to fail in this build */
}

#endif
