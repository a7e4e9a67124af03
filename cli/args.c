/* SPDX-License-Identifier: MIT
 *
 * args.c - reads the command line.
 *
 *     dibs [options] SUBCOMMAND [options] WORDS [-- COMMAND ARGS...]
 *
 * One table has all options: who takes them, where their value goes, what it
 * may be, and a sentence for the help. Options and words may be mixed up to
 * "--"; behind it nothing is looked at, so a guarded command keeps its dashes.
 * Options before the subcommand are those that every one of them takes.
 *
 * Thread  The first, before there is another.
 *
 * Trouble Whatever is wrong ends in args_wrong: one line that names the bad
 *         word, one that would have been right, and EXIT_USAGE. The help is
 *         not printed; who wants it asks for it.
 */
#include "args.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exits.h"

#define AT(field) offsetof(struct args, field)
#define NAMES_MAX 64

const struct option_row option_rows[] = {
    {'n', "no-wait", NULL, OPT_NOWAIT, AT(wait_ms), CMD_TAKE, NULL,
     "Do not wait when the lock is taken."},
    {'w', "wait", "TIME", OPT_TIME, AT(wait_ms), CMD_TAKE, "10s",
     "Wait at most so long; 0 is -n. Default: as long as it takes."},
    {0, "fair", NULL, OPT_FLAG, AT(fair), CMD_TAKE, NULL,
     "A fair lock: whoever asks first gets it first."},
    {'s', "shared", NULL, OPT_FLAG, AT(shared), CMD_TAKE, NULL,
     "A read-write lock, to read: with others that say -s, but not while"
     " somebody has it with -x."},
    {'x', "exclusive", NULL, OPT_FLAG, AT(exclusive), CMD_TAKE, NULL,
     "A read-write lock, to write: alone. Without -s, -x and --fair the lock is"
     " a plain one, exclusive too. A name is for one of these kinds only."},
    {0, "multi", "NAMES", OPT_TEXT, AT(multi), CMD_TAKE, "stock,orders",
     "Several locks at once, all or none, in place of NAME: names with commas"
     " between them."},
    {0, "quorum", "URLS", OPT_TEXT, AT(quorum), CMD_TAKE,
     "redis://a,redis://b,redis://c",
     "The lock on more than half of these independent servers (RedLock), in"
     " place of -u: three URLs or more, with commas between them."},
    {0, "lease", "TIME", OPT_TIME, AT(lease_ms), CMD_TAKE | CMD_DOCTOR, "30s",
     "After so long without a sign of life from us the lock is free again."
     " Default 30s, renewed while the command runs."},
    {0, "no-renew", NULL, OPT_FLAG, AT(no_renew), CMD_TAKE, NULL,
     "Do not renew: the lock ends with its lease, and the command before it."},
    {0, "max-hold", "TIME", OPT_TIME, AT(max_hold_ms), CMD_TAKE, "1h",
     "Renew no longer than this; the command ends before the lock does."},
    {0, "min-hold", "TIME", OPT_TIME, AT(min_hold_ms), CMD_TAKE, "1m",
     "Keep the lock taken for at least so long, also when the command is done"
     " sooner."},
    {0, "replicas", "N", OPT_REPLICAS, AT(replicas), CMD_TAKE, "1",
     "So many replicas of the server must have the lock, too, or it is not"
     " taken: a number, or all that are connected. Default 0."},
    {'t', "max-run", "TIME", OPT_TIME, AT(max_run_ms), CMD_RUN, "10m",
     "Stop the command after so long; exit 124. Default: no limit."},
    {'k', "kill-after", "TIME", OPT_TIME, AT(kill_after_ms), CMD_RUN, "5s",
     "From TERM to KILL when we stop the command. Default 5s; when the lock is"
     " being lost, never more than a third of the lease."},
    {0, "on-lost", "WHAT", OPT_LOST, AT(on_lost), CMD_RUN, "term",
     "When the lock is being lost: term (default), kill, a signal's name,"
     " exec:CMD or warn. All but warn end with KILL before the lease ends."},
    {'c', "command", "STRING", OPT_TEXT, AT(shell), CMD_RUN,
     "'pg_dump db | gzip > db.gz'",
     "Run STRING with /bin/sh, in place of a command behind --."},
    {0, "foreground", NULL, OPT_FLAG, AT(foreground), CMD_RUN, NULL,
     "Leave the command in our process group; only the command itself is then"
     " signalled and waited for."},
    {'E', "busy-code", "CODE", OPT_CODE, AT(busy_code), CMD_TAKE, "75",
     "Exit code when the lock was not to be had. Default 75."},
    {0, "ok-if-busy", NULL, OPT_FLAG, AT(ok_if_busy), CMD_TAKE, NULL,
     "When it was not to be had, say nothing and exit 0."},
    {0, "any-name", NULL, OPT_FLAG, AT(any_name), CMD_TAKE, NULL,
     "Take a NAME with spaces or control characters, too."},
    {0, "no-stdin", NULL, OPT_FLAG, AT(no_stdin), CMD_HOLD, NULL,
     "Do not watch stdin: hold until a signal comes."},
    {0, "status-fd", "N", OPT_FD, AT(status_fd), CMD_TAKE, "3",
     "At the end, write one line of JSON with the cause to descriptor N."},
    {0, "yes", NULL, OPT_FLAG, AT(yes), CMD_FORCE, NULL,
     "Yes, take the lock away from whoever holds it."},
    {0, "if-owner", "OWNER", OPT_TEXT, AT(if_owner), CMD_FORCE,
     "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1",
     "Only if this owner, as 'dibs info' shows it, holds the lock."},
    {0, "force", NULL, OPT_FLAG, AT(force), CMD_LOCAL, NULL,
     "Stop the private server even while locks are held."},
    {0, "json", NULL, OPT_FLAG, AT(json),
     CMD_LOOK | CMD_HOLD | CMD_LOCAL | CMD_DOCTOR, NULL, "Answer in JSON."},
    {'u', "url", "URL", OPT_TEXT, AT(url), CMD_ALL, "redis://db1.example:6379",
     "The server: redis://[user@]host[:port][/db] or unix:///path[?db=N];"
     " rediss://host[:port][?ca=FILE&cert=FILE&key=FILE] for TLS;"
     " redis-sentinel://host[:port],.../service or"
     " redis-cluster://host[:port],... for more than one;"
     " valkey may stand for redis."
     " Passwords do not belong here: everybody can see them."},
    {0, "url-file", "FILE", OPT_TEXT, AT(url_file), CMD_ALL, "/etc/dibs.url",
     "Read the URL, which may have a password, from a file."},
    {0, "password-file", "FILE", OPT_TEXT, AT(password_file), CMD_ALL,
     "/etc/dibs.password", "Read the password from a file."},
    {'q', "quiet", NULL, OPT_FLAG, AT(quiet), CMD_ALL, NULL,
     "Only tell of errors."},
    {'v', "verbose", NULL, OPT_FLAG, AT(verbose), CMD_ALL, NULL,
     "Tell what happens, and how long we waited."},
    {0, "log", "FORMAT", OPT_LOG, AT(log_json), CMD_ALL, "json",
     "Messages on stderr as text (default) or json, one object a line."},
    {'h', "help", NULL, OPT_FLAG, AT(help), CMD_ALL, NULL, "Show this help."},
    {'V', "version", NULL, OPT_FLAG, AT(version), CMD_ALL, NULL,
     "Show the version."},
    {0, NULL, NULL, OPT_FLAG, 0, 0, NULL, NULL},
};

