/* SPDX-License-Identifier: MIT
 *
 * tree.h - red-black trees inside the things they order: libuv's macros, made
 * fit for a build that takes warnings for errors.
 */
#ifndef DIBS_BASE_TREE_H
#define DIBS_BASE_TREE_H

#include <uv/tree.h>

#if defined(__GNUC__)
#define DIBS_TREE_QUIET                                                        \
    _Pragma("GCC diagnostic push")                                             \
        _Pragma("GCC diagnostic ignored \"-Wunused-function\"")
#define DIBS_TREE_LOUD _Pragma("GCC diagnostic pop")
#else
#define DIBS_TREE_QUIET
#define DIBS_TREE_LOUD
#endif

/* The functions of a tree of that type, whose head is struct `tree` and whose
 * link is `field`. */
#define DIBS_TREE(tree, type, field, order)                                    \
    DIBS_TREE_QUIET                                                            \
    RB_GENERATE_STATIC(tree, type, field, order)                               \
    DIBS_TREE_LOUD                                                             \
    struct type

/* The one behind this one, or NULL. (RB_NEXT takes three arguments in old
 * versions of libuv, two in new ones.) */
#define DIBS_TREE_NEXT(tree, one) tree##_RB_NEXT(one)

#endif
