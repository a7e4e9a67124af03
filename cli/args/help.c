/* SPDX-License-Identifier: MIT
 *
 * help.c - what dibs help and --help print.
 *
 * The first page fits on a screen and is enough to guard a cron job. The page
 * of a subcommand is made from the tables of main.c and args.c, so it has what
 * the parser takes. Some options have another text for some subcommands, and
 * options without effect are left out. dibs(1) has the rest.
 */
#include <stdio.h>
#include <string.h>

#include "args/subverbs.h"
#include "args/suggest.h"
#include "cmd.h"
#include "exit_codes.h"

#define TEXT_COLUMN 26
#define LINE_WIDTH  79

static const char first_page[] =
    "dibs run NAME -- COMMAND [ARGS...]\n"
    "\n"
    "Waits until nobody else holds the lock NAME, then runs COMMAND. When "
    "it has\n"
    "ended, dibs releases the lock and exits as COMMAND did. If the lock is "
    "lost,\n"
    "COMMAND is stopped. A cron job that is skipped while the last run still "
    "works:\n"
    "\n"
    "  */5 * * * *  dibs run -n --ok-if-busy backup -- /usr/local/bin/backup\n"
    "\n"
    "To share locks between machines, name a Redis or Valkey server:\n"
    "DIBS_URL=redis://db1.example:6379. Without one, dibs starts a private\n"
    "redis-server, for this user on this machine.\n"
    "Exit codes: 75 taken, 69 no server, 80 lost; 'man dibs' has all of them.\n"
    "\n"
    "Subcommands ('dibs help SUBCOMMAND' has their options):\n";

/* Prints text behind column at, which we are in, wrapped between words. */
static void print_wrapped(const char *text, int at)
{
    int column = at;

    while (*text) {
        int len = (int)strcspn(text, " ");

        if (column + len > LINE_WIDTH) {
            printf("\n%*s", at, "");
            column = at;
        }
        printf("%.*s", len, text);
        column += len;
        text += len;
        if (*text == ' ') {
            text++;
            if (column + 1 + (int)strcspn(text, " ") <= LINE_WIDTH) {
                putchar(' ');
                column++;
            } else {
                column = LINE_WIDTH + 1;
            }
        }
    }
    putchar('\n');
}

