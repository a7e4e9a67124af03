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
struct look {
    dibs_client *c; /* NULL: the private server does not run */
    dibs_lock *l;   /* of the name on the command line; or NULL */
    bool slots;     /* we know that it is one with slots */
    struct target_server server;
};

/* A server to ask. If it is the private one and that does not run, a message
 * says so (not with -q), and there is no client. EXIT_FINE, or another code and
 * an error was printed; look_close in either case. */
int look_open(const struct args *a, struct look *k);
/* The same, and a handle for the lock that is named. */
int look_open_lock(const struct args *a, struct look *k);
void look_close(struct look *k);

/* Prints what failed, with the server's own words; returns the exit code. */
int look_failed(const char *what, dibs_err err);

/* A lock as the server sees it. */
struct seen {
    char *name;
    size_t len;
    dibs_lock_info info;
    struct who who; /* the owner in info */
    bool counted;   /* the next two are known */
    size_t queued;  /* in the queue of a fair lock */
    size_t waiting; /* clients that wait for one without a queue */
};

/* Asks the server for all but the counts. */
dibs_err look_info(struct look *k, struct seen *s);
/* Asks for the counts. If our user may not ask, that is no error: the counts
 * are then not known. */
dibs_err look_count(dibs_client *c, struct seen *s);

/* Are the counts all there is to count? Those who wait for a latch or for
 * permits are not known to the server. */
bool look_counted(const struct seen *s);

/* The value that the number in s->info stands for; to be freed. NULL: there is
 * none, our user may not read it, or there is another one by now. */
char *look_value(dibs_client *c, const struct seen *s);

const char *look_mode(dibs_kind kind, dibs_mode mode);
/* What is left of a lease: "29.7 s", or "no end". */
const char *look_left(int64_t ttl_ms, char buf[OUT_SPAN_MAX]);
/* The fields of a JSON object that info and ls have in common. */
void look_json(struct json *j, const struct seen *s);

#endif
