/* SPDX-License-Identifier: MIT
 *
 * test_rw.c - the read-write lock: who may have it together with whom, nesting,
 * leases, and leaving a half of it to somebody.
 *
 * Waiting is in test_rw_wait.c, looking and breaking in test_rw_look.c, other
 * clients of the same keys are in test_rw_peers.c.
 */
#include "server/rw_kit.h"

/* ---- who may have it with whom ----------------------------------------- */

/* Tries to take it, gives it back at once; must end so. */
static void probe(const char *where, struct halves *h, dibs_owner o, char what,
                  dibs_err want)
{
    dibs_err err = kit_step(h, o, what);

    if (err != want)
        fail_msg("%s, then %c: %s", where, what, dibs_strerror(err));
    if (err == DIBS_OK)
        FINE(kit_step(h, o, what == 'r' ? 'R' : 'W'));
}

/* What one owner did, the state then, and what each can have now. */
static const struct cell {
    const char *did;
    const char *mode;
    long long owners;
    dibs_err other_reads, other_writes, self_reads, self_writes;
} cells[] = {
    {"", NULL, 0, DIBS_OK, DIBS_OK, DIBS_OK, DIBS_OK},
    {"r", "read", 1, DIBS_OK, DIBS_ERR_BUSY, DIBS_OK, DIBS_ERR_UPGRADE},
    {"rr", "read", 1, DIBS_OK, DIBS_ERR_BUSY, DIBS_OK, DIBS_ERR_UPGRADE},
    {"rrR", "read", 1, DIBS_OK, DIBS_ERR_BUSY, DIBS_OK, DIBS_ERR_UPGRADE},
    {"rR", NULL, 0, DIBS_OK, DIBS_OK, DIBS_OK, DIBS_OK},
    {"w", "write", 1, DIBS_ERR_BUSY, DIBS_ERR_BUSY, DIBS_OK, DIBS_OK},
    {"ww", "write", 1, DIBS_ERR_BUSY, DIBS_ERR_BUSY, DIBS_OK, DIBS_OK},
    {"wwW", "write", 1, DIBS_ERR_BUSY, DIBS_ERR_BUSY, DIBS_OK, DIBS_OK},
    {"wW", NULL, 0, DIBS_OK, DIBS_OK, DIBS_OK, DIBS_OK},
    {"wr", "write", 2, DIBS_ERR_BUSY, DIBS_ERR_BUSY, DIBS_OK, DIBS_OK},
    {"wrr", "write", 2, DIBS_ERR_BUSY, DIBS_ERR_BUSY, DIBS_OK, DIBS_OK},
    {"wrR", "write", 1, DIBS_ERR_BUSY, DIBS_ERR_BUSY, DIBS_OK, DIBS_OK},
    {"wrw", "write", 2, DIBS_ERR_BUSY, DIBS_ERR_BUSY, DIBS_OK, DIBS_OK},
    {"wrwW", "write", 2, DIBS_ERR_BUSY, DIBS_ERR_BUSY, DIBS_OK, DIBS_OK},
    {"wrW", "read", 1, DIBS_OK, DIBS_ERR_BUSY, DIBS_OK, DIBS_ERR_UPGRADE},
    {"wrWR", NULL, 0, DIBS_OK, DIBS_OK, DIBS_OK, DIBS_OK},
};

static void check_cell(const struct cell *ce, struct halves *mine,
                       dibs_owner me, struct halves *yours, dibs_owner you)
{
    int reads = 0, writes = 0;

    for (const char *p = ce->did; *p; p++) {
        FINE(kit_step(mine, me, *p));
        reads += *p == 'r' ? 1 : *p == 'R' ? -1 : 0;
        writes += *p == 'w' ? 1 : *p == 'W' ? -1 : 0;
    }
    kit_state(ce->did, ce->mode, ce->owners);
    probe(ce->did, yours, you, 'r', ce->other_reads);
    probe(ce->did, yours, you, 'w', ce->other_writes);
    probe(ce->did, mine, me, 'r', ce->self_reads);
    probe(ce->did, mine, me, 'w', ce->self_writes);
    kit_state(ce->did, ce->mode, ce->owners);
    assert_int_equal(dibs_lock_holds(mine->r, me), reads);
    assert_int_equal(dibs_lock_holds(mine->w, me), writes);
    WANT(kit_step(yours, you, 'R'), DIBS_ERR_NOT_OWNER);
    WANT(kit_step(yours, you, 'W'), DIBS_ERR_NOT_OWNER);
    while (writes-- > 0)
        FINE(kit_step(mine, me, 'W'));
    while (reads-- > 0)
        FINE(kit_step(mine, me, 'R'));
    assert_int_equal(ts_nkeys(srv), 0);
}