/* What a user must know besides the summary. */
static const struct {
    unsigned command;
    const char *text;
} abouts[] = {
    {CMD_RUN,
     "Waits for the lock NAME, and runs COMMAND without a shell. When COMMAND "
     "and all that it started has ended, dibs releases the lock and exits as "
     "COMMAND did. If the lock is lost, COMMAND is stopped."},
    {CMD_HOLD, "Takes the lock NAME and prints its owner. When stdin ends or a "
               "signal comes, it releases the lock and exits 0. If the lock is "
               "lost, it exits 80 at once."},
    {CMD_ACQUIRE,
     "Takes the lock NAME, prints a handle and ends. The lock stays taken "
     "until "
     "'dibs release --owner HANDLE NAME', by any process on any host, or until "
     "its lease is over: nobody renews it but 'dibs extend'."},
    {CMD_EXTEND, "The lock then lasts at least TIME from now. Exits 80 if that "
                 "hold is over: somebody else may have had the lock since."},
    {CMD_RELEASE,
     "With --owner: releases the hold that 'dibs acquire' took, and no other; "
     "exits 80 if it is over. Without it: ends the 'dibs hold --for-pid' of "
     "this script, or of the process that --for-pid names."},
    {CMD_INFO,
     "The lock does not become free at the end of the lease that is shown: its "
     "holder renews the lease. Only when the holder is gone does it run out."},
    {CMD_QUEUE, "The time shown is how long a waiter keeps its place without a "
                "sign of life. Other locks have no queue; for those it shows "
                "how many clients wait."},
    {CMD_LS, "In PATTERN, * is anything, ? is one character, [ab] is one of "
             "several. Quote it, or the shell reads it first. On a terminal, "
             "rows are cut to its width."},
    {CMD_WATCH,
     "Prints who has the locks now, then a line for each change: taken, free, "
     "lost (its lease ran out), holders, queue (more wait). A name without *, "
     "? "
     "and [ is one lock. What changes back between two looks is not seen."},
    {CMD_WAIT, "Exits 0 as soon as the lock is seen free. Somebody else may "
               "take it at once: to work under it, use 'dibs run'."},
    {CMD_TOP,
     "Keys: q ends; n o a l w c sort by name, owner, age, lease, waiters, "
     "changes, r turns the order; / filters; arrows and PgUp, PgDn move; space "
     "stops and goes on. The age is counted from when dibs saw the owner "
     "first."},
    {CMD_METRICS,
     "In the text format of Prometheus, once: for the textfile collector of "
     "its node exporter. If they cannot be read, dibs_up is 0, "
     "dibs_down_reason says why, and it exits 69 or 77."},
    {CMD_FORCE, "A live holder is told at once; one that has held it for less "
                "than a second "
                "learns of it at its next renewal. Until then two commands may "
                "run. Exits 75 and does nothing if "
                "another owner than --if-owner holds the lock."},
    {CMD_DOCTOR,
     "Prints a line for each finding: ok, note, warning or problem. Exits 1 if"
     " there is a problem. With NAME, it also looks at the rights to that "
     "lock."},
    {CMD_SLOTS,
     "'dibs run -N 3 NAME' takes one of the slots. The first one says how many "
     "there are; set changes that. With fewer slots than are held, nobody "
     "loses one."},
    {CMD_SEM,
     "For semaphores that Java programs use; for all else, 'dibs run -N' is "
     "better. set exits 1 if there is a number already, and changes nothing. "
     "release exits 80 if the lease of the permits was over."},
    {CMD_LATCH,
     "A latch that nobody has set is open. set exits 1 if it is closed "
     "already, and changes nothing; with 0 it opens it. wait exits 75 if it is "
     "not open in time."},
    {CMD_ACL,
     "Prints a line for redis-cli: a user with these rights, and no others, "
     "can use locks whose names match PATTERN. Put > and the password in the "
     "place of <PASSWORD>, which a server refuses, or use --password-file. No "
     "server is asked."},
    {CMD_COMPLETION,
     "For bash: eval \"$(dibs completion bash)\" in ~/.bashrc. For zsh: into a "
     "file _dibs in a folder of $fpath. For fish: into "
     "~/.config/fish/completions/dibs.fish. Packages bring them along."},
    {CMD_LOCAL, "Without a URL, dibs uses a private redis-server, for this "
                "user on this machine. status shows whether it runs, and exits "
                "69 if not. stop ends it."},
};

/* Instead of the sentence in option_rows. */
static const struct {
    unsigned commands;
    const char *option, *help;
} other_words[] = {
    {CMD_WAIT, "wait",
     "Wait at most this long; then exit 75. Default: without limit."},
    {CMD_WAIT, "no-wait", "Do not wait: exit 75 if the lock is taken."},
    {CMD_WAIT, "busy-code",
     "Exit code when the lock was not free in time. Default 75."},
    {CMD_INFO, "quiet",
     "Print errors only; the exit code tells: 0 held, 1 free."},
    {CMD_DOCTOR, "lease",
     "The lease that your locks will have. It is compared with the server's "
     "uptime. Default 30s."},
    {CMD_ACQUIRE, "lease", "The lock ends after this time."},
    {CMD_EXTEND, "lease", "The lock lasts at least this long from now."},
    {CMD_EXTEND | CMD_RELEASE, "multi",
     "The names, if 'dibs acquire' had this option, too."},
    {CMD_EXTEND | CMD_RELEASE, "quorum",
     "The servers, if 'dibs acquire' had this option, too."},
    {CMD_SEM, "lease", "With acquire: the permits come back after this time."},
    {CMD_SEM, "owner", "With release: what acquire printed."},
    {CMD_SEM, "no-wait", "With acquire: do not wait."},
    {CMD_SEM, "wait",
     "With acquire: wait at most this long; 0 is -n. Default: no limit."},
    {CMD_SEM | CMD_LATCH, "busy-code",
     "Exit code when it took too long. Default 75."},
    {CMD_LATCH, "no-wait", "With wait: look once."},
    {CMD_LATCH, "wait",
     "With wait: wait at most this long; 0 is -n. Default: no limit."},
    {CMD_RELEASE, "for-pid",
     "Release what 'dibs hold --for-pid PID' holds. Default: what is held for "
     "this process, or for the nearest one that started it."},
    {CMD_RELEASE, "owner", "What 'dibs acquire' printed: that hold."},
    {CMD_ACL, "password-file",
     "Put the password in that file into the line, as >PASSWORD. /dev/stdin is "
     "stdin."},
    {CMD_HOLD, "lease",
     "The server frees the lock this long after our last sign of life. Default "
     "30s, renewed while we hold it."},
    {CMD_HOLD, "no-renew",
     "Do not renew: the lock ends with its lease; exit 80."},
    {CMD_HOLD, "max-hold",
     "Renew no longer than this. Then the lock ends; exit 80."},
    {CMD_HOLD, "min-hold",
     "Keep the lock taken for at least this long, also when stdin ends or a "
     "signal comes sooner."},
    {CMD_HOLD | CMD_ACQUIRE, "fence",
     "A plain lock with a token: a number that grows with each hold. What the "
     "lock protects can refuse an older one. --json and 'dibs info' show it."},
    {CMD_HOLD | CMD_ACQUIRE, "slots",
     "At most N hold it at a time. --json shows the number of our slot, from "
     "0."},
};

