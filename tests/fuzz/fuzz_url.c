/* SPDX-License-Identifier: MIT
 *
 * fuzz_url.c - any bytes as a URL.
 *
 * What is accepted must be usable as it stands by the one that connects; what
 * is refused must leave the result alone. With libFuzzer this file is the whole
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

static void check_host(const char *name, int port)
{
    MUST(name && *name && strlen(name) <= DIBS__URL_HOST_MAX);
    MUST(!strpbrk(name, "/@[]%?,& "));
    MUST(port >= 1 && port <= 65535);
}

static void check_words(const struct dibs__url *u)
{
    const char *const texts[] = {
        u->user,    u->service, u->tls.ca,        u->tls.cert,
        u->tls.key, u->tls.sni, u->sentinel_user, u->sentinel_password};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        MUST(!texts[i] || *texts[i]);
    MUST(u->tls.on || (!u->tls.ca && !u->tls.cert && !u->tls.sni));
    MUST(u->tls.on || !u->tls.insecure);
    MUST(u->tls.cert || !u->tls.key);
    MUST(!u->sentinel_user || u->sentinel_password);
}

static bool starts(const char *text, const char *one, const char *other)
{
    return strncmp(text, one, strlen(one)) == 0 ||
           strncmp(text, other, strlen(other)) == 0;
}

/* What url.h promises of a URL that was read. */
static void check(const char *text, const struct dibs__url *u)
{
    MUST(strlen(text) <= DIBS__URL_MAX);
    MUST(u->db >= 0);
    MUST(starts(text, "rediss", "valkeys") == u->tls.on);
    MUST(!u->service == (u->mode != URL_SENTINEL));
    check_words(u);
    if (u->unix_socket) {
        MUST(strncmp(text, "unix://", 7) == 0);
        MUST(!u->host && u->port == 0);
        MUST(u->path && u->path[0] == '/' && u->path[1]);
        MUST(strlen(u->path) <= 107);
        return;
    }
    MUST(starts(text, "redis", "valkey"));
    MUST(!u->path);
    if (u->mode == URL_SINGLE) {
        MUST(!u->hosts && u->host_count == 0);
        check_host(u->host, u->port);
        return;
    }
    MUST(!u->host && u->port == 0);
    MUST(u->mode == URL_SENTINEL || u->db == 0);
    MUST(u->host_count >= 1 && u->host_count <= DIBS__URL_HOSTS_MAX);
    for (size_t i = 0; i < u->host_count; i++)
        check_host(u->hosts[i].name, u->hosts[i].port);
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
    const char *why = "";
    dibs_err err = dibs__url_parse(text, &u, &why);
    if (err == DIBS_OK) {
        check(text, &u);
        dibs__url_clear(&u);
    } else {
        MUST(err == DIBS_ERR_NOMEM || *why);
        MUST(memcmp(&u, &before, sizeof u) == 0);
    }
    free(text);
    return 0;
}
