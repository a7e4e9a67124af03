/* SPDX-License-Identifier: MIT
 *
 * attach.c - dibs_lock_adopt makes another client's hold one of this client;
 * dibs_lock_extend lengthens a lease.
 *
 * Thread  app.
 * Locks   entry.mu, to read holds and to add one.
 *
 * Both send a renewal of one hold. It names the owner, only lengthens a lease
 * and never creates a key, so it is idempotent. If its reply is lost, nothing
 * was adopted.
 *
 * The adopted hold counts once here, whatever its recursion count on the
 * server: a release command states the count that shall remain, and ends all.
 *
 * The adopted hold gets a new owner. The next hold of that owner has an owner
 * id of its own, so late commands about the adopted id do not affect it.
 *
 * The token of a fenced lock and the slot of a slots lock are queried after the
 * renewal has succeeded: no other client can change them then.
 */
#include "base/api_args.h"
#include "lock/inspect/request.h"

#include <string.h>

#define WRITE_SUFFIX ":write"
#define SLOT_HOLDERS 3 /* index of the first holder in VERB_HOLDERS' reply */
#define SLOT_FIELDS  3 /* for each holder */

/* ---- the text of an owner ---------------------------------------------- */

static bool is_uuid_byte(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') ||
           (c >= 'A' && c <= 'F') || c == '-';
}

bool dibs__owner_parse(const char *text, const char *end,
                       struct dibs__owner_name *out)
{
    const size_t len = DIBS__UUID - 1;
    uint64_t n = 0;

