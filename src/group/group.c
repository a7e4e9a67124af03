/* SPDX-License-Identifier: MIT
 *
 * group.c - several locks held as one: making a group, who holds it, and what
 * is known about that.
 *
 * Thread  any.
 * Locks   group.mu; under it line.mu, of one member at a time.
 *
 * How     Members are kept in one order, by server and name, however they were
 *         given. Whoever takes several locks one after the other takes them in
 *         that order, so no two callers can wait for each other. A multi lock
 *         among the members stands for its own members.
 *
 *         Each acquire of the group makes a level: which members it took, and
 *         what the others said. The members' holds are ordinary ones, renewed
 *         and lost each by itself; a group is held while enough of them are. So
 *         losing it is counted, not watched for: each member's hold carries a
 *         note, and the one that leaves too few tells (lost.c).
 */
#include "group/group.h"

#include "base/args.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBERS_MAX DIBS__MEMBERS_MAX
#define PAST_MAX    16 /* failed acquires whose verdicts are kept */

/* ---- members ----------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const struct dibs__member *x = a, *y = b;
    const struct dibs__line *lx = x->line, *ly = y->line;
    int order = strcmp(x->server, y->server);

    if (order == 0) /* those of one command in a row */
        order = lx->slot < ly->slot ? -1 : lx->slot > ly->slot;
    if (order != 0)
        return order;
    size_t len = lx->name_len < ly->name_len ? lx->name_len : ly->name_len;
    order = memcmp(lx->name, ly->name, len);
    if (order == 0 && lx->name_len != ly->name_len)
        order = lx->name_len < ly->name_len ? -1 : 1;
    if (order == 0 && lx->kind != ly->kind)
        order = lx->kind->id < ly->kind->id ? -1 : 1;
    return order;
}

static bool are_namesakes(const struct dibs__member *a,
                          const struct dibs__member *b)
{
    return a->line->name_len == b->line->name_len &&
           memcmp(a->line->name, b->line->name, a->line->name_len) == 0;
}

/* Any two of a quorum; of a multi lock, two that would be one lock. */
bool dibs__members_differ(const struct dibs__group *g, size_t i, size_t j)
{
    const struct dibs__member *a = &g->members[i], *b = &g->members[j];

    return g->quorum ||
           (are_namesakes(a, b) && a->c->to.url.db == b->c->to.url.db);
}

/* The same name twice, be it as two kinds, would wait for itself. What the URLs
 * do not say, the servers do, if they are asked: *ask. */
static bool has_twins(const struct dibs__group *g, bool *ask)
{
    for (size_t i = 0; i < g->n; i++)
        for (size_t j = i + 1; j < g->n; j++) {
            const struct dibs__member *a = &g->members[i], *b = &g->members[j];
            if (!are_namesakes(a, b))
                continue;
            *ask = true;
            if (!dibs__client_same(a->c, b->c))
                continue;
            dibs__reason_set(DIBS_ERR_INVALID, "'%.80s' at %s is given twice",
                             a->line->name, a->server);
            return true;
        }
    return false;
}

static void member_fill(struct dibs__group *g, dibs_client *c,
                        struct dibs__line *line, size_t given)
{
    struct dibs__member *m = &g->members[g->n++];

    m->c = c;
    m->line = line;
    m->given = given;
    dibs__client_ref(c);
    dibs__line_ref(line);
    dibs__client_where(c, m->server, sizeof m->server);
}

static dibs_err check_member(const dibs_lock *l, size_t i, bool quorum)
{
    if (!l)
        return dibs__reason_set(DIBS_ERR_INVALID, "member %zu is NULL", i);
    if (l->group && (quorum || l->group->quorum))
        return dibs__reason_set(DIBS_ERR_INVALID, "member %zu is a %s lock", i,
                                l->group->quorum ? "quorum" : "multi");
    return DIBS_OK;
}

/* How many there are with those of multi locks; 0: that makes no group, for a
 * reason. */
static size_t count_members(dibs_lock *const *members, size_t n, bool quorum)
{
    size_t count = 0;

    if (dibs__check_given("members", members) != DIBS_OK)
        return 0;
    for (size_t i = 0; i < n && n <= MEMBERS_MAX; i++) {
        if (check_member(members[i], i, quorum) != DIBS_OK)
            return 0;
        count += members[i]->group ? members[i]->group->n : 1;
    }
    if (count > 0 && count <= MEMBERS_MAX)
        return count;
    dibs__reason_set(DIBS_ERR_INVALID, "there must be 1 to %d members",
                     MEMBERS_MAX);
    return 0;
}

