/* SPDX-License-Identifier: MIT
 *
 * request.h - one command about a name that takes nothing and gives nothing
 * back: to set, to count, to look.
 *
 * Its script is harmless when it runs twice, so it is sent again when a reply
 * is lost.
 */
#ifndef DIBS_LOCK_INSPECT_REQUEST_H
#define DIBS_LOCK_INSPECT_REQUEST_H

#include "lock/api/lock.h"

#define DIBS__REQUEST_ID 64 /* text, with its NUL */

struct dibs__request {
    struct dibs__operation op;
    void (*write)(const struct dibs__request *r, struct dibs__buf *out,
                  bool whole);
    /* What the answer means. */
    dibs_err (*read)(struct dibs__request *r, const struct dibs__reply *reply);
    char id[DIBS__REQUEST_ID]; /* of its own, the same each time it is sent */
    const char *text;          /* an argument; copied if async. Or NULL */
    int64_t number, within_ms; /* arguments */
    int64_t value;             /* what the hold came with that it is about */
    int64_t result[2];         /* of read */
};

/* Runs one that is filled in but for op and id: waits for it, or calls cb. */
dibs_err dibs__request_run(dibs_lock *l, struct dibs__request *r, dibs_cb cb,
                           void *arg);
/* The head of its command: script, and the keys and arguments that follow.
 * Publish commands are not counted in, but must come last. */
void dibs__request_head(const struct dibs__request *r,
                        const struct dibs__script *script, size_t keys,
                        size_t args, struct dibs__buf *out, bool whole);
/* What letters of lock_type.c mean: a key or an argument each. */
void dibs__request_args(const struct dibs__request *r, const char *letters,
                        struct dibs__buf *out);
/* attach.c: the hold of that owner becomes one of this client, by an owner that
 * *out says. The caller has entered the client. value: of a semaphore, how many
 * permits; else 0. */
dibs_err dibs__adopt_named(dibs_lock *l, const struct dibs__owner_name *name,
                           const dibs_lock_opts *o, int64_t value,
                           dibs_owner *out);
/* "uuid:number", as servers have it. */
bool dibs__owner_parse(const char *text, const char *end,
                       struct dibs__owner_name *out);
/* A text that no other request of any client has. */
void dibs__request_name(const struct dibs__lock_entry *entry,
                        char id[DIBS__REQUEST_ID]);

#endif
