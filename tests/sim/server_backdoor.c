/* SPDX-License-Identifier: MIT
 *
 * server_backdoor.c - commands that the checker and the fault injector run on a
 * server, without a network and in no time.
 */
#include "sim/net.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ANSWER_BYTES 262144

static size_t write_request(char *line, char *out)
{
    char *save = NULL, *at = out, *words[64];
    int n = 0;

    for (char *w = strtok_r(line, " ", &save); w && n < 64;
         w = strtok_r(NULL, " ", &save))
        words[n++] = w;
    at += sprintf(at, "*%d\r\n", n);
    for (int i = 0; i < n; i++)
        at += sprintf(at, "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
    return (size_t)(at - out);
}

const char *sim_server_ask(struct sim_server *sv, const char *fmt, ...)
{
    static char line[4096], request[8192], answer[ANSWER_BYTES];
    va_list list;
    size_t to = 0;

    if (sv->down || sv->stopped)
        return NULL;
    va_start(list, fmt);
    vsnprintf(line, sizeof line, fmt, list);
    va_end(list);
    sr_feed(sv->admin, request, write_request(line, request));
    size_t n = sr_take(sv->admin, answer, sizeof answer - 1);
    for (size_t i = 0; i < n; i++)
        if (answer[i] != '\r')
            answer[to++] = answer[i] == '\n'   ? '|'
                           : answer[i] == '\0' ? '?'
                                               : answer[i];
    answer[to] = '\0';
    return answer;
}
