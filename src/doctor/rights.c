/* SPDX-License-Identifier: MIT
 *
 * rights.c - what our user may do on the server, and what not.
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
 *         form; they are skipped.
 *
 * Keys    Without the name of a lock nobody can tell which keys matter, so
 *         only commands count then.
 */
#include "doctor/exam.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum group {
    PLAIN,
    WAKE,
    CALLS,
    BARRIER,
    FAIR,
    RW,
    LIST,
    COUNTS,
    WHO,
    ACKS,
    MOVES,
    GROUPS
};

static const struct {
    const char *without; /* what there is not, if a right is missing */
    dibs_verdict verdict;
} groups[GROUPS] = {
    [PLAIN] = {"locks do not work", DIBS_VERDICT_PROBLEM},
    [WAKE] = {"waiters are not woken, and look every two seconds",
              DIBS_VERDICT_WARNING},
    [CALLS] = {"a release wakes all clients that wait, not one",
               DIBS_VERDICT_NOTE},
    [BARRIER] = {"a lost reply takes longer to settle", DIBS_VERDICT_NOTE},
    [FAIR] = {"no fair locks", DIBS_VERDICT_NOTE},
    [RW] = {"no read-write locks", DIBS_VERDICT_NOTE},
    [LIST] = {"locks cannot be listed", DIBS_VERDICT_NOTE},
    [COUNTS] = {"how many wait for a plain or read-write lock is unknown",
                DIBS_VERDICT_NOTE},
    [WHO] = {"who an owner is (host, pid, program) is unknown",
             DIBS_VERDICT_NOTE},
    [ACKS] = {"no acknowledgement by all replicas", DIBS_VERDICT_NOTE},
    [MOVES] = {"locks whose slot moves fail meanwhile", DIBS_VERDICT_WARNING},
};

/* Words are parted by blanks. In place of %k the name of the lock, of %c its
 * channel, of %q, %s and %z the keys of a fair lock's queue, of %l and %m those
 * of clients that wait, of %r, %g and %w those of a read-write lock. */
struct need {
    enum group group;
    const char *command; /* as it would be sent, with good arguments */
    const char *trial;   /* in a form that does nothing; NULL: there is none */
};

static const struct need needs[] = {
    {PLAIN, "EVAL x 1 %k", "EVAL return%n0 0"},
    {PLAIN, "EVALSHA x 1 %k",
     "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0"},
    {PLAIN, "HEXISTS %k f", "HEXISTS %k f"},
    {PLAIN, "HSET %k f v", "HSET %k f v f"},
    {PLAIN, "HGET %k f", "HGET %k f"},
    {PLAIN, "HMGET %k f", "HMGET %k f"},
    {PLAIN, "HDEL %k f", "HDEL %t f"},
    {PLAIN, "HLEN %k", "HLEN %k"},
    {PLAIN, "HGETALL %k", "HGETALL %t"},
    {PLAIN, "PTTL %k", "PTTL %k"},
    {PLAIN, "PEXPIRE %k 1", "PEXPIRE %k x"},
    {PLAIN, "DEL %k", "DEL %t"},
    {CALLS, "ZADD %l 1 x", "ZADD %t x x"},
    {CALLS, "ZREM %l x", "ZREM %t x"},
    {CALLS, "ZRANGE %l 0 1", "ZRANGE %t 0 1"},
    {CALLS, "ZPOPMIN %l", "ZPOPMIN %t"},
    {CALLS, "GET %m", "GET %t"},
    {CALLS, "SET %m x PX 1", "SET %t 1 PX x"},
    {BARRIER, "CLIENT INFO", "CLIENT INFO"},
    {BARRIER, "CLIENT KILL ID 1", "CLIENT KILL ID 0"},
    {FAIR, "TIME", "TIME"},
    {FAIR, "EXISTS %q", "EXISTS %t"},
    {FAIR, "LINDEX %q 0", "LINDEX %t 0"},
    {FAIR, "LPOP %q", "LPOP %t"},
    {FAIR, "LPOS %q x", "LPOS %t x"},
    {FAIR, "LREM %q 1 x", "LREM %t 1 x"},
    {FAIR, "RPUSH %q x", NULL},
    {FAIR, "LLEN %q", "LLEN %t"},
    {FAIR, "LRANGE %q 0 1", "LRANGE %t 0 1"},
    {FAIR, "ZADD %s 1 x", "ZADD %t x x"},
    {FAIR, "ZREM %s x", "ZREM %t x"},
    {FAIR, "ZSCORE %s x", "ZSCORE %t x"},
    {FAIR, "ZRANGE %s 0 1", "ZRANGE %t 0 1"},
    {FAIR, "PEXPIREAT %s 1", "PEXPIREAT %t x"},
    {FAIR, "HSET %z f v", NULL},
    {RW, "HRANDFIELD %k 1", "HRANDFIELD %t 1"},
    {RW, "SET %r 1 PX 1", "SET %t 1 PX x"},
    {RW, "GET %g", "GET %t"},
    {RW, "EXISTS %r", "EXISTS %t"},
    {LIST, "SCAN 0", "SCAN 0 COUNT 1"},
    {LIST, "HSCAN %k 0", "HSCAN %t 0"},
    {WHO, "CLIENT LIST TYPE normal", "CLIENT LIST ID 1"},
    {ACKS, "ROLE", "ROLE"},
};

static const struct need classic[] = {
    {WAKE, "PUBLISH %c 0", "PUBLISH %t 0"},
    {WAKE, "SUBSCRIBE %c", NULL},
    {WAKE, "UNSUBSCRIBE %c", NULL},
    {RW, "PUBLISH %w 0", NULL},
    {COUNTS, "PUBSUB NUMSUB %c", "PUBSUB NUMSUB %t"},
};

