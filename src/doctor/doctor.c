/* SPDX-License-Identifier: MIT
 *
 * doctor.c - an examination of the server: what it means for locks.
 *
 * Thread  app.
 * Locks   none.
 *
 * How     One check after the other, each a question or two and a line that
 *         says what the answer means. Nothing is changed on the server. What
 *         may not be asked is said to be unknown; another command may know (a
 *         user without INFO may have ROLE, or CONFIG). The server's clock is
 *         read first and last: what passed between the two is compared with
 *         what passed here.
 *
 * Verdicts  ok; note: good to know; warning: locks can be lost, or cost more,
 *         when something goes wrong; problem: locks do not work here, or not as
 *         they should, as things are.
 *
 * Elsewhere  What our user may do is in doctor_rights.c; how servers stand
 *         together, and the way there, in doctor_place.c.
 */
#include "doctor/doctor.h"

#include "base/args.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OLDEST_MAJOR 6 /* the oldest server that has all commands: 6.2 */
#define OLDEST_MINOR 2
#define LAG_S        3      /* a replica is asked every second */
#define FULL_PERCENT 90     /* of maxmemory */
#define CLOCK_MS     250    /* at least so long between two looks at a clock */
#define JUMP_US      100000 /* no clock that is slewed gains that much */
#define OFFSET_S     60     /* of a clock that is set by something */
#define SLOW_US      50000  /* for an answer */
#define NUMBER_MAX   INT64_C(1000000000000000)
#define CLOCK_MAX_S  INT64_C(100000000000)
#define REPLICAS_MAX 1000 /* that are looked at */

/* ---- asking and telling ------------------------------------------------ */

void dibs__doctor_say(struct dibs__doctor *d, const char *check,
                      dibs_verdict verdict, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    if (d->enough || d->gone)
        return; /* the rest would be guesses */
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    d->enough = !d->fn(check, verdict, text, d->arg);
}

dibs_err dibs__doctor_ask(struct dibs__doctor *d, const char *const *argv)
{
    if (d->gone)
        return d->gone;
    dibs_err err = dibs__query(d->c, argv, &d->reply);
    if (!d->reply.replied || err == DIBS_ERR_NOMEM)
        d->gone = err;
    return err;
}

const char *dibs__doctor_info(const struct dibs__doctor *d, const char *field,
                              char buf[], size_t size)
{
    const char *at = dibs__answer_text(&d->info);
    size_t n = strlen(field);

    buf[0] = '\0';
    while (*at) {
        size_t len = strcspn(at, "\r\n");
        if (len > n && at[n] == ':' && strncmp(at, field, n) == 0) {
            len = len - n - 1 < size ? len - n - 1 : size - 1;
            memcpy(buf, at + n + 1, len);
            buf[len] = '\0';
            return buf;
        }
        at += len;
        at += strspn(at, "\r\n");
    }
    return buf;
}

/* No number here is larger than that, whatever the server says. */
int64_t dibs__doctor_count(const char *text)
{
    return dibs__max(-1, dibs__min(strtoll(text, NULL, 10), NUMBER_MAX));
}

int64_t dibs__doctor_number(const struct dibs__doctor *d, const char *field)
{
    char buf[32];

    return dibs__doctor_count(dibs__doctor_info(d, field, buf, sizeof buf));
}

static bool is(const struct dibs__doctor *d, const char *field,
               const char *value)
{
    char buf[64];

    return strcmp(dibs__doctor_info(d, field, buf, sizeof buf), value) == 0;
}

/* A setting; "" when it is not to be known. */
static const char *setting(struct dibs__doctor *d, const char *name, char buf[],
                           size_t size)
{
    buf[0] = '\0';
    if (DIBS__ASK(d, "CONFIG", "GET", name) == DIBS_OK && d->reply.array)
        dibs__answer_line(&d->reply, 1, buf, size);
    return buf;
}

/* What the server said instead of an answer. */
const char *dibs__doctor_why(const struct dibs__doctor *d)
{
    return d->reply.replied ? dibs__answer_text(&d->reply)
                            : dibs_strerror(d->reply.err);
}

/* ---- what it is -------------------------------------------------------- */

