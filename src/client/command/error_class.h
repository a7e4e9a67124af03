/* SPDX-License-Identifier: MIT
 *
 * error_class.h - classification of error replies.
 */
#ifndef DIBS_CLIENT_COMMAND_ERROR_CLASS_H
#define DIBS_CLIENT_COMMAND_ERROR_CLASS_H

#include <dibs/dibs.h>

enum dibs__next_step {
    NEXT_GIVE_UP, /* final: complete the command with the error */
    NEXT_LATER,   /* transient: retry with back-off until the deadline */
    NEXT_RELOAD,  /* NOSCRIPT: send the script's source */
    NEXT_REDIAL,  /* the server is read-only: reconnect, then retry */
    NEXT_REDIRECT /* MOVED or ASK: retry on the node in the error */
};

/* EXECUTED_PARTLY: the script may have written before the error. */
enum dibs__executed { EXECUTED_NO, EXECUTED_PARTLY };

struct dibs__error_class {
    const char *prefix;
    enum dibs__executed executed;
    enum dibs__next_step next;
    dibs_err err; /* result of the command if this error is the last one */
};

/* Returns the error without the wrapper that servers before Redis 7 put around
 * a script's error. */
const char *dibs__error_strip(const char *error);
/* Returns the class of an error reply, never NULL: unknown errors have a class,
 * too. */
const struct dibs__error_class *dibs__error_classify(const char *error);

#endif
