/* SPDX-License-Identifier: MIT
 *
 * lock_set.h - the lock that a command is about: one, several (--multi), or one
 * on several servers (--quorum).
 */
#ifndef DIBS_CLI_RUN_LOCK_SET_H
#define DIBS_CLI_RUN_LOCK_SET_H

#include <stdbool.h>
#include <stdio.h>

#include <dibs/dibs.h>

#include "args/args.h"
#include "inspect/owner_info.h"
#include "run/nesting.h"
#include "server/server_select.h"

#define BUNDLE_MAX 64 /* names, or servers */

struct bundle {
    dibs_client *clients[BUNDLE_MAX];
    size_t n_clients;
    dibs_lock *members[BUNDLE_MAX]; /* those that are ours to take */
    size_t n_members;
    dibs_lock *l; /* what is taken: the one member, or all of them */
    bool group;   /* l is more than the one member */
    int fd;       /* readable when a callback waits; -1 none */

    dibs_owner owner; /* who asks for it */

    bool nested;        /* outer dibs runs hold all of it */
    struct outer outer; /* those that hold all or a part of it */
    char owners[BUNDLE_MAX * DIBS_OWNER_MAX / 4]; /* of those, or our own */
};

/* Servers and locks. EXIT_FINE, or another code and an error was printed. */
int bundle_open(struct bundle *b, const struct args *a, const struct target *t,
                const dibs_client_opts *opts);
/* Releases what is held, and waits for that at most ms. What is known of outer
 * runs stays; close it with outer_close. */
void bundle_close(struct bundle *b, int64_t ms);

int bundle_fd(const struct bundle *b);
void bundle_pump(struct bundle *b);

/* The owner as the servers know it: that of the first member that is held. All
 * of them, with blanks between them, are in b->owners. */
void bundle_owner(struct bundle *b, dibs_owner owner,
                  char text[DIBS_OWNER_MAX]);

/* With --slots --strict: does the server have as many as we say, or nobody has
 * said so yet? If not, an error was printed. */
bool bundle_strict(struct bundle *b, const struct args *a);

/* The id of a slot's permit as Redisson shows it, 32 hex digits and a NUL;
 * owner is "uuid:number". "" if it is something else. */
void bundle_permit(const char *owner, char permit[33]);

/* A lock that is held, and who holds it. */
struct holder_seen {
    dibs_lock_info info;
    struct who who;
};

/* Who holds what we wanted, "" if that is not known; and what the server says
 * about that lock. */
void bundle_blocker(struct bundle *b, dibs_owner owner, char *text, size_t size,
                    struct holder_seen *by);
/* -v: what became of each member. Nothing for a single lock. */
void bundle_tell(struct bundle *b, dibs_owner owner);
/* The same as an array of JSON objects. */
void bundle_json(struct bundle *b, dibs_owner owner, FILE *f);
/* Has a member not answered yet? */
bool bundle_asks(struct bundle *b, dibs_owner owner);

#endif
