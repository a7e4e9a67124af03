/* SPDX-License-Identifier: MIT
 *
 * url.c - parses the URL of a server, sentinels or a cluster.
 *
 * A mistake in a URL must not select a wrong server: two programs that use
 * different servers do not exclude each other. So the parser is strict: it
 * accepts only the forms in url.h.
 *
 * Thread  any; there is no shared state.
 *
 * How     The text is checked once for its length and for invalid bytes. The
 *         scheme selects a row of `schemes`, whose function splits the rest
 * into pieces at the first delimiter of each kind. A piece is copied only when
 * its meaning is known. A new scheme is a new row; so is a new query parameter,
 * in `params`.
 *
 * Trouble The URL is built in struct parser and returned complete, or cleared.
 *         A password is decoded directly into the URL, where dibs__url_clear
 *         wipes it, so no copy remains after an error. Error texts are
 *         constants, without parts of the URL.
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

/* A range of the text; it does not own the bytes. */
struct piece {
    const char *at;
    size_t len;
};

static struct piece piece_of(const char *from, const char *to)
{
    return (struct piece){from, (size_t)(to - from)};
}

struct scheme;

/* State of the parser. */
struct parser {
    const struct scheme *scheme;
    struct dibs__url u;
    unsigned seen; /* a bit for each query parameter found */
    const char *why;
};

static dibs_err refuse_url(struct parser *r, const char *why)
{
    r->why = why;
    return DIBS_ERR_INVALID;
}

/* Splits p at the first c: *head is the part before it, *p the part after it.
 * Returns false if there is no c; then nothing changes. */
static bool cut_at(struct piece *p, char c, struct piece *head)
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

/* Copies p with %XX decoded. On failure *out may be partly filled; it is a
 * field of the URL, which the caller clears. */
static dibs_err decode_piece(struct parser *r, struct piece p, char **out)
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
            return refuse_url(r, "a % is followed by two hex digits");
        int high = hex_value(p.at[i + 1]);
        int low = hex_value(p.at[i + 2]);
        if (high < 0 || low < 0 || (high == 0 && low == 0))
            return refuse_url(r, "a % is followed by two hex digits, not 00");
        *to++ = (char)(high << 4 | low);
        i += 2;
    }
    return DIBS_OK;
}

