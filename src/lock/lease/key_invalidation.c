/* SPDX-License-Identifier: MIT
 *
 * key_invalidation.c - handles CLIENT TRACKING invalidations for held locks.
 *
 * Thread  io.
 * Locks   client.mu to find an entry; entry.mu, one entry at a time.
 *
 * How     An invalidation names a key, not the change. So the holds with that
 *         key are verified at once (renewal.c); the reply shows whether one is
 *         lost. An invalidation of a key without holds is ignored: a release
 *         of this client may have caused it.
 *
 * Backoff Other clients change the key of a shared lock with each acquire,
 *         renewal and release. A server with a small tracking table evicts
 *         keys, which also sends an invalidation. So each invalidation of an
 *         entry doubles the delay of the next verification, up to a sixth of
 *         the lease, which is half of the renewal interval. The delay is reset
 *         after a time without invalidations.
 */
#include "lock/core/lock_manager.h"

#include <string.h>

#define DELAY_MIN_MS  20
#define DELAY_MAX_DIV 6 /* the longest delay: lease / DELAY_MAX_DIV */
#define INVALIDATIONS_MAX                                                      \
    40                  /* limit of the count; the delay is the longest        \
                         */
#define QUIET_DELAYS  8 /* delays without an invalidation until the reset */
#define UUID_LEN      36
#define READ_KEY_MARK ":rwlock_timeout:"

/* ---- an entry ---------------------------------------------------------- */

/* Returns the time from this verification to the next; doubles each time. */
static int64_t recheck_delay(const struct dibs__lock_entry *entry)
{
    int64_t longest = dibs__entry_client(entry)->lease_ms / DELAY_MAX_DIV;

    return entry->invalidations < 2
               ? DELAY_MIN_MS
               : dibs__min((int64_t)DELAY_MIN_MS << (entry->invalidations - 1),
                           longest);
}

/* Returns the time to verify the holds after an invalidation at `now`. */
static int64_t recheck_time(struct dibs__lock_entry *entry, int64_t now)
    REQUIRES(entry->mu)
{
    int64_t quiet =
        dibs__max(recheck_delay(entry), DELAY_MIN_MS) * QUIET_DELAYS;

    if (now - entry->next_check_ms > quiet)
        entry->invalidations = 0;
    if (entry->invalidations < INVALIDATIONS_MAX)
        entry->invalidations++;
    int64_t at = dibs__max(now, entry->next_check_ms);
    entry->next_check_ms = at + recheck_delay(entry);
    return at;
}

/* Returns whether a hold must be verified. If it is in a renewal batch, the
 * change may have come after the server executed that. */
static bool must_recheck(const struct dibs__hold *h, bool all)
{
    return h->state != HOLD_LOST && h->state != HOLD_ENDING &&
           (all || h->tracked || h->in_renewal_batch);
}

static void recheck_entry(struct dibs__lock_entry *entry, bool all)
{
    int64_t now = dibs__now_ms(), at = all ? now : 0;

    dibs__lock(&entry->mu);
    for (struct dibs__hold *h = NULL; (h = dibs__hold_next(entry, h));) {
        if (!must_recheck(h, all))
            continue;
        if (!at)
            at = recheck_time(entry, now);
        h->tracked = false;
        h->invalidated = true;
        if (!h->in_renewal_batch)
            dibs__hold_schedule(entry, h, at);
    }
    dibs__unlock(&entry->mu);
}

/* ---- from key to entry ------------------------------------------------- */

static void recheck_named(struct dibs__lock_manager *manager, unsigned types,
                          const char *name, size_t len)
{
    for (unsigned id = 0; len > 0 && id < TYPE_COUNT; id++) {
        struct dibs__lock_entry *entry =
            types & 1u << id ? dibs__entry_find(manager, id, name, len) : NULL;
        if (!entry)
            continue;
        recheck_entry(entry, false);
        dibs__entry_unref(entry);
    }
}

/* tag: "{name}" as in keys beside the lock's: name in braces, or the name
 * itself if it has a brace. So both are tried. */
static void recheck_tagged(struct dibs__lock_manager *manager,
                           enum dibs__lock_type_id type, const char *tag,
                           size_t len)
{
    recheck_named(manager, 1u << type, tag, len);
    if (len > 2 && tag[0] == '{' && tag[len - 1] == '}')
        recheck_named(manager, 1u << type, tag + 1, len - 2);
}

static size_t length_without(const char *key, size_t len, const char *suffix)
{
    size_t n = strlen(suffix);

    return len > n && memcmp(key + len - n, suffix, n) == 0 ? len - n : 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns the length of the tag in a read key,
 * "tag:UUID:number:rwlock_timeout:number"; 0: it is no read key. */
static size_t reader_tag(const char *key, size_t len)
{
    while (len > 0 && is_digit(key[len - 1]))
        len--;
    len = length_without(key, len, READ_KEY_MARK);
    while (len > 0 && is_digit(key[len - 1]))
        len--;
    return len > UUID_LEN + 2 && key[len - 1] == ':' &&
                   key[len - UUID_LEN - 2] == ':'
               ? len - UUID_LEN - 2
               : 0;
}

void dibs__on_key_invalidated(struct dibs__lock_manager *manager,
                              const char *key, size_t len)
{
    const unsigned by_name = 1u << TYPE_MUTEX | 1u << TYPE_FAIR |
                             1u << TYPE_FENCED | 1u << TYPE_READ |
                             1u << TYPE_WRITE | 1u << TYPE_SEMAPHORE;

    recheck_named(manager, by_name, key, len);
    recheck_tagged(manager, TYPE_READ, key, reader_tag(key, len));
    recheck_tagged(manager, TYPE_SLOTS, key,
                   length_without(key, len, ":timeout"));
    recheck_tagged(manager, TYPE_SEMAPHORE, key,
                   length_without(key, len, ":dibs_held"));
}

void dibs__on_all_keys_invalidated(struct dibs__lock_manager *manager,
                                   dibs__slot_filter *filter, const void *arg)
{
    for (struct dibs__lock_entry *l = NULL; (l = dibs__entry_next(manager, l));)
        if (filter(arg, l->hash_slot))
            recheck_entry(l, true);
}
