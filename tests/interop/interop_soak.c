/* SPDX-License-Identifier: MIT
 *
 * interop_soak.c - four Java threads, and four of dibs in two processes, take
 * locks of all kinds at random for $SOAK seconds (60); and slots, permits of
 * semaphores, latches.
 *
 * The witness is in another database of the server. A lock's cell there is a
 * number: a holder adds to it, a reader 1, a holder that must be alone ALONE.
 * What the cell says on the way in and out shows who else is there. Besides, a
 * holder that is alone counts up another number in two steps, so that two at a
 * time lose one. The dibs processes also have a witness in shared memory.
 * Helper.java does the same.
 *
 * Of slots and semaphores there are PERMITS: a holder adds what it took. Who
 * has a fenced lock compares its token with the last one there, sets a latch,
 * counts it down again and must find that nobody else did; others wait for that
 * latch.
 *
 * A Java waiter that misses the message of a writer (docs/interop.md) sleeps
 * for as long as the lease it saw, re-entries added; so the guard against
 * hanging is longer than that.
 *
 * In the end everybody has got everything they asked for, the cells are zero,
 * no count and no permit is lost, and no key is left.
 */
#include "interop/kit.h"

#include "support/witness.h"

#define ALONE    1000000LL
#define PER_KIND 2
#define PREFIX   "soak:"
#define PERMITS  3

enum { PROCESSES = 2, THREADS = 2, WORKERS = PROCESSES * THREADS };
enum { BASIC, QUEUED, FENCED, READWRITE, SLOTS, SEMAPHORE, LATCH, KINDS };

static const char *const kinds[] = {"plain", "fair",      "fenced", "rw",
                                    "slots", "semaphore", "latch"};

struct result {
    uint64_t entries, alone, violations;
    int64_t longest_ms;
    char longest_kind[8], first[200];
};

static struct ts_witness *shared;
static int soak_seconds = 60;

/* ---- a worker ---------------------------------------------------------- */

struct worker {
    size_t number;
    dibs_client *c;
    redisContext *witness;
    int64_t until;
    uint64_t random;
    struct result r;
    pthread_t thread;
};

static unsigned dice(struct worker *me, unsigned sides)
{
    me->random ^= me->random << 13;
    me->random ^= me->random >> 7;
    me->random ^= me->random << 17;
    return (unsigned)(me->random >> 33) % sides;
}

__attribute__((format(printf, 2, 3))) static void blame(struct worker *me,
                                                        const char *fmt, ...)
{
    va_list args;

    if (me->r.violations++ > 0)
        return;
    va_start(args, fmt);
    vsnprintf(me->r.first, sizeof me->r.first, fmt, args);
    va_end(args);
}

static bool well(struct worker *me, dibs_err err, const char *what)
{
    if (err != DIBS_OK)
        blame(me, "%s: %s", what, dibs_strerror(err));
    return err == DIBS_OK;
}

static long long number(struct worker *me, const char *fmt, const char *name,
                        long long n)
{
    redisReply *r = redisCommand(me->witness, fmt, name, n);
    long long got = -1;

    if (!r || r->type == REDIS_REPLY_ERROR)
        ts_fatal("the witness does not answer");
    if (r->type == REDIS_REPLY_INTEGER)
        got = r->integer;
    else if (r->type == REDIS_REPLY_STRING)
        got = atoll(r->str);
    else if (r->type == REDIS_REPLY_NIL)
        got = 0;
    freeReplyObject(r);
    return got;
}

/* Adds to the lock's cell; what it says then must be in these limits. */
static void cell(struct worker *me, const char *name, long long n,
                 long long least, long long most)
{
    long long got = number(me, "INCRBY %s %lld", name, n);

    if (got < least || got > most)
        blame(me, "dibs: %s %+lld finds %lld", name, n, got);
}

static void pause_a_bit(struct worker *me)
{
    if (dice(me, 2))
        kit_pass((int64_t)dice(me, 5));
}

static void alone(struct worker *me, const char *name, size_t index)
{
    if (!ts_witness_enter(shared, index, me->number))
        blame(me, "%s: two dibs workers", name);
    cell(me, name, ALONE, ALONE, ALONE);
    me->r.alone++;
    long long n = number(me, "GET %s:count", name, 0);
    pause_a_bit(me);
    number(me, "SET %s:count %lld", name, n + 1);
    cell(me, name, -ALONE, 0, 0);
    if (!ts_witness_leave(shared, index, me->number))
        blame(me, "%s: two dibs workers", name);
}

