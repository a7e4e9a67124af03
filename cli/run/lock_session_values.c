/* SPDX-License-Identifier: MIT
 *
 * lock_session_values.c - what comes with a lock: its token, its slot, the
 * outer runs.
 *
 * The token of an outer hold is known to its own command, and to nobody else:
 * the last one on the server may be of an earlier hold. So a nested run takes
 * it from its environment, if the next run around it holds the lock.
 *
 * Thread  The first one.
 */
#include "run/lock_session.h"

#include <stdlib.h>
#include <string.h>

void grip_note_values(struct grip *g)
{
    if (g->a->fence && dibs_lock_token(g->b.l, g->owner, &g->token) != DIBS_OK)
        g->token = 0;
    if (g->a->slots > 0 &&
        dibs_lock_slot(g->b.l, g->owner, &g->slot) != DIBS_OK)
        g->slot = -1;
    if (g->a->slots > 0)
        bundle_permit(g->owner_text, g->permit);
}

bool grip_nested_values(struct grip *g)
{
    const char *owner = getenv("DIBS_OWNER"), *token = getenv("DIBS_TOKEN");

    if (g->a->slots > 0)
        bundle_permit(g->owner_text, g->permit);
    if (!g->a->fence)
        return true;
    if (owner && token && strcmp(owner, g->owner_text) == 0 &&
        value_count(token, INT64_MAX, &g->token))
        return true;
    out_tell(OUT_ERROR, "usage",
             "%s is held by a dibs run around this command, whose token is not "
             "known here: is it without --fence, or not the next one?",
             g->a->words[0]);
    return false;
}

/* ---- what outer runs hold for us ---------------------------------------- */

bool grip_is_sure(const struct grip *g)
{
    if (g->outer != OUTER_HOLDS || g->lost)
        return false;
    return g->nested || dibs_lock_state(g->b.l, g->owner) == DIBS_HELD;
}

int grip_outer_fd(const struct grip *g)
{
    return g->outer == OUTER_HOLDS ? g->b.outer.fd : -1;
}

void grip_outer_look(struct grip *g)
{
    if (g->outer == OUTER_HOLDS)
        g->outer = outer_state(&g->b.outer);
}

void grip_outer_leave(struct grip *g)
{
    outer_leave(&g->b.outer);
}

const char *grip_outer_text(const struct grip *g)
{
    return g->outer == OUTER_LOST ? "the outer dibs run lost it"
                                  : "the outer dibs run has ended";
}
