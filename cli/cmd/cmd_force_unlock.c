/* SPDX-License-Identifier: MIT
 *
 * cmd_force_unlock.c - dibs force-unlock: takes a lock away from its holder.
 *
 * It names the holder that it means. If another owner takes the lock between
 * our look and our call, that holder keeps it. Of a lock with slots the user
 * must say which of the holders is meant.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <stdlib.h>
#include <string.h>

#include "exit_codes.h"
#include "inspect/lock_query.h"

static void print_forced(const struct args *a, bool freed, const char *owner)
{
    struct json j;

    if (a->json) {
        json_open(&j, stdout);
        json_text(&j, "name", a->words[0]);
        json_bool(&j, "freed", freed);
        json_text(&j, "owner", owner);
        json_close(&j);
        putchar('\n');
        return;
    }
    char *name = out_printable(a->words[0], strlen(a->words[0]));
    char *holder = owner ? out_printable(owner, strlen(owner)) : NULL;
    if (freed)
        printf("%s was held by %s and is free now\n", name ? name : "it",
               holder ? holder : "somebody");
    else if (!owner)
        printf("%s was not held\n", name ? name : "it");
    free(holder);
    free(name);
}

/* Each kind has its own way to wake its waiters. */
static dibs_err force_kind(const struct args *a, struct lock_query *k,
                           const dibs_lock_info *info, bool *freed)
{
    const char *name = a->words[0];
    dibs_lock *l = NULL;
    dibs_err err = DIBS_OK;

    if (info->mode == DIBS_MODE_READ)
        err = dibs_read_lock_new(k->c, name, &l);
    else if (info->mode == DIBS_MODE_WRITE)
        err = dibs_write_lock_new(k->c, name, &l);
    else if (info->waiters == 0) /* the queue is empty */
        err = dibs_lock_new(k->c, name, &l);
    if (err == DIBS_OK)
        err = dibs_lock_force_release_owner(l ? l : k->l, info->owner, freed);
    dibs_lock_free(l);
    return err;
}

/* What only looks like a lock. EXIT_FINE: it is one. */
static int refuse_force(const struct args *a, const dibs_lock_info *info)
{
    const char *why =
        info->kind == DIBS_KIND_SEMAPHORE
            ? "a semaphore: permits come back when their leases end; see 'dibs "
              "sem add'"
        : info->kind == DIBS_KIND_LATCH   ? "a latch: 'dibs latch set NAME 0' "
                                            "opens it"
        : info->kind == DIBS_KIND_COUNTER ? "a number that nobody holds"
        : info->kind == DIBS_KIND_SLOTS && !a->if_owner
            ? "a lock with slots: say which holder, by --if-owner"
            : NULL;

    if (!why || (info->kind == DIBS_KIND_SLOTS && !info->locked))
        return EXIT_FINE;
    out_tell(OUT_ERROR, "usage", "%s is %s; nothing done", a->words[0], why);
    return EXIT_USAGE;
}

/* One of many, by its name. */
static int force_slot(const struct args *a, struct lock_query *k)
{
    bool freed = false;
    dibs_err err = dibs_lock_force_release_owner(k->l, a->if_owner, &freed);

    if (err != DIBS_OK)
        return query_failed(a->words[0], err);
    if (freed) {
        print_forced(a, true, a->if_owner);
        return EXIT_FINE;
    }
    out_tell(OUT_ERROR, "busy", "%s has no slot of %s: nothing done",
             a->if_owner, a->words[0]);
    return EXIT_BUSY;
}

/* Ends the hold, if the owner that is meant has it. */
static int force_unlock(const struct args *a, struct lock_query *k)
{
    struct lock_row s = {.name = (char *)a->words[0],
                         .info = DIBS_LOCK_INFO_INIT};
    const char *meant = a->if_owner;
    bool freed = false;
    dibs_err err = query_info(k, &s);
    const dibs_lock_info *info = &s.info;

    if (err != DIBS_OK)
        return query_failed(a->words[0], err);
    int code = refuse_force(a, info);
    if (code != EXIT_FINE)
        return code;
    if (info->kind == DIBS_KIND_SLOTS && info->locked)
        return force_slot(a, k);
    if (info->locked && (!meant || strcmp(meant, info->owner) == 0)) {
        err = force_kind(a, k, info, &freed);
        if (err != DIBS_OK)
            return query_failed(a->words[0], err);
    }
    print_forced(a, freed, info->locked ? info->owner : NULL);
    if (freed || !info->locked)
        return EXIT_FINE;
    out_tell(OUT_ERROR, "busy",
             meant ? "%s is held by %s: nothing done"
                   : "%s is not held by %s any more: nothing done",
             a->words[0], info->owner);
    return EXIT_BUSY;
}

int cmd_force_unlock(const struct args *a)
{
    struct lock_query k;

    if (!a->yes)
        return args_wrong(command_find("force-unlock"),
                          "dibs force-unlock --yes NAME",
                          "the holder of '%s' loses it while it works; add "
                          "--yes if you want that",
                          a->words[0]);
    int code = query_open_lock(a, &k);
    if (code == EXIT_FINE && k.l)
        code = force_unlock(a, &k);
    else if (code == EXIT_FINE)
        print_forced(a, false, NULL);
    query_close(&k);
    return out_finish(code);
}
