/* SPDX-License-Identifier: MIT
 *
 * proxy_book.c - what the proxy is to do and what it has seen: rules, counts,
 * log.
 *
 * Thread  the proxy's for the ts__book functions, any for the others.
 * Locks   p.mu: needed by the former, taken by the latter.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/proxy_impl.h"
#include "support/resp.h"
#include "support/util.h"

/* Lines kept; a test that makes more has other worries. */
#define LOG_MAX 100000

/* ---- log and counts ---------------------------------------------------- */

/* One word of a request, printable, cut. */
static void print_word(FILE *to, const struct ts_word *w)
{
    const size_t most = 60;

    fputc(' ', to);
    for (size_t i = 0; i < w->len && i < most; i++) {
        unsigned char c = (unsigned char)w->p[i];
        if (isgraph(c))
            fputc(c, to);
        else
            fprintf(to, "\\x%02x", c);
    }
    if (w->len > most)
        fputs("...", to);
}

static void log_request(struct ts_proxy *p, unsigned link, const char *msg,
                        size_t len)
{
    struct ts_word w[12];
    char *line = NULL;
    size_t size = 0;

    if (p->n_log == LOG_MAX)
        return;
    FILE *f = open_memstream(&line, &size);
    if (!f)
        ts_fatal("out of memory");
    fprintf(f, "%lld #%u", (long long)ts_now_ms(), link);
    size_t n = ts_resp_words(msg, len, w, sizeof w / sizeof w[0]);
    for (size_t i = 0; i < n; i++)
        print_word(f, &w[i]);
    fclose(f);
    if ((p->n_log & (p->n_log + 1)) == 0) { /* full at 1, 3, 7, ... */
        p->log = realloc(p->log, (p->n_log + 1) * 2 * sizeof *p->log);
        if (!p->log)
            ts_fatal("out of memory");
    }
    p->log[p->n_log++] = line;
}

void ts__book_passed(struct ts_proxy *p, const char *msg, size_t len)
{
    struct count one = {.n = 1};
    struct ts_word w[1];

    if (ts_resp_words(msg, len, w, 1) == 0)
        return;
    for (size_t i = 0; i < w[0].len && i < sizeof one.name - 1; i++)
        one.name[i] = (char)toupper((unsigned char)w[0].p[i]);
    pthread_cond_broadcast(&p->changed);
    for (size_t i = 0; i < p->n_counts; i++)
        if (strcmp(p->counts[i].name, one.name) == 0) {
            p->counts[i].n++;
            return;
        }
    p->counts = realloc(p->counts, (p->n_counts + 1) * sizeof one);
    if (!p->counts)
        ts_fatal("out of memory");
    p->counts[p->n_counts++] = one;
}

/* Locks: needs p.mu. */
static unsigned count_requests(const struct ts_proxy *p, const char *command)
{
    unsigned n = 0;

    for (size_t i = 0; i < p->n_counts; i++)
        if (!command || fnmatch(command, p->counts[i].name, FNM_CASEFOLD) == 0)
            n += p->counts[i].n;
    return n;
}

void ts__book_forget(struct ts_proxy *p)
{
    for (size_t i = 0; i < p->n_log; i++)
        free(p->log[i]);
    free(p->log);
    free(p->counts);
    p->log = NULL;
    p->counts = NULL;
    p->n_log = p->n_counts = 0;
    p->accepted = p->messages = 0;
}

/* ---- rules ------------------------------------------------------------- */

static bool fits(const struct ts_rule *spec, const char *msg, size_t len)
{
    struct ts_word w[1];
    char name[64] = "";

    if (spec->contains &&
        !memmem(msg, len, spec->contains, strlen(spec->contains)))
        return false;
    if (!spec->match)
        return true;
    if (ts_resp_words(msg, len, w, 1) == 1 && w[0].len < sizeof name)
        memcpy(name, w[0].p, w[0].len);
    return fnmatch(spec->match, name, FNM_CASEFOLD) == 0;
}

/* The first rule that wants this; it is counted as hit. */
static struct rule *find_rule(struct ts_proxy *p, bool message, const char *msg,
                              size_t len)
{
    for (struct rule *r = p->rules; r; r = r->next) {
        const struct ts_rule *spec = &r->spec;
        if (!r->active || (spec->action == TS_SWALLOW_MESSAGE) != message ||
            !fits(spec, msg, len))
            continue;
        if (r->seen++ < spec->skip || (spec->count && r->hits == spec->count))
            continue;
        r->hits++;
        pthread_cond_broadcast(&p->changed);
        return r;
    }
    return NULL;
}

struct rule *ts__book_request(struct ts_proxy *p, unsigned link,
                              const char *msg, size_t len)
{
    log_request(p, link, msg, len);
    return find_rule(p, false, msg, len);
}

bool ts__book_message(struct ts_proxy *p, const char *msg, size_t len)
{
    struct rule *r = find_rule(p, true, msg, len);

    ts__book_done(p, r);
    if (!r)
        p->messages++;
    return !r;
}

void ts__book_executed(struct ts_proxy *p, struct rule *r)
{
    if (!r)
        return;
    r->executed++;
    pthread_cond_broadcast(&p->changed);
}

void ts__book_done(struct ts_proxy *p, struct rule *r)
{
    if (!r)
        return;
    r->done++;
    pthread_cond_broadcast(&p->changed);
}

void ts__book_free(struct ts_proxy *p)
{
    ts__book_forget(p);
    while (p->rules) {
        struct rule *r = p->rules;
        p->rules = r->next;
        free((char *)r->spec.match);
        free((char *)r->spec.contains);
        free((char *)r->spec.text);
        free(r);
    }
}

