/* SPDX-License-Identifier: MIT
 *
 * lock_type.h - table of the lock types: names, scripts, codecs of commands and
 * replies.
 *
 * Words
 *   lock type   one of enum dibs__lock_type_id, described by a const struct
 *               dibs__lock_type. It encodes commands and decodes replies;
 *               waiting, renewal and release do not depend on it.
 *   layout      which keys a type has on the server. Types of one layout and
 *               name share these keys: they are one lock.
 *   verb        an operation of enum dibs__lock_command that a script of the
 *               type executes. A type lacks the verbs without a script.
 *   owner id    number that identifies an owner on the server, together with
 *               the client's UUID: "uuid:id".
 *   value       number that the server returns with a hold: fencing token,
 *               slot + 1, or count of permits.
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
    VERB_HANDOFF,     /* transfer from one owner of this client to another */
    VERB_FORCE,       /* end the hold of one owner, or of all */
    VERB_LEAVE_QUEUE, /* remove one waiter from the queue on the server */
    VERB_DEREGISTER,  /* remove this client from the queue on the server */
    VERB_INFO,    /* reply: an array, see mutex_info.lua and fair_info.lua */
    VERB_HOLDERS, /* reply: an array, see holders.lua */
    VERB_COUNT
};

/* Numbers in the replies of scripts. */
enum dibs__script_result {
    /* ACQUIRE: nil if acquired; if busy, the remaining TTL in ms, or
     * BUSY_NO_TTL. */
    SCRIPT_BUSY_NO_TTL = -1, /* busy; the key has no TTL, or it is unknown */
    SCRIPT_UNSET = -2,       /* busy: the number of permits was never set */
    SCRIPT_OUTER_HOLD_LOST = -3, /* re-entry, but the outer hold is gone */
    SCRIPT_SELF_DEADLOCK = -5,   /* the owner would wait for itself */
    /* ACQUIRE, FORCE, INFO, HOLDERS, and RELEASE of a batch. */
    SCRIPT_WRONG_TYPE = -6, /* the key is another type of lock, or no lock */
    /* ACQUIRE of a batch. */
    SCRIPT_NOT_BATCHABLE = -7, /* needs a command of its own */
    /* RELEASE: from FREED up if the lock is free: FREED + the number of clients
     * that received the message. */
    SCRIPT_FREED = 1,
    SCRIPT_LEVEL_RELEASED = 0, /* one level less; still held */
    SCRIPT_NOT_HELD = -1,      /* by this owner */
    SCRIPT_NO_LISTENER = -2,   /* free, but the first in the queue did not
                                  receive the message */
    SCRIPT_MEMBER_FAILED = -8, /* of a batch: the server refused this one */
    /* HANDOVER: MOVED or NOT_HELD. FORCE: ENDED; also a larger number if the
     * server has no queue for the type. */
    SCRIPT_MOVED = 1,
    SCRIPT_ENDED = 1,
    SCRIPT_WAITER_WOKEN = 2 /* LEAVE, FORCE: free, and a waiter was woken */
};