static void version(struct dibs__doctor *d)
{
    char text[32];
    const char *brand = "Valkey";
    unsigned major = 0, minor = 0;

    dibs__doctor_info(d, "valkey_version", text, sizeof text);
    if (!text[0]) {
        brand = "Redis";
        dibs__doctor_info(d, "redis_version", text, sizeof text);
    }
    if (is(d, "redis_mode", "sentinel")) {
        dibs__doctor_say(d, "version", DIBS_VERDICT_PROBLEM,
                         "%s %s as a sentinel: it has no keys, and so no locks",
                         brand, text);
        return;
    }
    if (sscanf(text, "%u.%u", &major, &minor) < 1)
        dibs__doctor_say(d, "version", DIBS_VERDICT_NOTE,
                         "unknown, as INFO is not to be had: %s",
                         dibs__doctor_why(d));
    else if (major < OLDEST_MAJOR ||
             (major == OLDEST_MAJOR && minor < OLDEST_MINOR))
        dibs__doctor_say(d, "version", DIBS_VERDICT_PROBLEM,
                         "%s %s, older than %d.%d", brand, text, OLDEST_MAJOR,
                         OLDEST_MINOR);
    else
        dibs__doctor_say(d, "version", DIBS_VERDICT_OK, "%s %s", brand, text);
}

static void role(struct dibs__doctor *d)
{
    char text[32], host[128], port[16], link[16];

    dibs__doctor_info(d, "role", text, sizeof text);
    if (!text[0] && DIBS__ASK(d, "ROLE") == DIBS_OK)
        dibs__answer_line(&d->reply, 0, text, sizeof text);
    d->replica = strcmp(text, "slave") == 0;
    if (strcmp(text, "master") == 0)
        dibs__doctor_say(d, "role", DIBS_VERDICT_OK, "master");
    else if (d->replica)
        dibs__doctor_say(
            d, "role", DIBS_VERDICT_PROBLEM,
            "a replica of %s:%s (link %s): locks are taken on the master",
            dibs__doctor_info(d, "master_host", host, sizeof host),
            dibs__doctor_info(d, "master_port", port, sizeof port),
            dibs__doctor_info(d, "master_link_status", link, sizeof link));
    else
        dibs__doctor_say(d, "role", DIBS_VERDICT_NOTE,
                         "unknown: neither INFO nor ROLE is to be had");
}

/* A number out of a list such as "ip=::1,state=online,lag=1"; -1: none. */
static int64_t part(const char *list, const char *name)
{
    const char *at = strstr(list, name);

    return at ? dibs__doctor_count(at + strlen(name)) : -1;
}

static void replicas(struct dibs__doctor *d)
{
    int64_t count = dibs__doctor_number(d, "connected_slaves"), worst = 0;
    int64_t offset = dibs__doctor_number(d, "master_repl_offset"), behind = 0;
    int64_t online = 0;
    char field[32], text[256];

    if (d->replica || !d->info.text.len)
        return;
    for (int i = 0; i < dibs__min(count, REPLICAS_MAX); i++) {
        snprintf(field, sizeof field, "slave%d", i);
        dibs__doctor_info(d, field, text, sizeof text);
        if (!strstr(text, "state=online"))
            continue;
        online++;
        worst = dibs__max(worst, part(text, ",lag="));
        behind = dibs__max(behind, offset - part(text, ",offset="));
    }
    if (count == 0)
        dibs__doctor_say(d, "replicas", DIBS_VERDICT_NOTE,
                         "none: if this server is lost, so are its locks");
    else if (online < count || worst > LAG_S)
        dibs__doctor_say(d, "replicas", DIBS_VERDICT_WARNING,
                         "%lld of %lld in step, the last word of one %lld s "
                         "ago, %lld bytes behind: a failover loses locks",
                         (long long)online, (long long)count, (long long)worst,
                         (long long)behind);
    else
        dibs__doctor_say(d, "replicas", DIBS_VERDICT_OK,
                         "%lld connected, the last word of each at most %lld s "
                         "ago",
                         (long long)count, (long long)worst);
}

/* ---- what it keeps ----------------------------------------------------- */

