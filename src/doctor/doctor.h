/* SPDX-License-Identifier: MIT
 *
 * doctor.h - an examination of the server: what it means for locks.
 */
#ifndef DIBS_LOCK_DOCTOR_H
#define DIBS_LOCK_DOCTOR_H

#include "client/query.h"

/* One examination, on its caller's stack. */
struct dibs__doctor {
    dibs_client *c;
    const char *name; /* of a lock, or NULL */
    dibs_doctor_fn fn;
    void *arg;
    bool enough;   /* fn wants no more */
    dibs_err gone; /* no answer, or no memory: nothing more is said */
    struct dibs__answer info;  /* INFO; empty if it was refused */
    struct dibs__answer reply; /* of the question at hand */
    bool replica;              /* of another server */
    bool keeps;                /* what it has survives a restart */
    int64_t clock_us, at_us;   /* its clock the first time, and ours then */
    int64_t trip_us;           /* how long that answer took */
};

/* Tells one finding. */
void dibs__doctor_say(struct dibs__doctor *d, const char *check,
                      dibs_verdict verdict, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Asks, the words ended by NULL; the answer is in d->reply. */
dibs_err dibs__doctor_ask(struct dibs__doctor *d, const char *const *argv);
#define DIBS__ASK(d, ...)                                                      \
    dibs__doctor_ask((d), (const char *const[]){__VA_ARGS__, NULL})
/* A field of INFO; "" if it is not there. */
const char *dibs__doctor_info(const struct dibs__doctor *d, const char *field,
                              char buf[], size_t size);
int64_t dibs__doctor_number(const struct dibs__doctor *d, const char *field);
/* A number in a text, cut to what any number here can be. */
int64_t dibs__doctor_count(const char *text);
/* What the server said instead of an answer. */
const char *dibs__doctor_why(const struct dibs__doctor *d);

/* What this user may do; in doctor_rights.c. */
void dibs__doctor_rights(struct dibs__doctor *d);
/* The way there, and with whom it stands; in doctor_place.c. */
void dibs__doctor_place(struct dibs__doctor *d);

#endif
