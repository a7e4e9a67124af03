/* SPDX-License-Identifier: MIT
 *
 * doctor.c - dibs_client_doctor: checks whether a server suits locks.
 *
 * Thread  app.
 * Locks   none.
 *
 * How     The checks run one after the other. Each runs one or two commands,
 *         none of which modifies data, and reports a finding. If a command is
 *         refused and no other one has the same information (ROLE and CONFIG
 *         replace parts of INFO), the finding is "unknown". The server's clock
 *         is read first and last; its progress is compared with the local one.
 *
 * Verdicts  ok; note: worth knowing; warning: a failure may lose locks, or
 *         locks cost more than necessary; problem: locks do not work now, or
 *         not correctly.
 *
 * See     check_permissions.c for permissions, check_network.c for TLS,
 *         sentinels, cluster and the lock's key.
 */
#include "admin/check_context.h"

#include "base/api_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OLDEST_MAJOR        6 /* the oldest server with all commands: 6.2 */
#define OLDEST_MINOR        2
#define MAX_LAG_S           3      /* replicas report every second */
#define NEARLY_FULL_PERCENT 90     /* of maxmemory */
#define CLOCK_MIN_MS        250    /* between the two readings of the clock */
#define MAX_CLOCK_JUMP_US   100000 /* above it, the clock was stepped */
#define MAX_CLOCK_OFFSET_S  60     /* above it, the clock is not synchronized */
#define SLOW_REPLY_US       50000  /* round trip */
#define CLOCK_MAX_S         INT64_C(100000000000)
#define REPLICAS_MAX        1000 /* examined at most */

/* ---- configuration ----------------------------------------------------- */

static bool info_field_is(const struct dibs__check_ctx *ctx, const char *field,
                          const char *value)
{
    char buf[64];

    return strcmp(dibs__check_info_field(ctx, field, buf, sizeof buf), value) ==
           0;
}

/* Copies a setting to `buf` and returns it; "" if it is unknown. */
static const char *read_setting(struct dibs__check_ctx *ctx, const char *name,
                                char buf[], size_t size)
{
    buf[0] = '\0';
    if (DIBS__CHECK_QUERY(ctx, "CONFIG", "GET", name) == DIBS_OK &&
        ctx->reply.array)
        dibs__query_reply_line(&ctx->reply, 1, buf, size);
    return buf;
}

/* ---- version, role, replicas ------------------------------------------- */

static void check_version(struct dibs__check_ctx *ctx)
{
    char text[32];
    const char *brand = "Valkey";
    unsigned major = 0, minor = 0;

    dibs__check_info_field(ctx, "valkey_version", text, sizeof text);
    if (!text[0]) {
        brand = "Redis";
        dibs__check_info_field(ctx, "redis_version", text, sizeof text);
    }
    if (info_field_is(ctx, "redis_mode", "sentinel")) {
        dibs__check_report(
            ctx, "version", DIBS_VERDICT_PROBLEM,
            "%s %s as a sentinel: it has no keys, and so no locks", brand,
            text);
        return;
    }
    if (sscanf(text, "%u.%u", &major, &minor) < 1)
        dibs__check_report(ctx, "version", DIBS_VERDICT_NOTE,
                           "unknown, as INFO is refused: %s",
                           dibs__check_error(ctx));
    else if (major < OLDEST_MAJOR ||
             (major == OLDEST_MAJOR && minor < OLDEST_MINOR))
        dibs__check_report(ctx, "version", DIBS_VERDICT_PROBLEM,
                           "%s %s, older than %d.%d", brand, text, OLDEST_MAJOR,
                           OLDEST_MINOR);
    else
        dibs__check_report(ctx, "version", DIBS_VERDICT_OK, "%s %s", brand,
                           text);
}

static void check_role(struct dibs__check_ctx *ctx)
{
    char text[32], host[128], port[16], link[16];

    dibs__check_info_field(ctx, "role", text, sizeof text);
    if (!text[0] && DIBS__CHECK_QUERY(ctx, "ROLE") == DIBS_OK)
        dibs__query_reply_line(&ctx->reply, 0, text, sizeof text);
    ctx->is_replica = strcmp(text, "slave") == 0;
    if (strcmp(text, "master") == 0)
        dibs__check_report(ctx, "role", DIBS_VERDICT_OK, "master");
    else if (ctx->is_replica)
        dibs__check_report(
            ctx, "role", DIBS_VERDICT_PROBLEM,
            "a replica of %s:%s (link %s): locks are taken on the master",
            dibs__check_info_field(ctx, "master_host", host, sizeof host),
            dibs__check_info_field(ctx, "master_port", port, sizeof port),
            dibs__check_info_field(ctx, "master_link_status", link,
                                   sizeof link));
    else
        dibs__check_report(ctx, "role", DIBS_VERDICT_NOTE,
                           "unknown: both INFO and ROLE are refused");
}

