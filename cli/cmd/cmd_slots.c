/* SPDX-License-Identifier: MIT
 *
 * cmd_slots.c - dibs slots: how many may hold a lock at once.
 *
 *     dibs slots set db 3
 *     dibs run -N 3 db -- ./import
 *     dibs slots info db
 *
 * The first run with -N says how many there are; after that the server's number
 * counts, until set changes it. With fewer slots than are held, no holder loses
 * one. info is that of any lock.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <inttypes.h>

#include "args/lock_type.h"
#include "cmd/object_client.h"
#include "exit_codes.h"

int slots_set(const struct args *a)
{
    const struct out_fact facts[] = {{"slots", NULL, a->number},
                                     {NULL, NULL, 0}};
    dibs_lock *l = NULL;
    struct object o;
    int code = object_open(&o, a);

    if (code == EXIT_FINE)
        code = kind_refuse(o.c, a->words[0], DIBS_KIND_SLOTS);
    if (code == EXIT_FINE) {
        dibs_err err = dibs_slots_lock_new(o.c, a->words[0], a->number, &l);
        if (err == DIBS_OK)
            err = dibs_slots_set(l, a->number);
        code = err == DIBS_OK ? object_answer(a, facts, NULL, EXIT_FINE)
                              : object_failed(a, err);
        if (err == DIBS_OK)
            out_tell(OUT_INFO, "set", "%s has %" PRId64 " slot%s now",
                     a->words[0], a->number, a->number == 1 ? "" : "s");
    }
    dibs_lock_free(l);
    object_close(&o);
    return code;
}

int slots_info(const struct args *a)
{
    struct args mine = *a;

    mine.slots = 1; /* an unused number counts as slots */
    return cmd_info(&mine);
}
