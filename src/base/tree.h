/* SPDX-License-Identifier: MIT
 *
 * tree.h - intrusive red-black trees: libuv's macros, without the warnings
 * about unused functions.
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

/* Defines the functions of a tree with head struct `tree`, whose nodes of
 * `type` have the link `field` and are compared by `order`. */
#define DIBS_TREE(tree, type, field, order)                                    \
    DIBS_TREE_QUIET                                                            \
    RB_GENERATE_STATIC(tree, type, field, order)                               \
    DIBS_TREE_LOUD                                                             \
    struct type

/* Returns the next node in order, or NULL. (RB_NEXT takes three arguments in
 * old versions of libuv, two in new ones.) */
#define DIBS_TREE_NEXT(tree, node) tree##_RB_NEXT(node)

#endif
