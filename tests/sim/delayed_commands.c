/* SPDX-License-Identifier: MIT
 *
 * delayed_commands.c - records commands that servers read long after they were
 * given up. P6 allows the orphans of such commands.
 */
#include "sim/net.h"

#include <stdlib.h>
#include <string.h>

struct sim_delayed {
    struct sim_delayed *next;
    int64_t when;
    char text[]; /* NULs are dots */
};

void sim_lateness_add(struct sim_proc *p, const char *bytes, size_t n)
{
    struct sim_delayed *l = malloc(sizeof *l + n + 1);

    for (size_t i = 0; i < n; i++)
        l->text[i] = bytes[i] ? bytes[i] : '.';
    l->text[n] = '\0';
    l->when = sim_now();
    l->next = p->late;
    p->late = l;
    p->very_late_copy_at = l->when;
}

bool sim_came_late(const struct sim_proc *p, const char *owner, int64_t since)
{
    size_t n = strlen(owner);

    for (const struct sim_delayed *l = p->late; l && l->when >= since;
         l = l->next)
        for (const char *at = l->text; (at = strstr(at, owner)); at += n)
            if (at[n] == '\r')
                return true;
    return false;
}