/* Every cell, between two owners of one client and of two. */
static void test_rw_every_cell(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    struct halves mine = kit_halves(c), yours = kit_halves(d);
    dibs_owner me = dibs_owner_new(c), other = dibs_owner_new(c);
    dibs_owner you = dibs_owner_new(d);

    (void)state;
    for (size_t i = 0; i < COUNT(cells); i++) {
        check_cell(&cells[i], &mine, me, &mine, other);
        check_cell(&cells[i], &mine, me, &yours, you);
    }
    kit_halves_free(&mine);
    kit_halves_free(&yours);
    kit_close(c);
    kit_close(d);
}

/* Several readers, then each in turn leaves: a writer gets in with the last. */
static void test_rw_many_readers(void **state)
{
    enum { READERS = 20 };
    dibs_client *c[2] = {kit_open(NULL), kit_open(NULL)};
    struct halves h[2] = {kit_halves(c[0]), kit_halves(c[1])};
    dibs_owner o[READERS];

    (void)state;
    for (int i = 0; i < READERS; i++) {
        o[i] = dibs_owner_new(c[i % 2]);
        FINE(kit_step(&h[i % 2], o[i], 'r'));
        kit_state("reading", "read", i + 1);
    }
    for (int i = 0; i < READERS; i++) {
        WANT(dibs_lock_try(h[0].w, NULL), DIBS_ERR_BUSY);
        kit_state("reading", "read", READERS - i);
        FINE(kit_step(&h[i % 2], o[i], 'R'));
    }
    FINE(dibs_lock_try(h[0].w, NULL));
    FINE(dibs_lock_release(h[0].w, NULL));
    kit_halves_free(&h[0]);
    kit_halves_free(&h[1]);
    kit_close(c[0]);
    kit_close(c[1]);
}

/* ---- nested in any order ----------------------------------------------- */

/* What the server should have for this owner. */
static void check_counts(const char *where, struct halves *h, dibs_owner o,
                         int reads, int writes)
{
    const char *mode = writes ? "write" : reads ? "read" : NULL;

    kit_state(where, mode, (reads > 0) + (writes > 0));
    if (kit_count(h->r, "l", o) != reads || kit_count(h->w, "l", o) != writes)
        fail_msg("%s: the server has %lld reads and %lld writes, not %d and %d",
                 where, kit_count(h->r, "l", o), kit_count(h->w, "l", o), reads,
                 writes);
    if (reads && kit_read_left(h->r, o) <= 0)
        fail_msg("%s: no read key", where);
    if (ts_nkeys(srv) != (mode != NULL) + (reads > 0))
        fail_msg("%s: %lld keys", where, ts_nkeys(srv));
}

static void play(struct halves *h, dibs_owner o, const char *steps)
{
    int reads = 0, writes = 0;

    for (const char *p = steps; *p; p++) {
        dibs_err want = DIBS_OK;
        if ((*p == 'R' && !reads) || (*p == 'W' && !writes))
            want = DIBS_ERR_NOT_OWNER;
        else if (*p == 'w' && reads && !writes)
            want = DIBS_ERR_UPGRADE;
        dibs_err err = kit_step(h, o, *p);
        if (err != want)
            fail_msg("%s at %c: %s", steps, *p, dibs_strerror(err));
        if (err == DIBS_OK) {
            reads += *p == 'r' ? 1 : *p == 'R' ? -1 : 0;
            writes += *p == 'w' ? 1 : *p == 'W' ? -1 : 0;
        }
        if (!p[1] || err != DIBS_OK) /* the rest is another row's end */
            check_counts(steps, h, o, reads, writes);
    }
    for (; reads > 0; reads--)
        FINE(kit_step(h, o, 'R'));
    for (; writes > 0; writes--)
        FINE(kit_step(h, o, 'W'));
    assert_int_equal(ts_nkeys(srv), 0);
}

