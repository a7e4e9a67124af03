/* SPDX-License-Identifier: MIT
 *
 * kind_rw.c - the two halves of the read-write lock.
 *
 * One hash for both, with a field `mode`: read or write. A reader is a field
 * like that of a plain lock, and beside it a read key whose life is the
 * reader's lease: readers come and go, so the hash's own TTL cannot tell whose
 * is over. A writer is a field with ":write" behind its name. Redisson keeps a
 * read key for each of a reader's holds, numbered from 1; it is content with
 * one that lives, so here number 1 serves all of them. Whether somebody else's
 * reader lives is asked of all its numbers.
 *
 * A writer that waits leaves a key, the gate, that keeps new readers of ours
 * out. It lives only a little longer than a writer sleeps between two
 * questions, so a dead writer keeps nobody out for long. Redisson's readers do
 * not know of it.
 *
 * Thread  any.
 */
#include "client/script.h"
#include "lock/kind.h"
#include "lock/line.h"
#include "lock/locks.h"

#include <string.h>

#define CHANNEL   "redisson_rwlock"
#define GATE      "dibs_rwlock_gate"
#define READ_TAIL ":rwlock_timeout:" /* a number follows */
#define GATE_MS   2500
#define NAP_MS    1000

/* ":{name}", which is behind the prefix of the channel's name. */
static const char *tag(const struct dibs__line *line, size_t *len)
{
    size_t skip = strlen(line->kind->channel);

    *len = line->channel_len - skip;
    return line->channel + skip;
}

/* "{name}:", with which every read key begins; an owner follows, then the
 * tail. */
static void read_head(struct dibs__buf *out, const struct dibs__line *line)
{
    size_t len;
    const char *t = tag(line, &len);

    dibs__buf_arg_parts(out, t + 1, len - 1, ":", 1);
}

static void read_ends(struct dibs__buf *out, const struct dibs__line *line)
{
    read_head(out, line);
    dibs__buf_arg_text(out, READ_TAIL);
}

/* Without ":write", if it is there. */
static size_t reader_length(const char *text, size_t len)
{
    const char *suffix = dibs__kind_write.suffix;
    size_t n = strlen(suffix);

    return len > n && memcmp(text + len - n, suffix, n) == 0 ? len - n : len;
}

/* The read key of the owner that ask is about. */
static void read_key(struct dibs__buf *out, const struct dibs__ask *ask)
{
    char text[DIBS_OWNER_MAX];
    size_t len;
    const char *t = tag(ask->line, &len);
    const char *owner = ask->text;
    size_t owner_len = ask->text_len;

    if (!owner) {
        owner = text;
        owner_len = dibs__owner_text(ask->line, ask->wire, text);
    }
    owner_len = reader_length(owner, owner_len);
    dibs__buf_arg_open(out, len + owner_len + strlen(READ_TAIL) + 1);
    dibs__buf_add(out, t + 1, len - 1);
    dibs__buf_add(out, ":", 1);
    dibs__buf_add(out, owner, owner_len);
    dibs__buf_text(out, READ_TAIL "1");
    dibs__buf_arg_close(out);
}

static void gate_key(struct dibs__buf *out, const struct dibs__line *line)
{
    size_t len;
    const char *t = tag(line, &len);

    dibs__buf_arg_parts(out, GATE, strlen(GATE), t, len);
}

static void name_key(struct dibs__buf *out, const struct dibs__line *line)
{
    dibs__buf_arg(out, line->name, line->name_len);
}

static void channel(struct dibs__buf *out, const struct dibs__line *line)
{
    dibs__buf_arg(out, line->channel, line->channel_len);
}

void dibs__write_holders(const struct dibs__line *line, struct dibs__buf *out,
                         bool whole)
{
    dibs__script_head(out, &dibs__script_holders, whole, 1, 3);
    name_key(out, line);
    read_ends(out, line);
    dibs__buf_arg_num(out, 10000);
}

static void info(const struct dibs__line *line, struct dibs__buf *out,
                 bool whole)
{
    dibs__script_head(out, &dibs__script_basic_info, whole, 1, 0);
    name_key(out, line);
}

/* ---- reading ----------------------------------------------------------- */

/* Another reader, or nothing. */
static void other_arg(struct dibs__buf *out, const struct dibs__ask *ask)
{
    struct dibs__ask other = {.line = ask->line, .wire = ask->other};

    if (ask->other)
        dibs__owner_arg(out, &other);
    else
        dibs__buf_arg_text(out, "");
}

static void read_release(const struct dibs__ask *ask, struct dibs__buf *out,
                         bool whole)
{
    const struct dibs__line *line = ask->line;

    dibs__script_head(out, &dibs__script_read_release, whole, 3,
                      5 + dibs__publish_count(line));
    name_key(out, line);
    read_key(out, ask);
    channel(out, line);
    dibs__owner_arg(out, ask);
    dibs__buf_arg_num(out, ask->target);
    read_ends(out, line);
    other_arg(out, ask);
    dibs__publish_args(out, line);
}

/* One of ours is ended like any other, so that the end of many costs no more
 * than that of each; a stranger's, or all, by a script of its own. */
