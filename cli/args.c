/* SPDX-License-Identifier: MIT
 *
 * args.c - reads the command line.
 *
 *     dibs [options] SUBCOMMAND [options] WORDS [-- COMMAND ARGS...]
 *
 * One table has all options: which subcommands take them, where their value
 * goes, what it may be, and a sentence for the help. Options and words may be
 * mixed up to "--". What comes behind it is not read, so a guarded command
 * keeps its dashes. Before the subcommand only those options may come that all
 * subcommands take.
 *
 * Thread  The first, before there is another.
 *
 * Trouble Every error goes through args_wrong or args_hint: one line that names
 *         the wrong word, one line with the corrected command line (hint.c),
 *         and EXIT_USAGE. The help is not printed.
 */
#include "args.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exits.h"
#include "hint.h"
#include "names.h"
#include "settings.h"

#define AT(field) offsetof(struct args, field)

const struct option_row option_rows[] = {
    {'n', "no-wait", NULL, OPT_NOWAIT, AT(wait_ms), CMD_ASK, NULL,
     "Do not wait when the lock is taken."},
    {'w', "wait", "TIME", OPT_TIME, AT(wait_ms), CMD_ASK, "10s",
     "Wait at most this long, for the lock and for the server; 0 is -n. "
     "Default: wait for the lock without limit."},
    {0, "fair", NULL, OPT_FLAG, AT(fair), CMD_ASK, NULL,
     "A fair lock: those who ask first get it first."},
    {0, "fair-call", "TIME", OPT_TIME, AT(fair_call_ms), CMD_ASK, "5s",
     "With --fair: how long the free lock is kept for the first in the queue "
     "if that one is stopped and does not take it. Default 5s."},
    {'s', "shared", NULL, OPT_FLAG, AT(shared), CMD_ASK, NULL,
     "A read-write lock, to read: together with other -s, but not while "
     "somebody holds it with -x."},
    {'x', "exclusive", NULL, OPT_FLAG, AT(exclusive), CMD_ASK, NULL,
     "A read-write lock, to write: alone. Without -s, -x and --fair the lock "
     "is a plain one, and exclusive, too. Use one kind for one name."},
    {0, "multi", "NAMES", OPT_TEXT, AT(multi), CMD_ASK | CMD_LEFT,
     "stock,orders",
     "Several locks at once, all or none, instead of NAME: names with commas "
     "between them."},
    {0, "quorum", "URLS", OPT_TEXT, AT(quorum), CMD_ASK | CMD_LEFT,
     "redis://a,redis://b,redis://c",
     "The lock on more than half of these independent servers (RedLock), "
     "instead of -u: three URLs or more, with commas between them."},
    {0, "lease", "TIME", OPT_TIME, AT(lease_ms),
     CMD_ASK | CMD_EXTEND | CMD_DOCTOR, "30s",
     "The server frees the lock this long after our last sign of life. Default "
     "30s, renewed while the command runs."},
    {0, "no-renew", NULL, OPT_FLAG, AT(no_renew), CMD_TAKE, NULL,
     "Do not renew: the lock ends with its lease. The command is stopped "
     "before that."},
    {0, "max-hold", "TIME", OPT_TIME, AT(max_hold_ms), CMD_TAKE, "1h",
     "Renew no longer than this. The command is stopped before the lock ends."},
    {0, "min-hold", "TIME", OPT_TIME, AT(min_hold_ms), CMD_TAKE, "1m",
     "Keep the lock taken for at least this long, also when the command ends "
     "sooner."},
    {0, "replicas", "N", OPT_REPLICAS, AT(replicas), CMD_ASK, "1",
     "This many replicas of the server must have the lock, too, or it is not "
     "taken: a number, or all that are connected. Default 0."},
    {0, "publish", "VALUE", OPT_TEXT, AT(publish), CMD_TAKE, "db1:8080",
     "Publish VALUE with the lock, as the address of a leader: 'dibs info' "
     "shows it to others while the lock is held. At most 4096 bytes."},
    {0, "pass-notify", NULL, OPT_FLAG, AT(pass_notify), CMD_RUN, NULL,
     "Under systemd: leave NOTIFY_SOCKET to the command, and tell nothing."},
    {'t', "max-run", "TIME", OPT_TIME, AT(max_run_ms), CMD_RUN, "10m",
     "Stop the command after this time; exit 124. Default: no limit."},
    {'k', "kill-after", "TIME", OPT_TIME, AT(kill_after_ms), CMD_RUN, "5s",
     "The time from TERM to KILL when dibs stops the command. Default 5s; when "
     "the lock is being lost, a third of the lease at most."},
    {0, "on-lost", "WHAT", OPT_LOST, AT(on_lost), CMD_TAKE, "term",
     "What to do when the lock is being lost: term (default), kill, a signal's "
     "name, exec:CMD or warn. After all but warn, KILL follows before the "
     "lease ends."},
    {'c', "command", "STRING", OPT_TEXT, AT(shell), CMD_RUN,
     "'pg_dump db | gzip > db.gz'",
     "Run STRING with /bin/sh, instead of a command behind --."},
    {0, "foreground", NULL, OPT_FLAG, AT(foreground), CMD_RUN, NULL,
     "Leave the command in the process group of dibs, which then signals the "
     "command only and waits for it only."},
    {'E', "busy-code", "CODE", OPT_CODE, AT(busy_code), CMD_ASK, "75",
     "Exit code when the lock could not be taken in time. Default 75."},
    {0, "ok-if-busy", NULL, OPT_FLAG, AT(ok_if_busy), CMD_TAKE, NULL,
     "When the lock could not be taken in time, print nothing and exit 0."},
    {0, "any-name", NULL, OPT_FLAG, AT(any_name), CMD_ASK, NULL,
     "Accept a NAME with spaces or control characters."},
    {0, "no-stdin", NULL, OPT_FLAG, AT(no_stdin), CMD_HOLD, NULL,
     "Do not watch stdin: hold until a signal comes."},
    {0, "for-pid", "PID", OPT_PID, AT(for_pid), CMD_HOLD | CMD_RELEASE, "$$",
     "Hold in the background, until that process ends or 'dibs release' asks;"
     " exit 0 once it is held. For a shell script: $$."},
    {0, "status-fd", "N", OPT_FD, AT(status_fd), CMD_TAKE, "3",
     "At the end, write one line of JSON to descriptor N: how it ended, and "
     "why."},
    {0, "yes", NULL, OPT_FLAG, AT(yes), CMD_FORCE, NULL,
     "Yes, take the lock away from its holder."},
    {0, "if-owner", "OWNER", OPT_TEXT, AT(if_owner), CMD_FORCE,
     "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1",
     "Only if this owner, as 'dibs info' shows it, holds the lock."},
    {0, "owner", "HANDLE", OPT_TEXT, AT(owner), CMD_LEFT, "\"$handle\"",
     "The hold that 'dibs acquire' took: what it printed."},
    {0, "force", NULL, OPT_FLAG, AT(force), CMD_LOCAL, NULL,
     "Stop the private server even while locks are held."},
    {0, "json", NULL, OPT_FLAG, AT(json),
     CMD_LOOK | CMD_HOLD | CMD_ACQUIRE | CMD_LEFT | CMD_LOCAL | CMD_DOCTOR,
     NULL, "Answer in JSON."},
    {'u', "url", "URL", OPT_TEXT, AT(url), CMD_ALL, "redis://db1.example:6379",
     "The server: redis://[user@]host[:port][/db] or unix:///path[?db=N];"
     " rediss://host[:port][?ca=FILE&cert=FILE&key=FILE] for TLS;"
     " redis-sentinel://host[:port],.../service or"
     " redis-cluster://host[:port],... for more than one;"
     " valkey may replace redis. No password here: everybody can see it."
     " Default: $DIBS_URL, a file (see man dibs), or else a private server."},
    {0, "url-file", "FILE", OPT_TEXT, AT(url_file), CMD_ALL, "/etc/dibs.url",
     "Read the URL from a file; it may have a password. Default:"
     " $DIBS_URL_FILE."},
    {0, "password-file", "FILE", OPT_TEXT, AT(password_file), CMD_ALL,
     "/etc/dibs.password",
     "Read the password from a file. Default: $DIBS_PASSWORD."},
    {'q', "quiet", NULL, OPT_FLAG, AT(quiet), CMD_ALL, NULL,
     "Print errors only."},
    {'v', "verbose", NULL, OPT_FLAG, AT(verbose), CMD_ALL, NULL,
     "Print what happens, who has the lock, and how long we waited."},
    {0, "log", "FORMAT", OPT_LOG, AT(log_json), CMD_ALL, "json",
     "Messages on stderr as text (default) or json, one object a line."},
    {'h', "help", NULL, OPT_FLAG, AT(help), CMD_ALL, NULL, "Show this help."},
    {'V', "version", NULL, OPT_FLAG, AT(version), CMD_ALL, NULL,
     "Show the version."},
    {0, NULL, NULL, OPT_FLAG, 0, 0, NULL, NULL},
};

