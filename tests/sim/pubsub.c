/* SPDX-License-Identifier: MIT
 *
 * pubsub.c - channels: plain ones, patterns, and those of a cluster's slots.
 *
 * Each session knows what it listens to, each channel who listens. A message
 * goes to all who listen to its channel, in the order in which they came, then
 * to all whose pattern fits. (A real server has another order among several
 * clients; each has its own connection, so nobody sees it.)
 */
#include "sim/impl.h"

#include <stdlib.h>

enum kind { CHANNEL, PATTERN, SHARD };

static struct sr_dict *set_of(struct sr_session *c, enum kind kind)
{
    return kind == CHANNEL   ? &c->channels
           : kind == PATTERN ? &c->patterns
                             : &c->shards;
}

/* ---- who listens to a channel ------------------------------------------ */

static struct sr_str session_key(struct sr_session **c)
{
    return (struct sr_str){(char *)c, sizeof *c};
}

static void free_listeners(void *val)
{
    sr__dict_free(val, NULL);
    free(val);
}

static struct sr_dict *index_of(struct sr_server *s, enum kind kind)
{
    return &s->listeners[kind == SHARD];
}

static void channel_join(struct sr_session *c, enum kind kind,
                         struct sr_str channel)
{
    if (sr__dict_find(set_of(c, kind), channel))
        return;
    sr__dict_add(set_of(c, kind), channel, NULL);
    if (kind == PATTERN) {
        c->s->npatterns++;
        return;
    }
    struct sr_dict *who = sr__dict_get(index_of(c->s, kind), channel);
    if (!who) {
        who = sr__alloc(sizeof *who);
        sr__dict_add(index_of(c->s, kind), channel, who);
    }
    sr__dict_add(who, session_key(&c), c);
}

static void channel_leave(struct sr_session *c, enum kind kind,
                          struct sr_str channel)
{
    if (!sr__dict_find(set_of(c, kind), channel))
        return;
    struct sr_dict *who =
        kind == PATTERN ? NULL : sr__dict_get(index_of(c->s, kind), channel);
    if (who)
        sr__dict_del(who, session_key(&c));
    if (who && who->count == 0)
        free_listeners(sr__dict_del(index_of(c->s, kind), channel));
    c->s->npatterns -= kind == PATTERN;
    sr__dict_del(set_of(c, kind), channel); /* channel may be its key */
}

bool sr__subscribed(const struct sr_session *c)
{
    return c->channels.count + c->patterns.count + c->shards.count > 0;
}

void sr__pubsub_leave(struct sr_session *c)
{
    for (enum kind kind = CHANNEL; kind <= SHARD; kind++) {
        while (set_of(c, kind)->first)
            channel_leave(c, kind, set_of(c, kind)->first->key);
        sr__dict_free(set_of(c, kind), NULL);
    }
}

/* ---- coming and going -------------------------------------------------- */

static void confirm(struct sr_call *k, enum kind kind, const char *word,
                    const struct sr_str *channel)
{
    const struct sr_session *c = k->c;
    size_t n =
        kind == SHARD ? c->shards.count : c->channels.count + c->patterns.count;

    sr__reply_array(k, 3);
    sr__reply_text(k, word);
    if (channel)
        sr__reply_str(k, *channel);
    else
        sr__reply_nil(k);
    sr__reply_int(k, (int64_t)n);
}

static void join(struct sr_call *k, enum kind kind, const char *word)
{
    for (int i = 1; i < k->argc; i++) {
        channel_join(k->c, kind, k->argv[i]);
        confirm(k, kind, word, &k->argv[i]);
    }
}

static void leave(struct sr_call *k, enum kind kind, const char *word)
{
    struct sr_dict *set = set_of(k->c, kind);

    if (k->argc == 1 && set->count == 0)
        confirm(k, kind, word, NULL);
    while (k->argc == 1 && set->first) {
        struct sr_str channel = sr__copy(set->first->key);
        channel_leave(k->c, kind, channel);
        confirm(k, kind, word, &channel);
        sr__str_free(&channel);
    }
    for (int i = 1; i < k->argc; i++) {
        channel_leave(k->c, kind, k->argv[i]);
        confirm(k, kind, word, &k->argv[i]);
    }
}

