/* SPDX-License-Identifier: MIT
 *
 * kind.c - what kinds of locks share: texts of owners, arguments of scripts,
 * renewal, holders, and how the usual answers are read.
 *
 * Thread  any.
 */
#include "lock/kind.h"

#include "lock/line.h"

#include <stdio.h>
#include <string.h>

#define HOLDERS_MAX  10000
#define PAUSE_MIN_MS 1500 /* the longest pause of a waiter, with jitter */
#define PAUSE_MAX_MS 2500

void dibs__verb_write(enum dibs__verb verb, const struct dibs__ask *ask,
                      struct dibs__buf *out, bool whole)
{
    const struct dibs__kind *kind = ask->line->kind;

    assert(dibs__kind_has(kind, verb));
    kind->write[verb](ask, out, whole);
}

/* ---- arguments --------------------------------------------------------- */

static size_t owner_write(const struct dibs__line *line, uint64_t wire,
                          const char *suffix, char buf[DIBS_OWNER_MAX])
{
    int n = snprintf(buf, DIBS_OWNER_MAX, "%s:%llu%s", dibs__line_uuid(line),
                     (unsigned long long)wire, suffix);

    return n > 0 ? (size_t)n : 0;
}

size_t dibs__owner_text(const struct dibs__line *line, uint64_t wire,
                        char buf[DIBS_OWNER_MAX])
{
    return owner_write(line, wire, line->kind->suffix, buf);
}

void dibs__owner_arg(struct dibs__buf *out, const struct dibs__ask *ask)
{
    char text[DIBS_OWNER_MAX];

    if (ask->text)
        dibs__buf_arg(out, ask->text, ask->text_len);
    else
        dibs__buf_arg(out, text, owner_write(ask->line, ask->wire, "", text));
}

void dibs__name_arg(struct dibs__buf *out, const struct dibs__line *line)
{
    dibs__buf_arg(out, line->name, line->name_len);
}

const char *dibs__line_tag(const struct dibs__line *line, size_t *len)
{
    size_t skip = strlen(line->kind->channel);

    *len = line->channel_len - skip;
    return line->channel + skip;
}

void dibs__read_key_args(struct dibs__buf *out, const struct dibs__line *line)
{
    size_t len;
    const char *tag = dibs__line_tag(line, &len);

    dibs__buf_arg_parts(out, tag + 1, len - 1, ":", 1); /* "{name}:" */
    dibs__buf_arg_text(out, DIBS__READ_TAIL);
}

static unsigned publish_flavour(const struct dibs__line *line)
{
    const dibs_client *c = dibs__line_client(line);

    return c->cluster ? dibs__client_flavour(c) : 0;
}

size_t dibs__publish_count(const struct dibs__line *line)
{
    unsigned how = publish_flavour(line);

    return (how & FLAVOUR_SHARDED ? 1u : 0u) +
           (how & FLAVOUR_CLASSIC ? 1u : 0u);
}

void dibs__publish_args(struct dibs__buf *out, const struct dibs__line *line)
{
    unsigned how = publish_flavour(line);

    if (how & FLAVOUR_SHARDED)
        dibs__buf_arg_text(out, "spublish");
    if (how & FLAVOUR_CLASSIC)
        dibs__buf_arg_text(out, "publish");
}

/* ---- commands ---------------------------------------------------------- */

void dibs__write_info(const struct dibs__ask *ask, struct dibs__buf *out,
                      bool whole)
{
    dibs__script_head(out, &dibs__script_basic_info, whole, 1, 0);
    dibs__name_arg(out, ask->line);
}

void dibs__write_holders(const struct dibs__ask *ask, struct dibs__buf *out,
                         bool whole)
{
    dibs__script_head(out, &dibs__script_holders, whole, 1, 3);
    dibs__name_arg(out, ask->line);
    dibs__read_key_args(out, ask->line);
    dibs__buf_arg_num(out, HOLDERS_MAX);
}

bool dibs__renews_apart(const struct dibs__renew_item *items, size_t count)
{
    return count > 1 && dibs__line_client(items[0].line)->cluster;
}

static void name_args(const struct dibs__renew_item *items, size_t count,
                      struct dibs__buf *out)
{
    for (size_t i = 0; i < count; i++)
        dibs__name_arg(out, items[i].line);
}

void dibs__write_renew(const struct dibs__renew_item *items, size_t count,
                       struct dibs__buf *out, bool whole)
{
    char text[DIBS_OWNER_MAX];
    bool apart = dibs__renews_apart(items, count);

    dibs__script_head(out, &dibs__script_basic_renew, whole, apart ? 0 : count,
                      (apart ? 3 : 2) * count);
    if (!apart)
        name_args(items, count, out);
    for (size_t i = 0; i < count; i++) {
        dibs__buf_arg(out, text,
                      dibs__owner_text(items[i].line, items[i].wire, text));
        dibs__buf_arg_num(out, items[i].lease_ms);
    }
    if (apart)
        name_args(items, count, out);
}

/* ---- answers ----------------------------------------------------------- */

static void read_number(enum dibs__verb verb, int64_t num,
                        struct dibs__acquired *out)
{
    out->verdict = VERDICT_REFUSED;
    if (verb == VERB_HANDOVER) {
        out->verdict = num == ANSWER_MOVED ? VERDICT_TAKEN : VERDICT_GONE;
    } else if (num >= ANSWER_NO_END) {
        out->verdict = VERDICT_BUSY;
        out->busy_ms = dibs__reply_ms(num);
    } else if (num == ANSWER_GONE) {
        out->verdict = VERDICT_GONE;
    } else if (num == ANSWER_ITSELF) {
        out->err = DIBS_ERR_UPGRADE;
    } else if (num == ANSWER_NO_LOCK) {
        out->err = DIBS_ERR_WRONGTYPE;
    }
}

void dibs__read_plain(enum dibs__verb verb, const struct dibs__reply *reply,
                      struct dibs__acquired *out)
{
    *out = (struct dibs__acquired){.verdict = VERDICT_REFUSED,
                                   .err = DIBS_ERR_PROTOCOL};
    if (reply->type == REPLY_NIL && verb == VERB_ACQUIRE)
        out->verdict = VERDICT_TAKEN;
    else if (reply->type == REPLY_NUM)
        read_number(verb, reply->num, out);
}

int64_t dibs__pause_usual(const struct dibs__line *line, int64_t busy_ms)
{
    int64_t longest = dibs__random_in(PAUSE_MIN_MS, PAUSE_MAX_MS);

    (void)line;
    return busy_ms < 0 ? longest : dibs__min(busy_ms + 1, longest);
}
