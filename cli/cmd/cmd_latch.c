/* SPDX-License-Identifier: MIT
 *
 * cmd_latch.c - dibs latch: wait until a count is zero.
 *
 *     dibs latch set ready 3
 *     dibs latch down --as web1 ready
 *     dibs latch wait -w 5m ready && ./switch-over
 *
 * A latch that is not set is open. down with --as counts once for that
 * name, so a step that is repeated does no harm.
 *
 * Thread  The first one. Nothing is held, so a signal may simply end it.
 */
#include "cmd.h"

#include <inttypes.h>
#include <string.h>

#include "cmd/object_client.h"
#include "exit_codes.h"

#define EXIT_AS_IT_WAS 1 /* set: it was closed already */
#define EXIT_NO_LATCH  1 /* wait --must-exist */
#define TEXT_MAX       160

/* Opens both; EXIT_FINE, or another code. */
static int latch_open(struct object *o, const struct args *a, dibs_latch **l)
{
    int code = object_open(o, a);

    *l = NULL;
    if (code != EXIT_FINE)
        return code;
    dibs_err err = dibs_latch_new(o->c, a->words[0], l);
    return err == DIBS_OK ? EXIT_FINE : object_failed(a, err);
}

static int latch_close(struct object *o, dibs_latch *l, int code)
{
    dibs_latch_free(l);
    object_close(o);
    return code;
}

static int answer_left(const struct args *a, int64_t left, int code)
{
    const struct out_fact facts[] = {{"left", NULL, left}, {NULL, NULL, 0}};
    char text[TEXT_MAX];

    snprintf(text, sizeof text, left > 0 ? "%" PRId64 " left" : "open", left);
    return object_answer(a, facts, text, code);
}

/* With 0 it opens. */
static int set_it(const struct args *a, dibs_latch *l)
{
    bool was_set = false;
    int64_t left = a->number;
    dibs_err err = dibs_latch_set(
        l, a->number, DIBS_LATCH_OPTS(.deadline_ms = a->deadline_ms), &was_set);

    if (err == DIBS_OK && !was_set)
        err = dibs_latch_count(l, &left);
    if (err != DIBS_OK)
        return object_failed(a, err);
    if (was_set || a->number == 0)
        return answer_left(a, left, EXIT_FINE);
    out_tell(OUT_ERROR, "closed",
             "%s is closed already, %" PRId64 " left: nothing changed",
             a->words[0], left);
    return EXIT_AS_IT_WAS;
}

int latch_set(const struct args *a)
{
    struct object o;
    dibs_latch *l;
    int code = latch_open(&o, a, &l);

    return latch_close(&o, l, code == EXIT_FINE ? set_it(a, l) : code);
}

static int count_down(const struct args *a, dibs_latch *l)
{
    int64_t left = 0;
    dibs_err err =
        dibs_latch_count_down(l, DIBS_LATCH_OPTS(.ticket = a->as), &left);

    return err == DIBS_OK ? answer_left(a, left, EXIT_FINE)
                          : object_failed(a, err);
}

int latch_down(const struct args *a)
{
    struct object o;
    dibs_latch *l;
    int code = latch_open(&o, a, &l);

    return latch_close(&o, l, code == EXIT_FINE ? count_down(a, l) : code);
}

/* A latch that is not set is open: --must-exist and --of are for that. One that
 * was opened is remembered for a week (docs/keys.md). */
static int check_set(const struct args *a, dibs_client *c, dibs_latch *l)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    bool was_set;
    dibs_err err = a->of > 0 || a->must_exist
                       ? dibs_client_look(c, a->words[0], &info)
                       : DIBS_OK;

    if (err == DIBS_OK && info.kind == DIBS_KIND_NONE && a->of > 0)
        err = dibs_latch_set(l, a->of, NULL, &was_set);
    if (err != DIBS_OK)
        return object_failed(a, err);
    if (info.kind != DIBS_KIND_NONE || !a->must_exist)
        return EXIT_FINE;
    out_tell(OUT_ERROR, "busy", "nobody has set the latch %s", a->words[0]);
    return EXIT_NO_LATCH;
}

/* -n looks once. */
static int wait_open(const struct args *a, dibs_latch *l)
{
    int64_t left = 0;
    dibs_err err;

    if (a->wait_ms == 0) {
        err = dibs_latch_count(l, &left);
        if (err == DIBS_OK && left > 0)
            err = DIBS_ERR_TIMEOUT;
    } else {
        int64_t wait = a->wait_ms == WAIT_FOREVER ? 0 : a->wait_ms;
        err = dibs_latch_wait(l, DIBS_LATCH_OPTS(.wait_ms = wait));
    }
    if (err == DIBS_OK)
        return answer_left(a, 0, EXIT_FINE);
    if (err != DIBS_ERR_TIMEOUT)
        return object_failed(a, err);
    const char *why = dibs_error_text();
    out_tell(OUT_WARN, "busy", "%s is not open%s%s", a->words[0],
             *why ? ": " : "", why);
    return a->busy_code;
}

int latch_wait(const struct args *a)
{
    struct object o;
    dibs_latch *l;
    int code = latch_open(&o, a, &l);

    if (code == EXIT_FINE)
        code = check_set(a, o.c, l);
    return latch_close(&o, l, code == EXIT_FINE ? wait_open(a, l) : code);
}

int latch_info(const struct args *a)
{
    struct object o;
    dibs_latch *l = NULL;
    int64_t left = 0;
    int code = object_look(&o, a);

    if (code == EXIT_FINE && o.c) {
        dibs_err err = dibs_latch_new(o.c, a->words[0], &l);
        if (err == DIBS_OK)
            err = dibs_latch_count(l, &left);
        if (err != DIBS_OK)
            code = object_failed(a, err);
    }
    if (code == EXIT_FINE)
        code = answer_left(a, left, EXIT_FINE);
    return latch_close(&o, l, code);
}
