/* SPDX-License-Identifier: MIT
 *
 * acl.c - who may do what: users, their passwords, commands, keys, channels.
 *
 * The rules are those of ACL SETUSER as far as tests need them: on off, nopass
 * >password resetpass, +@all -@all +command -command +@category, ~pattern
 * allkeys resetkeys, &pattern allchannels resetchannels, reset. Commands are
 * remembered as rules, and the last one that fits counts.
 */
#include "sim/impl.h"

#include <stdlib.h>
#include <string.h>

struct sr_user {
    struct sr_str name;
    bool on, nopass;
    struct sr_dict passwords, keys, channels; /* sets */
    struct sr_value *commands;                /* rules: "+@all", "-get" */
};

/* ---- users ------------------------------------------------------------- */

static void reset_commands(struct sr_user *u)
{
    sr__value_free(u->commands);
    u->commands = sr__value_new(SR_LIST);
}

static struct sr_user *user_new(struct sr_server *s, struct sr_str name)
{
    struct sr_user *u = sr__alloc(sizeof *u);

    u->name = sr__copy(name);
    reset_commands(u);
    sr__dict_add(&s->users, name, u);
    return u;
}

static void user_free(void *val)
{
    struct sr_user *u = val;

    sr__str_free(&u->name);
    sr__dict_free(&u->passwords, NULL);
    sr__dict_free(&u->keys, NULL);
    sr__dict_free(&u->channels, NULL);
    sr__value_free(u->commands);
    free(u);
}

struct sr_user *sr__user_find(struct sr_server *s, struct sr_str name)
{
    return sr__dict_get(&s->users, name);
}

const char *sr__user_name(const struct sr_user *u)
{
    return u ? u->name.p : "default";
}

bool sr__user_enters(const struct sr_user *u, struct sr_str password)
{
    return u && u->on && (u->nopass || sr__dict_find(&u->passwords, password));
}

bool sr__user_open(const struct sr_user *u)
{
    return u && u->on && u->nopass;
}

static void set_add(struct sr_dict *set, struct sr_str s)
{
    if (!sr__dict_find(set, s))
        sr__dict_add(set, s, NULL);
}

void sr__users_init(struct sr_server *s)
{
    struct sr_user *u = user_new(s, sr__view("default"));

    u->on = u->nopass = true;
    set_add(&u->keys, sr__view("*"));
    set_add(&u->channels, sr__view("*"));
    sr__list_insert(u->commands, 0, sr__view("+@all"));
}

void sr__users_free(struct sr_server *s)
{
    sr__dict_free(&s->users, user_free);
}

void sr__users_password(struct sr_server *s, struct sr_str password)
{
    struct sr_user *u = sr__user_find(s, sr__view("default"));

    sr__dict_free(&u->passwords, NULL);
    u->nopass = password.n == 0;
    if (password.n)
        set_add(&u->passwords, password);
}

/* ---- rules ------------------------------------------------------------- */

static bool in_category(const struct sr_command *cmd, struct sr_str name)
{
    return sr__is(name, "all") ||
           (sr__is(name, "read") && (cmd->flags & SR_READ)) ||
           (sr__is(name, "write") && (cmd->flags & SR_WRITE)) ||
           (sr__is(name, "pubsub") && (cmd->flags & SR_PUBSUB)) ||
           ((sr__is(name, "admin") || sr__is(name, "dangerous")) &&
            (cmd->flags & SR_ADMIN)) ||
           (sr__is(name, "scripting") &&
            ((cmd->flags & SR_EVAL) || strncmp(cmd->name, "script", 6) == 0));
}

/* Does "+@read", "-get" or "+client|info" speak of this command? */
static bool rule_fits(struct sr_str rule, const struct sr_command *cmd)
{
    struct sr_str what = {rule.p + 1, rule.n - 1};
    size_t bar = strcspn(cmd->name, "|");

    if (what.n && what.p[0] == '@')
        return in_category(cmd, (struct sr_str){what.p + 1, what.n - 1});
    struct sr_str whole = sr__view(cmd->name), container = {whole.p, bar};
    return sr__same(what, whole) || sr__same(what, container);
}

static bool may_run(const struct sr_user *u, const struct sr_command *cmd)
{
    for (size_t i = u->commands->n; i-- > 0;)
        if (rule_fits(u->commands->list[i], cmd))
            return u->commands->list[i].p[0] == '+';
    return false;
}

static void known(const struct sr_command *cmd, void *arg)
{
    struct sr_str *rule = arg;

    if (rule->n && rule_fits(*rule, cmd))
        rule->n = 0;
}

static bool command_rule(struct sr_user *u, struct sr_str rule)
{
    struct sr_str small = sr__copy(rule), seek = small;

    for (size_t i = 0; i < small.n; i++)
        if (small.p[i] >= 'A' && small.p[i] <= 'Z')
            small.p[i] = (char)(small.p[i] - 'A' + 'a');
    sr__commands_each(known, &seek);
    bool fine = seek.n == 0;
    if (fine)
        sr__list_insert(u->commands, u->commands->n, small);
    sr__str_free(&small);
    return fine;
}

