/* SPDX-License-Identifier: MIT
 *
 * check_context.h - one run of dibs_client_doctor: queries, replies, findings.
 */
#ifndef DIBS_ADMIN_CHECK_CONTEXT_H
#define DIBS_ADMIN_CHECK_CONTEXT_H

#include "client/command/sync_query.h"

/* One run. On the caller's stack, used by its thread only. */
struct dibs__check_ctx {
    dibs_client *c;
    const char *name; /* of a lock, or NULL */
    dibs_doctor_fn fn;
    void *arg;
    bool stopped;       /* fn returned false */
    dibs_err fatal_err; /* no reply, or out of memory: no more findings */
    struct dibs__query_reply info;  /* INFO; empty if it was refused */
    struct dibs__query_reply reply; /* to the latest query */
    bool is_replica;
    bool is_persistent;      /* data survives a restart */
    int64_t server_clock_us; /* first TIME; -1: unknown */
    int64_t clock_read_us;   /* dibs__now_us at that reading */
    int64_t clock_rtt_us;    /* round-trip time of that query */
};

/* Reports one finding to ctx->fn. No effect once stopped or fatal_err. */
void dibs__check_report(struct dibs__check_ctx *ctx, const char *check,
                        dibs_verdict verdict, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Runs a command, whose argv ends with NULL; the reply is in ctx->reply.
 * Returns its error, or fatal_err without running it. */
dibs_err dibs__check_query(struct dibs__check_ctx *ctx,
                           const char *const *argv);
#define DIBS__CHECK_QUERY(ctx, ...)                                            \
    dibs__check_query((ctx), (const char *const[]){__VA_ARGS__, NULL})
/* Copies a field of INFO to `buf` and returns it; "" if there is none. */
const char *dibs__check_info_field(const struct dibs__check_ctx *ctx,
                                   const char *field, char buf[], size_t size);
int64_t dibs__check_info_number(const struct dibs__check_ctx *ctx,
                                const char *field);
/* Parses a number and limits it to -1 .. 10^15, so that callers can multiply it
 * without overflow. */
int64_t dibs__check_parse_count(const char *text);
/* Returns the text of the error that the latest query failed with. */
const char *dibs__check_error(const struct dibs__check_ctx *ctx);

/* check_permissions.c: permissions of the connection's user. */
void dibs__check_permissions(struct dibs__check_ctx *ctx);
/* check_network.c: TLS, sentinels or cluster, and the lock's key. */
void dibs__check_network(struct dibs__check_ctx *ctx);

#endif
