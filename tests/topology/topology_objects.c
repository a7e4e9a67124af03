/* SPDX-License-Identifier: MIT
 *
 * topology_objects.c - fenced locks, slots, semaphores and latches in a
 * cluster: on every node, with each way to be told of a release.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "topology/kit.h"

#define NAMES 12 /* enough to have some on each of three nodes */

static struct top_cluster top;

static int up(void **state)
{
    (void)state;
    top_cluster_start(&top, NULL);
    return 0;
}

static int down(void **state)
{
    (void)state;
    top_cluster_stop(&top);
    return 0;
}

static dibs_client *open_as(dibs_pubsub pubsub)
{
    dibs_client *c = NULL;

    want("opening",
         dibs_client_open(top.url, DIBS_CLIENT_OPTS(.pubsub = pubsub), &c),
         DIBS_OK);
    return c;
}

/* A call that waits, in a callback's way. */
struct outcome {
    atomic_int calls;
    dibs_err err;
};

static void note_outcome(dibs_err err, void *arg)
{
    struct outcome *o = arg;

    o->err = err;
    atomic_fetch_add(&o->calls, 1);
}

static dibs_err await_outcome(struct outcome *o)
{
    TS_WAIT(atomic_load(&o->calls) == 1);
    return o->err;
}

static int64_t token_of(dibs_lock *l)
{
    int64_t token = 0;

    want("token", dibs_lock_token(l, 0, &token), DIBS_OK);
    return token;
}

static void check_fenced(dibs_client *c, dibs_client *d, const char *name)
{
    dibs_lock *l = NULL, *m = NULL;

    want(name, dibs_fenced_lock_new(c, name, &l), DIBS_OK);
    want(name, dibs_fenced_lock_new(d, name, &m), DIBS_OK);
    want(name, dibs_lock_acquire(l, NULL), DIBS_OK);
    int64_t first = token_of(l);
    want(name, dibs_lock_try(m, NULL), DIBS_ERR_BUSY);
    want(name, dibs_lock_release(l, NULL), DIBS_OK);
    want(name, dibs_lock_acquire(m, NULL), DIBS_OK);
    assert_true(token_of(m) > first);
    want(name, dibs_lock_release(m, NULL), DIBS_OK);
    dibs_lock_free(l);
    dibs_lock_free(m);
}

/* One more than there are waits, and is woken. */
static void check_slots(dibs_client *c, dibs_client *d, const char *name)
{
    dibs_owner other = dibs_owner_new(c), third = dibs_owner_new(d);
    struct outcome late = {0};
    dibs_lock *l = NULL, *m = NULL;
    int64_t slot = -1;

    want(name, dibs_slots_lock_new(c, name, 2, &l), DIBS_OK);
    want(name, dibs_slots_lock_new(d, name, 2, &m), DIBS_OK);
    want(name, dibs_lock_acquire(l, NULL), DIBS_OK);
    want(name, dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = other)), DIBS_OK);
    want(name, dibs_lock_slot(l, other, &slot), DIBS_OK);
    assert_int_equal(slot, 1);
    want(name, dibs_lock_try(m, NULL), DIBS_ERR_BUSY);
    want(name,
         dibs_lock_acquire_async(m, DIBS_LOCK_OPTS(.owner = third),
                                 note_outcome, &late),
         DIBS_OK);
    want(name, dibs_lock_release(l, NULL), DIBS_OK);
    want(name, await_outcome(&late), DIBS_OK);
    want(name, dibs_lock_slot(m, third, &slot), DIBS_OK);
    assert_int_equal(slot, 0);
    want(name, dibs_lock_release(m, DIBS_LOCK_OPTS(.owner = third)), DIBS_OK);
    want(name, dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = other)), DIBS_OK);
    dibs_lock_free(l);
    dibs_lock_free(m);
}

static void check_semaphore(dibs_client *c, dibs_client *d, const char *name)
{
    struct outcome late = {0};
    dibs_semaphore *s = NULL, *t = NULL;
    int64_t n = 0;
    bool fresh = false;

    want(name, dibs_semaphore_new(c, name, &s), DIBS_OK);
    want(name, dibs_semaphore_new(d, name, &t), DIBS_OK);
    want(name, dibs_semaphore_set(s, 2, &fresh), DIBS_OK);
    assert_true(fresh);
    want(name, dibs_semaphore_acquire(s, DIBS_SEMAPHORE_OPTS(.permits = 2)),
         DIBS_OK);
    want(name, dibs_semaphore_try(t, NULL), DIBS_ERR_BUSY);
    want(name, dibs_semaphore_acquire_async(t, NULL, note_outcome, &late),
         DIBS_OK);
    want(name, dibs_semaphore_release(s, DIBS_SEMAPHORE_OPTS(.permits = 2)),
         DIBS_OK);
    want(name, await_outcome(&late), DIBS_OK);
    want(name, dibs_semaphore_add(s, 3, &n), DIBS_OK);
    assert_int_equal(n, 4);
    want(name, dibs_semaphore_release(t, NULL), DIBS_OK);
    want(name, dibs_semaphore_drain(t, &n), DIBS_OK);
    assert_int_equal(n, 5);
    dibs_semaphore_free(s);
    dibs_semaphore_free(t);
}

static void check_latch(dibs_client *c, dibs_client *d, const char *name)
{
    struct outcome late = {0};
    dibs_latch *l = NULL, *m = NULL;
    bool fresh = false;
    int64_t left = -1;

    want(name, dibs_latch_new(c, name, &l), DIBS_OK);
    want(name, dibs_latch_new(d, name, &m), DIBS_OK);
    want(name, dibs_latch_set(l, 2, NULL, &fresh), DIBS_OK);
    assert_true(fresh);
    want(name, dibs_latch_wait_async(m, NULL, note_outcome, &late), DIBS_OK);
    want(name, dibs_latch_count_down(l, NULL, &left), DIBS_OK);
    assert_int_equal(left, 1);
    want(name, dibs_latch_count_down(l, NULL, &left), DIBS_OK);
    assert_int_equal(left, 0);
    want(name, await_outcome(&late), DIBS_OK);
    dibs_latch_free(l);
    dibs_latch_free(m);
}