void args_init(struct args *a)
{
    *a = (struct args){
        .wait_ms = NOT_GIVEN,
        .lease_ms = NOT_GIVEN,
        .fair_call_ms = FAIR_CALL_DEFAULT,
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

/* The words of the line, one after the other. */
struct scan {
    struct args *a;
    const struct command *cmd; /* NULL before the subcommand */
    struct typed line;
    int i;
};

/* The line with n words from index at on replaced. */
static char *right_line(const struct scan *s, int at, int n, const char *with)
{
    bool run = s->cmd && s->cmd->bit == CMD_RUN;
    char *line = (run ? hint_run_line : hint_line)(&s->line, at, n, with);
    char *hint = line ? args_text("for example: %s", line) : NULL;

    free(line);
    return hint;
}

/* ---- one option -------------------------------------------------------- */

/* glued: the value, if it is in the option's own word. */
static int wrong_value(struct scan *s, const struct option_row *row,
                       const char *glued, const char *why)
{
    const char *word = s->line.argv[s->i];
    const char *dashes = row->letter ? "-" : "--";
    char letter[2] = {row->letter, '\0'};
    int before = glued ? (int)(glued - word) : 0;
    char *with =
        args_text("%.*s%s%s", before, word,
                  before > 0 && word[1] != '-' ? " " : "", row->example);
    char *hint = with ? right_line(s, s->i, 1, with) : NULL;

    free(with);
    return args_hint(s->cmd, hint, "%s%s: '%s' %s", dashes,
                     row->letter ? letter : row->name, glued ? glued : word,
                     why);
}

static int set_value(struct scan *s, const struct option_row *row,
                     const char *text, const char *glued)
{
    void *at = (char *)s->a + row->at;
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
            why = "is given a second time; put all of them into one option";
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
    case OPT_PID:
        why = value_number(text, 1 << 22, at) && *(int *)at > 0
                  ? NULL
                  : "is not the number of a process";
        break;
    case OPT_REPLICAS:
        why = value_replicas(text, at) ? NULL : "is neither a number nor all";
        break;
    case OPT_LOST:
        why = value_on_lost(text, at)
                  ? NULL
                  : "is not one of term, kill, warn, exec:CMD or a signal";
        break;
    case OPT_LOG:
        *(bool *)at = strcmp(text, "json") == 0;
        why = *(bool *)at || strcmp(text, "text") == 0
                  ? NULL
                  : "is neither text nor json";
        break;
    }
    return why ? wrong_value(s, row, glued, why) : EXIT_FINE;
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

/* ---- one word ---------------------------------------------------------- */

/* A flag has no value. A value is in the same word as its option, or is the
 * next word. */
static int option_value(struct scan *s, const struct option_row *row,
                        const char *glued)
{
    if (!row->value || glued)
        return set_value(s, row, glued, glued);
    if (s->i + 1 >= s->line.argc || strcmp(s->line.argv[s->i + 1], "--") == 0)
        return args_hint(s->cmd, right_line(s, s->i + 1, 0, row->example),
                         "%s needs a value", s->line.argv[s->i]);
    s->i++;
    return set_value(s, row, s->line.argv[s->i], NULL);
}

/* No option was found. name: of a long one, len bytes; or NULL, and a letter.
 */
static int unknown_option(struct scan *s, char letter, const char *name,
                          size_t len)
{
    const struct option_row *row = name ? hint_option(s->cmd, name, len) : NULL;
    const char *word = s->line.argv[s->i];
    char takers[128], *hint = NULL;

    if (row) {
        char *with = args_text("--%s%s", row->name, name + len);
        if (with)
            hint = args_did_you_mean(hint_line(&s->line, s->i, 1, with));
        free(with);
    } else if (*hint_takers(letter, name, len, takers)) {
        hint = args_text(s->cmd ? "it is an option of: %s"
                                : "it goes behind the subcommand: %s",
                         takers);
    } else {
        hint = args_text("'dibs help%s%s' lists the options", s->cmd ? " " : "",
                         s->cmd ? s->cmd->name : "");
    }
    if (name)
        return args_hint(s->cmd, hint, "unknown option '--%.*s'", (int)len,
                         name);
    return args_hint(s->cmd, hint, "unknown option '-%c' in '%s'", letter,
                     word);
}

static int long_option(struct scan *s)
{
    const char *name = s->line.argv[s->i] + 2;
    size_t len = strcspn(name, "=");
    const char *glued = name[len] ? name + len + 1 : NULL;
    const struct option_row *row = option_find(s->cmd, 0, name, len);
    char bare[64];

    if (!row)
        return unknown_option(s, 0, name, len);
    if (row->value || !glued)
        return option_value(s, row, glued);
    snprintf(bare, sizeof bare, "--%s", row->name);
    return args_hint(s->cmd, right_line(s, s->i, 1, bare),
                     "--%s takes no value: '%s'", row->name,
                     s->line.argv[s->i]);
}

/* -nq is -n -q, -w10s is -w 10s. */
static int short_options(struct scan *s)
{
    for (const char *at = s->line.argv[s->i] + 1; *at; at++) {
        const struct option_row *row = option_find(s->cmd, *at, NULL, 0);

        if (!row)
            return unknown_option(s, *at, NULL, 0);
        if (row->value)
            return option_value(s, row, at[1] ? at + 1 : NULL);
        int code = set_value(s, row, NULL, NULL);
        if (code != EXIT_FINE)
            return code;
    }
    return EXIT_FINE;
}

/* Does the line have a command to run? */
static bool has_dashes(const struct scan *s)
{
    for (int i = s->i; i < s->line.argc; i++)
        if (strcmp(s->line.argv[i], "--") == 0)
            return true;
    return s->a->shell != NULL;
}

static int take_word(struct scan *s, const char *word)
{
    bool run = s->cmd->bit == CMD_RUN, command = run && !has_dashes(s);

    if (s->a->n_words >= s->cmd->max_words)
        return args_hint(s->cmd,
                         command ? right_line(s, s->i, 0, "--")
                                 : right_line(s, s->i, 1, NULL),
                         "unexpected word '%s'%s", hint_word(word),
                         command ? "; the command comes behind --" : "");
    s->a->words[s->a->n_words++] = word;
    return EXIT_FINE;
}

static int one_word(struct scan *s)
{
    const char *word = s->line.argv[s->i];

    if (word[0] != '-' || word[1] == '\0')
        return take_word(s, word);
    return word[1] == '-' ? long_option(s) : short_options(s);
}

int args_before(struct args *a, int argc, char **argv, int *i)
{
    struct scan s = {.a = a, .line = {argc, argv}, .i = 1};
    int code = EXIT_FINE;

    for (; code == EXIT_FINE && s.i < argc; s.i++) {
        if (argv[s.i][0] != '-')
            break;
        code = one_word(&s);
    }
    *i = s.i;
    return code;
}

/* What comes behind --: a command for run, plain words for the others. */
static int behind_dashes(struct scan *s)
{
    int code = EXIT_FINE;

    s->i++;
    if (s->cmd->bit == CMD_RUN) {
        s->a->argv = s->line.argv + s->i;
        return EXIT_FINE;
    }
    for (; code == EXIT_FINE && s->i < s->line.argc; s->i++)
        code = take_word(s, s->line.argv[s->i]);
    return code;
}

/* ---- does it make sense? ----------------------------------------------- */

static int check_quorum(const struct args *a, const struct command *cmd)
{
    static const char right[] =
        "dibs run --quorum redis://a,redis://b,redis://c backup -- make";

    if (!a->quorum)
        return EXIT_FINE;
    if (a->multi)
        return args_wrong(cmd, right,
                          "--multi and --quorum cannot be used together");
    if (a->url || a->url_file)
        return args_wrong(cmd, right,
                          "--quorum names the servers; %s is one "
                          "too many",
                          a->url ? "-u" : "--url-file");
    if (a->min_hold_ms > 0)
        return args_wrong(cmd, right,
                          "--min-hold and --quorum cannot be used together");
    return EXIT_FINE;
}

static int check_run(const struct args *a, const struct command *cmd)
{
    if (a->shell && a->argv && a->argv[0])
        return args_wrong(cmd, "dibs run -c STRING NAME",
                          "-c and a command behind --: '%s' is one too many",
                          a->argv[0]);
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

static int check_take(const struct args *a, const struct command *cmd)
{
    if (a->max_hold_ms > 0 && a->max_hold_ms < DIBS_LEASE_MIN_MS)
        return args_wrong(cmd, "dibs run --max-hold 1h backup -- make all",
                          "--max-hold: shorter than %d ms", DIBS_LEASE_MIN_MS);
    if (a->max_hold_ms > 0 && a->min_hold_ms > a->max_hold_ms)
        return args_wrong(cmd,
                          "dibs run --min-hold 1m --max-hold 1h backup -- make",
                          "--min-hold is longer than --max-hold: nobody would "
                          "hold the lock in between");
    int code = check_quorum(a, cmd);
    if (code == EXIT_FINE)
        code = check_fair(a, cmd);
    if (code != EXIT_FINE)
        return code;
    if (a->fair + a->shared + a->exclusive > 1)
        return args_wrong(cmd, "dibs run -s data -- ./report",
                          "use only one of --fair, -s and -x");
    if (a->shared && a->min_hold_ms > 0)
        return args_wrong(
            cmd, "dibs run -x --min-hold 1m data -- ./load",
            "--min-hold does not work with -s: a shared lock cannot be kept");
    if (cmd->bit == CMD_HOLD && a->for_pid == 0 &&
        (a->on_lost.kind != LOST_SIGNAL || a->on_lost.sig != SIGTERM))
        return args_wrong(cmd, "dibs hold --for-pid $$ --on-lost kill backup",
                          "--on-lost has nobody to signal without --for-pid");
    if (a->no_renew && a->max_hold_ms > 0)
        return args_wrong(cmd,
                          "dibs run --no-renew --lease 1h backup -- make all",
                          "--max-hold has no effect with --no-renew");
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

static int check_publish(const struct args *a, const struct command *cmd)
{
    static const char right[] =
        "dibs run --publish db1:8080 leader -- ./daemon";

    if (!a->publish)
        return EXIT_FINE;
    if (strlen(a->publish) > DIBS_VALUE_MAX)
        return args_wrong(cmd, right, "--publish: longer than %d bytes",
                          DIBS_VALUE_MAX);
    if (a->shared || a->multi || a->quorum)
        return args_wrong(cmd, right,
                          "--publish is for one lock that one holder has");
    return EXIT_FINE;
}

/* Nobody renews what is left, so its lease is never a default. */
static int check_left(const struct args *a, const struct command *cmd)
{
    if (cmd->bit != CMD_RELEASE && a->lease_ms == NOT_GIVEN)
        return args_wrong(cmd, cmd->example,
                          "--lease is missing: nobody renews this lock, it "
                          "ends then");
    if (cmd->bit == CMD_EXTEND && !a->owner)
        return args_wrong(cmd, cmd->example, "--owner is missing");
    if (a->owner && a->for_pid > 0)
        return args_wrong(cmd, cmd->example,
                          "--owner and --for-pid cannot be used together");
    return a->owner ? check_quorum(a, cmd) : EXIT_FINE;
}

/* Where the word is missing: at the end, but before --. */
static int missing_word(const struct scan *s)
{
    int at = 1;

    while (at < s->line.argc && strcmp(s->line.argv[at], "--") != 0)
        at++;
    return args_hint(
        s->cmd,
        right_line(s, at, 0, s->cmd->bit == CMD_LOCAL ? "status" : "NAME"),
        "%s is missing", s->cmd->words_are);
}

int args_behind(struct args *a, const struct command *cmd, int argc,
                char **argv, int i)
{
    struct scan s = {.a = a, .cmd = cmd, .line = {argc, argv}, .i = i};
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
    code = names_place(a, cmd);
    if (code != EXIT_FINE)
        return code;
    if (a->n_words < cmd->min_words)
        return missing_word(&s);
    if (cmd->bit == CMD_RUN && !a->shell && (!a->argv || !a->argv[0]))
        return args_hint(cmd, right_line(&s, argc, 0, NULL),
                         "the command is missing");
    if (a->n_words > 0 &&
        (cmd->bit & (CMD_ASK | CMD_EXTEND | CMD_INFO | CMD_FORCE | CMD_DOCTOR)))
        code = names_check(a, cmd);
    if (code == EXIT_FINE && (cmd->bit & (CMD_ACQUIRE | CMD_LEFT)))
        code = check_left(a, cmd);
    if (code == EXIT_FINE && (cmd->bit & CMD_SERVER))
        code = settings_apply(a);
    if (code == EXIT_FINE && (cmd->bit & CMD_SERVER))
        code = check_lease(a, cmd);
    if (code == EXIT_FINE && (cmd->bit & CMD_ASK))
        code = check_take(a, cmd);
    return code == EXIT_FINE ? check_publish(a, cmd) : code;
}
