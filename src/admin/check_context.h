/* SPDX-License-Identifier: MIT
 *
 * check_context.h - one examination of a server: its questions, answers and
 * findings.
 */
#ifndef DIBS_ADMIN_CHECK_CONTEXT_H
#define DIBS_ADMIN_CHECK_CONTEXT_H

#include "client/command/sync_query.h"

/* On its caller's stack, and only that thread's. */
struct dibs__check_ctx {
    dibs_client *c;
    const char *name; /* of a lock, or NULL */
    dibs_doctor_fn fn;
    void *arg;
    bool enough;   /* fn wants no more */
    dibs_err gone; /* no answer, or no memory: there are no more findings */
    struct dibs__query_reply info;  /* INFO; empty if it was refused */
    struct dibs__query_reply reply; /* to the last question */
    bool replica;                   /* it is a replica of another server */
    bool keeps;                     /* its data survives a restart */
    int64_t clock_us, at_us; /* its clock the first time, and ours then */
    int64_t trip_us;         /* how long that answer took */
};

/* Tells one finding. */
void dibs__check_report(struct dibs__check_ctx *ctx, const char *check,
                        dibs_verdict verdict, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Asks, the words ended by NULL; the answer is in reply. */
dibs_err dibs__check_query(struct dibs__check_ctx *ctx,
                           const char *const *argv);
#define DIBS__ASK(ex, ...)                                                     \
    dibs__check_query((ex), (const char *const[]){__VA_ARGS__, NULL})
/* A field of INFO; "" if it is not there. */
const char *dibs__check_info_field(const struct dibs__check_ctx *ctx,
                                   const char *field, char buf[], size_t size);
int64_t dibs__check_info_number(const struct dibs__check_ctx *ctx,
                                const char *field);
/* A number in a text, cut to what any number here can be. */
int64_t dibs__check_parse_count(const char *text);
/* What the server sent instead of an answer. */
const char *dibs__check_error(const struct dibs__check_ctx *ctx);

/* check_permissions.c: what this user may do. */
void dibs__check_permissions(struct dibs__check_ctx *ctx);
/* check_network.c: the network, the other servers, and the lock's key. */
void dibs__check_network(struct dibs__check_ctx *ctx);

#endif
