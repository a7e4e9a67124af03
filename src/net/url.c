/* SPDX-License-Identifier: MIT
 *
 * url.c - reads the address of a server.
 *
 * A URL is typed by people and pasted from configuration, and a mistake in it
 * must not lead to a wrong server: two programs that talk to different servers
 * do not exclude each other. So this reader takes the forms url.h lists and
 * nothing that merely resembles them.
 *
 * Thread  Any; nothing is shared.
 *
 * How     The text is checked once for its length and for bytes that no URL
 *         has. The scheme picks a row of a table, and the row's reader cuts
 *         the rest into pieces at the first delimiter of each kind, never
 *         copying before it knows what a piece is. A new scheme is a new row.
 *
 * Trouble Every reader fills a URL of its own, which is handed over whole or
 *         cleared whole. A password is decoded in the place where clearing
 *         wipes it, so no copy stays behind, whatever goes wrong.
 */
#include "net/url.h"

#include "base/mem.h"

#include <arpa/inet.h>
#include <assert.h>
#include <limits.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/un.h>

#define PATH_LIMIT (sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1)

/* Some bytes of the text. The text outlives it. */
struct piece {
    const char *at;
    size_t len;
};

static struct piece piece_of(const char *from, const char *to)
{
    return (struct piece){from, (size_t)(to - from)};
}

/* Cuts p at the first c: what is before it goes into *head, what is behind it
 * stays in *p. Without a c, false and nothing changes. */
