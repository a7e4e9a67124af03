/* SPDX-License-Identifier: MIT
 *
 * lock_type.h - what tells one kind of lock from another: its names, its
 * scripts, and how their answers are read.
 *
 * A kind writes commands and reads answers; it decides nothing. How locks are
 * waited for, renewed and given back is the same for all of them.
 */
#ifndef DIBS_LOCK_TYPE_LOCK_TYPE_H
#define DIBS_LOCK_TYPE_LOCK_TYPE_H

#include "base/buf.h"
#include "client/command/script.h"
#include "client/observe/stats.h"
#include "lock/wait/wait_queue.h"
#include "net/resp_reply.h"

#include <dibs/dibs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dibs__lock_entry;

enum dibs__lock_command {
    VERB_ACQUIRE,
    VERB_RELEASE,
    VERB_HANDOVER,   /* from one owner of this client to another */
    VERB_FORCE,      /* end the hold of one owner, or of all */
    VERB_LEAVE,      /* a waiter does not wait any more */
    VERB_DEREGISTER, /* no waiter of this client does: it need not be called */
    VERB_INFO,       /* an array, see mutex_info.lua and fair_info.lua */
    VERB_HOLDERS,    /* an array, see holders.lua */
    VERB_COUNT
};

/* The numbers with which scripts answer. */
enum dibs__script_result {
    /* ACQUIRE answers nil when taken; with a number from NO_END up when busy
     * for so many ms. */
    SCRIPT_BUSY_NO_TTL = -1, /* busy, and nobody knows for how long */
    SCRIPT_UNSET = -2, /* busy: nobody has said how many permits there are */
    SCRIPT_OUTER_HOLD_LOST = -3, /* the outer holds of a re-entry are gone */
    SCRIPT_SELF_DEADLOCK = -5,   /* the owner would wait for itself */
    /* ACQUIRE, FORCE, INFO, HOLDERS, and RELEASE of a batch. */
    SCRIPT_NO_LOCK = -6, /* another kind of lock, or a hash that is no lock */
    /* ACQUIRE of a batch. */
    SCRIPT_NOT_BATCHABLE = -7, /* must be asked for by itself */
    /* RELEASE answers with a number from FREED up when freed: how many clients
     * heard of it, plus FREED. */
    SCRIPT_FREED = 1,
    SCRIPT_LEVEL_RELEASED = 0, /* held once less */
    SCRIPT_NOT_HELD = -1,      /* by this owner */
    SCRIPT_NO_LISTENER =
        -2, /* freed; the first in the queue did not hear of it */
    SCRIPT_MEMBER_FAILED = -8, /* of a batch: the server refused this one */
    /* HANDOVER answers MOVED or NOT_HELD; FORCE answers ENDED, or with a larger
     * number if the kind has no queue. */
    SCRIPT_MOVED = 1,
    SCRIPT_ENDED = 1,
    SCRIPT_WAITER_WOKEN = 2 /* LEAVE, FORCE: free, and a waiter was called */
};

/* Kinds whose holds are fields of one hash are of one family. */
enum dibs__key_layout {
    LAYOUT_HASH,  /* one lock for all: an owner has it as one kind only */
    LAYOUT_RW,    /* an owner may have both halves, by one number */
    LAYOUT_SLOTS, /* no hash: permits, as the two below */
    LAYOUT_SEMAPHORE,
    LAYOUT_LATCH, /* nothing is held */
    LAYOUT_COUNT
};

enum dibs__lock_type_id {
    TYPE_MUTEX,
    TYPE_FAIR,
    TYPE_READ,
    TYPE_WRITE,
    TYPE_FENCED,
    TYPE_SLOTS,
    TYPE_SEMAPHORE,
    TYPE_LATCH,
    TYPE_COUNT
};