/* Bytes of its own, with a NUL behind them. */
static char *copy_bytes(const char *data, size_t len)
{
    char *copy = ts_alloc(len + 1);

    if (len > 0)
        memcpy(copy, data, len);
    return copy;
}

int ts_proxy_rule(struct ts_proxy *p, const struct ts_rule *rule)
{
    struct rule *r = ts_alloc(sizeof *r);

    r->active = true;
    r->spec = *rule;
    if (rule->match)
        r->spec.match = ts_strdup(rule->match);
    if (rule->contains)
        r->spec.contains = ts_strdup(rule->contains);
    if (rule->text && rule->text_len == 0)
        r->spec.text_len = strlen(rule->text);
    r->spec.text = copy_bytes(rule->text, r->spec.text_len);

    pthread_mutex_lock(&p->mu);
    r->id = ++p->last_rule;
    struct rule **end = &p->rules;
    while (*end)
        end = &(*end)->next;
    *end = r;
    pthread_mutex_unlock(&p->mu);
    return r->id;
}

void ts_proxy_unrule(struct ts_proxy *p, int id)
{
    pthread_mutex_lock(&p->mu);
    for (struct rule *r = p->rules; r; r = r->next)
        if (id == 0 || r->id == id)
            r->active = false;
    pthread_mutex_unlock(&p->mu);
}

/* Locks: needs p.mu. */
static const struct rule *rule_by_id(const struct ts_proxy *p, int id)
{
    for (const struct rule *r = p->rules; r; r = r->next)
        if (r->id == id)
            return r;
    ts_fatal("there is no rule %d", id);
}

/* ---- asking and waiting ------------------------------------------------ */

/* One of the numbers a test can ask for and wait for. */
enum what { HITS, EXECUTED, DONE, REQUESTS };

struct question {
    enum what what;
    int id;              /* of the rule */
    const char *command; /* of the requests */
};

/* Locks: needs p.mu. */
static unsigned answer(const struct ts_proxy *p, const struct question *q)
{
    switch (q->what) {
    case HITS:
        return rule_by_id(p, q->id)->hits;
    case EXECUTED:
        return rule_by_id(p, q->id)->executed;
    case DONE:
        return rule_by_id(p, q->id)->done;
    case REQUESTS:
        return count_requests(p, q->command);
    }
    return 0;
}

static unsigned ask(struct ts_proxy *p, struct question q)
{
    pthread_mutex_lock(&p->mu);
    unsigned n = answer(p, &q);
    pthread_mutex_unlock(&p->mu);
    return n;
}

static bool wait_for(struct ts_proxy *p, struct question q, unsigned n,
                     int64_t timeout_ms)
{
    int64_t until = ts_now_ms() + timeout_ms;
    struct timespec ts = {.tv_sec = until / 1000,
                          .tv_nsec = until % 1000 * 1000000};
    int rc = 0;

    pthread_mutex_lock(&p->mu);
    while (answer(p, &q) < n && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&p->changed, &p->mu, &ts);
    bool reached = answer(p, &q) >= n;
    pthread_mutex_unlock(&p->mu);
    return reached;
}

unsigned ts_rule_hits(struct ts_proxy *p, int id)
{
    return ask(p, (struct question){.what = HITS, .id = id});
}

unsigned ts_rule_executed(struct ts_proxy *p, int id)
{
    return ask(p, (struct question){.what = EXECUTED, .id = id});
}

unsigned ts_rule_done(struct ts_proxy *p, int id)
{
    return ask(p, (struct question){.what = DONE, .id = id});
}

bool ts_rule_wait(struct ts_proxy *p, int id, unsigned hits, int64_t timeout_ms)
{
    return wait_for(p, (struct question){.what = HITS, .id = id}, hits,
                    timeout_ms);
}

bool ts_rule_wait_done(struct ts_proxy *p, int id, unsigned done,
                       int64_t timeout_ms)
{
    return wait_for(p, (struct question){.what = DONE, .id = id}, done,
                    timeout_ms);
}

unsigned ts_proxy_requests(struct ts_proxy *p, const char *command)
{
    return ask(p, (struct question){.what = REQUESTS, .command = command});
}

bool ts_proxy_wait_requests(struct ts_proxy *p, const char *command, unsigned n,
                            int64_t timeout_ms)
{
    return wait_for(p, (struct question){.what = REQUESTS, .command = command},
                    n, timeout_ms);
}

/* ---- reading the log --------------------------------------------------- */

/* The line with so many before it that have the text. Locks: needs p.mu. */
static const char *nth_line(const struct ts_proxy *p, const char *text,
                            unsigned nth)
{
    for (size_t i = 0; i < p->n_log; i++)
        if ((!text || strstr(p->log[i], text)) && nth-- == 0)
            return p->log[i];
    return NULL;
}

unsigned ts_proxy_logged(struct ts_proxy *p, const char *text)
{
    unsigned n = 0;

    pthread_mutex_lock(&p->mu);
    for (size_t i = 0; i < p->n_log; i++)
        n += !text || strstr(p->log[i], text);
    pthread_mutex_unlock(&p->mu);
    return n;
}

char *ts_proxy_log_line(struct ts_proxy *p, const char *text, unsigned nth)
{
    pthread_mutex_lock(&p->mu);
    const char *line = nth_line(p, text, nth);
    char *copy = line ? ts_strdup(line) : NULL;
    pthread_mutex_unlock(&p->mu);
    return copy;
}

void ts_proxy_log_print(struct ts_proxy *p, FILE *to)
{
    pthread_mutex_lock(&p->mu);
    for (size_t i = 0; i < p->n_log; i++)
        fprintf(to, "%s\n", p->log[i]);
    pthread_mutex_unlock(&p->mu);
}