static const char *words_for(const struct option_row *row, unsigned command)
{
    for (size_t i = 0; i < sizeof other_words / sizeof *other_words; i++)
        if ((other_words[i].commands & command) &&
            strcmp(other_words[i].option, row->name) == 0)
            return other_words[i].help;
    return row->help;
}

/* Every subcommand accepts the options that name a server, since they may come
 * before it; but some subcommands use no server. */
static bool means_nothing(const struct option_row *row, unsigned command)
{
    if (command == CMD_ACL && strcmp(row->name, "password-file") == 0)
        return false; /* of the user that is made */
    return !(command & CMD_SERVER) && (strcmp(row->name, "url") == 0 ||
                                       strcmp(row->name, "url-file") == 0 ||
                                       strcmp(row->name, "password-file") == 0);
}

static void show_option(const struct option_row *row, unsigned command)
{
    char left[64] = "  ";
    size_t n = 2;

    if (row->letter)
        n += (size_t)snprintf(left + n, sizeof left - n, "-%c, ", row->letter);
    else
        n += (size_t)snprintf(left + n, sizeof left - n, "    ");
    n += (size_t)snprintf(left + n, sizeof left - n, "--%s%s%s", row->name,
                          row->value ? " " : "", row->value ? row->value : "");
    printf("%-*s", TEXT_COLUMN, left);
    if (n >= TEXT_COLUMN)
        printf("\n%*s", TEXT_COLUMN, "");
    print_wrapped(words_for(row, command), TEXT_COLUMN);
}

static void show_exits(void)
{
    puts("\nExit codes, besides the command's own:");
    for (const struct exit_row *row = exit_rows + 1; row->cause; row++)
        printf("  %3d  %s\n", row->code, row->text);
}

static void show_verbs(const struct command *cmd)
{
    char left[64];

    if ((cmd->bit & CMD_VERBS) == 0)
        return;
    putchar('\n');
    for (const struct verb *v = verb_rows; v->name; v++) {
        if (v->command != cmd->bit)
            continue;
        snprintf(left, sizeof left, "  %s NAME%s", v->name,
                 v->number ? " NUMBER" : "");
        printf("%-*s", TEXT_COLUMN, left);
        print_wrapped(v->summary, TEXT_COLUMN);
    }
}

/* Groups of options, as dibs(1) has them. Those that are in no list are about
 * the lock. */
static const struct {
    const char *title, *options;
} option_groups[] = {
    {"Waiting", " no-wait wait busy-code ok-if-busy "},
    {"The lock", NULL},
    {"The command",
     " command pass-notify max-run kill-after on-lost foreground no-stdin "},
    {"The server", " url url-file password-file "},
    {"Messages", " quiet verbose log json every status-fd help version "},
};
#define OPTION_GROUPS (sizeof option_groups / sizeof *option_groups)

static bool is_listed(const char *list, const char *name)
{
    char word[64];

    snprintf(word, sizeof word, " %s ", name);
    return strstr(list, word) != NULL;
}

static bool in_option_group(const struct option_row *row, size_t group)
{
    const char *list = option_groups[group].options;

    for (size_t g = 0; !list && g < OPTION_GROUPS; g++)
        if (option_groups[g].options &&
            is_listed(option_groups[g].options, row->name))
            return false;
    return !list || is_listed(list, row->name);
}

