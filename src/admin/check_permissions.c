/* SPDX-License-Identifier: MIT
 *
 * check_permissions.c - doctor check of the user's permissions, and the table
 * of permissions that locks need.
 *
 * Thread  app.
 * Locks   none.
 *
 * How     A table has every command that locks use, with arguments. If ACL
 *         DRYRUN (Redis 7) is allowed, it returns what would be refused, for
 *         the keys and channels of the given lock. Else each command is tried
 *         in a form without effect: a server checks permissions before
 *         arguments, so a command with invalid arguments shows whether it is
 *         allowed. Commands without such a form are skipped. A read-only
 *         command is tried on the lock's own keys, so that refused keys are
 *         found, too.
 *
 * Keys    Without a lock's name its keys are unknown: then only refused
 *         commands are reported, not refused keys.
 *
 * ACL     acl_rules.c makes ACL rules from the same table.
 */
#include "admin/check_permissions.h"
#include "admin/check_context.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Words are separated by blanks. %x is a key or channel of key_formats[], %k
 * the lock's key, %t a key that does not exist. */
struct need {
    enum dibs__permission_group group;
    const char *command; /* as sent by locks, with valid arguments */
    const char *trial;   /* in a form without effect; NULL: none exists */
};

static const struct {
    const char *without; /* consequence of a missing permission */
    dibs_verdict verdict;
} groups[RIGHT_GROUPS] = {
    [RIGHT_PLAIN] = {"locks do not work", DIBS_VERDICT_PROBLEM},
    [RIGHT_WAKE] = {"waiters are not woken, and poll every two seconds",
                    DIBS_VERDICT_WARNING},
    [RIGHT_WAIT_QUEUE] =
        {"all who wait for a plain, fenced or write lock, or for "
         "slots, are woken at each release, not one",
         DIBS_VERDICT_NOTE},
    [RIGHT_KILL] = {"a lost reply takes longer to recover from",
                    DIBS_VERDICT_NOTE},
    [RIGHT_TRACK] = {"a lost lock is detected at its next renewal only",
                     DIBS_VERDICT_NOTE},
    [RIGHT_NAME] = {"connections have no name, so who an owner is remains "
                    "unknown",
                    DIBS_VERDICT_NOTE},
    [RIGHT_FAIR] = {"no fair locks", DIBS_VERDICT_NOTE},
    [RIGHT_RW] = {"no read-write locks", DIBS_VERDICT_NOTE},
    [RIGHT_FENCED] = {"no fenced locks", DIBS_VERDICT_NOTE},
    [RIGHT_SLOTS] = {"no slots", DIBS_VERDICT_NOTE},
    [RIGHT_SEMAPHORE] = {"no semaphores", DIBS_VERDICT_NOTE},
    [RIGHT_LATCH] = {"no latches", DIBS_VERDICT_NOTE},
    [RIGHT_VALUES] = {"holders cannot publish values", DIBS_VERDICT_NOTE},
    [RIGHT_HOLDERS] = {"who holds a read-write lock is unknown",
                       DIBS_VERDICT_NOTE},
    [RIGHT_SCAN] = {"locks cannot be listed", DIBS_VERDICT_NOTE},
    [RIGHT_WAITER_COUNT] =
        {"how many wait for a plain or read-write lock is unknown",
         DIBS_VERDICT_NOTE},
    [RIGHT_CLIENT_LIST] = {"who an owner is (host, pid, program) is unknown",
                           DIBS_VERDICT_NOTE},
    [RIGHT_REPLICA_ACK] = {"no acknowledgement by all replicas",
                           DIBS_VERDICT_NOTE},
    [RIGHT_REDIRECT] = {"locks fail while their slot is migrating",
                        DIBS_VERDICT_WARNING},
};