static void log_kept(struct dibs__doctor *d)
{
    char fsync[16];

    setting(d, "appendfsync", fsync, sizeof fsync);
    d->keeps = true;
    if (is(d, "aof_last_write_status", "err"))
        dibs__doctor_say(d, "persistence", DIBS_VERDICT_PROBLEM,
                         "the log cannot be written: no lock can be taken");
    else if (strcmp(fsync, "always") == 0)
        dibs__doctor_say(d, "persistence", DIBS_VERDICT_OK,
                         "appendonly, appendfsync always");
    else if (strcmp(fsync, "no") == 0)
        dibs__doctor_say(d, "persistence", DIBS_VERDICT_WARNING,
                         "appendonly, appendfsync no: a crash of the machine "
                         "loses locks");
    else
        dibs__doctor_say(d, "persistence", DIBS_VERDICT_NOTE,
                         "appendonly, appendfsync %s: a crash of the machine "
                         "loses the locks of the last second or two",
                         fsync[0] ? fsync : "unknown");
}

static void persistence(struct dibs__doctor *d)
{
    char save[128];

    if (!d->info.text.len) {
        dibs__doctor_say(d, "persistence", DIBS_VERDICT_NOTE,
                         "unknown: INFO is not to be had");
        return;
    }
    if (dibs__doctor_number(d, "aof_enabled")) {
        log_kept(d);
        return;
    }
    setting(d, "save", save, sizeof save);
    if (is(d, "rdb_last_bgsave_status", "err") && save[0])
        dibs__doctor_say(d, "persistence", DIBS_VERDICT_PROBLEM,
                         "the last snapshot failed: by default no lock can be "
                         "taken then");
    else if (save[0])
        dibs__doctor_say(d, "persistence", DIBS_VERDICT_WARNING,
                         "snapshots only: a crash brings back old locks, and "
                         "loses the new ones");
    else
        dibs__doctor_say(d, "persistence", DIBS_VERDICT_WARNING,
                         "none%s: after a restart every lock is free, while "
                         "its holder is still at work",
                         d->reply.err == DIBS_OK ? ""
                                                 : ", as far as can be seen");
}

static void eviction(struct dibs__doctor *d)
{
    char policy[32];
    int64_t max = dibs__doctor_number(d, "maxmemory");
    int64_t used = dibs__doctor_number(d, "used_memory");

    dibs__doctor_info(d, "maxmemory_policy", policy, sizeof policy);
    if (!policy[0])
        setting(d, "maxmemory-policy", policy, sizeof policy);
    if (!policy[0])
        dibs__doctor_say(d, "eviction", DIBS_VERDICT_NOTE,
                         "unknown: neither INFO nor CONFIG is to be had");
    else if (strcmp(policy, "noeviction") != 0 && (max || !d->info.text.len))
        dibs__doctor_say(d, "eviction", DIBS_VERDICT_PROBLEM,
                         "maxmemory-policy %s: locks are thrown away when "
                         "memory is short; set noeviction",
                         policy);
    else if (strcmp(policy, "noeviction") != 0)
        dibs__doctor_say(d, "eviction", DIBS_VERDICT_WARNING,
                         "maxmemory-policy %s, but no maxmemory: harmless "
                         "until one is set",
                         policy);
    else if (max && used >= max)
        dibs__doctor_say(d, "eviction", DIBS_VERDICT_PROBLEM,
                         "noeviction, and all of maxmemory is used: no lock "
                         "can be taken");
    else if (max && used / (max / 100 + 1) >= FULL_PERCENT)
        dibs__doctor_say(d, "eviction", DIBS_VERDICT_WARNING,
                         "noeviction, and %lld %% of maxmemory used: a full "
                         "server refuses new locks",
                         (long long)(used / (max / 100 + 1)));
    else
        dibs__doctor_say(d, "eviction", DIBS_VERDICT_OK,
                         "maxmemory-policy noeviction");
}