static void fill_members(struct dibs__group *g, dibs_lock *const *members,
                         size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct dibs__group *inner = members[i]->group;
        size_t first = g->n;
        if (!inner) {
            member_fill(g, members[i]->c, members[i]->line, first);
            continue;
        }
        for (size_t j = 0; j < inner->n; j++) {
            const struct dibs__member *m = &inner->members[j];
            member_fill(g, m->c, m->line, first + m->given);
        }
    }
    qsort(g->members, g->n, sizeof g->members[0], compare);
}

/* "a,b,c", or the one name that all have. False: out of memory. */
static bool make_label(struct dibs__group *g)
{
    struct dibs__buf b = {0};
    const struct dibs__line *first = g->members[0].line;
    bool same = true;

    for (size_t i = 1; i < g->n; i++) {
        const struct dibs__line *line = g->members[i].line;
        same &= line->name_len == first->name_len &&
                memcmp(line->name, first->name, first->name_len) == 0;
    }
    for (size_t i = 0; i < (same ? 1 : g->n); i++) {
        const struct dibs__line *line = g->members[i].line;
        dibs__buf_add(&b, ",", i > 0);
        dibs__buf_add(&b, line->name, line->name_len);
    }
    dibs__buf_add(&b, "", 1);
    if (!dibs__buf_ok(&b))
        dibs__buf_clear(&b);
    g->label = b.data;
    return g->label != NULL;
}

/* ---- life -------------------------------------------------------------- */

void dibs__group_ref(struct dibs__group *g)
{
    atomic_fetch_add(&g->refs, 1);
}

static void archive_all(struct dibs__group *g)
{
    struct dibs__list *l;

    dibs__lock(&g->mu);
    while ((l = dibs__list_pop(&g->finished)))
        dibs__group_level_unref(g, DIBS_OF(l, struct dibs__group_level, link));
    while ((l = dibs__list_pop(&g->levels)))
        dibs__group_level_unref(g, DIBS_OF(l, struct dibs__group_level, link));
    dibs__unlock(&g->mu);
}

void dibs__group_unref(struct dibs__group *g)
{
    if (atomic_fetch_sub(&g->refs, 1) != 1)
        return;
    archive_all(g);
    for (size_t i = 0; i < g->n; i++) {
        dibs__line_unref(g->members[i].line);
        dibs__client_unref(g->members[i].c);
    }
    dibs__mutex_clear(&g->mu);
    dibs__free(g->label);
    dibs__free(g);
}

/* In a child after fork the group is the parent's, as are its clients. */
void dibs__group_free(struct dibs__group *g)
{
    if (!dibs__group_foreign(g))
        dibs__group_unref(g);
}

static dibs_err refuse(dibs_lock *const *members, size_t n)
{
    return dibs__lock_refuse(members && n > 0 ? members[0] : NULL);
}

static dibs_err group_new(dibs_lock *const *members, size_t n, bool quorum,
                          dibs_lock **out)
{
    size_t count = count_members(members, n, quorum);

    if (count == 0 || dibs__check_given("out", out))
        return refuse(members, n);
    for (size_t i = 0; i < n; i++)
        if (members[i]->group ? dibs__group_foreign(members[i]->group)
                              : dibs__client_foreign(members[i]->c))
            return DIBS_ERR_FORKED;
    dibs_lock *l = dibs__calloc(1, sizeof *l);
    struct dibs__group *g =
        dibs__calloc(1, sizeof *g + count * sizeof g->members[0]);
    if (!l || !g) {
        dibs__free(l);
        dibs__free(g);
        return DIBS_ERR_NOMEM;
    }
    atomic_init(&g->refs, 1);
    g->quorum = quorum;
    g->need = quorum ? count / 2 + 1 : count;
    dibs__mutex_init(&g->mu, RANK_GROUP);
    dibs__list_init(&g->levels);
    dibs__list_init(&g->group_ops);
    dibs__list_init(&g->finished);
    fill_members(g, members, n);
    bool ask = quorum;
    dibs_err err = has_twins(g, &ask) ? DIBS_ERR_INVALID
                   : !make_label(g)   ? DIBS_ERR_NOMEM
                   : ask              ? dibs__group_check(g)
                                      : DIBS_OK;
    if (err != DIBS_OK) {
        dibs__group_unref(g);
        dibs__free(l);
        return err == DIBS_ERR_INVALID ? refuse(members, n) : err;
    }
    l->group = g;
    *out = l;
    return DIBS_OK;
}

