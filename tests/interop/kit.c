/* SPDX-License-Identifier: MIT
 *
 * kit.c - see kit.h.
 */
#include "interop/kit.h"

#include <time.h>

struct ts_server *srv;
struct jvm *jvm;
dibs_client *dib;

/* ---- the frame --------------------------------------------------------- */

int kit_start(void **state)
{
    (void)state;
    srv = ts_server_start(NULL);
    jvm = jvm_start(ts_server_port(srv), NULL);
    dib = kit_open(NULL);
    return 0;
}

int kit_stop(void **state)
{
    (void)state;
    dibs_client_free(dib);
    jvm_stop(jvm);
    ts_server_stop(srv);
    return 0;
}

int kit_before(void **state)
{
    (void)state;
    ts_ok(srv, "FLUSHALL");
    return 0;
}

int kit_after(void **state)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    (void)state;
    while (ts_nkeys(srv) != 0) {
        if (ts_wait_step(&w))
            continue;
        char *key = ts_str(srv, "RANDOMKEY");
        print_error("%lld keys are left, one is %s\n", ts_nkeys(srv), key);
        free(key);
        return -1;
    }
    return 0;
}

struct jvm *kit_java(const char *setting, const char *another)
{
    const char *extra[] = {setting, another, NULL};

    return jvm_start(ts_server_port(srv), extra);
}

void kit_pass(int64_t ms)
{
    struct ts_wait w = ts_wait_begin(ms);

    while (ts_wait_step(&w))
        continue;
}

int64_t kit_now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* ---- dibs -------------------------------------------------------------- */

void kit_want(dibs_err got, dibs_err want, const char *call, const char *file,
              int line)
{
    if (got == want)
        return;
    print_error("%s: \"%s\", not \"%s\"\n", call, dibs_strerror(got),
                dibs_strerror(want));
    _fail(file, line);
}

dibs_client *kit_open(const dibs_client_opts *opts)
{
    dibs_client *c = NULL;

    FINE(dibs_client_open(ts_server_url(srv), opts, &c));
    return c;
}

dibs_lock *kit_lock(dibs_client *c, enum kind kind, const char *name)
{
    dibs_lock *l = NULL;
    dibs_err err = DIBS_ERR_INVALID;

    switch (kind) {
    case PLAIN:
        err = dibs_lock_new(c, name, &l);
        break;
    case FAIR:
        err = dibs_fair_lock_new(c, name, &l);
        break;
    case READ:
        err = dibs_read_lock_new(c, name, &l);
        break;
    case WRITE:
        err = dibs_write_lock_new(c, name, &l);
        break;
    }
    FINE(err);
    return l;
}

bool kit_free_for_dibs(enum kind kind, const char *name)
{
    dibs_lock *l = kit_lock(dib, kind, name);
    dibs_owner me = dibs_owner_new(dib);
    dibs_err err = dibs_lock_try(l, DIBS_LOCK_OPTS(.owner = me));

    if (err == DIBS_OK)
        FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = me)));
    else
        WANT(err, DIBS_ERR_BUSY);
    dibs_lock_free(l);
    return err == DIBS_OK;
}

static void *waiter_main(void *arg)
{
    struct waiter *w = arg;

    w->err = dibs_lock_acquire(w->l, &w->opts);
    w->end_us = kit_now_us();
    atomic_store(&w->done, true);
    return NULL;
}

void waiter_start(struct waiter *w, dibs_client *c, enum kind kind,
                  const char *name, const dibs_lock_opts *opts)
{
    waiter_start_on(w, c, kit_lock(c, kind, name), opts);
}

void waiter_start_on(struct waiter *w, dibs_client *c, dibs_lock *l,
                     const dibs_lock_opts *opts)
{
    memset(w, 0, sizeof *w);
    w->l = l;
    w->opts = opts ? *opts : *DIBS_LOCK_OPTS(0);
    w->opts.owner = dibs_owner_new(c);
    if (pthread_create(&w->thread, NULL, waiter_main, w) != 0)
        ts_fatal("no thread");
}

dibs_err waiter_end(struct waiter *w)
{
    TS_WAIT(atomic_load(&w->done));
    pthread_join(w->thread, NULL);
    return w->err;
}

int64_t waiter_release(struct waiter *w)
{
    int64_t begin = kit_now_us();

    FINE(dibs_lock_release(w->l, DIBS_LOCK_OPTS(.owner = w->opts.owner)));
    dibs_lock_free(w->l);
    return begin;
}

struct doom {
    int64_t (*fn)(void);
};

static int doomed_life(int fd, void *arg)
{
    struct doom *d = arg;
    int64_t number = d->fn();
    char word;

    if (!ts_tell(fd, &number, sizeof number))
        return 1;
    ts_hear(fd, &word, 1, ts_ms(600000));
    return 0;
}

