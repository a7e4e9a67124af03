/* SPDX-License-Identifier: MIT
 *
 * status_report.c - the one line of --status-fd.
 *
 * Every exit code of dibs can also be one of the command's. One line of JSON
 * tells them apart, when all is over:
 *
 *   name       the lock
 *   code       our exit code
 *   cause      exit, signal: the command ended by itself, as below;
 *              interrupted: a signal ended our wait or our release;
 *              replicas: too few of them had the lock;
 *              otherwise the word exit_codes.h has for the code
 *   exit       the command's own code, or null
 *   signal     the signal that ended it, or null
 *   lock       released, kept (--min-hold), lost, unconfirmed, outer (nested)
 *              or not-taken
 *   owner      as the server knows it, or null
 *   waited_ms, held_ms
 *   members    of --multi and --quorum: name, server and verdict of each
 */
#include "run/status_report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exit_codes.h"
#include "util/time.h"

static const char *cause_of(int code, const struct lock_session *g)
{
    if (g->busy)
        return "busy"; /* whatever -E says */
    if (g->answer == DIBS_ERR_REPLICAS)
        return "replicas";
    for (const struct exit_row *row = exit_rows; row->cause; row++)
        if (row->code == code)
            return row->cause;
    return "interrupted";
}

static const char *lock_word(const struct lock_session *g)
{
    static const char *const words[] = {
        [SESSION_NOT_TAKEN] = "not-taken",
        [SESSION_RELEASED] = "released",
        [SESSION_LOST] = "lost",
        [SESSION_UNCONFIRMED] = "unconfirmed",
    };

    if (g->nested)
        return g->outer == NESTING_HELD ? "outer" : "lost";
    return g->kept ? "kept" : words[g->end];
}

static void add_child(struct json *j, const struct report *r)
{
    if (r->ran && WIFEXITED(r->status))
        json_int(j, "exit", WEXITSTATUS(r->status));
    else
        json_null(j, "exit");
    if (r->ran && WIFSIGNALED(r->status))
        json_int(j, "signal", WTERMSIG(r->status));
    else
        json_null(j, "signal");
}

void report_write(const struct args *a, struct lock_session *g,
                  const struct report *r)
{
    struct out_text line;
    struct json j;

    if (a->status_fd < 0 || !out_text_open(&line))
        return;
    FILE *f = line.f;
    int64_t end = g->freed_at > 0 ? g->freed_at : time_now();
    json_open(&j, f);
    json_text(&j, "name", a->words[0]);
    json_int(&j, "code", r->code);
    json_text(&j, "cause", r->why ? r->why : cause_of(r->code, g));
    add_child(&j, r);
    json_text(&j, "lock", lock_word(g));
    json_text(&j, "owner", g->owner_text[0] ? g->owner_text : NULL);
    json_int(&j, "waited_ms",
             (g->held_at > 0 ? g->held_at : end) - g->asked_at);
    json_int(&j, "held_ms", g->held_at > 0 ? end - g->held_at : 0);
    if (g->b.group) {
        json_any(&j, "members");
        lock_set_json(&g->b, g->owner, f);
    }
    json_close(&j);
    putc('\n', f);
    char *whole = out_text_close(&line);
    if (!whole || !out_write(a->status_fd, whole, line.size))
        out_tell(OUT_ERROR, "status",
                 "cannot write the status to descriptor %d: nobody reads it",
                 a->status_fd);
    free(whole);
}