static void user_reset(struct sr_user *u)
{
    u->on = u->nopass = false;
    sr__dict_free(&u->passwords, NULL);
    sr__dict_free(&u->keys, NULL);
    sr__dict_free(&u->channels, NULL);
    reset_commands(u);
}

static bool rule_word(struct sr_user *u, struct sr_str rule)
{
    if (sr__is(rule, "on") || sr__is(rule, "off")) {
        u->on = sr__is(rule, "on");
    } else if (sr__is(rule, "nopass") || sr__is(rule, "resetpass")) {
        u->nopass = sr__is(rule, "nopass");
        sr__dict_free(&u->passwords, NULL);
    } else if (sr__is(rule, "allkeys") || sr__is(rule, "resetkeys")) {
        sr__dict_free(&u->keys, NULL);
        if (sr__is(rule, "allkeys"))
            set_add(&u->keys, sr__view("*"));
    } else if (sr__is(rule, "allchannels") || sr__is(rule, "resetchannels")) {
        sr__dict_free(&u->channels, NULL);
        if (sr__is(rule, "allchannels"))
            set_add(&u->channels, sr__view("*"));
    } else if (sr__is(rule, "allcommands") || sr__is(rule, "nocommands")) {
        reset_commands(u);
        sr__list_insert(
            u->commands, 0,
            sr__view(sr__is(rule, "allcommands") ? "+@all" : "-@all"));
    } else if (sr__is(rule, "reset")) {
        user_reset(u);
    } else {
        return false;
    }
    return true;
}

static bool apply_rule(struct sr_user *u, struct sr_str rule)
{
    struct sr_str rest = {rule.p + 1, rule.n ? rule.n - 1 : 0};

    switch (rule.n ? rule.p[0] : '\0') {
    case '>':
        set_add(&u->passwords, rest);
        u->nopass = false;
        return true;
    case '<':
        sr__dict_del(&u->passwords, rest);
        return true;
    case '~':
        set_add(&u->keys, rest);
        return true;
    case '&':
        set_add(&u->channels, rest);
        return true;
    case '+':
    case '-':
        return command_rule(u, rule);
    default:
        return rule_word(u, rule);
    }
}

/* ---- asking ------------------------------------------------------------ */

struct ask {
    const struct sr_dict *patterns;
    bool refused;
    struct sr_str which; /* the first one refused */
};

static void ask_pattern(struct sr_str s, void *arg)
{
    struct ask *a = arg;
    bool fits = false;

    for (const struct sr_entry *e = a->patterns->first; e && !fits; e = e->next)
        fits = sr__glob(e->key, s);
    if (!fits && !a->refused)
        a->which = s;
    a->refused |= !fits;
}

/* Channels of a command; a pattern of them must be allowed literally. */
static void ask_channels(const struct sr_command *cmd, int argc,
                         const struct sr_str *argv, struct ask *a)
{
    for (int i = 1; i < argc; i++) {
        if (cmd->flags & SR_PATTERNS) {
            if (!sr__dict_find(a->patterns, argv[i]) &&
                !sr__dict_find(a->patterns, sr__view("*")))
                a->refused = true;
        } else if ((cmd->flags & SR_CHANNELS) ||
                   (i == 1 && (cmd->flags & SR_CHANNEL))) {
            ask_pattern(argv[i], a);
        }
    }
}

/* *which: the key or channel. */
static enum sr_denied user_refused(const struct sr_user *u,
                                   const struct sr_command *cmd, int argc,
                                   const struct sr_str *argv,
                                   struct sr_str *which)
{
    struct ask keys = {.patterns = &u->keys};
    struct ask channels = {.patterns = &u->channels};

    if (!(cmd->flags & SR_NO_AUTH) && !may_run(u, cmd))
        return SR_NOT_COMMAND;
    sr__keys_each(cmd, argc, argv, ask_pattern, &keys);
    ask_channels(cmd, argc, argv, &channels);
    *which = keys.refused ? keys.which : channels.which;
    return keys.refused       ? SR_NOT_KEY
           : channels.refused ? SR_NOT_CHANNEL
                              : SR_MAY;
}

enum sr_denied sr__user_may(const struct sr_user *u,
                            const struct sr_command *cmd, int argc,
                            const struct sr_str *argv)
{
    struct sr_str which;

    return user_refused(u, cmd, argc, argv, &which);
}

/* ---- commands ---------------------------------------------------------- */

