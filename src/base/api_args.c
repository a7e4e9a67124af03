/* SPDX-License-Identifier: MIT
 *
 * api_args.c - checks arguments of public calls: versioned structs, times,
 * pointers.
 *
 * Thread  any.
 *
 * The reason (error_text.c) of a refusal names the argument. A struct is read
 * only up to its size, and not at all if the size is invalid.
 */
#include "base/api_args.h"

#include <string.h>

#define END_OF(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))
#define STRUCT(type, last)                                                     \
    {                                                                          \
#type, END_OF(type, last), sizeof(type)                                \
    }

/* With the last field of each in version 0.1. */
const struct dibs__struct dibs__struct_client_opts =
    STRUCT(dibs_client_opts, pubsub);
const struct dibs__struct dibs__struct_lock_opts =
    STRUCT(dibs_lock_opts, replicas_timeout_ms);
const struct dibs__struct dibs__struct_lock_info =
    STRUCT(dibs_lock_info, owner);
const struct dibs__struct dibs__struct_member = STRUCT(dibs_member, valid_ms);
/* With the last field of each in version 0.2. */
const struct dibs__struct dibs__struct_semaphore_opts =
    STRUCT(dibs_semaphore_opts, arg);
const struct dibs__struct dibs__struct_latch_opts =
    STRUCT(dibs_latch_opts, ticket);
const struct dibs__struct dibs__struct_stats = STRUCT(dibs_stats, renew);
const struct dibs__struct dibs__struct_watch_opts =
    STRUCT(dibs_watch_opts, every_ms);

static size_t size_of(const void *s)
{
    size_t size;

    memcpy(&size, s, sizeof size);
    return size;
}

static dibs_err check_size(const struct dibs__struct *type, size_t size)
{
    if (size == 0)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "%s: size is 0, it must be sizeof(%s)",
                                type->name, type->name);
    if (size < type->first)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "%s: size is %zu, it must be at least %zu",
                                type->name, size, type->first);
    if (size > DIBS__STRUCT_MAX)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "%s: size is %zu, it must be at most %d",
                                type->name, size, DIBS__STRUCT_MAX);
    return DIBS_OK;
}

dibs_err dibs__struct_read(const struct dibs__struct *type, const void *in,
                           void *out)
{
    const unsigned char *raw = in;
    size_t caller_size = in ? size_of(in) : type->now;

    memset(out, 0, type->now);
    if (check_size(type, caller_size) != DIBS_OK)
        return DIBS_ERR_INVALID;
    for (size_t i = type->now; in && i < caller_size; i++)
        if (raw[i] != 0)
            return dibs__reason_set(
                DIBS_ERR_INVALID,
                "%s: it has something at byte %zu that dibs %s does not know",
                type->name, i, dibs_version());
    if (in)
        memcpy(out, in, caller_size < type->now ? caller_size : type->now);
    memcpy(out, &type->now, sizeof type->now);
    return DIBS_OK;
}

dibs_err dibs__struct_check(const struct dibs__struct *type, const void *out)
{
    if (!out)
        return dibs__reason_set(DIBS_ERR_INVALID, "%s: out is NULL",
                                type->name);
    return check_size(type, size_of(out));
}

void dibs__struct_write(const struct dibs__struct *type, const void *from,
                        void *out)
{
    size_t size = size_of(out);

    memcpy(out, from, size < type->now ? size : type->now);
    memcpy(out, &size, sizeof size);
}

dibs_err dibs__check_ms(const char *what, int64_t ms, int64_t least,
                        int64_t most)
{
    if (ms < 0)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "%s is %lld, it must not be negative", what,
                                (long long)ms);
    if (ms > most)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "%s is %lld, it must be at most %lld", what,
                                (long long)ms, (long long)most);
    if (ms != 0 && ms < least)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "%s is %lld, it must be at least %lld", what,
                                (long long)ms, (long long)least);
    return DIBS_OK;
}

dibs_err dibs__check_not_null(const char *what, const void *pointer)
{
    return pointer ? DIBS_OK
                   : dibs__reason_set(DIBS_ERR_INVALID, "%s is NULL", what);
}
