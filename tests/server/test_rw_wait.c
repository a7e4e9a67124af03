/* SPDX-License-Identifier: MIT
 *
 * test_rw_wait.c - waiting for a read-write lock: who is woken by what, that
 * writers do not starve, and that the one that gives up or dies keeps nobody
 * out.
 *
 * Leases are long where a waiter must be woken by something else. A waiter
 * looks by itself after a second or two, so what must happen by a message is
 * done so often that looking would take too long.
 */
#include "server/rw_kit.h"

#include <unistd.h>

#define ROUNDS 24

/* An acquire that waits. */
struct waiter {
    dibs_lock *l;
    dibs_owner owner;
    struct told t;
};

static void wait_for(struct waiter *w, dibs_client *c, dibs_lock *l)
{
    memset(w, 0, sizeof *w);
    w->l = l;
    w->owner = dibs_owner_new(c);
    FINE(dibs_lock_acquire_async(l, OWNED(w->owner), kit_tell, &w->t));
}

static bool has_it(struct waiter *w)
{
    return atomic_load(&w->t.times) > 0;
}

static void got_it(struct waiter *w)
{
    FINE(kit_answer(&w->t));
}

static void gives_back(struct waiter *w)
{
    FINE(dibs_lock_release(w->l, OWNED(w->owner)));
}

/* All rounds since then took less time than looking would have. */
static void by_message(int64_t start)
{
    assert_true(ts_now_ms() - start < TS_SOON);
}

/* Two clients, both halves of each. */
struct pair {
    dibs_client *c, *d;
    struct halves mine, yours;
};

static struct pair pair_open(const dibs_client_opts *opts)
{
    struct pair p = {.c = kit_open(opts), .d = kit_open(opts)};

    p.mine = kit_halves(p.c);
    p.yours = kit_halves(p.d);
    return p;
}

static void pair_close(struct pair *p)
{
    kit_halves_free(&p->mine);
    kit_halves_free(&p->yours);
    kit_close(p->c);
    kit_close(p->d);
}

/* ---- what wakes whom --------------------------------------------------- */

/* A downgrade lets the waiting readers in at once, of this client and of
 * another. */
