/* SPDX-License-Identifier: MIT
 *
 * test_classes.c - what an error reply means, as servers really write them.
 *
 * Redis 7 and Valkey put the place behind the error of a script. Redis 6
 * wraps it in an error of its own and puts the place before it, with its "ERR"
 * and its dash gone or not, depending on where in the server it comes from.
 * Each must end in the same row of the table.
 */
#include "client/command/error_class.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct row {
    const char *text;
    enum dibs__executed executed;
    enum dibs__next_step next;
    dibs_err err;
};

static void check(const struct row *row)
{
    const struct dibs__error_class *c = dibs__error_classify(row->text);

    if (!c)
        fail_msg("%s: no class", row->text);
    if (c->executed != row->executed || c->next != row->next ||
        c->err != row->err)
        fail_msg("%s: is \"%s\": executed %d, next %d, %s", row->text,
                 c->prefix, c->executed, c->next, dibs_strerror(c->err));
}

#define SHA "f_ff967d0ae0e68b4f9e360fa91c54598bc25ad9b6"
#define PLACE                                                                  \
    " script: ff967d0ae0e68b4f9e360fa91c54598bc25ad9b6, on "                   \
    "@user_script:24."
#define WRAP "ERR Error running script (call to " SHA "): "
#define AT   "@user_script:24: "