static void cmd_subscribe(struct sr_call *k)
{
    join(k, CHANNEL, "subscribe");
}

static void cmd_unsubscribe(struct sr_call *k)
{
    leave(k, CHANNEL, "unsubscribe");
}

static void cmd_psubscribe(struct sr_call *k)
{
    join(k, PATTERN, "psubscribe");
}

static void cmd_punsubscribe(struct sr_call *k)
{
    leave(k, PATTERN, "punsubscribe");
}

static void cmd_ssubscribe(struct sr_call *k)
{
    join(k, SHARD, "ssubscribe");
}

static void cmd_sunsubscribe(struct sr_call *k)
{
    leave(k, SHARD, "sunsubscribe");
}

/* The slot is another node's by now. */
void sr__pubsub_slot_gone(struct sr_server *s, int slot)
{
    for (struct sr_session *c = s->sessions; c; c = c->next)
        for (struct sr_entry *e = c->shards.first, *next; e; e = next) {
            next = e->next;
            if (sr_key_slot(e->key.p, e->key.n) != slot)
                continue;
            sr__buf_text(&c->out, "*3\r\n$12\r\nsunsubscribe\r\n");
            sr__out_bulk(&c->out, e->key);
            sr__buf_fmt(&c->out, ":%zu\r\n", c->shards.count - 1);
            sr__touch(c);
            channel_leave(c, SHARD, e->key);
        }
}

/* ---- messages ---------------------------------------------------------- */

static int64_t tell(struct sr_server *s, enum kind kind, struct sr_str channel,
                    struct sr_str message)
{
    int64_t heard = 0;
    const struct sr_dict *who = sr__dict_get(index_of(s, kind), channel);

    for (const struct sr_entry *e = who ? who->first : NULL; e; e = e->next) {
        struct sr_session *c = e->val;
        sr__touch(c);
        sr__buf_text(&c->out, kind == SHARD ? "*3\r\n$8\r\nsmessage\r\n"
                                            : "*3\r\n$7\r\nmessage\r\n");
        sr__out_bulk(&c->out, channel);
        sr__out_bulk(&c->out, message);
        heard++;
    }
    s->messages += (uint64_t)heard;
    return heard;
}

int64_t sr__publish(struct sr_server *s, struct sr_str channel,
                    struct sr_str message)
{
    int64_t heard = tell(s, CHANNEL, channel, message);

    for (struct sr_session *c = s->sessions; c && s->npatterns; c = c->next)
        for (const struct sr_entry *e = c->patterns.first; e; e = e->next) {
            if (!sr__glob(e->key, channel))
                continue;
            sr__touch(c);
            sr__buf_text(&c->out, "*4\r\n$8\r\npmessage\r\n");
            sr__out_bulk(&c->out, e->key);
            sr__out_bulk(&c->out, channel);
            sr__out_bulk(&c->out, message);
            heard++;
        }
    return heard;
}

static void cmd_publish(struct sr_call *k)
{
    sr__reply_int(k, sr__publish(k->s, k->argv[1], k->argv[2]));
    k->changed = true; /* replicas have listeners, too */
    if (k->s->published) {
        struct sr_str channel = sr__copy(k->argv[1]);
        struct sr_str message = sr__copy(k->argv[2]);
        k->s->published(k->s->published_arg, k->s, channel.p, message.p);
        sr__str_free(&channel);
        sr__str_free(&message);
    }
}

void sr_on_publish(struct sr_server *s, sr_published_fn *fn, void *arg)
{
    s->published = fn;
    s->published_arg = arg;
}

void sr_message(struct sr_server *s, const char *channel, const char *message)
{
    sr__publish(s, sr__view(channel), sr__view(message));
}

static void cmd_spublish(struct sr_call *k)
{
    sr__reply_int(k, tell(k->s, SHARD, k->argv[1], k->argv[2]));
    k->changed = true;
}

/* ---- questions --------------------------------------------------------- */

