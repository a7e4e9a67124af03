/* SPDX-License-Identifier: MIT
 *
 * floor.c - the same lock, by the shortest way there is.
 *
 * A thread with a blocking connection of its own sends the two scripts that
 * dibs sends, with arguments of the same shape, and waits for each answer. No
 * renewal, no waiting for others, no repair: what is left is Redis, the socket
 * and hiredis, and no lock on Redis can be had for less with as few threads.
 *
 * A floor that sends something else than dibs does would be a wrong measure.
 * So before anything is measured, the server is asked (MONITOR) what it got
 * from a pair of dibs and from a pair of the floor, with the same name and
 * owner: both must be the same, to the letter, but for the number of the call,
 * which is another one each time.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include "client/command/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWNER_SIZE  64
#define NAME_SIZE   128
#define NUMBER_SIZE 8

struct floor_lock {
    redisContext *rc;
    char name[NAME_SIZE];
    char channel[NAME_SIZE];
    char owner[OWNER_SIZE]; /* as long as one of dibs */
    unsigned number;        /* of the last call */
};

static void load(redisContext *rc, const struct dibs__script *s)
{
    redisReply *r = redisCommand(rc, "SCRIPT LOAD %b", s->src, (size_t)s->len);

    if (!r || r->type != REDIS_REPLY_STRING || strcmp(r->str, s->sha) != 0)
        die("script %s could not be loaded", s->name);
    freeReplyObject(r);
}

struct floor_lock *floor_open(const char *url, const char *name, int number)
{
    struct floor_lock *f = calloc(1, sizeof *f);

    if (!f)
        die("out of memory");
    f->number = 1000;
    f->rc = server_connect(url);
    load(f->rc, &dibs__script_mutex_acquire);
    load(f->rc, &dibs__script_mutex_release);
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->channel, sizeof f->channel, "redisson_lock__channel:{%.90s}",
             name);
    snprintf(f->owner, sizeof f->owner,
             "00000000-0000-4000-8000-000000000000:%d", number);
    return f;
}

void floor_close(struct floor_lock *f)
{
    if (!f)
        return;
    redisFree(f->rc);
    free(f);
}

/* Sends one script with a number behind it, the last of argv, and gives whether
 * this is the answer: the number, and what is behind it. */
static bool call(struct floor_lock *f, int argc, const char **argv,
                 const char *answer)
{
    char number[NUMBER_SIZE], want[NUMBER_SIZE + 8];

    f->number = f->number < 9999 ? f->number + 1 : 1000;
    snprintf(number, sizeof number, "%u", f->number);
    snprintf(want, sizeof want, "%s%s", number, answer);
    argv[argc - 1] = number;
    redisReply *r = redisCommandArgv(f->rc, argc, argv, NULL);
    bool good = r && r->type == REDIS_REPLY_STRING && strcmp(r->str, want) == 0;

    if (r)
        freeReplyObject(r);
    return good;
}

void floor_pair(void *floor_lock)
{
    struct floor_lock *f = floor_lock;
    const char *acquire[] = {"EVALSHA", dibs__script_mutex_acquire.sha,
                             "1",       f->name,
                             f->owner,  "1",
                             "30000",   NULL};
    const char *release[] = {"EVALSHA", dibs__script_mutex_release.sha,
                             "1",       f->name,
                             f->owner,  "0",
                             "0",       f->channel,
                             NULL};

    if (!call(f, COUNT(acquire), acquire, ""))
        die("floor: %s was not acquired", f->name);
    if (!call(f, COUNT(release), release, " 1"))
        die("floor: %s was not released", f->name);
}

/* ---- is it the same? --------------------------------------------------- */

#define SEEN_MAX  4096
#define CHECK_END "dibs:bench:end"

/* Has the server say that all before was seen. */
static void mark_end(redisContext *rc)
{
    redisReply *r = redisCommand(rc, "ECHO %s", CHECK_END);

    if (!r || r->type != REDIS_REPLY_STRING)
        die("floor: the server does not answer");
    freeReplyObject(r);
}

/* Puts nines in the place of the last argument, a number of four digits. */
static void hide_number(char *words)
{
    char *last = strrchr(words, ' ');

    if (!last || strlen(last) != strlen(" \"1000\"") ||
        strspn(last + 2, "0123456789") != 4)
        die("floor: a call without a number of four digits: %s", words);
    memset(last + 2, '9', 4);
}

/* Gathers the scripts that clients called, up to the mark, one a line. The time
 * and the sender before the first quote are left out, and so is what scripts
 * themselves call. */
static void read_calls(redisContext *monitor, char seen[SEEN_MAX])
{
    size_t used = 0;
    bool end = false;

    while (!end) {
        redisReply *r = NULL;
        if (redisGetReply(monitor, (void **)&r) != REDIS_OK || !r)
            die("floor: the monitor ended: %s", monitor->errstr);
        char *words = strchr(r->str, '"');
        end = words && strstr(words, CHECK_END) != NULL;
        if (words && strncmp(words, "\"EVAL", 5) == 0) {
            hide_number(words);
            used +=
                (size_t)snprintf(seen + used, SEEN_MAX - used, "%s\n", words);
        }
        if (used >= SEEN_MAX)
            die("floor: a pair is more commands than expected");
        freeReplyObject(r);
    }
    seen[used] = '\0';
}

void floor_check(const char *url)
{
    char dibs[SEEN_MAX];
    char floor[SEEN_MAX];
    char name[NAME_SIZE];
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    redisContext *monitor = server_connect(url);

    bench_name(name, sizeof name, "check", 0);
    must(dibs_client_open(url, NULL, &c), "open");
    must(dibs_lock_new(c, name, &l), "new lock");
    struct floor_lock *f = floor_open(url, name, 0);
    snprintf(f->owner, sizeof f->owner, "%s:%llu", dibs_client_id(c),
             (unsigned long long)dibs_owner_thread(c));
    redisReply *r = redisCommand(monitor, "MONITOR");
    if (!r || r->type != REDIS_REPLY_STATUS)
        die("floor: cannot see what is sent: MONITOR was refused");
    freeReplyObject(r);

    dibs_pair(l);
    mark_end(f->rc);
    read_calls(monitor, dibs);
    floor_pair(f);
    mark_end(f->rc);
    read_calls(monitor, floor);
    if (strcmp(dibs, floor) != 0)
        die("the floor does not send what dibs sends.\ndibs:\n%sfloor:\n%s",
            dibs, floor);

    floor_close(f);
    redisFree(monitor);
    dibs_lock_free(l);
    dibs_client_free(c);
}
