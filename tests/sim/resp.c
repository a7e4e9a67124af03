/* SPDX-License-Identifier: MIT
 *
 * resp.c - requests read, replies written: RESP2.
 *
 * A request may come in pieces that end anywhere. It is read again from its
 * beginning when more has come: they are small.
 */
#include "sim/impl.h"

#include <stdlib.h>
#include <string.h>

#define MAX_LINE (64 * 1024)
#define MAX_ARGS (1024 * 1024)
#define MAX_BULK (512LL * 1024 * 1024)

/* ---- requests ---------------------------------------------------------- */

/* The line that begins at *at, less its end; *at goes behind it. False: there
 * is no end yet. */
static bool take_line(const char *p, size_t n, size_t *at, struct sr_str *line)
{
    const char *end = memchr(p + *at, '\n', n - *at);

    if (!end)
        return false;
    line->p = (char *)(uintptr_t)(p + *at);
    line->n = (size_t)(end - line->p);
    *at += line->n + 1;
    if (line->n && line->p[line->n - 1] == '\r')
        line->n--;
    return true;
}

/* Words with spaces between them: what somebody types. */
static long parse_inline(const char *p, size_t n, int *argc,
                         struct sr_str **argv, const char **why)
{
    struct sr_str line;
    size_t at = 0;

    if (!take_line(p, n, &at, &line)) {
        *why = "ERR Protocol error: too big inline request";
        return n > MAX_LINE ? -1 : 0;
    }
    *argv = sr__alloc((line.n / 2 + 1) * sizeof **argv);
    for (size_t i = 0; i < line.n;) {
        size_t from = i;
        while (i < line.n && line.p[i] != ' ' && line.p[i] != '\t')
            i++;
        if (i > from)
            (*argv)[(*argc)++] = (struct sr_str){line.p + from, i - from};
        else
            i++;
    }
    return (long)at;
}

/* "$3\r\nabc\r\n"; as sr__parse, with *at moved on when it gives 1. */
static int parse_bulk(const char *p, size_t n, size_t *at, struct sr_str *out,
                      const char **why)
{
    struct sr_str line;
    int64_t len;

    if (*at >= n)
        return 0;
    if (p[*at] != '$') {
        *why = "ERR Protocol error: expected '$'";
        return -1;
    }
    if (!take_line(p, n, at, &line)) {
        *why = "ERR Protocol error: too big bulk count string";
        return n - *at > MAX_LINE ? -1 : 0;
    }
    if (!sr__int((struct sr_str){line.p + 1, line.n - 1}, &len) || len < 0 ||
        len > MAX_BULK) {
        *why = "ERR Protocol error: invalid bulk length";
        return -1;
    }
    if (n - *at < (size_t)len + 2)
        return 0;
    *out = (struct sr_str){(char *)(uintptr_t)(p + *at), (size_t)len};
    *at += (size_t)len + 2;
    return 1;
}

long sr__parse(const char *p, size_t n, int *argc, struct sr_str **argv,
               const char **why)
{
    struct sr_str line;
    size_t at = 0;
    int64_t count;

    *argc = 0;
    *argv = NULL;
    if (n == 0)
        return 0;
    if (p[0] != '*')
        return parse_inline(p, n, argc, argv, why);
    if (!take_line(p, n, &at, &line)) {
        *why = "ERR Protocol error: too big mbulk count string";
        return n > MAX_LINE ? -1 : 0;
    }
    if (!sr__int((struct sr_str){line.p + 1, line.n - 1}, &count) ||
        count > MAX_ARGS) {
        *why = "ERR Protocol error: invalid multibulk length";
        return -1;
    }
    for (int64_t i = 0; i < count; i++) {
        if ((*argc & (*argc - 1)) == 0)
            *argv = sr__grow(*argv, (size_t)(2 * *argc + 1) * sizeof **argv);
        int got = parse_bulk(p, n, &at, &(*argv)[*argc], why);
        if (got <= 0) {
            free(*argv);
            *argv = NULL;
            return got;
        }
        (*argc)++;
    }
    return (long)at;
}