enum dibs__key_layout {
    LAYOUT_HASH,  /* one hash, one field: an owner holds it as one type only */
    LAYOUT_RW,    /* one hash: an owner may hold both modes, by one owner id */
    LAYOUT_SLOTS, /* count of free permits, sorted set of those acquired */
    LAYOUT_SEMAPHORE, /* the same, with other keys */
    LAYOUT_LATCH,     /* nothing is held */
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

/* Parameters of a command. Each field names the verbs that read it. */
struct dibs__command_args {
    const struct dibs__lock_entry *entry;
    uint64_t owner_id;
    union {
        uint64_t next_owner_id; /* HANDOVER: owner id of the next owner */
        /* RELEASE of a shared type: owner id of another local holder; 0: none
         * known. ACQUIRE of a shared type: another owner id, with which the
         * same owner holds the write lock; 0: none. */
        uint64_t other_id;
    };
    union {
        int64_t target_count; /* ACQUIRE, RELEASE: recursion count afterwards */
        int64_t first; /* INFO, if has_server_queue: first position wanted */
    };
    union {
        int64_t lease_ms; /* ACQUIRE, HANDOVER */
        int64_t count;    /* INFO: number of positions */
    };
    /* RELEASE of the last level: time for which the lock stays taken without an
     * owner. HOLD_OFF_DETACH: nothing is sent. */
    int64_t hold_off_ms;
    bool enqueue : 1;      /* ACQUIRE: the call waits if busy: note that on the
                              server; undone by LEAVE */
    bool shortens_ttl : 1; /* HANDOVER: the new lease ends before the old one;
                              publish that */
    bool all : 1; /* FORCE: all owners that share the lock. DEREGISTER: also as
                     designated listener */
    unsigned char registration;        /* ACQUIRE: enum dibs__registration */
    struct dibs__coarse_time begun_at; /* start of the call, for statistics;
                                          here to save space. 0: not counted */
    const char *text; /* FORCE: the owner as text, instead of owner_id */
    union {
        size_t text_len;
        int64_t value; /* RELEASE, HANDOVER: value of the hold. ACQUIRE of a
                          semaphore: number of permits */
        uint64_t peer_id_hint; /* ACQUIRE of a shared type: owner id of another
                                  local holder; 0: none known */
    };
};

enum dibs__acquire_result {
    RESULT_ACQUIRED,
    RESULT_BUSY,            /* another owner holds it */
    RESULT_OUTER_HOLD_LOST, /* re-entry, but the outer hold is gone */
    RESULT_REFUSED,         /* with an err */
    RESULT_RETRY,           /* not executed, or in doubt: may be retried */
    RESULT_UNDER_REPLICATED /* acquired, but on too few replicas */
};

/* The decoded reply to an ACQUIRE or HANDOVER. */
struct dibs__acquire_outcome {
    enum dibs__acquire_result result;
    dibs_err err;                      /* REFUSED */
    int64_t retry_after_ms;            /* BUSY; < 0: unknown */
    enum dibs__reg_reply registration; /* BUSY, reply to a registration */
    int64_t value;      /* ACQUIRED: value of the hold; 0: none */
    int64_t slot_total; /* ACQUIRED: number of slots; 0: not in the reply */
};

/* One hold of a renewal batch. */
struct dibs__renew_item {
    struct dibs__lock_entry *entry;
    uint64_t owner_id;
    uint64_t hold_number; /* identifies the hold; never reused */
    int64_t value;        /* value of the hold */
    int64_t lease_ms;  /* LEASE_VERIFY_ONLY: only check that the hold exists */
    int64_t max_until; /* the new lease must not end later */
    bool needs_verify; /* the hold needed verification when it was sent */
    int64_t due_at;    /* time of its lease timer */
};

/* For hold_off_ms: the hold stays on the server for another client. */
#define HOLD_OFF_DETACH (-1)

/* For lease_ms: shorter than any TTL, so the renewal changes nothing. */
#define LEASE_VERIFY_ONLY (-1)

/* Keys and arguments of a command. {name}: the lock's name in braces, or the
 * name itself if it has a brace already. */
enum dibs__param {
    PARAM_NAME = 'n',
    PARAM_CHANNEL = 'c',
    PARAM_WAITER_CHANNEL = 'C', /* channel + ":"; the script adds the owner */
    PARAM_CLIENT_CHANNEL = 'B', /* wake-up channel of this client */
    /* Keys prefix:{name}. */
    PARAM_QUEUE = 'q',        /* fair lock: queue of waiters */
    PARAM_QUEUE_SCORES = 's', /* fair lock: when each waiter is evicted */
    PARAM_UNRESPONSIVE = 'i', /* fair lock: waiters that do not react */
    PARAM_GATE = 'g',         /* a writer waits */
    PARAM_LAST_TOKEN = 'K',   /* fencing token */
    PARAM_HOLDER_VALUE = 'Y', /* value published by the holder */
    /* Keys {name}:suffix. */
    PARAM_PERMITS = 'z', /* acquired permits by expiry */
    PARAM_SLOTS = 'S',
    PARAM_LEDGER = 'd', /* of a semaphore */
    /* Keys {name}:owner:rwlock_timeout:number. */
    PARAM_READ_KEY = 'r',
    PARAM_READ_KEY_HEAD = 'b', /* the part before the owner */
    PARAM_READ_KEY_TAIL = 'e', /* the part between owner and number */
    /* Owners; empty if there is none. */
    PARAM_OWNER = 'o',
    PARAM_READER = 'O', /* owner without ":write" */
    PARAM_NEXT_OWNER = 'N',
    PARAM_OTHER_OWNER = 'h', /* args.other_id */
    PARAM_PEER = 'j',        /* args.peer_id_hint */
    /* Permits. */
    PARAM_PERMIT_ID = 'p', /* of the owner */
    PARAM_NEXT_PERMIT_ID = 'P',
    PARAM_PERMIT_HEX = 'x',   /* permit id as hex, or args.text */
    PARAM_LEDGER_ENTRY = 'E', /* "permits:owner" */
    PARAM_SLOT = 'v',         /* or empty */
    /* Numbers: fields of struct dibs__command_args, */
    PARAM_TARGET_COUNT = 't',
    PARAM_LEASE = 'l',
    PARAM_HOLD_OFF = 'k',
    PARAM_VALUE = 'V',
    PARAM_ENQUEUE = 'y',
    PARAM_ALL = 'a',
    PARAM_FIRST = 'f',
    PARAM_COUNT = 'u',
    /* and others. */
    PARAM_GATE_TTL = 'G', /* 0: the gate is not set */
    PARAM_SMALL_TOKENS = 'w',
    PARAM_FAIR_WAIT = 'W',
    PARAM_FAIR_CALL = 'F',
    PARAM_HOLDERS_MAX = 'm', /* limit of a reply to HOLDERS */
    PARAM_INFO_MAX = 'M',    /* limit of holders in a reply to INFO */
    PARAM_SLOT_TOTAL = 'T',
    PARAM_WANT_SLOT_TOTAL = 'Q', /* 1: the reply shall have the slot total */
    PARAM_ZERO = '0',
    PARAM_ONE = '1',
    PARAM_REGISTRATION = 'H', /* text of args.registration */
    PARAM_PUBLISH = '*'       /* names of the publish commands; always last */
};

/* A list of parameters, terminated by 0. */
#define DIBS__PARAMS(...) ((const char[]){__VA_ARGS__, 0})

/* A command: a script with its keys and arguments, lists of enum dibs__param.
 */
struct dibs__lock_command_spec {
    const struct dibs__script *script; /* NULL: the type lacks this verb */
    const char *keys, *args;
};

struct dibs__lock_type {
    enum dibs__lock_type_id id;
    enum dibs__key_layout layout;
    const char *channel;      /* prefix of the channel's name */
    const char *owner_suffix; /* appended to the owner's name on the server */
    /* Of a read-write lock: the other mode. An info about this mode reports a
     * lock that is held in the other mode as not locked, as Redisson does.
     * Other types: NONE. */
    dibs_mode other_mode;
    enum dibs__retry_policy retry_policy; /* which waiters retry */
    bool has_server_queue; /* the server keeps a queue of waiters and wakes them
                            */
    bool shared;           /* any number of owners may hold it at once */
    bool is_counting;      /* a limited number of owners may hold it at once;
                              waiters are served in order of arrival */
    bool always_braces_channel; /* the channel is prefix{name} even if the name
                                   has a brace */
    char batch_code;        /* code in multi_acquire.lua; 0: not batchable */
    char batch_key;         /* one more key of a batch; 0: none */
    const char *renew_keys; /* keys of one hold */
    char renew_arg; /* argument that identifies the hold; 0: its owner */
    const struct dibs__script *renew_script; /* types with the same script share
                                                renewal batches */
    struct dibs__lock_command_spec command[VERB_COUNT];
    const char *register_args; /* more arguments of an ACQUIRE that registers;
                                  before the publish commands */
    const char *shorten_args;  /* more arguments of HANDOVER, if shortens_ttl */
    unsigned
        acquired_reply_types; /* reply types that mean "acquired", a bit each */
    unsigned busy_reply_types; /* all other valid reply types */
    /* Decodes the reply to an ACQUIRE or HANDOVER. */
    void (*decode)(enum dibs__lock_command verb,
                   const struct dibs__reply *reply,
                   struct dibs__acquire_outcome *out);
    /* NULL: those of lock_waiter.c. */
    const struct dibs__wait_queue_ops *wait_ops;
    /* Returns the pause of a waiter after the reply "busy" with this TTL; < 0:
     * unknown. */
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

/* Returns whether the type has a script for that verb. */
static inline bool dibs__lock_type_has(const struct dibs__lock_type *type,
                                       enum dibs__lock_command verb)
{
    return type->command[verb].script != NULL;
}

/* ---- lock_type.c ------------------------------------------------------- */

/* Appends the command of a verb that the type has. whole: EVAL with the text of
 * the script, instead of its hash. */
void dibs__lock_command_encode(enum dibs__lock_command verb,
                               const struct dibs__command_args *args,
                               struct dibs__buf *out, bool whole);
/* Appends the command that renews these holds. Their types have the same
 * renew_script. */
void dibs__renew_command_encode(const struct dibs__renew_item *items,
                                size_t count, struct dibs__buf *out,
                                bool whole);
/* Appends tracked reads of their keys, so that the server sends an invalidation
 * when a key changes. Returns the number of commands: in a cluster one for each
 * hold, otherwise one. */
unsigned dibs__tracking_reads_encode(const struct dibs__renew_item *items,
                                     size_t count, struct dibs__buf *out);
/* Appends a parameter, of enum dibs__param. */
void dibs__param_write(char param, const struct dibs__command_args *args,
                       struct dibs__buf *out);

/* Writes the owner's name on the server. Returns its length. */
size_t dibs__owner_text(const struct dibs__lock_entry *entry, uint64_t owner_id,
                        char buf[DIBS_OWNER_MAX]);
/* Appends the name of the wake-up channel of this client. */
void dibs__client_channel(const struct dibs__lock_entry *entry,
                          struct dibs__buf *out);
/* Appends the argument "{name}:" + one + two, the form in which Redisson names
 * keys beside a lock's. */
void dibs__suffix_arg(struct dibs__buf *out,
                      const struct dibs__lock_entry *entry, const char *one,
                      const char *two);
/* Returns the number of arguments that name the publish commands of a script; 0
 * unless in a cluster. */
size_t dibs__publish_arg_count(const struct dibs__lock_entry *entry);

/* For types whose scripts reply nil if acquired. */
void dibs__decode_plain_reply(enum dibs__lock_command verb,
                              const struct dibs__reply *reply,
                              struct dibs__acquire_outcome *out);
#define DIBS__PLAIN_REPLIES                                                    \
    .acquired_reply_types = 1u << REPLY_NIL,                                   \
    .busy_reply_types = 1u << REPLY_NUM, .decode = dibs__decode_plain_reply
/* For types whose scripts reply the value of the hold as text if acquired, and
 * nil for a re-entry. */
void dibs__decode_numbered_reply(enum dibs__lock_command verb,
                                 const struct dibs__reply *reply,
                                 struct dibs__acquire_outcome *out);
#define DIBS__NUMBERED_REPLIES                                                 \
    .acquired_reply_types = 1u << REPLY_NIL | 1u << REPLY_TEXT,                \
    .busy_reply_types = 1u << REPLY_NUM, .decode = dibs__decode_numbered_reply
/* Returns the decimal number at the start of a text, at most INT64_MAX. */
int64_t dibs__parse_number(const char *text, const char *end);
/* Returns the time until the holder's lease ends, at most two seconds with
 * jitter. */
int64_t dibs__retry_delay_default(const struct dibs__lock_entry *entry,
                                  int64_t busy_ms);
/* All types reply to INFO and HOLDERS in the same format. */
#define DIBS__INFO                                                             \
    {                                                                          \
        &dibs__script_mutex_info, DIBS__PARAMS(PARAM_NAME),                    \
            DIBS__PARAMS(PARAM_HOLDER_VALUE)                                   \
    }
#define DIBS__HOLDERS                                                          \
    {                                                                          \
        &dibs__script_holders, DIBS__PARAMS(PARAM_NAME),                       \
            DIBS__PARAMS(PARAM_READ_KEY_HEAD, PARAM_READ_KEY_TAIL,             \
                         PARAM_HOLDERS_MAX)                                    \
    }

#endif