/* What a command is about. A field that a verb does not need is not read. */
struct dibs__command_args {
    const struct dibs__lock_entry *entry;
    uint64_t owner_id; /* the owner's number, as the server knows it */
    union {
        uint64_t next_owner_id; /* HANDOVER: number of the next owner */
        uint64_t other_id; /* RELEASE, a shared kind: number of another holder
                           of this client; 0 = none is known. ACQUIRE of one: by
                           which other number its owner writes; 0 = none */
    };
    union {
        int64_t target_count; /* ACQUIRE, RELEASE: holds it will then have */
        int64_t first; /* INFO, a kind with a queue: first place wanted */
    };
    union {
        int64_t lease_ms; /* ACQUIRE, HANDOVER */
        int64_t count;    /* INFO: how many places */
    };
    int64_t hold_off_ms;   /* RELEASE; DETACH: nothing is sent */
    bool enqueue : 1;      /* ACQUIRE: it will wait, and leave if it gives up */
    bool shortens_ttl : 1; /* HANDOVER: it ends sooner than before; tell that */
    bool all : 1; /* FORCE: all who share the lock with this owner. LEFT:
                     it listens no more, either */
    unsigned char registration; /* ACQUIRE: dibs__how, about being called */
    struct dibs__coarse_time begun_at; /* when its call began, for statistics;
                                 it fits in here. 0: it is not counted */
    const char *text; /* FORCE: the owner as text, instead of wire */
    union {
        size_t text_len;
        int64_t value; /* RELEASE, HANDOVER: what the hold came with. ACQUIRE
                          of a semaphore: how many permits */
        uint64_t peer_id_hint; /* ACQUIRE, a shared kind: number of another
                           holder of this client; 0 = none is known */
    };
};

enum dibs__acquire_result {
    RESULT_ACQUIRED,
    RESULT_BUSY,            /* somebody has it */
    RESULT_OUTER_HOLD_LOST, /* the outer holds are gone */
    RESULT_REFUSED,         /* err says why */
    RESULT_RETRY, /* not executed, or nobody knows: worth another attempt */
    RESULT_UNDER_REPLICATED /* taken, but too few replicas have it */
};

/* The answer to an ACQUIRE or HANDOVER, read. */
struct dibs__acquired {
    enum dibs__acquire_result result;
    dibs_err err;           /* RESULT_REFUSED */
    int64_t retry_after_ms; /* RESULT_BUSY; < 0 nobody knows */
    enum dibs__told told;   /* RESULT_BUSY, if it asked to be called */
    int64_t value;      /* RESULT_ACQUIRED: what came with it; 0 = nothing */
    int64_t slot_total; /* RESULT_ACQUIRED: how many slots there are; 0 = not
                           told */
};

/* One of many that are renewed together. */
struct dibs__renew_item {
    struct dibs__lock_entry *entry;
    uint64_t owner_id;
    uint64_t hold_number; /* which hold; numbers are not used again */
    int64_t value;        /* what the hold came with */
    int64_t lease_ms;     /* LEASE_LOOK: is it there? Its end stays as it is */
    int64_t max_until;    /* lease_ms must not reach beyond */
    bool needs_verify;    /* it was, and this is to settle it */
    int64_t due_at;       /* when it was to be looked at */
};

/* The hold is left as it is: its owner goes, and the server is not told. */
#define DETACH (-1)

/* Shorter than any time to live, so that a renewal changes nothing. */
#define LEASE_LOOK (-1)

/* A command: a script, its keys and arguments, a letter each. lock_type.c says
 * what the letters mean, and knows all that our scripts take. */
struct dibs__lock_command_spec {
    const struct dibs__script *script; /* NULL: the kind has no such verb */
    const char *keys, *args;
};

struct dibs__lock_type {
    enum dibs__lock_type_id id;
    enum dibs__key_layout layout;
    const char *channel;      /* prefix of the channel's name */
    const char *owner_suffix; /* behind an owner's name on the server */
    dibs_mode other_half;     /* NONE, or in this mode it is not locked: as for
                                 Redisson, a half tells of itself */
    enum dibs__retry_policy retry_policy; /* who of a line asks the server */
    bool has_server_queue; /* the server has a queue of waiters, and calls them
                            */
    bool shared;           /* any number of owners can have it at once */
    bool is_counting;      /* so many owners can; those that wait go in order */
    bool always_braces_channel; /* the channel is prefix{name}, whatever the
                                   name */
    char
        batch_code; /* what multi_acquire.lua calls it; 0 = it asks by itself */
    char batch_key; /* letter of one more key of a batch; 0 = none */
    const char *renew_keys; /* those of one hold */
    char renew_arg;         /* letter of the hold; 0 = its owner */
    const struct dibs__script *renew_script; /* kinds with the same script are
                                          renewed together */
    struct dibs__lock_command_spec command[VERB_COUNT];
    const char *register_args; /* arguments of ACQUIRE if it asks to be called;
                           before the commands to publish with */
    const char *shorten_args;  /* those of HANDOVER if the end comes sooner */
    unsigned taken_types;      /* types of reply that say "taken", a bit each */
    unsigned other_types;      /* those that say anything else */
    /* The reply to an ACQUIRE or HANDOVER. */
    void (*decode)(enum dibs__lock_command verb,
                   const struct dibs__reply *reply, struct dibs__acquired *out);
    /* How calls wait for it; NULL: as for a lock. */
    const struct dibs__wait_queue_ops *wait_ops;
    /* How long a waiter pauses after it was told "busy for so long". */
    int64_t (*retry_delay)(const struct dibs__lock_entry *entry,
                           int64_t busy_ms);
};

