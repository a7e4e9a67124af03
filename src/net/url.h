/* SPDX-License-Identifier: MIT
 *
 * url.h - where the server is and who we are to it, from one line of text.
 *
 *   redis://[user[:password]@]host[:port][/db]     redis://:password@host
 *   unix://[user[:password]@]/path[?db=N]
 *
 * A host is a name, an IPv4 address, or an IPv6 address in brackets. User,
 * password and path may hold %XX escapes, and must where a character has a
 * meaning here: / ? # @ % and, in a user, the colon.
 */
#ifndef DIBS_NET_URL_H
#define DIBS_NET_URL_H

#include <dibs/dibs.h>
#include <stdbool.h>

#define DIBS__URL_MAX      4096 /* bytes in the whole text */
#define DIBS__URL_HOST_MAX 253  /* bytes in a host, as in DNS */
#define DIBS__URL_PORT     6379 /* when none is given */

/* What a URL says. All strings belong to it. */
struct dibs__url {
    bool unix_socket; /* path counts; otherwise host and port */
    char *host;       /* without brackets; NULL for a socket */
    int port;         /* 1..65535; 0 for a socket */
    char *path;       /* absolute, fits sun_path; NULL for a host */
    int db;           /* 0 when none is given */
    char *user;       /* NULL when none is given, never empty */
    char *password;   /* NULL when none is given; may be empty */
};

/* Reads text into *out, which is written only on OK. Give what it then holds
 * back with dibs__url_clear.
 *
 * OK       *out is filled.
 * INVALID  Not one of the forms above.
 * NOMEM    Out of memory.
 */
DIBS_MUST dibs_err dibs__url_parse(const char *text, struct dibs__url *out);

/* Frees what u holds, the password wiped first, and leaves u empty. Accepts
 * an empty and a half-built one. */
void dibs__url_clear(struct dibs__url *u);

#endif
