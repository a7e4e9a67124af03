/* SPDX-License-Identifier: MIT
 *
 * stress_rw.c - threads and processes that read, write, nest, downgrade, give
 * up and get killed, all at random and on one lock; and the server's own book
 * of what happened.
 *
 * The server keeps an append-only file: every change of every key, in the order
 * in which it was made. The one that takes the lock adds a line to a list of
 * the server's, and another before it gives it back, so these are in the same
 * book and in the same order. When all is over the book is read:
 *
 * Keys    After each change the lock is free, or has readers and no writer, or
 *         has one writer and no reader but that one. Each reader has a read
 *         key. Holds From the line of the one that took it to the line of the
 *         one that releases it its field stays. The one that was to be killed
 *         is excused. In the end nothing is left.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stress/kit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN_MS 4000
#define UUID   36

enum { PROCESSES = 4, MORTALS = 2, THREADS = 3 };

static struct ts_server *srv;

/* ---- those who work ---------------------------------------------------- */

struct worker {
    dibs_lock *r, *w;
    redisContext *cn; /* for its lines in the book */
    atomic_bool *enough;
    unsigned seed;
    long reads, writes;
    int bad;
};

/* A line: "+" taken, "-" about to be given back; then the owner. */
static void note(struct worker *wk, char sign, dibs_lock *l)
{
    char line[1 + DIBS_OWNER_MAX] = {sign};

    if (dibs_lock_owner_text(l, 0, line + 1, sizeof line - 1) != DIBS_OK)
        wk->bad |= 1;
    redisReply *r = redisCommand(wk->cn, "RPUSH book %s", line);
    if (!r || r->type == REDIS_REPLY_ERROR)
        wk->bad |= 2;
    freeReplyObject(r);
}

static void rest(struct worker *wk)
{
    usleep(st_dice(&wk->seed, 2000));
}

/* Takes it one way or another; writes it down if it is new. */
static bool take(struct worker *wk, dibs_lock *l)
{
    bool had = dibs_lock_holds(l, 0) > 0;
    unsigned way = st_dice(&wk->seed, 4);
    dibs_err err =
        way == 0 ? dibs_lock_try(l, NULL)
                 : dibs_lock_acquire(
                       l, DIBS_LOCK_OPTS(.wait_ms = way == 1 ? 20 : TS_SOON));

    if (err == DIBS_OK && !had)
        note(wk, '+', l);
    if (err != DIBS_OK && err != DIBS_ERR_BUSY && err != DIBS_ERR_TIMEOUT)
        wk->bad |= 4;
    if (had && err != DIBS_OK)
        wk->bad |= 8; /* a re-entry does not wait */
    return err == DIBS_OK;
}

static void give(struct worker *wk, dibs_lock *l)
{
    if (dibs_lock_holds(l, 0) == 1)
        note(wk, '-', l);
    if (dibs_lock_release(l, NULL) != DIBS_OK)
        wk->bad |= 16;
}

static void reads(struct worker *wk)
{
    unsigned depth = 0, want = 1 + st_dice(&wk->seed, 3);

    while (depth < want && take(wk, wk->r))
        depth++;
    if (depth > 0) {
        wk->reads++;
        rest(wk);
        if (st_dice(&wk->seed, 4) == 0 &&
            dibs_lock_acquire(wk->w, NULL) != DIBS_ERR_UPGRADE)
            wk->bad |= 32;
    }
    while (depth-- > 0)
        give(wk, wk->r);
}

static void writes(struct worker *wk)
{
    unsigned depth = 0, want = 1 + st_dice(&wk->seed, 2);

    while (depth < want && take(wk, wk->w))
        depth++;
    if (depth == 0)
        return;
    wk->writes++;
    rest(wk);
    bool reads_too = st_dice(&wk->seed, 2) && take(wk, wk->r);
    bool first = st_dice(&wk->seed, 2); /* ends reading before writing */
    if (reads_too && first)
        give(wk, wk->r);
    while (depth-- > 0)
        give(wk, wk->w);
    if (reads_too && !first) {
        rest(wk); /* reads on, with others */
        give(wk, wk->r);
    }
}

