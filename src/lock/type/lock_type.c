/* SPDX-License-Identifier: MIT
 *
 * lock_type.c - codecs that the lock types share: commands, owner names,
 * replies.
 *
 * Thread  any.
 */
#include "lock/type/lock_type.h"

#include "lock/core/lock_manager.h"
#include "lock/type/permit_id.h"

#include <stdio.h>
#include <string.h>

#define HOLDERS_MAX  10000
#define INFO_MAX     32   /* holders in the reply to INFO */
#define PAUSE_MIN_MS 1500 /* upper bound of a pause, chosen at random */
#define PAUSE_MAX_MS 2500 /* between these two */
#define GATE_MS      2500
#define READ_TAIL    ":rwlock_timeout:" /* a number follows */
#define WRITE_SUFFIX ":write"

/* ---- owners and names -------------------------------------------------- */

static size_t owner_write(const struct dibs__lock_entry *entry,
                          uint64_t owner_id, const char *suffix,
                          char buf[DIBS_OWNER_MAX])
{
    struct dibs__owner_name name;
    bool adopted =
        dibs__adopted_find(&entry->manager->adopted, owner_id, &name);
    int n = snprintf(buf, DIBS_OWNER_MAX, "%s:%llu%s",
                     adopted ? name.uuid : entry->manager->c->id,
                     (unsigned long long)(adopted ? name.number : owner_id),
                     suffix);

    return n > 0 ? (size_t)n : 0;
}

size_t dibs__owner_text(const struct dibs__lock_entry *entry, uint64_t owner_id,
                        char buf[DIBS_OWNER_MAX])
{
    return owner_write(entry, owner_id, entry->type->owner_suffix, buf);
}

/* Returns the length without the suffix ":write". */
static size_t reader_length(const char *text, size_t len)
{
    size_t n = strlen(WRITE_SUFFIX);

    return len > n && memcmp(text + len - n, WRITE_SUFFIX, n) == 0 ? len - n
                                                                   : len;
}

/* Appends args.text if set, else "uuid:owner_id"; empty if owner_id is 0. */
static void owner_arg(struct dibs__buf *out,
                      const struct dibs__command_args *args, uint64_t owner_id,
                      bool reader)
{
    char text[DIBS_OWNER_MAX];

    if (args->text)
        dibs__buf_arg(out, args->text,
                      reader ? reader_length(args->text, args->text_len)
                             : args->text_len);
    else
        dibs__buf_arg(out, text,
                      owner_id ? owner_write(args->entry, owner_id, "", text)
                               : 0);
}

void dibs__suffix_arg(struct dibs__buf *out,
                      const struct dibs__lock_entry *entry, const char *one,
                      const char *two)
{
    dibs__buf_arg_open(out, dibs__entry_hash_tag_len(entry) + 1 + strlen(one) +
                                strlen(two));
    dibs__entry_hash_tag(entry, out);
    dibs__buf_add(out, ":", 1);
    dibs__buf_text(out, one);
    dibs__buf_text(out, two);
    dibs__buf_arg_close(out);
}

/* Every read key is "{name}:" + owner + READ_TAIL + number. */
static void read_begin_arg(struct dibs__buf *out,
                           const struct dibs__lock_entry *entry)
{
    dibs__buf_arg_open(out, dibs__entry_hash_tag_len(entry) + 1);
    dibs__entry_hash_tag(entry, out);
    dibs__buf_add(out, ":", 1);
    dibs__buf_arg_close(out);
}

static void read_key_arg(struct dibs__buf *out,
                         const struct dibs__command_args *args)
{
    char text[DIBS_OWNER_MAX];
    size_t owner_len = args->text_len;
    const char *owner = args->text;

    if (!owner) {
        owner = text;
        owner_len = owner_write(args->entry, args->owner_id, "", text);
    }
    owner_len = reader_length(owner, owner_len);
    dibs__buf_arg_open(out, dibs__entry_hash_tag_len(args->entry) + 1 +
                                owner_len + strlen(READ_TAIL) + 1);
    dibs__entry_hash_tag(args->entry, out);
    dibs__buf_add(out, ":", 1);
    dibs__buf_add(out, owner, owner_len);
    dibs__buf_text(out, READ_TAIL "1");
    dibs__buf_arg_close(out);
}

/* ---- publish commands -------------------------------------------------- */

