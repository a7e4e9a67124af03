/* SPDX-License-Identifier: MIT
 *
 * error_advice.c - why a lock cannot be taken, and what to do next.
 *
 * The library tells the address of the server and the server's own words. Here
 * the next step is added, chosen by the word that an error of the server begins
 * with, and where there is none, by the library's code.
 *
 * Thread  Any.
 */
#include "output/error_advice.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "args/lock_type.h"
#include "exit_codes.h"
#include "output/output.h"

const char *failure_words(const char *text)
{
    const char *at = strstr(text, "://");
    const char *end = at ? strstr(at, ": ") : NULL;

    return end ? end + 2 : text;
}

void failure_trim(char *text)
{
    size_t n = strlen(text);
    if (n > 0 && text[n - 1] == '.')
        text[n - 1] = '\0';
}

/* ---- the next step ----------------------------------------------------- */

#define DOCTOR "try: dibs doctor"

static const struct step {
    const char *word; /* what the server's words begin with; or NULL */
    dibs_err err;
    const char *step;
} steps[] = {
    {"READONLY", DIBS_ERR_SERVER, "give the master's address"},
    {"LOADING", DIBS_ERR_SERVER, "it still loads its data: try again later"},
    {"OOM", DIBS_ERR_SERVER, DOCTOR},
    {"NOPERM", DIBS_ERR_AUTH, DOCTOR},
    {"NOAUTH", DIBS_ERR_AUTH, "give a password: --password-file FILE"},
    {"WRONGPASS", DIBS_ERR_AUTH, "check user and password"},
    {NULL, DIBS_ERR_CONN,
     "is a server running there, and is this its address?"},
    {NULL, DIBS_ERR_WRONGTYPE, "take another name"},
    {NULL, DIBS_ERR_AUTH, DOCTOR},
    {NULL, DIBS_ERR_SERVER, DOCTOR},
    {NULL, DIBS_ERR_UNKNOWN, DOCTOR},
    {NULL, DIBS_ERR_PROTOCOL, DOCTOR},
    {NULL, DIBS_ERR_REPLICAS, DOCTOR},
};

static const struct step *find_step(dibs_err err, const char *text)
{
    const char *words = failure_words(text);

    if (strstr(words, "too many open files"))
        return NULL; /* nothing is wrong with the server */
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const struct step *s = &steps[i];

        if (s->err == err &&
            (!s->word || strncmp(words, s->word, strlen(s->word)) == 0))
            return s;
    }
    return NULL;
}

/* Adds an option and a word, quoted for a shell. A word that is too long or
 * cannot be quoted is left out, with its option. */
static void append_word(char buf[FAILURE_MAX], const char *option,
                        const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/@%+,-";
    size_t n = strlen(buf);
    const char *quote = word[strspn(word, plain)] ? "'" : "";

    if (strchr(word, '\'') || word[0] == '-' || strlen(word) > 200)
        return;
    snprintf(buf + n, FAILURE_MAX - n, " %s%s%s%s", option, quote, word, quote);
}

const char *failure_step(const struct args *a, dibs_err err, const char *text,
                         char buf[FAILURE_MAX])
{
    const struct step *s = find_step(err, text);

    buf[0] = '\0';
    if (!s || (a->quorum && strcmp(s->step, DOCTOR) == 0))
        return buf;
    snprintf(buf, FAILURE_MAX, "; %s", s->step);
    if (strcmp(s->step, DOCTOR) != 0)
        return buf;
    if (a->url)
        append_word(buf, "-u ", a->url);
    else if (a->url_file)
        append_word(buf, "--url-file ", a->url_file);
    if (a->password_file)
        append_word(buf, "--password-file ", a->password_file);
    if (a->n_words > 0 && !a->multi)
        append_word(buf, "", a->words[0]);
    return buf;
}

/* ---- a replica --------------------------------------------------------- */

struct role {
    char text[300]; /* "a replica of HOST:PORT", or "" */
};

static bool find_role(const char *check, dibs_verdict verdict, const char *text,
                      void *arg)
{
    struct role *r = arg;

    if (strcmp(check, "role") != 0)
        return true;
    if (verdict != DIBS_VERDICT_OK && strncmp(text, "a replica of ", 13) == 0) {
        size_t n = 13 + strcspn(text + 13, " ");
        snprintf(r->text, sizeof r->text, "%.*s", (int)n, text);
    }
    return false;
}

/* "ADDRESS is a replica of MASTER (READONLY)", if the server tells. Mostly the
 * library has asked already. */
static const char *name_master(dibs_client *c, const char *text,
                               char buf[FAILURE_MAX])
{
    const char *words = failure_words(text);
    const char *known = strstr(words, "a replica of ");
    struct role role = {.text = ""};

    if (!c || words < text + 2 || strncmp(words, "READONLY", 8) != 0)
        return text;
    if (known)
        snprintf(role.text, sizeof role.text, "%s", known);
    else if (dibs_client_doctor(c, NULL, find_role, &role) != DIBS_OK ||
             !role.text[0])
        return text;
    snprintf(buf, FAILURE_MAX, "%.*s is %s (READONLY)", (int)(words - text - 2),
             text, role.text);
    return buf;
}

/* ---- all of it --------------------------------------------------------- */

int failure_tell(const struct args *a, dibs_err err, const char *text,
                 dibs_client *c)
{
    char step[FAILURE_MAX], named[FAILURE_MAX], copy[FAILURE_MAX];
    char clash[KIND_CLASH_MAX];
    const char *kind = NULL;
    const char *event = err == DIBS_ERR_REPLICAS         ? "replicas"
                        : err == DIBS_ERR_AUTH           ? "noperm"
                        : out_exit_of(err) == EXIT_USAGE ? "usage"
                                                         : "server";

    if (err == DIBS_ERR_WRONGTYPE && c && !a->multi && !a->quorum)
        kind = kind_clash(c, a, clash);
    if (kind) {
        out_tell(OUT_ERROR, event, "cannot take '%s': %s", a->words[0], kind);
        return out_exit_of(err);
    }
    snprintf(copy, sizeof copy, "%s", text);
    failure_trim(copy);
    text = copy;
    failure_step(a, err, text, step);
    if (!*text)
        text = dibs_strerror(err);
    else if (err == DIBS_ERR_SERVER)
        text = name_master(c, text, named);
    out_tell(OUT_ERROR, event, "cannot take '%s': %s%s", a->words[0], text,
             step);
    return out_exit_of(err);
}
