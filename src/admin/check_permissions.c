/* SPDX-License-Identifier: MIT
 *
 * check_permissions.c - what our user may do on the server, and what not.
 *
 * Thread  app.
 * Locks   none.
 *
 * How     A table has every command that locks need, with arguments. Where ACL
 *         DRYRUN exists (Redis 7) and is allowed, it tells what would be
 *         refused, with the keys and channels of the lock in question.
 *         Elsewhere the commands are tried, in a form that cannot do anything:
 *         a server checks rights before arguments, so a command with wrong
 *         arguments shows whether we may send it. Some commands have no such
 *         form; they are skipped. A command that only reads is tried on the
 *         lock's own keys, and a refusal of the key counts.
 *
 * Keys    Without the name of a lock nobody can tell which keys matter, so
 *         only commands count then.
 *
 * Rules   The same table says which rules a user needs: see acl_rules.c.
 */
#include "admin/check_permissions.h"
#include "admin/check_context.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Words are parted by blanks. What is in place of %x, objects[] says. */
struct need {
    enum dibs__permission_group group;
    const char *command; /* as it would be sent, with good arguments */
    const char *trial;   /* in a form that does nothing; NULL: there is none */
};

static const struct {
    const char *without; /* what there is not, if a right is missing */
    dibs_verdict verdict;
} groups[RIGHT_GROUPS] = {
    [RIGHT_PLAIN] = {"locks do not work", DIBS_VERDICT_PROBLEM},
    [RIGHT_WAKE] = {"waiters are not woken, and look every two seconds",
                    DIBS_VERDICT_WARNING},
    [RIGHT_LINE] = {"all who wait for a plain, fenced or write lock, or for "
                    "slots, are woken at each release, not one",
                    DIBS_VERDICT_NOTE},
    [RIGHT_BARRIER] = {"a lost reply takes longer to settle",
                       DIBS_VERDICT_NOTE},
    [RIGHT_TRACK] = {"a lost lock is noticed at its next renewal only",
                     DIBS_VERDICT_NOTE},
    [RIGHT_NAME] = {"connections have no name, so nobody can tell who an owner "
                    "is",
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
    [RIGHT_LIST] = {"locks cannot be listed", DIBS_VERDICT_NOTE},
    [RIGHT_COUNTS] = {"how many wait for a plain or read-write lock is unknown",
                      DIBS_VERDICT_NOTE},
    [RIGHT_WHO] = {"who an owner is (host, pid, program) is unknown",
                   DIBS_VERDICT_NOTE},
    [RIGHT_ACKS] = {"no acknowledgement by all replicas", DIBS_VERDICT_NOTE},
    [RIGHT_MOVES] = {"locks whose slot moves fail meanwhile",
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
    {RIGHT_LINE, "ZRANGE %W 0 1", "ZRANGE %W 0 1"},
    {RIGHT_LINE, "ZADD %W 1 x", "ZADD %t x x"},
    {RIGHT_LINE, "ZREM %W x", "ZREM %t x"},
    {RIGHT_LINE, "ZPOPMIN %W", "ZPOPMIN %t"},
    {RIGHT_LINE, "GET %L", "GET %L"},
    {RIGHT_LINE, "SET %L 1 PX 1", "SET %t 1 PX x"},
    {RIGHT_NAME, "CLIENT SETNAME x", NULL},
    {RIGHT_BARRIER, "CLIENT INFO", "CLIENT INFO"},
    {RIGHT_BARRIER, "CLIENT KILL ID 1", "CLIENT KILL ID 0"},
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
    {RIGHT_LIST, "SCAN 0", "SCAN 0 COUNT 1"},
    {RIGHT_HOLDERS, "HSCAN %k 0", "HSCAN %t 0"},
    {RIGHT_WHO, "CLIENT LIST TYPE normal", "CLIENT LIST ID 1"},
    {RIGHT_ACKS, "ROLE", "ROLE"},
    {RIGHT_ACKS, "WAIT 0 1", "WAIT 0 1"},
};

static const struct need classic[] = {
    {RIGHT_WAKE, "PUBLISH %c 0", "PUBLISH %t 0"},
    {RIGHT_WAKE, "SUBSCRIBE %c", NULL},
    {RIGHT_WAKE, "UNSUBSCRIBE %c", NULL},
    {RIGHT_RW, "PUBLISH %w 0", NULL},
    {RIGHT_SLOTS, "PUBLISH %C 0", NULL},
    {RIGHT_SEMAPHORE, "PUBLISH %C 0", NULL},
    {RIGHT_LATCH, "PUBLISH %Y 0", NULL},
    {RIGHT_COUNTS, "PUBSUB NUMSUB %c", "PUBSUB NUMSUB %t"},
};

static const struct need sharded[] = {
    {RIGHT_WAKE, "SPUBLISH %c 0", "SPUBLISH %t 0"},
    {RIGHT_WAKE, "SSUBSCRIBE %c", NULL},
    {RIGHT_WAKE, "SUNSUBSCRIBE %c", NULL},
    {RIGHT_RW, "SPUBLISH %w 0", NULL},
    {RIGHT_SLOTS, "SPUBLISH %C 0", NULL},
    {RIGHT_SEMAPHORE, "SPUBLISH %C 0", NULL},
    {RIGHT_LATCH, "SPUBLISH %Y 0", NULL},
    {RIGHT_COUNTS, "PUBSUB SHARDNUMSUB %c", "PUBSUB SHARDNUMSUB %t"},
};

static const struct need in_cluster[] = {
    {RIGHT_MOVES, "ASKING", "ASKING"},
    {RIGHT_MOVES, "CLUSTER SLOTS", "CLUSTER SLOTS"},
};

/* What the doctor itself asks. */
static const struct need in_doctor[] = {
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

/* What a name is put into. tail: behind the name, for a pattern of all of
 * them. */
static const struct object {
    char letter;
    const char *before, *behind, *tail;
    bool braced; /* whatever the name is */
} objects[] = {
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

static const char *object_text(char letter, const char *name, bool pattern,
                               char buf[], size_t size)
{
    for (size_t i = 0; i < COUNT(objects); i++) {
        const struct object *o = &objects[i];
        if (o->letter != letter)
            continue;
        bool bare = !o->braced && strchr(name, '{');
        snprintf(buf, size, "%s%s%s%s%s%s", o->before, bare ? "" : "{", name,
                 bare ? "" : "}", o->behind, pattern ? o->tail : "");
        return buf;
    }
    return name; /* k */
}

struct rights {
    struct dibs__check_ctx *ex;
    char user[64]; /* "" where ACL is refused */
    bool dry;      /* ACL DRYRUN is there */
    char lacking[RIGHT_GROUPS][160];
    bool keys; /* some key or channel was refused */
};

/* ---- commands from the table ------------------------------------------- */

/* The word to send for a word of the table. */
static const char *table_word(const struct rights *r, const char *text,
                              char buf[], size_t size)
{
    const char *name = r->ex->name ? r->ex->name : "dibs-doctor";

    if (strcmp(text, "return%n0") == 0)
        return "return 0";
    if (text[0] != '%')
        return text;
    if (text[1] == 't') { /* nobody's, and not there */
        snprintf(buf, size, "dibs-doctor:%s", dibs_client_id(r->ex->c));
        return buf;
    }
    return object_text(text[1], name, false, buf, size);
}

/* Asks the command of the table, behind so many words that are there. */
static dibs_err ask_command(const struct rights *r, const char *command,
                            const char *argv[DIBS__QUERY_ARGS], size_t count)
{
    char words[64], made[DIBS_NAME_MAX + 64], *rest = words, *one;

    snprintf(words, sizeof words, "%s", command);
    while ((one = strsep(&rest, " ")) && count < DIBS__QUERY_ARGS - 1)
        argv[count++] = table_word(r, one, made, sizeof made);
    argv[count] = NULL;
    return dibs__check_query(r->ex, argv);
}

/* ---- one right --------------------------------------------------------- */

/* The command, and its subcommand if it is one of CLIENT's or PUBSUB's. */
static void add_lacking(struct rights *r, const struct need *n)
{
    char *list = r->lacking[n->group];
    size_t used = strlen(list);
    int words = strncmp(n->command, "CLIENT ", 7) == 0 ||
                        strncmp(n->command, "PUBSUB ", 7) == 0
                    ? 2
                    : 1;
    size_t len = 0;

    while (words-- > 0)
        len += strcspn(n->command + len, " ") + (words > 0);
    snprintf(list + used, sizeof r->lacking[0] - used, "%s%.*s",
             used ? ", " : "", (int)len, n->command);
}

/* Is this about the command itself, and not about a key or a channel? */
static bool about_command(const char *text)
{
    return strstr(text, "to run the") != NULL;
}

/* Was the key in the trial one of the lock's? %t is another, and %n none. */
static bool tried_own_key(const struct need *n)
{
    const char *at = n->trial ? strchr(n->trial, '%') : NULL;

    return at && at[1] != 't' && at[1] != 'n';
}

static void right_refused(struct rights *r, const struct need *n,
                          const char *text)
{
    if (about_command(text) || !strchr(n->command, '%')) {
        add_lacking(r, n);
    } else if (r->ex->name && (r->dry || tried_own_key(n))) {
        r->keys = true;
        add_lacking(r, n);
    }
}

static void check_right(struct rights *r, const struct need *n)
{
    const char *argv[DIBS__QUERY_ARGS] = {"ACL", "DRYRUN", r->user};
    struct dibs__check_ctx *ctx = r->ex;

    if (r->dry) {
        dibs_err err = ask_command(r, n->command, argv, 3);
        if (err == DIBS_OK &&
            strcmp(dibs__query_reply_text(&ctx->reply), "OK") != 0)
            right_refused(r, n, dibs__query_reply_text(&ctx->reply));
    } else if (n->trial && !ctx->replica) {
        if (ask_command(r, n->trial, argv, 0) == DIBS_ERR_AUTH)
            right_refused(r, n, dibs__query_reply_text(&ctx->reply));
    }
}

/* ---- all of them ------------------------------------------------------- */

static void check_rights(struct rights *r, const struct need *rows,
                         size_t count)
{
    for (size_t i = 0; i < count && !r->ex->gone; i++)
        check_right(r, &rows[i]);
}

static void read_user(struct rights *r)
{
    struct dibs__check_ctx *ctx = r->ex;

    if (DIBS__ASK(ctx, "ACL", "WHOAMI") == DIBS_OK)
        snprintf(r->user, sizeof r->user, "%s",
                 dibs__query_reply_text(&ctx->reply));
    r->dry = r->user[0] &&
             DIBS__ASK(ctx, "ACL", "DRYRUN", r->user, "PING") == DIBS_OK;
}

void dibs__check_permissions(struct dibs__check_ctx *ctx)
{
    struct rights r = {.ex = ctx};
    bool all = true;

    read_user(&r);
    check_rights(&r, needs, COUNT(needs));
    if (dibs__client_pubsub_mode(ctx->c) & PUBSUB_CLASSIC)
        check_rights(&r, classic, COUNT(classic));
    if (dibs__client_pubsub_mode(ctx->c) & PUBSUB_SHARDED)
        check_rights(&r, sharded, COUNT(sharded));
    if (ctx->c->cluster)
        check_rights(&r, in_cluster, COUNT(in_cluster));
    if (ctx->gone)
        return;
    for (int g = 0; g < RIGHT_GROUPS; g++) {
        if (!r.lacking[g][0])
            continue;
        all = false;
        dibs__check_report(
            ctx, "rights", groups[g].verdict, "%s%s%s may not %s: %s",
            r.user[0] ? "user " : "this user", r.user,
            r.keys ? ", with this name," : "", r.lacking[g], groups[g].without);
    }
    if (all)
        dibs__check_report(
            ctx, "rights",
            r.dry || !ctx->replica ? DIBS_VERDICT_OK : DIBS_VERDICT_NOTE,
            "%s%s may do what locks need%s", r.user[0] ? "user " : "this user",
            r.user, r.dry ? "" : ", as far as that can be tried");
}

/* ---- the table for others ---------------------------------------------- */

/* Is it the name of a channel, the same for all locks? */
static bool is_channel(const char *word)
{
    return strncmp(word, "__redis__:", 10) == 0;
}

static bool tell_needs(const struct need *rows, size_t count, unsigned wanted,
                       const char *pattern, dibs__permission_fn *fn, void *arg)
{
    char words[64], made[DIBS_NAME_MAX + 64], *rest, *one;
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
                made[0] = channel ? '&' : '~';
                snprintf(made + 1, sizeof made - 1, "%s",
                         is_channel(one)
                             ? one
                             : object_text(one[1], pattern, true,
                                           (char[DIBS_NAME_MAX + 64]){0},
                                           DIBS_NAME_MAX + 64));
                more = fn(made, NULL, arg);
            }
    }
    return more;
}

bool dibs__permissions_each(unsigned wanted, bool cluster, const char *pattern,
                            dibs__permission_fn *fn, void *arg)
{
    return tell_needs(needs, COUNT(needs), wanted, pattern, fn, arg) &&
           tell_needs(classic, COUNT(classic), wanted, pattern, fn, arg) &&
           tell_needs(in_doctor, COUNT(in_doctor), wanted, pattern, fn, arg) &&
           (!cluster ||
            (tell_needs(sharded, COUNT(sharded), wanted, pattern, fn, arg) &&
             tell_needs(in_cluster, COUNT(in_cluster), wanted, pattern, fn,
                        arg)));
}
