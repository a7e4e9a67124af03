/* SPDX-License-Identifier: MIT
 *
 * cmd_metrics.c - dibs metrics: figures in the text format of Prometheus.
 *
 * It answers once and ends. For the textfile collector of the node exporter, a
 * timer writes the answer to a file. All is read before anything is printed, so
 * an answer is whole. If the figures cannot be read, dibs_up is 0 and
 * dibs_down_reason has a label that says why, whatever the exit code: an alert
 * needs that figure.
 *
 * The figures are about all locks together: a label with the name of each lock
 * would make a new series for every name. Labels hold words of ours, and the
 * address of the server without its password.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "exit_codes.h"
#include "inspect/snapshot.h"
#include "output/error_advice.h"

enum kind {
    KIND_EXCLUSIVE,
    TYPE_READ,
    TYPE_WRITE,
    TYPE_SLOTS,
    TYPE_SEMAPHORE, /* permits of it are taken */
    TYPE_LATCH,     /* it is closed */
    TYPE_COUNT
};

static const char *const kind_words[TYPE_COUNT] = {
    [KIND_EXCLUSIVE] = "exclusive", [TYPE_READ] = "read",
    [TYPE_WRITE] = "write",         [TYPE_SLOTS] = "slots",
    [TYPE_SEMAPHORE] = "semaphore", [TYPE_LATCH] = "latch",
};

static const char *const verdict_words[] = {
    [DIBS_VERDICT_OK] = "ok",
    [DIBS_VERDICT_NOTE] = "note",
    [DIBS_VERDICT_WARNING] = "warning",
    [DIBS_VERDICT_PROBLEM] = "problem",
};
#define VERDICTS (sizeof verdict_words / sizeof *verdict_words)
#define CHECKS   64 /* different ones */

struct check {
    char word[32];
    dibs_verdict worst;
};

struct figures {
    bool up;
    const char *reason; /* why not */
    size_t locks[TYPE_COUNT], holders[TYPE_COUNT];
    size_t waiters, endless;
    bool counted;        /* waiters is known */
    int64_t oldest_ms;   /* of the connections of holders; -1: none is known */
    int64_t shortest_ms; /* what is left of a lease; -1: none has one */
    bool examined;
    size_t verdicts[VERDICTS];
    struct check checks[CHECKS];
    size_t n_checks;
};

/* ---- reading ----------------------------------------------------------- */

static enum kind kind_of(const dibs_lock_info *i)
{
    if (i->kind == DIBS_KIND_SLOTS)
        return TYPE_SLOTS;
    if (i->kind == DIBS_KIND_SEMAPHORE)
        return TYPE_SEMAPHORE;
    if (i->kind == DIBS_KIND_LATCH)
        return TYPE_LATCH;
    return i->mode == DIBS_MODE_READ    ? TYPE_READ
           : i->mode == DIBS_MODE_WRITE ? TYPE_WRITE
                                        : KIND_EXCLUSIVE;
}

static dibs_err add_waiters(struct figures *f, dibs_client *c,
                            struct lock_row *s)
{
    if (!f->counted)
        return DIBS_OK;
    dibs_err err = query_count(c, s);
    f->counted = s->counted; /* who may not ask about one, may not at all */
    f->waiters += s->queued + s->waiting;
    return err;
}

static void add_lock(struct figures *f, const struct lock_row *s)
{
    enum kind k = kind_of(&s->info);
    int64_t ttl = s->info.ttl_ms;

    f->locks[k]++;
    f->holders[k] += s->info.owners;
    if (k == TYPE_LATCH)
        return; /* it has no lease, and no owner */
    f->endless += ttl < 0;
    if (ttl >= 0 && (f->shortest_ms < 0 || ttl < f->shortest_ms))
        f->shortest_ms = ttl;
    if (s->who.known && s->who.age_ms > f->oldest_ms)
        f->oldest_ms = s->who.age_ms;
}

static dibs_err read_locks(struct figures *f, dibs_client *c,
                           const char *pattern)
{
    const struct snapshot none = {.rows = NULL};
    struct snapshot all;
    dibs_err err = snapshot_read(c, pattern, &all);

    if (err != DIBS_OK)
        return err;
    snapshot_name_owners(c, &none, &all);
    for (size_t i = 0; i < all.n && err == DIBS_OK; i++) {
        err = add_waiters(f, c, &all.rows[i].s);
        add_lock(f, &all.rows[i].s);
    }
    snapshot_clear(&all);
    return err;
}

static bool add_finding(const char *check, dibs_verdict verdict,
                        const char *text, void *arg)
{
    struct figures *f = arg;
    size_t i = 0;

    (void)text;
    f->verdicts[verdict]++;
    while (i < f->n_checks && strcmp(f->checks[i].word, check) != 0)
        i++;
    if (i == f->n_checks && i < CHECKS) {
        snprintf(f->checks[i].word, sizeof f->checks[i].word, "%s", check);
        f->checks[i].worst = verdict;
        f->n_checks++;
    } else if (i < f->n_checks && verdict > f->checks[i].worst) {
        f->checks[i].worst = verdict;
    }
    return true;
}

/* ---- printing ---------------------------------------------------------- */

static void print_head(FILE *out, const char *name, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
}

