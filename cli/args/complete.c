/* SPDX-License-Identifier: MIT
 *
 * complete.c - what can come next on a command line, for shells.
 *
 *     dibs complete WORD...
 *
 * The words are those behind "dibs" on the line; the last one, which may be
 * empty, is to be completed. The shells' own files in completions/ only pass
 * the words on and show the answer, so that subcommands, options and values are
 * known in one place: the tables of main.c and args.c.
 *
 * Answer  The first line says how to read the rest: "words", candidates follow,
 *         one a line, with a tab and a description behind it; "files": the
 *         names of files; "command N": a command of its own begins at word N,
 *         counted from 1.
 *
 * Quiet   Nothing is ever printed on stderr, no server is started, and after
 *         two seconds the process ends: a user waits for the answer in the
 *         middle of typing.
 *
 * Thread  The first, before there is another.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args/config_file.h"
#include "args/subverbs.h"
#include "cmd.h"
#include "exit_codes.h"
#include "server/server_select.h"

#define SECONDS_MAX 2

/* A line as far as it is typed. */
struct typed_so_far {
    const char *word;             /* the last one */
    const struct option_row *row; /* whose value it is, or NULL */
    const char *value;            /* that value, within word */
    const struct command *cmd;    /* or NULL */
    int names;                    /* words behind the subcommand */
    int command_at;               /* word behind --, from 1; 0: no -- */
    const char *url, *url_file, *password_file;
};

/* What the value of an option can be. */
static const struct {
    const char *option, *values;
} known_values[] = {
    {"log", "text json"},
    {"ready", "held waiting"},
    {"server-wait", "10s 1m forever"},
    {"release-wait", "10s 30s forever"},
    {"replicas", "0 1 2 all"},
    {"kinds",
     "plain fair rw fence slots sem latch value look metrics doctor cluster "
     "replicas"},
    {"on-lost", "term kill warn exec: HUP INT USR1 USR2"},
};

/* ---- reading the line -------------------------------------------------- */

static const struct option_row *find_long(const char *name, size_t len)
{
    const struct option_row *row = option_rows;

    while (row->name &&
           (strncmp(row->name, name, len) != 0 || row->name[len] != '\0'))
        row++;
    return row->name ? row : NULL;
}

static const struct option_row *find_letter(char letter)
{
    const struct option_row *row = option_rows;

    while (row->name && row->letter != letter)
        row++;
    return row->name ? row : NULL;
}

/* The option that a word is, and its value if that is in the same word. */
static const struct option_row *read_option(const char *word,
                                            const char **value)
{
    const struct option_row *row;

    *value = NULL;
    if (strncmp(word, "--", 2) == 0) {
        size_t len = strcspn(word + 2, "=");
        row = find_long(word + 2, len);
        if (word[2 + len] == '=')
            *value = word + 2 + len + 1;
        return row;
    }
    row = find_letter(word[1]);
    if (row && row->value && word[2])
        *value = word + 2;
    return row;
}

static void keep_server(struct typed_so_far *t, const struct option_row *row,
                        const char *value)
{
    if (strcmp(row->name, "url") == 0)
        t->url = value;
    else if (strcmp(row->name, "url-file") == 0)
        t->url_file = value;
    else if (strcmp(row->name, "password-file") == 0)
        t->password_file = value;
}

/* A word before the last one. */
static void read_word(struct typed_so_far *t, const char *word)
{
    const char *value;

    if (word[0] != '-' || word[1] == '\0') {
        if (!t->cmd && t->names == 0 && (t->cmd = command_find(word)))
            return;
        t->names++;
        return;
    }
    const struct option_row *row = read_option(word, &value);
    if (row && value)
        keep_server(t, row, value);
    t->row = row && row->value && !value ? row : NULL;
}

static void read_words(struct typed_so_far *t, int argc, char **argv)
{
    t->word = argc > 0 ? argv[argc - 1] : "";
    for (int i = 0; i + 1 < argc && t->command_at == 0; i++) {
        if (t->row) {
            keep_server(t, t->row, argv[i]);
            t->row = NULL;
        } else if (strcmp(argv[i], "--") == 0) {
            t->command_at = i + 2;
        } else {
            read_word(t, argv[i]);
        }
    }
    t->value = t->word;
    if (!t->row && strncmp(t->word, "--", 2) == 0 && strchr(t->word, '='))
        t->row = read_option(t->word, &t->value);
}

/* ---- answering --------------------------------------------------------- */

/* Offers a candidate if the word so far begins like it. The bytes of the word
 * before `from` are put before it. */
static void offer_word(const struct typed_so_far *t, const char *from,
                       const char *candidate, const char *help)
{
    size_t kept = (size_t)(from - t->word);

    if (strncmp(candidate, from, strlen(from)) != 0)
        return;
    printf("%.*s%s", (int)kept, t->word, candidate);
    if (help)
        printf("\t%.*s", (int)strcspn(help, ".;:"), help);
    putchar('\n');
}

