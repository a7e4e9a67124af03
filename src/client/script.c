/* SPDX-License-Identifier: MIT
 *
 * script.c - calls of scripts: by digest, or whole when the server has not seen
 * the script. EVAL makes it remember, so that is all the loading there is.
 *
 * Thread  any.
 */
#include "client/script.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dibs__script_head(struct dibs__buf *out, const struct dibs__script *script,
                       bool whole, size_t keys, size_t args)
{
    dibs__buf_array(out, 3 + keys + args);
    if (whole) {
        dibs__buf_arg_text(out, "EVAL");
        dibs__buf_arg(out, script->src, script->len);
    } else {
        dibs__buf_arg_text(out, "EVALSHA");
        dibs__buf_arg(out, script->sha, 40);
    }
    dibs__buf_arg_num(out, (int64_t)keys);
}

/* The command of the first call on this line, or right behind it. */
static size_t command_at(const struct dibs__script *script, long line,
                         char *out, size_t size)
{
    const char *at = script->src, *end = script->src + script->len;
    size_t len = 0;

    for (; line > 1 && at; line--) {
        at = memchr(at, '\n', (size_t)(end - at));
        at = at ? at + 1 : NULL;
    }
    at = at ? strstr(at, "call('") : NULL;
    for (at = at ? at + strlen("call('") : ""; isalpha((unsigned char)*at);
         at++)
        if (len + 1 < size)
            out[len++] = *at;
    out[len] = '\0';
    return len;
}

void dibs__script_place(const char *error, char *out, size_t size)
{
    const char *at = strstr(error, "user_script:");
    const struct dibs__script *const *s = dibs__scripts;
    char command[32];

    out[0] = '\0';
    while (*s && !strstr(error, (*s)->sha))
        s++;
    if (at && *s &&
        command_at(*s, strtol(at + strlen("user_script:"), NULL, 10), command,
                   sizeof command) > 0)
        snprintf(out, size, " (%s in %s)", command, (*s)->name);
}
