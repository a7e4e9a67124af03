/* SPDX-License-Identifier: MIT
 *
 * url.h - parses the URL of a server, sentinels or a cluster.
 *
 *   redis://[user[:password]@]host[:port][/db]     redis://:password@host
 *   unix://[user[:password]@]/path[?db=N]
 *   redis-sentinel://[user[:password]@]host[:port],.../service[?QUERY]
 *       db=N  sentinel_user=NAME  sentinel_password=TEXT
 *   redis-cluster://[user[:password]@]host[:port],...
 *
 * rediss://, rediss-sentinel:// and rediss-cluster:// are the same over TLS,
 * and take in their QUERY also
 *
 *       ca=PATH  cert=PATH  key=PATH  sni=NAME  insecure=1
 *
 * valkey may stand for redis in all of these: valkey://, valkeys://,
 * valkey-sentinel://, valkeys-sentinel://, valkey-cluster://,
 * valkeys-cluster://. It means the same.
 *
 * A host is a name, an IPv4 address, or an IPv6 address in brackets. User,
 * password, path, service and query values may contain %XX escapes. These are
 * required for the delimiters / ? # @ % & and, in a user, the colon; in a query
 * value / ? and @ need none.
 */
#ifndef DIBS_NET_URL_H
#define DIBS_NET_URL_H

#include <dibs/dibs.h>
#include <stdbool.h>

#define DIBS__URL_MAX           4096  /* bytes in the whole text */
#define DIBS__URL_HOST_MAX      253   /* bytes in a host, as in DNS */
#define DIBS__URL_HOSTS_MAX     64    /* hosts in a list */
#define DIBS__URL_PORT          6379  /* when none is given */
#define DIBS__URL_SENTINEL_PORT 26379 /* default port of a sentinel */

/* What the hosts of a URL are. */
enum dibs__url_mode {
    URL_SINGLE,   /* the server itself */
    URL_SENTINEL, /* sentinels, which monitor the master named `service` */
    URL_CLUSTER   /* some nodes of a cluster, which list the others */
};

struct dibs__url_host {
    char *name; /* without brackets */
    int port;   /* 1..65535 */
};

/* TLS verification of both sides. The parser does not open the files. */
struct dibs__url_tls {
    bool on;
    bool insecure; /* the server is not verified */
    char *ca;      /* file or folder of CA certificates; NULL: the system's */
    char *cert;    /* client certificate; NULL: none */
    char *key;     /* its private key; NULL: in the file of `cert` */
    char *sni;     /* server name for SNI and verification; NULL: the host */
};

/* A parsed URL. It owns all strings. */
struct dibs__url {
    enum dibs__url_mode mode;
    bool unix_socket; /* `path` is set; otherwise host and port */
    char *host;       /* without brackets; NULL for a socket or a list */
    int port;         /* 1..65535; 0 for a socket or a list */
    char *path;       /* absolute, fits sun_path; NULL for a host */
    int db;           /* 0 when none is given */
    char *user;       /* NULL when none is given, never empty */
    char *password;   /* NULL when none is given; may be empty */

    struct dibs__url_host *hosts; /* of sentinels or a cluster, at least one */
    size_t host_count;            /* 0 for a single server */
    char *service;                /* of sentinels, never empty; else NULL */
    char *sentinel_user;          /* NULL when none is given, never empty */
    char *sentinel_password;      /* NULL when none is given */
    struct dibs__url_tls tls;
};

/* Parses text into *out, which is written only on OK; the caller must free it
 * with dibs__url_clear. On INVALID *why, unless why is NULL, is a constant
 * error text that contains nothing of the URL, since that may contain a
 * password.
 *
 * OK       *out is filled.
 * INVALID  Not one of the forms above.
 * NOMEM    Out of memory.
 */
DIBS_MUST dibs_err dibs__url_parse(const char *text, struct dibs__url *out,
                                   const char **why);

/* Builds the URL of one server or sentinel: login, db and TLS of `from`, and a
 * single host. For a sentinel the login is the sentinels' and the db is 0. name
 * and port come from the reply of a sentinel or node, or from from->hosts. *out
 * is written only on OK.
 *
 * OK       *out is filled.
 * INVALID  name is no host name or address, or port is out of range.
 * NOMEM    Out of memory.
 */
DIBS_MUST dibs_err dibs__url_for_server(const struct dibs__url *from,
                                        const char *name, int port,
                                        struct dibs__url *out);
DIBS_MUST dibs_err dibs__url_for_sentinel(const struct dibs__url *from,
                                          const char *name, int port,
                                          struct dibs__url *out);

/* Formats u as a URL without a login, truncated to size. If u->host is set,
 * only that is shown, not the list of hosts. In url_format.c. */
#define DIBS__ADDRESS_MAX 300
void dibs__url_address(const struct dibs__url *u, char *buf, size_t size);

/* Frees the strings of u, passwords wiped first, and zeroes u. Idempotent;
 * accepts a partially filled u. */
void dibs__url_clear(struct dibs__url *u);

#endif