/* Takes a lock in one of the ways there are; false: not in time. */
static bool take(struct worker *me, dibs_lock *l, const char *kind)
{
    int64_t begin = ts_now_ms();
    dibs_err err = DIBS_OK;

    switch (dice(me, 4)) {
    case 0:
        err = dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 1 + dice(me, 50)));
        break;
    case 1:
        err = dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 15000));
        break;
    case 2:
        err = dibs_lock_try(l, NULL);
        break;
    default:
        err = dibs_lock_acquire(l, NULL);
    }
    if (err == DIBS_ERR_BUSY || err == DIBS_ERR_TIMEOUT)
        return false;
    if (!well(me, err, kind))
        return false;
    me->r.entries++;
    if (ts_now_ms() - begin > me->r.longest_ms) {
        me->r.longest_ms = ts_now_ms() - begin;
        snprintf(me->r.longest_kind, sizeof me->r.longest_kind, "%s", kind);
    }
    return true;
}

/* Alone, sometimes with a second hold inside the first. */
static void again(struct worker *me, dibs_lock *l, const char *name,
                  size_t index)
{
    if (dice(me, 4) == 0 && well(me, dibs_lock_acquire(l, NULL), "re-entry")) {
        alone(me, name, index);
        well(me, dibs_lock_release(l, NULL), "release of a re-entry");
    }
    alone(me, name, index);
}

static void reading(struct worker *me, const char *name)
{
    pause_a_bit(me);
    cell(me, name, -1, 0, ALONE - 1);
}

static void write_it(struct worker *me, const char *name, size_t index)
{
    dibs_lock *w = kit_lock(me->c, WRITE, name);

    if (take(me, w, "write")) {
        again(me, w, name, index);
        if (dice(me, 4) != 0) {
            well(me, dibs_lock_release(w, NULL), "release of a writer");
        } else {
            dibs_lock *r = kit_lock(me->c, READ, name);
            well(me, dibs_lock_acquire(r, NULL), "read inside write");
            cell(me, name, 1, 1, 1);
            well(me, dibs_lock_release(w, NULL), "downgrade");
            reading(me, name);
            well(me, dibs_lock_release(r, NULL), "release after downgrade");
            dibs_lock_free(r);
        }
    }
    dibs_lock_free(w);
}

static void read_it(struct worker *me, const char *name)
{
    dibs_lock *r = kit_lock(me->c, READ, name);

    if (take(me, r, "read")) {
        cell(me, name, 1, 1, ALONE - 1);
        reading(me, name);
        well(me, dibs_lock_release(r, NULL), "release of a reader");
    }
    dibs_lock_free(r);
}

/* The latch that belongs to a fenced lock: nobody else may count. */
static void use_latch(struct worker *me, unsigned which)
{
    dibs_latch *g = NULL;
    bool was_set = false;
    int64_t left = -1;
    char name[64];

    snprintf(name, sizeof name, PREFIX "latch%u", which);
    well(me, dibs_latch_new(me->c, name, &g), "new latch");
    if (well(me, dibs_latch_set(g, 2, NULL, &was_set), "set of a latch") &&
        !was_set)
        blame(me, "%s: it is set already", name);
    for (int i = 1; i >= 0; i--)
        if (well(me, dibs_latch_count_down(g, NULL, &left), "count down") &&
            left != i)
            blame(me, "%s: %lld left, not %d", name, (long long)left, i);
    dibs_latch_free(g);
}

static void fenced_it(struct worker *me, const char *name, size_t index,
                      unsigned which)
{
    dibs_lock *l = NULL;
    int64_t token = 0;

    well(me, dibs_fenced_lock_new(me->c, name, &l), "new fenced lock");
    if (take(me, l, "fenced")) {
        well(me, dibs_lock_token(l, 0, &token), "token");
        long long last = number(me, "GET %s:token", name, 0);
        if (token <= last)
            blame(me, "%s: token %lld after %lld", name, (long long)token,
                  last);
        number(me, "SET %s:token %lld", name, token);
        use_latch(me, which);
        alone(me, name, index);
        well(me, dibs_lock_release(l, NULL), "release of a fenced lock");
    }
    dibs_lock_free(l);
}

static void slots_it(struct worker *me, const char *name)
{
    dibs_lock *l = NULL;

    well(me, dibs_slots_lock_new(me->c, name, PERMITS, &l), "new slots lock");
    if (take(me, l, "slots")) {
        cell(me, name, 1, 1, PERMITS);
        pause_a_bit(me);
        cell(me, name, -1, 0, PERMITS - 1);
        well(me, dibs_lock_release(l, NULL), "release of a slot");
    }
    dibs_lock_free(l);
}

