/* SPDX-License-Identifier: MIT
 *
 * attach.c - a hold of another client becomes one of this client; and a hold
 * lasts longer.
 *
 * Thread  app.
 * Locks   line.mu, to look at holds and to add one.
 *
 * Both are a renewal of one hold. It names the owner, only lengthens, and makes
 * nothing that is not there, so sending it again is harmless. If its answer is
 * lost nothing was adopted.
 *
 * However often the owner holds the lock, the adopted hold counts once here:
 * a release says how many there shall be, and ends all of them.
 *
 * The adopter gets a new owner. Its next hold goes by that owner's own number:
 * late commands of others about the old one do not meet it.
 *
 * What a hold came with, its token or its slot, is asked for when it is ours:
 * nobody else can change it then.
 */
#include "base/api_args.h"
#include "lock/inspect/request.h"

#include <string.h>

#define WRITE_SUFFIX ":write"

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

static dibs_err read_adopted(const dibs_lock *l, const char *text,
                             struct dibs__owner_name *out)
{
    if (dibs__check_not_null("owner", text) != DIBS_OK)
        return dibs__lock_report_invalid_arg(l);
    size_t len = strnlen(text, DIBS_OWNER_MAX), tail = strlen(WRITE_SUFFIX);
    const char *end = text + len;
    if (l->entry->type == &dibs__type_write && len > tail &&
        memcmp(end - tail, WRITE_SUFFIX, tail) == 0)
        end -= tail;
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

    dibs__renew_write(&item, 1, out, whole);
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
                                "the server has it, and refuses to write");
    }
}

/* Sets the lease of the hold with this number to lease_ms from now. value: what
 * the hold was acquired with, if known. *sent: when the command was sent.
 * *ghost: a copy of it may still be executed. */
static dibs_err renew_one(dibs_lock *l, uint64_t wire, int64_t value,
                          int64_t lease_ms, int64_t *sent, bool *ghost)
{
    struct dibs__request r = {.write = renew_one_write,
                              .read = renew_one_read,
                              .number = (int64_t)wire,
                              .value = value,
                              .within_ms = lease_ms};

    dibs_err err = dibs__request_run(l, &r, NULL, NULL);
    *sent = r.op.command.sent_ms;
    *ghost = r.op.command.maybe_live_copy;
    return err;
}

static int64_t lease_of(const dibs_lock *l, const dibs_lock_opts *o)
{
    int64_t lease = o->lease_ms ? o->lease_ms : l->c->lease_ms;

    return o->max_hold_ms ? dibs__min(lease, o->max_hold_ms) : lease;
}

/* ---- what a hold came with --------------------------------------------- */

static void value_write(const struct dibs__request *r, struct dibs__buf *out,
                        bool whole)
{
    bool slots = r->op.entry->type->id == TYPE_SLOTS;

    dibs__lock_command_write(slots ? VERB_HOLDERS : VERB_INFO, &r->op.args, out,
                             whole);
}

