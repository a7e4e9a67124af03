/* SPDX-License-Identifier: MIT
 *
 * known.c - what is known about a lock without asking the server.
 *
 * Thread  app.
 * Locks   line.mu; group.mu for a group.
 *
 * The state goes by our own clock: a hold whose time is over is lost, whether
 * or not anybody has noticed yet.
 */
#include "base/args.h"
#include "group/group.h"
#include "lock/lock.h"

#include <string.h>

struct known {
    dibs_state state;
    int64_t valid_ms, holds;
    uint64_t wire;
};

static struct known look_up(const dibs_lock *l, dibs_owner owner)
{
    struct known k = {.state = DIBS_NOT_HELD};

    if (l && l->group) {
        k.state = dibs__group_state(l->group, owner, &k.valid_ms, &k.holds);
        return k;
    }
    if (!l || dibs__client_foreign(l->c))
        return k;
    struct dibs__line *line = l->line;
    int64_t now = dibs__now_ms();
    if (!owner)
        owner = dibs__owner_thread();
    dibs__lock(&line->mu);
    struct dibs__hold *h = dibs__hold_of(line, owner);
    if (h && h->count == 0) {
        /* Given back; the server has not been told yet. */
    } else if (h && dibs__hold_over(h, now)) {
        k.state = DIBS_LOST;
    } else if (h) {
        k.state = h->state == HOLD_SUSPECT ? DIBS_SUSPECT : DIBS_HELD;
        k.valid_ms = h->valid_until - now;
        k.holds = h->count;
        k.wire = h->wire;
    }
    dibs__unlock(&line->mu);
    return k;
}

dibs_state dibs_lock_state(const dibs_lock *l, dibs_owner owner)
{
    return look_up(l, owner).state;
}

int64_t dibs_lock_valid_ms(const dibs_lock *l, dibs_owner owner)
{
    return look_up(l, owner).valid_ms;
}

int64_t dibs_lock_holds(const dibs_lock *l, dibs_owner owner)
{
    return look_up(l, owner).holds;
}

static dibs_err owner_text(const dibs_lock *l, dibs_owner owner, char *buf,
                           size_t size)
{
    char text[DIBS_OWNER_MAX];

    if (dibs__check_given("lock", l) || dibs__check_given("buf", buf))
        return dibs__lock_refuse(l);
    if (l->group) {
        dibs__reason_set(DIBS_ERR_INVALID,
                         "this is a group of locks: ask its members");
        return dibs__lock_refuse(l);
    }
    if (dibs__client_foreign(l->c))
        return DIBS_ERR_FORKED;
    struct known k = look_up(l, owner);
    if (k.state == DIBS_LOST)
        return DIBS_ERR_LOST;
    if (k.state == DIBS_NOT_HELD)
        return DIBS_ERR_NOT_OWNER;
    size_t len = dibs__owner_text(l->line, k.wire, text);
    if (len >= size) {
        dibs__reason_set(DIBS_ERR_INVALID,
                         "size is %zu, the owner has %zu bytes with its NUL",
                         size, len + 1);
        return dibs__lock_refuse(l);
    }
    memcpy(buf, text, len + 1);
    return DIBS_OK;
}

dibs_err dibs_lock_owner_text(const dibs_lock *l, dibs_owner owner, char *buf,
                              size_t size)
{
    return DIBS__TOLD(owner_text(l, owner, buf, size));
}