static void test_rw_wait_downgrade(void **state)
{
    struct pair p = pair_open(NULL);
    struct waiter here, there, writer;
    int64_t start = ts_now_ms();

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        FINE(dibs_lock_acquire(p.mine.w, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
        wait_for(&here, p.c, p.mine.r);
        wait_for(&there, p.d, p.yours.r);
        assert_true(ts_wait_numsub(srv, CHANNEL, 2));
        FINE(dibs_lock_acquire(p.mine.r, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
        assert_false(has_it(&here) || has_it(&there));
        FINE(dibs_lock_release(p.mine.w, NULL));
        got_it(&here);
        got_it(&there);
        kit_state("downgraded", "read", 3);
        WANT(dibs_lock_try(p.yours.w, NULL), DIBS_ERR_BUSY);
        wait_for(&writer, p.d, p.yours.w);
        gives_back(&here);
        gives_back(&there);
        FINE(dibs_lock_release(p.mine.r, NULL));
        got_it(&writer);
        gives_back(&writer);
        TS_WAIT(ts_waiting(srv, "l") == 0);
    }
    by_message(start);
    pair_close(&p);
}

enum { CROWD = 40 };

/* A write release lets in all waiting readers together, with one command each
 * and not many more. */
static void test_rw_wait_all_readers(void **state)
{
    static struct waiter w[2 * CROWD];
    struct pair p = pair_open(NULL);

    (void)state;
    FINE(dibs_lock_acquire(p.mine.w, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
    long long before = ts_command_calls(srv, "evalsha");
    for (int i = 0; i < CROWD; i++) {
        wait_for(&w[i], p.c, p.mine.r);
        wait_for(&w[CROWD + i], p.d, p.yours.r);
    }
    assert_true(ts_wait_numsub(srv, CHANNEL, 2));
    /* Each asks once when it comes. */
    TS_WAIT(ts_command_calls(srv, "evalsha") >= before + 2 * CROWD);
    ts_reset_stats(srv);
    FINE(dibs_lock_release(p.mine.w, NULL));
    for (int i = 0; i < 2 * CROWD; i++)
        got_it(&w[i]);
    long long commands = ts_command_calls(srv, "evalsha");
    long long messages = ts_command_calls(srv, "publish");
    kit_state("all", "read", 2 * CROWD); /* nobody had to go first */
    if (commands > 2 * CROWD + 8)
        fail_msg("%lld commands for %d readers", commands, 2 * CROWD);
    assert_int_equal(messages, 2); /* '1' for all, '0' for a late sleeper */
    for (int i = 0; i < 2 * CROWD; i++)
        gives_back(&w[i]);
    pair_close(&p);
}

/* The last read release lets in one writer; the others of its client do not
 * even ask. Releases before the last tell nobody. */
static void test_rw_wait_one_writer(void **state)
{
    enum { READERS = 10 };
    static struct waiter w[2 * CROWD];
    struct pair p = pair_open(NULL);
    dibs_client *e = kit_open(NULL);
    struct halves h = kit_halves(e);
    dibs_owner o[READERS];
    int in = 0;

    (void)state;
    for (int i = 0; i < READERS; i++) {
        o[i] = dibs_owner_new(e);
        FINE(kit_step(&h, o[i], 'r'));
    }
    for (int i = 0; i < CROWD; i++) {
        wait_for(&w[i], p.c, p.mine.w);
        wait_for(&w[CROWD + i], p.d, p.yours.w);
    }
    assert_true(ts_wait_numsub(srv, CHANNEL, 2));
    ts_reset_stats(srv);
    for (int i = 0; i < READERS - 1; i++)
        FINE(kit_step(&h, o[i], 'R'));
    assert_int_equal(ts_command_calls(srv, "publish"), 0);
    ts_reset_stats(srv);
    FINE(kit_step(&h, o[READERS - 1], 'R'));
    TS_WAIT(has_it(&w[0]) || has_it(&w[CROWD]));
    long long commands = ts_command_calls(srv, "evalsha");
    if (commands > 12) /* release, a question of each client, and looks */
        fail_msg("%lld commands to wake one writer", commands);
    kit_state("one", "write", 1);
    for (int i = 0; i < 2 * CROWD; i++)
        in += has_it(&w[i]);
    assert_int_equal(in, 1);
    kit_halves_free(&h);
    kit_close(e);
    pair_close(&p); /* ends the others */
}

/* A reader is woken by a write release, a writer by the last read release, a
 * writer by a writer. */
static void test_rw_wait_woken(void **state)
{
    struct pair p = pair_open(NULL);
    dibs_lock *pairs[][2] = {
        {p.mine.w, p.yours.r}, {p.mine.r, p.yours.w}, {p.mine.w, p.yours.w}};
    struct waiter w;
    int64_t start = ts_now_ms();

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        dibs_lock **l = pairs[i % 3];
        FINE(dibs_lock_acquire(l[0], DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
        wait_for(&w, p.d, l[1]);
        assert_true(ts_wait_numsub(srv, CHANNEL, 1));
        FINE(dibs_lock_release(l[0], NULL));
        got_it(&w);
        gives_back(&w);
        TS_WAIT(ts_waiting(srv, "l") == 0);
    }
    by_message(start);
    pair_close(&p);
}

/* ---- behind others of the same client ---------------------------------- */

/* The one that writes may read at once, although others here wait to read. */
static void test_rw_wait_writer_reads(void **state)
{
    struct pair p = pair_open(NULL);
    struct waiter w;

    (void)state;
    FINE(dibs_lock_acquire(p.mine.w, NULL));
    wait_for(&w, p.c, p.mine.r);
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    FINE(dibs_lock_acquire(p.mine.r, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
    assert_false(has_it(&w));
    FINE(dibs_lock_release(p.mine.w, NULL));
    got_it(&w);
    gives_back(&w);
    FINE(dibs_lock_release(p.mine.r, NULL));
    pair_close(&p);
}

/* The one that reads and asks to write is told so at once, although others here
 * wait to write. */
static void test_rw_wait_upgrade(void **state)
{
    struct pair p = pair_open(NULL);
    struct waiter w;

    (void)state;
    FINE(dibs_lock_acquire(p.mine.r, NULL));
    wait_for(&w, p.c, p.mine.w);
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    WANT(dibs_lock_acquire(p.mine.w, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)),
         DIBS_ERR_UPGRADE);
    assert_false(has_it(&w));
    assert_int_equal(kit_count(p.mine.r, "l", 0), 1);
    FINE(dibs_lock_release(p.mine.r, NULL));
    got_it(&w);
    gives_back(&w);
    pair_close(&p);
}

/* ---- a writer that waits ----------------------------------------------- */

/* It keeps new readers out, but not those who read already. */
static void test_rw_wait_gate(void **state)
{
    struct pair p = pair_open(NULL);
    struct waiter writer, reader;
    dibs_owner other = dibs_owner_new(p.c);

    (void)state;
    FINE(dibs_lock_acquire(p.mine.r, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
    wait_for(&writer, p.d, p.yours.w);
    assert_true(ts_wait_exists(srv, GATE, true));
    WANT(dibs_lock_try(p.mine.r, OWNED(other)), DIBS_ERR_BUSY);
    WANT(dibs_lock_try(p.yours.r, NULL), DIBS_ERR_BUSY);
    FINE(dibs_lock_acquire(p.mine.r, NULL)); /* once more */
    FINE(dibs_lock_release(p.mine.r, NULL));
    wait_for(&reader, p.c, p.mine.r);
    assert_false(has_it(&writer));
    FINE(dibs_lock_release(p.mine.r, NULL));
    got_it(&writer);
    assert_false(has_it(&reader));
    assert_false(ts_exists(srv, GATE));
    gives_back(&writer);
    got_it(&reader);
    gives_back(&reader);
    pair_close(&p);
}

/* The gate is not used by clients that prefer readers. */
static void test_rw_wait_prefer_readers(void **state)
{
    struct pair p = pair_open(DIBS_CLIENT_OPTS(.prefer_readers = true));
    struct waiter writer;

    (void)state;
    FINE(dibs_lock_acquire(p.mine.r, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
    wait_for(&writer, p.d, p.yours.w);
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    for (int i = 0; i < 100; i++) {
        dibs_owner o = dibs_owner_new(p.c);
        FINE(dibs_lock_try(p.mine.r, OWNED(o)));
        assert_false(ts_exists(srv, GATE));
        FINE(dibs_lock_release(p.mine.r, OWNED(o)));
    }
    assert_false(has_it(&writer));
    FINE(dibs_lock_release(p.mine.r, NULL));
    got_it(&writer);
    gives_back(&writer);
    pair_close(&p);
}

/* A try does not wait, and so keeps nobody out. */
static void test_rw_wait_try_leaves_no_gate(void **state)
{
    struct pair p = pair_open(NULL);

    (void)state;
    FINE(dibs_lock_acquire(p.mine.r, NULL));
    WANT(dibs_lock_try(p.yours.w, NULL), DIBS_ERR_BUSY);
    assert_false(ts_exists(srv, GATE));
    FINE(dibs_lock_release(p.mine.r, NULL));
    pair_close(&p);
}

/* A writer that gives up, whichever way, lets the waiting readers in at once.
 */
static void test_rw_wait_writer_gives_up(void **state)
{
    struct pair p = pair_open(NULL);
    struct waiter w;
    int64_t start = ts_now_ms();

    (void)state;
    FINE(dibs_lock_acquire(p.mine.r, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
    for (int i = 0; i < ROUNDS; i++) {
        dibs_owner o = dibs_owner_new(p.d);
        struct told t = {0};
        FINE(dibs_lock_acquire_async(
            p.yours.w,
            DIBS_LOCK_OPTS(.owner = o, .wait_ms = i % 2 ? 50 : TS_SOON),
            kit_tell, &t));
        if (i % 2 == 0) {
            assert_true(ts_wait_exists(srv, GATE, true));
            wait_for(&w, p.c, p.mine.r);
            FINE(dibs_lock_cancel(p.yours.w, o));
        } else {
            wait_for(&w, p.c, p.mine.r);
        }
        WANT(kit_answer(&t), i % 2 ? DIBS_ERR_TIMEOUT : DIBS_ERR_CANCELED);
        assert_false(ts_exists(srv, GATE));
        got_it(&w);
        gives_back(&w);
    }
    FINE(dibs_lock_release(p.mine.r, NULL));
    by_message(start);
    pair_close(&p);
}

/* So does one whose client closes. */
static void test_rw_wait_writer_closes(void **state)
{
    struct pair p = pair_open(NULL);
    dibs_client *e = kit_open(NULL);
    struct halves h = kit_halves(e);
    struct waiter writer, reader;

    (void)state;
    FINE(dibs_lock_acquire(p.mine.r, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
    wait_for(&writer, e, h.w);
    assert_true(ts_wait_exists(srv, GATE, true));
    wait_for(&reader, p.d, p.yours.r);
    kit_halves_free(&h);
    kit_close(e);
    WANT(kit_answer(&writer.t), DIBS_ERR_CLOSED);
    assert_false(ts_exists(srv, GATE));
    got_it(&reader);
    gives_back(&reader);
    FINE(dibs_lock_release(p.mine.r, NULL));
    pair_close(&p);
}

/* ---- processes --------------------------------------------------------- */

/* In a child: takes this half, says so, and waits for its end. */
static int child_takes(int fd, void *half)
{
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    char word = '.';
    const dibs_client_opts *opts = DIBS_CLIENT_OPTS(.lease_ms = 2000);

    if (dibs_client_open(ts_server_url(srv), opts, &c) != DIBS_OK)
        return 1;
    if ((*(char *)half == 'r' ? dibs_read_lock_new(c, "l", &l)
                              : dibs_write_lock_new(c, "l", &l)) != DIBS_OK)
        return 2;
    if (dibs_lock_acquire(l, NULL) != DIBS_OK || !ts_tell(fd, &word, 1))
        return 3;
    ts_hear(fd, &word, 1, TS_SOON);
    return 0;
}

/* A reader that was killed: a writer gets in when its lease is over, although
 * the lock as a whole would last. */
static void test_rw_wait_reader_killed(void **state)
{
    char half = 'r', word;
    struct ts_child *ch = ts_spawn(child_takes, &half);
    struct waiter w;

    (void)state;
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    assert_true(ts_hear(ts_child_fd(ch), &word, 1, TS_SOON));
    wait_for(&w, c, h.w);
    assert_true(ts_wait_exists(srv, GATE, true));
    assert_false(has_it(&w));
    ts_child_kill(ch);
    ts_ok(srv, "PEXPIRE l %d", LONG_MS);
    int64_t killed = ts_now_ms();
    got_it(&w);
    assert_true(ts_now_ms() - killed < 2000 + ts_ms(3000));
    kit_state("after the crash", "write", 1);
    gives_back(&w);
    ts_child_free(ch);
    kit_halves_free(&h);
    kit_close(c);
}

/* A writer that was killed while it waited keeps readers out for a few seconds
 * at most. */
static void test_rw_wait_waiting_writer_killed(void **state)
{
    char half = 'w';
    struct ts_child *ch;
    struct waiter w;

    (void)state;
    ts_ok(srv, "HSET l mode read %s 1", STRANGER);
    ts_ok(srv, "PEXPIRE l %d", LONG_MS);
    ts_ok(srv, "SET {l}:%s:rwlock_timeout:1 1 PX %d", STRANGER, LONG_MS);
    ch = ts_spawn(child_takes, &half);
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    assert_true(ts_wait_exists(srv, GATE, true));
    wait_for(&w, c, h.r);
    assert_false(has_it(&w));
    ts_child_kill(ch);
    int64_t killed = ts_now_ms();
    got_it(&w);
    assert_true(ts_now_ms() - killed < ts_ms(6000));
    gives_back(&w);
    ts_child_free(ch);
    kit_halves_free(&h);
    kit_close(c);
    ts_ok(srv, "FLUSHALL");
}

struct reading {
    dibs_lock *l;
    atomic_bool *enough;
    long turns;
    dibs_err err;
};

/* Reads for a moment, again and again. */
static void *read_on(void *arg)
{
    struct reading *r = arg;

    while (r->err == DIBS_OK && !(r->turns && atomic_load(r->enough))) {
        r->err = dibs_lock_acquire(r->l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON));
        if (r->err != DIBS_OK)
            break;
        usleep(3000); /* the time it reads */
        r->err = dibs_lock_release(r->l, NULL);
        r->turns++;
    }
    return NULL;
}

enum { PROCESSES = 8, EACH = 2 };

/* In a child: two threads that read in turns, so that somebody always does. */
static int child_reads(int fd, void *arg)
{
    dibs_client *c = NULL;
    atomic_bool enough = false;
    struct reading r[EACH] = {{.l = NULL}};
    pthread_t threads[EACH];
    char word = '.';

    (void)arg;
    if (dibs_client_open(ts_server_url(srv), NULL, &c) != DIBS_OK)
        return 1;
    for (int i = 0; i < EACH; i++) {
        r[i].enough = &enough;
        if (dibs_read_lock_new(c, "l", &r[i].l) != DIBS_OK ||
            pthread_create(&threads[i], NULL, read_on, &r[i]) != 0)
            return 2;
    }
    if (!ts_tell(fd, &word, 1))
        return 3;
    ts_hear(fd, &word, 1, 10 * TS_SOON);
    atomic_store(&enough, true);
    int bad = 0;
    for (int i = 0; i < EACH; i++) {
        pthread_join(threads[i], NULL);
        bad |= r[i].err != DIBS_OK || r[i].turns == 0;
        dibs_lock_free(r[i].l);
    }
    bad |= dibs_client_close(c, TS_SOON) != DIBS_OK;
    dibs_client_free(c);
    return bad ? 4 : 0;
}

/* Readers from eight processes without a pause: a writer gets its turns, and
 * so does every reader. */
static void test_rw_wait_writer_among_many(void **state)
{
    enum { TURNS = 10 };
    struct ts_child *ch[PROCESSES];
    char word = '.';
    dibs_err err = DIBS_OK;

    (void)state;
    for (int i = 0; i < PROCESSES; i++)
        ch[i] = ts_spawn(child_reads, NULL);
    for (int i = 0; i < PROCESSES; i++)
        assert_true(ts_hear(ts_child_fd(ch[i]), &word, 1, TS_SOON));
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    for (int i = 0; i < TURNS && err == DIBS_OK; i++) {
        err = dibs_lock_acquire(h.w, DIBS_LOCK_OPTS(.wait_ms = TS_SOON));
        if (err == DIBS_OK)
            err = dibs_lock_release(h.w, NULL);
    }
    FINE(err);
    for (int i = 0; i < PROCESSES; i++)
        assert_true(ts_tell(ts_child_fd(ch[i]), &word, 1));
    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(ts_child_wait(ch[i], TS_SOON), 0);
        ts_child_free(ch[i]);
    }
    kit_halves_free(&h);
    kit_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_rw_wait_downgrade),
        KIT_TEST(test_rw_wait_all_readers),
        KIT_TEST(test_rw_wait_one_writer),
        KIT_TEST(test_rw_wait_woken),
        KIT_TEST(test_rw_wait_writer_reads),
        KIT_TEST(test_rw_wait_upgrade),
        KIT_TEST(test_rw_wait_gate),
        KIT_TEST(test_rw_wait_prefer_readers),
        KIT_TEST(test_rw_wait_try_leaves_no_gate),
        KIT_TEST(test_rw_wait_writer_gives_up),
        KIT_TEST(test_rw_wait_writer_closes),
        KIT_TEST(test_rw_wait_reader_killed),
        KIT_TEST(test_rw_wait_waiting_writer_killed),
        KIT_TEST(test_rw_wait_writer_among_many),
    };

    return KIT_RUN("rw_wait", tests);
}
