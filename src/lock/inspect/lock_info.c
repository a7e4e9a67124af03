/* SPDX-License-Identifier: MIT
 *
 * lock_info.c - reads a lock's state on its server (info, wait queue, holders),
 * and force release.
 *
 * Thread  app; replies also on io.
 * Locks   entry.mu, when a hold of this client was force released.
 *
 * A force release reads the owner first and then ends the hold of that owner
 * only: a later owner keeps the lock even if the command is executed late.
 */
#include "lock/api/lock.h"

#include "base/api_args.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define OWNER_FIELD_MAX 512     /* longest owner that can be force released */
#define FIRST_FIELD     3       /* index of the first field in a reply */
#define FIELDS_MAX      32      /* fields in a reply, at most */
#define TTL_NO_KEY      (-2)    /* PTTL of a key that does not exist */
#define FIRST_HOLDER    1       /* index of the first holder in a reply */
#define HOLDER_FIELDS   3       /* elements for each holder */
#define QUEUE_PAGE      200     /* waiters for one command */
#define QUEUE_MAX       1000000 /* waiters in a queue, at most */
#define CALL_TIMEOUTS   2       /* command timeouts for one public call */

/* An entry of query.page; the owner's text with its NUL follows. */
struct holder {
    int64_t holds, remaining_ms;
    dibs_mode mode;
};

struct info_query {
    struct dibs__operation op;
    dibs_lock_info info;
    bool was_locked;
    bool force;
    size_t owner_len;
    char owner[OWNER_FIELD_MAX];
    dibs_force_cb force_fn;
    dibs_info_cb info_fn;
    dibs__lock_inspected *inspected_fn; /* for dibs__lock_inspect, called by
                                           op.ended */
    int64_t deadline;                   /* 0: nothing was sent yet */
    int64_t first;                      /* first position wanted in the queue */
    struct dibs__buf *page; /* gets the waiters or holders; or NULL */
};

static struct info_query *info_query_of(struct dibs__command *cmd)
{
    return DIBS_OF(DIBS_OF(cmd, struct dibs__operation, command),
                   struct info_query, op);
}

/* ---- parsing of replies ------------------------------------------------ */

static dibs_err explain_no_lock(struct info_query *q)
{
    dibs__op_record_server_error(
        &q->op, DIBS_ERR_WRONGTYPE,
        "'%.80s' is a hash, and its fields are not a lock's",
        q->op.entry->name);
    return DIBS_ERR_WRONGTYPE;
}

static bool reply_is(const struct dibs__reply *r, const char *text)
{
    return r->len == strlen(text) && memcmp(r->text, text, r->len) == 0;
}

/* Returns whether a force release through this type of handle ends the hold of
 * this owner: a read handle ends read holds, a write handle write holds. */
static bool is_force_target(const struct info_query *q,
                            const struct dibs__reply *field)
{
    const struct dibs__lock_type *type = q->op.entry->type;
    size_t n = strlen(dibs__type_write.owner_suffix);
    bool writer =
        field->len > n && memcmp(field->text + field->len - n,
                                 dibs__type_write.owner_suffix, n) == 0;

    if (type == &dibs__type_read)
        return !writer;
    return type != &dibs__type_write || writer;
}

/* info.owner and info.holds are those of the first owner in the reply. */
static void read_owner(struct info_query *q, const struct dibs__reply *field,
                       const struct dibs__reply *value)
{
    size_t len = field->len;

    if (len >= sizeof q->info.owner)
        len = sizeof q->info.owner - 1;
    if (!q->info.owner[0]) {
        memcpy(q->info.owner, field->text, len);
        q->info.owner[len] = '\0';
        q->info.holds =
            dibs__parse_number(value->text, value->text + value->len);
    }
    if (q->owner_len || !is_force_target(q, field))
        return;
    q->owner_len = field->len;
    if (field->len <= sizeof q->owner)
        memcpy(q->owner, field->text, field->len);
}

/* Returns how many of the hash's fields are in the reply. */
static size_t fields_in_reply(int64_t fields)
{
    return fields < 0 ? 0 : fields > FIELDS_MAX ? FIELDS_MAX : (size_t)fields;
}

