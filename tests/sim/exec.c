/* SPDX-License-Identifier: MIT
 *
 * exec.c - one command: found, allowed, run, passed on.
 *
 * What may forbid a command is asked in the order in which Redis asks it, since
 * a client sees which answer comes first: unknown, wrong number of arguments,
 * no password, no right, another node's slot, no memory, no file, too few
 * replicas, a replica, subscribed, no master, loading, busy. Only then it may
 * have to wait because clients are paused.
 */
#include "sim/impl.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- finding ----------------------------------------------------------- */

static const struct sr_command *const tables[] = {
    sr__key_commands,      sr__expire_commands, sr__string_commands,
    sr__hash_commands,     sr__list_commands,   sr__zset_commands,
    sr__zrange_commands,   sr__pubsub_commands, sr__script_commands,
    sr__client_commands,   sr__server_commands, sr__acl_commands,
    sr__sentinel_commands, sr__cluster_commands};

void sr__commands_each(void (*fn)(const struct sr_command *, void *), void *arg)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct sr_command *cmd = tables[i]; cmd->name; cmd++)
            fn(cmd, arg);
}

static const struct sr_command *find_row(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct sr_command *cmd = tables[i]; cmd->name; cmd++)
            if (strncasecmp(cmd->name, name, n) == 0 && cmd->name[n] == '\0')
                return cmd;
    return NULL;
}

static bool has_command(const struct sr_server *s, const struct sr_command *cmd)
{
    if (s->config.sentinel)
        return cmd->flags & SR_SENTINEL;
    return !(cmd->flags & SR_NOT_SERVER);
}

/* sub: the first argument, or NULL. A container whose subcommand is unknown is
 * found as the container. */
const struct sr_command *sr__command_find(const struct sr_server *s,
                                          struct sr_str name,
                                          const struct sr_str *sub)
{
    char full[64];

    if (name.n == 0 || name.n > 24 || memchr(name.p, '\0', name.n))
        return NULL;
    const struct sr_command *cmd = find_row(name.p, name.n);
    if (!cmd || strchr(cmd->name, '|') || !has_command(s, cmd))
        return NULL;
    if (!(cmd->flags & SR_CONTAINER) || !sub || sub->n > 32)
        return cmd;
    memcpy(full, name.p, name.n);
    full[name.n] = '|';
    memcpy(full + name.n + 1, sub->p, sub->n);
    const struct sr_command *found = find_row(full, name.n + 1 + sub->n);
    return found ? found : cmd;
}

void sr__keys_each(const struct sr_command *cmd, int argc,
                   const struct sr_str *argv,
                   void (*fn)(struct sr_str key, void *arg), void *arg)
{
    int first = cmd->first, last = cmd->last < 0 ? argc + cmd->last : cmd->last;
    int step = cmd->step;
    int64_t count;

    if (cmd->flags & SR_EVAL) {
        if (argc < 3 || !sr__int(argv[2], &count) || count < 0 ||
            count > argc - 3)
            return;
        first = 3;
        last = 2 + (int)count;
        step = 1;
    }
    for (int i = first; step && i <= last && i < argc; i += step)
        fn(argv[i], arg);
}

/* ---- allowing ---------------------------------------------------------- */

static int shorter(size_t a, size_t b)
{
    return (int)(a < b ? a : b);
}

static void reply_unknown(struct sr_call *k)
{
    struct sr_buf args = {0};

    for (int i = 1; i < k->argc && args.n < 128; i++)
        sr__buf_fmt(&args, "'%.*s' ", shorter(k->argv[i].n, 128 - args.n),
                    k->argv[i].p);
    sr__reply_error(k,
                    "ERR unknown command '%.*s', with args beginning with: "
                    "%s",
                    shorter(k->argv[0].n, 128), k->argv[0].p,
                    args.p ? args.p : "");
    sr__buf_free(&args);
}

/* It exists, and has so many arguments. */
static bool well_formed(struct sr_call *k)
{
    const struct sr_command *cmd = k->cmd;

    if (!cmd) {
        reply_unknown(k);
        return false;
    }
    if ((cmd->flags & SR_CONTAINER) && k->argc > 1) {
        char name[32];
        size_t i = 0;
        for (; cmd->name[i]; i++)
            name[i] = (char)(cmd->name[i] - 'a' + 'A');
        name[i] = '\0';
        sr__reply_error(k, "ERR unknown subcommand '%.*s'. Try %s HELP.",
                        shorter(k->argv[1].n, 128), k->argv[1].p, name);
        return false;
    }
    if (cmd->arity > 0 ? k->argc != cmd->arity : k->argc < -cmd->arity) {
        sr__reply_arity(k);
        return false;
    }
    return true;
}

static bool permitted(struct sr_call *k)
{
    if (!k->c->user) {
        if (k->cmd->flags & SR_NO_AUTH)
            return true;
        sr__reply_error(k, "NOAUTH Authentication required.");
        return false;
    }
    switch (sr__user_may(k->c->user, k->cmd, k->argc, k->argv)) {
    case SR_MAY:
        return true;
    case SR_NOT_COMMAND:
        sr__reply_error(k,
                        "NOPERM this user has no permissions to run the "
                        "'%s' command",
                        k->cmd->name);
        break;
    case SR_NOT_KEY:
        sr__reply_error(k, "NOPERM this user has no permissions to access one "
                           "of the keys used as arguments");
        break;
    case SR_NOT_CHANNEL:
        sr__reply_error(k, "NOPERM this user has no permissions to access one "
                           "of the channels used as arguments");
        break;
    }
    return false;
}

