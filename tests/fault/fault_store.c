/* SPDX-License-Identifier: MIT
 *
 * fault_store.c - a holder is stopped for longer than its lease, and goes on to
 * write: the table that it writes to refuses it by its token.
 *
 * The holders are processes of examples/sqlite/store.c, which write what they
 * are told to an SQLite table while they have a fenced lock.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/server.h"
#include "support/util.h"

#define LEASE_MS "1500"

static struct ts_server *srv;
static char *file; /* the database */

static int become_store(int fd, void *arg)
{
    const char *lease = arg;

    if (dup2(fd, STDIN_FILENO) < 0 || dup2(fd, STDOUT_FILENO) < 0)
        return 125;
    execl(EXAMPLE_STORE, "store", ts_server_url(srv), file, lease,
          (char *)NULL);
    return 126;
}

/* What it says next: one line. */
static void hear_line(struct ts_child *ch, char line[200])
{
    size_t n = 0;

    do
        if (n == 199 || !ts_hear(ts_child_fd(ch), &line[n], 1, TS_SOON))
            fail_msg("the program says nothing more");
    while (line[n++] != '\n');
    line[n - 1] = '\0';
}

/* The token that it has; it waits for the lock first. */
static long long hear_token(struct ts_child *ch)
{
    char line[200];
    long long token = 0;

    hear_line(ch, line);
    if (sscanf(line, "token %lld", &token) != 1)
        fail_msg("the program says: %s", line);
    return token;
}

static void must_say(struct ts_child *ch, const char *order, const char *want)
{
    char line[200];

    if (order)
        assert_true(ts_tell(ts_child_fd(ch), order, strlen(order)));
    hear_line(ch, line);
    assert_string_equal(line, want);
}

/* What the table has. */
static void check_row(const char *value, long long token)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;

    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT value, token FROM stock", -1, &st, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(st, 0), value);
    assert_int_equal(sqlite3_column_int64(st, 1), token);
    sqlite3_finalize(st);
    sqlite3_close(db);
}

/* No more input: it releases, and ends with this code. */
static void must_end(struct ts_child *ch, int code)
{
    shutdown(ts_child_fd(ch), SHUT_WR);
    assert_int_equal(ts_child_wait(ch, TS_SOON), code);
    ts_child_free(ch);
}

static void test_store_stopped_holder_is_refused(void **state)
{
    (void)state;
    struct ts_child *first = ts_spawn(become_store, LEASE_MS);
    long long old = hear_token(first);
    must_say(first, "one\n", "one: written");
    check_row("one", old);

    ts_child_pause(first); /* SIGSTOP */
    struct ts_child *second = ts_spawn(become_store, "0");
    long long token = hear_token(second); /* the lease is over */
    assert_true(token > old);
    must_say(second, "two\n", "two: written");

    ts_child_resume(first);
    must_say(first, "too late\n", "too late: refused, for it comes too late");
    check_row("two", token);
    must_end(first, 1); /* it says that its lock was lost, too */

    must_say(second, "three\n", "three: written");
    check_row("three", token);
    must_end(second, 0);
}

/* It writes before anybody else does, though after its lease: that is in order,
 * and the next holder's token is larger. */
static void test_store_late_but_first(void **state)
{
    (void)state;
    struct ts_child *first = ts_spawn(become_store, LEASE_MS);
    long long old = hear_token(first);

    ts_child_pause(first);
    struct ts_child *second = ts_spawn(become_store, "0");
    long long token = hear_token(second);
    ts_child_resume(first);
    must_say(first, "late\n", "late: written");
    must_say(second, "next\n", "next: written");
    must_say(first, "later\n", "later: refused, for it comes too late");
    assert_true(token > old);
    check_row("next", token);
    must_end(first, 1);
    must_end(second, 0);
}

static int store_up(void **state)
{
    (void)state;
    srv = ts_server_start(NULL);
    file = ts_text("%s/stock.db", ts_server_dir(srv));
    return 0;
}

static int store_down(void **state)
{
    (void)state;
    ts_server_stop(srv);
    free(file);
    return 0;
}

static int store_fresh(void **state)
{
    (void)state;
    ts_ok(srv, "FLUSHALL");
    unlink(file);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_store_stopped_holder_is_refused,
                               store_fresh),
        cmocka_unit_test_setup(test_store_late_but_first, store_fresh),
    };

    return cmocka_run_group_tests_name("store", tests, store_up, store_down);
}