static const struct need needs[] = {
    {RIGHT_PLAIN, "EVAL x 1 %k", "EVAL return%n0 0"},
    {RIGHT_PLAIN, "EVALSHA x 1 %k",
     "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0"},
    {RIGHT_PLAIN, "HEXISTS %k f", "HEXISTS %k f"},
    {RIGHT_PLAIN, "HSET %k f v", "HSET %k f v f"},
    {RIGHT_PLAIN, "HGET %k f", "HGET %k f"},
    {RIGHT_PLAIN, "HMGET %k f", "HMGET %k f"},
    {RIGHT_PLAIN, "HDEL %k f", "HDEL %t f"},
    {RIGHT_PLAIN, "HLEN %k", "HLEN %k"},
    {RIGHT_PLAIN, "HGETALL %k", "HGETALL %t"},
    {RIGHT_PLAIN, "PTTL %k", "PTTL %k"},
    {RIGHT_PLAIN, "PEXPIRE %k 1", "PEXPIRE %k x"},
    {RIGHT_PLAIN, "DEL %k", "DEL %t"},
    {RIGHT_WAIT_QUEUE, "ZRANGE %W 0 1", "ZRANGE %W 0 1"},
    {RIGHT_WAIT_QUEUE, "ZADD %W 1 x", "ZADD %t x x"},
    {RIGHT_WAIT_QUEUE, "ZREM %W x", "ZREM %t x"},
    {RIGHT_WAIT_QUEUE, "ZPOPMIN %W", "ZPOPMIN %t"},
    {RIGHT_WAIT_QUEUE, "GET %L", "GET %L"},
    {RIGHT_WAIT_QUEUE, "SET %L 1 PX 1", "SET %t 1 PX x"},
    {RIGHT_NAME, "CLIENT SETNAME x", NULL},
    {RIGHT_KILL, "CLIENT INFO", "CLIENT INFO"},
    {RIGHT_KILL, "CLIENT KILL ID 1", "CLIENT KILL ID 0"},
    {RIGHT_TRACK, "CLIENT TRACKING ON", "CLIENT TRACKING x"},
    {RIGHT_TRACK, "CLIENT CACHING YES", "CLIENT CACHING x"},
    {RIGHT_TRACK, "EXISTS %k", "EXISTS %k"},
    {RIGHT_TRACK, "SUBSCRIBE __redis__:invalidate", NULL},
    {RIGHT_FAIR, "TIME", "TIME"},
    {RIGHT_FAIR, "EXISTS %q", "EXISTS %q"},
    {RIGHT_FAIR, "LINDEX %q 0", "LINDEX %q 0"},
    {RIGHT_FAIR, "LPOP %q", "LPOP %t"},
    {RIGHT_FAIR, "LPOS %q x", "LPOS %t x"},
    {RIGHT_FAIR, "LREM %q 1 x", "LREM %t 1 x"},
    {RIGHT_FAIR, "RPUSH %q x", NULL},
    {RIGHT_FAIR, "LLEN %q", "LLEN %q"},
    {RIGHT_FAIR, "LRANGE %q 0 1", "LRANGE %q 0 1"},
    {RIGHT_FAIR, "ZADD %s 1 x", "ZADD %t x x"},
    {RIGHT_FAIR, "ZREM %s x", "ZREM %t x"},
    {RIGHT_FAIR, "ZSCORE %s x", "ZSCORE %s x"},
    {RIGHT_FAIR, "ZRANGE %s 0 1", "ZRANGE %s 0 1"},
    {RIGHT_FAIR, "PEXPIREAT %s 1", "PEXPIREAT %t x"},
    {RIGHT_FAIR, "HSET %z f v", NULL},
    {RIGHT_RW, "HRANDFIELD %k 1", "HRANDFIELD %t 1"},
    {RIGHT_RW, "SET %r 1 PX 1", "SET %t 1 PX x"},
    {RIGHT_RW, "GET %g", "GET %g"},
    {RIGHT_RW, "EXISTS %r", "EXISTS %t"},
    {RIGHT_RW, "EVALSHA x 1 %w", NULL}, /* the channel is a key there */
    {RIGHT_FENCED, "GET %K", "GET %K"},
    {RIGHT_FENCED, "SET %K 1 PX 1", "SET %t 1 PX x"},
    {RIGHT_FENCED, "INCR %K", NULL},
    {RIGHT_FENCED, "TIME", "TIME"},
    {RIGHT_SLOTS, "GET %k", "GET %t"},
    {RIGHT_SLOTS, "SET %k 1", "SET %t 1 PX x"},
    {RIGHT_SLOTS, "INCRBY %k 1", "INCRBY %t x"},
    {RIGHT_SLOTS, "DECRBY %k 1", "DECRBY %t x"},
    {RIGHT_SLOTS, "TIME", "TIME"},
    {RIGHT_SLOTS, "ZADD %T 1 x", "ZADD %t x x"},
    {RIGHT_SLOTS, "ZCARD %T", "ZCARD %T"},
    {RIGHT_SLOTS, "ZCOUNT %T 0 1", "ZCOUNT %t 0 1"},
    {RIGHT_SLOTS, "ZMSCORE %T x", "ZMSCORE %t x"},
    {RIGHT_SLOTS, "ZRANGE %T 0 1", "ZRANGE %t 0 1"},
    {RIGHT_SLOTS, "ZRANGEBYSCORE %T 0 1", "ZRANGEBYSCORE %t 0 1"},
    {RIGHT_SLOTS, "ZREM %T x", "ZREM %t x"},
    {RIGHT_SLOTS, "ZSCORE %T x", "ZSCORE %t x"},
    {RIGHT_SLOTS, "HSET %S f v", NULL},
    {RIGHT_SEMAPHORE, "GET %k", "GET %t"},
    {RIGHT_SEMAPHORE, "SET %G 1 PX 1", "SET %t 1 PX x"},
    {RIGHT_SEMAPHORE, "INCRBY %k 1", "INCRBY %t x"},
    {RIGHT_SEMAPHORE, "DECRBY %k 1", "DECRBY %t x"},
    {RIGHT_SEMAPHORE, "TIME", "TIME"},
    {RIGHT_SEMAPHORE, "ZADD %H 1 x", "ZADD %t x x"},
    {RIGHT_SEMAPHORE, "ZCARD %H", "ZCARD %H"},
    {RIGHT_SEMAPHORE, "ZRANGE %H 0 1", "ZRANGE %t 0 1"},
    {RIGHT_SEMAPHORE, "ZRANGEBYSCORE %H 0 1", "ZRANGEBYSCORE %t 0 1"},
    {RIGHT_SEMAPHORE, "ZREM %H x", "ZREM %t x"},
    {RIGHT_SEMAPHORE, "ZSCORE %H x", "ZSCORE %t x"},
    {RIGHT_LATCH, "GET %k", "GET %t"},
    {RIGHT_LATCH, "SET %k 1", "SET %t 1 PX x"},
    {RIGHT_LATCH, "DECR %k", NULL},
    {RIGHT_LATCH, "HINCRBY %D f 1", "HINCRBY %t f x"},
    {RIGHT_LATCH, "TIME", "TIME"},
    {RIGHT_VALUES, "GET %v", "GET %v"},
    {RIGHT_VALUES, "SET %v x PX 1", "SET %t x PX x"},
    {RIGHT_SCAN, "SCAN 0", "SCAN 0 COUNT 1"},
    {RIGHT_HOLDERS, "HSCAN %k 0", "HSCAN %t 0"},
    {RIGHT_CLIENT_LIST, "CLIENT LIST TYPE normal", "CLIENT LIST ID 1"},
    {RIGHT_REPLICA_ACK, "ROLE", "ROLE"},
    {RIGHT_REPLICA_ACK, "WAIT 0 1", "WAIT 0 1"},
};

