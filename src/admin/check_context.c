/* SPDX-License-Identifier: MIT
 *
 * check_context.c - one run of dibs_client_doctor: queries, replies, findings.
 *
 * Thread  app.
 * Locks   none.
 */
#include "admin/check_context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MAX INT64_C(1000000000000000)

void dibs__check_report(struct dibs__check_ctx *ctx, const char *check,
                        dibs_verdict verdict, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    if (ctx->stopped || ctx->fatal_err)
        return; /* later findings would be guesses */
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ctx->stopped = !ctx->fn(check, verdict, text, ctx->arg);
}

dibs_err dibs__check_query(struct dibs__check_ctx *ctx, const char *const *argv)
{
    if (ctx->fatal_err)
        return ctx->fatal_err;
    dibs_err err = dibs__query(ctx->c, argv, &ctx->reply);
    if (!ctx->reply.replied || err == DIBS_ERR_NOMEM)
        ctx->fatal_err = err;
    return err;
}

const char *dibs__check_info_field(const struct dibs__check_ctx *ctx,
                                   const char *field, char buf[], size_t size)
{
    const char *at = dibs__query_reply_text(&ctx->info);
    size_t n = strlen(field);

    buf[0] = '\0';
    while (*at) {
        size_t len = strcspn(at, "\r\n");
        if (len > n && at[n] == ':' && strncmp(at, field, n) == 0) {
            len = len - n - 1 < size ? len - n - 1 : size - 1;
            memcpy(buf, at + n + 1, len);
            buf[len] = '\0';
            return buf;
        }
        at += len;
        at += strspn(at, "\r\n");
    }
    return buf;
}

int64_t dibs__check_parse_count(const char *text)
{
    return dibs__max(-1, dibs__min(strtoll(text, NULL, 10), NUMBER_MAX));
}

int64_t dibs__check_info_number(const struct dibs__check_ctx *ctx,
                                const char *field)
{
    char buf[32];

    return dibs__check_parse_count(
        dibs__check_info_field(ctx, field, buf, sizeof buf));
}

const char *dibs__check_error(const struct dibs__check_ctx *ctx)
{
    return ctx->reply.replied ? dibs__query_reply_text(&ctx->reply)
                              : dibs_strerror(ctx->reply.err);
}