/* Returns the number after `name` in a list such as
 * "ip=::1,state=online,lag=1", -1 if there is none. */
static int64_t parse_list_field(const char *list, const char *name)
{
    const char *at = strstr(list, name);

    return at ? dibs__check_parse_count(at + strlen(name)) : -1;
}

static void check_replicas(struct dibs__check_ctx *ctx)
{
    int64_t count = dibs__check_info_number(ctx, "connected_slaves"), worst = 0;
    int64_t offset = dibs__check_info_number(ctx, "master_repl_offset"),
            behind = 0;
    int64_t online = 0;
    char field[32], text[256];

    if (ctx->is_replica || !ctx->info.text.len)
        return;
    for (int i = 0; i < dibs__min(count, REPLICAS_MAX); i++) {
        snprintf(field, sizeof field, "slave%d", i);
        dibs__check_info_field(ctx, field, text, sizeof text);
        if (!strstr(text, "state=online"))
            continue;
        online++;
        worst = dibs__max(worst, parse_list_field(text, ",lag="));
        behind = dibs__max(behind, offset - parse_list_field(text, ",offset="));
    }
    if (count == 0)
        dibs__check_report(ctx, "replicas", DIBS_VERDICT_NOTE,
                           "none: if this server is lost, so are its locks");
    else if (online < count || worst > MAX_LAG_S)
        dibs__check_report(ctx, "replicas", DIBS_VERDICT_WARNING,
                           "%lld of %lld online, acknowledgements up to %lld s "
                           "old, %lld bytes behind: a failover loses locks",
                           (long long)online, (long long)count,
                           (long long)worst, (long long)behind);
    else
        dibs__check_report(
            ctx, "replicas", DIBS_VERDICT_OK,
            "%lld connected, acknowledgements at most %lld s old",
            (long long)count, (long long)worst);
}

/* ---- persistence, memory ----------------------------------------------- */

static void check_append_log(struct dibs__check_ctx *ctx)
{
    char fsync[16];

    read_setting(ctx, "appendfsync", fsync, sizeof fsync);
    ctx->is_persistent = true;
    if (info_field_is(ctx, "aof_last_write_status", "err"))
        dibs__check_report(
            ctx, "persistence", DIBS_VERDICT_PROBLEM,
            "the append-only file cannot be written: no lock can be taken");
    else if (strcmp(fsync, "always") == 0)
        dibs__check_report(ctx, "persistence", DIBS_VERDICT_OK,
                           "appendonly, appendfsync always");
    else if (strcmp(fsync, "no") == 0)
        dibs__check_report(ctx, "persistence", DIBS_VERDICT_WARNING,
                           "appendonly, appendfsync no: a crash of the machine "
                           "loses locks");
    else
        dibs__check_report(ctx, "persistence", DIBS_VERDICT_NOTE,
                           "appendonly, appendfsync %s: a crash of the machine "
                           "loses the locks of the last second or two",
                           fsync[0] ? fsync : "unknown");
}

static void check_persistence(struct dibs__check_ctx *ctx)
{
    char save[128];

    if (!ctx->info.text.len) {
        dibs__check_report(ctx, "persistence", DIBS_VERDICT_NOTE,
                           "unknown: INFO is refused");
        return;
    }
    if (dibs__check_info_number(ctx, "aof_enabled")) {
        check_append_log(ctx);
        return;
    }
    read_setting(ctx, "save", save, sizeof save);
    if (info_field_is(ctx, "rdb_last_bgsave_status", "err") && save[0])
        dibs__check_report(
            ctx, "persistence", DIBS_VERDICT_PROBLEM,
            "the last snapshot failed: by default no lock can be "
            "taken then");
    else if (save[0])
        dibs__check_report(ctx, "persistence", DIBS_VERDICT_WARNING,
                           "snapshots only: a crash brings back old locks, and "
                           "loses the new ones");
    else
        dibs__check_report(
            ctx, "persistence", DIBS_VERDICT_WARNING,
            "none%s: after a restart every lock is free, while "
            "its holder is still at work",
            ctx->reply.err == DIBS_OK ? "" : ", as far as can be seen");
}

