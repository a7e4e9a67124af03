/* SPDX-License-Identifier: MIT
 *
 * error_text.h - the error text ("reason") of the last failed call of a thread.
 *
 * dibs_error_text returns it. A successful call does not change it, so success
 * costs only a flag.
 */
#ifndef DIBS_BASE_ERROR_TEXT_H
#define DIBS_BASE_ERROR_TEXT_H

#include <dibs/dibs.h>
#include <stdarg.h>

#define DIBS__REASON_MAX                                                       \
    512 /* bytes, with the NUL; longer texts are truncated */

/* Wraps the body of every public call that can fail. */
#define DIBS__API_CALL(call) (dibs__reason_begin(), dibs__reason_end(call))

/* A public call begins: no reason has been set for it. */
void dibs__reason_begin(void);
/* The call returns err. Clears the text if it was not set for err. Returns err.
 */
dibs_err dibs__reason_end(dibs_err err);
/* Sets the text, without control characters. Returns err. */
__attribute__((format(printf, 2, 3))) dibs_err
dibs__reason_set(dibs_err err, const char *fmt, ...);

/* strerror_r, but for EMFILE and ENFILE the text names the limit. */
#define DIBS__ERRNO_MAX 100
const char *dibs__errno_text(int error_number, char buf[DIBS__ERRNO_MAX]);
/* Returns NOMEM, with a reason if error_number is EMFILE or ENFILE. */
dibs_err dibs__no_descriptor(int error_number);

/* Replaces control characters by question marks: text from a server and names
 * of locks may be shown on a terminal. */
void dibs__clean_text(char *text);

/* A reason handed from one thread to another. */
struct dibs__reason {
    dibs_err err;
    char text[];
};

/* NULL: out of memory. The caller frees it with dibs__free. */
struct dibs__reason *dibs__reason_new(dibs_err err, const char *text);

#endif