const char *sr__write_refused(const struct sr_server *s)
{
    int64_t want = sr__setting_int(s, "min-replicas-to-write");

    if (s->fault[SR_MISCONF])
        return "MISCONF Redis is configured to save RDB snapshots, but it's "
               "currently unable to persist to disk. Commands that may modify "
               "the data set are disabled, because this instance is "
               "configured to report errors during writes if RDB snapshotting "
               "fails (stop-writes-on-bgsave-error option). Please check the "
               "Redis logs for details about the RDB error.";
    if (!s->replica && want > 0 && (int64_t)s->nreplicas < want)
        return "NOREPLICAS Not enough good replicas to write.";
    if (s->replica)
        return "READONLY You can't write against a read only replica.";
    return NULL;
}

static const char *refusal(struct sr_call *k)
{
    const struct sr_server *s = k->s;
    unsigned flags = k->cmd->flags;

    if ((flags & SR_DENYOOM) && sr__full(s))
        return "OOM command not allowed when used memory > 'maxmemory'.";
    if ((flags & SR_WRITE) && sr__write_refused(s))
        return sr__write_refused(s);
    if (s->fault[SR_LINK_DOWN] && s->replica && !(flags & SR_IN_STALE))
        return "MASTERDOWN Link with MASTER is down and "
               "replica-serve-stale-data is set to 'no'.";
    if (s->fault[SR_LOADING] && !(flags & SR_IN_LOADING))
        return "LOADING Redis is loading the dataset in memory";
    if (s->fault[SR_BUSY] && !(flags & SR_SLOW_OK))
        return "BUSY Redis is busy running a script. You can only call SCRIPT "
               "KILL or SHUTDOWN NOSAVE.";
    return NULL;
}

static bool allowed(struct sr_call *k)
{
    if (!well_formed(k) || !permitted(k))
        return false;
    if (k->s->cluster && !sr__cluster_allows(k))
        return false;
    const char *why = refusal(k);
    if (why) {
        sr__reply_error(k, "%s", why);
        return false;
    }
    if (sr__subscribed(k->c) && !(k->cmd->flags & SR_IN_PUBSUB)) {
        sr__reply_error(k,
                        "ERR Can't execute '%s': only (P|S)SUBSCRIBE / "
                        "(P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in "
                        "this context",
                        k->cmd->name);
        return false;
    }
    return true;
}

/* A fault that the owner of the server wants; asked once a command. */
static bool let_through(struct sr_call *k)
{
    const char *why = NULL;

    if (k->s->refuse)
        why = k->s->refuse(k->s->refuse_arg, k->c->id, k->cmd->name);
    if (why)
        sr__reply_error(k, "%s", why);
    return !why;
}

/* ---- running ----------------------------------------------------------- */

static void count_call(struct sr_server *s, const char *name)
{
    uint64_t *n = sr__dict_get(&s->calls, sr__view(name));

    if (!n) {
        n = sr__alloc(sizeof *n);
        sr__dict_add(&s->calls, sr__view(name), n);
    }
    ++*n;
    s->commands++;
}

void sr__run(struct sr_call *k)
{
    struct sr_server *s = k->s;
    const struct sr_call *whose = s->script ? s->script : k;

    k->cmd->run(k);
    count_call(s, k->cmd->name);
    if ((k->cmd->flags & SR_READ) && k->c->tracking)
        sr__track(k->c, whose->cmd, whose->argc, whose->argv);
    if (k->changed && !k->passed_on)
        sr__repl_add(s, k->c->db, k->argc, k->argv);
}

static void run_alone(struct sr_call *k)
{
    struct sr_server *s = k->s;
    struct sr_session *c = k->c;
    int64_t before = s->offset;

    s->running = c;
    sr__repl_begin(s);
    sr__run(k);
    sr__repl_end(s);
    if (s->offset != before)
        c->written = s->offset;
    s->running = NULL;
    sr__track_told(s, c);
}

bool sr__execute(struct sr_session *c, int argc, struct sr_str *argv)
{
    struct sr_call k = {
        .s = c->s, .c = c, .argc = argc, .argv = argv, .out = &c->out};

    sr__clock(c->s);
    k.cmd = sr__command_find(c->s, argv[0], argc > 1 ? &argv[1] : NULL);
    bool fine = allowed(&k);
    if (fine && sr__paused(c->s, k.cmd))
        return false;
    fine = fine && let_through(&k);
    if (fine) {
        snprintf(c->last, sizeof c->last, "%s", k.cmd->name);
        c->s->requests++;
        run_alone(&k);
    }
    if (!fine || strncmp(k.cmd->name, "client|", 7) != 0)
        c->caching = false;
    if (!fine || strcmp(k.cmd->name, "asking") != 0)
        c->asking = false;
    return true;
}

void sr__apply(struct sr_session *c, int argc, struct sr_str *argv)
{
    struct sr_buf out = {0};
    struct sr_call k = {
        .s = c->s, .c = c, .argc = argc, .argv = argv, .out = &out};

    sr__clock(c->s);
    k.cmd = sr__command_find(c->s, argv[0], argc > 1 ? &argv[1] : NULL);
    if (k.cmd)
        run_alone(&k);
    sr__buf_free(&out);
}