static void check_eviction(struct dibs__check_ctx *ctx)
{
    char policy[32];
    int64_t max = dibs__check_info_number(ctx, "maxmemory");
    int64_t used = dibs__check_info_number(ctx, "used_memory");

    dibs__check_info_field(ctx, "maxmemory_policy", policy, sizeof policy);
    if (!policy[0])
        read_setting(ctx, "maxmemory-policy", policy, sizeof policy);
    if (!policy[0])
        dibs__check_report(ctx, "eviction", DIBS_VERDICT_NOTE,
                           "unknown: both INFO and CONFIG are refused");
    else if (strcmp(policy, "noeviction") != 0 && (max || !ctx->info.text.len))
        dibs__check_report(ctx, "eviction", DIBS_VERDICT_PROBLEM,
                           "maxmemory-policy %s: locks are evicted when memory "
                           "is short; set noeviction",
                           policy);
    else if (strcmp(policy, "noeviction") != 0)
        dibs__check_report(ctx, "eviction", DIBS_VERDICT_WARNING,
                           "maxmemory-policy %s, but no maxmemory: harmless "
                           "until one is set",
                           policy);
    else if (max && used >= max)
        dibs__check_report(ctx, "eviction", DIBS_VERDICT_PROBLEM,
                           "noeviction, and all of maxmemory is used: no lock "
                           "can be taken");
    else if (max && used / (max / 100 + 1) >= NEARLY_FULL_PERCENT)
        dibs__check_report(ctx, "eviction", DIBS_VERDICT_WARNING,
                           "noeviction, and %lld %% of maxmemory used: a full "
                           "server refuses new locks",
                           (long long)(used / (max / 100 + 1)));
    else
        dibs__check_report(ctx, "eviction", DIBS_VERDICT_OK,
                           "maxmemory-policy noeviction");
}

static void check_uptime(struct dibs__check_ctx *ctx)
{
    int64_t up = dibs__check_info_number(ctx, "uptime_in_seconds");
    int64_t lease = ctx->c->lease_ms;

    if (!ctx->info.text.len)
        return;
    if (up * 1000 >= lease)
        dibs__check_report(ctx, "uptime", DIBS_VERDICT_OK,
                           "%lld s, longer than a lease (%lld ms)",
                           (long long)up, (long long)lease);
    else if (ctx->is_persistent)
        dibs__check_report(ctx, "uptime", DIBS_VERDICT_NOTE,
                           "%lld s, less than a lease (%lld ms), but it keeps "
                           "its data",
                           (long long)up, (long long)lease);
    else
        dibs__check_report(ctx, "uptime", DIBS_VERDICT_WARNING,
                           "%lld s, less than a lease (%lld ms): a holder from "
                           "before may still be at work, unknown here",
                           (long long)up, (long long)lease);
}

/* ---- clock, latency ---------------------------------------------------- */

/* Returns the server's clock in microseconds, -1 if unknown. */
static int64_t read_clock(struct dibs__check_ctx *ctx)
{
    char s[24], us[24];

    if (DIBS__CHECK_QUERY(ctx, "TIME") != DIBS_OK || !ctx->reply.array)
        return -1;
    int64_t whole = dibs__check_parse_count(
        dibs__query_reply_line(&ctx->reply, 0, s, sizeof s));
    if (whole <= 0 || whole > CLOCK_MAX_S)
        return -1;
    return whole * 1000000 + dibs__check_parse_count(dibs__query_reply_line(
                                 &ctx->reply, 1, us, sizeof us));
}

static void read_clock_first(struct dibs__check_ctx *ctx)
{
    ctx->server_clock_us = read_clock(ctx);
    ctx->clock_read_us = (ctx->reply.sent_us + ctx->reply.received_us) / 2;
    ctx->clock_rtt_us = ctx->reply.received_us - ctx->reply.sent_us;
}

