/* SPDX-License-Identifier: MIT
 *
 * error_text.h - why a call failed, in words: one text for each thread.
 *
 * What dibs_error_text gives. It belongs to the last public call that failed on
 * this thread. A call that ends well leaves it alone, so success costs nothing
 * but a flag.
 */
#ifndef DIBS_BASE_ERROR_TEXT_H
#define DIBS_BASE_ERROR_TEXT_H

#include <dibs/dibs.h>
#include <stdarg.h>

#define DIBS__REASON_MAX 512 /* bytes, with the NUL; more is cut */

/* Every public call that can fail is one of these. */
#define DIBS__API_CALL(call) (dibs__reason_begin(), dibs__reason_end(call))

/* Nothing is known yet about the call that begins. */
void dibs__reason_begin(void);
/* The call ends with this. If nobody said why, there is no text. */
dibs_err dibs__reason_end(dibs_err err);
/* Says why, cleaned of control characters. Returns err. */
__attribute__((format(printf, 2, 3))) dibs_err
dibs__reason_set(dibs_err err, const char *fmt, ...);

/* The words for an errno: of a full table of descriptors, whose limit it is. */
#define DIBS__ERRNO_MAX 100
const char *dibs__errno_text(int error_number, char buf[DIBS__ERRNO_MAX]);
/* NOMEM; says so if that is for want of a descriptor. */
dibs_err dibs__no_descriptor(int error_number);

/* Control characters become question marks: text from a server, or the name of
 * a lock, may end on a terminal or in a log. */
void dibs__clean_text(char *text);

/* A reason on its way from one thread to another. */
struct dibs__reason {
    dibs_err err;
    char text[];
};

/* NULL: out of memory. It goes with dibs__free. */
struct dibs__reason *dibs__reason_new(dibs_err err, const char *text);

#endif
