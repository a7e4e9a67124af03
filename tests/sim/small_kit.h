/* SPDX-License-Identifier: MIT
 *
 * small_kit.h - what the tests of the small server share: a clock that moves
 * when a test moves it, and a way to say a line and compare what comes back.
 */
#ifndef DIBS_SIM_SMALL_KIT_H
#define DIBS_SIM_SMALL_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/redis.h"

#define START 1700000000000 /* ms */

static int64_t clock_ms;

static inline int64_t now_us(void *arg)
{
    (void)arg;
    return clock_ms * 1000;
}

static inline struct sr_server *server(int port)
{
    struct sr_config config = {.now_us = now_us, .seed = 7, .port = port};

    return sr_server_new(&config);
}

static inline int set_up(void **state)
{
    (void)state;
    clock_ms = START;
    return 0;
}

/* ---- talking ----------------------------------------------------------- */

/* A line of words as a request. */
static inline size_t request(const char *line, char *out)
{
    char copy[2000], *save = NULL, *at = out;
    int n = 1;

    for (const char *p = line; *p; p++)
        n += *p == ' ';
    at += sprintf(at, "*%d\r\n", n);
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok_r(copy, " ", &save); w;
         w = strtok_r(NULL, " ", &save))
        at += sprintf(at, "$%zu\r\n%s\r\n", strlen(w), w);
    return (size_t)(at - out);
}

static inline void say(struct sr_session *c, const char *line)
{
    char bytes[4000];

    sr_feed(c, bytes, request(line, bytes));
}

/* All that is waiting, line ends as '|'. */
static inline const char *heard(struct sr_session *c)
{
    static char text[8000];
    size_t n = sr_take(c, text, sizeof text - 1), to = 0;

    for (size_t i = 0; i < n; i++)
        if (text[i] != '\r')
            text[to++] = text[i] == '\n' ? '|' : text[i];
    text[to] = '\0';
    return text;
}

#define SAYS(c, line, want)                                                    \
    do {                                                                       \
        say(c, line);                                                          \
        assert_string_equal(heard(c), want);                                   \
    } while (0)

static inline bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

#endif
