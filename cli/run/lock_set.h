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

#define LOCK_SET_MAX 64 /* names, or servers */

struct lock_set {
    dibs_client *clients[LOCK_SET_MAX];
    size_t n_clients;
    dibs_lock *members[LOCK_SET_MAX]; /* those that are ours to take */
    size_t n_members;
    dibs_lock *l; /* what is taken: the one member, or all of them */
    bool group;   /* l is more than the one member */
    int fd;       /* readable when a callback waits; -1 none */

    dibs_owner owner; /* the owner that acquires it */

    bool nested;          /* outer dibs runs hold all of it */
    struct nesting outer; /* those that hold all or a part of it */
    char owners[LOCK_SET_MAX * DIBS_OWNER_MAX / 4]; /* of those, or our own */
};

/* Servers and locks. EXIT_FINE, or another code and an error was printed. */
int lock_set_open(struct lock_set *b, const struct args *a,
                  const struct target *t, const dibs_client_opts *opts);
/* Releases what is held, and waits for that at most ms. What is known of outer
 * runs stays; close it with nesting_close. */
void lock_set_close(struct lock_set *b, int64_t ms);

int lock_set_fd(const struct lock_set *b);
void lock_set_dispatch(struct lock_set *b);

/* The owner as the servers know it: that of the first member that is held. All
 * of them, with blanks between them, are in b->owners. */
void lock_set_owner(struct lock_set *b, dibs_owner owner,
                    char text[DIBS_OWNER_MAX]);

/* With --slots --strict: returns whether the number of slots on the server is
 * ours, or not set yet. If not, an error was printed. */
bool lock_set_check_slot_count(struct lock_set *b, const struct args *a);

/* The id of a slot's permit as Redisson shows it, 32 hex digits and a NUL;
 * owner is "uuid:number". "" if it is something else. */
void lock_set_permit(const char *owner, char permit[33]);

/* A lock that is held, and who holds it. */
struct holder_seen {
    dibs_lock_info info;
    struct who who;
};

/* A text about the holder of the busy lock, "" if unknown; and the lock as the
 * server has it. */
void lock_set_holder(struct lock_set *b, dibs_owner owner, char *text,
                     size_t size, struct holder_seen *by);
/* -v: logs the result of each member. Nothing for a single lock. */
void lock_set_log(struct lock_set *b, dibs_owner owner);
/* The same as an array of JSON objects. */
void lock_set_json(struct lock_set *b, dibs_owner owner, FILE *f);
/* Returns whether the acquire of a member is still in flight. */
bool lock_set_has_pending(struct lock_set *b, dibs_owner owner);

#endif