dibs_err dibs_multi_lock_new(dibs_lock *const *members, size_t n,
                             dibs_lock **out)
{
    return DIBS__TOLD(group_new(members, n, false, out));
}

dibs_err dibs_quorum_lock_new(dibs_lock *const *members, size_t n,
                              dibs_lock **out)
{
    return DIBS__TOLD(group_new(members, n, true, out));
}

bool dibs__group_foreign(const struct dibs__group *g)
{
    for (size_t i = 0; i < g->n; i++)
        if (dibs__client_foreign(g->members[i].c))
            return true;
    return false;
}

bool dibs__group_inside(const struct dibs__group *g)
{
    for (size_t i = 0; i < g->n; i++)
        if (dibs__callbacks_inside(&g->members[i].c->callbacks))
            return true;
    return false;
}

/* ---- levels ------------------------------------------------------------ */

struct dibs__group_level *dibs__group_level_new(struct dibs__group *g,
                                                dibs_owner owner)
{
    struct dibs__group_level *lv =
        dibs__calloc(1, sizeof *lv + g->n * sizeof lv->members[0]);

    if (!lv)
        return NULL;
    lv->refs = 1;
    lv->owner = owner;
    return lv;
}

void dibs__group_level_unref(struct dibs__group *g,
                             struct dibs__group_level *lv)
{
    (void)g;
    if (!lv || --lv->refs > 0)
        return;
    dibs__loss_unref(lv->loss);
    dibs__free(lv);
}

static struct dibs__group_level *newest(struct dibs__list *in, dibs_owner owner)
{
    for (struct dibs__list *l = in->prev; l != in; l = l->prev) {
        struct dibs__group_level *lv =
            DIBS_OF(l, struct dibs__group_level, link);
        if (lv->owner == owner)
            return lv;
    }
    return NULL;
}

struct dibs__group_level *dibs__group_level_of(struct dibs__group *g,
                                               dibs_owner owner)
{
    return newest(&g->levels, owner);
}

void dibs__group_level_live(struct dibs__group *g, struct dibs__group_level *lv)
{
    lv->live = true;
    lv->refs++;
    dibs__list_add(&g->levels, &lv->link);
}

void dibs__group_level_archive(struct dibs__group *g,
                               struct dibs__group_level *lv)
{
    size_t n = 0;

    lv->refs++;
    dibs__list_add(&g->finished, &lv->link);
    for (struct dibs__list *l = g->finished.next; l != &g->finished;
         l = l->next)
        n++;
    if (n > PAST_MAX) {
        struct dibs__list *oldest = dibs__list_pop(&g->finished);
        dibs__group_level_unref(
            g, DIBS_OF(oldest, struct dibs__group_level, link));
    }
}

bool dibs__group_level_new_loss(struct dibs__group_level *lv)
{
    if (!lv->loss)
        return true;
    struct dibs__loss *fresh = dibs__loss_again(lv->loss);
    if (!fresh)
        return false;
    dibs__loss_unref(lv->loss);
    lv->loss = fresh;
    return true;
}

/* ---- what is known without asking -------------------------------------- */

struct seen {
    dibs_state state;
    int64_t valid_ms;
};

