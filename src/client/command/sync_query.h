/* SPDX-License-Identifier: MIT
 *
 * sync_query.h - one command, asked and waited for; its reply as plain text.
 */
#ifndef DIBS_CLIENT_COMMAND_SYNC_QUERY_H
#define DIBS_CLIENT_COMMAND_SYNC_QUERY_H

#include "client/client.h"

#define DIBS__QUERY_ARGS 16

/* A call that its caller waits for. Lives inside whatever it is about. */
struct dibs__sync_query {
    struct dibs__command call; /* write and slot are the caller's, at least */
    /* Takes the reply, if there is one; what it returns is the result. May be
     * on io. */
    dibs_err (*take)(struct dibs__sync_query *ask, dibs_err err,
                     const struct dibs__reply *reply);
    dibs_err err;
    char why[DIBS__REASON_MAX]; /* in words; "" */
    sem_t done;
};

/* Asks and waits; the reason is set if it fails. Between enter and leave.
 * Thread: app. */
dibs_err dibs__sync_query_run(dibs_client *c, struct dibs__route to,
                              struct dibs__sync_query *ask);

/* All zero = none yet. */
struct dibs__query_reply {
    dibs_err err; /* OK, or as of a call */
    bool replied; /* the server said something, be it an error */
    bool array;   /* text is a line for each element, nested ones as well */
    int64_t num;  /* of a number */
    int64_t sent_us, came_us; /* on our own clock */
    struct dibs__buf text;    /* of text, error, number or array; NUL behind */
};

/* Asks, with argv ended by NULL. A command must be harmless when it is executed
 * twice. NOMEM where there is no room for the answer. Thread: app. */
dibs_err dibs__query(dibs_client *c, const char *const *argv,
                     struct dibs__query_reply *out);
/* The n-th line of an array's text, from 0; "" when there is none. */
const char *dibs__query_reply_line(const struct dibs__query_reply *a, size_t n,
                                   char buf[], size_t size);
const char *
dibs__query_reply_text(const struct dibs__query_reply *a); /* never NULL */
void dibs__query_reply_clear(struct dibs__query_reply *a);

#endif
