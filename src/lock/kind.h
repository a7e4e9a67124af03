/* SPDX-License-Identifier: MIT
 *
 * kind.h - what tells one kind of lock from another: its names and scripts.
 *
 * A kind writes commands; it decides nothing. How locks are waited for, renewed
 * and given back is the same for all of them.
 */
#ifndef DIBS_LOCK_KIND_H
#define DIBS_LOCK_KIND_H

#include "base/buf.h"

#include <dibs/dibs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dibs__line;

enum dibs__verb {
    VERB_ACQUIRE,  /* nil taken, >= -1 busy for so long, -3 outer holds gone,
                      -5 would wait for itself, -6 another kind of lock, or
                      a hash that is no lock */
    VERB_RELEASE,  /* >= 1 freed, 0 held once less, -1 not held, -2 freed, and
                      the first in the queue did not hear of it */
    VERB_HANDOVER, /* 1 the next_owner has it, -1 neither has it */
    VERB_FORCE,    /* 1, or more if it is not queued, ended; -6 no lock; else
                      not held by this owner */
    VERB_LEAVE,    /* who waited does not any more; 2: somebody was called */
    VERB_INFO,     /* an array, see basic_info.lua and fair_info.lua */
    VERB_HOLDERS   /* an array, see holders.lua */
};

/* What a command is about. A field that a verb does not need is not read. */
struct dibs__ask {
    const struct dibs__line *line;
    uint64_t wire; /* the owner's number, as the server knows it */
    union {
        uint64_t next_owner; /* HANDOVER: the next one's */
        uint64_t other; /* RELEASE, a shared kind: of one who has it too, as far
                           as is known here; 0 = of nobody */
    };
    union {
        int64_t target; /* ACQUIRE, RELEASE: holds it will then have */
        int64_t first;  /* INFO, a queued kind: first place wanted */
    };
    union {
        int64_t lease_ms; /* ACQUIRE, HANDOVER */
        int64_t count;    /* INFO: and how many */
    };
    int64_t keep_ms;  /* RELEASE */
    bool stay;        /* ACQUIRE: it will wait, and leave if it gives up */
    bool all;         /* FORCE: all who share the lock with this owner */
    const char *text; /* FORCE: the owner as text, instead of wire */
    size_t text_len;
};

/* One of many that are renewed together. */
struct dibs__renew_item {
    struct dibs__line *line;
    uint64_t wire;
    uint64_t hold;    /* which hold; numbers are not used again */
    int64_t lease_ms; /* LEASE_LOOK: is it there? Its end stays as it is */
    bool doubted;     /* it was, and this is to settle it */
};

/* Shorter than any time to live, so that a renewal changes nothing. */
#define LEASE_LOOK (-1)

struct dibs__kind {
    const char *channel; /* prefix of the channel's name */
    const char *suffix;  /* behind an owner's name on the server */
    bool queued;         /* waiters stand in a queue on the server, each for
                            itself and with a channel of its own */
    bool shared;         /* several owners can have it at once */
    bool hands_over;     /* one owner can pass it to another */
    bool leaves;         /* a waiter that gives up says so to the server */
    int64_t pause_ms;    /* longest sleep of a waiter; 0 = the usual */
    unsigned bit;        /* of its own, to know which kinds are in use */
    const struct dibs__kind *sibling; /* whose holds are in the same hash */
    int renewal; /* holds with the same number are renewed together */
    char batch;  /* what multi_acquire.lua calls it; 0 = it asks by itself */
    void (*gate)(struct dibs__buf *out, const struct dibs__line *line);
    void (*write)(enum dibs__verb verb, const struct dibs__ask *ask,
                  struct dibs__buf *out, bool whole);
    void (*write_renew)(const struct dibs__renew_item *items, size_t count,
                        struct dibs__buf *out, bool whole);
};

enum { RENEW_FIELD, RENEW_READ, RENEW_COUNT };

extern const struct dibs__kind dibs__kind_basic;
extern const struct dibs__kind dibs__kind_fair;
extern const struct dibs__kind dibs__kind_read;
extern const struct dibs__kind dibs__kind_write;

/* All kinds whose hold is a field of a hash are renewed alike. */
void dibs__write_renew(const struct dibs__renew_item *items, size_t count,
                       struct dibs__buf *out, bool whole);
void dibs__write_holders(const struct dibs__line *line, struct dibs__buf *out,
                         bool whole);

/* The owner as the server knows it; how long the text is. */
size_t dibs__owner_text(const struct dibs__line *line, uint64_t wire,
                        char buf[DIBS_OWNER_MAX]);
/* The commands with which scripts publish, behind all other arguments, and how
 * many that are: none but in a cluster. */
size_t dibs__publish_count(const struct dibs__line *line);
void dibs__publish_args(struct dibs__buf *out, const struct dibs__line *line);
/* Renewals that are keys of several slots: names go behind the arguments. */
bool dibs__renews_apart(const struct dibs__renew_item *items, size_t count);
/* "uuid:number" as an argument of a command, or ask's text if it has one. */
void dibs__owner_arg(struct dibs__buf *out, const struct dibs__ask *ask);

#endif
