/* SPDX-License-Identifier: MIT
 *
 * acl_rules.c - dibs_acl_rules: the ACL rules for a user of locks.
 *
 * Thread  any.
 * Locks   none.
 *
 * The rules come from the table in check_permissions.c, which the doctor checks
 * against: so they grant what the doctor requires. Each rule is passed once.
 */
#include "admin/check_permissions.h"
#include "base/api_args.h"
#include "base/buf.h"
#include "base/error_text.h"

#include <dibs/dibs.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define BIT(group) (1u << (group))
#define BASE                                                                   \
    (BIT(RIGHT_PLAIN) | BIT(RIGHT_WAKE) | BIT(RIGHT_WAIT_QUEUE) |              \
     BIT(RIGHT_KILL) | BIT(RIGHT_TRACK) | BIT(RIGHT_NAME) |                    \
     BIT(RIGHT_HOLDERS) | BIT(RIGHT_VALUES))
#define CLUSTER  BIT(RIGHT_REDIRECT)
#define RULE_MAX (DIBS_NAME_MAX + 80)

/* The values of the `words` argument. Each of them includes BASE. */
static const struct {
    const char *word;
    unsigned groups;
    bool by_default; /* included if the argument is NULL */
} kinds[] = {
    {"plain", 0, true},
    {"fair", BIT(RIGHT_FAIR), true},
    {"rw", BIT(RIGHT_RW), true},
    {"fence", BIT(RIGHT_FENCED), true},
    {"slots", BIT(RIGHT_SLOTS), true},
    {"sem", BIT(RIGHT_SEMAPHORE), true},
    {"latch", BIT(RIGHT_LATCH), true},
    {"value", 0, true}, /* in BASE: info reads the value of every lock */
    {"look", BIT(RIGHT_SCAN) | BIT(RIGHT_WAITER_COUNT) | BIT(RIGHT_CLIENT_LIST),
     true},
    {"metrics",
     BIT(RIGHT_SCAN) | BIT(RIGHT_WAITER_COUNT) | BIT(RIGHT_CLIENT_LIST) |
         BIT(RIGHT_DOCTOR),
     false},
    {"doctor", BIT(RIGHT_DOCTOR), false},
    {"replicas", BIT(RIGHT_REPLICA_ACK), false},
    {"cluster", CLUSTER, false},
};
#define KINDS (sizeof kinds / sizeof *kinds)

/* Returns the groups of a word, 0 if it is unknown. */
static unsigned groups_of(const char *word, size_t len)
{
    for (size_t i = 0; i < KINDS; i++)
        if (strlen(kinds[i].word) == len &&
            memcmp(kinds[i].word, word, len) == 0)
            return kinds[i].groups | BASE;
    return 0;
}

static dibs_err read_kinds(const char *words, unsigned *groups)
{
    *groups = 0;
    if (!words) {
        for (size_t i = 0; i < KINDS; i++)
            *groups |= kinds[i].by_default ? kinds[i].groups | BASE : 0;
        return DIBS_OK;
    }
    for (const char *s = words;; s++) {
        size_t len = strcspn(s, ",");
        unsigned some = groups_of(s, len);
        if (!some)
            return dibs__reason_set(
                DIBS_ERR_INVALID,
                "'%.*s' is not one of plain, fair, rw, fence, slots, sem, "
                "latch, value, look, metrics, doctor, replicas and cluster",
                (int)(len < 40 ? len : 40), s);
        *groups |= some;
        s += len;
        if (!*s)
            return DIBS_OK;
    }
}

/* A rule is one word of an ACL: no blanks, quotes, control characters. */
static dibs_err check_pattern(const char *pattern)
{
    if (dibs__check_not_null("pattern", pattern) != DIBS_OK)
        return DIBS_ERR_INVALID;
    size_t len = strnlen(pattern, DIBS_NAME_MAX + 1);
    bool good = len > 0 && len <= DIBS_NAME_MAX;
    for (const char *s = pattern; good && *s; s++)
        good = (unsigned char)*s > ' ' && *s != 0x7F && !strchr("\"'\\", *s);
    return good ? DIBS_OK
                : dibs__reason_set(DIBS_ERR_INVALID,
                                   "the pattern must have 1 to %d bytes, and "
                                   "no blanks, quotes or backslashes",
                                   DIBS_NAME_MAX);
}

/* ---- rules ------------------------------------------------------------- */

struct rules {
    struct dibs__buf passed; /* rules passed so far, each NUL-terminated */
    dibs_rule_fn fn;
    void *arg;
    char mark; /* of the rules in this round: ~ keys, & channels, +
                  commands */
};

static bool was_passed(const struct rules *r, const char *rule)
{
    for (size_t at = 0; at < r->passed.len;
         at += strlen(r->passed.data + at) + 1)
        if (strcmp(r->passed.data + at, rule) == 0)
            return true;
    return false;
}

static bool pass_rule(const char *word, const char *sub, void *arg)
{
    struct rules *r = arg;
    char rule[RULE_MAX];
    bool command = word[0] != '~' && word[0] != '&';

    if (r->mark != (command ? '+' : word[0]))
        return true;
    snprintf(rule, sizeof rule, "%s%s%s%s", command ? "+" : "", word,
             sub ? "|" : "", sub ? sub : "");
    for (char *s = rule; command && *s; s++)
        *s = (char)tolower((unsigned char)*s);
    if (was_passed(r, rule))
        return true;
    dibs__buf_add(&r->passed, rule, strlen(rule) + 1);
    return dibs__buf_ok(&r->passed) && r->fn(rule, r->arg);
}

static dibs_err pass_rules(const char *pattern, const char *words,
                           dibs_rule_fn fn, void *arg)
{
    struct rules r = {.fn = fn, .arg = arg};
    unsigned groups;

    if (check_pattern(pattern) != DIBS_OK ||
        dibs__check_not_null("fn", fn ? pattern : NULL) != DIBS_OK ||
        read_kinds(words, &groups) != DIBS_OK)
        return DIBS_ERR_INVALID;
    bool more = true;
    for (const char *mark = "~&+"; more && *mark; mark++) {
        r.mark = *mark;
        more = dibs__permissions_each(groups, groups & CLUSTER, pattern,
                                      pass_rule, &r);
    }
    dibs_err err = dibs__buf_ok(&r.passed) ? DIBS_OK : DIBS_ERR_NOMEM;
    dibs__buf_clear(&r.passed);
    return err;
}

dibs_err dibs_acl_rules(const char *pattern, const char *words, dibs_rule_fn fn,
                        void *arg)
{
    return DIBS__API_CALL(pass_rules(pattern, words, fn, arg));
}