extern const struct dibs__lock_type dibs__type_mutex;
extern const struct dibs__lock_type dibs__type_fair;
extern const struct dibs__lock_type dibs__type_read;
extern const struct dibs__lock_type dibs__type_write;
extern const struct dibs__lock_type dibs__type_fenced;
extern const struct dibs__lock_type dibs__type_slots;
extern const struct dibs__lock_type dibs__type_semaphore;

/* Does this kind have that verb? HANDOVER: one owner can pass the lock to
 * another. LEAVE: a waiter that gives up tells the server. */
static inline bool dibs__lock_type_has(const struct dibs__lock_type *type,
                                       enum dibs__lock_command verb)
{
    return type->command[verb].script != NULL;
}

/* ---- lock_type.c ------------------------------------------------------------
 */

/* Appends the command of a verb that the kind has. whole: with the text of the
 * script. */
void dibs__lock_command_write(enum dibs__lock_command verb,
                              const struct dibs__command_args *args,
                              struct dibs__buf *out, bool whole);
/* Appends the command that renews these holds, all of kinds that are renewed
 * together. */
void dibs__renew_write(const struct dibs__renew_item *items, size_t count,
                       struct dibs__buf *out, bool whole);
/* Appends reads of their keys, each such that the server tells when somebody
 * changes one. In a cluster there is one for each hold. How many. */
unsigned dibs__tracking_reads_write(const struct dibs__renew_item *items,
                                    size_t count, struct dibs__buf *out);
/* Appends what a letter of dibs__lock_command_spec means. */
void dibs__arg_write(char letter, const struct dibs__command_args *args,
                     struct dibs__buf *out);

/* The owner as the server knows it; how long the text is. */
size_t dibs__owner_text(const struct dibs__lock_entry *entry, uint64_t wire,
                        char buf[DIBS_OWNER_MAX]);
/* Appends the name of the channel on which this client is called. */
void dibs__turn_channel(const struct dibs__lock_entry *entry,
                        struct dibs__buf *out);
/* "{name}:" and two texts behind it, as an argument. */
void dibs__suffix_arg(struct dibs__buf *out,
                      const struct dibs__lock_entry *entry, const char *one,
                      const char *two);
/* With how many commands scripts publish: none are named but in a cluster. */
size_t dibs__publish_count(const struct dibs__lock_entry *entry);

/* For kinds that answer nil when taken. */
void dibs__decode_plain_reply(enum dibs__lock_command verb,
                              const struct dibs__reply *reply,
                              struct dibs__acquired *out);
#define DIBS__PLAIN_REPLIES                                                    \
    .taken_types = 1u << REPLY_NIL, .other_types = 1u << REPLY_NUM,            \
    .decode = dibs__decode_plain_reply
/* For kinds that give a number with the lock, as text, and nil for a
 * re-entry. */
void dibs__decode_numbered_reply(enum dibs__lock_command verb,
                                 const struct dibs__reply *reply,
                                 struct dibs__acquired *out);
#define DIBS__NUMBERED_REPLIES                                                 \
    .taken_types = 1u << REPLY_NIL | 1u << REPLY_TEXT,                         \
    .other_types = 1u << REPLY_NUM, .decode = dibs__decode_numbered_reply
/* The number that a text begins with; one that is too large is cut. */
int64_t dibs__parse_number(const char *text, const char *end);
/* Until the holder's lease is over, two seconds or so at most. */
int64_t dibs__retry_delay_default(const struct dibs__lock_entry *entry,
                                  int64_t busy_ms);
/* What the answers to INFO and HOLDERS look like is the same for all. */
#define DIBS__INFO                                                             \
    {                                                                          \
        &dibs__script_mutex_info, "n", "Y"                                     \
    }
#define DIBS__HOLDERS                                                          \
    {                                                                          \
        &dibs__script_holders, "n", "bem"                                      \
    }

#endif
