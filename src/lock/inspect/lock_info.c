/* SPDX-License-Identifier: MIT
 *
 * lock_info.c - reading what a lock is on its server, and force release.
 *
 * Thread  app; answers also on io.
 * Locks   line.mu, when one of our holds was forced out.
 *
 * A force release reads the owner first and then ends the hold of that owner
 * only: another one keeps the lock, also if the command is executed late.
 */
#include "lock/api/lock.h"

#include "base/api_args.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define OWNER_FIELD_MAX 512     /* longest owner that can be forced out */
#define FIRST_FIELD     3       /* where the fields begin in an answer */
#define FIELDS_MAX      32      /* so many are in it at most */
#define QUEUE_PAGE      200     /* places asked for at once */
#define QUEUE_MAX       1000000 /* no queue is longer */

/* As it is kept on a page; the owner's text follows. */
struct holder {
    int64_t holds, remaining_ms;
    dibs_mode mode;
};

struct look {
    struct dibs__operation op;
    dibs_lock_info info;
    bool was_locked;
    bool force;
    size_t owner_len;
    char owner[OWNER_FIELD_MAX];
    dibs_force_cb force_fn;
    dibs_info_cb info_fn;
    dibs__lock_inspected *looked; /* instead, with op.ended */
    int64_t until;                /* its time; 0 = nothing was sent */
    int64_t first;                /* place wanted */
    struct dibs__buf *page;       /* where waiters or holders go; or NULL */
};

static struct look *look_of(struct dibs__command *cmd)
{
    return DIBS_OF(DIBS_OF(cmd, struct dibs__operation, command), struct look,
                   op);
}

/* ---- reading the answer ------------------------------------------------ */

static dibs_err explain_no_lock(struct look *lo)
{
    dibs__op_record_error_here(
        &lo->op, DIBS_ERR_WRONGTYPE,
        "'%.80s' is a hash, and its fields are not a lock's",
        lo->op.entry->name);
    return DIBS_ERR_WRONGTYPE;
}

static bool reply_is(const struct dibs__reply *r, const char *text)
{
    return r->len == strlen(text) && memcmp(r->text, text, r->len) == 0;
}

/* Is this an owner that a force release of this kind means? */
static bool is_force_target(const struct look *lo,
                            const struct dibs__reply *field)
{
    const struct dibs__lock_type *type = lo->op.entry->type;
    size_t n = strlen(dibs__type_write.owner_suffix);
    bool writer =
        field->len > n && memcmp(field->text + field->len - n,
                                 dibs__type_write.owner_suffix, n) == 0;

    if (type == &dibs__type_read)
        return !writer;
    return type != &dibs__type_write || writer;
}

/* The first owner is shown for all of them. */
static void read_owner(struct look *lo, const struct dibs__reply *field,
                       const struct dibs__reply *value)
{
    size_t cut = field->len;

    if (cut >= sizeof lo->info.owner)
        cut = sizeof lo->info.owner - 1;
    if (!lo->info.owner[0]) {
        memcpy(lo->info.owner, field->text, cut);
        lo->info.owner[cut] = '\0';
        lo->info.holds =
            dibs__parse_number(value->text, value->text + value->len);
    }
    if (lo->owner_len || !is_force_target(lo, field))
        return;
    lo->owner_len = field->len;
    if (field->len <= sizeof lo->owner)
        memcpy(lo->owner, field->text, field->len);
}

/* How many of so many fields are in the answer. */
static size_t fields_given(int64_t fields)
{
    return fields < 0 ? 0 : fields > FIELDS_MAX ? FIELDS_MAX : (size_t)fields;
}

/* The permits of a slots lock, from the third element on: owner, ms, slot. The
 * one that ends first stands for all. */
static dibs_err read_slots_info(struct look *lo, const struct dibs__reply *r)
{
    dibs_lock_info *info = &lo->info;
    const struct dibs__reply *owner = dibs__reply_text(r, FIRST_FIELD);
    int64_t known, unused, taken;

    *info = (dibs_lock_info){.size = sizeof *info};
    if (!dibs__reply_num(r, 0, &known) || !dibs__reply_num(r, 1, &unused) ||
        !dibs__reply_num(r, 2, &taken))
        return DIBS_ERR_PROTOCOL;
    info->locked = taken > 0;
    info->owners = taken > 0 ? (size_t)taken : 0;
    info->slots = known ? unused + taken : 0;
    info->kind = known || taken > 0 ? DIBS_KIND_SLOTS : DIBS_KIND_NONE;
    info->free_slots = unused;
    if (!info->locked || !owner)
        return DIBS_OK;
    info->mode = DIBS_MODE_EXCLUSIVE;
    if (!dibs__reply_num(r, FIRST_FIELD + 1, &info->ttl_ms))
        return DIBS_ERR_PROTOCOL;
    info->ttl_ms = dibs__reply_ms(info->ttl_ms);
    read_owner(lo, owner, &(struct dibs__reply){.text = "1", .len = 1});
    return DIBS_OK;
}

