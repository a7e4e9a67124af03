/* SPDX-License-Identifier: MIT
 *
 * object_type.c - finds out what type of object a name is, and reads it.
 *
 * Thread  app.
 * Locks   none.
 *
 * A string with a number can belong to a slots lock, a semaphore or a latch;
 * the keys beside it tell which. A lock or slots lock is then read through a
 * handle of its type, so that dibs_client_look and dibs_lock_info_get agree.
 */
#include "lock/inspect/object_type.h"
#include "base/api_args.h"
#include "lock/inspect/request.h"

#include <string.h>

/* Result of the script object_info. */
struct found_object {
    struct dibs__request r;
    dibs_kind kind;
    int64_t token, number, entries, ends_ms;
};

static const struct {
    const char *word;
    dibs_kind kind;
} object_words[] = {
    {"none", DIBS_KIND_NONE},   {"lock", DIBS_KIND_LOCK},
    {"rw", DIBS_KIND_RW},       {"slots", DIBS_KIND_SLOTS},
    {"latch", DIBS_KIND_LATCH}, {"semaphore", DIBS_KIND_SEMAPHORE},
    {"other", DIBS_KIND_OTHER}, {"counter", DIBS_KIND_COUNTER},
};
#define OBJECT_WORDS (sizeof object_words / sizeof *object_words)

/* In a cluster a latch name cannot have a closing brace (latch.c), and its
 * hash's key would be in another slot: passes no key then. */
static void object_write(const struct dibs__request *r, struct dibs__buf *out,
                         bool whole)
{
    const struct dibs__lock_entry *entry = r->op.entry;
    bool may_be_latch = !dibs__entry_client(entry)->cluster ||
                        !memchr(entry->name, '}', entry->name_len);

    dibs__script_head(out, &dibs__script_object_info, whole, 1, 5);
    dibs__request_args(r, "nKzSd", out);
    if (may_be_latch)
        dibs__latch_hash_key(out, entry);
    else
        dibs__buf_arg_text(out, "");
}

static dibs_err object_read(struct dibs__request *r,
                            const struct dibs__reply *reply)
{
    struct found_object *f = DIBS_OF(r, struct found_object, r);
    const struct dibs__reply *word = dibs__reply_text(reply, 0);
    const struct dibs__reply *token = dibs__reply_text(reply, 1);

    if (!word || !token || !dibs__reply_num(reply, 2, &f->number) ||
        !dibs__reply_num(reply, 3, &f->entries) ||
        !dibs__reply_num(reply, 4, &f->ends_ms))
        return DIBS_ERR_PROTOCOL;
    f->token = dibs__parse_number(token->text, token->text + token->len);
    f->ends_ms = dibs__reply_ms(f->ends_ms);
    for (size_t i = 0; i < OBJECT_WORDS; i++)
        if (strcmp(object_words[i].word, word->text) == 0) {
            f->kind = object_words[i].kind;
            return DIBS_OK;
        }
    return DIBS_ERR_PROTOCOL;
}

/* Reads a lock or slots lock through a handle. */
static dibs_err read_by_handle(dibs_client *c,
                               const struct dibs__lock_type *type,
                               const char *name, size_t len,
                               dibs_lock_info *info)
{
    dibs_lock *l = NULL;
    dibs_err err = dibs__lock_new(c, type, name, len, &l);

    if (err == DIBS_OK)
        err = dibs_lock_info_get(l, info);
    dibs_lock_free(l);
    return err;
}

static void fill_counter_info(const struct found_object *f,
                              dibs_lock_info *info)
{
    info->ttl_ms = f->ends_ms;
    info->owners = f->entries > 0 ? (size_t)f->entries : 0;
    info->locked = (f->kind == DIBS_KIND_SEMAPHORE && f->entries > 0) ||
                   (f->kind == DIBS_KIND_LATCH && f->number > 0);
    if (f->kind == DIBS_KIND_LATCH)
        info->left = f->number > 0 ? f->number : 0;
    else
        info->free_slots = f->number;
}

dibs_err dibs__object_inspect(dibs_client *c, const char *name, size_t len,
                              dibs_lock_info *info)
{
    struct found_object f = {.r = {.write = object_write, .read = object_read}};
    dibs_lock *l = NULL;
    dibs_err err = dibs__lock_new(c, &dibs__type_mutex, name, len, &l);

    if (err == DIBS_OK)
        err = dibs__request_run(l, &f.r, NULL, NULL);
    dibs_lock_free(l);
    if (err != DIBS_OK)
        return err;
    *info = (dibs_lock_info){.size = sizeof *info};
    if (f.kind == DIBS_KIND_LOCK || f.kind == DIBS_KIND_RW)
        err = read_by_handle(c, &dibs__type_mutex, name, len, info);
    else if (f.kind == DIBS_KIND_SLOTS)
        err = read_by_handle(c, &dibs__type_slots, name, len, info);
    else
        fill_counter_info(&f, info);
    info->kind = f.kind;
    info->token = f.token;
    return err;
}

static dibs_err inspect_by_name(dibs_client *c, const char *name,
                                dibs_lock_info *out)
{
    dibs_lock_info info;

    if (dibs__check_not_null("client", c) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (dibs__struct_check(&dibs__struct_lock_info, out) != DIBS_OK)
        return dibs__client_report_invalid_arg(c);
    dibs_err err =
        dibs__object_inspect(c, name, dibs__name_length(name), &info);
    if (err == DIBS_OK)
        dibs__struct_write(&dibs__struct_lock_info, &info, out);
    return err;
}

dibs_err dibs_client_look(dibs_client *c, const char *name, dibs_lock_info *out)
{
    return DIBS__API_CALL(inspect_by_name(c, name, out));
}
