/* SPDX-License-Identifier: MIT
 *
 * error.c - codes to text.
 */
#include <dibs/dibs.h>

#define TEXT_OF(x)          #x
#define VERSION_OF(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

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
