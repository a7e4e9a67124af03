/* SPDX-License-Identifier: MIT
 *
 * error_class.c - classification of error replies, in one table.
 *
 * Thread  any.
 *
 * Most errors occur before a script's first write: nothing was executed. Some
 * occur after it: scripts are not rolled back, so earlier writes persist. Those
 * are EXECUTED_PARTLY, and the sender cleans up. An unknown error counts as
 * EXECUTED_PARTLY.
 *
 * Without an error reply, net/conn.c decides: CONN if the request was not sent,
 * UNKNOWN if it was.
 */
#include "client/command/error_class.h"

#include <string.h>

static const struct dibs__error_class classes[] = {
    {"NOSCRIPT", EXECUTED_NO, NEXT_RELOAD, DIBS_ERR_SERVER},

    {"LOADING", EXECUTED_NO, NEXT_LATER, DIBS_ERR_SERVER},
    {"BUSY", EXECUTED_NO, NEXT_LATER, DIBS_ERR_SERVER},
    {"TRYAGAIN", EXECUTED_NO, NEXT_LATER, DIBS_ERR_SERVER},
    {"CLUSTERDOWN", EXECUTED_NO, NEXT_LATER, DIBS_ERR_SERVER},
    {"NOREPLICAS", EXECUTED_NO, NEXT_LATER, DIBS_ERR_SERVER},
    {"max number of clients", EXECUTED_NO, NEXT_LATER, DIBS_ERR_CONN},
    {"Script killed by user", EXECUTED_NO, NEXT_LATER, DIBS_ERR_SERVER},

    {"READONLY", EXECUTED_NO, NEXT_REDIAL, DIBS_ERR_SERVER},
    {"MASTERDOWN", EXECUTED_NO, NEXT_REDIAL, DIBS_ERR_SERVER},

    {"MOVED", EXECUTED_NO, NEXT_REDIRECT, DIBS_ERR_SERVER},
    {"ASK", EXECUTED_NO, NEXT_REDIRECT, DIBS_ERR_SERVER},

    {"NOAUTH", EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_AUTH},
    {"WRONGPASS", EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_AUTH},
    {"NOPERM ACL failure in script", EXECUTED_PARTLY, NEXT_GIVE_UP,
     DIBS_ERR_AUTH},
    {"NOPERM", EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_AUTH},
    {"DENIED", EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_AUTH},
    {"OOM", EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_SERVER},
    {"MISCONF", EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_SERVER},
    {"CROSSSLOT", EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_SERVER},

    /* The slot is migrating, and some of the lock's keys are on the new node
     * already. Scripts are idempotent, also after a partial execution. */
    {"Script attempted to access a non local key", EXECUTED_PARTLY, NEXT_LATER,
     DIBS_ERR_SERVER},
    {"Lua script attempted to access a non local key", EXECUTED_PARTLY,
     NEXT_LATER, DIBS_ERR_SERVER},

    /* Each script reads its key before its first write. */
    {"WRONGTYPE", EXECUTED_NO, NEXT_GIVE_UP, DIBS_ERR_WRONGTYPE},

    {"The user executing the script", EXECUTED_PARTLY, NEXT_GIVE_UP,
     DIBS_ERR_AUTH},
    {"ACL failure in script", EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_AUTH},
    {"", EXECUTED_PARTLY, NEXT_GIVE_UP, DIBS_ERR_SERVER}, /* all others */
};

/* Before Redis 7 an error raised in a script reads "ERR Error running script
 * (call to f_...): @user_script:3: WRONGTYPE ...", an error returned by it
 * "@user_script: 3: ...". */
const char *dibs__error_strip(const char *error)
{
    const char *at = error, *found;

    if (strncmp(error, "ERR Error running script", 24) == 0 ||
        strncmp(error, "@user_script", 12) == 0) {
        while ((found = strstr(at, "user_script:")))
            at = found + strlen("user_script:");
        at += strspn(at, "0123456789: -");
    }
    return at;
}

const struct dibs__error_class *dibs__error_classify(const char *error)
{
    const struct dibs__error_class *c = classes;

    error = dibs__error_strip(error);
    if (strncmp(error, "ERR ", 4) == 0) /* some errors have a code after it */
        error += 4;
    while (strncmp(error, c->prefix, strlen(c->prefix)) != 0)
        c++;
    return c;
}
