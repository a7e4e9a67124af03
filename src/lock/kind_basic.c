/* SPDX-License-Identifier: MIT
 *
 * kind_basic.c - the plain re-entrant lock.
 *
 * On the server a hash under the lock's own name, with one field: the owner,
 * and how often it holds. The hash always has a TTL. A message on the channel
 * tells that it is gone. The names are Redisson's, so is the hash; the scripts
 * are ours.
 *
 * Thread  any.
 */
#include "client/script.h"
#include "lock/kind.h"
#include "lock/line.h"

#include <stdio.h>
#include <string.h>

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

size_t dibs__publish_count(const struct dibs__line *line)
{
    const dibs_client *c = dibs__line_client(line);
    unsigned how = c->cluster ? dibs__client_flavour(c) : 0;

    return (how & FLAVOUR_SHARDED ? 1u : 0u) +
           (how & FLAVOUR_CLASSIC ? 1u : 0u);
}

void dibs__publish_args(struct dibs__buf *out, const struct dibs__line *line)
{
    const dibs_client *c = dibs__line_client(line);
    unsigned how = c->cluster ? dibs__client_flavour(c) : 0;

    if (how & FLAVOUR_SHARDED)
        dibs__buf_arg_text(out, "spublish");
    if (how & FLAVOUR_CLASSIC)
        dibs__buf_arg_text(out, "publish");
}

bool dibs__renews_apart(const struct dibs__renew_item *items, size_t count)
{
    return count > 1 && dibs__line_client(items[0].line)->cluster;
}

static void head(struct dibs__buf *out, const struct dibs__script *script,
                 bool whole, const struct dibs__line *line, size_t args)
{
    dibs__script_head(out, script, whole, 1, args);
    dibs__buf_arg(out, line->name, line->name_len);
}

/* An argument and not a key, so that whoever may use the lock's key may also
 * give it back. It is the last but for how to publish. */
static void channel(struct dibs__buf *out, const struct dibs__line *line)
{
    dibs__buf_arg(out, line->channel, line->channel_len);
    dibs__publish_args(out, line);
}

static void basic_write(enum dibs__verb verb, const struct dibs__ask *ask,
                        struct dibs__buf *out, bool whole)
{
    struct dibs__ask next_owner = {.line = ask->line, .wire = ask->next_owner};
    size_t more = dibs__publish_count(ask->line);

    switch (verb) {
    case VERB_ACQUIRE:
        head(out, &dibs__script_basic_acquire, whole, ask->line, 3);
        dibs__owner_arg(out, ask);
        dibs__buf_arg_num(out, ask->target);
        dibs__buf_arg_num(out, ask->lease_ms);
        break;
    case VERB_RELEASE:
        head(out, &dibs__script_basic_release, whole, ask->line, 4 + more);
        dibs__owner_arg(out, ask);
        dibs__buf_arg_num(out, ask->target);
        dibs__buf_arg_num(out, ask->keep_ms);
        channel(out, ask->line);
        break;
    case VERB_HANDOVER:
        head(out, &dibs__script_basic_handover, whole, ask->line, 3);
        dibs__owner_arg(out, ask);
        dibs__owner_arg(out, &next_owner);
        dibs__buf_arg_num(out, ask->lease_ms);
        break;
    case VERB_FORCE:
        head(out, &dibs__script_basic_force, whole, ask->line, 2 + more);
        dibs__owner_arg(out, ask);
        channel(out, ask->line);
        break;
    case VERB_LEAVE: /* there is no queue */
    case VERB_INFO:
        head(out, &dibs__script_basic_info, whole, ask->line, 0);
        break;
    case VERB_HOLDERS:
        dibs__write_holders(ask->line, out, whole);
        break;
    }
}

static void names(const struct dibs__renew_item *items, size_t count,
                  struct dibs__buf *out)
{
    for (size_t i = 0; i < count; i++)
        dibs__buf_arg(out, items[i].line->name, items[i].line->name_len);
}

void dibs__write_renew(const struct dibs__renew_item *items, size_t count,
                       struct dibs__buf *out, bool whole)
{
    char text[DIBS_OWNER_MAX];

    bool apart = dibs__renews_apart(items, count);

    dibs__script_head(out, &dibs__script_basic_renew, whole, apart ? 0 : count,
                      (apart ? 3 : 2) * count);
    if (!apart)
        names(items, count, out);
    for (size_t i = 0; i < count; i++) {
        dibs__buf_arg(out, text,
                      dibs__owner_text(items[i].line, items[i].wire, text));
        dibs__buf_arg_num(out, items[i].lease_ms);
    }
    if (apart)
        names(items, count, out);
}

const struct dibs__kind dibs__kind_basic = {
    .channel = "redisson_lock__channel",
    .suffix = "",
    .bit = 1,
    .sibling = &dibs__kind_fair,
    .hands_over = true,
    .renewal = RENEW_FIELD,
    .batch = 'p',
    .write = basic_write,
    .write_renew = dibs__write_renew,
};
