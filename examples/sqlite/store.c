/* SPDX-License-Identifier: MIT
 *
 * store.c - a table that refuses writes that come too late.
 *
 *   store [URL [FILE [LEASE_MS]]]    URL defaults to redis://127.0.0.1:6379
 *
 * Takes a fenced lock, and writes each line of its input to a table of the
 * SQLite database FILE while it has the lock. Without FILE, it writes to a
 * database in memory, once with its token and once with an older one.
 *
 * A holder can be stopped for longer than its lease, right before it writes. No
 * lock can help there: somebody else has it by then, and has perhaps written.
 * What is written to can help. Each hold has a token, larger than those of all
 * holds before it. The row keeps the token that it was written with, and one
 * UPDATE both compares and writes. So there is no moment in between.
 */
#include <dibs/dibs.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char make_table[] =
    "PRAGMA busy_timeout = 10000;"
    "CREATE TABLE IF NOT EXISTS stock ("
    "  id INTEGER PRIMARY KEY, value TEXT, token INTEGER NOT NULL);"
    "INSERT OR IGNORE INTO stock VALUES (1, '', 0);";

/* A token that is not older than the last one may write. */
static const char write_row[] =
    "UPDATE stock SET value = ?1, token = ?2 WHERE id = 1 AND token <= ?2";

enum verdict { WRITTEN, REFUSED, BROKEN };

/* What the lock protects does this; the lock itself is not asked. */
static enum verdict store_write(sqlite3 *db, int64_t token, const char *value)
{
    sqlite3_stmt *st = NULL;
    enum verdict v = BROKEN;

    if (sqlite3_prepare_v2(db, write_row, -1, &st, NULL) == SQLITE_OK &&
        sqlite3_bind_text(st, 1, value, -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_bind_int64(st, 2, token) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_DONE)
        v = sqlite3_changes(db) == 1 ? WRITTEN : REFUSED;
    sqlite3_finalize(st);
    return v;
}

static void tell(enum verdict v, const char *value)
{
    static const char *const words[] = {
        "written", "refused, for it comes too late", "the database fails"};

    printf("%s: %s\n", value, words[v]);
    fflush(stdout);
}

/* Each line, for as long as they come. True: all were written. */
static bool write_lines(sqlite3 *db, int64_t token)
{
    char line[256];
    bool all = true;

    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        enum verdict v = store_write(db, token, line);
        tell(v, line);
        all = all && v == WRITTEN;
    }
    return all;
}

/* True: the table took what is new, and refused what is old. */
static bool write_two(sqlite3 *db, int64_t token)
{
    enum verdict ours = store_write(db, token, "with our token");
    enum verdict older = store_write(db, token - 1, "with an older one");

    tell(ours, "with our token");
    tell(older, "with an older one");
    return ours == WRITTEN && older == REFUSED;
}

static bool run(dibs_lock *l, sqlite3 *db, bool in_memory)
{
    int64_t token = 0;

    dibs_err err = dibs_lock_acquire(l, NULL);
    if (err == DIBS_OK)
        err = dibs_lock_token(l, 0, &token);
    if (err != DIBS_OK) {
        fprintf(stderr, "store: %s\n", dibs_strerror(err));
        return false;
    }
    printf("token %lld\n", (long long)token);
    fflush(stdout);
    bool fine = in_memory ? write_two(db, token) : write_lines(db, token);
    err = dibs_lock_release(l, NULL);
    if (err != DIBS_OK) /* LOST: the lock was somebody else's at the end */
        fprintf(stderr, "store: %s\n", dibs_strerror(err));
    return fine && err == DIBS_OK;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "redis://127.0.0.1:6379";
    const char *file = argc > 2 ? argv[2] : ":memory:";
    dibs_client_opts opts = DIBS_CLIENT_OPTS_INIT;
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    sqlite3 *db = NULL;
    bool fine = false;

    opts.lease_ms = argc > 3 ? atoll(argv[3]) : 0;
    dibs_err err = dibs_client_open(url, &opts, &c);
    if (err == DIBS_OK)
        err = dibs_fenced_lock_new(c, "dibs:example:store", &l);
    if (err != DIBS_OK)
        fprintf(stderr, "store: %s\n", dibs_strerror(err));
    else if (sqlite3_open(file, &db) != SQLITE_OK ||
             sqlite3_exec(db, make_table, NULL, NULL, NULL) != SQLITE_OK)
        fprintf(stderr, "store: %s\n", sqlite3_errmsg(db));
    else
        fine = run(l, db, argc <= 2);
    sqlite3_close(db);
    dibs_lock_free(l);
    dibs_client_free(c);
    return fine ? 0 : 1;
}
