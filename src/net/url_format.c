/* SPDX-License-Identifier: MIT
 *
 * url_format.c - a server's address as text, for events and errors.
 *
 * Thread  any.
 *
 * The text contains neither user nor password, so it may be logged.
 */
#include "net/url.h"

#include <stdio.h>
#include <string.h>

/* Append at offset `at`, truncated to size. Return the new offset. */
static size_t add_host(char *buf, size_t size, size_t at, const char *host,
                       int port)
{
    bool no_brackets = !strchr(host, ':'); /* IPv6 addresses have colons */
    int n;

    if (at >= size)
        return at;
    n = no_brackets ? snprintf(buf + at, size - at, "%s:%d", host, port)
                    : snprintf(buf + at, size - at, "[%s]:%d", host, port);
    return n < 0 ? at : at + (size_t)n;
}

static size_t add_text(char *buf, size_t size, size_t at, const char *text)
{
    if (at >= size)
        return at;
    int n = snprintf(buf + at, size - at, "%s", text);
    return n < 0 ? at : at + (size_t)n;
}

static const char *scheme_of(const struct dibs__url *u)
{
    static const char *const plain[] = {"redis://", "redis-sentinel://",
                                        "redis-cluster://"};
    static const char *const tls[] = {"rediss://", "rediss-sentinel://",
                                      "rediss-cluster://"};
    enum dibs__url_mode mode = u->host ? URL_SINGLE : u->mode;

    return u->tls.on ? tls[mode] : plain[mode];
}

void dibs__url_address(const struct dibs__url *u, char *buf, size_t size)
{
    char db[16] = "";
    size_t at;

    if (u->unix_socket) {
        snprintf(buf, size, u->db ? "unix://%s?db=%d" : "unix://%s",
                 u->path ? u->path : "", u->db);
        return;
    }
    at = add_text(buf, size, 0, scheme_of(u));
    if (u->host) {
        at = add_host(buf, size, at, u->host, u->port);
        if (u->db)
            snprintf(db, sizeof db, "/%d", u->db);
        add_text(buf, size, at, db);
        return;
    }
    for (size_t i = 0; i < u->host_count; i++) {
        at = add_text(buf, size, at, i ? "," : "");
        at = add_host(buf, size, at, u->hosts[i].name, u->hosts[i].port);
    }
    if (u->service) {
        at = add_text(buf, size, at, "/");
        add_text(buf, size, at, u->service);
    }
}