/* Reply for a slots lock: whether the number of slots is set, free slots, taken
 * slots; then owner, ms, slot of each holder. info is about the holder whose
 * lease ends first. */
static dibs_err read_slots_info(struct info_query *q,
                                const struct dibs__reply *r)
{
    dibs_lock_info *info = &q->info;
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
    read_owner(q, owner, &(struct dibs__reply){.text = "1", .len = 1});
    return DIBS_OK;
}

/* Returns the number of the holder's published value, or 0. If there is one, it
 * is the last element, and the only number after FIRST_FIELD. */
static int64_t read_published(const struct dibs__reply *r)
{
    int64_t number;

    return r->len > FIRST_FIELD && dibs__reply_num(r, r->len - 1, &number)
               ? number
               : 0;
}

/* Returns OK, WRONGTYPE if the key is no lock, or PROTOCOL if the reply is not
 * one of the info script. */
static dibs_err read_info(struct info_query *q, const struct dibs__reply *r)
{
    dibs_lock_info *info = &q->info;
    int64_t left, fields, waiters;
    const struct dibs__reply *token = dibs__reply_text(r, 2);

    if (q->op.entry->type->id == TYPE_SLOTS)
        return read_slots_info(q, r);
    *info = (dibs_lock_info){.size = sizeof *info};
    if (!dibs__reply_num(r, 0, &left) || !dibs__reply_num(r, 1, &fields) ||
        (!token && !dibs__reply_num(r, 2, &waiters)))
        return DIBS_ERR_PROTOCOL;
    if (token) { /* a fenced lock has the token in place of the waiters */
        info->token = dibs__parse_number(token->text, token->text + token->len);
        waiters = 0;
    }
    if (left == SCRIPT_WRONG_TYPE)
        return explain_no_lock(q);
    info->waiters = waiters > 0 ? (size_t)waiters : 0;
    info->locked = left != TTL_NO_KEY;
    if (!info->locked)
        return DIBS_OK;
    info->ttl_ms = dibs__reply_ms(left);
    info->mode = DIBS_MODE_EXCLUSIVE;
    info->kind = DIBS_KIND_LOCK;
    size_t end = FIRST_FIELD + 2 * fields_in_reply(fields);
    for (size_t i = FIRST_FIELD; i < end && i + 1 < r->len; i += 2) {
        const struct dibs__reply *field = dibs__reply_text(r, i);
        const struct dibs__reply *value = dibs__reply_text(r, i + 1);
        if (!field || !value)
            return DIBS_ERR_PROTOCOL;
        if (reply_is(field, "mode")) {
            info->mode =
                reply_is(value, "read") ? DIBS_MODE_READ : DIBS_MODE_WRITE;
            info->kind = DIBS_KIND_RW;
            info->locked = info->mode != q->op.entry->type->other_mode;
            fields--;
            continue;
        }
        read_owner(q, field, value);
    }
    info->owners = fields > 0 ? (size_t)fields : 0;
    info->published = read_published(r);
    return DIBS_OK;
}

/* Appends to the page, for each waiter after the fields, its name and its time,
 * each with its NUL. */
static dibs_err read_queue(struct info_query *q, const struct dibs__reply *r)
{
    int64_t fields = 0;

    dibs__reply_num(r, 1, &fields);
    for (size_t i = FIRST_FIELD + 2 * fields_in_reply(fields); i + 1 < r->len;
         i += 2) {
        const struct dibs__reply *owner = dibs__reply_text(r, i);
        const struct dibs__reply *ms = dibs__reply_text(r, i + 1);
        if (!owner || !ms)
            return DIBS_ERR_PROTOCOL;
        dibs__buf_add(q->page, owner->text, strlen(owner->text) + 1);
        dibs__buf_add(q->page, ms->text, strlen(ms->text) + 1);
    }
    return dibs__buf_ok(q->page) ? DIBS_OK : DIBS_ERR_NOMEM;
}

/* ---- queries ----------------------------------------------------------- */

/* All commands of one call share CALL_TIMEOUTS command timeouts. */
static void query_send(struct info_query *q, enum dibs__lock_command verb,
                       dibs__reply_fn *on_reply)
{
    int64_t now = dibs__now_ms();

    if (!q->deadline)
        q->deadline = now + CALL_TIMEOUTS * dibs__entry_timeout(q->op.entry);
    dibs__op_send(&q->op, verb, on_reply, q->deadline - now, 0);
}

