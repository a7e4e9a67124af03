/* SPDX-License-Identifier: MIT
 *
 * request.h - one command about a name that neither acquires nor releases: to
 * set, count or read.
 *
 * Its script is idempotent, so it is sent again if a reply is lost.
 */
#ifndef DIBS_LOCK_INSPECT_REQUEST_H
#define DIBS_LOCK_INSPECT_REQUEST_H

#include "lock/api/lock.h"

#define DIBS__REQUEST_ID 64 /* text, with its NUL */

struct dibs__request {
    struct dibs__operation op;
    void (*write)(const struct dibs__request *r, struct dibs__buf *out,
                  bool whole);
    /* Parses the reply into result. Returns the result of the request. */
    dibs_err (*read)(struct dibs__request *r, const struct dibs__reply *reply);
    char id[DIBS__REQUEST_ID]; /* idempotency token: unique for the request,
                                  the same in each send */
    const char *text;          /* an argument; copied if async. Or NULL */
    int64_t number, within_ms; /* arguments */
    int64_t value;             /* hold.value of the hold that it renews */
    int64_t result[2];
};

/* Fills op and id and runs the request; the caller fills the other members. cb
 * NULL: waits for the result. Thread: app. */
dibs_err dibs__request_run(dibs_lock *l, struct dibs__request *r, dibs_cb cb,
                           void *arg);
/* Writes the head of the command: script, number of keys, number of arguments.
 * `args` does not include the publish commands, which must be the last
 * arguments. */
void dibs__request_head(const struct dibs__request *r,
                        const struct dibs__script *script, size_t keys,
                        size_t args, struct dibs__buf *out, bool whole);
/* Writes one key or argument for each letter (lock_type.c). */
void dibs__request_args(const struct dibs__request *r, const char *letters,
                        struct dibs__buf *out);
/* attach.c: adopts that owner's hold; *out: the owner it gets here. The caller
 * has entered the client. value: the number of permits of a semaphore, else
 * 0. */
dibs_err dibs__adopt_named(dibs_lock *l, const struct dibs__owner_name *name,
                           const dibs_lock_opts *o, int64_t value,
                           dibs_owner *out);
/* Parses "uuid:number", an owner's name on the server. */
bool dibs__owner_parse(const char *text, const char *end,
                       struct dibs__owner_name *out);
/* Fills id with a text that no other request of any client has. */
void dibs__request_name(const struct dibs__lock_entry *entry,
                        char id[DIBS__REQUEST_ID]);

#endif