static const struct need classic_needs[] = {
    {RIGHT_WAKE, "PUBLISH %c 0", "PUBLISH %t 0"},
    {RIGHT_WAKE, "SUBSCRIBE %c", NULL},
    {RIGHT_WAKE, "UNSUBSCRIBE %c", NULL},
    {RIGHT_RW, "PUBLISH %w 0", NULL},
    {RIGHT_SLOTS, "PUBLISH %C 0", NULL},
    {RIGHT_SEMAPHORE, "PUBLISH %C 0", NULL},
    {RIGHT_LATCH, "PUBLISH %Y 0", NULL},
    {RIGHT_WAITER_COUNT, "PUBSUB NUMSUB %c", "PUBSUB NUMSUB %t"},
};

static const struct need sharded_needs[] = {
    {RIGHT_WAKE, "SPUBLISH %c 0", "SPUBLISH %t 0"},
    {RIGHT_WAKE, "SSUBSCRIBE %c", NULL},
    {RIGHT_WAKE, "SUNSUBSCRIBE %c", NULL},
    {RIGHT_RW, "SPUBLISH %w 0", NULL},
    {RIGHT_SLOTS, "SPUBLISH %C 0", NULL},
    {RIGHT_SEMAPHORE, "SPUBLISH %C 0", NULL},
    {RIGHT_LATCH, "SPUBLISH %Y 0", NULL},
    {RIGHT_WAITER_COUNT, "PUBSUB SHARDNUMSUB %c", "PUBSUB SHARDNUMSUB %t"},
};

