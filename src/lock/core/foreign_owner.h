/* SPDX-License-Identifier: MIT
 *
 * foreign_owner.h - owners of other clients, whose holds this client has
 * adopted.
 */
#ifndef DIBS_LOCK_CORE_FOREIGN_OWNER_H
#define DIBS_LOCK_CORE_FOREIGN_OWNER_H

#include "base/platform.h"

#include <stdatomic.h>
#include <uv/tree.h>

#define DIBS__UUID 37 /* text of a client's UUID, with its NUL */

struct dibs__adopted;
RB_HEAD(dibs__adopted_tree, dibs__adopted);

struct dibs__adopted_table {
    dibs__mutex mu;
    struct dibs__adopted_tree tree; /* mu; by their numbers here */
    atomic_bool any;                /* something was adopted at all */
};

/* An owner as servers know it: "uuid:number". */
struct dibs__owner_name {
    char uuid[DIBS__UUID];
    uint64_t number;
};

void dibs__adopted_init(struct dibs__adopted_table *t);
void dibs__adopted_clear(struct dibs__adopted_table *t);
/* Under which number this owner goes here: the one it has already, or `fresh`,
 * which nobody else has. 0: out of memory. Thread: any. */
uint64_t dibs__adopted_add(struct dibs__adopted_table *t,
                           const struct dibs__owner_name *name, uint64_t fresh);
/* Who goes by this number here. False: an owner of our own. Thread: any. */
bool dibs__adopted_find(struct dibs__adopted_table *t, uint64_t wire,
                        struct dibs__owner_name *out);
/* A hold of this number begins, or ends. Thread: any. */
void dibs__adopted_held(struct dibs__adopted_table *t, uint64_t wire,
                        bool begins);

#endif
