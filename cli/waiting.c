/* SPDX-License-Identifier: MIT
 *
 * waiting.c - shows who has the lock while we wait for it.
 *
 * A person at a terminal wants to know why nothing happens. After two seconds a
 * line shows who has the lock and how long we have waited. It changes every
 * second. Without a terminal nothing is printed, except with -v: a message
 * comes after two seconds, and then at intervals that double up to a minute.
 *
 * Asking  The server is asked who has it every two seconds, never more often
 *         and never before the last answer. Of several locks one is asked
 *         about: the one that was held the last time, else the next.
 *
 * Thread  The first one.
 */
#include "waiting.h"

#include <stdio.h>

#include "progress.h"
#include "times.h"

#define FIRST_MS 2000
#define ASK_MS   2000
#define SHOW_MS  1000
#define TELL_MS  60000

static void describe_holder(const struct waiting *w, char *text, size_t size)
{
    const dibs_lock_info *i = &w->info;
    const char *name = "";
    dibs_member m = DIBS_MEMBER_INIT;
    char left[OUT_SPAN_MAX];

    text[0] = '\0';
    if (!i->locked)
        return;
    if (w->b->group &&
        dibs_lock_members(w->b->l, w->member, w->b->owner, &m) == DIBS_OK)
        name = m.name;
    int n = snprintf(text, size, ": %.200s%sheld by %s", name,
                     *name ? " is " : "", i->owner);
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
    char who[512], line[2048], span[OUT_SPAN_MAX];
    struct out_fact facts[4] = {{"waited_ms", NULL, waited}};

    describe_holder(w, who, sizeof who);
    if (w->info.locked) {
        facts[1] = (struct out_fact){"owner", w->info.owner, 0};
        facts[2] = (struct out_fact){"left_ms", NULL, w->info.ttl_ms};
    }
    out_span(waited, span);
    if (!w->terminal) {
        out_tell_facts(OUT_INFO, "waiting", facts, "waited %s for %s%s", span,
                       w->a->words[0], who);
        return;
    }
    snprintf(line, sizeof line, "dibs: waited %s for %.300s%s", span,
             w->a->words[0], who);
    progress_show(line);
}

static void on_info(dibs_err err, const dibs_lock_info *info, void *arg)
{
    struct waiting *w = arg;

    w->asked = false;
    w->info.locked = err == DIBS_OK && info->locked;
    if (w->info.locked)
        w->info = *info;
    else
        w->member++;
    if (w->on)
        show_state(w);
}

static void ask_holder(struct waiting *w, int64_t now)
{
    struct bundle *b = w->b;

    w->ask_at = now + w->pause_ms;
    if (!w->terminal)
        w->pause_ms = 2 * w->pause_ms < TELL_MS ? 2 * w->pause_ms : TELL_MS;
    if (w->asked || b->n_members == 0)
        return;
    w->member %= b->n_members;
    w->asked =
        dibs_lock_info_get_async(b->members[w->member], on_info, w) == DIBS_OK;
}

void waiting_begin(struct waiting *w, const struct args *a, struct bundle *b,
                   int64_t since)
{
    bool terminal = progress_possible() && !a->quiet && !a->log_json;

    *w = (struct waiting){
        .a = a,
        .b = b,
        .since = since,
        .terminal = terminal,
        .on = terminal || a->verbose,
        .ask_at = since + FIRST_MS,
        .show_at = terminal ? since + FIRST_MS : TIME_NEVER,
        .pause_ms = ASK_MS,
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