static void read_force(const struct dibs__ask *ask, struct dibs__buf *out,
                       bool whole)
{
    const struct dibs__line *line = ask->line;
    struct dibs__ask last = {.line = line, .wire = ask->wire};

    if (!ask->text && !ask->all) {
        read_release(&last, out, whole);
        return;
    }
    dibs__script_head(out, &dibs__script_read_force, whole, 3,
                      4 + dibs__publish_count(line));
    name_key(out, line);
    read_key(out, ask);
    channel(out, line);
    dibs__owner_arg(out, ask);
    read_ends(out, line);
    dibs__buf_arg_num(out, ask->all);
    dibs__publish_args(out, line);
}

static void read_write(enum dibs__verb verb, const struct dibs__ask *ask,
                       struct dibs__buf *out, bool whole)
{
    const struct dibs__line *line = ask->line;

    switch (verb) {
    case VERB_ACQUIRE:
        dibs__script_head(out, &dibs__script_read_acquire, whole, 3, 3);
        name_key(out, line);
        read_key(out, ask);
        gate_key(out, line);
        dibs__owner_arg(out, ask);
        dibs__buf_arg_num(out, ask->target);
        dibs__buf_arg_num(out, ask->lease_ms);
        break;
    case VERB_RELEASE:
        read_release(ask, out, whole);
        break;
    case VERB_HANDOVER: /* never: readers need not */
    case VERB_LEAVE:    /* never: nobody knows of a reader that waits */
    case VERB_FORCE:
        read_force(ask, out, whole);
        break;
    case VERB_INFO:
        info(line, out, whole);
        break;
    case VERB_HOLDERS:
        dibs__write_holders(line, out, whole);
        break;
    }
}

static void both_keys(const struct dibs__renew_item *items, size_t count,
                      struct dibs__buf *out)
{
    for (size_t i = 0; i < count; i++) {
        struct dibs__ask ask = {.line = items[i].line, .wire = items[i].wire};
        name_key(out, ask.line);
        read_key(out, &ask);
    }
}

static void read_write_renew(const struct dibs__renew_item *items, size_t count,
                             struct dibs__buf *out, bool whole)
{
    bool apart = dibs__renews_apart(items, count);

    dibs__script_head(out, &dibs__script_read_renew, whole,
                      apart ? 0 : 2 * count, (apart ? 4 : 2) * count);
    if (!apart)
        both_keys(items, count, out);
    for (size_t i = 0; i < count; i++) {
        struct dibs__ask ask = {.line = items[i].line, .wire = items[i].wire};
        dibs__owner_arg(out, &ask);
        dibs__buf_arg_num(out, items[i].lease_ms);
    }
    if (apart)
        both_keys(items, count, out);
}

const struct dibs__kind dibs__kind_read = {
    .channel = CHANNEL,
    .suffix = "",
    .bit = 4,
    .sibling = &dibs__kind_write,
    .shared = true,
    .renewal = RENEW_READ,
    .write = read_write,
    .write_renew = read_write_renew,
};

/* ---- writing ----------------------------------------------------------- */

static void write_leave(const struct dibs__ask *ask, struct dibs__buf *out,
                        bool whole, bool force)
{
    struct dibs__ask reader = *ask;

    if (ask->text)
        reader.text_len = reader_length(ask->text, ask->text_len);
    dibs__script_head(out, &dibs__script_write_leave, whole, 3,
                      2 + dibs__publish_count(ask->line));
    name_key(out, ask->line);
    channel(out, ask->line);
    gate_key(out, ask->line);
    dibs__owner_arg(out, &reader);
    dibs__buf_arg_num(out, force);
    dibs__publish_args(out, ask->line);
}

static void write_write(enum dibs__verb verb, const struct dibs__ask *ask,
                        struct dibs__buf *out, bool whole)
{
    const struct dibs__line *line = ask->line;
    bool gate = ask->stay && !line->locks->prefer_readers;

    switch (verb) {
    case VERB_ACQUIRE:
        dibs__script_head(out, &dibs__script_write_acquire, whole, 3, 6);
        name_key(out, line);
        read_key(out, ask);
        gate_key(out, line);
        dibs__owner_arg(out, ask);
        dibs__buf_arg_num(out, ask->target);
        dibs__buf_arg_num(out, ask->lease_ms);
        dibs__buf_arg_num(out, gate ? GATE_MS : 0);
        read_ends(out, line);
        break;
    case VERB_RELEASE:
        dibs__script_head(out, &dibs__script_write_release, whole, 3,
                          3 + dibs__publish_count(line));
        name_key(out, line);
        channel(out, line);
        gate_key(out, line);
        dibs__owner_arg(out, ask);
        dibs__buf_arg_num(out, ask->target);
        dibs__buf_arg_num(out, ask->keep_ms);
        dibs__publish_args(out, line);
        break;
    case VERB_HANDOVER: /* never: its owner may be reading too */
    case VERB_LEAVE:
    case VERB_FORCE:
        write_leave(ask, out, whole, verb == VERB_FORCE);
        break;
    case VERB_INFO:
        info(line, out, whole);
        break;
    case VERB_HOLDERS:
        dibs__write_holders(line, out, whole);
        break;
    }
}

const struct dibs__kind dibs__kind_write = {
    .channel = CHANNEL,
    .suffix = ":write",
    .bit = 8,
    .sibling = &dibs__kind_read,
    .leaves = true,
    .pause_ms = NAP_MS,
    .renewal = RENEW_FIELD,
    .batch = 'w',
    .gate = gate_key,
    .write = write_write,
    .write_renew = dibs__write_renew,
};
