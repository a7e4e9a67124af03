/* SPDX-License-Identifier: MIT
 *
 * lock_names.c - the name of the lock on the command line, or the names.
 *
 * A name with a blank or a control character in it is nearly always a mistake
 * in quoting, so run and hold need --any-name for it. The other subcommands
 * accept any name.
 *
 * Thread  The first, before there is another.
 */
#include "args/lock_names.h"

#include <stdio.h>
#include <string.h>

#include "exit_codes.h"

#define NAMES_MAX 64

static const char multi_example[] = "dibs run --multi stock,orders -- ./move";

/* One name, which ends at a NUL or after len bytes. */
static int check_one(const struct args *a, const struct command *cmd,
                     const char *name, size_t len)
{
    char right[128];

    snprintf(right, sizeof right, "dibs %s", cmd->synopsis);
    if (len == 0 && (cmd->bit & CMD_PATTERN))
        return args_wrong(
            cmd, right, "the pattern '' is empty; leave it out for all locks");
    if (len == 0)
        return args_wrong(cmd, a->multi ? multi_example : right,
                          "the name '' is empty");
    if (len > DIBS_NAME_MAX)
        return args_wrong(cmd, right,
                          "the name '%.20s...' has %zu bytes, %d are allowed",
                          name, len, DIBS_NAME_MAX);
    if ((cmd->bit & CMD_ASK) == 0 || a->any_name)
        return EXIT_FINE;
    for (const char *s = name; s < name + len; s++) {
        if ((unsigned char)*s > ' ' && *s != 0x7F)
            continue;
        snprintf(right, sizeof right,
                 "dibs %s NAME%s   (or, if you mean it, --any-name)", cmd->name,
                 cmd->bit == CMD_RUN ? " -- COMMAND" : "");
        return args_wrong(cmd, right, "the name '%.*s' has a %s in it",
                          (int)len, name,
                          *s == ' ' ? "space" : "control character");
    }
    return EXIT_FINE;
}

/* Is the name among those before it? */
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

int names_check(const struct args *a, const struct command *cmd)
{
    return a->multi ? check_names(a, cmd)
                    : check_one(a, cmd, a->words[0], strlen(a->words[0]));
}

int names_place(struct args *a, const struct command *cmd)
{
    if (!a->multi)
        return EXIT_FINE;
    if (a->n_words > 0)
        return args_wrong(cmd, multi_example,
                          "unexpected word '%s'; the names are in --multi",
                          a->words[0]);
    a->words[a->n_words++] = a->multi;
    return EXIT_FINE;
}