/* If the force released hold is one of this client, marks it lost at once. */
static void lose_own_hold(struct info_query *q)
{
    struct dibs__lock_entry *entry = q->op.entry;
    char text[DIBS_OWNER_MAX];

    dibs__lock(&entry->mu);
    for (struct dibs__hold *h = NULL; (h = dibs__hold_next(entry, h));) {
        size_t len = dibs__owner_text(entry, h->owner_id, text);
        if (len == q->owner_len && memcmp(text, q->owner, len) == 0 &&
            h->state != HOLD_ENDING)
            dibs__hold_lose(entry, h);
    }
    dibs__unlock(&entry->mu);
}

static void on_force_reply(struct dibs__command *cmd, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct info_query *q = info_query_of(cmd);

    if (err == DIBS_OK && reply->type != REPLY_NUM)
        err = DIBS_ERR_PROTOCOL;
    if (err == DIBS_OK && reply->num == SCRIPT_WRONG_TYPE)
        err = explain_no_lock(q);
    if (err == DIBS_OK) {
        q->was_locked = reply->num == 1 || cmd->resent;
        if (q->was_locked)
            lose_own_hold(q);
    }
    dibs__op_finish(&q->op, err);
}

static void force_run(struct dibs__operation *op)
{
    struct info_query *q = DIBS_OF(op, struct info_query, op);

    op->args.all = op->entry->type->shared;
    op->args.text = q->owner;
    op->args.text_len = q->owner_len;
    query_send(q, VERB_FORCE, on_force_reply);
}

static dibs_err read_slots_holders(struct info_query *q,
                                   const struct dibs__reply *r)
{
    for (size_t i = FIRST_FIELD; i + 2 < r->len; i += HOLDER_FIELDS) {
        const struct dibs__reply *owner = dibs__reply_text(r, i);
        struct holder h = {.mode = DIBS_MODE_EXCLUSIVE, .holds = 1};
        if (!owner || !dibs__reply_num(r, i + 1, &h.remaining_ms))
            return DIBS_ERR_PROTOCOL;
        h.remaining_ms = dibs__reply_ms(h.remaining_ms);
        dibs__buf_add(q->page, &h, sizeof h);
        dibs__buf_add(q->page, owner->text, strlen(owner->text) + 1);
    }
    return r->len >= FIRST_FIELD ? DIBS_OK : DIBS_ERR_PROTOCOL;
}

/* Appends a struct holder and the owner's text to the page for each holder. The
 * reply: the mode ("" unless it is a read-write lock), then owner, holds, ms of
 * each holder. */
static dibs_err read_holders(struct info_query *q, const struct dibs__reply *r)
{
    const struct dibs__reply *mode = dibs__reply_text(r, 0);
    int64_t code;

    if (q->op.entry->type->id == TYPE_SLOTS)
        return read_slots_holders(q, r);
    if (dibs__reply_num(r, 0, &code) && code == SCRIPT_WRONG_TYPE)
        return explain_no_lock(q);
    for (size_t i = FIRST_HOLDER; mode && i + 2 < r->len; i += HOLDER_FIELDS) {
        const struct dibs__reply *owner = dibs__reply_text(r, i);
        const struct dibs__reply *holds = dibs__reply_text(r, i + 1);
        struct holder h = {.mode = mode->len ? DIBS_MODE_READ
                                             : DIBS_MODE_EXCLUSIVE};
        if (!owner || !holds || !dibs__reply_num(r, i + 2, &h.remaining_ms))
            return DIBS_ERR_PROTOCOL;
        h.remaining_ms = dibs__reply_ms(h.remaining_ms);
        size_t n = strlen(owner->text),
               w = strlen(dibs__type_write.owner_suffix);
        if (n > w &&
            strcmp(owner->text + n - w, dibs__type_write.owner_suffix) == 0)
            h.mode = DIBS_MODE_WRITE;
        h.holds = dibs__parse_number(holds->text, holds->text + holds->len);
        dibs__buf_add(q->page, &h, sizeof h);
        dibs__buf_add(q->page, owner->text, n + 1);
    }
    return mode ? DIBS_OK : DIBS_ERR_PROTOCOL;
}