/* Behind all else, if there is one: the number of the value that the holder
 * published. It alone is a number there. */
static int64_t read_published(const struct dibs__reply *r)
{
    int64_t number;

    return r->len > FIRST_FIELD && dibs__reply_num(r, r->len - 1, &number)
               ? number
               : 0;
}

/* OK; WRONGTYPE: no lock; PROTOCOL: not an answer of the info script. */
static dibs_err read_info(struct look *lo, const struct dibs__reply *r)
{
    dibs_lock_info *info = &lo->info;
    int64_t left, fields, waiters;
    const struct dibs__reply *token = dibs__reply_text(r, 2);

    if (lo->op.entry->type->id == TYPE_SLOTS)
        return read_slots_info(lo, r);
    *info = (dibs_lock_info){.size = sizeof *info};
    if (!dibs__reply_num(r, 0, &left) || !dibs__reply_num(r, 1, &fields) ||
        (!token && !dibs__reply_num(r, 2, &waiters)))
        return DIBS_ERR_PROTOCOL;
    if (token) { /* of a fenced lock, instead of waiters */
        info->token = dibs__parse_number(token->text, token->text + token->len);
        waiters = 0;
    }
    if (left == SCRIPT_NO_LOCK)
        return explain_no_lock(lo);
    info->waiters = waiters > 0 ? (size_t)waiters : 0;
    info->locked = left != -2;
    if (!info->locked)
        return DIBS_OK;
    info->ttl_ms = dibs__reply_ms(left);
    info->mode = DIBS_MODE_EXCLUSIVE;
    info->kind = DIBS_KIND_LOCK;
    size_t end = FIRST_FIELD + 2 * fields_given(fields);
    for (size_t i = FIRST_FIELD; i < end && i + 1 < r->len; i += 2) {
        const struct dibs__reply *field = dibs__reply_text(r, i);
        const struct dibs__reply *value = dibs__reply_text(r, i + 1);
        if (!field || !value)
            return DIBS_ERR_PROTOCOL;
        if (reply_is(field, "mode")) {
            info->mode =
                reply_is(value, "read") ? DIBS_MODE_READ : DIBS_MODE_WRITE;
            info->kind = DIBS_KIND_RW;
            info->locked = info->mode != lo->op.entry->type->other_half;
            fields--;
            continue;
        }
        read_owner(lo, field, value);
    }
    info->owners = fields > 0 ? (size_t)fields : 0;
    info->published = read_published(r);
    return DIBS_OK;
}

/* The waiters behind the fields, each a text with its NUL, then its time. */
static dibs_err read_queue(struct look *lo, const struct dibs__reply *r)
{
    int64_t fields = 0;

    dibs__reply_num(r, 1, &fields);
    for (size_t i = FIRST_FIELD + 2 * fields_given(fields); i + 1 < r->len;
         i += 2) {
        const struct dibs__reply *who = dibs__reply_text(r, i);
        const struct dibs__reply *ms = dibs__reply_text(r, i + 1);
        if (!who || !ms)
            return DIBS_ERR_PROTOCOL;
        dibs__buf_add(lo->page, who->text, strlen(who->text) + 1);
        dibs__buf_add(lo->page, ms->text, strlen(ms->text) + 1);
    }
    return dibs__buf_ok(lo->page) ? DIBS_OK : DIBS_ERR_NOMEM;
}

/* ---- asking ------------------------------------------------------------ */

/* Two timeouts for all that it sends: P7. */
static void look_send(struct look *lo, enum dibs__lock_command verb,
                      dibs__reply_fn *answered)
{
    int64_t now = dibs__now_ms();

    if (!lo->until)
        lo->until = now + 2 * dibs__entry_timeout(lo->op.entry);
    dibs__op_send(&lo->op, verb, answered, lo->until - now, 0);
}

