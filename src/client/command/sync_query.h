/* SPDX-License-Identifier: MIT
 *
 * sync_query.h - runs one command and blocks until its reply, for inspection
 * calls.
 */
#ifndef DIBS_CLIENT_COMMAND_SYNC_QUERY_H
#define DIBS_CLIENT_COMMAND_SYNC_QUERY_H

#include "client/client.h"

#define DIBS__QUERY_ARGS 16

/* A command whose caller blocks. Embedded in the caller's own struct. */
struct dibs__sync_query {
    struct dibs__command cmd; /* the caller sets at least write and slot */
    /* Reads the reply, NULL if there is none; its return value becomes the
     * result. Thread: app or io. */
    dibs_err (*read_reply)(struct dibs__sync_query *query, dibs_err err,
                           const struct dibs__reply *reply);
    dibs_err err;
    char why[DIBS__REASON_MAX]; /* error text, or "" */
    sem_t done;
};

/* Runs the command and blocks. Returns the result of `take`; on failure the
 * calling thread's error text is set. The caller must hold a
 * dibs__client_enter. Thread: app. */
dibs_err dibs__sync_query_run(dibs_client *c, struct dibs__route to,
                              struct dibs__sync_query *query);

/* A copy of a reply as text. All zero = empty. */
struct dibs__query_reply {
    dibs_err err; /* result of the command */
    bool replied; /* there was a reply, possibly an error reply */
    bool array;   /* text has one line per element, nested arrays flattened */
    int64_t num;  /* of an integer reply, else 0 */
    int64_t sent_us, received_us; /* dibs__now_us */
    struct dibs__buf text;        /* NUL-terminated if there was a reply */
};

/* Runs the command `argv`, which ends with NULL, and blocks. The command must
 * be idempotent. Returns NOMEM if the reply could not be copied. Thread: app.
 */
dibs_err dibs__query(dibs_client *c, const char *const *argv,
                     struct dibs__query_reply *out);
/* Copies line `n` (from 0) of an array's text to `buf` and returns it; "" if
 * there is no such line. */
const char *dibs__query_reply_line(const struct dibs__query_reply *r, size_t n,
                                   char buf[], size_t size);
/* Returns the text, never NULL. */
const char *dibs__query_reply_text(const struct dibs__query_reply *r);
void dibs__query_reply_clear(struct dibs__query_reply *r);

#endif