/* ---- replies ----------------------------------------------------------- */

void sr__out_bulk(struct sr_buf *out, struct sr_str s)
{
    sr__buf_fmt(out, "$%zu\r\n", s.n);
    sr__buf_add(out, s.p, s.n);
    sr__buf_text(out, "\r\n");
}

void sr__out_command(struct sr_buf *out, int argc, const struct sr_str *argv)
{
    sr__buf_fmt(out, "*%d\r\n", argc);
    for (int i = 0; i < argc; i++)
        sr__out_bulk(out, argv[i]);
}

void sr__reply_status(struct sr_call *k, const char *text)
{
    sr__buf_fmt(k->out, "+%s\r\n", text);
}

void sr__reply_ok(struct sr_call *k)
{
    sr__reply_status(k, "OK");
}

void sr__reply_int(struct sr_call *k, int64_t n)
{
    sr__buf_fmt(k->out, ":%lld\r\n", (long long)n);
}

void sr__reply_str(struct sr_call *k, struct sr_str s)
{
    sr__out_bulk(k->out, s);
}

void sr__reply_text(struct sr_call *k, const char *text)
{
    sr__out_bulk(k->out, sr__view(text));
}

void sr__reply_float(struct sr_call *k, double d)
{
    char text[40];
    size_t n = sr__float_text(d, text);

    sr__out_bulk(k->out, (struct sr_str){text, n});
}

void sr__reply_nil(struct sr_call *k)
{
    sr__buf_text(k->out, "$-1\r\n");
}

void sr__reply_array(struct sr_call *k, size_t n)
{
    sr__buf_fmt(k->out, "*%zu\r\n", n);
}

void sr__reply_nil_array(struct sr_call *k)
{
    sr__buf_text(k->out, "*-1\r\n");
}

/* An error is one line; what else is in it becomes spaces. */
void sr__reply_error(struct sr_call *k, const char *fmt, ...)
{
    size_t from = k->out->n;
    va_list ap;

    sr__buf_text(k->out, "-");
    va_start(ap, fmt);
    sr__buf_vfmt(k->out, fmt, ap);
    va_end(ap);
    while (k->out->n > from && strchr("\r\n", k->out->p[k->out->n - 1]))
        k->out->n--;
    for (size_t i = from; i < k->out->n; i++)
        if (k->out->p[i] == '\r' || k->out->p[i] == '\n')
            k->out->p[i] = ' ';
    sr__buf_text(k->out, "\r\n");
}

void sr__reply_syntax(struct sr_call *k)
{
    sr__reply_error(k, "ERR syntax error");
}

void sr__reply_wrongtype(struct sr_call *k)
{
    sr__reply_error(k, "WRONGTYPE Operation against a key holding the wrong "
                       "kind of value");
}

void sr__reply_arity(struct sr_call *k)
{
    sr__reply_error(k, "ERR wrong number of arguments for '%s' command",
                    k->cmd->name);
}

/* ---- arguments --------------------------------------------------------- */

bool sr__arg_int(struct sr_call *k, int i, int64_t *out)
{
    if (sr__int(k->argv[i], out))
        return true;
    sr__reply_error(k, "ERR value is not an integer or out of range");
    return false;
}

bool sr__arg_range(struct sr_call *k, int i, int64_t low, int64_t high,
                   int64_t *out)
{
    if (sr__int(k->argv[i], out) && *out >= low && *out <= high)
        return true;
    if (low == 0)
        sr__reply_error(k, "ERR value is out of range, must be positive");
    else
        sr__reply_error(k, "ERR value is not an integer or out of range");
    return false;
}

bool sr__arg_float(struct sr_call *k, int i, double *out)
{
    if (sr__float(k->argv[i], out))
        return true;
    sr__reply_error(k, "ERR value is not a valid float");
    return false;
}
