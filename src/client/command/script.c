/* SPDX-License-Identifier: MIT
 *
 * script.c - script calls: EVALSHA, or EVAL if the server does not have the
 * script. EVAL also adds it to the server's script cache, so there is no SCRIPT
 * LOAD.
 *
 * Thread  any.
 *
 * How     The last argument of a script call is a request number, different for
 *         each attempt, and the reply begins with that number (format:
 *         lua/lib/around.lua). A reply without it, or with another number,
 *         belongs to another request.
 */
#include "client/command/script.h"

#include "client/command/error_class.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dibs__script_head(struct dibs__buf *out, const struct dibs__script *script,
                       bool whole, size_t keys, size_t args)
{
    dibs__buf_array(out, 3 + keys + args + 1);
    if (whole) {
        dibs__buf_arg_text(out, "EVAL");
        dibs__buf_arg(out, script->src, script->len);
    } else {
        dibs__buf_arg_text(out, "EVALSHA");
        dibs__buf_arg(out, script->sha, 40);
    }
    dibs__buf_arg_num(out, (int64_t)keys);
}

/* Returns the rest of the text after the request number; NULL if the text does
 * not begin with `number`. */
static const char *skip_number(const struct dibs__reply *r, unsigned number)
{
    unsigned found = 0;
    const char *at = r->text;

    for (; isdigit((unsigned char)*at) && found <= number; at++)
        found = found * 10 + (unsigned)(*at - '0');
    return found == number ? at : NULL;
}

static bool parse_number(const char *text, const char *end, int64_t *out)
{
    char *stop;

    if (*text != '-' && !isdigit((unsigned char)*text))
        return false;
    *out = dibs__reply_clamp(strtoll(text, &stop, 10));
    return stop == end;
}

const struct dibs__reply *dibs__script_result(const struct dibs__reply *reply,
                                              unsigned number,
                                              struct dibs__reply *storage)
{
    const struct dibs__reply *head = dibs__reply_text(reply, 0);

    if (reply->type == REPLY_ERROR)
        return reply;
    if (head && reply->len == 2) {
        const char *rest = skip_number(head, number);
        bool matches = rest == head->text + head->len &&
                       reply->elem[1]->type == REPLY_ARRAY;
        return matches ? reply->elem[1] : NULL;
    }
    const char *at =
        reply->type == REPLY_TEXT ? skip_number(reply, number) : NULL;
    if (!at)
        return NULL;
    const char *end = reply->text + reply->len;
    *storage = (struct dibs__reply){.type = REPLY_NIL};
    if (at == end)
        return storage;
    if (*at == ' ') {
        storage->type = REPLY_NUM;
        return parse_number(at + 1, end, &storage->num) ? storage : NULL;
    }
    storage->type = REPLY_TEXT;
    storage->text = at + 1;
    storage->len = (size_t)(end - storage->text);
    return *at == '=' ? storage : NULL;
}

/* Copies to `out` the name of the Redis command in the first call() at or after
 * this line of the script. Returns its length, 0 if there is none. */
static size_t find_command(const struct dibs__script *script, long line,
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

/* Removes "script: DIGEST, on @user_script:7." which does not help a user. */
static void strip_script_location(char *text)
{
    char *at = strstr(text, " script: "), *end;

    if (at && (end = strstr(at, "on @user_script:")) != NULL) {
        end += strlen("on @user_script:");
        end += strspn(end, "0123456789.");
        memmove(at, end, strlen(end) + 1);
        size_t n = strlen(text);
        if (n > 0 && text[n - 1] == '.')
            text[n - 1] = '\0';
    }
}

/* Returns the error text for a server of another kind than the URL's scheme;
 * NULL if the error does not indicate that. */
static const char *url_mismatch_text(const char *text,
                                     const struct dibs__url *url)
{
    if (strncmp(text, "MOVED ", 6) == 0)
        return url->tls.on ? "this is a node of a cluster: the URL begins with "
                             "rediss-cluster://"
                           : "this is a node of a cluster: the URL begins with "
                             "redis-cluster://";
    if (strncmp(text, "ERR unknown command", 19) == 0 &&
        strstr(text, "EVALSHA"))
        return url->tls.on ? "the server has no scripts; for a sentinel the "
                             "URL is rediss-sentinel://HOST:PORT/SERVICE"
                           : "the server has no scripts; for a sentinel the "
                             "URL is redis-sentinel://HOST:PORT/SERVICE";
    return NULL;
}

void dibs__script_error_text(const char *error, const struct dibs__url *single,
                             char out[DIBS__REASON_MAX])
{
    const char *at = strstr(error, "user_script:");
    const char *text = dibs__error_strip(error);
    const char *replacement = single ? url_mismatch_text(text, single) : NULL;
    const struct dibs__script *const *s = dibs__scripts;
    char command[32];

    if (strncmp(text, "WRONGTYPE", 9) == 0)
        replacement = dibs_strerror(DIBS_ERR_WRONGTYPE);
    snprintf(out, DIBS__REASON_MAX, "%s", replacement ? replacement : text);
    strip_script_location(out);
    while (*s && !strstr(error, (*s)->sha))
        s++;
    size_t n = strlen(out);
    if (!replacement && at && *s &&
        find_command(*s, strtol(at + strlen("user_script:"), NULL, 10), command,
                     sizeof command) > 0 &&
        !strstr(out, command))
        snprintf(out + n, DIBS__REASON_MAX - n, " (%s)", command);
}