static void semaphore_it(struct worker *me, const char *name)
{
    dibs_semaphore_opts o = *DIBS_SEMAPHORE_OPTS(.permits = 1 + dice(me, 2));
    dibs_semaphore *s = NULL;

    well(me, dibs_semaphore_new(me->c, name, &s), "new semaphore");
    dibs_err err =
        dice(me, 3) ? dibs_semaphore_acquire(s, &o) : dibs_semaphore_try(s, &o);
    if (err != DIBS_ERR_BUSY && well(me, err, "semaphore")) {
        me->r.entries++;
        cell(me, name, o.permits, o.permits, PERMITS);
        pause_a_bit(me);
        cell(me, name, -o.permits, 0, PERMITS - o.permits);
        well(me, dibs_semaphore_release(s, &o), "release of permits");
    }
    dibs_semaphore_free(s);
}

static void await_it(struct worker *me, const char *name)
{
    dibs_latch *g = NULL;

    well(me, dibs_latch_new(me->c, name, &g), "new latch");
    if (well(me, dibs_latch_wait(g, DIBS_LATCH_OPTS(.wait_ms = 60000)),
             "waiting for a latch"))
        me->r.entries++;
    dibs_latch_free(g);
}

/* What is no lock, or more than one. False: it is a lock. */
static bool once_object(struct worker *me, unsigned kind, const char *name,
                        size_t index, unsigned which)
{
    switch (kind) {
    case FENCED:
        fenced_it(me, name, index, which);
        return true;
    case SLOTS:
        slots_it(me, name);
        return true;
    case SEMAPHORE:
        semaphore_it(me, name);
        return true;
    case LATCH:
        await_it(me, name);
        return true;
    default:
        return false;
    }
}

static void once(struct worker *me)
{
    unsigned kind = dice(me, KINDS), which = dice(me, PER_KIND);
    size_t index = kind * PER_KIND + which;
    char name[64];

    snprintf(name, sizeof name, PREFIX "%s%u", kinds[kind], which);
    if (once_object(me, kind, name, index, which))
        return;
    if (kind == READWRITE) {
        if (dice(me, 3) == 0)
            write_it(me, name, index);
        else
            read_it(me, name);
        return;
    }
    dibs_lock *l = kit_lock(me->c, kind == BASIC ? PLAIN : FAIR, name);
    if (take(me, l, kinds[kind])) {
        again(me, l, name, index);
        well(me, dibs_lock_release(l, NULL), "release");
    }
    dibs_lock_free(l);
}

static void *work(void *arg)
{
    struct worker *me = arg;

    while (ts_now_ms() < me->until)
        once(me);
    return NULL;
}

/* ---- processes --------------------------------------------------------- */

static void add_up(struct result *sum, const struct result *r)
{
    if (sum->violations == 0)
        memcpy(sum->first, r->first, sizeof sum->first);
    sum->entries += r->entries;
    sum->alone += r->alone;
    sum->violations += r->violations;
    if (r->longest_ms > sum->longest_ms) {
        sum->longest_ms = r->longest_ms;
        memcpy(sum->longest_kind, r->longest_kind, sizeof sum->longest_kind);
    }
}

/* Waits for a byte, works, tells its result. */
static int process(int fd, void *arg)
{
    struct worker w[THREADS];
    struct result sum = {0};
    dibs_client *c = NULL;
    char go;

    if (!ts_hear(fd, &go, 1, ts_ms(120000)))
        ts_fatal("nobody said go");
    dibs_err err = dibs_client_open(ts_server_url(srv), NULL, &c);
    if (err != DIBS_OK)
        ts_fatal("open: %s", dibs_strerror(err));
    for (size_t i = 0; i < THREADS; i++) {
        memset(&w[i], 0, sizeof w[i]);
        w[i].number = *(size_t *)arg * THREADS + i;
        w[i].c = c;
        w[i].witness = ts_connect(srv);
        freeReplyObject(redisCommand(w[i].witness, "SELECT 1"));
        w[i].random =
            88172645463325252ULL + w[i].number * 7919 + (uint64_t)ts_now_ms();
        w[i].until = ts_now_ms() + soak_seconds * 1000;
        if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0)
            ts_fatal("no thread");
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(w[i].thread, NULL);
        redisFree(w[i].witness);
        add_up(&sum, &w[i].r);
    }
    dibs_client_free(c);
    if (!ts_tell(fd, &sum, sizeof sum))
        ts_fatal("nobody listens");
    return 0;
}

static long long word(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    if (!at)
        ts_fatal("Java did not say %s: %s", key, text);
    return atoll(at + strlen(key));
}

