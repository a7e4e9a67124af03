/* SPDX-License-Identifier: MIT
 *
 * exit_codes.h - what the command's exit codes mean.
 *
 * Codes 64..78 follow sysexits, 124..127 follow timeout(1) and the shell; 80
 * to 82 are ours, in the gap between. Anything else is the guarded command's
 * own code, or 128 + n when signal n ended it. Since that code can be any
 * number, --status-fd tells the cause in words: the second column.
 */
#ifndef DIBS_CLI_EXIT_CODES_H
#define DIBS_CLI_EXIT_CODES_H

#define EXIT_MAP(X)                                                            \
    X(EXIT_FINE, 0, "ok", "all went well")                                     \
    X(EXIT_USAGE, 64, "usage",                                                 \
      "the command line is wrong or asks for another kind")                    \
    X(EXIT_SERVER, 69, "server", "no usable Redis server")                     \
    X(EXIT_INTERNAL, 70, "internal", "something in dibs itself failed")        \
    X(EXIT_BUSY, 75, "busy", "the lock was not free (in time); see -E")        \
    X(EXIT_NOPERM, 77, "noperm", "the server refused password or rights")      \
    X(EXIT_LOST, 80, "lost", "the lock was lost, the command stopped")         \
    X(EXIT_LATE, 81, "lost-before-end",                                        \
      "the command ended, but the lock had been lost before")                  \
    X(EXIT_UNSURE, 82, "release-unconfirmed",                                  \
      "the command ended well, but the release was not confirmed")             \
    X(EXIT_TOOLONG, 124, "max-run", "the command ran longer than -t allows")   \
    X(EXIT_CANNOT, 126, "cannot-execute", "the command cannot be executed")    \
    X(EXIT_NOTFOUND, 127, "not-found", "there is no such command")             \
    X(EXIT_SIGNAL, 128, "signal", "128 + n: ended by signal n")

struct exit_row {
    int code;
    const char *cause, *text;
};

/* In output.c. Ends with a row without a cause. */
extern const struct exit_row exit_rows[];

enum exit_code {
#define EXIT_X(name, value, cause, text) name = value,
    EXIT_MAP(EXIT_X)
#undef EXIT_X
};

#endif