static unsigned publish_modes(const struct dibs__lock_entry *entry)
{
    const dibs_client *c = dibs__entry_client(entry);

    return c->cluster ? dibs__client_pubsub_mode(c) : 0;
}

size_t dibs__publish_arg_count(const struct dibs__lock_entry *entry)
{
    unsigned modes = publish_modes(entry);

    return (modes & PUBSUB_SHARDED ? 1u : 0u) +
           (modes & PUBSUB_CLASSIC ? 1u : 0u);
}

static void publish_args(struct dibs__buf *out,
                         const struct dibs__lock_entry *entry)
{
    unsigned modes = publish_modes(entry);

    if (modes & PUBSUB_SHARDED)
        dibs__buf_arg_text(out, "spublish");
    if (modes & PUBSUB_CLASSIC)
        dibs__buf_arg_text(out, "publish");
}

/* ---- commands ---------------------------------------------------------- */

/* Keys prefix:{name}, by param. */
static const char *const key_prefixes[128] = {
    [PARAM_QUEUE] = "redisson_lock_queue",
    [PARAM_QUEUE_SCORES] = "redisson_lock_timeout",
    [PARAM_UNRESPONSIVE] = "dibs_lock_silent",
    [PARAM_GATE] = "dibs_rwlock_gate",
    [PARAM_LAST_TOKEN] = "redisson_lock_token",
    [PARAM_HOLDER_VALUE] = "dibs_lock_value",
};

/* Keys {name}:suffix, by param. */
static const char *const key_suffixes[128] = {
    [PARAM_PERMITS] = "timeout",
    [PARAM_SLOTS] = "dibs_slot",
    [PARAM_LEDGER] = "dibs_held",
};

static const char *const registration_texts[] = {
    [REG_NONE] = "",
    [REG_NEW] = "new",
    [REG_REFRESH] = "again",
    [REG_WOKEN] = "called",
    [REG_EXTERNAL_RELEASE] = "foreign",
};

/* Part of the wake-up channel behind the client's id. Plain and fenced locks of
 * one name share a queue on the server, and a client may wait for both, so each
 * type has a channel of its own. With the closing brace an ACL pattern such as
 * "prefix:{jobs:*}" matches the channel. */
static const char *wake_channel_tail(const struct dibs__lock_entry *entry)
{
    bool braced = dibs__entry_hash_tag_len(entry) > entry->name_len ||
                  entry->name[entry->name_len - 1] == '}';

    if (entry->type->id == TYPE_FENCED)
        return braced ? ":f}" : ":f";
    return braced ? "}" : "";
}

void dibs__client_channel(const struct dibs__lock_entry *entry,
                          struct dibs__buf *out)
{
    dibs__entry_channel(entry, out);
    dibs__buf_text(out, ":");
    dibs__buf_text(out, entry->manager->c->id);
    dibs__buf_text(out, wake_channel_tail(entry));
}

static void wake_channel_arg(struct dibs__buf *out,
                             const struct dibs__lock_entry *entry)
{
    dibs__buf_arg_open(out, dibs__entry_key_len(entry, entry->type->channel) +
                                1 + strlen(entry->manager->c->id) +
                                strlen(wake_channel_tail(entry)));
    dibs__client_channel(entry, out);
    dibs__buf_arg_close(out);
}

/* Appends a name, channel or owner. Returns false for others. */
static bool name_param_write(char param, const struct dibs__command_args *args,
                             struct dibs__buf *out)
{
    const struct dibs__lock_entry *entry = args->entry;

    switch (param) {
    case PARAM_NAME:
        dibs__buf_arg(out, entry->name, entry->name_len);
        break;
    case PARAM_CHANNEL:
        dibs__entry_key_arg(entry, entry->type->channel, out);
        break;
    case PARAM_WAITER_CHANNEL:
        dibs__buf_arg_open(
            out, dibs__entry_key_len(entry, entry->type->channel) + 1);
        dibs__entry_channel(entry, out);
        dibs__buf_text(out, ":");
        dibs__buf_arg_close(out);
        break;
    case PARAM_CLIENT_CHANNEL:
        wake_channel_arg(out, entry);
        break;
    case PARAM_REGISTRATION:
        dibs__buf_arg_text(out, registration_texts[args->registration]);
        break;
    case PARAM_READ_KEY:
        read_key_arg(out, args);
        break;
    case PARAM_READ_KEY_HEAD:
        read_begin_arg(out, entry);
        break;
    case PARAM_READ_KEY_TAIL:
        dibs__buf_arg_text(out, READ_TAIL);
        break;
    case PARAM_OWNER:
        owner_arg(out, args, args->owner_id, false);
        break;
    case PARAM_READER:
        owner_arg(out, args, args->owner_id, true);
        break;
    case PARAM_NEXT_OWNER:
        owner_arg(out, args, args->next_owner_id, false);
        break;
    case PARAM_OTHER_OWNER:
        owner_arg(out, args, args->other_id, false);
        break;
    case PARAM_PEER:
        owner_arg(out, args, args->peer_id_hint, false);
        break;
    case PARAM_PUBLISH:
        publish_args(out, entry);
        break;
    default:
        return false;
    }
    return true;
}

