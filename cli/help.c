/* SPDX-License-Identifier: MIT
 *
 * help.c - what dibs help and --help show.
 *
 * The first page fits a screen and is enough to guard a cron job. The page of
 * a subcommand is made from the tables of main.c and args.c, so that it tells
 * what the parser takes; but for sentences that do not suit all subcommands,
 * and options that are taken and mean nothing. dibs(1) has the rest.
 */
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "exits.h"
#include "hint.h"

#define TEXT_COLUMN 26
#define LINE_WIDTH  79

static const char first_page[] =
    "dibs run NAME -- COMMAND [ARGS...]\n"
    "\n"
    "waits until nobody else holds the lock NAME, runs COMMAND, frees the lock "
    "when\n"
    "COMMAND has ended, and exits as COMMAND did. In a crontab, skipping a run "
    "while\n"
    "the last one still works:\n"
    "\n"
    "  */5 * * * *  dibs run -n --ok-if-busy backup -- /usr/local/bin/backup\n"
    "\n"
    "Between machines, name a Redis or Valkey server they share, as in\n"
    "DIBS_URL=redis://db1.example:6379; without one, dibs starts a private\n"
    "redis-server, for this user on this machine. If the lock is lost, COMMAND "
    "is\n"
    "stopped. Exit codes: 75 taken, 69 no server, 80 lost; man dibs has all.\n"
    "\n"
    "Subcommands (dibs help SUBCOMMAND has their options):\n";

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

/* What is not in the summary, and a user of it must know. */
static const struct {
    unsigned command;
    const char *text;
} abouts[] = {
    {CMD_RUN,
     "Waits for the lock NAME, runs COMMAND without a shell, frees the lock "
     "when"
     " COMMAND and all that it started has ended, and exits as COMMAND did. If"
     " the lock is lost, COMMAND is stopped."},
    {CMD_HOLD,
     "Takes the lock NAME and prints its owner. Exits 0 when stdin ends or a"
     " signal comes, and 80 as soon as the lock is lost."},
    {CMD_INFO,
     "The end of a lease is not when the lock becomes free: its holder renews"
     " it. Only when the holder is gone does it run out."},
    {CMD_QUEUE,
     "The time shown is for how long a waiter keeps its place if it gives no"
     " sign of life. Other locks have no queue; of those it says how many"
     " clients wait."},
    {CMD_LS,
     "In PATTERN, * stands for anything, ? for one character, [ab] for one of"
     " several; quote it, or the shell reads it first."},
    {CMD_FORCE,
     "A holder that is alive notices at its next renewal, up to a third of a"
     " lease later: until then two may be at work. Exits 75, with nothing done,"
     " if another owner than --if-owner holds the lock."},
    {CMD_DOCTOR,
     "Prints a line for each finding: ok, note, warning or problem. Exits 1 if"
     " there is a problem. With NAME, the rights to that lock are looked at,"
     " too."},
    {CMD_LOCAL,
     "Where no URL is given, dibs uses a redis-server of the user's own, on "
     "this"
     " machine. status shows whether it runs, and exits 69 if not; stop ends"
     " it."},
};

/* Instead of the sentence in option_rows. */
static const struct {
    unsigned commands;
    const char *option, *help;
} other_words[] = {
    {CMD_DOCTOR, "lease",
     "The lease of the locks that the server is meant for: it is compared with"
     " the server's uptime. Default 30s."},
    {CMD_HOLD, "lease",
     "After so long without a sign of life from us the lock is free again."
     " Default 30s, renewed while we hold it."},
    {CMD_HOLD, "no-renew",
     "Do not renew: the lock ends with its lease; exit 80."},
    {CMD_HOLD, "max-hold",
     "Renew no longer than this; then the lock ends, and we exit 80."},
    {CMD_HOLD, "min-hold",
     "Keep the lock taken for at least so long, also when stdin ends or a"
     " signal comes sooner."},
};

static const char *words_for(const struct option_row *row, unsigned command)
{
    for (size_t i = 0; i < sizeof other_words / sizeof *other_words; i++)
        if ((other_words[i].commands & command) &&
            strcmp(other_words[i].option, row->name) == 0)
            return other_words[i].help;
    return row->help;
}

/* A server can be named to every subcommand, since such options may stand
 * before it; but some ask none. */
static bool means_nothing(const struct option_row *row, unsigned command)
{
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

static void show_command(const struct command *cmd)
{
    printf("dibs %s\n\n%s\n", cmd->synopsis, cmd->summary);
    for (size_t i = 0; i < sizeof abouts / sizeof *abouts; i++)
        if (abouts[i].command == cmd->bit)
            print_wrapped(abouts[i].text, 0);
    puts("\nOptions:");
    for (const struct option_row *row = option_rows; row->name; row++)
        if ((row->commands & cmd->bit) && !means_nothing(row, cmd->bit))
            show_option(row, cmd->bit);
    if (cmd->bit & (CMD_TAKE | CMD_DOCTOR))
        puts("\nA TIME is 500ms, 10s, 2m, 1h, 1d or 1h30m; a bare number is "
             "seconds.");
    if (cmd->bit == CMD_RUN)
        show_exits();
    printf("\nExample: %s\n", cmd->example);
}

int help_show(const struct command *cmd)
{
    if (cmd && cmd->bit != CMD_HELP) {
        show_command(cmd);
    } else {
        fputs(first_page, stdout);
        for (const struct command *c = commands; c->name; c++)
            if (c->bit & ~(unsigned)(CMD_VERSION | CMD_HELP))
                printf("  %-14s%s\n", c->name, c->summary);
        puts("  version, help");
    }
    return out_finish(EXIT_FINE);
}

int cmd_help(const struct args *a)
{
    const struct command *cmd =
        a->n_words > 0 ? command_find(a->words[0]) : NULL;

    if (a->n_words == 0 || cmd)
        return help_show(cmd);
    cmd = hint_command(a->words[0]);
    return args_hint(command_find("help"),
                     args_text(cmd ? "did you mean: dibs help %s"
                                   : "'dibs help' shows what there is%s",
                               cmd ? cmd->name : ""),
                     "there is no subcommand '%s'", a->words[0]);
}