static void test_classes_of_commands(void **state)
{
    static const struct row rows[] = {
        {"NOSCRIPT No matching script. Please use EVAL.", EXECUTED_NO,
         NEXT_RELOAD, DIBS_ERR_SERVER},
        {"LOADING Redis is loading the dataset in memory", EXECUTED_NO,
         NEXT_LATER, DIBS_ERR_SERVER},
        {"BUSY Redis is busy running a script. You can only call SCRIPT KILL "
         "or SHUTDOWN NOSAVE.",
         EXECUTED_NO, NEXT_LATER, DIBS_ERR_SERVER},
        {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is "
         "set to 'no'.",
         EXECUTED_NO, NEXT_REDIAL, DIBS_ERR_SERVER},
        {"TRYAGAIN Multiple keys request during rehashing of slot", EXECUTED_NO,
         NEXT_LATER, DIBS_ERR_SERVER},
        {"CLUSTERDOWN The cluster is down", EXECUTED_NO, NEXT_LATER,
         DIBS_ERR_SERVER},
        {"NOREPLICAS Not enough good replicas to write.", EXECUTED_NO,
         NEXT_LATER, DIBS_ERR_SERVER},
        {"ERR max number of clients reached", EXECUTED_NO, NEXT_LATER,
         DIBS_ERR_CONN},
        {"READONLY You can't write against a read only replica.", EXECUTED_NO,
         NEXT_REDIAL, DIBS_ERR_SERVER},
        {"NOAUTH Authentication required.", EXECUTED_NO, NEXT_GIVE_UP,
         DIBS_ERR_AUTH},
        {"WRONGPASS invalid username-password pair or user is disabled.",
         EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_AUTH},
        {"NOPERM this user has no permissions to run the 'evalsha' command",
         EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_AUTH},
        {"DENIED Redis is running in protected mode", EXECUTED_NO, NEXT_GIVE_UP,
         DIBS_ERR_AUTH},
        {"OOM command not allowed when used memory > 'maxmemory'.", EXECUTED_NO,
         NEXT_GIVE_UP, DIBS_ERR_SERVER},
        {"MISCONF Redis is configured to save RDB snapshots, but it's "
         "currently unable to persist to disk.",
         EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_SERVER},
        {"CROSSSLOT Keys in request don't hash to the same slot", EXECUTED_NO,
         NEXT_GIVE_UP, DIBS_ERR_SERVER},
        {"MOVED 866 127.0.0.1:7001", EXECUTED_NO, NEXT_REDIRECT,
         DIBS_ERR_SERVER},
        {"ASK 866 127.0.0.1:7001", EXECUTED_NO, NEXT_REDIRECT, DIBS_ERR_SERVER},
        {"ERR Script attempted to access a non local key in a cluster node "
         "script: 0123, on @user_script:7.",
         EXECUTED_PARTLY, NEXT_LATER, DIBS_ERR_SERVER},
        {"ERR Error running script (call to f_0123): @user_script:7: "
         "@user_script: 7: Lua script attempted to access a non local key in a "
         "cluster node",
         EXECUTED_PARTLY, NEXT_LATER, DIBS_ERR_SERVER},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        check(&rows[i]);
}

static void test_classes_of_scripts(void **state)
{
    static const struct row rows[] = {
        {"WRONGTYPE Operation against a key holding the wrong kind of "
         "value" PLACE,
         EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_WRONGTYPE},
        {"OOM command not allowed when used memory > 'maxmemory'." PLACE,
         EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_SERVER},
        {"NOREPLICAS Not enough good replicas to write." PLACE, EXECUTED_NO,
         NEXT_LATER, DIBS_ERR_SERVER},
        {"READONLY You can't write against a read only replica." PLACE,
         EXECUTED_NO, NEXT_REDIAL, DIBS_ERR_SERVER},
        {"ERR Script killed by user with SCRIPT KILL..." PLACE, EXECUTED_NO,
         NEXT_LATER, DIBS_ERR_SERVER},
        {"ERR The user executing the script can't run this command or "
         "subcommand" PLACE,
         EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_AUTH},
        {"ERR ACL failure in script: User some has no permissions to run the "
         "'hset' command script: on @user_script:2.",
         EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_AUTH},
        {"NOPERM ACL failure in script: No permissions to access a key",
         EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_AUTH},
        {"NOPERM User some has no permissions to run the 'evalsha' command",
         EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_AUTH},
        {"ERR The user executing the script can't access at least one of the "
         "keys mentioned in the command arguments" PLACE,
         EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_AUTH},
        {"ERR hash value is not an integer" PLACE, EXECUTED_PARTLY,
         NEXT_GIVE_UP, DIBS_ERR_SERVER},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        check(&rows[i]);
}

/* As Redis 6 has it: errors of commands behind one place, errors that the
 * script engine itself makes behind two. */
static void test_classes_wrapped(void **state)
{
    static const struct row rows[] = {
        {WRAP AT "WRONGTYPE Operation against a key holding the wrong kind of "
                 "value",
         EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_WRONGTYPE},
        {WRAP AT "@user_script: 24: -OOM command not allowed when used memory "
                 "> 'maxmemory'.",
         EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_SERVER},
        {WRAP AT "@user_script: 24: -MISCONF Errors writing to the AOF file",
         EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_SERVER},
        {WRAP AT "@user_script: 24: -NOREPLICAS Not enough good replicas to "
                 "write.",
         EXECUTED_NO, NEXT_LATER, DIBS_ERR_SERVER},
        {WRAP AT "@user_script: 24: -READONLY You can't write against a read "
                 "only replica.",
         EXECUTED_NO, NEXT_REDIAL, DIBS_ERR_SERVER},
        {WRAP AT "@user_script: 24: The user executing the script can't run "
                 "this command or subcommand",
         EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_AUTH},
        {WRAP AT "@user_script: 24: The user executing the script can't access "
                 "at least one of the keys mentioned in the command arguments",
         EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_AUTH},
        {WRAP AT "Script killed by user with SCRIPT KILL...", EXECUTED_NO,
         NEXT_LATER, DIBS_ERR_SERVER},
        {WRAP AT "ERR hash value is not an integer", EXECUTED_PARTLY,
         NEXT_GIVE_UP, DIBS_ERR_SERVER},
        {WRAP "?", EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_SERVER},
        {"ERR Error running script", EXECUTED_PARTLY, NEXT_GIVE_UP,
         DIBS_ERR_SERVER},
        /* What a script caught and hands on. */
        {"@user_script: 24: The user executing the script can't run this "
         "command or subcommand",
         EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_AUTH},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        check(&rows[i]);
}

/* Nothing in particular, and nothing that only looks like something. */
static void test_classes_unheard_of(void **state)
{
    static const struct row rows[] = {
        {"", EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_SERVER},
        {"ERR", EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_SERVER},
        {"ERR unknown command 'EVALSHA'", EXECUTED_PARTLY, NEXT_GIVE_UP,
         DIBS_ERR_SERVER},
        {"ERR a key called user_script:7: WRONGTYPE", EXECUTED_PARTLY,
         NEXT_GIVE_UP, DIBS_ERR_SERVER},
        {"wrongtype", EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_SERVER},
        {"SURPRISE", EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_SERVER},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        check(&rows[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes_of_commands),
        cmocka_unit_test(test_classes_of_scripts),
        cmocka_unit_test(test_classes_wrapped),
        cmocka_unit_test(test_classes_unheard_of),
    };
    return cmocka_run_group_tests_name("unit.classes", tests, NULL, NULL);
}
