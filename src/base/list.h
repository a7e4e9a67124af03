/* SPDX-License-Identifier: MIT
 *
 * list.h - intrusive doubly linked list.
 *
 * Head and links are the same struct and form a ring. A link that is in no list
 * points to itself, or is zeroed if it never was in one. dibs__list_del is
 * idempotent.
 */
#ifndef DIBS_BASE_LIST_H
#define DIBS_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct dibs__list {
    struct dibs__list *next, *prev;
};

/* container_of: the struct of this type whose member is the given link. */
#define DIBS_OF(link, type, member)                                            \
    ((type *)(void *)((char *)(link)-offsetof(type, member)))

static inline void dibs__list_init(struct dibs__list *l)
{
    l->next = l->prev = l;
}

static inline bool dibs__list_empty(const struct dibs__list *l)
{
    return l->next == l;
}

static inline bool dibs__list_linked(const struct dibs__list *l)
{
    return l->next && l->next != l;
}

/* Appends l. */
static inline void dibs__list_add(struct dibs__list *head, struct dibs__list *l)
{
    l->prev = head->prev;
    l->next = head;
    head->prev->next = l;
    head->prev = l;
}

static inline void dibs__list_add_first(struct dibs__list *head,
                                        struct dibs__list *l)
{
    dibs__list_add(head->next, l);
}

static inline void dibs__list_del(struct dibs__list *l)
{
    if (!l->next)
        return;
    l->prev->next = l->next;
    l->next->prev = l->prev;
    dibs__list_init(l);
}

static inline struct dibs__list *dibs__list_first(const struct dibs__list *head)
{
    return head->next == head ? NULL : head->next;
}

static inline struct dibs__list *dibs__list_pop(struct dibs__list *head)
{
    struct dibs__list *l = dibs__list_first(head);

    if (l)
        dibs__list_del(l);
    return l;
}

/* Moves all of `from` to the end of `to`. */
static inline void dibs__list_move(struct dibs__list *to,
                                   struct dibs__list *from)
{
    if (dibs__list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    dibs__list_init(from);
}

#endif