static void offer_words(const struct typed_so_far *t, const char *words)
{
    char *copy = strdup(words), *rest = copy, *one;

    while (copy && (one = strsep(&rest, " ")))
        offer_word(t, t->value, one, NULL);
    free(copy);
}

static void offer_commands(const struct typed_so_far *t)
{
    for (const struct command *c = commands; c->name; c++)
        offer_word(t, t->word, c->name, c->summary);
}

static void offer_verbs(const struct typed_so_far *t)
{
    for (const struct verb *v = verb_rows; v->name; v++)
        if (v->command == t->cmd->bit)
            offer_word(t, t->word, v->name, v->summary);
}

static void offer_options(const struct typed_so_far *t)
{
    char name[64];

    for (const struct option_row *row = option_rows; row->name; row++) {
        unsigned takers = row->commands;

        if (t->cmd ? (takers & t->cmd->bit) == 0 : takers != CMD_ALL)
            continue;
        snprintf(name, sizeof name, "--%s", row->name);
        offer_word(t, t->word, name, row->help);
    }
}

struct offered {
    const struct typed_so_far *t;
    const char *from;
};

/* A name that needs quotes, or could upset a terminal, is left out. */
static bool offer_name(const char *name, size_t len, const dibs_lock_info *info,
                       void *arg)
{
    const struct offered *o = arg;

    (void)info;
    char *shown = out_printable(name, len);
    bool plain = shown && strlen(shown) == len && !memchr(name, ' ', len);
    free(shown);
    if (!plain)
        return true;
    char *copy = strndup(name, len);
    if (copy)
        offer_word(o->t, o->from, copy, NULL);
    free(copy);
    return true;
}

/* The locks that are held on the server that the line names. */
static void offer_names(const struct typed_so_far *t, const char *from)
{
    struct offered o = {t, from};
    struct args a;
    dibs_client *c = NULL;
    struct target_server server = {.url = NULL};

    args_init(&a);
    a.url = t->url;
    a.url_file = t->url_file;
    a.password_file = t->password_file;
    if (settings_apply(&a) == EXIT_FINE &&
        target_look(&a, &c, &server) == EXIT_FINE && c &&
        dibs_client_list(c, "*", offer_name, &o) != DIBS_OK)
        fflush(stdout); /* what came before is offered all the same */
    dibs_client_free(c);
    target_server_clear(&server);
}

static bool is_option(const struct option_row *row, const char *name)
{
    return strcmp(row->name, name) == 0;
}

static void answer_value(const struct typed_so_far *t)
{
    const char *comma = strrchr(t->value, ',');

    if (is_option(t->row, "url-file") || is_option(t->row, "password-file")) {
        puts("files");
        return;
    }
    puts("words");
    if (is_option(t->row, "multi"))
        offer_names(t, comma ? comma + 1 : t->value);
    for (size_t i = 0; i < sizeof known_values / sizeof *known_values; i++)
        if (is_option(t->row, known_values[i].option))
            offer_words(t, known_values[i].values);
}

static void answer_word(const struct typed_so_far *t)
{
    const unsigned named = CMD_ASK | CMD_LEFT | CMD_INFO | CMD_QUEUE |
                           CMD_FORCE | CMD_DOCTOR | CMD_WATCH | CMD_WAIT;

    puts("words");
    if (t->word[0] == '-')
        offer_options(t);
    else if (t->names == 0 && (!t->cmd || t->cmd->bit == CMD_HELP))
        offer_commands(t);
    else if (t->cmd && (t->cmd->bit & named) && t->names == 0)
        offer_names(t, t->word);
    else if (t->cmd && (t->cmd->bit & CMD_VERBS) && t->names == 0)
        offer_verbs(t);
    else if (t->cmd && (t->cmd->bit & CMD_VERBS) && t->names == 1)
        offer_names(t, t->word);
    else if (t->cmd && t->cmd->bit == CMD_COMPLETION && t->names == 0)
        offer_words(t, "bash zsh fish");
    else if (t->cmd && t->cmd->bit == CMD_LOCAL && t->names == 0)
        offer_words(t, "status stop");
    else if (t->cmd && t->cmd->bit == CMD_RUN && t->names > 0)
        offer_word(t, t->word, "--", NULL);
}

int complete_line(int argc, char **argv)
{
    struct typed_so_far t = {.word = ""};
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (null < 0 || dup2(null, STDERR_FILENO) < 0)
        return EXIT_INTERNAL;
    alarm(SECONDS_MAX);
    read_words(&t, argc, argv);
    if (t.command_at > 0 && t.cmd && t.cmd->bit == CMD_RUN)
        printf("command %d\n", t.command_at);
    else if (t.command_at > 0)
        puts("words");
    else if (t.row)
        answer_value(&t);
    else
        answer_word(&t);
    return out_finish(EXIT_FINE);
}