static void cmd_acl_setuser(struct sr_call *k)
{
    struct sr_user *u = sr__user_find(k->s, k->argv[2]);

    if (!u)
        u = user_new(k->s, k->argv[2]);
    for (int i = 3; i < k->argc; i++) {
        if (apply_rule(u, k->argv[i]))
            continue;
        char sign = k->argv[i].n ? k->argv[i].p[0] : '\0';
        sr__reply_error(k, "ERR Error in ACL SETUSER modifier '%.*s': %s",
                        (int)k->argv[i].n, k->argv[i].p,
                        sign == '+' || sign == '-'
                            ? "Unknown command or category name in ACL"
                            : "Syntax error");
        return;
    }
    sr__reply_ok(k);
}

static void cmd_acl_deluser(struct sr_call *k)
{
    int64_t gone = 0;

    for (int i = 2; i < k->argc; i++) {
        struct sr_user *u = sr__user_find(k->s, k->argv[i]);
        if (!u || sr__is(k->argv[i], "default"))
            continue;
        for (struct sr_session *c = k->s->sessions; c; c = c->next)
            if (c->user == u && c == k->c)
                c->closing = true;
            else if (c->user == u)
                sr__session_end(c);
        for (struct sr_session *c = k->s->sessions; c; c = c->next)
            if (c->user == u)
                c->user = NULL;
        user_free(sr__dict_del(&k->s->users, k->argv[i]));
        gone++;
    }
    sr__reply_int(k, gone);
}

static void cmd_acl_whoami(struct sr_call *k)
{
    sr__reply_text(k, sr__user_name(k->c->user));
}

static void cmd_acl_dryrun(struct sr_call *k)
{
    const struct sr_user *u = sr__user_find(k->s, k->argv[2]);
    const struct sr_command *cmd =
        sr__command_find(k->s, k->argv[3], k->argc > 4 ? &k->argv[4] : NULL);
    int argc = k->argc - 3;
    struct sr_buf text = {0};

    if (!u) {
        sr__reply_error(k, "ERR User '%.*s' not found", (int)k->argv[2].n,
                        k->argv[2].p);
        return;
    }
    if (!cmd) {
        sr__reply_error(k, "ERR Command '%.*s' not found", (int)k->argv[3].n,
                        k->argv[3].p);
        return;
    }
    if (cmd->arity > 0 ? argc != cmd->arity : argc < -cmd->arity) {
        sr__reply_error(k, "ERR wrong number of arguments for '%s' command",
                        cmd->name);
        return;
    }
    struct sr_str which;
    enum sr_denied denied = user_refused(u, cmd, argc, k->argv + 3, &which);
    switch (denied) {
    case SR_MAY:
        sr__reply_ok(k);
        return;
    case SR_NOT_COMMAND:
        sr__buf_fmt(&text,
                    "This user has no permissions to run the '%s' command",
                    cmd->name);
        break;
    case SR_NOT_KEY:
    case SR_NOT_CHANNEL:
        sr__buf_fmt(
            &text, "This user has no permissions to access the '%.*s' %s",
            (int)which.n, which.p, denied == SR_NOT_KEY ? "key" : "channel");
        break;
    }
    sr__reply_text(k, text.p);
    sr__buf_free(&text);
}

static void cmd_acl_log(struct sr_call *k)
{
    if (k->argc > 2 && sr__is(k->argv[2], "reset"))
        sr__reply_ok(k);
    else
        sr__reply_array(k, 0);
}

static void cmd_auth(struct sr_call *k)
{
    bool named = k->argc == 3;
    struct sr_user *u =
        sr__user_find(k->s, named ? k->argv[1] : sr__view("default"));

    if (k->argc > 3) {
        sr__reply_syntax(k);
    } else if (!named && u->nopass) {
        sr__reply_error(k, "ERR AUTH <password> called without any password "
                           "configured for the default user. Are you sure your "
                           "configuration is correct?");
    } else if (!sr__user_enters(u, k->argv[k->argc - 1])) {
        sr__reply_error(k, "WRONGPASS invalid username-password pair or user "
                           "is disabled.");
    } else {
        k->c->user = u;
        sr__reply_ok(k);
    }
}

#define RIGHTS                                                                 \
    (SR_ADMIN | SR_NOSCRIPT | SR_IN_LOADING | SR_IN_STALE | SR_SENTINEL)

const struct sr_command sr__acl_commands[] = {
    {"acl", NULL, -2, RIGHTS | SR_CONTAINER, 0, 0, 0},
    {"acl|setuser", cmd_acl_setuser, -3, RIGHTS, 0, 0, 0},
    {"acl|deluser", cmd_acl_deluser, -3, RIGHTS, 0, 0, 0},
    {"acl|whoami", cmd_acl_whoami, 2, RIGHTS, 0, 0, 0},
    {"acl|dryrun", cmd_acl_dryrun, -4, RIGHTS, 0, 0, 0},
    {"acl|log", cmd_acl_log, -2, RIGHTS, 0, 0, 0},
    {"auth", cmd_auth, -2, RIGHTS | SR_NO_AUTH | SR_SLOW_OK, 0, 0, 0},
    {0}};
