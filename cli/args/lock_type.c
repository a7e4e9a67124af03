/* SPDX-License-Identifier: MIT
 *
 * lock_type.c - which kind of lock the options ask for.
 *
 * A token and a slot belong to one hold of one lock, and the command that runs
 * gets one of each. So --fence and --slots are for one name on one server.
 *
 * Thread  Any.
 */
#include "args/lock_type.h"

#include "exit_codes.h"

enum lock_kind kind_of(const struct args *a)
{
    return a->fair        ? TYPE_FAIR
           : a->shared    ? TYPE_READ
           : a->exclusive ? TYPE_WRITE
           : a->fence     ? TYPE_FENCED
           : a->slots > 0 ? TYPE_SLOTS
                          : KIND_PLAIN;
}

void kind_set(struct args *a, enum lock_kind kind)
{
    a->fair = kind == TYPE_FAIR;
    a->shared = kind == TYPE_READ;
    a->exclusive = kind == TYPE_WRITE;
    a->fence = kind == TYPE_FENCED;
    a->slots = kind == TYPE_SLOTS;
}

dibs_err kind_new(enum lock_kind kind, dibs_client *c, const char *name,
                  int64_t slots, dibs_lock **out)
{
    switch (kind) { /* no default: the compiler names a missing case */
    case KIND_PLAIN:
        return dibs_lock_new(c, name, out);
    case TYPE_FAIR:
        return dibs_fair_lock_new(c, name, out);
    case TYPE_READ:
        return dibs_read_lock_new(c, name, out);
    case TYPE_WRITE:
        return dibs_write_lock_new(c, name, out);
    case TYPE_FENCED:
        return dibs_fenced_lock_new(c, name, out);
    case TYPE_SLOTS:
        return dibs_slots_lock_new(c, name, slots, out);
    }
    return DIBS_ERR_INVALID;
}

const char *kind_word(dibs_kind kind)
{
    switch (kind) { /* no default: the compiler names a missing case */
    case DIBS_KIND_NONE:
        return "none";
    case DIBS_KIND_LOCK:
        return "lock";
    case DIBS_KIND_RW:
        return "read-write";
    case DIBS_KIND_SLOTS:
        return "slots";
    case DIBS_KIND_SEMAPHORE:
        return "semaphore";
    case DIBS_KIND_LATCH:
        return "latch";
    case DIBS_KIND_COUNTER:
        return "counter";
    case DIBS_KIND_OTHER:
        return "other";
    }
    return "unknown";
}

int kind_refuse(dibs_client *c, const char *name, dibs_kind wanted)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    bool known = dibs_client_look(c, name, &info) == DIBS_OK;
    const char *is = NULL;

    if (known && info.kind == DIBS_KIND_SEMAPHORE && wanted != info.kind)
        is = "a semaphore: 'dibs sem' is for it";
    else if (known && info.kind == DIBS_KIND_SLOTS && wanted != info.kind)
        is = "a lock with slots: 'dibs slots' and 'dibs run -N' are for it";
    else if (known && info.kind == DIBS_KIND_LATCH && info.left > 0)
        is = "a latch: 'dibs latch' is for it";
    if (!is)
        return EXIT_FINE;
    out_tell(OUT_ERROR, "usage", "%s is %s; take another name", name, is);
    return EXIT_USAGE;
}

bool kind_counted(dibs_kind kind)
{
    return kind == DIBS_KIND_SLOTS || kind == DIBS_KIND_SEMAPHORE ||
           kind == DIBS_KIND_LATCH || kind == DIBS_KIND_COUNTER;
}

bool kind_held(const dibs_lock_info *info)
{
    return info->locked || info->mode != DIBS_MODE_NONE;
}

void kind_json(struct json *j, const dibs_lock_info *info)
{
    json_text(j, "kind", kind_word(info->kind));
    if (info->token > 0)
        json_int(j, "token", info->token);
    if (info->kind == DIBS_KIND_SLOTS)
        json_int(j, "slots", info->slots);
    if (kind_counted(info->kind) && info->kind != DIBS_KIND_LATCH)
        json_int(j, "free", info->free_slots);
    if (info->kind == DIBS_KIND_LATCH)
        json_int(j, "left", info->left);
}

/* What is under the name fits what was asked for: the reason is another one. */
static bool kind_fits(const struct args *a, dibs_kind found)
{
    bool rw = a->shared || a->exclusive;

    if (a->verb || a->slots > 0)
        return found == DIBS_KIND_NONE;
    return found == DIBS_KIND_NONE || (found == DIBS_KIND_LOCK && !rw) ||
           (found == DIBS_KIND_RW && rw);
}

