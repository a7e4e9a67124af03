/* SPDX-License-Identifier: MIT
 *
 * url.h - where the servers are and who we are to them, from one line of text.
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
 * password, path, service and what stands behind an equals sign may hold %XX
 * escapes, and must where a character has a meaning here: / ? # @ % & and, in a
 * user, the colon. (Behind an equals sign / ? and @ have none.)
 */
#ifndef DIBS_NET_URL_H
#define DIBS_NET_URL_H

#include <dibs/dibs.h>
#include <stdbool.h>

#define DIBS__URL_MAX           4096  /* bytes in the whole text */
#define DIBS__URL_HOST_MAX      253   /* bytes in a host, as in DNS */
#define DIBS__URL_HOSTS_MAX     64    /* hosts in a list */
#define DIBS__URL_PORT          6379  /* when none is given */
#define DIBS__URL_SENTINEL_PORT 26379 /* the same, of a sentinel */

/* What the hosts of a URL are. */
enum dibs__url_mode {
    URL_SINGLE,   /* the server */
    URL_SENTINEL, /* sentinels, who know the server called service */
    URL_CLUSTER   /* some of the nodes of a cluster, who know the others */
};

struct dibs__url_host {
    char *name; /* without brackets */
    int port;   /* 1..65535 */
};

/* How the server is known, and we to it. Paths are not looked at here. */
struct dibs__url_tls {
    bool on;
    bool insecure; /* nobody checks who answers */
    char *ca;      /* file or folder of trusted certificates; NULL: system's */
    char *cert;    /* our certificate; NULL: none */
    char *key;     /* its key; NULL: in the file of the certificate */
    char *sni;     /* name of the server; NULL: the host */
};

/* What a URL says. All strings belong to it. */
struct dibs__url {
    enum dibs__url_mode mode;
    bool unix_socket; /* path counts; otherwise host and port */
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

/* Reads text into *out, which is written only on OK. Give what it then holds
 * back with dibs__url_clear. why may be NULL; otherwise *why is, on INVALID, a
 * constant text for people that says what is wrong, and shows nothing of the
 * URL: a password may be in it.
 *
 * OK       *out is filled.
 * INVALID  Not one of the forms above.
 * NOMEM    Out of memory.
 */
DIBS_MUST dibs_err dibs__url_parse(const char *text, struct dibs__url *out,
                                   const char **why);

/* The URL of one server of a list: login, db and TLS as in `from`, a single
 * host. For a sentinel the login is the sentinels' and the db is 0. Name and
 * port are what a sentinel or a node said, or one of from->hosts. *out is
 * written only on OK.
 *
 * OK       *out is filled.
 * INVALID  Not a host's name or address, or not a port.
 * NOMEM    Out of memory.
 */
DIBS_MUST dibs_err dibs__url_is_server(const struct dibs__url *from,
                                       const char *name, int port,
                                       struct dibs__url *out);
DIBS_MUST dibs_err dibs__url_is_sentinel(const struct dibs__url *from,
                                         const char *name, int port,
                                         struct dibs__url *out);

/* Where it is, as a URL without a login; cut if need be. A server of a list is
 * told by its own address, the list only while nobody knows that. In
 * url_format.c. */
#define DIBS__ADDRESS_MAX 300
void dibs__url_address(const struct dibs__url *u, char *buf, size_t size);

/* Frees what u holds, passwords wiped first, and leaves u empty. Accepts
 * an empty and a half-built one. */
void dibs__url_clear(struct dibs__url *u);

#endif