static void permit_arg(struct dibs__buf *out,
                       const struct dibs__lock_entry *entry, uint64_t owner_id)
{
    struct dibs__owner_name name;
    unsigned char id[DIBS__PERMIT_ID];
    bool adopted =
        dibs__adopted_find(&entry->manager->adopted, owner_id, &name);

    dibs__permit_id(adopted ? name.uuid : entry->manager->c->id,
                    adopted ? name.number : owner_id, id);
    dibs__buf_arg(out, id, sizeof id);
}

/* Appends args.text if set, else the permit id as hex. */
static void permit_hex_arg(struct dibs__buf *out,
                           const struct dibs__command_args *args)
{
    struct dibs__lock_manager *manager = args->entry->manager;
    struct dibs__owner_name name;
    char hex[2 * DIBS__PERMIT_ID];

    if (args->text) {
        dibs__buf_arg(out, args->text, args->text_len);
        return;
    }
    bool adopted = dibs__adopted_find(&manager->adopted, args->owner_id, &name);
    dibs__permit_hex(adopted ? name.uuid : manager->c->id,
                     adopted ? name.number : args->owner_id, hex);
    dibs__buf_arg(out, hex, sizeof hex);
}

/* Ledger entry of a semaphore: "permits:owner". */
static void ledger_entry_arg(struct dibs__buf *out,
                             const struct dibs__command_args *args)
{
    char owner[DIBS_OWNER_MAX], many[32];
    int n = snprintf(many, sizeof many, "%lld:", (long long)args->value);

    dibs__buf_arg_parts(out, many, (size_t)n, owner,
                        owner_write(args->entry, args->owner_id, "", owner));
}

/* Appends a parameter of permits. Returns false for others. */
static bool permit_param_write(char param,
                               const struct dibs__command_args *args,
                               struct dibs__buf *out)
{
    switch (param) {
    case PARAM_PERMIT_ID:
        permit_arg(out, args->entry, args->owner_id);
        break;
    case PARAM_NEXT_PERMIT_ID:
        permit_arg(out, args->entry, args->next_owner_id);
        break;
    case PARAM_PERMIT_HEX:
        permit_hex_arg(out, args);
        break;
    case PARAM_SLOT:
        if (args->value > 0)
            dibs__buf_arg_num(out, args->value - 1);
        else
            dibs__buf_arg_text(out, "");
        break;
    case PARAM_LEDGER_ENTRY:
        ledger_entry_arg(out, args);
        break;
    default:
        return false;
    }
    return true;
}

static int64_t number_param(char param, const struct dibs__command_args *args)
{
    const struct dibs__lock_manager *manager = args->entry->manager;

    switch (param) {
    case PARAM_TARGET_COUNT:
        return args->target_count;
    case PARAM_LEASE:
        return args->lease_ms;
    case PARAM_HOLD_OFF:
        return args->hold_off_ms;
    case PARAM_ENQUEUE:
        return args->enqueue;
    case PARAM_ALL:
        return args->all;
    case PARAM_FIRST:
        return args->first;
    case PARAM_COUNT:
        return args->count;
    case PARAM_GATE_TTL:
        return args->enqueue && !manager->prefer_readers ? GATE_MS : 0;
    case PARAM_FAIR_WAIT:
        return manager->fair_wait_ms;
    case PARAM_FAIR_CALL:
        return manager->fair_call_ms;
    case PARAM_HOLDERS_MAX:
        return HOLDERS_MAX;
    case PARAM_INFO_MAX:
        return INFO_MAX;
    case PARAM_SMALL_TOKENS:
        return manager->c->opts.small_tokens;
    case PARAM_SLOT_TOTAL:
        return atomic_load(&args->entry->slot_count);
    case PARAM_WANT_SLOT_TOTAL:
        return !atomic_load(&args->entry->slot_count_known);
    case PARAM_VALUE:
        return args->value;
    default:
        assert(param == PARAM_ZERO || param == PARAM_ONE);
        return param - PARAM_ZERO;
    }
}

