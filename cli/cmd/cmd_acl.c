/* SPDX-License-Identifier: MIT
 *
 * cmd_acl.c - dibs acl: the rights that a user of locks needs, as a line for
 * redis-cli.
 *
 * The table is the library's; doctor looks at the same one. No server is asked.
 * In the place of the password is a word that a server refuses: a line that is
 * used as it is must not make a user whose password everybody knows.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <stdlib.h>
#include <string.h>

#include "exit_codes.h"
#include "server/server_select.h"

static const char right[] = "dibs acl 'jobs:*'";

static bool add_rule(const char *rule, void *arg)
{
    return fprintf(arg, " %s", rule) > 0;
}

/* redis-cli parts its line at blanks, and reads quotes. */
static bool is_one_word(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || *text == 0x7F ||
            strchr("\"'\\", *text))
            return false;
    return true;
}

static int print_line(const struct args *a, const char *password)
{
    struct out_text t;

    if (!out_text_open(&t))
        return EXIT_INTERNAL;
    fprintf(t.f, "ACL SETUSER %s on %s%s resetkeys resetchannels -@all",
            a->user ? a->user : "dibs", password ? ">" : "",
            password ? password : "<PASSWORD>");
    dibs_err err = dibs_acl_rules(a->words[0], a->kinds, add_rule, t.f);
    putc('\n', t.f);
    if (err == DIBS_OK && out_text_print(&t, err) == DIBS_OK)
        return out_finish(EXIT_FINE);
    if (err == DIBS_ERR_INVALID) {
        int code =
            args_wrong(command_find("acl"), right, "%s", dibs_error_text());
        free(out_text_close(&t));
        return code;
    }
    out_tell(OUT_ERROR, "internal", "out of memory");
    return EXIT_INTERNAL;
}

int cmd_acl(const struct args *a)
{
    const struct command *cmd = command_find("acl");
    char *password = NULL;
    int code;

    if (a->user && !is_one_word(a->user))
        return args_wrong(cmd, "dibs acl --user jobs 'jobs:*'",
                          "--user: the name has a blank, a quote or a "
                          "backslash in it");
    if (a->password_file) {
        password = target_read_line("password", a->password_file);
        if (!password)
            return EXIT_USAGE;
    }
    if (password && !is_one_word(password))
        code = args_wrong(cmd, right,
                          "--password-file: the password has a blank, a quote "
                          "or a backslash in it");
    else
        code = print_line(a, password);
    if (password)
        explicit_bzero(password, strlen(password));
    free(password);
    return code;
}