static void *work(void *arg)
{
    struct worker *wk = arg;

    while (!wk->bad && !(atomic_load(wk->enough) && wk->reads && wk->writes))
        if (st_dice(&wk->seed, 4) == 0)
            writes(wk);
        else
            reads(wk);
    return NULL;
}

static int start_worker(struct worker *wk, dibs_client *c, atomic_bool *enough,
                        unsigned seed)
{
    wk->enough = enough;
    wk->seed = seed;
    wk->cn = ts_connect(srv);
    return dibs_read_lock_new(c, "l", &wk->r) == DIBS_OK &&
                   dibs_write_lock_new(c, "l", &wk->w) == DIBS_OK
               ? 0
               : 64;
}

/* A process: tells the client's name, works until it is told to end. */
static int process(int fd, void *arg)
{
    struct worker wk[THREADS] = {{.bad = 0}};
    pthread_t threads[THREADS];
    atomic_bool enough = false;
    dibs_client *c = NULL;
    int bad = 0;
    char word;
    const dibs_client_opts *opts = DIBS_CLIENT_OPTS(.lease_ms = ts_ms(2000));

    if (dibs_client_open(ts_server_url(srv), opts, &c) != DIBS_OK ||
        !ts_tell(fd, dibs_client_id(c), UUID))
        return 1;
    for (unsigned i = 0; i < THREADS; i++) {
        bad |= start_worker(&wk[i], c, &enough, *(unsigned *)arg * 31 + i);
        if (pthread_create(&threads[i], NULL, work, &wk[i]) != 0)
            return 2;
    }
    ts_hear(fd, &word, 1, 10 * TS_SOON);
    atomic_store(&enough, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        bad |= wk[i].bad;
        redisFree(wk[i].cn);
        dibs_lock_free(wk[i].r);
        dibs_lock_free(wk[i].w);
    }
    if (dibs_client_close(c, TS_SOON) != DIBS_OK)
        bad |= 64;
    dibs_client_free(c);
    return bad;
}

/* ---- the book ---------------------------------------------------------- */

#define NAMES_MAX 128

/* A set of texts, by copy. */
struct names {
    char *name[NAMES_MAX];
    size_t n;
};

static size_t find(const struct names *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->name[i], name) == 0)
            return i;
    return SIZE_MAX;
}

static bool has(const struct names *s, const char *name)
{
    return find(s, name) != SIZE_MAX;
}

static void add(struct names *s, const char *name)
{
    if (has(s, name))
        return;
    assert_true(s->n < NAMES_MAX);
    s->name[s->n++] = ts_strdup(name);
}

static void drop(struct names *s, const char *name)
{
    size_t i = find(s, name);

    if (i == SIZE_MAX)
        return;
    free(s->name[i]);
    s->name[i] = s->name[--s->n];
}

static void clear(struct names *s)
{
    while (s->n > 0)
        free(s->name[--s->n]);
}

static struct {
    struct names fields; /* of the lock, but for mode */
    char mode[8];
    struct names keys;   /* read keys */
    struct names inside; /* who has it, by their own word */
    struct names doomed; /* clients that were to be killed */
    long changes, lines, together, alone;
} book;

static bool is_writer(const char *owner)
{
    size_t n = strlen(owner);

    return n > 6 && strcmp(owner + n - 6, ":write") == 0;
}

static bool is_doomed(const char *owner)
{
    char uuid[UUID + 1];

    snprintf(uuid, sizeof uuid, "%s", owner);
    return has(&book.doomed, uuid);
}