void dibs__param_write(char param, const struct dibs__command_args *args,
                       struct dibs__buf *out)
{
    if (key_prefixes[param & 127])
        dibs__entry_key_arg(args->entry, key_prefixes[param & 127], out);
    else if (key_suffixes[param & 127])
        dibs__suffix_arg(out, args->entry, key_suffixes[param & 127], "");
    else if (!name_param_write(param, args, out) &&
             !permit_param_write(param, args, out))
        dibs__buf_arg_num(out, number_param(param, args));
}

/* Returns the list of the arguments that depend on args. */
static const char *optional_args(enum dibs__lock_command verb,
                                 const struct dibs__command_args *args)
{
    const struct dibs__lock_type *type = args->entry->type;

    if (verb == VERB_ACQUIRE && args->registration)
        return type->register_args;
    return verb == VERB_HANDOFF && args->shortens_ttl && type->shorten_args
               ? type->shorten_args
               : "";
}

/* Returns the number of parameters; PARAM_PUBLISH, always last, is not counted.
 */
static size_t count_before_publish(const char *params)
{
    return strcspn(params, DIBS__PARAMS(PARAM_PUBLISH));
}

void dibs__lock_command_encode(enum dibs__lock_command verb,
                               const struct dibs__command_args *args,
                               struct dibs__buf *out, bool whole)
{
    const struct dibs__lock_type *type = args->entry->type;
    const struct dibs__lock_command_spec *command = &type->command[verb];
    const char *optional = optional_args(verb, args);
    size_t arg_count = count_before_publish(command->args),
           optional_count = count_before_publish(optional);
    bool publishes = command->args[arg_count] == PARAM_PUBLISH ||
                     optional[optional_count] == PARAM_PUBLISH;

    assert(dibs__lock_type_has(type, verb));
    dibs__script_head(
        out, command->script, whole, strlen(command->keys),
        arg_count + optional_count +
            (publishes ? dibs__publish_arg_count(args->entry) : 0));
    for (const char *at = command->keys; *at; at++)
        dibs__param_write(*at, args, out);
    for (size_t i = 0; i < arg_count; i++)
        dibs__param_write(command->args[i], args, out);
    for (size_t i = 0; i < optional_count; i++)
        dibs__param_write(optional[i], args, out);
    if (publishes)
        dibs__param_write(PARAM_PUBLISH, args, out);
}

static void renew_keys_write(const struct dibs__renew_item *items, size_t count,
                             struct dibs__buf *out)
{
    for (size_t i = 0; i < count; i++) {
        struct dibs__command_args args = {.entry = items[i].entry,
                                          .owner_id = items[i].owner_id};
        for (const char *at = args.entry->type->renew_keys; *at; at++)
            dibs__param_write(*at, &args, out);
    }
}

/* The argument that identifies the hold. */
static void renew_id_arg(const struct dibs__renew_item *item,
                         struct dibs__buf *out)
{
    struct dibs__command_args args = {
        .entry = item->entry, .owner_id = item->owner_id, .value = item->value};
    char text[DIBS_OWNER_MAX];

    if (item->entry->type->renew_arg)
        dibs__param_write(item->entry->type->renew_arg, &args, out);
    else
        dibs__buf_arg(out, text,
                      dibs__owner_text(item->entry, item->owner_id, text));
}

/* In a cluster the keys of several holds may be in different slots, which one
 * command must not have as KEYS: they are passed as arguments. */
void dibs__renew_command_encode(const struct dibs__renew_item *items,
                                size_t count, struct dibs__buf *out, bool whole)
{
    const struct dibs__lock_type *type = items[0].entry->type;
    bool keys_as_args =
        count > 1 && dibs__entry_client(items[0].entry)->cluster;
    size_t keys = strlen(type->renew_keys) * count;

    dibs__script_head(out, type->renew_script, whole, keys_as_args ? 0 : keys,
                      2 * count + (keys_as_args ? keys : 0));
    if (!keys_as_args)
        renew_keys_write(items, count, out);
    for (size_t i = 0; i < count; i++) {
        renew_id_arg(&items[i], out);
        dibs__buf_arg_num(out, items[i].lease_ms);
    }
    if (keys_as_args)
        renew_keys_write(items, count, out);
}