/* verb: only what it takes; or NULL. */
static void show_options(const struct command *cmd, const struct verb *verb)
{
    bool grouped = (cmd->bit & CMD_ASK) != 0;

    if (!grouped)
        puts("\nOptions:");
    for (size_t g = 0; g < (grouped ? OPTION_GROUPS : 1); g++) {
        bool any = false;
        for (const struct option_row *row = option_rows; row->name; row++) {
            if (!(row->commands & cmd->bit) || means_nothing(row, cmd->bit) ||
                (grouped && !in_option_group(row, g)) ||
                (verb && !verb_takes(verb, row->name)))
                continue;
            if (grouped && !any)
                printf("\n%s:\n", option_groups[g].title);
            any = true;
            show_option(row, cmd->bit);
        }
    }
}

static void show_verb(const struct command *cmd, const struct verb *v)
{
    printf("dibs %s %s [options] NAME%s\n\n", cmd->name, v->name,
           v->number ? " NUMBER" : "");
    print_wrapped(v->summary, 0);
    show_options(cmd, v);
    printf("\nExample: %s\n", v->example);
}

static void show_command(const struct command *cmd)
{
    printf("dibs %s\n\n%s\n", cmd->synopsis, cmd->summary);
    for (size_t i = 0; i < sizeof abouts / sizeof *abouts; i++)
        if (abouts[i].command == cmd->bit)
            print_wrapped(abouts[i].text, 0);
    show_verbs(cmd);
    show_options(cmd, NULL);
    if (cmd->bit & (CMD_ASK | CMD_EXTEND | CMD_DOCTOR | CMD_SEM | CMD_LATCH |
                    CMD_WATCH | CMD_WAIT | CMD_TOP))
        puts("\nA TIME is 500ms, 10s, 2m, 1h, 1d or 1h30m; a bare number is "
             "seconds.");
    if (cmd->bit == CMD_RUN)
        show_exits();
    printf("\nExample: %s\n", cmd->example);
}

/* Subcommands that have one line on the first page; that of the first. */
static const struct {
    unsigned first, all;
    const char *names, *summary;
} groups[] = {
    {CMD_ACQUIRE, CMD_ACQUIRE | CMD_EXTEND | CMD_RELEASE,
     "acquire, extend, release",
     "Hold a lock over several steps, on any host."},
    {CMD_INFO, CMD_INFO | CMD_QUEUE | CMD_LS, "info, queue, ls",
     "Show who holds locks, and who waits for them."},
    {CMD_WATCH, CMD_FOLLOW, "watch, top, wait, metrics",
     "See what changes; wait for a lock without it."},
    {CMD_SLOTS, CMD_SLOTS | CMD_SEM | CMD_LATCH, "slots, sem, latch",
     "Several holders at a time, permits, wait for others."},
    {CMD_DOCTOR, CMD_DOCTOR | CMD_ACL, "doctor, acl",
     "Is the server fit for locks? Which rights they need."},
    {CMD_COMPLETION, CMD_COMPLETION | CMD_VERSION | CMD_HELP,
     "completion, version, help", ""},
};

static void list_command(const struct command *cmd)
{
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (groups[i].first == cmd->bit)
            printf(*groups[i].summary ? "  %-*s%s\n" : "  %.*s%s\n",
                   TEXT_COLUMN, groups[i].names, groups[i].summary);
        if (groups[i].all & cmd->bit)
            return;
    }
    printf("  %-*s%s\n", TEXT_COLUMN, cmd->name, cmd->summary);
}

int help_show(const struct command *cmd, const char *verb)
{
    const struct verb *v = cmd && verb ? verb_find(cmd, verb) : NULL;

    if (v) {
        show_verb(cmd, v);
    } else if (cmd && cmd->bit != CMD_HELP) {
        show_command(cmd);
    } else {
        fputs(first_page, stdout);
        for (const struct command *c = commands; c->name; c++)
            list_command(c);
    }
    return out_finish(EXIT_FINE);
}

int cmd_help(const struct args *a)
{
    const struct command *cmd =
        a->n_words > 0 ? command_find(a->words[0]) : NULL;

    if (a->n_words > 1 && cmd && !verb_find(cmd, a->words[1]))
        return verb_unknown(cmd, a->words[1]);
    if (a->n_words == 0 || cmd)
        return help_show(cmd, a->n_words > 1 ? a->words[1] : NULL);
    cmd = hint_command(a->words[0]);
    return args_hint(command_find("help"),
                     args_text(cmd ? "did you mean: dibs help %s"
                                   : "'dibs help' lists the subcommands%s",
                               cmd ? cmd->name : ""),
                     "there is no subcommand '%s'", a->words[0]);
}