static void uptime(struct dibs__doctor *d)
{
    int64_t up = dibs__doctor_number(d, "uptime_in_seconds");
    int64_t lease = d->c->lease_ms;

    if (!d->info.text.len)
        return;
    if (up * 1000 >= lease)
        dibs__doctor_say(d, "uptime", DIBS_VERDICT_OK,
                         "%lld s, longer than a lease (%lld ms)", (long long)up,
                         (long long)lease);
    else if (d->keeps)
        dibs__doctor_say(d, "uptime", DIBS_VERDICT_NOTE,
                         "%lld s, less than a lease (%lld ms), but it keeps "
                         "its data",
                         (long long)up, (long long)lease);
    else
        dibs__doctor_say(d, "uptime", DIBS_VERDICT_WARNING,
                         "%lld s, less than a lease (%lld ms): a holder from "
                         "before may still be at work, unknown here",
                         (long long)up, (long long)lease);
}

/* ---- its clock --------------------------------------------------------- */

/* The server's clock, in us; -1: not to be had. */
static int64_t read_clock(struct dibs__doctor *d)
{
    char s[24], us[24];

    if (DIBS__ASK(d, "TIME") != DIBS_OK || !d->reply.array)
        return -1;
    int64_t whole =
        dibs__doctor_count(dibs__answer_line(&d->reply, 0, s, sizeof s));
    if (whole <= 0 || whole > CLOCK_MAX_S)
        return -1;
    return whole * 1000000 +
           dibs__doctor_count(dibs__answer_line(&d->reply, 1, us, sizeof us));
}

static void first_look(struct dibs__doctor *d)
{
    d->clock_us = read_clock(d);
    d->at_us = (d->reply.sent_us + d->reply.came_us) / 2;
    d->trip_us = d->reply.came_us - d->reply.sent_us;
}

static int64_t wall_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void clock_jumps(struct dibs__doctor *d)
{
    int64_t left = d->at_us / 1000 + CLOCK_MS - dibs__now_ms();

    if (left > 0)
        nanosleep(&(struct timespec){.tv_nsec = left * 1000000}, NULL);
    int64_t now = read_clock(d);
    int64_t at = (d->reply.sent_us + d->reply.came_us) / 2;
    int64_t trip = d->reply.came_us - d->reply.sent_us;
    int64_t ours = at - d->at_us, theirs = now - d->clock_us;
    if (now < 0 || d->clock_us < 0)
        dibs__doctor_say(d, "clock", DIBS_VERDICT_NOTE, "unknown: %s",
                         dibs__doctor_why(d));
    else if (llabs(theirs - ours) > JUMP_US + trip + d->trip_us)
        dibs__doctor_say(d, "clock", DIBS_VERDICT_PROBLEM,
                         "it went %lld ms while %lld ms passed here: leases "
                         "end with it; slew it, do not step it",
                         (long long)theirs / 1000, (long long)ours / 1000);
    else
        dibs__doctor_say(d, "clock", DIBS_VERDICT_OK,
                         "steady: %lld ms while %lld ms passed here",
                         (long long)theirs / 1000, (long long)ours / 1000);
}

static void clock_offset(struct dibs__doctor *d)
{
    /* Our wall clock when the server read its own, give or take half a trip. */
    int64_t ours = wall_us() - (dibs__now_us() - d->at_us);
    int64_t ms = (d->clock_us - ours) / 1000;

    if (d->clock_us < 0)
        return;
    dibs__doctor_say(
        d, "offset",
        llabs(ms) > OFFSET_S * 1000 ? DIBS_VERDICT_WARNING : DIBS_VERDICT_OK,
        "its clock is %lld ms %s ours, give or take %lld us%s",
        (long long)llabs(ms), ms < 0 ? "behind" : "ahead of",
        (long long)d->trip_us / 2,
        llabs(ms) > OFFSET_S * 1000 ? ": dibs does not mind, but fair locks of "
                                      "Redisson do"
                                    : "");
}

static void latency(struct dibs__doctor *d)
{
    (void)DIBS__ASK(d, "PING"); /* a refusal takes as long */
    int64_t us = d->reply.came_us - d->reply.sent_us;

    dibs__doctor_say(
        d, "latency", us > SLOW_US ? DIBS_VERDICT_WARNING : DIBS_VERDICT_OK,
        "%lld.%03lld ms for an answer%s", (long long)us / 1000,
        (long long)us % 1000,
        us > SLOW_US ? ": every step of a lock takes that long" : "");
}

/* ---- what it can do ---------------------------------------------------- */

