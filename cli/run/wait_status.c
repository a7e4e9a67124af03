/* SPDX-License-Identifier: MIT
 *
 * wait_status.c - shows who has the lock while we wait for it.
 *
 * A person at a terminal wants to know why nothing happens. After two seconds a
 * line shows who has the lock and how long we have waited. It changes every
 * second. Without a terminal a message comes after two seconds, and then once a
 * minute; with -v at intervals that double up to a minute. In the background of
 * a terminal there is none, except with -v.
 *
 * Asking  The server is asked who has it every two seconds, never more often
 *         and never before the last answer. Of several locks one is asked
 *         about: the one that was held the last time, else the next. If its
 *         owner is another one than the last time, the server is also asked
 *         who that is.
 *
 * Thread  The first one.
 */
#include "run/wait_status.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "args/lock_type.h"
#include "output/progress_line.h"
#include "util/time.h"

#define FIRST_MS 2000
#define ASK_MS   2000
#define SHOW_MS  1000
#define TELL_MS  60000

/* Its age grows while we wait. */
static struct who holder_now(const struct waiting *w)
{
    struct who who = w->who;

    who.age_ms += time_now() - w->who_at;
    return who;
}

static void describe_holder(const struct waiting *w, char *text, size_t size)
{
    const dibs_lock_info *i = &w->info;
    const char *name = "";
    dibs_member m = DIBS_MEMBER_INIT;
    char left[OUT_SPAN_MAX], who[WHO_TEXT_MAX];

    text[0] = '\0';
    if (!i->locked)
        return;
    if (w->b->group &&
        dibs_lock_members(w->b->l, w->member, w->b->owner, &m) == DIBS_OK)
        name = m.name;
    struct who now = holder_now(w);
    bool short_form = w->terminal && now.known;
    int n = snprintf(text, size, ": %.200s%sheld by %s%s", name,
                     *name ? " is " : "", short_form ? "" : i->owner,
                     (short_form ? who_text : owner_describe)(&now, who));
    if (i->owners > 1)
        n += snprintf(text + n, size - (size_t)n, " and %zu more",
                      i->owners - 1);
    if (!w->terminal) /* on a terminal there is little room */
        snprintf(text + n, size - (size_t)n, ", %s left",
                 i->ttl_ms < 0 ? "no end" : out_span(i->ttl_ms, left));
}

static void show_state(struct waiting *w)
{
    int64_t waited = time_now() - w->since;
    char held[768], line[2048], span[OUT_SPAN_MAX], who[WHO_TEXT_MAX];
    struct who now = holder_now(w);
    struct out_fact facts[5] = {{"waited_ms", NULL, waited}};

    describe_holder(w, held, sizeof held);
    if (w->info.locked) {
        facts[1] = (struct out_fact){"owner", w->info.owner, 0};
        facts[2] = (struct out_fact){"left_ms", NULL, w->info.ttl_ms};
        if (now.known)
            facts[3] = (struct out_fact){"who", who_text(&now, who), 0};
    }
    out_span(waited, span);
    if (!w->terminal) {
        out_tell_facts(OUT_WARN, "waiting", facts, "waited %s for %s%s", span,
                       w->a->words[0], held);
        return;
    }
    snprintf(line, sizeof line, "dibs: waited %s for %.300s%s", span,
             w->a->words[0], held);
    progress_show(line);
}

/* The last answer: now it is known as well as it can be. */
static void on_who(dibs_err err, const dibs_who *who, void *arg)
{
    struct waiting *w = arg;

    w->asked = false;
    who_copy(&w->who, err == DIBS_OK ? who : NULL);
    w->who_at = time_now();
    if (w->on)
        show_state(w);
}

/* Who the owner is, is asked once for each owner. */
static void on_info(dibs_err err, const dibs_lock_info *info, void *arg)
{
    struct waiting *w = arg;
    bool held = err == DIBS_OK && kind_held(info);
    bool same = held && w->info.locked && w->who.known &&
                strcmp(w->info.owner, info->owner) == 0;

    w->asked = false;
    if (held)
        w->info = *info;
    else
        w->member++;
    w->info.locked = held;
    if (!same)
        w->who = (struct who){.known = false};
    if (held && !same && w->on)
        w->asked = dibs_lock_who_async(w->b->members[w->member], info->owner,
                                       on_who, w) == DIBS_OK;
    if (w->on && !w->asked)
        show_state(w);
}

static void ask_holder(struct waiting *w, int64_t now)
{
    struct lock_set *b = w->b;

    w->ask_at = now + w->pause_ms;
    if (!w->terminal && w->a->verbose)
        w->pause_ms = 2 * w->pause_ms < TELL_MS ? 2 * w->pause_ms : TELL_MS;
    if (w->asked || b->n_members == 0)
        return;
    w->member %= b->n_members;
    w->asked =
        dibs_lock_info_get_async(b->members[w->member], on_info, w) == DIBS_OK;
}

void waiting_begin(struct waiting *w, const struct args *a, struct lock_set *b,
                   int64_t since)
{
    bool terminal = progress_possible() && !a->quiet && !a->log_json;

    *w = (struct waiting){
        .a = a,
        .b = b,
        .since = since,
        .terminal = terminal,
        .on = terminal || a->verbose || (!a->quiet && !isatty(STDERR_FILENO)),
        .ask_at = since + FIRST_MS,
        .show_at = terminal ? since + FIRST_MS : TIME_NEVER,
        .pause_ms = terminal || a->verbose ? ASK_MS : TELL_MS,
        .info = DIBS_LOCK_INFO_INIT,
    };
}

int64_t waiting_due(const struct waiting *w)
{
    if (!w->on)
        return TIME_NEVER;
    return w->ask_at < w->show_at ? w->ask_at : w->show_at;
}

void waiting_tick(struct waiting *w)
{
    int64_t now = time_now();

    if (!w->on)
        return;
    if (now >= w->ask_at)
        ask_holder(w, now);
    if (now >= w->show_at) {
        w->show_at = now + SHOW_MS;
        if (!w->asked || now - w->since > FIRST_MS + SHOW_MS)
            show_state(w); /* else the answer does, in a moment */
    }
}

void waiting_end(struct waiting *w)
{
    w->on = false;
    progress_clear();
}