/* All that one owner can do in five steps. */
static void test_rw_nested_in_any_order(void **state)
{
    enum { STEPS = 5 };
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    dibs_owner o = dibs_owner_new(c);
    char steps[STEPS + 1] = "";

    (void)state;
    for (int n = 0; n < 1 << (2 * STEPS); n++) {
        for (int i = 0; i < STEPS; i++)
            steps[i] = "rwRW"[n >> (2 * i) & 3];
        play(&h, o, steps);
    }
    kit_halves_free(&h);
    kit_close(c);
}

/* ---- upgrade ----------------------------------------------------------- */

/* The one that reads and asks to write is told so at once, however it asks, and
 * goes on reading. */
static void test_rw_upgrade(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    struct told t = {0};

    (void)state;
    FINE(dibs_lock_acquire(h.r, NULL));
    WANT(dibs_lock_acquire(h.w, NULL), DIBS_ERR_UPGRADE);
    WANT(dibs_lock_acquire(h.w, DIBS_LOCK_OPTS(.wait_ms = 1)),
         DIBS_ERR_UPGRADE);
    WANT(dibs_lock_try(h.w, NULL), DIBS_ERR_UPGRADE);
    FINE(dibs_lock_acquire_async(h.w, NULL, kit_tell, &t));
    WANT(kit_answer(&t), DIBS_ERR_UPGRADE);
    assert_int_equal(dibs_lock_state(h.w, 0), DIBS_NOT_HELD);
    assert_int_equal(dibs_lock_state(h.r, 0), DIBS_HELD);
    assert_int_equal(kit_count(h.r, "l", 0), 1);
    assert_false(ts_exists(srv, GATE));
    WANT(dibs_lock_release(h.w, NULL), DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_release(h.r, NULL));
    FINE(dibs_lock_try(h.w, NULL));
    FINE(dibs_lock_release(h.w, NULL));
    kit_halves_free(&h);
    kit_close(c);
}

/* What the owner's clock has ended, and the server's has not, is not held: such
 * a reader may write, and a writer that reads is a reader only. */
static void test_rw_other_half_after_a_loss(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    const dibs_lock_opts *brief = DIBS_LOCK_OPTS(.lease_ms = kit_short());
    const dibs_lock_opts *soon = DIBS_LOCK_OPTS(.wait_ms = TS_SOON);

    (void)state;
    FINE(dibs_lock_acquire(h.r, brief));
    char *key = kit_read_key(h.r, 0);
    assert_int_equal(ts_int(srv, "PEXPIRE l %d", LONG_MS), 1);
    assert_int_equal(ts_int(srv, "PEXPIRE %s %d", key, LONG_MS), 1);
    free(key);
    TS_WAIT(dibs_lock_state(h.r, 0) == DIBS_LOST);
    WANT(dibs_lock_release(h.r, NULL), DIBS_ERR_LOST);
    FINE(dibs_lock_acquire(h.w, soon));
    kit_state("read, lost, write", "write", 1);
    FINE(dibs_lock_release(h.w, NULL));

    FINE(dibs_lock_acquire(h.w, brief));
    assert_int_equal(ts_int(srv, "PEXPIRE l %d", LONG_MS), 1);
    TS_WAIT(dibs_lock_state(h.w, 0) == DIBS_LOST);
    WANT(dibs_lock_release(h.w, NULL), DIBS_ERR_LOST);
    FINE(dibs_lock_acquire(h.r, soon));
    kit_state("write, lost, read", "read", 1);
    FINE(dibs_lock_release(h.r, NULL));
    kit_halves_free(&h);
    kit_close(c);
}

/* ---- leases ------------------------------------------------------------ */

/* Two readers: one's lease ends, the other's goes on, and from then on only
 * that one counts. */