/* If the owner is one of ours, it hears of the loss at once. */
static void lose_ours(struct look *lo)
{
    struct dibs__lock_entry *entry = lo->op.entry;
    char text[DIBS_OWNER_MAX];

    dibs__lock(&entry->mu);
    for (struct dibs__hold *h = NULL; (h = dibs__hold_next(entry, h));) {
        size_t len = dibs__owner_text(entry, h->owner_id, text);
        if (len == lo->owner_len && memcmp(text, lo->owner, len) == 0 &&
            h->state != HOLD_ENDING)
            dibs__hold_lose(entry, h);
    }
    dibs__unlock(&entry->mu);
}

static void force_answered(struct dibs__command *cmd, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct look *lo = look_of(cmd);

    if (err == DIBS_OK && reply->type != REPLY_NUM)
        err = DIBS_ERR_PROTOCOL;
    if (err == DIBS_OK && reply->num == SCRIPT_NO_LOCK)
        err = explain_no_lock(lo);
    if (err == DIBS_OK) {
        lo->was_locked = reply->num == 1 || cmd->resent;
        if (lo->was_locked)
            lose_ours(lo);
    }
    dibs__op_finish(&lo->op, err);
}

static void force_run(struct dibs__operation *op)
{
    struct look *lo = DIBS_OF(op, struct look, op);

    op->args.all = op->entry->type->shared;
    op->args.text = lo->owner;
    op->args.text_len = lo->owner_len;
    look_send(lo, VERB_FORCE, force_answered);
}

static dibs_err read_slots_holders(struct look *lo, const struct dibs__reply *r)
{
    for (size_t i = FIRST_FIELD; i + 2 < r->len; i += 3) {
        const struct dibs__reply *who = dibs__reply_text(r, i);
        struct holder h = {.mode = DIBS_MODE_EXCLUSIVE, .holds = 1};
        if (!who || !dibs__reply_num(r, i + 1, &h.remaining_ms))
            return DIBS_ERR_PROTOCOL;
        h.remaining_ms = dibs__reply_ms(h.remaining_ms);
        dibs__buf_add(lo->page, &h, sizeof h);
        dibs__buf_add(lo->page, who->text, strlen(who->text) + 1);
    }
    return r->len >= FIRST_FIELD ? DIBS_OK : DIBS_ERR_PROTOCOL;
}

/* Owner with its NUL, holds, time, mode: one after the other. */
static dibs_err read_holders(struct look *lo, const struct dibs__reply *r)
{
    const struct dibs__reply *mode = dibs__reply_text(r, 0);
    int64_t why;

    if (lo->op.entry->type->id == TYPE_SLOTS)
        return read_slots_holders(lo, r);
    if (dibs__reply_num(r, 0, &why) && why == SCRIPT_NO_LOCK)
        return explain_no_lock(lo);
    for (size_t i = 1; mode && i + 2 < r->len; i += 3) {
        const struct dibs__reply *who = dibs__reply_text(r, i);
        const struct dibs__reply *holds = dibs__reply_text(r, i + 1);
        struct holder h = {.mode = mode->len ? DIBS_MODE_READ
                                             : DIBS_MODE_EXCLUSIVE};
        if (!who || !holds || !dibs__reply_num(r, i + 2, &h.remaining_ms))
            return DIBS_ERR_PROTOCOL;
        h.remaining_ms = dibs__reply_ms(h.remaining_ms);
        size_t n = strlen(who->text), w = strlen(dibs__type_write.owner_suffix);
        if (n > w &&
            strcmp(who->text + n - w, dibs__type_write.owner_suffix) == 0)
            h.mode = DIBS_MODE_WRITE;
        h.holds = dibs__parse_number(holds->text, holds->text + holds->len);
        dibs__buf_add(lo->page, &h, sizeof h);
        dibs__buf_add(lo->page, who->text, n + 1);
    }
    return mode ? DIBS_OK : DIBS_ERR_PROTOCOL;
}

static void holders_answered(struct dibs__command *cmd, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct look *lo = look_of(cmd);

    if (err == DIBS_OK)
        err = read_holders(lo, reply);
    if (err == DIBS_OK && !dibs__buf_ok(lo->page))
        err = DIBS_ERR_NOMEM;
    dibs__op_finish(&lo->op, err);
}

static void holders_run(struct dibs__operation *op)
{
    look_send(DIBS_OF(op, struct look, op), VERB_HOLDERS, holders_answered);
}