const char *kind_clash(dibs_client *c, const struct args *a,
                       char buf[KIND_CLASH_MAX])
{
    dibs_lock_info found = DIBS_LOCK_INFO_INIT;
    dibs_err err = dibs_client_look(c, a->words[0], &found);

    if (err == DIBS_ERR_WRONGTYPE)
        found.kind = DIBS_KIND_OTHER;
    else if (err != DIBS_OK || kind_fits(a, found.kind))
        return NULL;
    switch (found.kind) { /* no default: the compiler names a missing case */
    case DIBS_KIND_NONE:
        break;
    case DIBS_KIND_LOCK:
        return a->verb     ? "it is a plain lock: use 'dibs run'"
               : a->slots  ? "it is a plain lock: leave out -N"
               : a->shared ? "it is a plain lock: leave out -s"
                           : "it is a plain lock: leave out -x";
    case DIBS_KIND_RW:
        return a->verb ? "it is a read-write lock: use 'dibs run -s' or 'dibs "
                         "run -x'"
                       : "it is a read-write lock: use -s or -x";
    case DIBS_KIND_SLOTS:
        snprintf(buf, KIND_CLASH_MAX,
                 a->verb ? "it is a lock with %lld slots: use 'dibs run -N "
                           "%lld'"
                         : "it is a lock with %lld slots: use -N %lld",
                 (long long)found.slots, (long long)found.slots);
        return buf;
    case DIBS_KIND_SEMAPHORE:
        return "it is a semaphore: use 'dibs sem'";
    case DIBS_KIND_LATCH:
        return "it is a latch: use 'dibs latch'";
    case DIBS_KIND_COUNTER:
        return "it is a number, for slots, a semaphore or a latch: use -N, "
               "'dibs sem' or 'dibs latch'";
    case DIBS_KIND_OTHER:
        return "the server has something else under this name: take another "
               "name";
    }
    return NULL;
}

/* One token, one slot: of one lock. */
static int check_single(const struct args *a, const struct command *cmd)
{
    static const char right_fence[] = "dibs run --fence backup -- make";
    static const char right_slots[] = "dibs run -N 3 backup -- make";

    if (a->fence && (a->multi || a->quorum))
        return args_wrong(cmd, right_fence,
                          "--fence and --%s cannot be used together: a token "
                          "is that of one lock on one server",
                          a->multi ? "multi" : "quorum");
    if (a->slots > 0 && (a->multi || a->quorum))
        return args_wrong(cmd, right_slots,
                          "--slots and --%s cannot be used together: a slot is "
                          "that of one lock on one server",
                          a->multi ? "multi" : "quorum");
    if (a->strict && a->slots == 0)
        return args_wrong(cmd, "dibs run --strict -N 3 backup -- make",
                          "--strict has no effect without --slots");
    return EXIT_FINE;
}

static int check_fair(const struct args *a, const struct command *cmd)
{
    static const char right[] = "dibs run --fair --fair-call 5s backup -- make";

    if (a->fair_call_ms == FAIR_CALL_DEFAULT)
        return EXIT_FINE;
    if (a->fair_call_ms < DIBS_LEASE_MIN_MS)
        return args_wrong(cmd, right, "--fair-call: shorter than %d ms",
                          DIBS_LEASE_MIN_MS);
    if (!a->fair)
        return args_wrong(cmd, right,
                          "--fair-call has no effect without --fair");
    return EXIT_FINE;
}

int kind_check(const struct args *a, const struct command *cmd)
{
    int kinds = a->fair + a->shared + a->exclusive + a->fence + (a->slots > 0);
    int code = check_fair(a, cmd);

    if (code != EXIT_FINE)
        return code;

    if (a->fence && a->fair)
        return args_wrong(cmd, "dibs run --fence backup -- make",
                          "--fence and --fair cannot be used together: a fair "
                          "lock has no tokens");
    if (kinds > 1)
        return args_wrong(cmd, "dibs run -s data -- ./report",
                          "use only one of --fair, -s, -x, --fence and -N");
    if (a->spin && a->fair)
        return args_wrong(cmd, "dibs run --spin backup -- make",
                          "--spin and --fair cannot be used together: a place "
                          "in a queue needs messages");
    return check_single(a, cmd);
}