/* All cells are zero, and the counts are what both sides together counted. */
static void check_witness(uint64_t alone_in_all)
{
    redisContext *r = ts_connect(srv);
    struct worker me = {.witness = r};
    long long counted = 0;
    char name[64];

    freeReplyObject(redisCommand(r, "SELECT 1"));
    for (int i = 0; i < KINDS * PER_KIND; i++) {
        snprintf(name, sizeof name, PREFIX "%s%d", kinds[i / PER_KIND],
                 i % PER_KIND);
        assert_int_equal(number(&me, "GET %s", name, 0), 0);
        counted += number(&me, "GET %s:count", name, 0);
    }
    redisFree(r);
    assert_int_equal(counted, alone_in_all);
    assert_int_equal(ts_witness_violations(shared), 0);
}

/* Before: so many permits of each. */
static void set_permits(void)
{
    for (int i = 0; i < PER_KIND; i++)
        ts_ok(srv, "MSET " PREFIX "slots%d %d " PREFIX "semaphore%d %d", i,
              PERMITS, i, PERMITS);
}

/* After: all are back. What stays is taken away: numbers, notes. */
static void check_permits(void)
{
    for (int i = 0; i < PER_KIND; i++) {
        assert_int_equal(ts_int(srv, "GET " PREFIX "slots%d", i), PERMITS);
        assert_int_equal(ts_int(srv, "GET " PREFIX "semaphore%d", i), PERMITS);
        ts_ok(srv,
              "DEL " PREFIX "slots%d {" PREFIX "slots%d}:dibs_slot " PREFIX
              "semaphore%d redisson_lock_token:{" PREFIX "fenced%d} {" PREFIX
              "latch%d}:dibs_down",
              i, i, i, i, i);
    }
}

static struct ts_child *children[PROCESSES];

static void test_soak(void **state)
{
    const int64_t guard = soak_seconds * 1000 + ts_ms(90000);
    struct result sum = {0}, r;
    char numbers[64], go = 1;

    (void)state;
    set_permits();
    snprintf(numbers, sizeof numbers, "\t%d\t%lld\t4", soak_seconds,
             (long long)ts_now_ms());
    int id = jvm_send(jvm, "soak", "soak", "plain", PREFIX, numbers);
    for (int i = 0; i < PROCESSES; i++)
        assert_true(ts_tell(ts_child_fd(children[i]), &go, 1));
    struct jvm_answer a = jvm_await(jvm, id, guard);
    for (int i = 0; i < PROCESSES; i++) {
        if (!ts_hear(ts_child_fd(children[i]), &r, sizeof r, guard))
            fail_msg("a dibs process told nothing; it ended with %d (-1: it "
                     "did not end)",
                     ts_child_wait(children[i], 100));
        add_up(&sum, &r);
        assert_int_equal(ts_child_wait(children[i], TS_SOON), 0);
    }
    print_message("             Java: %s\n", a.text);
    print_message("             dibs: entries=%llu alone=%llu violations=%llu "
                  "longest_ms=%lld longest_kind=%s first=%s\n",
                  (unsigned long long)sum.entries,
                  (unsigned long long)sum.alone,
                  (unsigned long long)sum.violations, (long long)sum.longest_ms,
                  sum.longest_kind, sum.violations ? sum.first : "none");
    assert_true(a.ok);
    assert_int_equal(sum.violations, 0);
    assert_int_equal(word(a.text, "violations="), 0);
    assert_true(sum.entries > 0 && word(a.text, "entries=") > 0);
    check_witness(sum.alone + (uint64_t)word(a.text, " alone="));
    check_permits();
    ts_ok(srv, "EVAL redis.call('select',1)redis.call('flushdb') 0");
}

static int soak_start(void **state)
{
    static size_t numbers[PROCESSES] = {0, 1};
    const char *asked = getenv("SOAK");

    (void)state;
    if (asked && atoi(asked) > 0)
        soak_seconds = atoi(asked);
    srv = ts_server_start(NULL);
    shared = ts_witness_new(KINDS * PER_KIND, WORKERS);
    for (int i = 0; i < PROCESSES; i++)
        children[i] = ts_spawn(process, &numbers[i]);
    jvm = jvm_start(ts_server_port(srv), NULL);
    return 0;
}

static int soak_stop(void **state)
{
    (void)state;
    for (int i = 0; i < PROCESSES; i++)
        ts_child_free(children[i]);
    jvm_stop(jvm);
    ts_witness_free(shared);
    ts_server_stop(srv);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_soak, NULL, kit_after),
    };
    return cmocka_run_group_tests_name("interop.soak", tests, soak_start,
                                       soak_stop);
}
