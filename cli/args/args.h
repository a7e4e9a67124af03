/* SPDX-License-Identifier: MIT
 *
 * args.h - the command line: subcommands, options, what was given.
 */
#ifndef DIBS_CLI_ARGS_ARGS_H
#define DIBS_CLI_ARGS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "args/parse_value.h"
#include "output/output.h"

/* One bit for each subcommand, so that an option can name those that take it.
 */
enum {
    CMD_RUN = 1 << 0,
    CMD_HOLD = 1 << 1,
    CMD_INFO = 1 << 2,
    CMD_LS = 1 << 3,
    CMD_FORCE = 1 << 4,
    CMD_LOCAL = 1 << 5,
    CMD_VERSION = 1 << 6,
    CMD_HELP = 1 << 7,
    CMD_QUEUE = 1 << 8,
    CMD_DOCTOR = 1 << 9,
    CMD_RELEASE = 1 << 10,
    CMD_ACQUIRE = 1 << 11,
    CMD_EXTEND = 1 << 12,
    CMD_SLOTS = 1 << 13,
    CMD_SEM = 1 << 14,
    CMD_LATCH = 1 << 15,
    CMD_ACL = 1 << 16,
    CMD_WATCH = 1 << 17,
    CMD_WAIT = 1 << 18,
    CMD_TOP = 1 << 19,
    CMD_METRICS = 1 << 20,
    CMD_COMPLETION = 1 << 21,
    CMD_ALL = (1 << 22) - 1,
    CMD_VERBS = CMD_SLOTS | CMD_SEM | CMD_LATCH, /* see subverbs.h */
    CMD_TAKE = CMD_RUN | CMD_HOLD,               /* takes a lock and keeps it */
    CMD_ASK = CMD_TAKE | CMD_ACQUIRE,            /* takes a lock */
    CMD_LEFT = CMD_EXTEND | CMD_RELEASE, /* is about a hold that was left */
    CMD_LOOK = CMD_INFO | CMD_LS | CMD_FORCE | CMD_QUEUE, /* does not wait */
    CMD_PATTERN = CMD_LS | CMD_WATCH | CMD_TOP | CMD_METRICS,
    CMD_FOLLOW = CMD_WATCH | CMD_WAIT | CMD_TOP | CMD_METRICS, /* looks on */
    CMD_SERVER = CMD_ASK | CMD_LEFT | CMD_LOOK | CMD_DOCTOR | CMD_FOLLOW |
                 CMD_VERBS /* talks to a server */
};

#define WAIT_FOREVER      (-1)
#define NOT_GIVEN         INT64_MIN /* a time that config_file.c fills in */
#define FAIR_CALL_DEFAULT (-1)      /* the library's */
#define LEASE_DEFAULT     INT64_C(30000)
#define KILL_AFTER_MS     INT64_C(5000)
#define RELEASE_WAIT_MS   INT64_C(30000)
#define EVERY_MIN_MS      100
#define MAX_WORDS         3

/* What was given, with defaults for the rest. Strings belong to argv. */
struct args {
    const char *url, *url_file, *password_file;
    const char *set_url, *set_url_file; /* from a file of config_file.c */
    bool quiet, verbose, log_json, json, help, version;
    bool all_columns;

    int64_t wait_ms;         /* WAIT_FOREVER, or 0 for a single try */
    int64_t server_wait_ms;  /* WAIT_FOREVER, or NOT_GIVEN: as wait_ms says */
    int64_t release_wait_ms; /* WAIT_FOREVER: until the lease ends */
    int64_t lease_ms, max_hold_ms, min_hold_ms, max_run_ms, kill_after_ms;
    bool fair, shared, exclusive; /* the kind; none of them: plain */
    bool fence, strict, no_reentry, spin;
    int64_t slots;        /* -N; 0: not that kind */
    int64_t fair_call_ms; /* FAIR_CALL_DEFAULT, or what was given */
    const char *multi;    /* names; words[0] is the same then */
    const char *quorum;   /* URLs */
    int64_t every_ms;     /* NOT_GIVEN, or how often to look */
    bool no_renew, ok_if_busy, foreground, any_name, no_stdin, yes, force;
    int busy_code, status_fd, replicas;
    int for_pid; /* 0: none */
    struct on_lost on_lost;
    const char *shell;    /* -c */
    const char *if_owner; /* --if-owner */
    const char *owner;    /* --owner: what acquire printed */
    const char *publish;  /* a text that goes with the lock */
    bool pass_notify;     /* the command notifies systemd, not dibs */
    bool ready_waiting;   /* --ready: systemd need not wait for the lock */
    const char *as;       /* --as: a ticket of a latch */
    const char *kinds;    /* --kinds: of locks, for acl */
    const char *user;     /* --user: of the server, for acl */
    int64_t permits, deadline_ms;
    int64_t of; /* latch wait: set it to this if it is not set; 0: do not */
    bool must_exist; /* latch wait: a latch that is not set is not open */
    const struct verb *verb; /* of a subcommand that has verbs */
    int64_t number;          /* behind the name, if the verb has one */

    const char *words[MAX_WORDS]; /* before --, options taken out */
    int n_words;
    char **argv; /* behind --, or NULL */
};

/* A subcommand. */
struct command {
    const char *name;
    unsigned bit;
    int min_words, max_words;
    const char *words_are; /* what a missing word is */
    const char *synopsis;  /* behind "dibs " */
    const char *example;   /* a whole line that is right */
    const char *summary;
    int (*run)(const struct args *a); /* gives the exit code */
};

/* Ends with a row without a name. In the order of the help. These two are in
 * main.c. */
extern const struct command commands[];
const struct command *command_find(const char *name);

/* An option. */
enum option_kind {
    OPT_FLAG,
    OPT_TEXT,
    OPT_TIME,
    OPT_EVER, /* a time, or forever */
    OPT_CODE,
    OPT_FD,
    OPT_PID,
    OPT_LOST,
    OPT_READY,
    OPT_LOG,
    OPT_REPLICAS,
    OPT_COUNT,
    OPT_NOWAIT
};

struct option_row {
    char letter;       /* or 0 */
    const char *name;  /* without --; or NULL */
    const char *value; /* what the value is called; NULL for a flag */
    enum option_kind kind;
    size_t at;           /* offset in struct args */
    unsigned commands;   /* who takes it */
    const char *example; /* a value that would be right */
    const char *help;
};

/* Ends with a row that has neither letter nor name. */
extern const struct option_row option_rows[];

void args_init(struct args *a);

/* Reads options up to the first word; *i is then its index, or argc. */
int args_before(struct args *a, int argc, char **argv, int *i);
/* Reads what comes behind the subcommand's name, and checks it. EXIT_FINE or
 * EXIT_USAGE, and then an error was printed. */
int args_behind(struct args *a, const struct command *cmd, int argc,
                char **argv, int i);

/* In suggest.c. Prints what is wrong and an example that is right; EXIT_USAGE.
 */
int args_wrong(const struct command *cmd, const char *right, const char *fmt,
               ...) PRINTF(3, 4);
/* The same, with any hint; which it frees. NULL: none. */
int args_hint(const struct command *cmd, char *hint, const char *fmt, ...)
    PRINTF(3, 4);
/* Text put together as by printf, for args_hint; NULL when out of memory. */
char *args_text(const char *fmt, ...) PRINTF(1, 2);
/* "did you mean" before a line, which it frees. */
char *args_did_you_mean(char *line);

#endif
