/* SPDX-License-Identifier: MIT
 *
 * resp.c - bytes from a socket, and the messages of the Redis protocol (RESP2)
 * in them.
 *
 * Thread  any.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/resp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "support/util.h"

/* ---- bytes ------------------------------------------------------------- */

char *ts_bytes_at(const struct ts_bytes *b)
{
    return b->buf + b->start;
}

size_t ts_bytes_len(const struct ts_bytes *b)
{
    return b->end - b->start;
}

/* Room for n more at the end. */
static char *room(struct ts_bytes *b, size_t n)
{
    if (b->start > 0 && (b->start == b->end || b->end + n > b->cap)) {
        memmove(b->buf, ts_bytes_at(b), ts_bytes_len(b));
        b->end -= b->start;
        b->start = 0;
    }
    if (b->end + n > b->cap) {
        b->cap = (b->end + n) * 2;
        b->buf = realloc(b->buf, b->cap);
        if (!b->buf)
            ts_fatal("out of memory");
    }
    return b->buf + b->end;
}

void ts_bytes_add(struct ts_bytes *b, const char *data, size_t n)
{
    if (n > 0)
        memcpy(room(b, n), data, n);
    b->end += n;
}

bool ts_bytes_read(struct ts_bytes *b, int fd, bool *broken)
{
    const size_t most = 65536;
    ssize_t n = recv(fd, room(b, most), most, MSG_DONTWAIT);

    if (n > 0)
        b->end += (size_t)n;
    else if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    *broken = n < 0;
    return n > 0;
}

/* ---- messages ---------------------------------------------------------- */

/* Behind the line that starts at buf[at]; 0: it has no end yet. */
static size_t line_end(const char *buf, size_t len, size_t at)
{
    const char *nl = at < len ? memchr(buf + at, '\n', len - at) : NULL;

    return nl ? (size_t)(nl - buf) + 1 : 0;
}

/* The number of a line "$5\r\n"; the line is known to be complete. */
static long line_number(const char *line)
{
    return strtol(line + 1, NULL, 10);
}

ssize_t ts_resp_reply(const char *buf, size_t len)
{
    size_t at = 0;

    for (size_t due = 1; due > 0; due--) {
        if (at >= len)
            return 0;
        if (!strchr("+-:$*", buf[at]) || buf[at] == '\0')
            return -1;
        size_t next = line_end(buf, len, at);
        if (next == 0)
            return 0;
        long n = line_number(buf + at);
        if (buf[at] == '$' && n >= 0)
            next += (size_t)n + 2;
        if (buf[at] == '*' && n > 0)
            due += (size_t)n;
        if (next > len)
            return 0;
        at = next;
    }
    return (ssize_t)at;
}

ssize_t ts_resp_request(const char *buf, size_t len)
{
    if (len == 0)
        return 0;
    return buf[0] == '*' ? ts_resp_reply(buf, len)
                         : (ssize_t)line_end(buf, len, 0);
}

/* The words of a line of text. */
static size_t line_words(const char *msg, size_t len, struct ts_word *words,
                         size_t max)
{
    size_t n = 0;

    for (size_t at = 0; at < len && n < max;) {
        size_t end = at;
        while (end < len && !strchr(" \r\n", msg[end]))
            end++;
        if (end > at)
            words[n++] = (struct ts_word){msg + at, end - at};
        at = end + 1;
    }
    return n;
}

size_t ts_resp_words(const char *msg, size_t len, struct ts_word *words,
                     size_t max)
{
    if (len == 0 || msg[0] != '*')
        return line_words(msg, len, words, max);
    long count = line_number(msg);
    size_t n = 0;

    for (size_t at = line_end(msg, len, 0); count-- > 0 && n < max;) {
        size_t next = line_end(msg, len, at);
        if (msg[at] == '$' && line_number(msg + at) >= 0) {
            words[n].len = (size_t)line_number(msg + at);
            words[n].p = msg + next;
            next += words[n].len + 2;
        } else if (msg[at] == ':') {
            words[n] = (struct ts_word){msg + at + 1, next - at - 3};
        } else {
            break;
        }
        n++;
        at = next;
    }
    return n;
}

long ts_resp_replies(const char *msg, size_t len, bool *subscribed)
{
    static const char *const commands[] = {"SUBSCRIBE",    "PSUBSCRIBE",
                                           "SSUBSCRIBE",   "UNSUBSCRIBE",
                                           "PUNSUBSCRIBE", "SUNSUBSCRIBE"};
    struct ts_word w[2];
    size_t n = ts_resp_words(msg, len, w, 2);

    for (size_t i = 0; n > 0 && i < sizeof commands / sizeof *commands; i++) {
        const char *name = commands[i];
        if (w[0].len != strlen(name) ||
            strncasecmp(w[0].p, name, w[0].len) != 0)
            continue;
        *subscribed = true;
        if (n == 1)
            return -1;
        return msg[0] == '*' ? strtol(msg + 1, NULL, 10) - 1 : 1;
    }
    return 1;
}

/* ---- numbers of calls -------------------------------------------------- */

void ts_resp_number(const char *msg, size_t len, char number[TS_NUMBER])
{
    static const char end[] = "$4\r\nNNNN\r\n";
    const size_t n = sizeof end - 1;
    struct ts_word w[1];

    number[0] = '\0';
    if (len < n || ts_resp_words(msg, len, w, 1) != 1 || w[0].len < 4 ||
        strncasecmp(w[0].p, "EVAL", 4) != 0 ||
        memcmp(msg + len - n, end, 4) != 0)
        return;
    memcpy(number, msg + len - n + 4, 4);
    number[4] = '\0';
    if (strspn(number, "0123456789") != 4)
        number[0] = '\0';
}

void ts_bytes_add_answer(struct ts_bytes *b, const char *number,
                         const char *reply, size_t len)
{
    ssize_t whole = number[0] && len > 0 ? ts_resp_reply(reply, len) : 0;
    char kind = whole > 0 ? reply[0] : '-';
    bool nil = kind == '$' && line_number(reply) == -1;

    if (kind == '$' && line_number(reply) < -1)
        kind = '-'; /* no reply at all: as it is */
    const char *rest = nil                          ? reply + whole
                       : kind == '$'                ? strchr(reply, '\n') + 1
                       : kind == ':' || kind == '+' ? reply + 1
                                                    : reply;
    int more = (int)(reply + whole - rest) - 2; /* less the end of the line */
    char text[64] = "";

    if (nil)
        snprintf(text, sizeof text, "$4\r\n%s\r\n", number);
    else if (kind == '*')
        snprintf(text, sizeof text, "*2\r\n$4\r\n%s\r\n", number);
    else if (kind != '-')
        snprintf(text, sizeof text, "$%d\r\n%s%c", more + TS_NUMBER, number,
                 kind == ':' ? ' ' : '=');
    ts_bytes_add(b, text, strlen(text));
    ts_bytes_add(b, rest, (size_t)(reply + len - rest));
}