static const char run_example[] = "backup -- rsync -a /home /mnt";

void args_init(struct args *a)
{
    *a = (struct args){
        .wait_ms = WAIT_FOREVER,
        .lease_ms = LEASE_DEFAULT,
        .kill_after_ms = KILL_AFTER_MS,
        .busy_code = EXIT_BUSY,
        .status_fd = -1,
    };
    (void)value_on_lost("term", &a->on_lost);
}

const struct command *command_find(const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

int args_wrong(const struct command *cmd, const char *right, const char *fmt,
               ...)
{
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    out_tell(OUT_ERROR, "usage", "%s%s%s", cmd ? cmd->name : "",
             cmd ? ": " : "", text ? text : "out of memory");
    out_tell(OUT_ERROR, "usage", "right would be: %s", right);
    free(text);
    return EXIT_USAGE;
}

/* ---- one option -------------------------------------------------------- */

/* A line with this option used as it should be. */
static const char *right_line(const struct command *cmd,
                              const struct option_row *row, char buf[256])
{
    char option[128];

    if (row->letter)
        snprintf(option, sizeof option, "-%c", row->letter);
    else
        snprintf(option, sizeof option, "--%s", row->name);
    if (row->value) {
        size_t n = strlen(option);
        snprintf(option + n, sizeof option - n, " %s", row->example);
    }
    const char *name = cmd ? cmd->name : "run";
    const char *rest = cmd ? strstr(cmd->example, cmd->name) : NULL;
    if (row->at == AT(shell))
        rest = " backup";
    else if (row->at == AT(multi)) /* in place of a name */
        rest = " -- ./move";
    else
        rest = rest ? rest + strlen(cmd->name) : run_example;
    snprintf(buf, 256, "dibs %s %s%s%s", name, option, *rest == ' ' ? "" : " ",
             rest);
    return buf;
}

static int wrong_value(const struct command *cmd, const struct option_row *row,
                       const char *text, const char *why)
{
    char line[256];
    const char *dashes = row->letter ? "-" : "--";
    char letter[2] = {row->letter, '\0'};

    return args_wrong(cmd, right_line(cmd, row, line), "%s%s: '%s' %s", dashes,
                      row->letter ? letter : row->name, text, why);
}

static int set_value(struct args *a, const struct command *cmd,
                     const struct option_row *row, const char *text)
{
    void *at = (char *)a + row->at;
    const char *why = NULL;

    switch (row->kind) {
    case OPT_FLAG:
        *(bool *)at = true;
        break;
    case OPT_NOWAIT:
        *(int64_t *)at = 0;
        break;
    case OPT_TEXT:
        why = *text ? NULL : "is empty";
        if (*(const char **)at &&
            (row->at == AT(multi) || row->at == AT(quorum)))
            why = "is a second one; put all of them behind the first";
        *(const char **)at = text;
        break;
    case OPT_TIME:
        why = value_time(text, at);
        break;
    case OPT_CODE:
        why = value_number(text, 255, at) ? NULL : "is not a code, 0 to 255";
        break;
    case OPT_FD:
        why = value_number(text, 1 << 20, at) ? NULL : "is not a descriptor";
        break;
    case OPT_REPLICAS:
        why = value_replicas(text, at) ? NULL : "is neither a number nor all";
        break;
    case OPT_LOST:
        why = value_on_lost(text, at)
                  ? NULL
                  : "is none of term, kill, warn, exec:CMD or a signal";
        break;
    case OPT_LOG:
        *(bool *)at = strcmp(text, "json") == 0;
        why = *(bool *)at || strcmp(text, "text") == 0
                  ? NULL
                  : "is neither text nor json";
        break;
    }
    return why ? wrong_value(cmd, row, text, why) : EXIT_FINE;
}

static bool taken_by(const struct option_row *row, const struct command *cmd)
{
    return cmd ? (row->commands & cmd->bit) != 0 : row->commands == CMD_ALL;
}

static const struct option_row *option_find(const struct command *cmd,
                                            char letter, const char *name,
                                            size_t len)
{
    const struct option_row *row;

    for (row = option_rows; row->name; row++) {
        if (!taken_by(row, cmd))
            continue;
        if (name ? strncmp(row->name, name, len) == 0 && !row->name[len]
                 : row->letter == letter)
            return row;
    }
    return NULL;
}

/* ---- the words of the line, one after the other ------------------------ */

struct scan {
    struct args *a;
    const struct command *cmd; /* NULL before the subcommand */
    char **argv;
    int argc, i;
};

static const char *example_of(const struct scan *s)
{
    return s->cmd ? s->cmd->example : "dibs run backup -- rsync -a /home /mnt";
}

/* The value of an option: glued to it, or the next word. */
static int option_value(struct scan *s, const struct option_row *row,
                        const char *glued)
{
    char line[256];

    if (glued)
        return set_value(s->a, s->cmd, row, glued);
    if (s->i + 1 >= s->argc || strcmp(s->argv[s->i + 1], "--") == 0)
        return args_wrong(s->cmd, right_line(s->cmd, row, line),
                          "%s needs a value", s->argv[s->i]);
    return set_value(s->a, s->cmd, row, s->argv[++s->i]);
}

static int long_option(struct scan *s)
{
    const char *name = s->argv[s->i] + 2;
    size_t len = strcspn(name, "=");
    const char *glued = name[len] ? name + len + 1 : NULL;
    const struct option_row *row = option_find(s->cmd, 0, name, len);

    if (!row)
        return args_wrong(s->cmd, example_of(s), "unknown option '%s'",
                          s->argv[s->i]);
    if (row->value)
        return option_value(s, row, glued);
    if (glued)
        return args_wrong(s->cmd, example_of(s), "--%s takes no value: '%s'",
                          row->name, s->argv[s->i]);
    return set_value(s->a, s->cmd, row, NULL);
}

/* -nq is -n -q, -w10s is -w 10s. */
static int short_options(struct scan *s)
{
    const char *word = s->argv[s->i];

    for (const char *at = word + 1; *at; at++) {
        const struct option_row *row = option_find(s->cmd, *at, NULL, 0);

        if (!row)
            return args_wrong(s->cmd, example_of(s),
                              "unknown option '-%c' in '%s'", *at, word);
        if (row->value)
            return option_value(s, row, at[1] ? at + 1 : NULL);
        int code = set_value(s->a, s->cmd, row, NULL);
        if (code != EXIT_FINE)
            return code;
    }
    return EXIT_FINE;
}

static int add_word(struct scan *s, const char *word)
{
    if (s->a->n_words >= s->cmd->max_words)
        return args_wrong(
            s->cmd, s->cmd->example, "unexpected word '%s'%s", word,
            s->cmd->bit == CMD_RUN ? "; the command stands behind --" : "");
    s->a->words[s->a->n_words++] = word;
    return EXIT_FINE;
}

static int one_word(struct scan *s)
{
    const char *word = s->argv[s->i];

    if (word[0] != '-' || word[1] == '\0')
        return add_word(s, word);
    return word[1] == '-' ? long_option(s) : short_options(s);
}

int args_before(struct args *a, int argc, char **argv, int *i)
{
    struct scan s = {.a = a, .argv = argv, .argc = argc, .i = 1};
    int code = EXIT_FINE;

    for (; code == EXIT_FINE && s.i < argc; s.i++) {
        if (argv[s.i][0] != '-')
            break;
        code = one_word(&s);
    }
    *i = s.i;
    return code;
}

/* What stands behind --: a command for run, plain words for the others. */
static int behind_dashes(struct scan *s)
{
    int code = EXIT_FINE;

    s->i++;
    if (s->cmd->bit == CMD_RUN) {
        s->a->argv = s->argv + s->i;
        return EXIT_FINE;
    }
    for (; code == EXIT_FINE && s->i < s->argc; s->i++)
        code = add_word(s, s->argv[s->i]);
    return code;
}

/* ---- does it make sense? ----------------------------------------------- */

static const char multi_example[] = "dibs run --multi stock,orders -- ./move";

/* One name, which ends at a NUL or after len bytes. */
static int check_one(const struct args *a, const struct command *cmd,
                     const char *name, size_t len)
{
    if (len == 0)
        return args_wrong(cmd, a->multi ? multi_example : cmd->example,
                          "the name '' is empty");
    if (len > DIBS_NAME_MAX)
        return args_wrong(cmd, cmd->example,
                          "the name '%.20s...' has %zu bytes, %d are allowed",
                          name, len, DIBS_NAME_MAX);
    if ((cmd->bit & CMD_TAKE) == 0 || a->any_name)
        return EXIT_FINE;
    for (const char *s = name; s < name + len; s++) {
        if ((unsigned char)*s > ' ' && *s != 0x7F)
            continue;
        char right[128];
        snprintf(right, sizeof right, "%s   (or, if you mean it, --any-name)",
                 cmd->example);
        return args_wrong(cmd, right, "the name '%.*s' has a %s in it",
                          (int)len, name,
                          *s == ' ' ? "space" : "control character");
    }
    return EXIT_FINE;
}

/* Does the name occur among those that stand before it? */
static bool named_before(const char *names, const char *name, size_t len)
{
    for (const char *s = names; s < name;) {
        size_t n = strcspn(s, ",");
        if (n == len && memcmp(s, name, n) == 0)
            return true;
        s += n + 1;
    }
    return false;
}

static int check_names(const struct args *a, const struct command *cmd)
{
    size_t count = 0, len;
    int code = EXIT_FINE;

    for (const char *s = a->multi; s && code == EXIT_FINE;
         s = s[len] ? s + len + 1 : NULL) {
        len = strcspn(s, ",");
        code = check_one(a, cmd, s, len);
        if (code == EXIT_FINE && named_before(a->multi, s, len))
            return args_wrong(cmd, multi_example, "--multi: '%.*s' twice",
                              (int)len, s);
        if (++count > NAMES_MAX)
            return args_wrong(cmd, multi_example, "--multi: more than %d names",
                              NAMES_MAX);
    }
    return code;
}

static int check_name(const struct args *a, const struct command *cmd)
{
    return a->multi ? check_names(a, cmd)
                    : check_one(a, cmd, a->words[0], strlen(a->words[0]));
}

static int check_quorum(const struct args *a, const struct command *cmd)
{
    static const char right[] =
        "dibs run --quorum redis://a,redis://b,redis://c backup -- make";

    if (!a->quorum)
        return EXIT_FINE;
    if (a->multi)
        return args_wrong(cmd, right,
                          "--multi and --quorum do not go together");
    if (a->url || a->url_file)
        return args_wrong(cmd, right,
                          "--quorum names the servers; %s is one "
                          "too many",
                          a->url ? "-u" : "--url-file");
    if (a->min_hold_ms > 0)
        return args_wrong(cmd, right,
                          "--min-hold and --quorum do not go together");
    return EXIT_FINE;
}

/* The names stand where NAME would. */
static int place_names(struct args *a, const struct command *cmd)
{
    if (!a->multi)
        return EXIT_FINE;
    if (a->n_words > 0)
        return args_wrong(cmd, multi_example,
                          "unexpected word '%s'; --multi has the names",
                          a->words[0]);
    a->words[a->n_words++] = a->multi;
    return EXIT_FINE;
}

static int check_run(const struct args *a, const struct command *cmd)
{
    if (a->shell && a->argv && a->argv[0])
        return args_wrong(cmd, cmd->example,
                          "-c and a command behind --: '%s' is one too many",
                          a->argv[0]);
    if (!a->shell && (!a->argv || !a->argv[0]))
        return args_wrong(cmd, cmd->example, "the command is missing");
    return EXIT_FINE;
}

static int check_lease(const struct args *a, const struct command *cmd)
{
    if (a->lease_ms >= DIBS_LEASE_MIN_MS)
        return EXIT_FINE;
    return args_wrong(cmd,
                      cmd->bit == CMD_DOCTOR
                          ? "dibs doctor --lease 30s"
                          : "dibs run --lease 30s backup -- rsync -a x y",
                      "--lease: shorter than %d ms", DIBS_LEASE_MIN_MS);
}

static int check_take(const struct args *a, const struct command *cmd)
{
    if (a->max_hold_ms > 0 && a->max_hold_ms < DIBS_LEASE_MIN_MS)
        return args_wrong(cmd, "dibs run --max-hold 1h backup -- make all",
                          "--max-hold: shorter than %d ms", DIBS_LEASE_MIN_MS);
    int code = check_quorum(a, cmd);
    if (code != EXIT_FINE)
        return code;
    if (a->fair + a->shared + a->exclusive > 1)
        return args_wrong(cmd, "dibs run -s data -- ./report",
                          "only one of --fair, -s and -x can be had");
    if (a->shared && a->min_hold_ms > 0)
        return args_wrong(cmd, "dibs run -x --min-hold 1m data -- ./load",
                          "--min-hold does not go with -s: a lock that is "
                          "shared cannot be left taken");
    if (a->no_renew && a->max_hold_ms > 0)
        return args_wrong(cmd,
                          "dibs run --no-renew --lease 1h backup -- make all",
                          "--max-hold says nothing with --no-renew");
    if (a->status_fd >= 0) {
        int flags = fcntl(a->status_fd, F_GETFL);
        if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
            return args_wrong(cmd,
                              "dibs run --status-fd 3 backup -- make 3>status",
                              "--status-fd: descriptor %d is not open for "
                              "writing",
                              a->status_fd);
    }
    return cmd->bit == CMD_RUN ? check_run(a, cmd) : EXIT_FINE;
}

int args_behind(struct args *a, const struct command *cmd, int argc,
                char **argv, int i)
{
    struct scan s = {.a = a, .cmd = cmd, .argv = argv, .argc = argc, .i = i};
    int code = EXIT_FINE;

    for (; code == EXIT_FINE && s.i < argc; s.i++) {
        if (strcmp(argv[s.i], "--") == 0) {
            code = behind_dashes(&s);
            break;
        }
        code = one_word(&s);
    }
    if (code != EXIT_FINE || a->help || a->version)
        return code;
    code = place_names(a, cmd);
    if (code != EXIT_FINE)
        return code;
    if (a->n_words < cmd->min_words)
        return args_wrong(cmd, cmd->example, "%s is missing", cmd->words_are);
    if (a->n_words > 0 &&
        (cmd->bit & (CMD_TAKE | CMD_INFO | CMD_FORCE | CMD_DOCTOR)))
        code = check_name(a, cmd);
    if (code == EXIT_FINE)
        code = check_lease(a, cmd);
    if (code == EXIT_FINE && (cmd->bit & CMD_TAKE))
        code = check_take(a, cmd);
    return code;
}