static const struct need sharded[] = {
    {WAKE, "SPUBLISH %c 0", "SPUBLISH %t 0"},
    {WAKE, "SSUBSCRIBE %c", NULL},
    {WAKE, "SUNSUBSCRIBE %c", NULL},
    {RW, "SPUBLISH %w 0", NULL},
    {COUNTS, "PUBSUB SHARDNUMSUB %c", "PUBSUB SHARDNUMSUB %t"},
};

static const struct need in_cluster[] = {
    {MOVES, "ASKING", "ASKING"},
};

struct rights {
    struct dibs__exam *ex;
    char user[64]; /* "" where ACL is refused */
    bool dry;      /* ACL DRYRUN is there */
    char lacking[GROUPS][160];
    bool keys; /* some key or channel was refused */
};

/* ---- commands from the table ------------------------------------------- */

static const char *tagged_key(const char *name, const char *prefix, char buf[],
                              size_t size)
{
    bool has = strchr(name, '{') != NULL;

    snprintf(buf, size, "%s:%s%s%s", prefix, has ? "" : "{", name,
             has ? "" : "}");
    return buf;
}

/* The word to send for a word of the table. */
static const char *table_word(const struct rights *r, const char *text,
                              char buf[], size_t size)
{
    const char *name = r->ex->name ? r->ex->name : "dibs-doctor";

    if (strcmp(text, "return%n0") == 0)
        return "return 0";
    if (text[0] != '%')
        return text;
    switch (text[1]) {
    case 'k':
        return name;
    case 't': /* nobody's, and not there */
        snprintf(buf, size, "dibs-doctor:%s", dibs_client_id(r->ex->c));
        return buf;
    case 'c':
        return tagged_key(name, "redisson_lock__channel", buf, size);
    case 'q':
        return tagged_key(name, "redisson_lock_queue", buf, size);
    case 's':
        return tagged_key(name, "redisson_lock_timeout", buf, size);
    case 'z':
        return tagged_key(name, "dibs_lock_silent", buf, size);
    case 'l':
        return tagged_key(name, "dibs_lock_waiters", buf, size);
    case 'm':
        return tagged_key(name, "dibs_lock_listener", buf, size);
    case 'g':
        return tagged_key(name, "dibs_rwlock_gate", buf, size);
    case 'w':
        return tagged_key(name, "redisson_rwlock", buf, size);
    default: { /* r */
        bool has = strchr(name, '{') != NULL;
        snprintf(buf, size, "%s%s%s:%s:1:rwlock_timeout:1", has ? "" : "{",
                 name, has ? "" : "}", dibs_client_id(r->ex->c));
        return buf;
    }
    }
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
    return dibs__exam_ask(r->ex, argv);
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

static void right_refused(struct rights *r, const struct need *n,
                          const char *text)
{
    if (about_command(text)) {
        add_lacking(r, n);
    } else if (r->ex->name && r->dry) {
        r->keys = true;
        add_lacking(r, n);
    }
}

static void check_right(struct rights *r, const struct need *n)
{
    const char *argv[DIBS__QUERY_ARGS] = {"ACL", "DRYRUN", r->user};
    struct dibs__exam *ex = r->ex;

    if (r->dry) {
        dibs_err err = ask_command(r, n->command, argv, 3);
        if (err == DIBS_OK && strcmp(dibs__answer_text(&ex->reply), "OK") != 0)
            right_refused(r, n, dibs__answer_text(&ex->reply));
    } else if (n->trial && !ex->replica) {
        if (ask_command(r, n->trial, argv, 0) == DIBS_ERR_AUTH)
            right_refused(r, n, dibs__answer_text(&ex->reply));
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
    struct dibs__exam *ex = r->ex;

    if (DIBS__ASK(ex, "ACL", "WHOAMI") == DIBS_OK)
        snprintf(r->user, sizeof r->user, "%s", dibs__answer_text(&ex->reply));
    r->dry = r->user[0] &&
             DIBS__ASK(ex, "ACL", "DRYRUN", r->user, "PING") == DIBS_OK;
}

void dibs__exam_rights(struct dibs__exam *ex)
{
    struct rights r = {.ex = ex};
    bool all = true;

    read_user(&r);
    check_rights(&r, needs, COUNT(needs));
    if (dibs__client_flavour(ex->c) & FLAVOUR_CLASSIC)
        check_rights(&r, classic, COUNT(classic));
    if (dibs__client_flavour(ex->c) & FLAVOUR_SHARDED)
        check_rights(&r, sharded, COUNT(sharded));
    if (ex->c->cluster)
        check_rights(&r, in_cluster, COUNT(in_cluster));
    if (ex->gone)
        return;
    for (int g = 0; g < GROUPS; g++) {
        if (!r.lacking[g][0])
            continue;
        all = false;
        dibs__exam_tell(
            ex, "rights", groups[g].verdict, "%s%s%s may not %s: %s",
            r.user[0] ? "user " : "this user", r.user,
            r.keys ? ", with this name," : "", r.lacking[g], groups[g].without);
    }
    if (all)
        dibs__exam_tell(
            ex, "rights",
            r.dry || !ex->replica ? DIBS_VERDICT_OK : DIBS_VERDICT_NOTE,
            "%s%s may do what locks need%s", r.user[0] ? "user " : "this user",
            r.user, r.dry ? "" : ", as far as that can be tried");
}