static void print_by_kind(FILE *out, const char *name,
                          const size_t n[TYPE_COUNT])
{
    for (int k = 0; k < TYPE_COUNT; k++)
        fprintf(out, "%s{kind=\"%s\"} %zu\n", name, kind_words[k], n[k]);
}

static void print_seconds(FILE *out, const char *name, const char *help,
                          int64_t ms)
{
    if (ms < 0)
        return;
    print_head(out, name, help);
    fprintf(out, "%s %" PRId64 ".%03d\n", name, ms / 1000, (int)(ms % 1000));
}

/* The value of a label, without what would need an escape. */
static void print_label(FILE *out, const char *text)
{
    char *shown = out_printable(text, strlen(text));

    for (const char *s = shown ? shown : ""; *s; s++)
        putc(strchr("\\\"\n", *s) ? '_' : *s, out);
    free(shown);
}

static void print_labeled(FILE *out, const char *name, const char *help,
                          const char *label, const char *value)
{
    print_head(out, name, help);
    fprintf(out, "%s{%s=\"", name, label);
    print_label(out, value);
    fputs("\"} 1\n", out);
}

static void print_locks(FILE *out, const struct figures *f)
{
    print_head(out, "dibs_locks", "Locks that are held, by kind.");
    print_by_kind(out, "dibs_locks", f->locks);
    print_head(out, "dibs_holders",
               "Owners that hold a lock, by kind of lock.");
    print_by_kind(out, "dibs_holders", f->holders);
    if (f->counted) {
        print_head(out, "dibs_waiters",
                   "Clients and queue places that wait for a lock.");
        fprintf(out, "dibs_waiters %zu\n", f->waiters);
    }
    print_head(out, "dibs_locks_without_end",
               "Locks without a lease: they stay until somebody ends them.");
    fprintf(out, "dibs_locks_without_end %zu\n", f->endless);
    print_seconds(out, "dibs_oldest_holder_seconds",
                  "Age of the oldest connection of a client that holds a lock.",
                  f->oldest_ms);
    print_seconds(out, "dibs_shortest_lease_seconds",
                  "What is left of the lease that ends first.", f->shortest_ms);
}

static void print_doctor(FILE *out, const struct figures *f)
{
    print_head(out, "dibs_doctor_findings",
               "Findings of dibs doctor, by verdict.");
    for (size_t v = 0; v < VERDICTS; v++)
        fprintf(out, "dibs_doctor_findings{verdict=\"%s\"} %zu\n",
                verdict_words[v], f->verdicts[v]);
    print_head(
        out, "dibs_doctor_verdict",
        "The worst finding of a check: 0 ok, 1 note, 2 warning, 3 problem.");
    for (size_t i = 0; i < f->n_checks; i++) {
        fputs("dibs_doctor_verdict{check=\"", out);
        print_label(out, f->checks[i].word);
        fprintf(out, "\"} %d\n", (int)f->checks[i].worst);
    }
}

static void print_figures(FILE *out, const struct figures *f,
                          const char *server)
{
    print_head(out, "dibs_up",
               "Whether the figures could be read: 1 yes, 0 no.");
    fprintf(out, "dibs_up %d\n", f->up);
    if (!f->up)
        print_labeled(out, "dibs_down_reason", "Why dibs_up is 0.", "reason",
                      f->reason);
    if (server)
        print_labeled(out, "dibs_server_info",
                      "The address of the server, without its password.",
                      "server", server);
    print_labeled(out, "dibs_build_info", "The version of the dibs command.",
                  "version", dibs_version());
    if (f->up)
        print_locks(out, f);
    if (f->examined)
        print_doctor(out, f);
}

/* ---- when they cannot be read ------------------------------------------ */

/* A wrong password is mended elsewhere than a missing right. */
static const char *auth_reason(void)
{
    const char *words = failure_words(dibs_error_text());

    return strncmp(words, "WRONGPASS", 9) == 0 ||
                   strncmp(words, "NOAUTH", 6) == 0
               ? "password"
               : "noperm";
}

static const char *down_reason(int code, dibs_err err)
{
    switch (err) {
    case DIBS_ERR_AUTH:
        return auth_reason();
    case DIBS_ERR_CONN:
    case DIBS_ERR_UNKNOWN:
        return "no_answer";
    case DIBS_ERR_TLS:
        return "tls";
    default:
        return code == EXIT_USAGE    ? "usage"
               : code == EXIT_SERVER ? "server"
                                     : "internal";
    }
}

int cmd_metrics(const struct args *a)
{
    struct figures f = {.counted = true, .oldest_ms = -1, .shortest_ms = -1};
    struct lock_query k;
    int code = query_open(a, &k);
    dibs_err err = k.server.err;

    if (code == EXIT_FINE && !k.c) {
        code = EXIT_SERVER; /* there is no private server: that was said */
        err = DIBS_ERR_CONN;
    } else if (code == EXIT_FINE) {
        err = read_locks(&f, k.c, a->n_words > 0 ? a->words[0] : NULL);
        if (err != DIBS_OK)
            code = query_failed("metrics", err);
    }
    f.up = code == EXIT_FINE;
    f.reason = down_reason(code, err);
    f.examined =
        f.up && dibs_client_doctor(k.c, NULL, add_finding, &f) == DIBS_OK;
    print_figures(stdout, &f, k.server.url);
    query_close(&k);
    return out_finish(code);
}
