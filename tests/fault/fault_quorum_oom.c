/* SPDX-License-Identifier: MIT
 *
 * fault_quorum_oom.c - a quorum lock when memory ends, at every point there is:
 * made, taken twice and given back, with one allocation failing, or all from
 * there on. What a call says is so, and in the end nothing is left.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/quorum_kit.h"

#include <stdio.h>

#ifdef DIBS_FAULTS

#include "base/mem.h"

static dibs_owner me(struct qk_party *p)
{
    return dibs_owner_thread(p->k[0]->c);
}

static bool excusable(dibs_err err)
{
    return err == DIBS_OK || err == DIBS_ERR_NOMEM || err == DIBS_ERR_CONN ||
           err == DIBS_ERR_UNKNOWN || err == DIBS_ERR_TIMEOUT ||
           err == DIBS_ERR_BUSY || err == DIBS_ERR_LOST;
}

/* Made, taken twice, given back; sync or async. What went wrong, or NULL. */
static const char *starve(struct qk_party *p, bool async)
{
    struct kit_end end = {.err = DIBS_OK};
    const dibs_lock_opts o = {.size = sizeof o,
                              .owner = me(p),
                              .wait_ms = 100,
                              .on_lost = kit_lost,
                              .arg = &p->lost};
    dibs_err err = dibs_quorum_lock_new(p->l, QK_N, &p->q);

    if (err != DIBS_OK)
        return err == DIBS_ERR_NOMEM ? NULL : "made";
    for (int i = 0; i < 2 && err == DIBS_OK; i++) {
        int64_t held = dibs_lock_holds(p->q, 0);
        if (async) {
            atomic_store(&end.over, false);
            err = dibs_lock_acquire_async(p->q, &o, kit_ended, &end);
            err = err == DIBS_OK ? kit_wait(&end) : err;
        } else {
            err = dibs_lock_acquire(p->q, &o);
        }
        if (!excusable(err))
            return dibs_strerror(err);
        if (dibs_lock_holds(p->q, 0) != held + (err == DIBS_OK) &&
            dibs_lock_state(p->q, 0) != DIBS_LOST) /* nobody renewed it */
            return "the count is wrong";
    }
    err = dibs_lock_holds(p->q, 0) ? dibs_lock_release(p->q, &o) : DIBS_OK;
    return excusable(err) ? NULL : dibs_strerror(err);
}

/* True: there was an n-th allocation, and it failed. */
static bool starve_at(struct qk_party *p, long n, bool all, bool async)
{
    char where[64];
    dibs_err err;

    snprintf(where, sizeof where, "allocation %ld%s, %s", n,
             all ? " and all after it" : "", async ? "async" : "sync");
    dibs__mem_fail_at(n, all);
    const char *odd = starve(p, async);
    bool met = dibs__mem_fail_at(0, false) >= n;
    if (odd)
        fail_msg("%s: %s", where, odd);
    do /* what could not be given back before, lost or not */
        err = p->q ? dibs_lock_release(p->q, DIBS_LOCK_OPTS(.wait_ms = TS_SOON))
                   : DIBS_ERR_NOT_OWNER;
    while (err == DIBS_OK || err == DIBS_ERR_LOST);
    QK_WANT(where, err, DIBS_ERR_NOT_OWNER);
    qk_clean(where, QK_ALL, 0);
    dibs_lock_free(p->q);
    p->q = NULL;
    return met;
}

/* Memory ends at every point there is. The lease is short: what nobody had the
 * memory to take back ends with it. */
static void test_quorum_no_memory(void **state)
{
    enum { MOST = 400 }; /* more means that it never ends */
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){.timeout_ms = ts_ms(200),
                                   .lease_ms = kit_ms(1500)});
    qk_works("before", &p);
    dibs_lock_free(p.q);
    p.q = NULL;
    for (int way = 0; way < 4; way++) {
        long n = 1;
        while ((!ts_walks(n, way) || starve_at(&p, n, way & 1, way & 2)) &&
               n < MOST)
            n++;
        assert_true(n > 5 && n < MOST);
        print_message("%ld allocations\n", n - 1);
    }
    QK_WANT("after", dibs_quorum_lock_new(p.l, QK_N, &p.q), DIBS_OK);
    qk_works("after", &p);
    qk_part(&p);
}

#endif

int main(void)
{
#ifdef DIBS_FAULTS
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_quorum_no_memory, qk_fresh),
    };

    return cmocka_run_group_tests(tests, qk_up, qk_down);
#else
    return 0; /* no way to make memory end */
#endif
}
