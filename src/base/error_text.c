/* SPDX-License-Identifier: MIT
 *
 * error_text.c - texts of error codes, and the error text of the last failure.
 *
 * Thread  any.
 * Locks   none: each thread has a text of its own.
 *
 * How     A public call begins by clearing last.err. A function that has
 * details sets text and code. If at the end last.err is not the code that the
 *         call returns, the text is cleared. So a nested call's text is kept if
 *         the outer call returns the same code.
 */
#include "base/error_text.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TEXT_OF(x)          #x
#define VERSION_OF(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

static _Thread_local struct {
    dibs_err err; /* that the text is for; OK: none since the call began */
    char text[DIBS__REASON_MAX];
} last;

const char *dibs_strerror(dibs_err err)
{
    switch (err) { /* no default: the compiler names a missing case */
#define DIBS_X(name, value, text)                                              \
    case name:                                                                 \
        return text;
        DIBS_ERR_MAP(DIBS_X)
#undef DIBS_X
    }
    return "unknown error code";
}

const char *dibs_version(void)
{
    return VERSION_OF(DIBS_VERSION_MAJOR, DIBS_VERSION_MINOR,
                      DIBS_VERSION_PATCH);
}

/* ---- the last failure -------------------------------------------------- */

const char *dibs_error_text(void)
{
    return last.text;
}

void dibs__clean_text(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < ' ' || *p == 0x7f)
            *p = '?';
}

void dibs__reason_begin(void)
{
    last.err = DIBS_OK;
}

dibs_err dibs__reason_set(dibs_err err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(last.text, sizeof last.text, fmt, ap);
    va_end(ap);
    dibs__clean_text(last.text);
    last.err = err;
    return err;
}

dibs_err dibs__reason_end(dibs_err err)
{
    if (err != DIBS_OK && last.err != err) {
        last.text[0] = '\0';
        last.err = err;
    }
    return err;
}

const char *dibs__errno_text(int error_number, char buf[DIBS__ERRNO_MAX])
{
    if (error_number == EMFILE)
        return "too many open files: this process has reached its limit "
               "(ulimit -n)";
    if (error_number == ENFILE)
        return "too many open files: the system has reached its limit "
               "(fs.file-max)";
    return strerror_r(error_number, buf, DIBS__ERRNO_MAX);
}

dibs_err dibs__no_descriptor(int error_number)
{
    char text[DIBS__ERRNO_MAX];

    if (error_number == EMFILE || error_number == ENFILE)
        dibs__reason_set(DIBS_ERR_NOMEM, "%s",
                         dibs__errno_text(error_number, text));
    return DIBS_ERR_NOMEM;
}

struct dibs__reason *dibs__reason_new(dibs_err err, const char *text)
{
    size_t len = strlen(text);
    struct dibs__reason *r = dibs__malloc(sizeof *r + len + 1);

    if (!r)
        return NULL;
    r->err = err;
    memcpy(r->text, text, len + 1);
    return r;
}
