/* SPDX-License-Identifier: MIT
 *
 * fenced_slots.c - handles on fenced locks and slots locks, and the token or
 * slot of a hold.
 *
 * Thread  app.
 * Locks   entry.mu, to read a hold.
 *
 * The token or slot was in the server's reply to the acquire and is kept in
 * hold.value; only dibs_slots_set sends a command.
 */
#include "base/api_args.h"
#include "lock/api/lock.h"
#include "lock/inspect/request.h"

/* ---- handles ----------------------------------------------------------- */

dibs_err dibs_fenced_lock_new(dibs_client *c, const char *name, dibs_lock **out)
{
    return DIBS__API_CALL(dibs__lock_new(c, &dibs__type_fenced, name,
                                         dibs__name_length(name), out));
}

static dibs_err check_slot_count(dibs_client *c, int64_t slots)
{
    if (slots >= 1 && slots <= DIBS_PERMITS_MAX)
        return DIBS_OK;
    dibs__reason_set(DIBS_ERR_INVALID, "slots is %lld, it must be 1 to %lld",
                     (long long)slots, (long long)DIBS_PERMITS_MAX);
    return dibs__client_report_invalid_arg(c);
}

static dibs_err slots_new(dibs_client *c, const char *name, int64_t slots,
                          dibs_lock **out)
{
    if (check_slot_count(c, slots) != DIBS_OK)
        return DIBS_ERR_INVALID;
    dibs_err err = dibs__lock_new(c, &dibs__type_slots, name,
                                  dibs__name_length(name), out);
    if (err != DIBS_OK)
        return err;
    struct dibs__lock_entry *entry = (*out)->entry;
    if (atomic_exchange(&entry->slot_count, slots) != slots)
        atomic_store(&entry->slot_count_known, false);
    return DIBS_OK;
}

dibs_err dibs_slots_lock_new(dibs_client *c, const char *name, int64_t slots,
                             dibs_lock **out)
{
    return DIBS__API_CALL(slots_new(c, name, slots, out));
}

/* ---- number of slots --------------------------------------------------- */

static void slots_set_write(const struct dibs__request *r,
                            struct dibs__buf *out, bool whole)
{
    dibs__request_head(r, &dibs__script_slots_set, 2, 3, out, whole);
    dibs__request_args(r, "nz", out);
    dibs__buf_arg_num(out, r->number);
    dibs__request_args(r, "0c*", out);
}

static dibs_err slots_set_read(struct dibs__request *r,
                               const struct dibs__reply *reply)
{
    (void)r;
    if (reply->type != REPLY_NUM)
        return DIBS_ERR_PROTOCOL;
    return reply->num == SCRIPT_WRONG_TYPE ? DIBS_ERR_WRONGTYPE : DIBS_OK;
}

static dibs_err slots_set(dibs_lock *l, int64_t slots)
{
    struct dibs__request r = {
        .write = slots_set_write, .read = slots_set_read, .number = slots};

    if (dibs__check_not_null("lock", l) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (!l->entry || l->entry->type != &dibs__type_slots) {
        dibs__reason_set(DIBS_ERR_INVALID, "this is not a slots lock");
        return dibs__lock_report_invalid_arg(l);
    }
    if (check_slot_count(l->c, slots) != DIBS_OK)
        return DIBS_ERR_INVALID;
    dibs_err err = dibs__request_run(l, &r, NULL, NULL);
    if (err == DIBS_OK)
        atomic_store(&l->entry->slot_count, slots);
    return err;
}

dibs_err dibs_slots_set(dibs_lock *l, int64_t slots)
{
    return DIBS__API_CALL(slots_set(l, slots));
}

/* ---- token and slot ---------------------------------------------------- */

static dibs_err get_token_or_slot(const dibs_lock *l,
                                  const struct dibs__lock_type *type,
                                  dibs_owner owner, int64_t *out)
{
    dibs_err err = DIBS_ERR_NOT_OWNER;

    if (dibs__check_not_null("lock", l) || dibs__check_not_null("out", out))
        return dibs__lock_report_invalid_arg(l);
    if (!l->entry || l->entry->type != type) {
        dibs__reason_set(DIBS_ERR_INVALID, "this is not a %s lock",
                         type == &dibs__type_slots ? "slots" : "fenced");
        return dibs__lock_report_invalid_arg(l);
    }
    if (dibs__client_is_forked_copy(l->c))
        return DIBS_ERR_FORKED;
    struct dibs__lock_entry *entry = l->entry;
    dibs__lock(&entry->mu);
    struct dibs__hold *h =
        dibs__hold_of(entry, owner ? owner : dibs__owner_thread());
    if (h && h->count > 0 && h->value == 0) {
        err = dibs__reason_set(DIBS_ERR_INVALID,
                               "the hold was adopted, and the server did not "
                               "return its token or slot");
    } else if (h && h->count > 0) {
        *out = h->value - (type == &dibs__type_slots ? 1 : 0);
        err = DIBS_OK;
    }
    dibs__unlock(&entry->mu);
    return err;
}

dibs_err dibs_lock_token(const dibs_lock *l, dibs_owner owner, int64_t *token)
{
    return DIBS__API_CALL(
        get_token_or_slot(l, &dibs__type_fenced, owner, token));
}

dibs_err dibs_lock_slot(const dibs_lock *l, dibs_owner owner, int64_t *slot)
{
    return DIBS__API_CALL(get_token_or_slot(l, &dibs__type_slots, owner, slot));
}
