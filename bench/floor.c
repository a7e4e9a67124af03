/* SPDX-License-Identifier: MIT
 *
 * floor.c - the same lock, by the shortest way there is.
 *
 * A thread with a blocking connection of its own sends the two scripts that
 * dibs sends, with arguments of the same shape, and waits for each answer. No
 * renewal, no waiting for others, no repair: what is left is Redis, the socket
 * and hiredis, and no lock on Redis can be had for less with as few threads.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include "client/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWNER_SIZE 64
#define NAME_SIZE  128

struct floor_lock {
    redisContext *rc;
    char name[NAME_SIZE];
    char channel[NAME_SIZE];
    char owner[OWNER_SIZE]; /* as long as one of dibs */
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
    f->rc = server_connect(url);
    load(f->rc, &dibs__script_basic_acquire);
    load(f->rc, &dibs__script_basic_release);
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

/* Sends one script and gives whether its answer has this type. */
static bool call(redisContext *rc, int argc, const char **argv, int type)
{
    redisReply *r = redisCommandArgv(rc, argc, argv, NULL);
    bool good = r && r->type == type;

    if (r)
        freeReplyObject(r);
    return good;
}

void floor_pair(void *floor_lock)
{
    struct floor_lock *f = floor_lock;
    const char *acquire[] = {
        "EVALSHA", dibs__script_basic_acquire.sha, "1", f->name, f->owner, "1",
        "30000"};
    const char *release[] = {"EVALSHA",  dibs__script_basic_release.sha,
                             "2",        f->name,
                             f->channel, f->owner,
                             "0",        "0"};

    if (!call(f->rc, COUNT(acquire), acquire, REDIS_REPLY_NIL))
        die("floor: %s was not acquired", f->name);
    if (!call(f->rc, COUNT(release), release, REDIS_REPLY_INTEGER))
        die("floor: %s was not released", f->name);
}
