/* SPDX-License-Identifier: MIT
 *
 * test_fds.c - no descriptors left: an error, nothing left behind, and never
 * the end of the program.
 *
 * Each row has a process of its own: the first client of a process is the one
 * that needs most. That process fills its table of descriptors and leaves some
 * free, from none at all to more than enough.
 */
#ifdef DIBS_TLS
#include "server/tls_kit.h"
#else
#include "server/kit.h"
#endif

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#define TABLE  64 /* descriptors that a process may have here */
#define ENOUGH 16 /* so many free are enough for everything */
#define PIPE   2  /* libuv makes one for the process, and keeps it */

struct row {
    const char *name;
    char *url;
    bool lazy, dispatch;
    size_t spare; /* that are free */
};

/* What a process saw. */
struct seen {
    dibs_err err[3];        /* of one open after the other */
    char why[3][120];       /* dibs_error_text */
    dibs_err lock;          /* of a lock, if it was open; else OK */
    size_t before, left[3]; /* descriptors */
};

/* ---- the table --------------------------------------------------------- */

static int filler[TABLE];
static size_t fillers;

/* No more than these, from now on. */
static void allow(rlim_t count)
{
    const struct rlimit limit = {count, TABLE};

    setrlimit(RLIMIT_NOFILE, &limit);
}

static void fill_all_but(size_t spare)
{
    allow(TABLE);
    while (fillers < TABLE && (filler[fillers] = dup(STDERR_FILENO)) >= 0)
        fillers++;
    for (; spare > 0 && fillers > 0; spare--)
        close(filler[--fillers]);
}

static void free_all(void)
{
    while (fillers > 0)
        close(filler[--fillers]);
}

/* ---- one process ------------------------------------------------------- */

static dibs_err take_and_give(dibs_client *c)
{
    dibs_lock *l = NULL;
    dibs_err err = dibs_lock_new(c, "l", &l);

    if (err == DIBS_OK)
        err = dibs_lock_try(l, NULL);
    if (err == DIBS_OK)
        err = dibs_lock_release(l, NULL);
    dibs_lock_free(l);
    return err;
}

/* A look-up that nobody waits for any more ends a moment later. */
static size_t count_fds(size_t want)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);
    size_t n;

    while ((n = ts_fds()) > want && ts_wait_step(&w))
        ;
    return n;
}

static int open_with_few(int fd, void *arg)
{
    const struct row *row = arg;
    struct seen seen = {0};

    seen.before = ts_fds();
    for (int i = 0; i < 3; i++) {
        dibs_client *c = NULL;
        fill_all_but(row->spare);
        seen.err[i] = dibs_client_open(
            row->url,
            DIBS_CLIENT_OPTS(.lazy = row->lazy,
                             .callbacks = row->dispatch
                                              ? DIBS_CALLBACKS_DISPATCH
                                              : DIBS_CALLBACKS_THREAD,
                             .connect_timeout_ms = ts_ms(5000),
                             .command_timeout_ms = ts_ms(5000)),
            &c);
        snprintf(seen.why[i], sizeof seen.why[i], "%s", dibs_error_text());
        if (seen.err[i] == DIBS_OK)
            seen.lock = take_and_give(c);
        dibs_client_free(c);
        free_all();
        seen.left[i] = count_fds(seen.before + PIPE);
    }
    return ts_tell(fd, &seen, sizeof seen) ? 0 : 1;
}

static bool is_fair(dibs_err err)
{
    return err == DIBS_OK || err == DIBS_ERR_NOMEM || err == DIBS_ERR_CONN;
}

/* Whether all three opened. */
static bool check_row(struct row *row)
{
    struct ts_child *ch = ts_spawn(open_with_few, row);
    struct seen seen;
    bool told = ts_hear(ts_child_fd(ch), &seen, sizeof seen, TS_SOON * 3);
    int code = ts_child_wait(ch, TS_SOON);
    bool all = true;

    ts_child_free(ch);
    if (!told || code != 0)
        fail_msg("%s, %zu free: ended with %d", row->name, row->spare, code);
    for (int i = 0; i < 3; i++) {
        all &= seen.err[i] == DIBS_OK;
        if (!is_fair(seen.err[i]) || !is_fair(seen.lock))
            fail_msg("%s, %zu free: open %s, lock %s", row->name, row->spare,
                     dibs_strerror(seen.err[i]), dibs_strerror(seen.lock));
        if (seen.err[i] != DIBS_OK &&
            !strstr(seen.why[i], "too many open files"))
            fail_msg("%s, %zu free: %s: \"%s\"", row->name, row->spare,
                     dibs_strerror(seen.err[i]), seen.why[i]);
        if (seen.left[i] > seen.before + PIPE)
            fail_msg("%s, %zu free: %zu descriptors, then %zu, %zu, %zu",
                     row->name, row->spare, seen.before, seen.left[0],
                     seen.left[1], seen.left[2]);
    }
    return all && seen.lock == DIBS_OK;
}