static int64_t wall_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void check_clock_jumps(struct dibs__check_ctx *ctx)
{
    int64_t left = ctx->clock_read_us / 1000 + CLOCK_MIN_MS - dibs__now_ms();

    if (left > 0)
        nanosleep(&(struct timespec){.tv_nsec = left * 1000000}, NULL);
    int64_t now = read_clock(ctx);
    int64_t at = (ctx->reply.sent_us + ctx->reply.received_us) / 2;
    int64_t rtt = ctx->reply.received_us - ctx->reply.sent_us;
    int64_t ours = at - ctx->clock_read_us, theirs = now - ctx->server_clock_us;
    if (now < 0 || ctx->server_clock_us < 0)
        dibs__check_report(ctx, "clock", DIBS_VERDICT_NOTE, "unknown: %s",
                           dibs__check_error(ctx));
    else if (llabs(theirs - ours) > MAX_CLOCK_JUMP_US + rtt + ctx->clock_rtt_us)
        dibs__check_report(ctx, "clock", DIBS_VERDICT_PROBLEM,
                           "it advanced %lld ms in %lld ms: leases end by this "
                           "clock; slew it, do not step it",
                           (long long)theirs / 1000, (long long)ours / 1000);
    else
        dibs__check_report(ctx, "clock", DIBS_VERDICT_OK,
                           "steady: it advanced %lld ms in %lld ms",
                           (long long)theirs / 1000, (long long)ours / 1000);
}

static void check_clock_offset(struct dibs__check_ctx *ctx)
{
    /* The local wall clock at that reading, to half a round trip. */
    int64_t ours = wall_us() - (dibs__now_us() - ctx->clock_read_us);
    int64_t ms = (ctx->server_clock_us - ours) / 1000;

    if (ctx->server_clock_us < 0)
        return;
    dibs__check_report(ctx, "offset",
                       llabs(ms) > MAX_CLOCK_OFFSET_S * 1000
                           ? DIBS_VERDICT_WARNING
                           : DIBS_VERDICT_OK,
                       "its clock is %lld ms %s ours, give or take %lld us%s",
                       (long long)llabs(ms), ms < 0 ? "behind" : "ahead of",
                       (long long)ctx->clock_rtt_us / 2,
                       llabs(ms) > MAX_CLOCK_OFFSET_S * 1000
                           ? ": dibs does not mind, but fair locks of "
                             "Redisson do"
                           : "");
}

static void check_latency(struct dibs__check_ctx *ctx)
{
    (void)DIBS__CHECK_QUERY(ctx, "PING"); /* a refusal has the same latency */
    int64_t us = ctx->reply.received_us - ctx->reply.sent_us;

    dibs__check_report(
        ctx, "latency",
        us > SLOW_REPLY_US ? DIBS_VERDICT_WARNING : DIBS_VERDICT_OK,
        "%lld.%03lld ms for an answer%s", (long long)us / 1000,
        (long long)us % 1000,
        us > SLOW_REPLY_US ? ": every step of a lock takes that long" : "");
}

/* ---- features ---------------------------------------------------------- */

static void check_scripting(struct dibs__check_ctx *ctx)
{
    if (DIBS__CHECK_QUERY(ctx, "EVAL", "return 1", "0") == DIBS_OK)
        dibs__check_report(ctx, "scripting", DIBS_VERDICT_OK, "a script runs");
    else
        dibs__check_report(ctx, "scripting", DIBS_VERDICT_PROBLEM,
                           "no script runs, and so no lock works: %s",
                           dibs__check_error(ctx));
}

static void check_pubsub(struct dibs__check_ctx *ctx)
{
    bool sharded = DIBS__CHECK_QUERY(ctx, "PUBSUB", "SHARDNUMSUB") == DIBS_OK;

    if (!sharded && ctx->reply.err == DIBS_ERR_AUTH)
        dibs__check_report(
            ctx, "pubsub", DIBS_VERDICT_OK,
            "%s channels; PUBSUB SHARDNUMSUB is refused, so sharded "
            "ones may be missing",
            dibs__client_pubsub_mode(ctx->c) & PUBSUB_SHARDED ? "sharded"
                                                              : "plain");
    else if (dibs__client_pubsub_mode(ctx->c) & PUBSUB_SHARDED)
        dibs__check_report(
            ctx, "pubsub", sharded ? DIBS_VERDICT_OK : DIBS_VERDICT_WARNING,
            sharded ? "sharded channels are used"
                    : "sharded channels are configured, but unknown here: "
                      "waiters are not woken, and poll every two seconds");
    else
        dibs__check_report(ctx, "pubsub", DIBS_VERDICT_OK,
                           "plain channels are used; sharded ones are %s",
                           sharded ? "known, too" : "unknown here");
}

