/* SPDX-License-Identifier: MIT
 *
 * snapshot.c - all locks at one time, and the changes between two snapshots.
 *
 * A snapshot is a scan of the server, as for ls; or info of one lock. The
 * server does not know since when a lock is held, nor how a hold ended. A
 * comparison of two snapshots shows it: both are sorted by name.
 *
 * Lost    A hold that is gone was lost if its lease, as it was last seen, had
 *         run out by then. A lease that is shorter than the pause between two
 *         looks is renewed in between, so the end is unknown: it counts only
 *         if two looks saw the same end.
 *
 * Thread  Any, one at a time for each snapshot.
 */
#include "inspect/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "exit_codes.h"
#include "util/time.h"

#define SAME_END_MS 60 /* two looks do not take the same time */

int snapshot_interval(const struct args *a, const char *command,
                      int64_t usual_ms, int64_t *every_ms)
{
    char right[64];

    *every_ms = a->every_ms == NOT_GIVEN ? usual_ms : a->every_ms;
    if (*every_ms >= EVERY_MIN_MS)
        return EXIT_FINE;
    snprintf(right, sizeof right, "dibs %s --every 1s", command);
    return args_wrong(command_find(command), right,
                      "--every: shorter than %d ms", EVERY_MIN_MS);
}

/* ---- reading ----------------------------------------------------------- */

static bool add_sighting(const char *name, size_t len,
                         const dibs_lock_info *info, void *arg)
{
    struct snapshot *v = arg;

    if (v->n == v->room) {
        size_t room = v->room > 0 ? 2 * v->room : 64;
        struct snapshot_row *rows = reallocarray(v->rows, room, sizeof *rows);

        v->failed |= !rows;
        v->rows = rows ? rows : v->rows;
        v->room = rows ? room : v->room;
    }
    char *copy = v->failed ? NULL : malloc(len + 1);
    v->failed |= !copy;
    if (v->failed)
        return false;
    memcpy(copy, name, len);
    copy[len] = '\0';
    int64_t now = time_now();
    v->rows[v->n++] = (struct snapshot_row){
        .s = {.name = copy, .len = len, .info = *info},
        .at = now,
        .ends = info->ttl_ms < 0 ? TIME_NEVER : now + info->ttl_ms,
    };
    return true;
}

static int name_order(const struct lock_row *x, const struct lock_row *y)
{
    int way = memcmp(x->name, y->name, x->len < y->len ? x->len : y->len);

    return way != 0 ? way : (x->len > y->len) - (x->len < y->len);
}

static int row_order(const void *a, const void *b)
{
    const struct snapshot_row *x = a, *y = b;

    return name_order(&x->s, &y->s);
}

/* A scan of a changing server may see a lock twice. */
static void drop_doubles(struct snapshot *v)
{
    size_t n = 0;

    for (size_t i = 1; i < v->n; i++) {
        if (row_order(&v->rows[n], &v->rows[i]) == 0)
            free(v->rows[i].s.name);
        else
            v->rows[++n] = v->rows[i];
    }
    v->n = v->n > 0 ? n + 1 : 0;
}

dibs_err snapshot_read(dibs_client *c, const char *pattern,
                       struct snapshot *out)
{
    *out = (struct snapshot){.rows = NULL};
    dibs_err err = dibs_client_list(c, pattern, add_sighting, out);

    if (err == DIBS_OK && out->failed)
        err = DIBS_ERR_NOMEM;
    if (err != DIBS_OK) {
        snapshot_clear(out);
        return err;
    }
    if (out->n > 0)
        qsort(out->rows, out->n, sizeof *out->rows, row_order);
    drop_doubles(out);
    return DIBS_OK;
}

dibs_err snapshot_read_one(struct lock_query *k, const char *name,
                           struct snapshot *out)
{
    struct lock_row s = {.name = (char *)name, .info = DIBS_LOCK_INFO_INIT};
    dibs_err err = query_info(k, &s);

    *out = (struct snapshot){.rows = NULL};
    if (err == DIBS_OK && s.info.locked)
        add_sighting(name, strlen(name), &s.info, out);
    return out->failed ? DIBS_ERR_NOMEM : err;
}

void snapshot_clear(struct snapshot *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->rows[i].s.name);
    free(v->rows);
    *v = (struct snapshot){.rows = NULL};
}

struct snapshot_row *snapshot_find(struct snapshot *v, const struct lock_row *s)
{
    struct snapshot_row key = {.s = *s};

    return v->n > 0 ? bsearch(&key, v->rows, v->n, sizeof key, row_order)
                    : NULL;
}