/* Of slots: owner, ms, slot of each. */
static dibs_err read_slot(struct dibs__request *r,
                          const struct dibs__reply *reply)
{
    for (size_t i = 3; i + 2 < reply->len; i += 3) {
        const struct dibs__reply *who = dibs__reply_text(reply, i);
        int64_t slot;
        if (!who || !dibs__reply_num(reply, i + 2, &slot))
            return DIBS_ERR_PROTOCOL;
        if (strcmp(who->text, r->text) == 0 && slot >= 0)
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

/* *value: 0 if it is not known. */
static dibs_err ask_value(dibs_lock *l, uint64_t wire, int64_t *value)
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
    dibs__owner_text(l->entry, wire, text);
    dibs_err err = dibs__request_run(l, &r, NULL, NULL);
    *value = r.result[0];
    return err;
}

/* ---- adopting ---------------------------------------------------------- */

/* Does this client have it already? */
static bool is_known(struct dibs__lock_entry *entry, uint64_t wire,
                     const struct dibs__owner_name *name) REQUIRES(entry->mu)
{
    bool own = strcmp(name->uuid, dibs__entry_client(entry)->id) == 0;

    return dibs__hold_with_id(entry, wire) ||
           (own && (dibs__hold_with_id(entry, name->number) ||
                    dibs__entry_id_in_use(entry, name->number)));
}

/* The server has confirmed it. */
static dibs_err keep_adopted(struct dibs__operation *taken,
                             const struct dibs__owner_name *name, int64_t sent,
                             int64_t value)
{
    struct dibs__lock_entry *entry = taken->entry;
    dibs_err err = DIBS_OK;

    dibs__lock(&entry->mu);
    struct dibs__hold *h = NULL;
    if (atomic_load(&entry->manager->closing))
        err = DIBS_ERR_CLOSED; /* holds were given back already */
    else if (is_known(entry, taken->owner_id, name))
        err = dibs__reason_set(DIBS_ERR_INVALID, "this client holds it");
    else if (dibs__valid_until(sent, taken->args.lease_ms) <= dibs__now_ms())
        err = DIBS_ERR_UNKNOWN; /* the answer came too late */
    else if (!(h = dibs__hold_new(entry)))
        err = DIBS_ERR_NOMEM;
    if (h) {
        dibs__hold_taken(entry, h, taken, sent, value);
        h->server_outlives = taken->lease_ms != 0; /* no lease was shortened */
    }
    dibs__unlock(&entry->mu);
    return err;
}

dibs_err dibs__adopt_named(dibs_lock *l, const struct dibs__owner_name *name,
                           const dibs_lock_opts *o, int64_t value,
                           dibs_owner *out)
{
    struct dibs__lock_manager *manager = l->entry->manager;
    struct dibs__operation taken;
    dibs_lock_opts mine = *o;
    int64_t sent = 0;
    bool ghost;

    if (!mine.owner)
        mine.owner = dibs__owner_number();
    dibs__op_init(&taken, l);
    dibs_err err = dibs__acquire_fill(&taken, &mine, true);
    if (err == DIBS_OK) {
        taken.owner_id =
            dibs__adopted_add(&manager->adopted, name, dibs__owner_number());
        err = taken.owner_id ? DIBS_OK : DIBS_ERR_NOMEM;
    }
    if (err == DIBS_OK)
        err = renew_one(l, taken.owner_id, value, taken.args.lease_ms, &sent,
                        &ghost);
    if (err == DIBS_OK)
        err = ask_value(l, taken.owner_id, &value);
    if (err == DIBS_OK)
        err = keep_adopted(&taken, name, sent, value);
    dibs__loss_notification_free(taken.notification);
    if (err == DIBS_OK)
        *out = taken.owner;
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
    err = read_adopted(l, text, &name);
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

/* What the server said about the hold of that number, which may be over. If it
 * said nothing, or too late, the server may have it for longer than we know. (A
 * hold that ended before that was taken care of: see hold.extends.) */
static dibs_err note_extended(struct dibs__lock_entry *entry, uint64_t number,
                              dibs_err err, bool ghost, int64_t sent,
                              int64_t lease_ms)
{
    bool answered = err == DIBS_OK || err == DIBS_ERR_NOT_OWNER;

    dibs__lock(&entry->mu);
    struct dibs__hold *h = dibs__hold_with_number(entry, number);
    int64_t now = dibs__now_ms();
    if (h)
        h->extends_in_flight--;
    if (h && (!answered || ghost || dibs__hold_has_expired(h, now)))
        h->may_have_stale_copy = true;
    if (answered && (!h || h->state == HOLD_ENDING))
        err = DIBS_ERR_NOT_OWNER; /* it is given back, which is no loss */
    else if (err == DIBS_ERR_NOT_OWNER)
        dibs__hold_lose(entry, h);
    if (answered && h && h->state != HOLD_ENDING &&
        dibs__hold_has_expired(h, now))
        err = DIBS_ERR_LOST;
    if (err == DIBS_OK)
        dibs__hold_renewed(entry, h, sent, lease_ms);
    dibs__unlock(&entry->mu);
    return err;
}

static dibs_err extend_entered(dibs_lock *l, const dibs_lock_opts *o)
{
    struct dibs__lock_entry *entry = l->entry;
    int64_t lease = lease_of(l, o), sent = 0;
    uint64_t number = 0, wire = 0;
    int64_t value = 0;
    bool ghost;
    dibs_err err = DIBS_ERR_NOT_OWNER;

    dibs__lock(&entry->mu);
    struct dibs__hold *h =
        dibs__hold_of(entry, o->owner ? o->owner : dibs__owner_thread());
    if (h && dibs__hold_has_expired(h, dibs__now_ms())) {
        err = DIBS_ERR_LOST;
    } else if (h && h->state != HOLD_ENDING) {
        h->extends_in_flight++;
        number = h->number;
        wire = h->owner_id;
        value = h->value;
        err = DIBS_OK;
    }
    dibs__unlock(&entry->mu);
    if (err != DIBS_OK)
        return err;
    err = renew_one(l, wire, value, lease, &sent, &ghost);
    return note_extended(entry, number, err, ghost, sent, lease);
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
