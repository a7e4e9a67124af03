/* SPDX-License-Identifier: MIT
 *
 * group_reason.c - why an operation on several locks failed: which member, and
 * what it said.
 *
 * Thread  any; telling, on the thread that is told.
 * Locks   group.mu.
 *
 * How     A member's operation leaves its reason behind when it ends. What is
 *         only given back because the whole failed leaves none. The first
 *         member whose verdict is that of the whole is the one that is told.
 */
#include "base/mem.h"
#include "group/group.h"

#include <stdio.h>

void dibs__member_op_keep_reason(struct dibs__group_op *group_op,
                                 struct dibs__member_op *m, bool counts)
{
    (void)group_op;
    if (counts) {
        dibs__free(m->why);
        m->why = m->op.why;
    } else {
        dibs__free(m->op.why);
    }
    m->op.why = NULL;
}

static dibs_err verdict_of(const struct dibs__group_op *group_op, size_t i)
{
    if (group_op->releasing)
        return group_op->m[i].part ? group_op->m[i].err : DIBS_OK;
    return group_op->level->members[i].err;
}

/* g->n: none. */
static size_t find_verdict(const struct dibs__group_op *group_op, dibs_err err)
{
    size_t i = 0;

    while (i < group_op->g->n && verdict_of(group_op, i) != err)
        i++;
    return i;
}

/* These come from the caller, not from a member. */
static bool is_own(dibs_err err)
{
    return err == DIBS_OK || err == DIBS_ERR_NOMEM || err == DIBS_ERR_CLOSED ||
           err == DIBS_ERR_CANCELED || err == DIBS_ERR_NOT_OWNER;
}

dibs_err dibs__group_same_server(const struct dibs__group *g, size_t i)
{
    return dibs__reason_set(
        DIBS_ERR_INVALID, "'%.80s' at %s: another member is on the same server",
        g->members[i].line->name, g->members[i].server);
}

/* False: no member is to blame. */
static bool write_reason(struct dibs__group_op *group_op, char *out,
                         size_t size) REQUIRES(group_op->g->mu)
{
    dibs_err err = group_op->err;
    size_t i = is_own(err) ? group_op->g->n : find_verdict(group_op, err);

    if (err == DIBS_ERR_TIMEOUT && i == group_op->g->n) {
        err = DIBS_ERR_BUSY;
        i = find_verdict(group_op, err);
    }
    if (i == group_op->g->n)
        return false;
    const struct dibs__member *member = &group_op->g->members[i];
    const struct dibs__reason *why = group_op->m[i].why;
    if (err == DIBS_ERR_INVALID) {
        dibs__group_same_server(group_op->g, i);
        snprintf(out, size, "%s", dibs_error_text());
    } else if (why && why->err == err) {
        snprintf(out, size, "'%.80s': %s", member->line->name, why->text);
    } else {
        snprintf(out, size, "'%.80s' at %s: %s", member->line->name,
                 member->server, dibs_strerror(err));
    }
    return true;
}

void dibs__group_op_tell_reason(struct dibs__group_op *group_op)
{
    char why[DIBS__REASON_MAX];

    dibs__lock(&group_op->g->mu);
    dibs_err err = group_op->err;
    bool known = write_reason(group_op, why, sizeof why);
    dibs__unlock(&group_op->g->mu);
    if (!known)
        return;
    dibs__reason_set(err, "%s", why);
    if (err == DIBS_ERR_INVALID)
        dibs__client_refuse(group_op->g->members[0].c);
}