static const struct need cluster_needs[] = {
    {RIGHT_REDIRECT, "ASKING", "ASKING"},
    {RIGHT_REDIRECT, "CLUSTER SLOTS", "CLUSTER SLOTS"},
};

/* Commands of the doctor itself. */
static const struct need doctor_needs[] = {
    {RIGHT_DOCTOR, "ACL DRYRUN x", NULL},
    {RIGHT_DOCTOR, "ACL WHOAMI", NULL},
    {RIGHT_DOCTOR, "CLIENT TRACKINGINFO", NULL},
    {RIGHT_DOCTOR, "CLUSTER INFO", NULL},
    {RIGHT_DOCTOR, "CONFIG GET x", NULL},
    {RIGHT_DOCTOR, "INFO", NULL},
    {RIGHT_DOCTOR, "PING", NULL},
    {RIGHT_DOCTOR, "PUBSUB SHARDNUMSUB", NULL},
    {RIGHT_DOCTOR, "ROLE", NULL},
    {RIGHT_DOCTOR, "TIME", NULL},
    {RIGHT_DOCTOR, "WAIT 0 1", NULL},
};

/* ---- keys and channels ------------------------------------------------- */

/* Names of keys and channels: prefix, lock name, suffix. The lock name is put
 * in braces unless it contains one. tail: appended for a pattern, where more
 * characters follow. */
static const struct key_format {
    char letter;
    const char *prefix, *suffix, *tail;
    bool always_braced; /* even if the name contains a brace */
} key_formats[] = {
    {'c', "redisson_lock__channel:", "", "*", false},
    {'q', "redisson_lock_queue:", "", "", false},
    {'s', "redisson_lock_timeout:", "", "", false},
    {'z', "dibs_lock_silent:", "", "", false},
    {'W', "dibs_lock_waiters:", "", "", false},
    {'L', "dibs_lock_listener:", "", "", false},
    {'v', "dibs_lock_value:", "", "", false},
    {'g', "dibs_rwlock_gate:", "", "", false},
    {'w', "redisson_rwlock:", "", "*", false},
    {'K', "redisson_lock_token:", "", "", false},
    {'C', "redisson_sc:", "", "*", false},
    {'T', "", ":timeout", "", false},
    {'S', "", ":dibs_slot", "", false},
    {'H', "", ":dibs_held", "", false},
    {'G', "", ":dibs_req:", "*", false},
    {'r', "", ":", "*", false},
    {'D', "", ":dibs_down", "", true},
    {'Y', "redisson_countdownlatch__channel__", "", "*", true},
};

static const char *format_key(char letter, const char *name, bool pattern,
                              char buf[], size_t size)
{
    for (size_t i = 0; i < COUNT(key_formats); i++) {
        const struct key_format *o = &key_formats[i];
        if (o->letter != letter)
            continue;
        bool bare = !o->always_braced && strchr(name, '{');
        snprintf(buf, size, "%s%s%s%s%s%s", o->prefix, bare ? "" : "{", name,
                 bare ? "" : "}", o->suffix, pattern ? o->tail : "");
        return buf;
    }
    return name; /* k */
}

struct rights {
    struct dibs__check_ctx *ctx;
    char user[64];   /* "" if ACL WHOAMI is refused */
    bool has_dryrun; /* ACL DRYRUN is allowed */
    char missing[RIGHT_GROUPS][160];
    bool key_refused; /* a key or channel was refused, not a command */
};

