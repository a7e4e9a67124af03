/* SPDX-License-Identifier: MIT
 *
 * key_invalidation.c - somebody changed the key of a lock that is held here.
 *
 * Thread  io.
 * Locks   client.mu to find a line; line.mu, one line at a time.
 *
 * How     The server tells the key, not what happened to it. So the holds by
 *         that key are looked at, at once (renewal.c), and the answer says
 *         whether one is lost. A message about a key by which nothing is held
 *         says nothing: our own release may have sent it.
 *
 * Trouble Holders of other clients change the key of a lock that can be shared,
 *         by each acquire, renewal and release. And a server that can keep few
 *         keys in mind forgets some, which looks like a change. So each alarm
 *         of a line makes the next one wait for longer, up to half of the time
 *         between two renewals, until it was quiet for a while.
 */
#include "lock/core/lock_manager.h"

#include <string.h>

#define PAUSE_FIRST_MS 20
#define PAUSE_PART     6  /* of the lease: the longest */
#define ALARMS_MAX     40 /* more are not counted: the pause is the longest */
#define QUIET_TIMES    8 /* so many pauses without an alarm: all is forgotten */
#define UUID_LEN       36
#define READ_MARK      ":rwlock_timeout:"

/* ---- a line ------------------------------------------------------------ */

/* How long the one behind the last is put off: twice as long each time. */
static int64_t alarm_pause(const struct dibs__lock_entry *entry)
{
    int64_t longest = dibs__entry_client(entry)->lease_ms / PAUSE_PART;

    return entry->invalidations < 2
               ? PAUSE_FIRST_MS
               : dibs__min((int64_t)PAUSE_FIRST_MS
                               << (entry->invalidations - 1),
                           longest);
}

/* When an alarm that came now is answered. */
static int64_t alarm_time(struct dibs__lock_entry *entry, int64_t now)
    REQUIRES(line->mu)
{
    int64_t quiet = dibs__max(alarm_pause(entry), PAUSE_FIRST_MS) * QUIET_TIMES;

    if (now - entry->next_check_ms > quiet)
        entry->invalidations = 0;
    if (entry->invalidations < ALARMS_MAX)
        entry->invalidations++;
    int64_t at = dibs__max(now, entry->next_check_ms);
    entry->next_check_ms = at + alarm_pause(entry);
    return at;
}

/* Is the hold meant by a message? One that is being looked at may have been
 * changed behind the look. */
static bool is_alarmed(const struct dibs__hold *h, bool all)
{
    return h->state != HOLD_LOST && h->state != HOLD_ENDING &&
           (all || h->tracked || h->in_renewal_batch);
}

static void alarm_line(struct dibs__lock_entry *entry, bool all)
{
    int64_t now = dibs__now_ms(), at = all ? now : 0;

    dibs__lock(&entry->mu);
    for (struct dibs__hold *h = NULL; (h = dibs__hold_next(entry, h));) {
        if (!is_alarmed(h, all))
            continue;
        if (!at)
            at = alarm_time(entry, now);
        h->tracked = false;
        h->invalidated = true;
        if (!h->in_renewal_batch)
            dibs__hold_schedule(entry, h, at);
    }
    dibs__unlock(&entry->mu);
}

/* ---- which line -------------------------------------------------------- */

static void alarm_named(struct dibs__lock_manager *manager, unsigned kinds,
                        const char *name, size_t len)
{
    for (unsigned id = 0; len > 0 && id < TYPE_COUNT; id++) {
        struct dibs__lock_entry *entry =
            kinds & 1u << id ? dibs__entry_find(manager, id, name, len) : NULL;
        if (!entry)
            continue;
        alarm_line(entry, false);
        dibs__entry_unref(entry);
    }
}

/* The name of a lock as it is in a key beside it: in braces, unless it had some
 * already. */
static void alarm_tagged(struct dibs__lock_manager *manager,
                         enum dibs__lock_type_id kind, const char *tag,
                         size_t len)
{
    alarm_named(manager, 1u << kind, tag, len);
    if (len > 2 && tag[0] == '{' && tag[len - 1] == '}')
        alarm_named(manager, 1u << kind, tag + 1, len - 2);
}

static size_t length_before(const char *key, size_t len, const char *suffix)
{
    size_t n = strlen(suffix);

    return len > n && memcmp(key + len - n, suffix, n) == 0 ? len - n : 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Of a reader's key, "tag:UUID:number:rwlock_timeout:number": how long the tag
 * is; 0: it is none. */
static size_t reader_tag(const char *key, size_t len)
{
    while (len > 0 && is_digit(key[len - 1]))
        len--;
    len = length_before(key, len, READ_MARK);
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
    const unsigned named = 1u << TYPE_MUTEX | 1u << TYPE_FAIR |
                           1u << TYPE_FENCED | 1u << TYPE_READ |
                           1u << TYPE_WRITE | 1u << TYPE_SEMAPHORE;

    alarm_named(manager, named, key, len);
    alarm_tagged(manager, TYPE_READ, key, reader_tag(key, len));
    alarm_tagged(manager, TYPE_SLOTS, key, length_before(key, len, ":timeout"));
    alarm_tagged(manager, TYPE_SEMAPHORE, key,
                 length_before(key, len, ":dibs_held"));
}

void dibs__on_all_keys_invalidated(struct dibs__lock_manager *manager,
                                   dibs__meant *meant, const void *arg)
{
    for (struct dibs__lock_entry *l = NULL; (l = dibs__entry_next(manager, l));)
        if (meant(arg, l->hash_slot))
            alarm_line(l, true);
}