/* The state that a change has left. */
static void check_keys(void)
{
    size_t writers = 0, readers = 0;

    for (size_t i = 0; i < book.fields.n; i++) {
        const char *f = book.fields.name[i];
        char *key = ts_text("{l}:%s:rwlock_timeout:1", f);
        writers += is_writer(f);
        readers += !is_writer(f);
        if (!is_writer(f) && !is_doomed(f) && !has(&book.keys, key))
            fail_msg("change %ld: %s reads without a key", book.changes, f);
        free(key);
    }
    bool write = strcmp(book.mode, "write") == 0;
    if (book.fields.n > 0 && !book.mode[0])
        fail_msg("change %ld: no mode", book.changes);
    if (writers != (write ? 1 : 0) || (write && readers > 1))
        fail_msg("change %ld: mode %s with %zu writers, %zu readers",
                 book.changes, book.mode, writers, readers);
    if (write && readers == 1) {
        const char *a = book.fields.name[0], *b = book.fields.name[1];
        size_t n = strlen(is_writer(a) ? b : a);
        if (strncmp(a, b, n) != 0)
            fail_msg("change %ld: %s and %s", book.changes, a, b);
    }
    for (size_t i = 0; i < book.inside.n; i++)
        if (!has(&book.fields, book.inside.name[i])) {
            if (!is_doomed(book.inside.name[i]))
                fail_msg("change %ld: %s lost it", book.changes,
                         book.inside.name[i]);
            drop(&book.inside, book.inside.name[i--]);
        }
    book.changes++;
}

/* A line of somebody who has it, or is about to give it back. */
static void read_line(const char *line)
{
    const char *who = line + 1;

    book.lines++;
    if (line[0] == 'x') {
        add(&book.doomed, who);
    } else if (line[0] == '-') {
        drop(&book.inside, who);
    } else if (!has(&book.fields, who)) {
        if (!is_doomed(who))
            fail_msg("line %ld: %s does not have it", book.lines, who);
    } else {
        add(&book.inside, who);
        book.alone += is_writer(who);
        book.together += !is_writer(who) && book.inside.n > 1;
    }
}

static void read_change(int argc, char **argv)
{
    const char *verb = argv[0];

    if (strcasecmp(verb, "rpush") == 0) {
        read_line(argv[2]);
    } else if (strcasecmp(verb, "hset") == 0) {
        for (int i = 2; i + 1 < argc; i += 2)
            if (strcmp(argv[i], "mode") == 0)
                snprintf(book.mode, sizeof book.mode, "%s", argv[i + 1]);
            else
                add(&book.fields, argv[i]);
    } else if (strcasecmp(verb, "hdel") == 0) {
        for (int i = 2; i < argc; i++)
            drop(&book.fields, argv[i]);
    } else if (strcasecmp(verb, "set") == 0 && strstr(argv[1], "_timeout:")) {
        add(&book.keys, argv[1]);
    } else if (strcasecmp(verb, "del") == 0 ||
               strcasecmp(verb, "unlink") == 0) {
        for (int i = 1; i < argc; i++) {
            drop(&book.keys, argv[i]);
            if (strcmp(argv[i], "l") == 0) {
                clear(&book.fields);
                book.mode[0] = '\0';
            }
        }
    }
}

/* "*2\r\n$3\r\n...", the words of one change; where the next begins. */
static char *next_change(char *at, int *argc, char **argv, int most)
{
    long n = strtol(at + 1, &at, 10);

    if (n < 1 || n > most)
        fail_msg("the book cannot be read");
    at += 2;
    for (*argc = 0; *argc < n; (*argc)++) {
        long len = strtol(at + 1, &at, 10);
        at += 2;
        argv[*argc] = at;
        at += len;
        *at = '\0';
        at += 2;
    }
    return at;
}

static void read_book(char *text, size_t len)
{
    char *argv[64], *at = text;
    bool several = false; /* changes that belong together */
    int argc;

    while (at < text + len && *at == '*') {
        at = next_change(at, &argc, argv, 64);
        if (strcasecmp(argv[0], "multi") == 0)
            several = true;
        else if (strcasecmp(argv[0], "exec") == 0)
            several = false;
        else
            read_change(argc, argv);
        if (!several)
            check_keys();
    }
    assert_ptr_equal(at, text + len);
}

