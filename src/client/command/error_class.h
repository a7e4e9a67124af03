/* SPDX-License-Identifier: MIT
 *
 * error_class.h - what an error reply means for the command that got it.
 */
#ifndef DIBS_CLIENT_COMMAND_ERROR_CLASS_H
#define DIBS_CLIENT_COMMAND_ERROR_CLASS_H

#include <dibs/dibs.h>

enum dibs__next_step {
    NEXT_GIVE_UP, /* tell the caller now */
    NEXT_LATER,   /* try again within the caller's time */
    NEXT_RELOAD,  /* not executed; send the whole script */
    NEXT_REDIAL,  /* not executed; this server is not the right one now */
    NEXT_REDIRECT /* not executed; it says which one is */
};

enum dibs__executed { EXECUTED_NO, EXECUTED_PARTLY };

struct dibs__error_class {
    const char *prefix;
    enum dibs__executed executed;
    enum dibs__next_step next;
    dibs_err err; /* when it comes to telling */
};

/* The error less what older servers wrap around a script's error. */
const char *dibs__error_strip(const char *error);
/* Never NULL; an error nobody has heard of has a class as well. */
const struct dibs__error_class *dibs__error_classify(const char *error);

#endif
