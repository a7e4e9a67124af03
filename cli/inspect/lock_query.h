/* SPDX-License-Identifier: MIT
 *
 * lock_query.h - what info, queue, ls and force-unlock share: a server to ask,
 * and a lock as it sees it.
 */
#ifndef DIBS_CLI_INSPECT_LOCK_QUERY_H
#define DIBS_CLI_INSPECT_LOCK_QUERY_H

#include <stddef.h>

#include "args/args.h"
#include "inspect/owner_info.h"
#include "server/server_select.h"

/* Where we look. */
struct lock_query {
    dibs_client *c; /* NULL: the private server does not run */
    dibs_lock *l;   /* of the name on the command line; or NULL */
    bool slots;     /* we know that it is one with slots */
    struct target_server server;
};

/* A server to ask. If it is the private one and that does not run, a message
 * says so (not with -q), and there is no client. EXIT_FINE, or another code and
 * an error was printed; query_close in either case. */
int query_open(const struct args *a, struct lock_query *k);
/* The same, and a handle for the lock that is named. */
int query_open_lock(const struct args *a, struct lock_query *k);
void query_close(struct lock_query *k);

/* Prints what failed, with the server's own words; returns the exit code. */
int query_failed(const char *what, dibs_err err);

/* A lock as the server sees it. */
struct lock_row {
    char *name;
    size_t len;
    dibs_lock_info info;
    struct who who; /* the owner in info */
    bool counted;   /* the next two are known */
    size_t queued;  /* in the queue of a fair lock */
    size_t waiting; /* clients that wait for one without a queue */
};

/* Asks the server for all but the counts. */
dibs_err query_info(struct lock_query *k, struct lock_row *s);
/* Asks for the counts. If our user may not ask, that is no error: the counts
 * are then not known. */
dibs_err query_count(dibs_client *c, struct lock_row *s);

/* Are the counts all there is to count? Those who wait for a latch or for
 * permits are not known to the server. */
bool query_has_counts(const struct lock_row *s);

/* The value that the number in s->info stands for; to be freed. NULL: there is
 * none, our user may not read it, or there is another one by now. */
char *query_value(dibs_client *c, const struct lock_row *s);

const char *query_mode(dibs_kind kind, dibs_mode mode);
/* What is left of a lease: "29.7 s", or "no end". */
const char *query_left(int64_t ttl_ms, char buf[OUT_SPAN_MAX]);
/* The fields of a JSON object that info and ls have in common. */
void query_json(struct json *j, const struct lock_row *s);

#endif