unsigned dibs__tracking_reads_encode(const struct dibs__renew_item *items,
                                     size_t count, struct dibs__buf *out)
{
    const struct dibs__lock_type *type = items[0].entry->type;
    bool one_per_hold = dibs__entry_client(items[0].entry)->cluster;
    size_t each = one_per_hold ? 1 : count;
    unsigned commands = 0;

    for (size_t i = 0; i < count; i += each, commands++) {
        dibs__key_tracking_append_caching(out);
        dibs__buf_array(out, 1 + strlen(type->renew_keys) * each);
        dibs__buf_arg_text(out, "EXISTS");
        renew_keys_write(&items[i], each, out);
    }
    return commands;
}

/* ---- replies ----------------------------------------------------------- */

static void decode_number(enum dibs__lock_command verb, int64_t num,
                          struct dibs__acquire_outcome *out)
{
    out->result = RESULT_REFUSED;
    if (verb == VERB_HANDOFF) {
        out->result =
            num == SCRIPT_MOVED ? RESULT_ACQUIRED : RESULT_OUTER_HOLD_LOST;
    } else if (num >= SCRIPT_BUSY_NO_TTL) {
        out->result = RESULT_BUSY;
        out->retry_after_ms = dibs__reply_ms(num);
    } else if (num == SCRIPT_UNSET) {
        out->result = RESULT_BUSY;
        out->retry_after_ms = SCRIPT_BUSY_NO_TTL;
    } else if (num == SCRIPT_OUTER_HOLD_LOST) {
        out->result = RESULT_OUTER_HOLD_LOST;
    } else if (num == SCRIPT_SELF_DEADLOCK) {
        out->err = DIBS_ERR_UPGRADE;
    } else if (num == SCRIPT_WRONG_TYPE) {
        out->err = DIBS_ERR_WRONGTYPE;
    }
}

/* Busy, with the reply to the registration. */
static void decode_registration(const struct dibs__reply *reply,
                                struct dibs__acquire_outcome *out)
{
    int64_t ms, registration;

    if (!dibs__reply_num(reply, 0, &ms) ||
        !dibs__reply_num(reply, 1, &registration) || ms < SCRIPT_BUSY_NO_TTL ||
        registration < REG_REJECTED || registration > REG_DESIGNATED_LISTENER)
        return;
    out->result = RESULT_BUSY;
    out->retry_after_ms = dibs__reply_ms(ms);
    out->registration = (enum dibs__reg_reply)registration;
}

void dibs__decode_plain_reply(enum dibs__lock_command verb,
                              const struct dibs__reply *reply,
                              struct dibs__acquire_outcome *out)
{
    *out = (struct dibs__acquire_outcome){.result = RESULT_REFUSED,
                                          .err = DIBS_ERR_PROTOCOL};
    if (reply->type == REPLY_NIL && verb == VERB_ACQUIRE)
        out->result = RESULT_ACQUIRED;
    else if (reply->type == REPLY_NUM)
        decode_number(verb, reply->num, out);
    else if (reply->type == REPLY_ARRAY)
        decode_registration(reply, out);
}

int64_t dibs__parse_number(const char *text, const char *end)
{
    int64_t n = 0;

    for (; text < end && *text >= '0' && *text <= '9'; text++) {
        int digit = *text - '0';
        if (n > INT64_MAX / 10 ||
            (n == INT64_MAX / 10 && digit > INT64_MAX % 10))
            return INT64_MAX;
        n = n * 10 + digit;
    }
    return n;
}

void dibs__decode_numbered_reply(enum dibs__lock_command verb,
                                 const struct dibs__reply *reply,
                                 struct dibs__acquire_outcome *out)
{
    dibs__decode_plain_reply(verb, reply, out);
    if (reply->type == REPLY_TEXT) {
        out->result = RESULT_ACQUIRED;
        out->value = dibs__parse_number(reply->text, reply->text + reply->len);
    }
}

int64_t dibs__retry_delay_default(const struct dibs__lock_entry *entry,
                                  int64_t busy_ms)
{
    int64_t longest = dibs__random_in(PAUSE_MIN_MS, PAUSE_MAX_MS);

    (void)entry;
    return busy_ms < 0 ? longest : dibs__min(busy_ms + 1, longest);
}