static void info_answered(struct dibs__command *cmd, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct look *lo = look_of(cmd);

    if (err == DIBS_OK)
        err = read_info(lo, reply);
    if (err == DIBS_OK && lo->page && lo->op.entry->type->has_server_queue)
        err = read_queue(lo, reply);
    if (err == DIBS_OK && lo->force && lo->owner_len) {
        if (lo->owner_len <= sizeof lo->owner) {
            lo->op.on_caller_thread = false;
            force_run(&lo->op);
            return;
        }
        err = DIBS_ERR_SERVER;
        dibs__op_record_error_here(&lo->op, err,
                                   "'%.80s': its owner is no dibs or Redisson "
                                   "client: %zu bytes long",
                                   lo->op.entry->name, lo->owner_len);
    }
    dibs__op_finish(&lo->op, err);
}

static void info_run(struct dibs__operation *op)
{
    struct look *lo = DIBS_OF(op, struct look, op);

    op->args.first = lo->first;
    op->args.count = lo->page ? QUEUE_PAGE : 0;
    look_send(lo, VERB_INFO, info_answered);
}

static dibs_err look_sync(dibs_lock *l, struct look *lo,
                          void (*run)(struct dibs__operation *))
{
    dibs_err err = dibs__lock_enter(l);

    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* another thread may free the handle meanwhile */
    dibs__op_init(&lo->op, l);
    lo->op.run = run;
    lo->until = 0; /* a page of a queue is a call of its own */
    err = dibs__op_wait(&lo->op);
    dibs__client_leave(c);
    return err;
}

/* ---- public ------------------------------------------------------------ */

static dibs_err get_info(dibs_lock *l, dibs_lock_info *out)
{
    struct look lo = {.force = false};

    if (dibs__struct_check(&dibs__struct_lock_info, out) != DIBS_OK)
        return dibs__lock_report_invalid_arg(l);
    dibs_err err = look_sync(l, &lo, info_run);
    if (err == DIBS_OK)
        dibs__struct_give(&dibs__struct_lock_info, &lo.info, out);
    return err;
}

dibs_err dibs_lock_info_get(dibs_lock *l, dibs_lock_info *out)
{
    return DIBS__API_CALL(get_info(l, out));
}

/* So many have a slots lock: which of them? */
static dibs_err refuse_all_slots(const dibs_lock *l)
{
    if (!l || !l->entry || l->entry->type->id != TYPE_SLOTS)
        return DIBS_OK;
    dibs__reason_set(DIBS_ERR_INVALID,
                     "'%.80s' is a slots lock: say whose hold "
                     "is meant, by dibs_lock_force_release_owner",
                     l->entry->name);
    return dibs__lock_report_invalid_arg(l);
}

