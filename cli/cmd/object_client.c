/* SPDX-License-Identifier: MIT
 *
 * object_client.c - what slots, sem and latch share: a client, and how they
 * answer.
 *
 * Thread  The first one.
 */
#include "cmd/object_client.h"

#include "args/lock_type.h"
#include "exit_codes.h"
#include "inspect/lock_query.h"
#include "output/event_log.h"

#define CLOSE_MS 2000

static dibs_client *opened; /* the one of this command */

static void keep_quiet(const dibs_event *ev, void *arg)
{
    (void)ev;
    (void)arg;
}

int object_open(struct object *o, const struct args *a)
{
    return object_open_until(o, a, NULL, NULL);
}

int object_open_until(struct object *o, const struct args *a,
                      const struct signals *signals, int *stopped_by)
{
    dibs_client_opts opts = {
        .size = sizeof opts,
        .max_connections = 1,
        .callbacks = DIBS_CALLBACKS_DISPATCH,
        .on_event = keep_quiet,
    };

    *o = (struct object){.a = a};
    if (stopped_by)
        *stopped_by = 0;
    int code = target_pick(a, &o->target);
    o->target.signals = signals;
    o->target.stopped_by = stopped_by;
    if (code == EXIT_FINE)
        code = target_open(&o->target, 0, &opts, &o->c);
    opened = o->c;
    return code;
}

int object_look(struct object *o, const struct args *a)
{
    struct lock_query k;
    int code;

    *o = (struct object){.a = a};
    code = query_open(a, &k);
    opened = o->c = k.c;
    k.c = NULL;
    query_close(&k);
    return code;
}

void object_close(struct object *o)
{
    if (o->c)
        dibs_client_close(o->c, CLOSE_MS);
    dibs_client_free(o->c);
    target_clear(&o->target);
    opened = o->c = NULL;
}

int object_failed(const struct args *a, dibs_err err)
{
    char buf[KIND_CLASH_MAX];
    const char *kind =
        err == DIBS_ERR_WRONGTYPE ? kind_clash(opened, a, buf) : NULL;

    if (kind) {
        out_tell(OUT_ERROR, "usage", "cannot use '%s': %s", a->words[0], kind);
        return out_exit_of(err);
    }
    if (err == DIBS_ERR_UNKNOWN) {
        out_tell(OUT_ERROR, "unconfirmed", "%s: the server did not confirm it",
                 a->words[0]);
        return EXIT_UNSURE;
    }
    return query_failed(a->words[0], err);
}

int object_answer(const struct args *a, const struct out_fact *facts,
                  const char *text, int code)
{
    struct json j;

    if (a->json) {
        json_open(&j, stdout);
        json_text(&j, "name", a->words[0]);
        for (; facts->key; facts++)
            if (facts->text)
                json_text(&j, facts->key, facts->text);
            else
                json_int(&j, facts->key, facts->number);
        json_close(&j);
        putchar('\n');
    } else if (text) {
        puts(text);
    }
    return out_finish(code);
}
