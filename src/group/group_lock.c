/* SPDX-License-Identifier: MIT
 *
 * group_lock.c - handles on groups: their creation and operations.
 *
 * Thread  app.
 * Locks   none.
 *
 * How     Members are sorted by server and name, whatever order the caller gave
 *         them in. A multi lock acquires them in that order, so two callers
 *         cannot deadlock. A multi lock among the members is replaced by its
 *         own members.
 */
#include "base/api_args.h"
#include "base/mem.h"
#include "group/group_op.h"
#include "group/server_identity.h"

#include <stdlib.h>
#include <string.h>

#define MEMBERS_MAX DIBS__MEMBERS_MAX

struct group_lock {
    dibs_lock lock;        /* its client is the first member's, without a
                              reference */
    struct dibs__group *g; /* with a reference */
};

static const struct dibs__lock_ops group_lock_ops;

static struct dibs__group *group_of(const dibs_lock *l)
{
    return DIBS_OF(l, struct group_lock, lock)->g;
}

/* Returns the group of a handle, or NULL if it is a handle on one lock. */
static const struct dibs__group *inner_group(const dibs_lock *l)
{
    return l->ops == &group_lock_ops ? group_of(l) : NULL;
}

/* ---- members ----------------------------------------------------------- */

static int compare_members(const void *a, const void *b)
{
    const struct dibs__member *x = a, *y = b;
    const struct dibs__lock_entry *ex = x->entry, *ey = y->entry;
    int order = strcmp(x->server, y->server);

    if (order == 0) /* members that one command can cover are adjacent */
        order =
            ex->hash_slot < ey->hash_slot ? -1 : ex->hash_slot > ey->hash_slot;
    if (order != 0)
        return order;
    size_t len = ex->name_len < ey->name_len ? ex->name_len : ey->name_len;
    order = memcmp(ex->name, ey->name, len);
    if (order == 0 && ex->name_len != ey->name_len)
        order = ex->name_len < ey->name_len ? -1 : 1;
    if (order == 0 && ex->type != ey->type)
        order = ex->type->id < ey->type->id ? -1 : 1;
    return order;
}

/* Returns whether two members are one name on one server, even as two types of
 * lock: an acquire would wait for itself. Sets *query_servers if two members
 * have one name at different URLs, which may still be one server. */
static bool has_duplicates(const struct dibs__group *g, bool *query_servers)
{
    for (size_t i = 0; i < g->n; i++)
        for (size_t j = i + 1; j < g->n; j++) {
            const struct dibs__member *a = &g->members[i], *b = &g->members[j];
            if (!dibs__members_same_name(a, b))
                continue;
            *query_servers = true;
            if (!dibs__client_same_server(a->c, b->c))
                continue;
            dibs__reason_set(DIBS_ERR_INVALID, "'%.80s' at %s is given twice",
                             a->entry->name, a->server);
            return true;
        }
    return false;
}

static dibs_err check_member(const dibs_lock *l, size_t i, bool quorum)
{
    if (!l)
        return dibs__reason_set(DIBS_ERR_INVALID, "member %zu is NULL", i);
    const struct dibs__group *inner = inner_group(l);
    if (inner && (quorum || inner->quorum))
        return dibs__reason_set(DIBS_ERR_INVALID, "member %zu is a %s lock", i,
                                inner->quorum ? "quorum" : "multi");
    return DIBS_OK;
}

/* Returns the number of members, those of inner multi locks included; 0, with a
 * reason, if an argument is invalid. */
static size_t count_members(dibs_lock *const *members, size_t n, bool quorum)
{
    size_t count = 0;

    if (dibs__check_not_null("members", members) != DIBS_OK)
        return 0;
    for (size_t i = 0; i < n && n <= MEMBERS_MAX; i++) {
        if (check_member(members[i], i, quorum) != DIBS_OK)
            return 0;
        const struct dibs__group *inner = inner_group(members[i]);
        count += inner ? inner->n : 1;
    }
    if (count > 0 && count <= MEMBERS_MAX)
        return count;
    dibs__reason_set(DIBS_ERR_INVALID, "there must be 1 to %d members",
                     MEMBERS_MAX);
    return 0;
}