static bool cut(struct piece *p, char c, struct piece *head)
{
    const char *at = p->len > 0 ? memchr(p->at, c, p->len) : NULL;

    if (!at)
        return false;
    *head = piece_of(p->at, at);
    *p = piece_of(at + 1, p->at + p->len);
    return true;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Copies p with its %XX resolved. On failure *out may hold the part that was
 * read; it belongs to the URL, which is cleared then. */
static dibs_err decode(struct piece p, char **out)
{
    char *to = *out = dibs__calloc(p.len + 1, 1);

    if (!to)
        return DIBS_ERR_NOMEM;
    for (size_t i = 0; i < p.len; i++) {
        if (p.at[i] != '%') {
            *to++ = p.at[i];
            continue;
        }
        if (p.len - i < 3)
            return DIBS_ERR_INVALID;
        int high = hex_value(p.at[i + 1]);
        int low = hex_value(p.at[i + 2]);
        if (high < 0 || low < 0 || (high == 0 && low == 0))
            return DIBS_ERR_INVALID; /* a NUL would cut the string short */
        *to++ = (char)(high << 4 | low);
        i += 2;
    }
    return DIBS_OK;
}

/* Reads a plain decimal number from 0 to INT_MAX. */
static dibs_err read_number(struct piece p, int *out)
{
    int n = 0;

    if (p.len == 0)
        return DIBS_ERR_INVALID;
    for (size_t i = 0; i < p.len; i++) {
        if (p.at[i] < '0' || p.at[i] > '9')
            return DIBS_ERR_INVALID;
        int digit = p.at[i] - '0';
        if (n > (INT_MAX - digit) / 10)
            return DIBS_ERR_INVALID;
        n = n * 10 + digit;
    }
    *out = n;
    return DIBS_OK;
}

/* user[:password]. Behind the first colon all is password. One of the two
 * must be there: a bare "@" is more likely a variable that came out empty than
 * somebody's wish. */
static dibs_err read_login(struct piece p, struct dibs__url *u)
{
    struct piece user = p;
    bool has_password = cut(&p, ':', &user);
    dibs_err err = DIBS_OK;

    if (user.len == 0 && (!has_password || p.len == 0))
        return DIBS_ERR_INVALID;
    if (user.len > 0)
        err = decode(user, &u->user);
    if (err == DIBS_OK && has_password)
        err = decode(p, &u->password);
    return err;
}

/* A host's name, or an IPv4 address: whether it exists is the resolver's
 * business, here it only must look like one. */
static bool is_name(struct piece p)
{
    for (size_t i = 0; i < p.len; i++) {
        char c = p.at[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
        if (!good)
            return false;
    }
    return p.len > 0 && p.len <= DIBS__URL_HOST_MAX;
}

static bool is_ipv6(struct piece p)
{
    char text[INET6_ADDRSTRLEN] = "";
    struct in6_addr ignored;

    if (p.len == 0 || p.len >= sizeof text)
        return false;
    memcpy(text, p.at, p.len);
    return inet_pton(AF_INET6, text, &ignored) == 1;
}

/* host[:port], to the end of p. */
static dibs_err read_address(struct piece p, struct dibs__url *u)
{
    struct piece host = p;
    struct piece rest = {NULL, 0};
    bool bracket = p.len > 0 && p.at[0] == '[';

    if (bracket) {
        rest = piece_of(p.at + 1, p.at + p.len);
        if (!cut(&rest, ']', &host) || !is_ipv6(host))
            return DIBS_ERR_INVALID;
        if (rest.len > 0 && rest.at[0] != ':')
            return DIBS_ERR_INVALID;
    } else {
        const char *colon = p.len > 0 ? memchr(p.at, ':', p.len) : NULL;
        if (colon) {
            host = piece_of(p.at, colon);
            rest = piece_of(colon, p.at + p.len);
        }
        if (!is_name(host))
            return DIBS_ERR_INVALID;
    }

    u->port = DIBS__URL_PORT;
    if (rest.len > 0) {
        rest = piece_of(rest.at + 1, rest.at + rest.len);
        if (read_number(rest, &u->port) != DIBS_OK || u->port < 1 ||
            u->port > 65535)
            return DIBS_ERR_INVALID;
    }
    u->host = dibs__strndup(host.at, host.len);
    return u->host ? DIBS_OK : DIBS_ERR_NOMEM;
}

/* [user[:password]@]host[:port][/db]. A lone slash at the end is what many
 * programs put behind a host; it says nothing. */
static dibs_err read_redis(struct piece p, struct dibs__url *u)
{
    size_t authority = strcspn(p.at, "/?#");
    struct piece address = {p.at, authority};
    struct piece tail = piece_of(p.at + authority, p.at + p.len);
    struct piece login;

    if (cut(&address, '@', &login)) {
        dibs_err err = read_login(login, u);
        if (err != DIBS_OK)
            return err;
    }
    if (tail.len > 0 && tail.at[0] != '/')
        return DIBS_ERR_INVALID;
    if (tail.len > 1) {
        struct piece db = {tail.at + 1, tail.len - 1};
        if (read_number(db, &u->db) != DIBS_OK)
            return DIBS_ERR_INVALID;
    }
    return read_address(address, u);
}

/* What may stand behind the question mark: db=N, once. */
static dibs_err read_query(struct piece p, struct dibs__url *u)
{
    struct piece key;

    if (!cut(&p, '=', &key) || key.len != 2 || memcmp(key.at, "db", 2) != 0)
        return DIBS_ERR_INVALID;
    return read_number(p, &u->db);
}

/* [user[:password]@]/path[?db=N]. The path begins at the first slash, so what
 * is before it must be a login or nothing: "unix://tmp/x" names no path. */
static dibs_err read_unix(struct piece p, struct dibs__url *u)
{
    struct piece before = {p.at, strcspn(p.at, "/?#")};
    struct piece path = piece_of(before.at + before.len, p.at + p.len);
    struct piece query = path;
    struct piece login;
    dibs_err err = DIBS_OK;

    u->unix_socket = true;
    if (before.len > 0) {
        if (!cut(&before, '@', &login) || before.len > 0)
            return DIBS_ERR_INVALID;
        err = read_login(login, u);
    }
    if (err == DIBS_OK && cut(&query, '?', &path))
        err = read_query(query, u);
    if (err == DIBS_OK && (path.len == 0 || path.at[0] != '/' ||
                           memchr(path.at, '#', path.len) != NULL))
        err = DIBS_ERR_INVALID;
    if (err == DIBS_OK)
        err = decode(path, &u->path);
    if (err != DIBS_OK)
        return err;

    size_t len = strlen(u->path);
    bool folder = u->path[len - 1] == '/';
    return folder || len > PATH_LIMIT ? DIBS_ERR_INVALID : DIBS_OK;
}

static const struct scheme {
    const char *prefix;
    dibs_err (*read)(struct piece p, struct dibs__url *u);
} schemes[] = {
    {"redis://", read_redis},
    {"unix://", read_unix},
};

/* No URL is longer, and none has blanks or control characters in it: those
 * come from a line that was not trimmed or a file that was not text. */
static bool is_clean(struct piece p)
{
    if (p.len > DIBS__URL_MAX)
        return false;
    for (size_t i = 0; i < p.len; i++) {
        unsigned char c = (unsigned char)p.at[i];
        if (c <= ' ' || c == 0x7f)
            return false;
    }
    return true;
}

static dibs_err read_any(struct piece p, struct dibs__url *u)
{
    if (!is_clean(p))
        return DIBS_ERR_INVALID;
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        size_t len = strlen(schemes[i].prefix);
        if (p.len >= len && memcmp(p.at, schemes[i].prefix, len) == 0)
            return schemes[i].read(piece_of(p.at + len, p.at + p.len), u);
    }
    return DIBS_ERR_INVALID;
}

dibs_err dibs__url_parse(const char *text, struct dibs__url *out)
{
    assert(text && out);

    struct dibs__url u = {0};
    dibs_err err = read_any((struct piece){text, strlen(text)}, &u);
    if (err == DIBS_OK)
        *out = u;
    else
        dibs__url_clear(&u);
    return err;
}

/* Overwrites s in a way the compiler may not drop. */
static void wipe(char *s)
{
    volatile char *p = s;

    while (p && *p)
        *p++ = '\0';
}

void dibs__url_clear(struct dibs__url *u)
{
    assert(u);

    wipe(u->password);
    dibs__free(u->password);
    dibs__free(u->user);
    dibs__free(u->path);
    dibs__free(u->host);
    *u = (struct dibs__url){0};
}
