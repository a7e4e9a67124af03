/* SPDX-License-Identifier: MIT
 *
 * group_error.c - why an operation on several locks failed: which member, and
 * what its server answered.
 *
 * Thread  any; telling, on the thread that is told.
 * Locks   group.mu.
 *
 * How     A member's operation leaves its reason behind when it ends. One that
 *         only gives back what a failed acquire took leaves none. The reason of
 *         the whole is that of the first member with the same verdict.
 */
#include "base/mem.h"
#include "group/group_op.h"
#include "group/server_identity.h"

#include <stdio.h>

void dibs__member_op_keep_reason(struct dibs__group_op *op,
                                 struct dibs__member_op *m, bool counts)
{
    (void)op;
    if (counts) {
        dibs__free(m->why);
        m->why = m->op.error_text;
    } else {
        dibs__free(m->op.error_text);
    }
    m->op.error_text = NULL;
}

static dibs_err verdict_of(const struct dibs__group_op *op, size_t i)
{
    if (op->releasing)
        return op->level->members[i].got ? op->m[i].err : DIBS_OK;
    return op->level->members[i].err;
}

/* g->n: none. */
static size_t find_verdict(const struct dibs__group_op *op, dibs_err err)
{
    size_t i = 0;

    while (i < op->g->n && verdict_of(op, i) != err)
        i++;
    return i;
}

/* These come from the caller, not from a member. */
static bool is_callers_own(dibs_err err)
{
    return err == DIBS_OK || err == DIBS_ERR_NOMEM || err == DIBS_ERR_CLOSED ||
           err == DIBS_ERR_CANCELED || err == DIBS_ERR_NOT_OWNER;
}

/* False: no member is to blame. */
static bool write_reason(struct dibs__group_op *op, char *out, size_t size)
    REQUIRES(op->g->mu)
{
    dibs_err err = op->err;
    size_t i = is_callers_own(err) ? op->g->n : find_verdict(op, err);

    if (err == DIBS_ERR_TIMEOUT && i == op->g->n) {
        err = DIBS_ERR_BUSY;
        i = find_verdict(op, err);
    }
    if (i == op->g->n)
        return false;
    const struct dibs__member *member = &op->g->members[i];
    const struct dibs__reason *why = op->m[i].why;
    if (err == DIBS_ERR_INVALID) {
        dibs__server_identity_report(op->g, i);
        snprintf(out, size, "%s", dibs_error_text());
    } else if (why && why->err == err) {
        snprintf(out, size, "'%.80s': %s", member->entry->name, why->text);
    } else {
        snprintf(out, size, "'%.80s' at %s: %s", member->entry->name,
                 member->server, dibs_strerror(err));
    }
    return true;
}

void dibs__group_op_set_error_text(struct dibs__group_op *op)
{
    char why[DIBS__REASON_MAX];

    dibs__lock(&op->g->mu);
    dibs_err err = op->err;
    bool known = write_reason(op, why, sizeof why);
    dibs__unlock(&op->g->mu);
    if (!known)
        return;
    dibs__reason_set(err, "%s", why);
    if (err == DIBS_ERR_INVALID)
        dibs__client_report_invalid_arg(op->g->members[0].c);
}
