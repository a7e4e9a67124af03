/* SPDX-License-Identifier: MIT
 *
 * cmd_acl.c - dibs acl: the rights that a user of locks needs, as a line for
 * redis-cli.
 *
 * The table is the library's; doctor looks at the same one. No server is asked.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <stdlib.h>

#include "exits.h"

static bool add_rule(const char *rule, void *arg)
{
    return fprintf(arg, " %s", rule) > 0;
}

int cmd_acl(const struct args *a)
{
    struct out_text t;

    if (!out_text_open(&t))
        return EXIT_INTERNAL;
    fputs("ACL SETUSER dibs on >PASSWORD resetkeys resetchannels -@all", t.f);
    dibs_err err = dibs_acl_rules(a->words[0], a->kinds, add_rule, t.f);
    putc('\n', t.f);
    if (err == DIBS_OK && out_text_print(&t, err) == DIBS_OK)
        return out_finish(EXIT_FINE);
    if (err == DIBS_ERR_INVALID) {
        int code = args_wrong(command_find("acl"), "dibs acl 'jobs:*'", "%s",
                              dibs_error_text());
        free(out_text_close(&t));
        return code;
    }
    out_tell(OUT_ERROR, "internal", "out of memory");
    return EXIT_INTERNAL;
}
