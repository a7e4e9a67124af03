/* SPDX-License-Identifier: MIT
 *
 * hold_handle.c - holds that another process took and left: the text that names
 * them, and their release.
 *
 * The text is the owner as the server knows it. What the server does not say is
 * written before it:
 *
 *     UUID:1                a plain lock
 *     fair:UUID:1           a fair lock
 *     read:UUID:1           a read-write lock, to read
 *     UUID:1:write          the same, to write
 *     fence:UUID:1          a lock with a token
 *     slot:UUID:1           one of several slots
 *     UUID:1,UUID:1         on several servers: the owner on each
 *
 * So extend and release cannot mix up the kinds. Servers may be named
 * in another order than before, hence every owner is tried at every one.
 *
 * A release adopts the hold first: then the library sends the release again
 * when a reply is lost, and tells a hold that is gone from one that is not
 * confirmed. The lease lasts for that time, at least.
 *
 * Thread  The first one.
 */
#include "hold/hold_handle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WRITE ":write"

/* What is before the owner. */
static const char *const prefixes[] = {
    [TYPE_FAIR] = "fair:",
    [TYPE_READ] = "read:",
    [TYPE_FENCED] = "fence:",
    [TYPE_SLOTS] = "slot:",
};
#define PREFIXES (sizeof prefixes / sizeof *prefixes)

/* A server of a quorum that has not answered yet may still grant it: then this
 * is the owner there. */
static void put_quorum(FILE *f, const struct args *a, const struct lock_set *b)
{
    char one[DIBS_OWNER_MAX];

    for (size_t i = 0; i < b->n_members; i++) {
        if (i > 0)
            putc(',', f);
        if (dibs_lock_owner_text(b->members[i], b->owner, one, sizeof one) ==
            DIBS_OK)
            fputs(one, f);
        else
            fprintf(f, "%s:%" PRIu64 "%s", dibs_client_id(b->clients[i]),
                    b->owner, a->exclusive ? WRITE : "");
    }
}

char *hold_handle_format(const struct args *a, const struct lock_set *b)
{
    struct out_text t;

    if (!out_text_open(&t))
        return NULL;
    const char *prefix = prefixes[kind_of(a)];
    fputs(prefix ? prefix : "", t.f);
    if (a->quorum)
        put_quorum(t.f, a, b);
    for (const char *s = b->owners; *s && !a->quorum; s++)
        putc(*s == ' ' ? ',' : *s, t.f);
    return out_text_close(&t);
}

static const char *take_prefix(const char *text, enum lock_kind *kind)
{
    *kind = KIND_PLAIN;
    for (size_t i = 0; i < PREFIXES; i++) {
        size_t n = prefixes[i] ? strlen(prefixes[i]) : 0;
        if (n > 0 && strncmp(text, prefixes[i], n) == 0) {
            *kind = (enum lock_kind)i;
            return text + n;
        }
    }
    return text;
}

static bool is_writer(const char *owner)
{
    size_t len = strlen(owner), n = strlen(WRITE);

    return len > n && strcmp(owner + len - n, WRITE) == 0;
}

/* "uuid:number", as far as that can be seen here. */
static bool is_owner(const char *owner)
{
    size_t len = strspn(owner, "0123456789abcdefABCDEF-");

    return len == 36 && owner[len] == ':' && owner[len + 1] >= '1' &&
           owner[len + 1] <= '9' && strlen(owner) < DIBS_OWNER_MAX;
}

const char *hold_handle_parse(struct hold_handle *f, const char *text)
{
    char *save = NULL;
    size_t writers = 0;

    *f = (struct hold_handle){.n = 0};
    text = take_prefix(text, &f->kind);
    f->copy = strdup(text);
    if (!f->copy)
        return "is too long";
    for (char *one = strtok_r(f->copy, ",", &save); one;
         one = strtok_r(NULL, ",", &save)) {
        if (f->n == LOCK_SET_MAX || !is_owner(one))
            return "is not what 'dibs acquire' printed";
        writers += is_writer(one);
        f->owners[f->n++] = one;
    }
    if (f->n == 0 ||
        (writers > 0 && (writers != f->n || f->kind != KIND_PLAIN)))
        return "is not what 'dibs acquire' printed";
    if (writers > 0)
        f->kind = TYPE_WRITE;
    return NULL;
}

void hold_handle_clear(struct hold_handle *f)
{
    free(f->copy);
    *f = (struct hold_handle){.n = 0};
}

dibs_err hold_handle_attach(const struct hold_handle *f, size_t i, dibs_lock *l,
                            int64_t lease_ms, dibs_owner *out)
{
    dibs_lock_opts opts = {.size = sizeof opts, .lease_ms = lease_ms};
    dibs_err err = DIBS_ERR_NOT_OWNER;

    for (size_t k = 0; k < f->n && err == DIBS_ERR_NOT_OWNER; k++)
        err = dibs_lock_adopt(l, f->owners[(i + k) % f->n], &opts, out);
    return err;
}

dibs_err hold_handle_release(const struct hold_handle *f, size_t i,
                             dibs_lock *l, int64_t keep_ms)
{
    dibs_lock_opts opts = {.size = sizeof opts, .keep_ms = keep_ms};
    dibs_err err = hold_handle_attach(f, i, l, HANDLE_LEASE_MS, &opts.owner);

    if (err == DIBS_OK)
        err = dibs_lock_release(l, &opts);
    return err == DIBS_ERR_LOST ? DIBS_ERR_NOT_OWNER : err;
}
