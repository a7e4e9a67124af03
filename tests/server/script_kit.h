/* SPDX-License-Identifier: MIT
 *
 * script_kit.h - what runs scripts as tables, each script alone, against a real
 * server. A table is an array of rows; a row is one situation:
 *
 *     {"kept", "HSET L A 1;PEXPIRE L 60000", "mutex_release L | A 0 9000 C",
 *      "1", "1", "L A=1 ~9000", "", PLAIN},
 *
 * that is: its name, commands before, the call, its reply, its reply when sent
 * again, the state after, what was told, and how. The server is emptied, the
 * commands are sent, then the call. The reply, all keys of the server and what
 * was published must be as the row says. A client sends a call again when the
 * reply was lost, so the row does, too; after it the state must be the same.
 *
 * Texts are made of words, with spaces between them:
 *
 * Words    Each test file has words of its own for owners, keys and channels;
 *          they are at the top of its tables. '' is an empty text. @N is the
 *          time N ms after the row began, by the server's clock, in ms since
 *          1970; @N.5 is half a ms more. All others stand for themselves.
 * A call   is the script, its keys, '|', its arguments. The number behind them
 *          (lua/lib/around.lua) is added, and left out of replies.
 * A reply  is a number, a text, "nil", "-TEXT" for an error with that text in
 *          it ("-any" for any text), or several of these for an array. ~N is a
 *          number that was N a moment ago and has been falling since; '~N is
 *          such a number as a text. 'us is a time since the row began, in
 *          microseconds, as a text.
 * A state  is "KEY FIELD=VALUE ... TTL" for a hash, "KEY MEMBER=SCORE ... TTL"
 *          for a sorted set, or "KEY string TTL", one a key, ';' between them.
 *          A TTL is a number of ms, ~N, -1 for a key
 *          without an end, or "any". A key that is not named must not exist, so
 *          nothing is left behind unnoticed. A test file may have states of its
 *          own for keys of other types.
 * Told     is CHANNEL=MESSAGE for each message, in order. The second sending
 *          tells nobody, unless there is more behind a '/': what it tells.
 *
 * Use      A test file defines sk_kind, and has sk_up and sk_down as its group
 *          fixtures. What is not as it should be fails the test, with a message
 *          that begins with the name of the row.
 */
#ifndef DIBS_TESTS_SCRIPT_KIT_H
#define DIBS_TESTS_SCRIPT_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/server.h"
#include "support/util.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- rows -------------------------------------------------------------- */

/* Under which circumstances a call is made. */
enum how {
    PLAIN,
    FULL,       /* the server has no memory left */
    NO_PEXPIRE, /* by a user who may not set an expiry */
    NO_SET,     /* by a user who may not make a read key */
    NO_CHANNEL, /* by a user who may not publish */
    HOWS
};

struct row {
    const char *name;
    const char *before; /* commands, ';' between them */
    const char *call;
    const char *reply;
    const char *again; /* the reply when sent a second time; NULL = not sent */
    const char *after; /* states, ';' between them */
    const char *told;  /* messages */
    enum how how;
};

/* Each row by itself. */
void sk_rows(const struct row *rows, size_t n);
/* Rows that go on where the one before stopped. One whose name begins with
 * "anew" begins with an empty server. */
void sk_story(const struct row *rows, size_t n);

/* A test that runs a table. */
#define ROWS_TEST(test, rows)                                                  \
    static void test(void **state)                                             \
    {                                                                          \
        (void)state;                                                           \
        sk_rows(rows, COUNT(rows));                                            \
    }
#define STORY_TEST(test, rows)                                                 \
    static void test(void **state)                                             \
    {                                                                          \
        (void)state;                                                           \
        sk_story(rows, COUNT(rows));                                           \
    }

/* Each script whose name begins with one of these (NULL ends them) must have
 * one of these n tables, and each table a script. */
void sk_all_tested(const char *const *names, const struct row *const *tables,
                   size_t n);

/* ---- what a test file brings ------------------------------------------- */

#define SK_MAX_WORDS 96

struct sk_words {
    char *w[SK_MAX_WORDS]; /* what the words of a text stand for */
    int n;
};

/* A row that was just sent; times are the server's, in ms. */
struct sk_turn {
    const struct row *row;
    const char *want; /* its reply */
    long long sent;   /* before it was sent the first time */
    long long answered;
};

struct sk_kind {
    const char *const (*words)[2]; /* word, meaning; NULL ends them */
    /* Words of channels, or a pattern: somebody listens. NULL ends them. */
    const char *const *channels;
    /* The rights of users, as ACL SETUSER has them; NULL = there is no such
     * user. PLAIN and FULL may do everything. */
    const char *rights[HOWS];
    /* What a word stands for that is not in the table; free() it. NULL: it is
     * none of these words. */
    char *(*word)(const char *word);
    /* Checks the state of a key, which is the first word. False: it is not one
     * of the keys with states of their own. */
    bool (*state)(const struct sk_turn *turn, const struct sk_words *state);
};

extern const struct sk_kind sk_kind;

int sk_up(void **state);
int sk_down(void **state);

/* ---- for tests that are no rows ---------------------------------------- */

extern struct ts_server *sk_srv;
extern long long sk_began; /* when the row began */

/* An empty server, no messages from before; notes the time. */
void sk_begin(void);
long long sk_now(void); /* by the server's clock */

const char *sk_meaning(const char *word);
struct sk_words sk_split(const char *text);
void sk_words_free(struct sk_words *ws);
/* "FIELD=REST" or "FIELD~REST": what the field stands for goes to field; gives
 * the rest, from the sign on. */
const char *sk_cut(const char *word, char field[64]);

/* The commands of a row, then a call; freeReplyObject its reply. */
void sk_commands(const char *row, const char *commands);
redisReply *sk_call(const char *call, enum how how);
/* The same, with all words as they are; argv has room for one more. */
redisReply *sk_call_args(int argc, const char **argv);
/* Is this the reply, and were these told since the last time? */
void sk_check_reply(const char *row, const redisReply *r, const char *want);
void sk_check_told(const char *row, const char *want);
/* Both: a call, and whether that is its reply. */
void sk_expect(const char *row, const char *call, const char *want);

#endif