/* The owner that has it, or the one that is given. */
static dibs_err force_out(dibs_lock *l, const char *owner, bool *was_locked)
{
    struct look lo = {.force = true};

    if (!owner && refuse_all_slots(l) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (owner) {
        lo.owner_len = strlen(owner);
        memcpy(lo.owner, owner, lo.owner_len);
    }
    dibs_err err = look_sync(l, &lo, owner ? force_run : info_run);
    if (err == DIBS_OK && was_locked)
        *was_locked = lo.was_locked;
    return err;
}

dibs_err dibs_lock_force_release(dibs_lock *l, bool *was_locked)
{
    return DIBS__API_CALL(force_out(l, NULL, was_locked));
}

static dibs_err check_owner(const char *owner)
{
    if (dibs__check_not_null("owner", owner) != DIBS_OK)
        return DIBS_ERR_INVALID;
    return *owner && strlen(owner) <= OWNER_FIELD_MAX
               ? DIBS_OK
               : dibs__reason_set(DIBS_ERR_INVALID,
                                  "owner must have 1 to %d bytes",
                                  OWNER_FIELD_MAX);
}

dibs_err dibs_lock_force_release_owner(dibs_lock *l, const char *owner,
                                       bool *was_locked)
{
    return DIBS__API_CALL(check_owner(owner) == DIBS_OK
                              ? force_out(l, owner, was_locked)
                              : dibs__lock_report_invalid_arg(l));
}

static void look_told(struct dibs__operation *op)
{
    struct look *lo = DIBS_OF(op, struct look, op);

    if (lo->force)
        lo->force_fn(op->err, lo->was_locked, op->arg);
    else
        lo->info_fn(op->err, op->err == DIBS_OK ? &lo->info : NULL, op->arg);
}

/* from: what is asked, and the callback. */
static dibs_err look_begin(dibs_lock *l, const struct look *from)
{
    dibs_err err = dibs__callbacks_ensure_thread(&l->c->callbacks);
    struct look *lo = err == DIBS_OK ? dibs__op_new(l, sizeof *lo) : NULL;

    if (!lo)
        return err == DIBS_OK ? DIBS_ERR_NOMEM : err;
    lo->force = from->force;
    lo->force_fn = from->force_fn;
    lo->info_fn = from->info_fn;
    lo->looked = from->looked;
    lo->op.ended = from->op.ended;
    lo->op.arg = from->op.arg;
    lo->op.custom_completion = true;
    lo->op.complete = look_told;
    lo->op.run = info_run;
    dibs__op_begin(&lo->op);
    return DIBS_OK;
}

static dibs_err refuse_without(const dibs_lock *l, const char *what)
{
    dibs__check_not_null(what, NULL);
    return dibs__lock_report_invalid_arg(l);
}

static dibs_err look_async(dibs_lock *l, const struct look *from)
{
    if (from->force && refuse_all_slots(l) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (!from->force_fn && !from->info_fn)
        return refuse_without(l, "cb");
    dibs_err err = dibs__lock_enter(l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* a callback may free the handle meanwhile */
    err = look_begin(l, from);
    dibs__client_leave(c);
    return err;
}

dibs_err dibs_lock_force_release_async(dibs_lock *l, dibs_force_cb cb,
                                       void *arg)
{
    struct look from = {.force = true, .force_fn = cb, .op = {.arg = arg}};

    return DIBS__API_CALL(look_async(l, &from));
}

dibs_err dibs_lock_info_get_async(dibs_lock *l, dibs_info_cb cb, void *arg)
{
    struct look from = {.info_fn = cb, .op = {.arg = arg}};

    return DIBS__API_CALL(look_async(l, &from));
}

static void look_ended(struct dibs__operation *op)
{
    struct look *lo = DIBS_OF(op, struct look, op);

    lo->looked(op->err, &lo->info, op->error_text ? op->error_text->text : "",
               op->arg);
    dibs__free(op->error_text);
    dibs__free(lo);
}

dibs_err dibs__lock_inspect(dibs_lock *l, dibs__lock_inspected *looked,
                            void *arg)
{
    struct look from = {.looked = looked, .op = {.arg = arg}};

    from.op.ended = look_ended;
    return look_begin(l, &from);
}

/* ---- the queue, the holders -------------------------------------------- */

/* False: enough. */
static bool show_queue_page(const struct dibs__buf *page, size_t *place,
                            dibs_queue_fn fn, void *arg)
{
    const char *at = page->data, *end = page->data + page->len;

    while (at < end) {
        const char *owner = at;
        const char *ms = owner + strlen(owner) + 1;
        at = ms + strlen(ms) + 1;
        int64_t left = *ms ? dibs__reply_ms(strtoll(ms, NULL, 10)) : -1;
        if (!fn((*place)++, owner, left, arg))
            return false;
    }
    return true;
}

static dibs_err show_queue(dibs_lock *l, dibs_queue_fn fn, void *arg)
{
    struct dibs__buf page = {0};
    struct look lo = {.page = &page};
    size_t place = 0, before;
    dibs_err err;

    if (!fn)
        return refuse_without(l, "fn");
    do {
        before = place;
        dibs__buf_cut(&page, 0);
        lo.first = (int64_t)place;
        err = look_sync(l, &lo, info_run);
    } while (err == DIBS_OK && show_queue_page(&page, &place, fn, arg) &&
             place == before + QUEUE_PAGE && place < QUEUE_MAX);
    dibs__buf_clear(&page);
    if (err == DIBS_OK && place >= QUEUE_MAX)
        err = dibs__reason_set(DIBS_ERR_PROTOCOL,
                               "the server names more than %d waiters",
                               QUEUE_MAX);
    return err;
}

dibs_err dibs_lock_queue(dibs_lock *l, dibs_queue_fn fn, void *arg)
{
    return DIBS__API_CALL(show_queue(l, fn, arg));
}

static dibs_err show_holders(dibs_lock *l, dibs_holder_fn fn, void *arg)
{
    struct dibs__buf page = {0};
    struct look lo = {.page = &page};
    struct holder h;

    if (!fn)
        return refuse_without(l, "fn");
    dibs_err err = look_sync(l, &lo, holders_run);
    for (size_t at = 0; err == DIBS_OK && at < page.len;) {
        memcpy(&h, page.data + at, sizeof h);
        const char *owner = page.data + at + sizeof h;
        at += sizeof h + strlen(owner) + 1;
        if (!fn(owner, h.mode, h.holds, h.remaining_ms, arg))
            break;
    }
    dibs__buf_clear(&page);
    return err;
}

dibs_err dibs_lock_holders(dibs_lock *l, dibs_holder_fn fn, void *arg)
{
    return DIBS__API_CALL(show_holders(l, fn, arg));
}