static void objects_on_every_node(void **state)
{
    static const dibs_pubsub ways[] = {DIBS_PUBSUB_AUTO, DIBS_PUBSUB_SHARDED,
                                       DIBS_PUBSUB_CLASSIC};

    (void)state;
    for (size_t w = 0; w < COUNT(ways); w++) {
        dibs_client *c = open_as(ways[w]), *d = open_as(ways[w]);

        for (int i = 0; i < NAMES; i++) {
            char name[40];
            const char *tail = i % 2 ? ":{tag}:x" : "";

            snprintf(name, sizeof name, "fenced%zu:%d%s", w, i, tail);
            check_fenced(c, d, name);
            snprintf(name, sizeof name, "slots%zu:%d%s", w, i, tail);
            check_slots(c, d, name);
            snprintf(name, sizeof name, "semaphore%zu:%d%s", w, i, tail);
            check_semaphore(c, d, name);
            snprintf(name, sizeof name, "latch%zu:%d", w, i);
            check_latch(c, d, name);
        }
        want("closing", dibs_client_close(c, 0), DIBS_OK);
        want("closing", dibs_client_close(d, 0), DIBS_OK);
        dibs_client_free(c);
        dibs_client_free(d);
    }
}

/* Names whose keys would not share a slot are refused before anything is sent.
 */
static void objects_bad_names(void **state)
{
    static const char *const bad[] = {"a{b", "{}x", "a}b", "}{", "a{}b"};
    dibs_client *c = open_as(DIBS_PUBSUB_AUTO);
    dibs_semaphore *s = NULL;
    dibs_latch *g = NULL;
    dibs_lock *l = NULL;

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        want(bad[i], dibs_fenced_lock_new(c, bad[i], &l), DIBS_ERR_INVALID);
        want(bad[i], dibs_slots_lock_new(c, bad[i], 2, &l), DIBS_ERR_INVALID);
        want(bad[i], dibs_semaphore_new(c, bad[i], &s), DIBS_ERR_INVALID);
        want(bad[i], dibs_latch_new(c, bad[i], &g), DIBS_ERR_INVALID);
        want(bad[i],
             dibs_client_look(
                 c, bad[i], &(dibs_lock_info){.size = sizeof(dibs_lock_info)}),
             DIBS_ERR_INVALID);
    }
    want("{a}b", dibs_latch_new(c, "{a}b", &g), DIBS_ERR_INVALID);
    dibs_client_free(c);
}

/* ---- the list ---------------------------------------------------------- */

static bool mark_kind(const char *name, size_t len, const dibs_lock_info *info,
                      void *arg)
{
    (void)name;
    (void)len;
    *(unsigned *)arg |= 1u << info->kind;
    return true;
}

static dibs_kind kind_at(dibs_client *c, const char *name)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    want(name, dibs_client_look(c, name, &info), DIBS_OK);
    return info.kind;
}

/* On whichever nodes they are, all kinds are found by their names. */
static void objects_are_listed(void **state)
{
    dibs_client *c = open_as(DIBS_PUBSUB_AUTO);
    dibs_semaphore *s = NULL;
    dibs_latch *g = NULL;
    dibs_lock *l = NULL, *f = NULL;
    unsigned seen = 0;

    (void)state;
    want("new", dibs_slots_lock_new(c, "list:s", 2, &l), DIBS_OK);
    want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    want("new", dibs_fenced_lock_new(c, "list:{f}", &f), DIBS_OK);
    want("taking", dibs_lock_acquire(f, NULL), DIBS_OK);
    want("new", dibs_semaphore_new(c, "list:p", &s), DIBS_OK);
    want("set", dibs_semaphore_set(s, 2, NULL), DIBS_OK);
    want("taking", dibs_semaphore_acquire(s, NULL), DIBS_OK);
    want("new", dibs_latch_new(c, "list:l", &g), DIBS_OK);
    want("set", dibs_latch_set(g, 2, NULL, NULL), DIBS_OK);
    want("list", dibs_client_list(c, "list:*", mark_kind, &seen), DIBS_OK);
    assert_int_equal(seen, 1u << DIBS_KIND_SLOTS | 1u << DIBS_KIND_LOCK |
                               1u << DIBS_KIND_SEMAPHORE |
                               1u << DIBS_KIND_LATCH);
    assert_int_equal(kind_at(c, "list:s"), DIBS_KIND_SLOTS);
    assert_int_equal(kind_at(c, "list:{f}"), DIBS_KIND_LOCK);
    assert_int_equal(kind_at(c, "list:p"), DIBS_KIND_SEMAPHORE);
    assert_int_equal(kind_at(c, "list:l"), DIBS_KIND_LATCH);
    want("set", dibs_latch_set(g, 0, NULL, NULL), DIBS_OK);
    want("giving back", dibs_semaphore_release(s, NULL), DIBS_OK);
    want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    want("giving back", dibs_lock_release(f, NULL), DIBS_OK);
    dibs_semaphore_free(s);
    dibs_latch_free(g);
    dibs_lock_free(l);
    dibs_lock_free(f);
    dibs_client_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_on_every_node),
        cmocka_unit_test(objects_bad_names),
        cmocka_unit_test(objects_are_listed),
    };

    return cmocka_run_group_tests(tests, up, down);
}
