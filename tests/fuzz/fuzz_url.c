/* SPDX-License-Identifier: MIT
 *
 * fuzz_url.c - any bytes as a URL.
 *
 * What is accepted must be usable as it stands by whoever connects; what is
 * refused must leave the result alone. With libFuzzer this file is the whole
 * program; fuzz_main.c turns it into an ordinary test over the seeds.
 */
#include "net/url.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Holds in every build, with NDEBUG too. */
#define MUST(cond)                                                             \
    do {                                                                       \
        if (!(cond)) {                                                         \
            fprintf(stderr, "fuzz_url: not so: %s\n", #cond);                  \
            abort();                                                           \
        }                                                                      \
    } while (0)

/* What url.h promises of a URL that was read. */
static void check(const char *text, const struct dibs__url *u)
{
    MUST(strlen(text) <= DIBS__URL_MAX);
    MUST(u->db >= 0);
    MUST(!u->user || *u->user);
    if (u->unix_socket) {
        MUST(strncmp(text, "unix://", 7) == 0);
        MUST(!u->host && u->port == 0);
        MUST(u->path && u->path[0] == '/' && u->path[1]);
        MUST(strlen(u->path) <= 107);
    } else {
        MUST(strncmp(text, "redis://", 8) == 0);
        MUST(!u->path);
        MUST(u->host && *u->host && strlen(u->host) <= DIBS__URL_HOST_MAX);
        MUST(!strpbrk(u->host, "/@[]%? "));
        MUST(u->port >= 1 && u->port <= 65535);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dibs__url u;
    struct dibs__url before;
    char *text = malloc(size + 1); /* its exact size: an overrun shows */

    if (!text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';

    memset(&u, 0x5a, sizeof u);
    memcpy(&before, &u, sizeof u);
    if (dibs__url_parse(text, &u) == DIBS_OK) {
        check(text, &u);
        dibs__url_clear(&u);
    } else {
        MUST(memcmp(&u, &before, sizeof u) == 0);
    }
    free(text);
    return 0;
}