static void test_rw_lease_of_each_reader(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    struct halves mine = kit_halves(c), yours = kit_halves(d);
    struct lost lost = {0};

    (void)state;
    FINE(dibs_lock_acquire(yours.r, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
    FINE(dibs_lock_acquire(mine.r,
                           DIBS_LOCK_OPTS(.lease_ms = kit_short(),
                                          .on_lost = kit_lose, .arg = &lost)));
    char *key = kit_read_key(mine.r, 0);
    TS_WAIT(!ts_exists(srv, key));
    TS_WAIT(atomic_load(&lost.times) == 1);
    free(key);
    assert_int_equal(dibs_lock_state(mine.r, 0), DIBS_LOST);
    assert_int_equal(dibs_lock_state(yours.r, 0), DIBS_HELD);
    WANT(dibs_lock_acquire(mine.r, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_try(mine.w, OWNED(dibs_owner_new(c))), DIBS_ERR_BUSY);
    FINE(dibs_lock_release(yours.r, NULL));
    FINE(dibs_lock_try(mine.w, OWNED(dibs_owner_new(c))));
    WANT(dibs_lock_release(mine.r, NULL), DIBS_ERR_LOST);
    kit_state("a writer", "write", 1);
    kit_halves_free(&mine);
    kit_halves_free(&yours);
    kit_close(c);
    kit_close(d);
}

/* Whatever a reader does, another's lease and a writer's stay as they are. */
static void test_rw_lease_is_not_shortened(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    struct halves mine = kit_halves(c), yours = kit_halves(d);
    const dibs_lock_opts *brief = DIBS_LOCK_OPTS(.lease_ms = LONG_MS / 10);

    (void)state;
    for (int writes = 0; writes < 2; writes++) {
        struct halves *by = writes ? &yours : &mine; /* the brief reader */
        dibs_lock *l = writes ? yours.w : yours.r;
        FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
        FINE(dibs_lock_acquire(by->r, brief));
        FINE(dibs_lock_acquire(by->r, brief));
        assert_true(ts_pttl(srv, "l") > LONG_MS / 2);
        FINE(dibs_lock_release(by->r, NULL));
        assert_true(ts_pttl(srv, "l") > LONG_MS / 2);
        FINE(dibs_lock_release(by->r, NULL));
        assert_true(ts_pttl(srv, "l") > LONG_MS / 2);
        if (!writes)
            assert_true(kit_read_left(yours.r, 0) > LONG_MS / 2);
        assert_true(dibs_lock_valid_ms(l, 0) > LONG_MS / 2);
        FINE(dibs_lock_release(l, NULL));
    }
    kit_halves_free(&mine);
    kit_halves_free(&yours);
    kit_close(c);
    kit_close(d);
}

/* A reader leaves, and another one of its client reads on for a shorter time:
 * the lock does not last longer than that one. A Redisson that wants to write
 * sleeps for as long as the lock lasts. */
static void test_rw_lease_of_who_stays(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves it = kit_halves(c);
    const dibs_owner stays = dibs_owner_new(c);

    (void)state;
    FINE(dibs_lock_acquire(
        it.r, DIBS_LOCK_OPTS(.owner = stays, .lease_ms = LONG_MS / 10)));
    for (int i = 0; i < 3; i++) {
        FINE(dibs_lock_acquire(it.r, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
        assert_true(ts_pttl(srv, "l") > LONG_MS / 2);
        FINE(dibs_lock_release(it.r, NULL));
        assert_in_range(ts_pttl(srv, "l"), 1, LONG_MS / 10);
    }
    /* It lasts long because somebody wrote, and goes on to read. */
    FINE(dibs_lock_release(it.r, OWNED(stays)));
    FINE(dibs_lock_acquire(it.w, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
    FINE(dibs_lock_acquire(it.r, DIBS_LOCK_OPTS(.lease_ms = LONG_MS / 10)));
    FINE(dibs_lock_release(it.w, NULL));
    FINE(dibs_lock_acquire(
        it.r, DIBS_LOCK_OPTS(.owner = stays, .lease_ms = LONG_MS / 10)));
    FINE(dibs_lock_release(it.r, NULL));
    assert_in_range(ts_pttl(srv, "l"), 1, LONG_MS / 10);
    FINE(dibs_lock_release(it.r, OWNED(stays)));
    kit_halves_free(&it);
    kit_close(c);
}

/* The watchdog renews this client's read holds and nobody else's. */
static void test_rw_lease_renewal(void **state)
{
    const int64_t lease = kit_lease();
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = lease));
    dibs_client *d = kit_open(NULL);
    struct halves mine = kit_halves(c), yours = kit_halves(d);
    const int64_t fixed = 2 * lease;

    (void)state;
    FINE(dibs_lock_acquire(yours.r, DIBS_LOCK_OPTS(.lease_ms = fixed)));
    FINE(dibs_lock_acquire(mine.r, NULL));
    char *my_key = kit_read_key(mine.r, 0);
    char *your_key = kit_read_key(yours.r, 0);
    ts_reset_stats(srv);
    long long least = fixed, now;
    struct ts_wait w = ts_wait_begin(TS_SOON);
    while ((now = ts_pttl(srv, your_key)) > 0) {
        if (now > least)
            fail_msg("the other client's lease grew to %lld", now);
        least = now;
        assert_true(ts_exists(srv, my_key));
        assert_true(ts_wait_step(&w));
    }
    assert_true(ts_command_calls(srv, "evalsha") >= 3); /* renewals */
    TS_WAIT(dibs_lock_state(mine.r, 0) == DIBS_HELD);
    TS_WAIT(dibs_lock_state(yours.r, 0) == DIBS_LOST);
    WANT(dibs_lock_release(yours.r, NULL), DIBS_ERR_LOST);
    FINE(dibs_lock_release(mine.r, NULL));
    TS_WAIT(ts_nkeys(srv) == 0); /* the other's may have a millisecond left */
    free(my_key);
    free(your_key);
    kit_halves_free(&mine);
    kit_halves_free(&yours);
    kit_close(c);
    kit_close(d);
}

/* Both halves held by one owner are renewed, each as what it is. */
static void test_rw_lease_renewal_of_both(void **state)
{
    const int64_t lease = kit_lease();
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = lease));
    struct halves h = kit_halves(c);

    (void)state;
    FINE(dibs_lock_acquire(h.w, NULL));
    FINE(dibs_lock_acquire(h.r, NULL));
    int64_t over = ts_now_ms() + 3 * lease / 2;
    TS_WAIT(ts_now_ms() > over);
    check_counts("both", &h, 0, 1, 1);
    FINE(dibs_lock_release(h.w, NULL));
    over = ts_now_ms() + 3 * lease / 2;
    TS_WAIT(ts_now_ms() > over);
    check_counts("reading on", &h, 0, 1, 0);
    FINE(dibs_lock_release(h.r, NULL));
    kit_halves_free(&h);
    kit_close(c);
}

/* ---- the end of reading ------------------------------------------------ */

/* A release whose reply is lost is seen to, also if it asks for what a read
 * lock cannot do: to leave the lock taken. */
static void test_rw_release_lost_with_keep(void **state)
{
    dibs_client *c = kit_open(
        DIBS_CLIENT_OPTS(.command_timeout_ms = 200, .lease_ms = 600000));
    struct halves h = kit_halves(c);

    (void)state;
    FINE(dibs_lock_acquire(h.r, NULL));
    ts_ok(srv, "CLIENT PAUSE 60000 WRITE");
    WANT(dibs_lock_release(h.r, DIBS_LOCK_OPTS(.keep_ms = 100)),
         DIBS_ERR_UNKNOWN);
    ts_ok(srv, "CLIENT UNPAUSE");
    TS_WAIT(ts_nkeys(srv) == 0);
    kit_halves_free(&h);
    kit_close(c);
}

/* However many readers a client has, its end does not look at all of them for
 * each of them. */
static void test_rw_close_with_many(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);

    (void)state;
    for (int i = 0; i < 200; i++)
        FINE(
            dibs_lock_acquire(h.r, DIBS_LOCK_OPTS(.owner = dibs_owner_new(c))));
    long long before = ts_command_calls(srv, "hgetall");
    kit_halves_free(&h);
    kit_close(c);
    assert_int_equal(ts_nkeys(srv), 0);
    assert_in_range(ts_command_calls(srv, "hgetall"), before, before + 20);
}

/* ---- leaving a half to somebody ---------------------------------------- */

/* A group is left, and one member of it cannot be: its owner reads it, too.
 * Nobody would ever end that, so it is given back; the others are left. */
static void test_rw_leave_by_group(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    dibs_lock *p = kit_lock(c, "p"), *group = NULL;
    char text[DIBS_OWNER_MAX];
    dibs_owner o = 0;

    (void)state;
    FINE(dibs_multi_lock_new((dibs_lock *[]){h.w, p}, 2, &group));
    FINE(dibs_lock_acquire(group, NULL));
    FINE(dibs_lock_try(h.r, NULL));
    FINE(dibs_lock_owner_text(p, 0, text, sizeof text));
    FINE(dibs_lock_release(group, DIBS_LOCK_OPTS(.leave = true)));
    assert_int_equal(dibs_lock_state(group, 0), DIBS_NOT_HELD);
    assert_int_equal(dibs_lock_state(h.w, 0), DIBS_NOT_HELD);
    assert_int_equal(dibs_lock_state(h.r, 0), DIBS_HELD);
    kit_state("left", "read", 1);
    FINE(dibs_lock_release(h.r, NULL));
    kit_state("read no more", NULL, 0);
    FINE(dibs_lock_adopt(p, text, NULL, &o));
    FINE(dibs_lock_release(p, OWNED(o)));
    assert_int_equal(ts_nkeys(srv), 0);
    dibs_lock_free(group);
    dibs_lock_free(p);
    kit_halves_free(&h);
    kit_close(c);
}

/* After a release nobody is told of a loss, also after one that was refused:
 * what on_lost is given may be gone. And what is lost cannot be left. */
static void test_rw_leave_refused(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    dibs_lock *later = kit_lock(c, "later");
    struct lost lost = {0}, behind = {0};

    (void)state;
    FINE(dibs_lock_acquire(h.w,
                           DIBS_LOCK_OPTS(.lease_ms = kit_lease(),
                                          .on_lost = kit_lose, .arg = &lost)));
    FINE(dibs_lock_try(h.r, NULL));
    WANT(dibs_lock_release(h.w, DIBS_LOCK_OPTS(.leave = true)),
         DIBS_ERR_INVALID);
    assert_int_equal(dibs_lock_state(h.w, 0), DIBS_HELD);
    FINE(dibs_lock_acquire(later, DIBS_LOCK_OPTS(.lease_ms = kit_lease() + 100,
                                                 .on_lost = kit_lose,
                                                 .arg = &behind)));
    TS_WAIT(atomic_load(&behind.times) == 1);
    assert_int_equal(atomic_load(&lost.times), 0);
    WANT(dibs_lock_release(h.w, DIBS_LOCK_OPTS(.leave = true)), DIBS_ERR_LOST);
    FINE(dibs_lock_release(h.r, NULL));
    dibs_lock_free(later);
    kit_halves_free(&h);
    kit_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_rw_every_cell),
        KIT_TEST(test_rw_many_readers),
        KIT_TEST(test_rw_nested_in_any_order),
        KIT_TEST(test_rw_upgrade),
        KIT_TEST(test_rw_other_half_after_a_loss),
        KIT_TEST(test_rw_lease_of_each_reader),
        KIT_TEST(test_rw_lease_is_not_shortened),
        KIT_TEST(test_rw_lease_of_who_stays),
        KIT_TEST(test_rw_lease_renewal),
        KIT_TEST(test_rw_lease_renewal_of_both),
        KIT_TEST(test_rw_release_lost_with_keep),
        KIT_TEST(test_rw_close_with_many),
        KIT_TEST(test_rw_leave_by_group),
        KIT_TEST(test_rw_leave_refused),
    };

    return KIT_RUN_PARALLEL("rw", tests);
}