static void reply_names(struct sr_call *k, enum kind kind)
{
    struct sr_dict names = {0};
    struct sr_str all = sr__view("*");

    for (struct sr_session *c = k->s->sessions; c; c = c->next)
        for (const struct sr_entry *e = set_of(c, kind)->first; e; e = e->next)
            if (sr__glob(k->argc > 2 ? k->argv[2] : all, e->key) &&
                !sr__dict_find(&names, e->key))
                sr__dict_add(&names, e->key, NULL);
    sr__reply_array(k, names.count);
    for (const struct sr_entry *e = names.first; e; e = e->next)
        sr__reply_str(k, e->key);
    sr__dict_free(&names, NULL);
}

static void cmd_pubsub_channels(struct sr_call *k)
{
    reply_names(k, CHANNEL);
}

static void cmd_pubsub_shardchannels(struct sr_call *k)
{
    reply_names(k, SHARD);
}

static void reply_counts(struct sr_call *k, enum kind kind)
{
    sr__reply_array(k, 2 * (size_t)(k->argc - 2));
    for (int i = 2; i < k->argc; i++) {
        int64_t n = 0;
        for (struct sr_session *c = k->s->sessions; c; c = c->next)
            n += sr__dict_find(set_of(c, kind), k->argv[i]) != NULL;
        sr__reply_str(k, k->argv[i]);
        sr__reply_int(k, n);
    }
}

static void cmd_pubsub_numsub(struct sr_call *k)
{
    reply_counts(k, CHANNEL);
}

static void cmd_pubsub_shardnumsub(struct sr_call *k)
{
    reply_counts(k, SHARD);
}

static void cmd_pubsub_numpat(struct sr_call *k)
{
    struct sr_dict names = {0};

    for (struct sr_session *c = k->s->sessions; c; c = c->next)
        for (const struct sr_entry *e = c->patterns.first; e; e = e->next)
            if (!sr__dict_find(&names, e->key))
                sr__dict_add(&names, e->key, NULL);
    sr__reply_int(k, (int64_t)names.count);
    sr__dict_free(&names, NULL);
}

#define LISTEN                                                                 \
    (SR_PUBSUB | SR_NOSCRIPT | SR_IN_PUBSUB | SR_IN_LOADING | SR_IN_STALE |    \
     SR_SENTINEL)
#define SPEAK (SR_PUBSUB | SR_REPLICATES | SR_IN_LOADING | SR_IN_STALE)
#define ASK   (SR_PUBSUB | SR_IN_LOADING | SR_IN_STALE | SR_SENTINEL)

const struct sr_command sr__pubsub_commands[] = {
    {"subscribe", cmd_subscribe, -2, LISTEN | SR_CHANNELS, 0, 0, 0},
    {"unsubscribe", cmd_unsubscribe, -1, LISTEN, 0, 0, 0},
    {"psubscribe", cmd_psubscribe, -2, LISTEN | SR_PATTERNS, 0, 0, 0},
    {"punsubscribe", cmd_punsubscribe, -1, LISTEN, 0, 0, 0},
    {"ssubscribe", cmd_ssubscribe, -2, LISTEN | SR_CHANNELS | SR_SHARDED, 0, 0,
     0},
    {"sunsubscribe", cmd_sunsubscribe, -1, LISTEN | SR_SHARDED, 0, 0, 0},
    {"publish", cmd_publish, 3, SPEAK | SR_CHANNEL | SR_SENTINEL, 0, 0, 0},
    {"spublish", cmd_spublish, 3, SPEAK | SR_CHANNEL | SR_SHARDED, 0, 0, 0},
    {"pubsub", NULL, -2, ASK | SR_CONTAINER, 0, 0, 0},
    {"pubsub|channels", cmd_pubsub_channels, -2, ASK, 0, 0, 0},
    {"pubsub|shardchannels", cmd_pubsub_shardchannels, -2, ASK, 0, 0, 0},
    {"pubsub|numsub", cmd_pubsub_numsub, -2, ASK, 0, 0, 0},
    {"pubsub|shardnumsub", cmd_pubsub_shardnumsub, -2, ASK, 0, 0, 0},
    {"pubsub|numpat", cmd_pubsub_numpat, 2, ASK, 0, 0, 0},
    {0}};
