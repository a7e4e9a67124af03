/* SPDX-License-Identifier: MIT
 *
 * args.c - reads the command line.
 *
 *     dibs [options] SUBCOMMAND [options] WORDS [-- COMMAND ARGS...]
 *
 * option_table.c has the table of all options. Options and words may be mixed
 * up to "--". What comes behind it is not read, so a guarded command keeps its
 * dashes. Before the subcommand only those options may come that all
 * subcommands take.
 *
 * Thread  The first, before there is another.
 *
 * Trouble Every error goes through args_wrong or args_hint: one line that names
 *         the wrong word, one line with the corrected command line (suggest.c),
 *         and EXIT_USAGE. The help is not printed.
 */
#include "args/args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args/config_file.h"
#include "args/lock_names.h"
#include "args/option_checks.h"
#include "args/subverbs.h"
#include "args/suggest.h"
#include "exit_codes.h"

#define AT(field) offsetof(struct args, field)

void args_init(struct args *a)
{
    *a = (struct args){
        .wait_ms = NOT_GIVEN,
        .server_wait_ms = NOT_GIVEN,
        .release_wait_ms = RELEASE_WAIT_MS,
        .lease_ms = NOT_GIVEN,
        .every_ms = NOT_GIVEN,
        .fair_call_ms = FAIR_CALL_DEFAULT,
        .kill_after_ms = KILL_AFTER_MS,
        .busy_code = EXIT_BUSY,
        .status_fd = -1,
    };
    (void)value_on_lost("term", &a->on_lost);
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

/* What stands for a word that is missing. */
static const char *word_example(const struct scan *s)
{
    return s->cmd->bit == CMD_LOCAL ? "status" : "NAME";
}

/* What else the line lacks behind this option, the last one. */
static const char *also_missing(const struct scan *s,
                                const struct option_row *row)
{
    int at = s->i + 1;
    bool ends = at >= s->line.argc || strcmp(s->line.argv[at], "--") == 0;
    bool named = s->a->multi || row->at == AT(multi);

    if (!ends || named || !s->cmd || s->a->n_words >= s->cmd->min_words)
        return NULL;
    return word_example(s);
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
    const char *more = also_missing(s, row);
    char *with = args_text("%.*s%s%s%s%s", before, word,
                           before > 0 && word[1] != '-' ? " " : "",
                           row->example, more ? " " : "", more ? more : "");
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
    case OPT_EVER:
        if (strcmp(text, "forever") == 0)
            *(int64_t *)at = WAIT_FOREVER;
        else
            why = value_time(text, at);
        break;
    case OPT_READY:
        *(bool *)at = strcmp(text, "waiting") == 0;
        why = *(bool *)at || strcmp(text, "held") == 0
                  ? NULL
                  : "is neither held nor waiting";
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
    case OPT_COUNT:
        why = value_count(text, DIBS_PERMITS_MAX, at)
                  ? NULL
                  : "is not a number from 1 to 2147483647";
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

static int value_missing(struct scan *s, const struct option_row *row)
{
    const char *more = also_missing(s, row);
    char *with =
        args_text("%s%s%s", row->example, more ? " " : "", more ? more : "");
    char *hint = with ? right_line(s, s->i + 1, 0, with) : NULL;

    free(with);
    return args_hint(s->cmd, hint, "%s needs a value", s->line.argv[s->i]);
}

/* A flag has no value. A value is in the same word as its option, or is the
 * next word. */
static int option_value(struct scan *s, const struct option_row *row,
                        const char *glued)
{
    if (!row->value || glued)
        return set_value(s, row, glued, glued);
    if (s->i + 1 >= s->line.argc || strcmp(s->line.argv[s->i + 1], "--") == 0)
        return value_missing(s, row);
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
    } else if (s->cmd && (s->cmd->bit & CMD_VERBS) && letter >= '0' &&
               letter <= '9') {
        hint = args_text("a negative number goes behind --: -- %s", word);
    } else if (*commands_accepting(letter, name, len, takers)) {
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

/* What comes behind --: a command for run, plain words for the others. With a
 * second -- for run, the name is between them: it may begin with a dash. */
static int behind_dashes(struct scan *s)
{
    int code = EXIT_FINE;

    s->i++;
    bool named = s->cmd->bit == CMD_RUN && s->a->n_words == 0 && !s->a->multi &&
                 s->i < s->line.argc;
    if (named && s->a->shell && s->i + 1 == s->line.argc)
        return take_word(s, s->line.argv[s->i]);
    if (named && s->i + 1 < s->line.argc &&
        strcmp(s->line.argv[s->i + 1], "--") == 0) {
        code = take_word(s, s->line.argv[s->i]);
        s->i += 2;
    }
    if (s->cmd->bit == CMD_RUN) {
        s->a->argv = s->line.argv + s->i;
        return code;
    }
    for (; code == EXIT_FINE && s->i < s->line.argc; s->i++)
        code = take_word(s, s->line.argv[s->i]);
    return code;
}

/* ---- all of it --------------------------------------------------------- */

/* Where the word is missing: at the end, but before --. */
static int missing_word(const struct scan *s)
{
    int at = 1;

    while (at < s->line.argc && strcmp(s->line.argv[at], "--") != 0)
        at++;
    return args_hint(s->cmd, right_line(s, at, 0, word_example(s)),
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
    if (code == EXIT_FINE)
        code = verbs_place(a, cmd);
    if (code != EXIT_FINE)
        return code;
    if (a->n_words < cmd->min_words)
        return missing_word(&s);
    if (cmd->bit == CMD_RUN && !a->shell && (!a->argv || !a->argv[0]))
        return args_hint(cmd, right_line(&s, argc, 0, NULL),
                         "the command is missing");
    if (a->n_words > 0 && (cmd->bit & (CMD_ASK | CMD_EXTEND | CMD_LOOK |
                                       CMD_FOLLOW | CMD_DOCTOR | CMD_VERBS)))
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
