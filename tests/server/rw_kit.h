/* SPDX-License-Identifier: MIT
 *
 * rw_kit.h - what the tests of the read-write lock share: both halves of the
 * lock "l", and looks at its keys that do not go through the library.
 */
#ifndef DIBS_TESTS_RW_KIT_H
#define DIBS_TESTS_RW_KIT_H

#include "server/kit.h"

#define CHANNEL  "redisson_rwlock:{l}"
#define GATE     "dibs_rwlock_gate:{l}"
#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"
#define LONG_MS  600000 /* nothing in a test lasts so long */

#define OWNED(o) DIBS_LOCK_OPTS(.owner = (o))

/* Both halves of a client's lock "l". */
struct halves {
    dibs_lock *r, *w;
};

static inline struct halves kit_halves(dibs_client *c)
{
    struct halves h = {NULL, NULL};

    FINE(dibs_read_lock_new(c, "l", &h.r));
    FINE(dibs_write_lock_new(c, "l", &h.w));
    return h;
}

static inline void kit_halves_free(struct halves *h)
{
    dibs_lock_free(h->r);
    dibs_lock_free(h->w);
}

/* The read key of a reader; free() it. */
static inline char *kit_read_key(dibs_lock *r, dibs_owner owner)
{
    char text[DIBS_OWNER_MAX];

    FINE(dibs_lock_owner_text(r, owner, text, sizeof text));
    return ts_text("{l}:%s:rwlock_timeout:1", text);
}

/* What is left of a reader's lease, as the server has it. */
static inline long long kit_read_left(dibs_lock *r, dibs_owner owner)
{
    char *key = kit_read_key(r, owner);
    long long left = ts_pttl(srv, key);

    free(key);
    return left;
}

/* The lock is in this mode, NULL being none, and has so many owners. */
static inline void kit_state(const char *where, const char *mode,
                             long long owners)
{
    char *is = ts_hget(srv, "l", "mode");
    long long fields = ts_hlen(srv, "l");

    if (!mode != !is || (mode && strcmp(mode, is) != 0))
        fail_msg("%s: the mode is %s, not %s", where, is ? is : "none",
                 mode ? mode : "none");
    if (fields != (mode ? owners + 1 : 0))
        fail_msg("%s: %lld fields", where, fields);
    if (mode && ts_pttl(srv, "l") <= 0)
        fail_msg("%s: there is no TTL", where);
    free(is);
}

/* One step of an owner: r and w take, R and W give back. */
static inline dibs_err kit_step(struct halves *h, dibs_owner o, char what)
{
    switch (what) {
    case 'r':
        return dibs_lock_try(h->r, OWNED(o));
    case 'w':
        return dibs_lock_try(h->w, OWNED(o));
    case 'R':
        return dibs_lock_release(h->r, OWNED(o));
    default:
        return dibs_lock_release(h->w, OWNED(o));
    }
}

#endif
