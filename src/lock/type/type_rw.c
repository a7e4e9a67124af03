/* SPDX-License-Identifier: MIT
 *
 * type_rw.c - the read-write lock: a lock type for each mode.
 *
 * Keys: one hash for both modes, with a field `mode`: read or write. A reader
 * is a field as in a plain lock, and a read key with the TTL of the reader's
 * lease: the hash has one TTL for all readers, so it cannot show which lease
 * has ended. A writer is a field with the suffix ":write". Redisson keeps a
 * read key for each level of a reader, numbered from 1; one that lives is
 * enough for it, so dibs uses number 1 for all levels, but checks all numbers
 * of a foreign reader.
 *
 * A writer that waits sets a key, the gate, that makes new dibs readers wait.
 * Its TTL is a little longer than a waiting writer's pause between retries, so
 * a dead writer blocks readers for a short time only. Redisson's readers ignore
 * it.
 *
 * Readers need no hand-over, and waiting readers do not register on the server.
 * A writer does not hand over, either: its owner may also hold the read lock.
 */
#include "lock/core/lock_entry.h"
#include "lock/type/lock_type.h"

#define CHANNEL  "redisson_rwlock"
#define PAUSE_MS 1000 /* a writer retries before its gate expires */

const struct dibs__lock_type dibs__type_read = {
    .id = TYPE_READ,
    .layout = LAYOUT_RW,
    .channel = CHANNEL,
    .owner_suffix = "",
    .other_mode = DIBS_MODE_WRITE,
    .retry_policy = RETRY_HEAD_THEN_ALL,
    .shared = true,
    .renew_keys = DIBS__PARAMS(PARAM_NAME, PARAM_READ_KEY),
    .renew_script = &dibs__script_read_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_read_acquire,
                              DIBS__PARAMS(PARAM_NAME, PARAM_READ_KEY,
                                           PARAM_GATE),
                              DIBS__PARAMS(PARAM_OWNER, PARAM_TARGET_COUNT,
                                           PARAM_LEASE, PARAM_OTHER_OWNER,
                                           PARAM_PEER)},
            [VERB_RELEASE] = {&dibs__script_read_release,
                              DIBS__PARAMS(PARAM_NAME, PARAM_READ_KEY,
                                           PARAM_CHANNEL),
                              DIBS__PARAMS(PARAM_OWNER, PARAM_TARGET_COUNT,
                                           PARAM_READ_KEY_HEAD,
                                           PARAM_READ_KEY_TAIL,
                                           PARAM_OTHER_OWNER, PARAM_PUBLISH)},
            [VERB_FORCE] = {&dibs__script_read_force,
                            DIBS__PARAMS(PARAM_NAME, PARAM_READ_KEY,
                                         PARAM_CHANNEL),
                            DIBS__PARAMS(PARAM_OWNER, PARAM_READ_KEY_HEAD,
                                         PARAM_READ_KEY_TAIL, PARAM_ALL,
                                         PARAM_PUBLISH)},
            [VERB_INFO] = DIBS__INFO,
            [VERB_HOLDERS] = DIBS__HOLDERS,
        },
    DIBS__PLAIN_REPLIES,
    .retry_delay = dibs__retry_delay_default,
};

static int64_t write_retry_delay(const struct dibs__lock_entry *entry,
                                 int64_t busy_ms)
{
    return dibs__min(dibs__retry_delay_default(entry, busy_ms), PAUSE_MS);
}

const struct dibs__lock_type dibs__type_write = {
    .id = TYPE_WRITE,
    .layout = LAYOUT_RW,
    .channel = CHANNEL,
    .owner_suffix = ":write",
    .other_mode = DIBS_MODE_READ,
    .retry_policy = RETRY_HEAD_ONLY,
    .batch_code = 'w',
    .batch_key = PARAM_GATE,
    .renew_keys = DIBS__PARAMS(PARAM_NAME),
    .renew_script = &dibs__script_mutex_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_write_acquire,
                              DIBS__PARAMS(PARAM_NAME, PARAM_READ_KEY,
                                           PARAM_GATE),
                              DIBS__PARAMS(PARAM_OWNER, PARAM_TARGET_COUNT,
                                           PARAM_LEASE, PARAM_GATE_TTL,
                                           PARAM_READ_KEY_HEAD,
                                           PARAM_READ_KEY_TAIL)},
            [VERB_RELEASE] = {&dibs__script_write_release,
                              DIBS__PARAMS(PARAM_NAME, PARAM_CHANNEL,
                                           PARAM_GATE),
                              DIBS__PARAMS(PARAM_OWNER, PARAM_TARGET_COUNT,
                                           PARAM_HOLD_OFF, PARAM_PUBLISH)},
            [VERB_FORCE] = {&dibs__script_write_leave,
                            DIBS__PARAMS(PARAM_NAME, PARAM_CHANNEL, PARAM_GATE),
                            DIBS__PARAMS(PARAM_READER, PARAM_ONE,
                                         PARAM_PUBLISH)},
            [VERB_LEAVE_QUEUE] = {&dibs__script_write_leave,
                                  DIBS__PARAMS(PARAM_NAME, PARAM_CHANNEL,
                                               PARAM_GATE),
                                  DIBS__PARAMS(PARAM_READER, PARAM_ZERO,
                                               PARAM_PUBLISH)},
            [VERB_DEREGISTER] = {&dibs__script_wait_leave,
                                 DIBS__PARAMS(PARAM_NAME),
                                 DIBS__PARAMS(PARAM_CHANNEL,
                                              PARAM_CLIENT_CHANNEL, PARAM_ALL,
                                              PARAM_PUBLISH)},
            [VERB_INFO] = DIBS__INFO,
            [VERB_HOLDERS] = DIBS__HOLDERS,
        },
    .register_args =
        DIBS__PARAMS(PARAM_CHANNEL, PARAM_CLIENT_CHANNEL, PARAM_REGISTRATION),
    DIBS__PLAIN_REPLIES,
    .retry_delay = write_retry_delay,
};