static void add_member(struct dibs__group *g, dibs_client *c,
                       struct dibs__lock_entry *entry, size_t caller_index)
{
    struct dibs__member *m = &g->members[g->n++];

    m->c = c;
    m->entry = entry;
    m->caller_index = caller_index;
    dibs__client_ref(c);
    dibs__entry_ref(entry);
    dibs__client_address(c, m->server, sizeof m->server);
}

static void add_members(struct dibs__group *g, dibs_lock *const *members,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct dibs__group *inner = inner_group(members[i]);
        size_t first = g->n;
        if (!inner) {
            add_member(g, members[i]->c, members[i]->entry, first);
            continue;
        }
        for (size_t j = 0; j < inner->n; j++) {
            const struct dibs__member *m = &inner->members[j];
            add_member(g, m->c, m->entry, first + m->caller_index);
        }
    }
    qsort(g->members, g->n, sizeof g->members[0], compare_members);
}

/* Sets the label to "a,b,c", or to the name that all members share. Returns
 * false if out of memory. */
static bool set_label(struct dibs__group *g)
{
    struct dibs__buf b = {0};
    bool same = true;

    for (size_t i = 1; i < g->n; i++)
        same &= dibs__members_same_name(&g->members[i], &g->members[0]);
    for (size_t i = 0; i < (same ? 1 : g->n); i++) {
        const struct dibs__lock_entry *entry = g->members[i].entry;
        dibs__buf_add(&b, ",", i > 0);
        dibs__buf_add(&b, entry->name, entry->name_len);
    }
    dibs__buf_add(&b, "", 1);
    if (!dibs__buf_ok(&b))
        dibs__buf_clear(&b);
    g->label = b.data;
    return g->label != NULL;
}

/* ---- creation ---------------------------------------------------------- */

static dibs_err report_invalid_members(dibs_lock *const *members, size_t n)
{
    return dibs__lock_report_invalid_arg(members && n > 0 ? members[0] : NULL);
}

static dibs_err fill_group(struct dibs__group *g, dibs_lock *const *members,
                           size_t n)
{
    bool query_servers = g->quorum;

    add_members(g, members, n);
    if (has_duplicates(g, &query_servers))
        return DIBS_ERR_INVALID;
    if (!set_label(g))
        return DIBS_ERR_NOMEM;
    return query_servers ? dibs__server_identity_check(g) : DIBS_OK;
}

static dibs_err group_lock_new(dibs_lock *const *members, size_t n, bool quorum,
                               dibs_lock **out)
{
    size_t count = count_members(members, n, quorum);

    if (count == 0 || dibs__check_not_null("out", out))
        return report_invalid_members(members, n);
    for (size_t i = 0; i < n; i++)
        if (members[i]->ops->is_forked_copy(members[i]))
            return DIBS_ERR_FORKED;
    struct group_lock *gl = dibs__calloc(1, sizeof *gl);
    struct dibs__group *g = dibs__group_new(count, quorum);
    dibs_err err = gl && g ? fill_group(g, members, n) : DIBS_ERR_NOMEM;
    if (err != DIBS_OK) {
        if (g)
            dibs__group_unref(g);
        dibs__free(gl);
        return err == DIBS_ERR_INVALID ? report_invalid_members(members, n)
                                       : err;
    }
    gl->g = g;
    gl->lock.ops = &group_lock_ops;
    gl->lock.c = g->members[0].c;
    *out = &gl->lock;
    return DIBS_OK;
}

dibs_err dibs_multi_lock_new(dibs_lock *const *members, size_t n,
                             dibs_lock **out)
{
    return DIBS__API_CALL(group_lock_new(members, n, false, out));
}

