/* SPDX-License-Identifier: MIT
 *
 * type_rw.c - the two halves of the read-write lock.
 *
 * One hash for both, with a field `mode`: read or write. A reader is a field
 * like that of a plain lock, and beside it a read key whose life is the
 * reader's lease: readers come and go, so the hash's own TTL cannot tell whose
 * is over. A writer is a field with ":write" behind its name. Redisson keeps a
 * read key for each of a reader's holds, numbered from 1; it is content with
 * one that lives, so here number 1 serves all of them. Whether somebody else's
 * reader lives is asked of all its numbers.
 *
 * A writer that waits leaves a key, the gate, that keeps new readers of ours
 * out. It lives only a little longer than a writer pauses between two
 * questions, so a dead writer keeps no reader out for long. Redisson's readers
 * do not know of it.
 *
 * Readers need no hand-over, and the server knows of no reader that waits. A
 * writer does not hand over, either: its owner may be reading, too.
 */
#include "lock/core/lock_entry.h"
#include "lock/type/lock_type.h"

#define CHANNEL "redisson_rwlock"
#define PAUSE_MS                                                               \
    1000 /* so that a writer asks again before its gate is over                \
          */

const struct dibs__lock_type dibs__type_read = {
    .id = TYPE_READ,
    .layout = LAYOUT_RW,
    .channel = CHANNEL,
    .owner_suffix = "",
    .other_half = DIBS_MODE_WRITE,
    .retry_policy = RETRY_HEAD_THEN_ALL,
    .shared = true,
    .renew_keys = "nr",
    .renew_script = &dibs__script_read_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_read_acquire, "nrg", "otlhj"},
            [VERB_RELEASE] = {&dibs__script_read_release, "nrc", "otbeh*"},
            [VERB_FORCE] = {&dibs__script_read_force, "nrc", "obea*"},
            [VERB_INFO] = DIBS__INFO,
            [VERB_HOLDERS] = DIBS__HOLDERS,
        },
    DIBS__PLAIN_REPLIES,
    .retry_delay = dibs__retry_delay_default,
};

static int64_t write_pause(const struct dibs__lock_entry *entry,
                           int64_t busy_ms)
{
    return dibs__min(dibs__retry_delay_default(entry, busy_ms), PAUSE_MS);
}

const struct dibs__lock_type dibs__type_write = {
    .id = TYPE_WRITE,
    .layout = LAYOUT_RW,
    .channel = CHANNEL,
    .owner_suffix = ":write",
    .other_half = DIBS_MODE_READ,
    .retry_policy = RETRY_HEAD_ONLY,
    .batch_code = 'w',
    .batch_key = 'g',
    .renew_keys = "n",
    .renew_script = &dibs__script_mutex_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_write_acquire, "nrg", "otlGbe"},
            [VERB_RELEASE] = {&dibs__script_write_release, "ncg", "otk*"},
            [VERB_FORCE] = {&dibs__script_write_leave, "ncg", "O1*"},
            [VERB_LEAVE] = {&dibs__script_write_leave, "ncg", "O0*"},
            [VERB_DEREGISTER] = {&dibs__script_wait_leave, "n", "cBa*"},
            [VERB_INFO] = DIBS__INFO,
            [VERB_HOLDERS] = DIBS__HOLDERS,
        },
    .register_args = "cBH",
    DIBS__PLAIN_REPLIES,
    .retry_delay = write_pause,
};