static struct seen look_at(const struct dibs__member *m, dibs_owner owner,
                           int64_t now)
{
    struct dibs__line *line = m->line;
    struct seen s = {.state = DIBS_NOT_HELD};

    dibs__lock(&line->mu);
    struct dibs__hold *h = dibs__hold_of(line, owner);
    if (h && dibs__hold_over(h, now)) {
        s.state = DIBS_LOST;
    } else if (h) {
        s.state = h->state == HOLD_SUSPECT ? DIBS_SUSPECT : DIBS_HELD;
        s.valid_ms = h->valid_until - now;
    }
    dibs__unlock(&line->mu);
    return s;
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* Held while enough members are; for as long as the last of those is. */
static dibs_state judge(struct dibs__group *g, dibs_owner owner,
                        const struct dibs__group_level *lv, int64_t *valid_ms)
    REQUIRES(g->mu)
{
    int64_t now = dibs__now_ms(), valid[MEMBERS_MAX];
    size_t held = 0, sure = 0;

    for (size_t i = 0; i < g->n; i++) {
        if (!lv->members[i].got)
            continue;
        struct seen s = look_at(&g->members[i], owner, now);
        if (s.state == DIBS_LOST || s.state == DIBS_NOT_HELD)
            continue;
        sure += s.state == DIBS_HELD;
        valid[held++] = s.valid_ms;
    }
    if (held < g->need)
        return DIBS_LOST;
    qsort(valid, held, sizeof valid[0], descending);
    *valid_ms = valid[g->need - 1];
    return sure < g->need ? DIBS_SUSPECT : DIBS_HELD;
}

dibs_state dibs__group_state(struct dibs__group *g, dibs_owner owner,
                             int64_t *valid_ms, int64_t *holds)
{
    dibs_state state = DIBS_NOT_HELD;
    int64_t count = 0;

    *valid_ms = *holds = 0;
    if (dibs__group_foreign(g))
        return state;
    if (!owner)
        owner = dibs__owner_thread();
    dibs__lock(&g->mu);
    for (struct dibs__list *l = g->levels.next; l != &g->levels; l = l->next) {
        struct dibs__group_level *lv =
            DIBS_OF(l, struct dibs__group_level, link);
        if (lv->owner != owner)
            continue;
        int64_t valid = 0;
        dibs_state one = judge(g, owner, lv, &valid);
        *valid_ms = count++ ? dibs__min(*valid_ms, valid) : valid;
        state = one > state ? one : state; /* the worst of them */
    }
    dibs__unlock(&g->mu);
    if (state == DIBS_LOST)
        *valid_ms = 0;
    else
        *holds = count;
    return state;
}

/* ---- the members, one by one ------------------------------------------- */

static const struct dibs__member *find(const struct dibs__group *g,
                                       size_t given, size_t *at)
{
    for (*at = 0; *at < g->n; ++*at)
        if (g->members[*at].given == given)
            return &g->members[*at];
    return NULL;
}

static dibs_err check_group(const dibs_lock *l, const dibs_member *out)
{
    if (dibs__check_given("lock", l) ||
        dibs__struct_check(&dibs__struct_member, out))
        return DIBS_ERR_INVALID;
    return l->group
               ? DIBS_OK
               : dibs__reason_set(DIBS_ERR_INVALID, "the lock has no members");
}

static dibs_err get_member(dibs_lock *l, size_t index, dibs_owner owner,
                           dibs_member *out)
{
    dibs_member got = {.size = sizeof got};
    size_t at;

    if (check_group(l, out) != DIBS_OK)
        return dibs__lock_refuse(l);
    struct dibs__group *g = l->group;
    if (dibs__group_foreign(g))
        return DIBS_ERR_FORKED;
    const struct dibs__member *m = find(g, index, &at);
    if (!m) /* no event: that is how a caller finds out how many there are */
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "index is %zu, it must be below %zu", index,
                                g->n);
    if (!owner)
        owner = dibs__owner_thread();
    got.name = m->line->name;
    got.name_len = m->line->name_len;
    got.server = m->server;
    dibs__lock(&g->mu);
    struct dibs__group_level *lv = dibs__group_level_of(g, owner);
    if (!lv)
        lv = newest(&g->finished, owner);
    got.verdict = lv ? lv->members[at].err : DIBS_ERR_NOT_OWNER;
    if (lv && lv->live && lv->members[at].got) {
        struct seen s = look_at(m, owner, dibs__now_ms());
        got.state = s.state == DIBS_NOT_HELD ? DIBS_LOST : s.state;
        got.valid_ms = s.valid_ms;
        if (got.state == DIBS_LOST)
            got.verdict = DIBS_ERR_LOST;
    }
    dibs__unlock(&g->mu);
    dibs__struct_give(&dibs__struct_member, &got, out);
    return DIBS_OK;
}

dibs_err dibs_lock_members(dibs_lock *l, size_t index, dibs_owner owner,
                           dibs_member *out)
{
    return DIBS__TOLD(get_member(l, index, owner, out));
}