/* ---- commands from the table ------------------------------------------- */

/* Returns the word to send for a word of the table. */
static const char *expand_word(const struct rights *r, const char *text,
                               char buf[], size_t size)
{
    const char *name = r->ctx->name ? r->ctx->name : "dibs-doctor";

    if (strcmp(text, "return%n0") == 0)
        return "return 0";
    if (text[0] != '%')
        return text;
    if (text[1] == 't') { /* a key that does not exist */
        snprintf(buf, size, "dibs-doctor:%s", dibs_client_id(r->ctx->c));
        return buf;
    }
    return format_key(text[1], name, false, buf, size);
}

/* Runs a command of the table, after the `count` words already in argv. */
static dibs_err run_table_command(const struct rights *r, const char *command,
                                  const char *argv[DIBS__QUERY_ARGS],
                                  size_t count)
{
    char words[64], expanded[DIBS_NAME_MAX + 64], *rest = words, *one;

    snprintf(words, sizeof words, "%s", command);
    while ((one = strsep(&rest, " ")) && count < DIBS__QUERY_ARGS - 1)
        argv[count++] = expand_word(r, one, expanded, sizeof expanded);
    argv[count] = NULL;
    return dibs__check_query(r->ctx, argv);
}

/* ---- one permission ---------------------------------------------------- */

/* Appends the command's name, for CLIENT and PUBSUB with the subcommand. */
static void add_missing(struct rights *r, const struct need *n)
{
    char *list = r->missing[n->group];
    size_t used = strlen(list);
    int words = strncmp(n->command, "CLIENT ", 7) == 0 ||
                        strncmp(n->command, "PUBSUB ", 7) == 0
                    ? 2
                    : 1;
    size_t len = 0;

    while (words-- > 0)
        len += strcspn(n->command + len, " ") + (words > 0);
    snprintf(list + used, sizeof r->missing[0] - used, "%s%.*s",
             used ? ", " : "", (int)len, n->command);
}

/* Returns true if the error refuses the command, not a key or channel. */
static bool denies_command(const char *text)
{
    return strstr(text, "to run the") != NULL;
}

/* Returns true if the trial has a key of the lock; %t is none, %n no key. */
static bool trial_has_lock_key(const struct need *n)
{
    const char *at = n->trial ? strchr(n->trial, '%') : NULL;

    return at && at[1] != 't' && at[1] != 'n';
}

static void record_refusal(struct rights *r, const struct need *n,
                           const char *text)
{
    if (denies_command(text) || !strchr(n->command, '%')) {
        add_missing(r, n);
    } else if (r->ctx->name && (r->has_dryrun || trial_has_lock_key(n))) {
        r->key_refused = true;
        add_missing(r, n);
    }
}

static void check_right(struct rights *r, const struct need *n)
{
    const char *argv[DIBS__QUERY_ARGS] = {"ACL", "DRYRUN", r->user};
    struct dibs__check_ctx *ctx = r->ctx;

    if (r->has_dryrun) {
        dibs_err err = run_table_command(r, n->command, argv, 3);
        if (err == DIBS_OK &&
            strcmp(dibs__query_reply_text(&ctx->reply), "OK") != 0)
            record_refusal(r, n, dibs__query_reply_text(&ctx->reply));
    } else if (n->trial && !ctx->is_replica) {
        if (run_table_command(r, n->trial, argv, 0) == DIBS_ERR_AUTH)
            record_refusal(r, n, dibs__query_reply_text(&ctx->reply));
    }
}

/* ---- all permissions --------------------------------------------------- */

static void check_rights(struct rights *r, const struct need *rows,
                         size_t count)
{
    for (size_t i = 0; i < count && !r->ctx->fatal_err; i++)
        check_right(r, &rows[i]);
}

static void read_user(struct rights *r)
{
    struct dibs__check_ctx *ctx = r->ctx;

    if (DIBS__CHECK_QUERY(ctx, "ACL", "WHOAMI") == DIBS_OK)
        snprintf(r->user, sizeof r->user, "%s",
                 dibs__query_reply_text(&ctx->reply));
    r->has_dryrun = r->user[0] && DIBS__CHECK_QUERY(ctx, "ACL", "DRYRUN",
                                                    r->user, "PING") == DIBS_OK;
}

