/* SPDX-License-Identifier: MIT
 *
 * error_class.h - what an error reply means for the command that got it.
 */
#ifndef DIBS_CLIENT_COMMAND_ERROR_CLASS_H
#define DIBS_CLIENT_COMMAND_ERROR_CLASS_H

#include <dibs/dibs.h>

enum dibs__next {
    NEXT_GIVE_UP, /* tell the caller now */
    NEXT_LATER,   /* try again within the caller's time */
    NEXT_RELOAD,  /* not executed; send the whole script */
    NEXT_REDIAL,  /* not executed; this server is not the right one now */
    NEXT_REDIRECT /* not executed; it says which one is */
};

enum dibs__executed { EXECUTED_NO, EXECUTED_PARTLY };

struct dibs__class {
    const char *prefix;
    enum dibs__executed executed;
    enum dibs__next next;
    dibs_err err; /* when it comes to telling */
};

/* The error less what older servers wrap around a script's error. */
const char *dibs__error_words(const char *error);
/* Never NULL; an error nobody has heard of has a class as well. */
const struct dibs__class *dibs__classify(const char *error);

#endif