static void on_holders_reply(struct dibs__command *cmd, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct info_query *q = info_query_of(cmd);

    if (err == DIBS_OK)
        err = read_holders(q, reply);
    if (err == DIBS_OK && !dibs__buf_ok(q->page))
        err = DIBS_ERR_NOMEM;
    dibs__op_finish(&q->op, err);
}

static void holders_run(struct dibs__operation *op)
{
    query_send(DIBS_OF(op, struct info_query, op), VERB_HOLDERS,
               on_holders_reply);
}

static void on_info_reply(struct dibs__command *cmd, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct info_query *q = info_query_of(cmd);

    if (err == DIBS_OK)
        err = read_info(q, reply);
    if (err == DIBS_OK && q->page && q->op.entry->type->has_server_queue)
        err = read_queue(q, reply);
    if (err == DIBS_OK && q->force && q->owner_len) {
        if (q->owner_len <= sizeof q->owner) {
            q->op.on_caller_thread = false;
            force_run(&q->op);
            return;
        }
        err = DIBS_ERR_SERVER;
        dibs__op_record_server_error(
            &q->op, err,
            "'%.80s': its owner has %zu bytes and is no "
            "dibs or Redisson client",
            q->op.entry->name, q->owner_len);
    }
    dibs__op_finish(&q->op, err);
}

static void info_run(struct dibs__operation *op)
{
    struct info_query *q = DIBS_OF(op, struct info_query, op);

    op->args.first = q->first;
    op->args.count = q->page ? QUEUE_PAGE : 0;
    query_send(q, VERB_INFO, on_info_reply);
}

static dibs_err query_sync(dibs_lock *l, struct info_query *q,
                           void (*run)(struct dibs__operation *))
{
    dibs_err err = dibs__lock_enter(l);

    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* another thread may free the handle meanwhile */
    dibs__op_init(&q->op, l);
    q->op.start = run;
    q->deadline = 0; /* each page of a queue has its own time limit */
    err = dibs__op_wait(&q->op);
    dibs__client_leave(c);
    return err;
}

/* ---- public ------------------------------------------------------------ */

static dibs_err get_info(dibs_lock *l, dibs_lock_info *out)
{
    struct info_query q = {.force = false};

    if (dibs__struct_check(&dibs__struct_lock_info, out) != DIBS_OK)
        return dibs__lock_report_invalid_arg(l);
    dibs_err err = query_sync(l, &q, info_run);
    if (err == DIBS_OK)
        dibs__struct_write(&dibs__struct_lock_info, &q.info, out);
    return err;
}

dibs_err dibs_lock_info_get(dibs_lock *l, dibs_lock_info *out)
{
    return DIBS__API_CALL(get_info(l, out));
}

/* A slots lock has several holders, so a force release must name the owner. */
static dibs_err refuse_slots_without_owner(const dibs_lock *l)
{
    if (!l || !l->entry || l->entry->type->id != TYPE_SLOTS)
        return DIBS_OK;
    dibs__reason_set(DIBS_ERR_INVALID,
                     "'%.80s' is a slots lock: name the owner with "
                     "dibs_lock_force_release_owner",
                     l->entry->name);
    return dibs__lock_report_invalid_arg(l);
}

/* owner NULL: the present one. */
static dibs_err force_release(dibs_lock *l, const char *owner, bool *was_locked)
{
    struct info_query q = {.force = true};

    if (!owner && refuse_slots_without_owner(l) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (owner) {
        q.owner_len = strlen(owner);
        memcpy(q.owner, owner, q.owner_len);
    }
    dibs_err err = query_sync(l, &q, owner ? force_run : info_run);
    if (err == DIBS_OK && was_locked)
        *was_locked = q.was_locked;
    return err;
}

dibs_err dibs_lock_force_release(dibs_lock *l, bool *was_locked)
{
    return DIBS__API_CALL(force_release(l, NULL, was_locked));
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
                              ? force_release(l, owner, was_locked)
                              : dibs__lock_report_invalid_arg(l));
}

static void query_call_user(struct dibs__operation *op)
{
    struct info_query *q = DIBS_OF(op, struct info_query, op);

    if (q->force)
        q->force_fn(op->err, q->was_locked, op->arg);
    else
        q->info_fn(op->err, op->err == DIBS_OK ? &q->info : NULL, op->arg);
}

