/* SPDX-License-Identifier: MIT
 *
 * suggest.c - guesses what the user meant, and shows the corrected line.
 *
 * Thread  The first, before there is another.
 *
 * How     A word is compared with all that would be right there. First comes a
 *         list of the words that other tools use for the same thing. Then a
 *         beginning that fits only one of them. Then the number of letters that
 *         must be changed: a third of them at most.
 *
 * Secrets The hint is the line that was typed, corrected. Messages end up in
 *         logs and mails, so the hint has nothing that may be a password: no
 *         URL with a user, and only the name of the guarded command.
 */
#include "args/suggest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exit_codes.h"

#define WORD_MAX  32 /* longest word that is compared */
#define SHOWN_MAX 60 /* longest word that is shown whole */

/* What other tools call it. */
struct alias {
    const char *typed, *meant;
};

static const struct alias command_words[] = {
    {"list", "ls"},
    {"locks", "ls"},
    {"ps", "ls"},
    {"lock", "run"},
    {"exec", "run"},
    {"with", "run"},
    {"take", "hold"},
    {"unlock", "release"},
    {"kill", "force-unlock"},
    {"break", "force-unlock"},
    {"rm", "force-unlock"},
    {"free", "release"},
    {"renew", "extend"},
    {"show", "info"},
    {"status", "info"},
    {"get", "info"},
    {"who", "info"},
    {"follow", "watch"},
    {"tail", "watch"},
    {"monitor", "top"},
    {"stats", "metrics"},
    {"prometheus", "metrics"},
    {"waiters", "queue"},
    {"check", "doctor"},
    {"ping", "doctor"},
    {"test", "doctor"},
    {NULL, NULL},
};

static const struct alias option_words[] = {
    {"timeout", "wait"},
    {"nonblock", "no-wait"},
    {"nb", "no-wait"},
    {"try", "no-wait"},
    {"ttl", "lease"},
    {"expire", "lease"},
    {"conflict-exit-code", "busy-code"},
    {"read", "shared"},
    {"write", "exclusive"},
    {"server", "url"},
    {"host", "url"},
    {"redis", "url"},
    {"password", "password-file"},
    {"force", "yes"},
    {"owner", "if-owner"},
    {"debug", "verbose"},
    {"silent", "quiet"},
    {NULL, NULL},
};

/* ---- messages ---------------------------------------------------------- */

char *args_text(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    return text;
}

char *args_did_you_mean(char *line)
{
    char *hint = line ? args_text("did you mean: %s", line) : NULL;

    free(line);
    return hint;
}

/* Frees the hint. */
PRINTF(3, 0)
static int tell_usage(const struct command *cmd, char *hint, const char *fmt,
                      va_list ap)
{
    char *text = NULL;

    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    out_tell(OUT_ERROR, "usage", "%s%s%s", cmd ? cmd->name : "",
             cmd ? ": " : "", text ? text : "out of memory");
    if (hint)
        out_tell(OUT_ERROR, "usage", "%s", hint);
    free(text);
    free(hint);
    return EXIT_USAGE;
}

int args_hint(const struct command *cmd, char *hint, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int code = tell_usage(cmd, hint, fmt, ap);
    va_end(ap);
    return code;
}

int args_wrong(const struct command *cmd, const char *right, const char *fmt,
               ...)
{
    va_list ap;

    va_start(ap, fmt);
    int code = tell_usage(cmd, args_text("for example: %s", right), fmt, ap);
    va_end(ap);
    return code;
}

/* ---- how alike two words are ------------------------------------------- */

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

/* How many letters must be changed, added, left out, or swapped with the next
 * one, to make one word of the other. Both are at most WORD_MAX long. */
static int word_distance(const char *a, size_t a_len, const char *b,
                         size_t b_len)
{
    int rows[WORD_MAX + 1][WORD_MAX + 1];

    for (size_t i = 0; i <= a_len; i++)
        rows[i][0] = (int)i;
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= a_len; i++)
        for (size_t j = 1; j <= b_len; j++) {
            int other = a[i - 1] != b[j - 1];
            int best = least_of(rows[i - 1][j] + 1, rows[i][j - 1] + 1);

            best = least_of(best, rows[i - 1][j - 1] + other);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = least_of(best, rows[i - 2][j - 2] + 1);
            rows[i][j] = best;
        }
    return rows[a_len][b_len];
}

static const char *meant_by(const struct alias *rows, const char *word,
                            size_t len)
{
    for (; rows->typed; rows++)
        if (strlen(rows->typed) == len && memcmp(rows->typed, word, len) == 0)
            return rows->meant;
    return NULL;
}

/* The nearest of the words that were offered so far. */
struct nearest {
    const char *word; /* what was typed */
    size_t len;
    const void *found;
    int best;     /* its distance */
    int prefixed; /* how many begin with what was typed */
};

static void nearest_offer(struct nearest *n, const char *word, const void *what)
{
    size_t len = strlen(word);

    if (n->len == 0 || n->len > WORD_MAX || len > WORD_MAX)
        return;
    int d = word_distance(n->word, n->len, word, len);
    if (n->len < len && memcmp(word, n->word, n->len) == 0) {
        n->prefixed++;
        d = 1;
    }
    if (d < n->best) {
        n->best = d;
        n->found = what;
    }
}