    if ((size_t)(end - text) < len + 2 || text[len] != ':')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!is_uuid_byte(text[i]))
            return false;
    memcpy(out->uuid, text, len);
    out->uuid[len] = '\0';
    text += len + 1;
    if (*text < '1' || *text > '9')
        return false;
    for (; text < end && *text >= '0' && *text <= '9'; text++) {
        unsigned digit = (unsigned)(*text - '0');
        if (n > (UINT64_MAX - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    out->number = n;
    return text == end;
}

static dibs_err parse_owner_arg(const dibs_lock *l, const char *text,
                                struct dibs__owner_name *out)
{
    if (dibs__check_not_null("owner", text) != DIBS_OK)
        return dibs__lock_report_invalid_arg(l);
    size_t len = strnlen(text, DIBS_OWNER_MAX),
           suffix_len = strlen(WRITE_SUFFIX);
    const char *end = text + len;
    if (l->entry->type == &dibs__type_write && len > suffix_len &&
        memcmp(end - suffix_len, WRITE_SUFFIX, suffix_len) == 0)
        end -= suffix_len;
    if (dibs__owner_parse(text, end, out))
        return DIBS_OK;
    dibs__reason_set(DIBS_ERR_INVALID,
                     "owner is '%.160s', it must be the text of an owner of "
                     "this kind of lock, uuid:number",
                     text);
    return dibs__lock_report_invalid_arg(l);
}

/* ---- one renewal ------------------------------------------------------- */

static void renew_one_write(const struct dibs__request *r,
                            struct dibs__buf *out, bool whole)
{
    struct dibs__renew_item item = {.entry = r->op.entry,
                                    .owner_id = (uint64_t)r->number,
                                    .value = r->value,
                                    .lease_ms = r->within_ms};

    dibs__renew_command_encode(&item, 1, out, whole);
}

static dibs_err renew_one_read(struct dibs__request *r,
                               const struct dibs__reply *reply)
{
    (void)r;
    if (reply->type != REPLY_TEXT || reply->len != 1)
        return DIBS_ERR_PROTOCOL;
    switch (reply->text[0]) {
    case '1':
        return DIBS_OK;
    case '0':
        return DIBS_ERR_NOT_OWNER;
    case 'w':
        return DIBS_ERR_WRONGTYPE;
    default:
        return dibs__reason_set(DIBS_ERR_SERVER,
                                "the server has the hold and refuses to write");
    }
}

/* Sets the lease of this owner id's hold to lease_ms from now. value: token,
 * slot or permits of the hold, if known. *sent: when the command was sent.
 * *maybe_live_copy: the server may still execute a copy of it. */
static dibs_err renew_one(dibs_lock *l, uint64_t owner_id, int64_t value,
                          int64_t lease_ms, int64_t *sent,
                          bool *maybe_live_copy)
{
    struct dibs__request r = {.write = renew_one_write,
                              .read = renew_one_read,
                              .number = (int64_t)owner_id,
                              .value = value,
                              .within_ms = lease_ms};

    dibs_err err = dibs__request_run(l, &r, NULL, NULL);
    *sent = r.op.command.sent_ms;
    *maybe_live_copy = r.op.command.may_have_stale_copy;
    return err;
}

static int64_t lease_of(const dibs_lock *l, const dibs_lock_opts *o)
{
    int64_t lease = o->lease_ms ? o->lease_ms : l->c->lease_ms;

    return o->max_hold_ms ? dibs__min(lease, o->max_hold_ms) : lease;
}

/* ---- token or slot of a hold ------------------------------------------- */

static void value_write(const struct dibs__request *r, struct dibs__buf *out,
                        bool whole)
{
    bool slots = r->op.entry->type->id == TYPE_SLOTS;

    dibs__lock_command_encode(slots ? VERB_HOLDERS : VERB_INFO, &r->op.args,
                              out, whole);
}

/* The reply of VERB_HOLDERS: from SLOT_HOLDERS on owner, ms, slot of each
 * holder. result: slot + 1. */
static dibs_err read_slot(struct dibs__request *r,
                          const struct dibs__reply *reply)
{
    for (size_t i = SLOT_HOLDERS; i + 2 < reply->len; i += SLOT_FIELDS) {
        const struct dibs__reply *owner = dibs__reply_text(reply, i);
        int64_t slot;
        if (!owner || !dibs__reply_num(reply, i + 2, &slot))
            return DIBS_ERR_PROTOCOL;
        if (strcmp(owner->text, r->text) == 0 && slot >= 0)
            r->result[0] = slot + 1;
    }
    return DIBS_OK;
}

static dibs_err read_token(struct dibs__request *r,
                           const struct dibs__reply *reply)
{
    const struct dibs__reply *token = dibs__reply_text(reply, 2);

    if (!token)
        return DIBS_ERR_PROTOCOL;
    r->result[0] = dibs__parse_number(token->text, token->text + token->len);
    return DIBS_OK;
}

/* *value: the token, or the slot + 1; 0 if the server does not know it. */
static dibs_err query_value(dibs_lock *l, uint64_t owner_id, int64_t *value)
{
    enum dibs__lock_type_id id = l->entry->type->id;
    char text[DIBS_OWNER_MAX];
    struct dibs__request r = {
        .write = value_write,
        .read = id == TYPE_SLOTS ? read_slot : read_token,
        .text = text,
    };

    if (id != TYPE_SLOTS && id != TYPE_FENCED)
        return DIBS_OK;
    dibs__owner_text(l->entry, owner_id, text);
    dibs_err err = dibs__request_run(l, &r, NULL, NULL);
    *value = r.result[0];
    return err;
}

/* ---- adopting ---------------------------------------------------------- */

/* Returns whether this client has a hold by that owner already. */
static bool has_hold(struct dibs__lock_entry *entry, uint64_t owner_id,
                     const struct dibs__owner_name *name) REQUIRES(entry->mu)
{
    bool own = strcmp(name->uuid, dibs__entry_client(entry)->id) == 0;

    return dibs__hold_with_id(entry, owner_id) ||
           (own && (dibs__hold_with_id(entry, name->number) ||
                    dibs__entry_id_in_use(entry, name->number)));
}

/* Adds the hold that the server has confirmed to the entry. */
static dibs_err add_adopted_hold(struct dibs__operation *op,
                                 const struct dibs__owner_name *name,
                                 int64_t sent, int64_t value)
{
    struct dibs__lock_entry *entry = op->entry;
    dibs_err err = DIBS_OK;

    dibs__lock(&entry->mu);
    struct dibs__hold *h = NULL;
    if (atomic_load(&entry->manager->closing))
        err = DIBS_ERR_CLOSED; /* all holds were released already */
    else if (has_hold(entry, op->owner_id, name))
        err = dibs__reason_set(DIBS_ERR_INVALID, "this client holds it");
    else if (dibs__valid_until(sent, op->args.lease_ms) <= dibs__now_ms())
        err = DIBS_ERR_UNKNOWN; /* the lease had expired at the reply */
    else if (!(h = dibs__hold_new(entry)))
        err = DIBS_ERR_NOMEM;
    if (h) {
        dibs__hold_add_level(entry, h, op, sent, value);
        /* The previous lease may be longer: a renewal never shortens it. */
        h->server_outlives = op->lease_ms != 0;
    }
    dibs__unlock(&entry->mu);
    return err;
}

dibs_err dibs__adopt_named(dibs_lock *l, const struct dibs__owner_name *name,
                           const dibs_lock_opts *o, int64_t value,
                           dibs_owner *out)
{
    struct dibs__lock_manager *manager = l->entry->manager;
    struct dibs__operation op;
    dibs_lock_opts with_owner = *o;
    int64_t sent = 0;
    bool maybe_live_copy;

    if (!with_owner.owner)
        with_owner.owner = dibs__owner_new_number();
    dibs__op_init(&op, l);
    dibs_err err = dibs__acquire_fill(&op, &with_owner, true);
    if (err == DIBS_OK) {
        op.owner_id = dibs__adopted_add(&manager->adopted, name,
                                        dibs__owner_new_number());
        err = op.owner_id ? DIBS_OK : DIBS_ERR_NOMEM;
    }
    if (err == DIBS_OK)
        err = renew_one(l, op.owner_id, value, op.args.lease_ms, &sent,
                        &maybe_live_copy);
    if (err == DIBS_OK)
        err = query_value(l, op.owner_id, &value);
    if (err == DIBS_OK)
        err = add_adopted_hold(&op, name, sent, value);
    dibs__loss_notification_free(op.notification);
    if (err == DIBS_OK)
        *out = op.owner;
    return err;
}

static dibs_err adopt_hold(dibs_lock *l, const char *text,
                           const dibs_lock_opts *opts, dibs_owner *out)
{
    struct dibs__owner_name name;
    dibs_lock_opts o;
    dibs_err err = dibs__lock_opts_take(l, opts, &o);

    if (err == DIBS_OK && dibs__check_not_null("out", out) != DIBS_OK)
        err = dibs__lock_report_invalid_arg(l);
    if (err == DIBS_OK && o.owner) {
        dibs__reason_set(DIBS_ERR_INVALID,
                         "owner is given; the adopted hold gets a new one");
        err = dibs__lock_report_invalid_arg(l);
    }
    if (err == DIBS_OK)
        err = dibs__lock_enter(l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c;
    err = parse_owner_arg(l, text, &name);
    if (err == DIBS_OK)
        err = dibs__adopt_named(l, &name, &o, 0, out);
    dibs__client_leave(c);
    return err;
}

dibs_err dibs_lock_adopt(dibs_lock *l, const char *owner_text,
                         const dibs_lock_opts *opts, dibs_owner *out)
{
    return DIBS__API_CALL(adopt_hold(l, owner_text, opts, out));
}

/* ---- extending --------------------------------------------------------- */

/* Applies the reply to the hold with that number, which may have ended. Without
 * a reply in time the server may keep the lock longer than valid_until, so the
 * hold is marked may_have_stale_copy. (A hold that ended before the reply was
 * handled by hold.extends_in_flight.) */
static dibs_err apply_extend_reply(struct dibs__lock_entry *entry,
                                   uint64_t number, dibs_err err,
                                   bool maybe_live_copy, int64_t sent,
                                   int64_t lease_ms)
{
    bool has_reply = err == DIBS_OK || err == DIBS_ERR_NOT_OWNER;

    dibs__lock(&entry->mu);
    struct dibs__hold *h = dibs__hold_with_number(entry, number);
    int64_t now = dibs__now_ms();
    if (h)
        h->extends_in_flight--;
    if (h && (!has_reply || maybe_live_copy || dibs__hold_has_expired(h, now)))
        h->may_have_stale_copy = true;
    if (has_reply && (!h || h->state == HOLD_ENDING))
        err = DIBS_ERR_NOT_OWNER; /* released meanwhile: not a loss */
    else if (err == DIBS_ERR_NOT_OWNER)
        dibs__hold_lose(entry, h);
    if (has_reply && h && h->state != HOLD_ENDING &&
        dibs__hold_has_expired(h, now))
        err = DIBS_ERR_LOST;
    if (err == DIBS_OK)
        dibs__hold_set_lease(entry, h, sent, lease_ms);
    dibs__unlock(&entry->mu);
    return err;
}

static dibs_err extend_entered(dibs_lock *l, const dibs_lock_opts *o)
{
    struct dibs__lock_entry *entry = l->entry;
    int64_t lease = lease_of(l, o), sent = 0;
    uint64_t number = 0, owner_id = 0;
    int64_t value = 0;
    bool maybe_live_copy;
    dibs_err err = DIBS_ERR_NOT_OWNER;

    dibs__lock(&entry->mu);
    struct dibs__hold *h =
        dibs__hold_of(entry, o->owner ? o->owner : dibs__owner_thread());
    if (h && dibs__hold_has_expired(h, dibs__now_ms())) {
        err = DIBS_ERR_LOST;
    } else if (h && h->state != HOLD_ENDING) {
        h->extends_in_flight++;
        number = h->number;
        owner_id = h->owner_id;
        value = h->value;
        err = DIBS_OK;
    }
    dibs__unlock(&entry->mu);
    if (err != DIBS_OK)
        return err;
    err = renew_one(l, owner_id, value, lease, &sent, &maybe_live_copy);
    return apply_extend_reply(entry, number, err, maybe_live_copy, sent, lease);
}

static dibs_err extend_hold(dibs_lock *l, const dibs_lock_opts *opts)
{
    dibs_lock_opts o;
    dibs_err err = dibs__lock_opts_take(l, opts, &o);

    if (err == DIBS_OK)
        err = dibs__lock_enter(l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c;
    err = extend_entered(l, &o);
    dibs__client_leave(c);
    return err;
}

dibs_err dibs_lock_extend(dibs_lock *l, const dibs_lock_opts *opts)
{
    return DIBS__API_CALL(extend_hold(l, opts));
}