/* from: what to query, and the callback. */
static dibs_err query_begin(dibs_lock *l, const struct info_query *from)
{
    dibs_err err = dibs__callbacks_ensure_thread(&l->c->callbacks);
    struct info_query *q = err == DIBS_OK ? dibs__op_new(l, sizeof *q) : NULL;

    if (!q)
        return err == DIBS_OK ? DIBS_ERR_NOMEM : err;
    q->force = from->force;
    q->force_fn = from->force_fn;
    q->info_fn = from->info_fn;
    q->inspected_fn = from->inspected_fn;
    q->op.on_ended = from->op.on_ended;
    q->op.arg = from->op.arg;
    q->op.custom_completion = true;
    q->op.complete = query_call_user;
    q->op.start = info_run;
    dibs__op_begin(&q->op);
    return DIBS_OK;
}

static dibs_err report_null_arg(const dibs_lock *l, const char *what)
{
    dibs__check_not_null(what, NULL);
    return dibs__lock_report_invalid_arg(l);
}

static dibs_err query_async(dibs_lock *l, const struct info_query *from)
{
    if (from->force && refuse_slots_without_owner(l) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (!from->force_fn && !from->info_fn)
        return report_null_arg(l, "cb");
    dibs_err err = dibs__lock_enter(l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* a callback may free the handle meanwhile */
    err = query_begin(l, from);
    dibs__client_leave(c);
    return err;
}

dibs_err dibs_lock_force_release_async(dibs_lock *l, dibs_force_cb cb,
                                       void *arg)
{
    struct info_query from = {
        .force = true, .force_fn = cb, .op = {.arg = arg}};

    return DIBS__API_CALL(query_async(l, &from));
}

dibs_err dibs_lock_info_get_async(dibs_lock *l, dibs_info_cb cb, void *arg)
{
    struct info_query from = {.info_fn = cb, .op = {.arg = arg}};

    return DIBS__API_CALL(query_async(l, &from));
}

static void on_inspect_ended(struct dibs__operation *op)
{
    struct info_query *q = DIBS_OF(op, struct info_query, op);

    q->inspected_fn(op->err, &q->info,
                    op->error_text ? op->error_text->text : "", op->arg);
    dibs__free(op->error_text);
    dibs__free(q);
}

dibs_err dibs__lock_inspect(dibs_lock *l, dibs__lock_inspected *done, void *arg)
{
    struct info_query from = {.inspected_fn = done, .op = {.arg = arg}};

    from.op.on_ended = on_inspect_ended;
    return query_begin(l, &from);
}

/* ---- wait queue and holders -------------------------------------------- */

/* Returns false if the user's function asked to stop. */
static bool show_queue_page(const struct dibs__buf *page, size_t *position,
                            dibs_queue_fn fn, void *arg)
{
    const char *at = page->data, *end = page->data + page->len;

    while (at < end) {
        const char *owner = at;
        const char *ms = owner + strlen(owner) + 1;
        at = ms + strlen(ms) + 1;
        int64_t left = *ms ? dibs__reply_ms(strtoll(ms, NULL, 10)) : -1;
        if (!fn((*position)++, owner, left, arg))
            return false;
    }
    return true;
}

static dibs_err show_queue(dibs_lock *l, dibs_queue_fn fn, void *arg)
{
    struct dibs__buf page = {0};
    struct info_query q = {.page = &page};
    size_t position = 0, before;
    dibs_err err;

    if (!fn)
        return report_null_arg(l, "fn");
    do {
        before = position;
        dibs__buf_cut(&page, 0);
        q.first = (int64_t)position;
        err = query_sync(l, &q, info_run);
    } while (err == DIBS_OK && show_queue_page(&page, &position, fn, arg) &&
             position == before + QUEUE_PAGE && position < QUEUE_MAX);
    dibs__buf_clear(&page);
    if (err == DIBS_OK && position >= QUEUE_MAX)
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
    struct info_query q = {.page = &page};
    struct holder h;

    if (!fn)
        return report_null_arg(l, "fn");
    dibs_err err = query_sync(l, &q, holders_run);
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