struct ts_child *kit_doom(int64_t (*fn)(void), int64_t *number)
{
    struct doom d = {.fn = fn};
    struct ts_child *child = ts_spawn(doomed_life, &d);

    assert_true(ts_hear(ts_child_fd(child), number, sizeof *number, TS_SOON));
    assert_true(*number >= 0);
    return child;
}

/* ---- Java -------------------------------------------------------------- */

const char *kind_name(enum kind kind)
{
    static const char *const names[] = {"plain", "fair", "read", "write"};

    return names[kind];
}

long long java_does(struct jvm *j, const char *worker, const char *op,
                    enum kind kind, const char *name, const char *numbers,
                    const char *file, int line)
{
    return java_says(j, worker, op, kind_name(kind), name, numbers, file, line)
        .value;
}

struct jvm_answer java_says(struct jvm *j, const char *worker, const char *op,
                            const char *kind, const char *name,
                            const char *numbers, const char *file, int line)
{
    struct jvm_answer a = jvm_ask(j, worker, op, kind, name, numbers);

    if (!a.ok) {
        print_error("Java, %s %s \"%s\": %s\n", op, kind, name, a.text);
        _fail(file, line);
    }
    return a;
}

struct jvm_answer java_ends(struct jvm *j, int id, const char *file, int line)
{
    struct jvm_answer a = jvm_await(j, id, TS_SOON);

    if (!a.ok) {
        print_error("Java: %s\n", a.text);
        _fail(file, line);
    }
    return a;
}

struct jvm_answer java_granted(struct jvm *j, int id, const char *file,
                               int line)
{
    struct jvm_answer a = jvm_await(j, id, TS_SOON);

    if (!a.ok || a.value != 1) {
        print_error("Java did not get the lock: %s\n", a.text);
        _fail(file, line);
    }
    return a;
}

/* ---- waiting for waiters ----------------------------------------------- */

void kit_channel(char *buf, size_t size, enum kind kind, const char *name,
                 const char *owner)
{
    const char *head =
        kind >= READ ? "redisson_rwlock" : "redisson_lock__channel";
    bool tagged = strchr(name, '{') != NULL;

    snprintf(buf, size, "%s:%s%s%s%s%s", head, tagged ? "" : "{", name,
             tagged ? "" : "}", owner ? ":" : "", owner ? owner : "");
}

void kit_wait_listeners(enum kind kind, const char *name, long long n)
{
    char channel[256];

    if (kind == FAIR) {
        kit_wait_queue(name, n);
        return;
    }
    kit_channel(channel, sizeof channel, kind, name, NULL);
    if (!ts_wait_numsub(srv, channel, n))
        fail_msg("%lld listen to %s, not %lld", ts_numsub(srv, channel),
                 channel, n);
}

void kit_wait_parked(struct jvm *j, const char *worker)
{
    TS_WAIT(java_does(j, "watcher", "parked", PLAIN, worker, NULL, __FILE__,
                      __LINE__) == 1);
}

bool kit_cut_listeners(const char *channel)
{
    ts_ok(srv, "CLIENT KILL TYPE pubsub");
    if (ts_wait_numsub(srv, channel, 1))
        return true;
    print_message("             Redisson %s does not listen again: %lld listen "
                  "to %s\n",
                  jvm_version(jvm), ts_numsub(srv, channel), channel);
    jvm_kill(jvm);
    jvm_stop(jvm);
    jvm = jvm_start(ts_server_port(srv), NULL);
    return false;
}

static long long scripts_run(void)
{
    return ts_command_calls(srv, "eval") + ts_command_calls(srv, "evalsha");
}

void kit_wait_scripts(long long n)
{
    long long before;

    TS_WAIT(scripts_run() >= n);
    do {
        before = scripts_run();
        kit_pass(100);
    } while (scripts_run() != before);
}

void kit_wait_queue(const char *name, long long n)
{
    char key[256];
    bool tagged = strchr(name, '{') != NULL;

    snprintf(key, sizeof key, "redisson_lock_queue:%s%s%s", tagged ? "" : "{",
             name, tagged ? "" : "}");
    TS_WAIT(ts_int(srv, "LLEN %s", key) == n);
}

/* ---- how long a wake-up takes ------------------------------------------ */

void wakes_add(struct wakes *w, int64_t from_us, int64_t to_us)
{
    int64_t us = to_us - from_us;

    w->count++;
    w->sum_us += us;
    if (us > w->worst_us)
        w->worst_us = us;
    w->late += us > WAKE_GUARD_US;
}

void wakes_print(const struct wakes *w)
{
    print_message(
        "             %-36s %3d wake-ups, mean %.1f ms, worst %.1f ms\n",
        w->what, w->count,
        (double)w->sum_us / 1000.0 / (w->count ? w->count : 1),
        (double)w->worst_us / 1000.0);
    if (w->late > w->count / 5)
        fail_msg("%s: %d of %d are late", w->what, w->late, w->count);
}