/* The whole file; free() it. */
static char *open_book(size_t *len)
{
    char *paths[] = {ts_text("%s/appendonlydir/appendonly.aof.1.incr.aof",
                             ts_server_dir(srv)),
                     ts_text("%s/appendonly.aof", ts_server_dir(srv))};
    FILE *f = fopen(paths[0], "rb");

    if (!f)
        f = fopen(paths[1], "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0)
        ts_fatal("the server has kept no book");
    *len = (size_t)ftell(f);
    char *text = ts_alloc(*len + 1);
    rewind(f);
    if (fread(text, 1, *len, f) != *len)
        ts_fatal("the book is shorter than it was");
    fclose(f);
    free(paths[0]);
    free(paths[1]);
    return text;
}

/* ---- the test ---------------------------------------------------------- */

/* There is nothing to wait for but that they have had some time. */
static void let_them_work(int64_t ms)
{
    struct ts_wait w = ts_wait_begin(ms);

    while (ts_wait_step(&w))
        ;
}

static void test_rw_history(void **state)
{
    struct ts_child *ch[PROCESSES + MORTALS];
    char id[PROCESSES + MORTALS][UUID + 1] = {{0}};
    unsigned seed = (unsigned)ts_now_ms();
    size_t len = 0;

    (void)state;
    print_message("seed %u\n", seed);
    for (int i = 0; i < PROCESSES + MORTALS; i++, seed++)
        ch[i] = ts_spawn(process, &seed);
    for (int i = 0; i < PROCESSES + MORTALS; i++)
        assert_true(ts_hear(ts_child_fd(ch[i]), id[i], UUID, TS_SOON));
    for (int i = 0; i < MORTALS; i++) {
        let_them_work(RUN_MS / (MORTALS + 2));
        ts_ok(srv, "RPUSH book x%s", id[PROCESSES + i]);
        ts_child_kill(ch[PROCESSES + i]);
    }
    let_them_work(2 * RUN_MS / (MORTALS + 2));
    TS_WAIT(ts_int(srv, "LLEN book") > 500); /* longer on a slow machine */
    for (int i = 0; i < PROCESSES; i++)
        assert_true(ts_tell(ts_child_fd(ch[i]), "", 1));
    for (int i = 0; i < PROCESSES; i++)
        assert_int_equal(ts_child_wait(ch[i], 2 * TS_SOON), 0);
    for (int i = 0; i < PROCESSES + MORTALS; i++)
        ts_child_free(ch[i]);
    ts_ok(srv, "DEL book");
    /* What has ended by its time is in the book when the server has deleted
     * it. */
    TS_WAIT(ts_int(srv, "EVAL %s 0",
                   "return redis.call('dbsize') - "
                   "#redis.call('keys', 'dibs_lock_listener:*')") == 0);

    char *text = open_book(&len);
    read_book(text, len);
    free(text);
    print_message("%ld changes, %ld lines, %ld writes, %ld reads together\n",
                  book.changes, book.lines, book.alone, book.together);
    assert_int_equal(book.fields.n, 0);
    assert_int_equal(book.keys.n, 0);
    assert_true(book.alone > 20 && book.together > 20);
    clear(&book.inside);
    clear(&book.doomed);
}

static int group_setup(void **state)
{
    static const char *const extra[] = {"--appendonly",
                                        "yes",
                                        "--appendfsync",
                                        "no",
                                        "--auto-aof-rewrite-percentage",
                                        "0",
                                        NULL};

    (void)state;
    srv = ts_server_start(extra);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    ts_server_stop(srv);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rw_history)};

    return cmocka_run_group_tests_name("rw", tests, group_setup,
                                       group_teardown);
}