static void check_rows(struct row *row)
{
    bool fine = false;

    for (row->spare = 0; row->spare <= ENOUGH; row->spare++)
        fine = check_row(row);
    if (!fine)
        fail_msg("%s: %d are not enough", row->name, ENOUGH);
}

static void test_fds_opening(void **state)
{
    struct row rows[] = {
        {.name = "unix", .url = (char *)ts_server_url(srv)},
        {.name = "tcp", .url = (char *)ts_server_tcp_url(srv)},
        {.name = "lazy", .url = (char *)ts_server_tcp_url(srv), .lazy = true},
        {.name = "dispatch",
         .url = (char *)ts_server_url(srv),
         .dispatch = true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        check_rows(&rows[i]);
}

/* ---- later ------------------------------------------------------------- */

/* The connection is lost while there is no descriptor for another. */
static int dial_with_none(int fd, void *arg)
{
    dibs_client *c = NULL;
    dibs_err err[3];
    size_t before = ts_fds();
    struct ts_wait w = ts_wait_begin(TS_SOON);

    (void)arg;
    redisContext *cn = ts_connect(srv);
    err[0] = dibs_client_open(ts_server_tcp_url(srv),
                              DIBS_CLIENT_OPTS(.connect_timeout_ms = 2000,
                                               .command_timeout_ms = 2000),
                              &c);
    allow(0); /* whatever it gives back */
    freeReplyObject(redisCommand(cn, "CLIENT KILL TYPE normal"));
    do /* the first may be on its way when the connection ends */
        err[1] = take_and_give(c);
    while ((err[1] == DIBS_OK || err[1] == DIBS_ERR_UNKNOWN) &&
           ts_wait_step(&w));
    allow(TABLE);
    do
        err[2] = take_and_give(c);
    while ((err[2] == DIBS_ERR_CONN || err[2] == DIBS_ERR_UNKNOWN) &&
           ts_wait_step(&w));
    dibs_client_free(c);
    redisFree(cn);
    if (count_fds(before + PIPE) > before + PIPE)
        err[2] = DIBS_ERR_INVALID;
    return ts_tell(fd, err, sizeof err) ? 0 : 1;
}

static void test_fds_dialing(void **state)
{
    struct ts_child *ch = ts_spawn(dial_with_none, NULL);
    dibs_err err[3];

    (void)state;
    assert_true(ts_hear(ts_child_fd(ch), err, sizeof err, TS_SOON * 3));
    assert_int_equal(ts_child_wait(ch, TS_SOON), 0);
    ts_child_free(ch);
    WANT(err[0], DIBS_OK);
    WANT(err[1], DIBS_ERR_CONN);
    WANT(err[2], DIBS_OK);
}

/* ---- TLS --------------------------------------------------------------- */

#ifdef DIBS_TLS
/* A file that cannot be read for want of a descriptor is nothing that is wrong
 * with the file. */
static void test_fds_tls(void **state)
{
    struct row row = {.name = "TLS", .url = tls_url("ca=%s/ca.crt")};

    (void)state;
    check_rows(&row);
    free(row.url);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fds_opening),
        cmocka_unit_test(test_fds_dialing),
    };
    int failed;

#ifdef DIBS_TLS
    const struct CMUnitTest with_tls[] = {cmocka_unit_test(test_fds_tls)};
    tls_home = ts_server_start(NULL);
    tls_dir = ts_server_dir(tls_home);
    tls_make();
    if (tls_there()) {
        tls_start_server();
        failed = cmocka_run_group_tests(with_tls, NULL, NULL);
        close(tls_port_fd);
    } else {
        srv = ts_server_start(NULL);
        failed = 0;
    }
#else
    srv = ts_server_start(NULL);
    failed = 0;
#endif
    failed += cmocka_run_group_tests_name("server.fds", tests, NULL, NULL);
    ts_server_stop(srv);
#ifdef DIBS_TLS
    ts_server_stop(tls_home);
#endif
    return failed;
}