/* Checks whether CLIENT TRACKING works: else a lost lock is detected late. */
static void check_tracking(struct dibs__check_ctx *ctx)
{
    const char *late = "a lost lock is detected at its next renewal only";
    char most[32];

    if (DIBS__CHECK_QUERY(ctx, "CLIENT", "TRACKINGINFO") != DIBS_OK) {
        if (ctx->reply.err == DIBS_ERR_AUTH)
            dibs__check_report(ctx, "tracking", DIBS_VERDICT_NOTE,
                               "unknown: CLIENT TRACKINGINFO is refused");
        else
            dibs__check_report(ctx, "tracking", DIBS_VERDICT_NOTE, "none: %s",
                               late);
        return;
    }
    int64_t keys = dibs__check_info_number(ctx, "tracking_total_keys");
    read_setting(ctx, "tracking-table-max-keys", most, sizeof most);
    int64_t limit = dibs__check_parse_count(most);
    if (limit > 0 && keys >= limit / 100 * NEARLY_FULL_PERCENT && keys > 0)
        dibs__check_report(ctx, "tracking", DIBS_VERDICT_WARNING,
                           "%lld of %lld keys that the server can track "
                           "(tracking-table-max-keys) are in use: %s",
                           (long long)keys, (long long)limit, late);
    else
        dibs__check_report(ctx, "tracking", DIBS_VERDICT_OK,
                           "a lost lock is detected at once");
}

static void check_wait(struct dibs__check_ctx *ctx)
{
    if (ctx->is_replica)
        return;
    if (DIBS__CHECK_QUERY(ctx, "WAIT", "0", "1") == DIBS_OK)
        dibs__check_report(ctx, "wait", DIBS_VERDICT_OK,
                           "replicas can be made to acknowledge a lock");
    else
        dibs__check_report(ctx, "wait", DIBS_VERDICT_NOTE,
                           "replicas cannot be made to acknowledge a lock: %s",
                           dibs__check_error(ctx));
}

/* ---- all checks -------------------------------------------------------- */

typedef void check_fn(struct dibs__check_ctx *ctx);

static check_fn *const checks[] = {
    check_version,       check_role,         check_replicas,
    check_persistence,   check_eviction,     check_uptime,
    check_latency,       check_scripting,    check_pubsub,
    check_tracking,      check_wait,         dibs__check_permissions,
    dibs__check_network, check_clock_offset, check_clock_jumps,
};

static dibs_err run_checks(struct dibs__check_ctx *ctx)
{
    read_clock_first(ctx); /* first: fails if the server is down */
    if (ctx->fatal_err)
        return ctx->fatal_err;
    dibs_err err =
        dibs__query(ctx->c, (const char *const[]){"INFO", NULL}, &ctx->info);
    if (!ctx->info.replied || err == DIBS_ERR_NOMEM)
        return err;
    if (err != DIBS_OK) { /* refused: continue with an empty INFO */
        struct dibs__query_reply refused = ctx->info;
        ctx->info = ctx->reply;
        ctx->reply = refused;
        dibs__buf_cut(&ctx->info.text, 0);
    }
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        checks[i](ctx);
        if (ctx->stopped)
            return DIBS_OK;
        if (ctx->fatal_err)
            return ctx->fatal_err;
    }
    return DIBS_OK;
}

static dibs_err check_doctor_args(const char *name, dibs_doctor_fn fn)
{
    if (!fn)
        return dibs__check_not_null("fn", NULL);
    if (name && (!*name || strlen(name) > DIBS_NAME_MAX))
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "the name must have 1 to %d bytes",
                                DIBS_NAME_MAX);
    return DIBS_OK;
}

static dibs_err run_doctor(dibs_client *c, const char *name, dibs_doctor_fn fn,
                           void *arg)
{
    struct dibs__check_ctx ctx = {.c = c, .name = name, .fn = fn, .arg = arg};

    if (check_doctor_args(name, fn) != DIBS_OK)
        return dibs__client_report_invalid_arg(c);
    dibs_err err = dibs__client_enter(c);
    if (err != DIBS_OK)
        return err;
    dibs__client_leave(c); /* each dibs__query enters again */
    err = run_checks(&ctx);
    dibs__query_reply_clear(&ctx.info);
    dibs__query_reply_clear(&ctx.reply);
    return err;
}

dibs_err dibs_client_doctor(dibs_client *c, const char *name, dibs_doctor_fn fn,
                            void *arg)
{
    return DIBS__API_CALL(run_doctor(c, name, fn, arg));
}