static void scripting(struct dibs__doctor *d)
{
    if (DIBS__ASK(d, "EVAL", "return 1", "0") == DIBS_OK)
        dibs__doctor_say(d, "scripting", DIBS_VERDICT_OK, "a script runs");
    else
        dibs__doctor_say(d, "scripting", DIBS_VERDICT_PROBLEM,
                         "no script runs, and so no lock works: %s",
                         dibs__doctor_why(d));
}

static void pubsub(struct dibs__doctor *d)
{
    bool sharded = DIBS__ASK(d, "PUBSUB", "SHARDNUMSUB") == DIBS_OK;

    if (!sharded && d->reply.err == DIBS_ERR_AUTH)
        dibs__doctor_say(
            d, "pubsub", DIBS_VERDICT_OK,
            "%s channels; whether sharded ones are known may not "
            "be asked",
            dibs__client_flavour(d->c) & FLAVOUR_SHARDED ? "sharded" : "plain");
    else if (dibs__client_flavour(d->c) & FLAVOUR_SHARDED)
        dibs__doctor_say(
            d, "pubsub", sharded ? DIBS_VERDICT_OK : DIBS_VERDICT_WARNING,
            sharded ? "sharded channels are used"
                    : "sharded channels are asked for, but unknown here: "
                      "waiters are not woken, and look every two seconds");
    else
        dibs__doctor_say(d, "pubsub", DIBS_VERDICT_OK,
                         "plain channels are used; sharded ones are %s",
                         sharded ? "known, too" : "unknown here");
}

static void acknowledgement(struct dibs__doctor *d)
{
    if (d->replica)
        return;
    if (DIBS__ASK(d, "WAIT", "0", "1") == DIBS_OK)
        dibs__doctor_say(d, "wait", DIBS_VERDICT_OK,
                         "replicas can be made to acknowledge a lock");
    else
        dibs__doctor_say(d, "wait", DIBS_VERDICT_NOTE,
                         "replicas cannot be made to acknowledge a lock: %s",
                         dibs__doctor_why(d));
}

/* ---- all of it --------------------------------------------------------- */

typedef void check_fn(struct dibs__doctor *d);

static check_fn *const checks[] = {
    version,
    role,
    replicas,
    persistence,
    eviction,
    uptime,
    latency,
    scripting,
    pubsub,
    acknowledgement,
    dibs__doctor_rights,
    dibs__doctor_place,
    clock_offset,
    clock_jumps,
};

static dibs_err examine(struct dibs__doctor *d)
{
    first_look(d); /* whatever it says: is there anybody? */
    if (d->gone)
        return d->gone;
    dibs_err err =
        dibs__query(d->c, (const char *const[]){"INFO", NULL}, &d->info);
    if (!d->info.replied || err == DIBS_ERR_NOMEM)
        return err;
    if (err != DIBS_OK) { /* refused: as if it were empty */
        struct dibs__answer refused = d->info;
        d->info = d->reply;
        d->reply = refused;
        dibs__buf_cut(&d->info.text, 0);
    }
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        checks[i](d);
        if (d->enough)
            return DIBS_OK;
        if (d->gone)
            return d->gone;
    }
    return DIBS_OK;
}

static dibs_err check_args(const char *name, dibs_doctor_fn fn)
{
    if (!fn)
        return dibs__check_given("fn", NULL);
    if (name && (!*name || strlen(name) > DIBS_NAME_MAX))
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "the name must have 1 to %d bytes",
                                DIBS_NAME_MAX);
    return DIBS_OK;
}

static dibs_err doctor(dibs_client *c, const char *name, dibs_doctor_fn fn,
                       void *arg)
{
    struct dibs__doctor d = {.c = c, .name = name, .fn = fn, .arg = arg};

    if (check_args(name, fn) != DIBS_OK)
        return dibs__client_refuse(c);
    dibs_err err = dibs__client_enter(c);
    if (err != DIBS_OK)
        return err;
    dibs__client_leave(c); /* each question enters by itself */
    err = examine(&d);
    dibs__answer_clear(&d.info);
    dibs__answer_clear(&d.reply);
    return err;
}

dibs_err dibs_client_doctor(dibs_client *c, const char *name, dibs_doctor_fn fn,
                            void *arg)
{
    return DIBS__TOLD(doctor(c, name, fn, arg));
}