void dibs__check_permissions(struct dibs__check_ctx *ctx)
{
    struct rights r = {.ctx = ctx};
    bool all = true;

    read_user(&r);
    check_rights(&r, needs, COUNT(needs));
    if (dibs__client_pubsub_mode(ctx->c) & PUBSUB_CLASSIC)
        check_rights(&r, classic_needs, COUNT(classic_needs));
    if (dibs__client_pubsub_mode(ctx->c) & PUBSUB_SHARDED)
        check_rights(&r, sharded_needs, COUNT(sharded_needs));
    if (ctx->c->cluster)
        check_rights(&r, cluster_needs, COUNT(cluster_needs));
    if (ctx->fatal_err)
        return;
    for (int g = 0; g < RIGHT_GROUPS; g++) {
        if (!r.missing[g][0])
            continue;
        all = false;
        dibs__check_report(ctx, "rights", groups[g].verdict,
                           "%s%s%s may not %s: %s",
                           r.user[0] ? "user " : "this user", r.user,
                           r.key_refused ? ", with this name," : "",
                           r.missing[g], groups[g].without);
    }
    if (all)
        dibs__check_report(ctx, "rights",
                           r.has_dryrun || !ctx->is_replica ? DIBS_VERDICT_OK
                                                            : DIBS_VERDICT_NOTE,
                           "%s%s may do what locks need%s",
                           r.user[0] ? "user " : "this user", r.user,
                           r.has_dryrun ? "" : ", as far as that can be tried");
}

/* ---- the table for acl_rules.c ----------------------------------------- */

/* Returns true for the invalidation channel: a word without a %x. */
static bool is_channel(const char *word)
{
    return strncmp(word, "__redis__:", 10) == 0;
}

static bool each_permission(const struct need *rows, size_t count,
                            unsigned wanted, const char *pattern,
                            dibs__permission_fn *fn, void *arg)
{
    char words[64], expanded[DIBS_NAME_MAX + 64], *rest, *one;
    bool more = true;

    for (size_t i = 0; more && i < count; i++) {
        if (!(wanted & 1u << rows[i].group))
            continue;
        snprintf(words, sizeof words, "%s", rows[i].command);
        rest = words;
        one = strsep(&rest, " ");
        bool has_sub = strcmp(one, "ACL") == 0 || strcmp(one, "CLIENT") == 0 ||
                       strcmp(one, "CONFIG") == 0 ||
                       strcmp(one, "PUBSUB") == 0 ||
                       strcmp(one, "CLUSTER") == 0;
        bool channel = strstr(one, "PUBLISH") || strstr(one, "SUBSCRIBE");
        more = fn(one, has_sub ? strsep(&rest, " ") : NULL, arg);
        while (more && (one = strsep(&rest, " ")))
            if ((one[0] == '%' || is_channel(one)) && !has_sub) {
                expanded[0] = channel ? '&' : '~';
                snprintf(expanded + 1, sizeof expanded - 1, "%s",
                         is_channel(one)
                             ? one
                             : format_key(one[1], pattern, true,
                                          (char[DIBS_NAME_MAX + 64]){0},
                                          DIBS_NAME_MAX + 64));
                more = fn(expanded, NULL, arg);
            }
    }
    return more;
}

bool dibs__permissions_each(unsigned wanted, bool cluster, const char *pattern,
                            dibs__permission_fn *fn, void *arg)
{
    return each_permission(needs, COUNT(needs), wanted, pattern, fn, arg) &&
           each_permission(classic_needs, COUNT(classic_needs), wanted, pattern,
                           fn, arg) &&
           each_permission(doctor_needs, COUNT(doctor_needs), wanted, pattern,
                           fn, arg) &&
           (!cluster || (each_permission(sharded_needs, COUNT(sharded_needs),
                                         wanted, pattern, fn, arg) &&
                         each_permission(cluster_needs, COUNT(cluster_needs),
                                         wanted, pattern, fn, arg)));
}