dibs_err dibs_quorum_lock_new(dibs_lock *const *members, size_t n,
                              dibs_lock **out)
{
    return DIBS__API_CALL(group_lock_new(members, n, true, out));
}

/* ---- operations -------------------------------------------------------- */

static bool is_group_forked_copy(const dibs_lock *l)
{
    const struct dibs__group *g = group_of(l);

    for (size_t i = 0; i < g->n; i++)
        if (dibs__client_is_forked_copy(g->members[i].c))
            return true;
    return false;
}

static bool is_inside_member_callback(const dibs_lock *l)
{
    const struct dibs__group *g = group_of(l);

    for (size_t i = 0; i < g->n; i++)
        if (dibs__callbacks_inside(&g->members[i].c->callbacks))
            return true;
    return false;
}

/* In a child after fork the group and its clients belong to the parent: only
 * the handle is freed. */
static void group_lock_free(dibs_lock *l)
{
    struct group_lock *gl = DIBS_OF(l, struct group_lock, lock);

    if (!is_group_forked_copy(l))
        dibs__group_unref(gl->g);
    dibs__free(gl);
}

static dibs_err prepare_level(struct dibs__group_op *op)
{
    struct dibs__group *g = op->g;

    op->level = dibs__group_level_new(g, op->o.owner);
    if (!op->level)
        return DIBS_ERR_NOMEM;
    if (!op->o.on_lost)
        return DIBS_OK;
    op->level->loss =
        dibs__loss_set_name(dibs__loss_new(g, &op->o, g->n, g->required),
                            g->label, strlen(g->label));
    return op->level->loss ? DIBS_OK : DIBS_ERR_NOMEM;
}

static dibs_err group_lock_acquire(dibs_lock *l, const dibs_lock_opts *o,
                                   bool trying, dibs_cb fn, void *arg)
{
    struct dibs__group *g = group_of(l);
    struct dibs__group_op *op = dibs__group_op_new(g, o);

    if (!op)
        return DIBS_ERR_NOMEM;
    op->no_wait = trying;
    dibs_err err = prepare_level(op);
    if (err == DIBS_OK)
        err = dibs__group_op_choose_client(op, fn != NULL);
    if (err == DIBS_OK)
        return dibs__group_op_start(
            op, g->quorum ? dibs__quorum_start : dibs__multi_start, fn, arg);
    dibs__group_op_unref(op);
    return err;
}

static dibs_err group_lock_release(dibs_lock *l, const dibs_lock_opts *o,
                                   dibs_cb fn, void *arg)
{
    return dibs__group_release(group_of(l), o, fn, arg);
}

static dibs_err group_lock_cancel(dibs_lock *l, dibs_owner owner)
{
    return dibs__group_ops_cancel(group_of(l), owner);
}

static struct dibs__local_state group_lock_local_state(const dibs_lock *l,
                                                       dibs_owner owner)
{
    return dibs__group_local_state(group_of(l), owner);
}

static dibs_err group_lock_member(dibs_lock *l, size_t index, dibs_owner owner,
                                  dibs_member *out)
{
    struct dibs__group *g = group_of(l);
    dibs_member member;
    size_t at = 0;

    while (at < g->n && g->members[at].caller_index != index)
        at++;
    if (at == g->n) /* no event: callers iterate until this error */
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "index is %zu, it must be below %zu", index,
                                g->n);
    dibs__group_member_local_state(g, at, owner, &member);
    dibs__struct_write(&dibs__struct_member, &member, out);
    return DIBS_OK;
}

static const struct dibs__lock_ops group_lock_ops = {
    .acquire = group_lock_acquire,
    .release = group_lock_release,
    .cancel = group_lock_cancel,
    .local_state = group_lock_local_state,
    .member = group_lock_member,
    .is_forked_copy = is_group_forked_copy,
    .in_callback = is_inside_member_callback,
    .free = group_lock_free,
    .no_name = "this is a group of locks: ask its members",
};