static const void *nearest_found(const struct nearest *n)
{
    int most = n->len < 6 ? 1 : (int)(n->len / 3);

    if (n->len == 4 || n->len == 5)
        most = 2;
    return n->best <= most && n->prefixed < 2 ? n->found : NULL;
}

const struct command *hint_command(const char *word)
{
    struct nearest n = {.word = word, .len = strlen(word), .best = WORD_MAX};
    const char *meant = meant_by(command_words, word, n.len);

    if (meant)
        return command_find(meant);
    for (const struct command *c = commands; c->name; c++)
        nearest_offer(&n, c->name, c);
    return nearest_found(&n);
}

static bool option_fits(const struct option_row *row, const struct command *cmd)
{
    return cmd ? (row->commands & cmd->bit) != 0 : row->commands == CMD_ALL;
}

const struct option_row *hint_option(const struct command *cmd,
                                     const char *name, size_t len)
{
    struct nearest n = {.word = name, .len = len, .best = WORD_MAX};
    const char *meant = meant_by(option_words, name, len);

    for (const struct option_row *row = option_rows; row->name; row++) {
        if (!option_fits(row, cmd))
            continue;
        if (meant && strcmp(meant, row->name) == 0)
            return row;
        nearest_offer(&n, row->name, row);
    }
    return nearest_found(&n);
}

const char *commands_accepting(char letter, const char *name, size_t len,
                               char buf[128])
{
    size_t used = 0;

    buf[0] = '\0';
    for (const struct option_row *row = option_rows; row->name; row++) {
        if (name ? strncmp(row->name, name, len) != 0 || row->name[len]
                 : !letter || row->letter != letter)
            continue;
        for (const struct command *c = commands; c->name; c++)
            if ((row->commands & c->bit) && used < 128)
                used += (size_t)snprintf(buf + used, 128 - used, "%s%s",
                                         used ? ", " : "", c->name);
    }
    return buf;
}

/* ---- the line, put right ----------------------------------------------- */

/* May this word have a password in it? */
static const char *secret_in(const char *word)
{
    const char *url = strstr(word, "://");

    return url && (strchr(url, '@') || strstr(url, "password=")) ? url : NULL;
}

const char *hint_word(const char *word)
{
    return secret_in(word) ? "URL" : word;
}

static void show_word(FILE *f, const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789-_=+:,./@%^";
    size_t len = strlen(word);

    if (secret_in(word)) {
        const char *glued =
            strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
        fprintf(f, " %.*sURL", glued ? (int)(glued + 1 - word) : 0, word);
    } else if (len > SHOWN_MAX) {
        fprintf(f, " '%.20s...'", word);
    } else if (len > 0 && strspn(word, safe) == len) {
        fprintf(f, " %s", word);
    } else {
        fputs(" '", f);
        for (; *word; word++)
            fputs(*word == '\'' ? "'\\''" : (char[2]){*word, '\0'}, f);
        putc('\'', f);
    }
}

/* The guarded command: its name, and that there is more. */
static void show_guarded(FILE *f, const struct typed *t, int i)
{
    fputs(" --", f);
    if (i < t->argc)
        show_word(f, t->argv[i]);
    fputs(i + 1 < t->argc ? " ..." : "", f);
}

/* False: all is shown. */
static bool show_typed(FILE *f, const struct typed *t, int *i, bool *runs)
{
    const char *word = t->argv[*i];

    if (strcmp(word, "--") == 0) {
        *runs = *i + 1 < t->argc;
        if (*runs)
            show_guarded(f, t, *i + 1);
        return false;
    }
    show_word(f, word);
    if (strcmp(word, "-c") == 0 || strcmp(word, "--command") == 0) {
        *runs = true;
        fputs(*i + 1 < t->argc ? " '...'" : "", f);
        ++*i;
    }
    return true;
}

static char *build_line(const struct typed *t, int at, int n, const char *with,
                        bool *runs)
{
    struct out_text line;

    *runs = false;
    if (!out_text_open(&line))
        return NULL;
    FILE *f = line.f;
    fputs("dibs", f);
    for (int i = 1; i <= t->argc; i++) {
        if (i == at && with && strcmp(with, "--") == 0) {
            *runs = true;
            show_guarded(f, t, i);
            break;
        }
        if (i == at && with && secret_in(with))
            show_word(f, with);
        else if (i == at && with)
            fprintf(f, " %s", with);
        if (i == t->argc || (i >= at && i < at + n))
            continue;
        if (!show_typed(f, t, &i, runs))
            break;
    }
    return out_text_close(&line);
}

char *hint_line(const struct typed *t, int at, int n, const char *with)
{
    bool runs;

    return build_line(t, at, n, with, &runs);
}

char *hint_run_line(const struct typed *t, int at, int n, const char *with)
{
    bool runs;
    char *line = build_line(t, at, n, with, &runs), *more = NULL;

    if (!line || runs)
        return line;
    if (asprintf(&more, "%s -- COMMAND", line) < 0)
        more = NULL;
    free(line);
    return more;
}