/* Reads a plain decimal number from 0 to INT_MAX. */
static bool read_number(struct piece p, int *out)
{
    int n = 0;

    for (size_t i = 0; i < p.len; i++) {
        if (p.at[i] < '0' || p.at[i] > '9')
            return false;
        int digit = p.at[i] - '0';
        if (n > (INT_MAX - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    *out = n;
    return p.len > 0;
}

static dibs_err read_db(struct parser *r, struct piece p)
{
    return read_number(p, &r->u.db)
               ? DIBS_OK
               : refuse_url(r, "the database must be a number");
}

/* ---- login and hosts ---------------------------------------------------- */

/* user[:password]. All after the first colon is the password. One of the two is
 * required: a bare "@" probably comes from an empty variable. */
static dibs_err read_login(struct parser *r, struct piece p)
{
    struct piece user = p;
    bool has_password = cut_at(&p, ':', &user);
    dibs_err err = DIBS_OK;

    if (user.len == 0 && (!has_password || p.len == 0))
        return refuse_url(r, "there is an @, but neither user nor password");
    if (user.len > 0)
        err = decode_piece(r, user, &r->u.user);
    if (err == DIBS_OK && has_password)
        err = decode_piece(r, p, &r->u.password);
    return err;
}

/* Checks the characters of a host name or IPv4 address; the resolver checks the
 * rest. */
static bool is_name(struct piece p)
{
    for (size_t i = 0; i < p.len; i++) {
        char c = p.at[i];
        bool valid = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
        if (!valid)
            return false;
    }
    return p.len > 0 && p.len <= DIBS__URL_HOST_MAX;
}

static bool is_port(int port)
{
    return port >= 1 && port <= 65535;
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
static dibs_err read_address(struct parser *r, struct piece p, int port,
                             struct dibs__url_host *out)
{
    struct piece host = p;
    struct piece rest = {NULL, 0};
    bool bracket = p.len > 0 && p.at[0] == '[';

    if (bracket) {
        rest = piece_of(p.at + 1, p.at + p.len);
        if (!cut_at(&rest, ']', &host) || !is_ipv6(host))
            return refuse_url(r, "brackets must contain an IPv6 address");
        if (rest.len > 0 && rest.at[0] != ':')
            return refuse_url(r,
                              "only a colon and a port may follow the bracket");
    } else {
        const char *colon = p.len > 0 ? memchr(p.at, ':', p.len) : NULL;
        if (colon) {
            host = piece_of(p.at, colon);
            rest = piece_of(colon, p.at + p.len);
        }
        if (!is_name(host))
            return refuse_url(
                r, "a host is missing or not a valid name or address");
    }

    out->port = port;
    if (rest.len > 0) {
        rest = piece_of(rest.at + 1, rest.at + rest.len);
        if (!read_number(rest, &out->port) || !is_port(out->port))
            return refuse_url(r, "a port is a number from 1 to 65535");
    }
    out->name = dibs__strndup(host.at, host.len);
    return out->name ? DIBS_OK : DIBS_ERR_NOMEM;
}

static dibs_err read_one_address(struct parser *r, struct piece p)
{
    struct dibs__url_host only = {NULL, 0};

    if (p.len > 0 && memchr(p.at, ',', p.len))
        return refuse_url(r, "a list of hosts needs a sentinel or cluster URL");
    dibs_err err = read_address(r, p, DIBS__URL_PORT, &only);
    r->u.host = only.name;
    r->u.port = only.port;
    return err;
}

/* host[:port],host[:port],... to the end of p. */
static dibs_err read_list(struct parser *r, struct piece p, int port)
{
    size_t count = 1;

    for (size_t i = 0; i < p.len; i++)
        count += p.at[i] == ',';
    if (count > DIBS__URL_HOSTS_MAX)
        return refuse_url(r, "there are more than 64 hosts");
    r->u.hosts = dibs__calloc(count, sizeof *r->u.hosts);
    if (!r->u.hosts)
        return DIBS_ERR_NOMEM;
    r->u.host_count = count;
    for (size_t i = 0; i < count; i++) {
        struct piece one = p;
        if (i + 1 < count)
            cut_at(&p, ',', &one);
        dibs_err err = read_address(r, one, port, &r->u.hosts[i]);
        if (err != DIBS_OK)
            return err;
    }
    return DIBS_OK;
}

/* ---- query --------------------------------------------------------------- */

enum { PARAMS_NONE = 0, PARAMS_DB = 1, PARAMS_SENTINEL = 2, PARAMS_TLS = 4 };

#define FIELD(name) offsetof(struct dibs__url, name)

/* The query parameters, and the field of the URL that each sets. */
static const struct param {
    const char *name;
    int group;
    size_t field; /* a string but for the first two */
} params[] = {
    {"db", PARAMS_DB, FIELD(db)},                  /* a number */
    {"insecure", PARAMS_TLS, FIELD(tls.insecure)}, /* a flag */
    {"ca", PARAMS_TLS, FIELD(tls.ca)},
    {"cert", PARAMS_TLS, FIELD(tls.cert)},
    {"key", PARAMS_TLS, FIELD(tls.key)},
    {"sni", PARAMS_TLS, FIELD(tls.sni)},
    {"sentinel_user", PARAMS_SENTINEL, FIELD(sentinel_user)},
    {"sentinel_password", PARAMS_SENTINEL, FIELD(sentinel_password)},
};

static dibs_err read_value(struct parser *r, const struct param *w,
                           struct piece value)
{
    if (w->field == FIELD(db))
        return read_db(r, value);
    if (value.len == 0)
        return refuse_url(r, "a query parameter has no value");
    if (w->field == FIELD(tls.insecure)) {
        r->u.tls.insecure = true;
        return value.len == 1 && value.at[0] == '1'
                   ? DIBS_OK
                   : refuse_url(r, "insecure must be 1");
    }
    return decode_piece(r, value, (char **)((char *)&r->u + w->field));
}

/* name=value */
static dibs_err read_param(struct parser *r, struct piece p, int groups)
{
    struct piece key;

    if (!cut_at(&p, '=', &key))
        return refuse_url(r, "the query must be name=value&name=value");
    for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
        const struct param *w = &params[i];
        if (strlen(w->name) != key.len || memcmp(w->name, key.at, key.len) != 0)
            continue;
        if (!(w->group & groups))
            return refuse_url(
                r, "this scheme does not take a parameter of the query");
        if (r->seen & 1u << i)
            return refuse_url(r, "the query has a parameter twice");
        r->seen |= 1u << i;
        return read_value(r, w, p);
    }
    return refuse_url(r, "the query has a parameter that dibs does not know");
}

static dibs_err read_query(struct parser *r, struct piece p, int groups)
{
    struct piece pair;
    dibs_err err = DIBS_OK;

    if (groups == PARAMS_NONE)
        return refuse_url(r, "this scheme has no query");
    while (err == DIBS_OK && cut_at(&p, '&', &pair))
        err = read_param(r, pair, groups);
    if (err == DIBS_OK)
        err = read_param(r, p, groups);
    if (err == DIBS_OK && r->u.sentinel_user && !r->u.sentinel_password)
        err = refuse_url(r, "sentinel_user needs a sentinel_password");
    if (err == DIBS_OK && r->u.tls.key && !r->u.tls.cert)
        err = refuse_url(r, "key needs a cert");
    return err;
}

/* ---- the schemes -------------------------------------------------------- */

struct scheme {
    const char *prefix;
    dibs_err (*read)(struct parser *r, struct piece p);
    enum dibs__url_mode mode;
    int params; /* PARAMS_ groups that it accepts */
};

/* The part between hosts and query, with its slash: a database, a service or
 * nothing. A single slash is ignored, since many programs append one. */
static dibs_err read_path(struct parser *r, struct piece p)
{
    struct piece rest = {p.at + 1, p.len > 0 ? p.len - 1 : 0};

    switch (r->scheme->mode) {
    case URL_SINGLE:
        return rest.len > 0 ? read_db(r, rest) : DIBS_OK;
    case URL_SENTINEL:
        if (rest.len == 0 || memchr(rest.at, '/', rest.len))
            return refuse_url(r, "the sentinels must be followed by /service");
        return decode_piece(r, rest, &r->u.service);
    case URL_CLUSTER:
        break;
    }
    if (rest.len > 0 && (read_db(r, rest) != DIBS_OK || r->u.db != 0))
        return refuse_url(r, "a cluster has database 0 only");
    return DIBS_OK;
}

/* [user[:password]@]hosts[/tail][?query] */
static dibs_err read_hosts(struct parser *r, struct piece p)
{
    size_t authority = strcspn(p.at, "/?#");
    struct piece address = {p.at, authority};
    struct piece tail = piece_of(p.at + authority, p.at + p.len);
    struct piece query = tail;
    struct piece login;
    dibs_err err = DIBS_OK;

    if (cut_at(&address, '@', &login))
        err = read_login(r, login);
    if (err == DIBS_OK && cut_at(&query, '?', &tail))
        err = read_query(r, query, r->scheme->params);
    if (err == DIBS_OK)
        err = read_path(r, tail);
    if (err != DIBS_OK)
        return err;
    if (r->scheme->mode == URL_SINGLE)
        return read_one_address(r, address);
    return read_list(r, address,
                     r->scheme->mode == URL_SENTINEL ? DIBS__URL_SENTINEL_PORT
                                                     : DIBS__URL_PORT);
}

/* [user[:password]@]/path[?db=N]. The path begins at the first slash; only a
 * login may precede it, so "unix://tmp/x" is refused. */
static dibs_err read_unix(struct parser *r, struct piece p)
{
    struct piece before = {p.at, strcspn(p.at, "/?#")};
    struct piece path = piece_of(before.at + before.len, p.at + p.len);
    struct piece query = path;
    struct piece login;
    dibs_err err = DIBS_OK;

    r->u.unix_socket = true;
    if (before.len > 0) {
        if (!cut_at(&before, '@', &login) || before.len > 0)
            return refuse_url(r, "the path of a socket begins with a slash");
        err = read_login(r, login);
    }
    if (err == DIBS_OK && cut_at(&query, '?', &path))
        err = read_query(r, query, r->scheme->params);
    if (err == DIBS_OK && (path.len == 0 || path.at[0] != '/'))
        err = refuse_url(r, "the path of a socket begins with a slash");
    if (err == DIBS_OK)
        err = decode_piece(r, path, &r->u.path);
    if (err != DIBS_OK)
        return err;

    size_t len = strlen(r->u.path);
    if (r->u.path[len - 1] == '/')
        return refuse_url(r, "the path of a socket is a folder");
    return len > PATH_LIMIT ? refuse_url(r, "the path of a socket is too long")
                            : DIBS_OK;
}

static const struct scheme schemes[] = {
    {"redis://", read_hosts, URL_SINGLE, PARAMS_NONE},
    {"rediss://", read_hosts, URL_SINGLE, PARAMS_TLS},
    {"redis-sentinel://", read_hosts, URL_SENTINEL,
     PARAMS_DB | PARAMS_SENTINEL},
    {"rediss-sentinel://", read_hosts, URL_SENTINEL,
     PARAMS_DB | PARAMS_SENTINEL | PARAMS_TLS},
    {"redis-cluster://", read_hosts, URL_CLUSTER, PARAMS_NONE},
    {"rediss-cluster://", read_hosts, URL_CLUSTER, PARAMS_TLS},
    {"unix://", read_unix, URL_SINGLE, PARAMS_DB},
};

/* Blanks and control characters indicate an untrimmed line or a binary file. A
 * fragment (#) has no meaning here. */
static bool is_clean(struct piece p)
{
    for (size_t i = 0; i < p.len; i++) {
        unsigned char c = (unsigned char)p.at[i];
        if (c <= ' ' || c == 0x7f || c == '#')
            return false;
    }
    return true;
}

/* Returns the length of the scheme in p if that is `prefix`, else 0. "valkey"
 * may stand for "redis". */
static size_t scheme_length(struct piece p, const char *prefix)
{
    static const char redis[] = "redis", valkey[] = "valkey";
    size_t len = strlen(prefix), redis_len = sizeof redis - 1;

    if (p.len >= len && memcmp(p.at, prefix, len) == 0)
        return len;
    const char *rest = prefix + redis_len;
    size_t rest_len = len - redis_len, valkey_len = sizeof valkey - 1;
    if (strncmp(prefix, redis, redis_len) != 0 ||
        p.len < valkey_len + rest_len ||
        memcmp(p.at, valkey, valkey_len) != 0 ||
        memcmp(p.at + valkey_len, rest, rest_len) != 0)
        return 0;
    return valkey_len + rest_len;
}

static dibs_err parse_url(struct parser *r, struct piece p)
{
    if (p.len > DIBS__URL_MAX)
        return refuse_url(r, "it is longer than 4096 bytes");
    if (!is_clean(p))
        return refuse_url(r,
                          "it has a blank, a control character or a # in it");
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        size_t len = scheme_length(p, schemes[i].prefix);
        if (len == 0)
            continue;
        r->scheme = &schemes[i];
        r->u.mode = schemes[i].mode;
        r->u.tls.on = (schemes[i].params & PARAMS_TLS) != 0;
        return schemes[i].read(r, piece_of(p.at + len, p.at + p.len));
    }
    return refuse_url(r, "it begins with no scheme that dibs knows");
}

dibs_err dibs__url_parse(const char *text, struct dibs__url *out,
                         const char **why)
{
    assert(text && out);

    struct parser r = {.why = ""};
    dibs_err err = parse_url(&r, (struct piece){text, strlen(text)});
    if (err == DIBS_OK)
        *out = r.u;
    else
        dibs__url_clear(&r.u);
    if (err == DIBS_ERR_INVALID && why)
        *why = r.why;
    return err;
}

/* ---- one server of a list ----------------------------------------------- */

static bool copy_tls(const struct dibs__url_tls *from, struct dibs__url_tls *to)
{
    to->on = from->on;
    to->insecure = from->insecure;
    return dibs__copy_text(from->ca, &to->ca) &&
           dibs__copy_text(from->cert, &to->cert) &&
           dibs__copy_text(from->key, &to->key) &&
           dibs__copy_text(from->sni, &to->sni);
}

/* A single server's URL, all but login and db. */
static dibs_err make_single(const struct dibs__url *from, const char *name,
                            int port, struct dibs__url *u)
{
    struct piece p = {name, strlen(name)};

    if ((!is_name(p) && !is_ipv6(p)) || !is_port(port))
        return DIBS_ERR_INVALID;
    u->mode = URL_SINGLE;
    u->port = port;
    return dibs__copy_text(name, &u->host) && copy_tls(&from->tls, &u->tls)
               ? DIBS_OK
               : DIBS_ERR_NOMEM;
}

dibs_err dibs__url_for_server(const struct dibs__url *from, const char *name,
                              int port, struct dibs__url *out)
{
    struct dibs__url u = {0};
    dibs_err err = make_single(from, name, port, &u);

    u.db = from->db;
    if (err == DIBS_OK && (!dibs__copy_text(from->user, &u.user) ||
                           !dibs__copy_text(from->password, &u.password)))
        err = DIBS_ERR_NOMEM;
    if (err == DIBS_OK)
        *out = u;
    else
        dibs__url_clear(&u);
    return err;
}

dibs_err dibs__url_for_sentinel(const struct dibs__url *from, const char *name,
                                int port, struct dibs__url *out)
{
    struct dibs__url u = {0};
    dibs_err err = make_single(from, name, port, &u);

    if (err == DIBS_OK &&
        (!dibs__copy_text(from->sentinel_user, &u.user) ||
         !dibs__copy_text(from->sentinel_password, &u.password)))
        err = DIBS_ERR_NOMEM;
    if (err == DIBS_OK)
        *out = u;
    else
        dibs__url_clear(&u);
    return err;
}

/* ---- freeing ------------------------------------------------------------ */

/* Overwrites s, which the compiler must not optimize away, and frees it. */
static void free_secret(char *s)
{
    volatile char *p = s;

    while (p && *p)
        *p++ = '\0';
    dibs__free(s);
}

void dibs__url_clear(struct dibs__url *u)
{
    assert(u);

    free_secret(u->password);
    free_secret(u->sentinel_password);
    for (size_t i = 0; i < u->host_count; i++)
        dibs__free(u->hosts[i].name);
    dibs__free(u->hosts);
    dibs__free(u->user);
    dibs__free(u->sentinel_user);
    dibs__free(u->service);
    dibs__free(u->path);
    dibs__free(u->host);
    dibs__free(u->tls.ca);
    dibs__free(u->tls.cert);
    dibs__free(u->tls.key);
    dibs__free(u->tls.sni);
    *u = (struct dibs__url){0};
}