/* Of the same lock, and the same owner. */
static void inherit_who(const struct snapshot *before, struct snapshot *v)
{
    for (size_t i = 0, k = 0; i < before->n && k < v->n;) {
        const struct snapshot_row *b = &before->rows[i];
        struct snapshot_row *x = &v->rows[k];
        int way = name_order(&b->s, &x->s);

        if (way == 0 && strcmp(b->s.info.owner, x->s.info.owner) == 0) {
            x->asked = b->asked;
            x->s.who = b->s.who;
            x->s.who.age_ms += x->at - b->at;
        }
        i += way <= 0;
        k += way >= 0;
    }
}

void snapshot_name_owners(dibs_client *c, const struct snapshot *before,
                          struct snapshot *v)
{
    const char **owners = calloc(v->n + 1, sizeof *owners);
    size_t *place = calloc(v->n + 1, sizeof *place);
    struct who *found = calloc(v->n + 1, sizeof *found);
    size_t n = 0;

    inherit_who(before, v);
    for (size_t i = 0; owners && place && i < v->n; i++)
        if (!v->rows[i].asked) {
            v->rows[i].asked = true;
            owners[n] = v->rows[i].s.info.owner;
            place[n++] = i;
        }
    if (owners && place && found && n > 0)
        who_ask(c, owners, found, n);
    for (size_t i = 0; owners && place && found && i < n; i++)
        v->rows[place[i]].s.who = found[i];
    free(owners);
    free(place);
    free(found);
}

/* ---- comparing --------------------------------------------------------- */

/* Had its lease run out by that time, for all that was seen of it? */
static bool ran_out(const struct snapshot_row *before, int64_t now)
{
    return before->not_renewed && before->ends <= now;
}

static bool same_owner(const struct snapshot_row *a,
                       const struct snapshot_row *b)
{
    return strcmp(a->s.info.owner, b->s.info.owner) == 0 &&
           a->s.info.mode == b->s.info.mode;
}

static size_t count_waiters(const struct snapshot_row *x)
{
    return x->s.queued + x->s.waiting;
}

/* Of one lock that both looks saw. */
static void carry_over(const struct snapshot_row *before,
                       struct snapshot_row *after)
{
    after->since = before->since;
    after->from_start = before->from_start;
    after->changes = before->changes;
    if (!after->s.counted) { /* not this time: as it was */
        after->s.counted = before->s.counted;
        after->s.queued = before->s.queued;
        after->s.waiting = before->s.waiting;
    }
    after->not_renewed =
        before->ends != TIME_NEVER && after->ends <= before->ends + SAME_END_MS;
}

static void compare_both(const struct snapshot_row *before,
                         struct snapshot_row *after, snapshot_fn *fn, void *arg)
{
    if (!same_owner(before, after)) {
        after->since = after->at;
        after->changes = before->changes + 1;
        if (ran_out(before, after->at))
            fn(CHANGE_LOST, before, NULL, arg);
        fn(CHANGE_TAKEN, before, after, arg);
        return;
    }
    carry_over(before, after);
    if (before->s.info.owners != after->s.info.owners)
        fn(CHANGE_HOLDERS, before, after, arg);
    if (before->s.info.published != after->s.info.published)
        fn(CHANGE_VALUE, before, after, arg);
    if (before->s.counted && after->s.counted &&
        count_waiters(after) > count_waiters(before))
        fn(CHANGE_QUEUE, before, after, arg);
}

static void compare_new(struct snapshot_row *after, bool first, snapshot_fn *fn,
                        void *arg)
{
    after->since = after->at;
    after->from_start = first;
    after->changes = !first;
    fn(first ? CHANGE_HELD : CHANGE_TAKEN, NULL, after, arg);
    if (!first && after->s.counted && count_waiters(after) > 0)
        fn(CHANGE_QUEUE, NULL, after, arg);
}

void snapshot_compare(const struct snapshot *before, struct snapshot *after,
                      bool first, snapshot_fn *fn, void *arg)
{
    int64_t now = time_now();
    size_t i = 0, k = 0;

    while (i < before->n || k < after->n) {
        const struct snapshot_row *b = i < before->n ? &before->rows[i] : NULL;
        struct snapshot_row *x = k < after->n ? &after->rows[k] : NULL;
        int way = !b ? 1 : !x ? -1 : name_order(&b->s, &x->s);

        if (way == 0)
            compare_both(b, x, fn, arg);
        else if (way < 0)
            fn(ran_out(b, now) ? CHANGE_LOST : CHANGE_FREE, b, NULL, arg);
        else
            compare_new(x, first, fn, arg);
        i += way <= 0;
        k += way >= 0;
    }
}
