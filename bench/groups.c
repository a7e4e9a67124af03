/* SPDX-License-Identifier: MIT
 *
 * groups.c - several locks at once, and one lock on several servers.
 *
 * How long a pair takes, next to a pair of one plain lock in the same round.
 * Ten names are one command each way, but the server does ten times the work;
 * five servers are asked side by side, but share the cores of this machine.
 *
 * Two callers that want the same names, one of them in the opposite order, must
 * not stand in each other's way more than two that agree.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#define NAMES      10
#define SERVERS    5
#define TWO        2 /* callers, and servers for them */
#define ROUNDS_MAX 15

static dibs_lock *new_plain(dibs_client *c, const char *what, int number)
{
    dibs_lock *l = NULL;
    char name[96];

    must(dibs_lock_new(c, bench_name(name, sizeof name, what, number), &l),
         "new lock");
    return l;
}

/* A pair of each in turns; how long each takes. */
static void compare(const struct plan *p, dibs_lock *one, dibs_lock *group,
                    const char *what, double limit)
{
    double a[ROUNDS_MAX], b[ROUNDS_MAX], ratio[ROUNDS_MAX];
    size_t rounds = (size_t)p->rounds;
    void *first = one, *second = group;

    if (p->rounds > ROUNDS_MAX)
        die("at most %d rounds", ROUNDS_MAX);
    race(1, dibs_pair, &first, p->lap_ms / 4); /* warm-up */
    race(1, dibs_pair, &second, p->lap_ms / 4);
    for (size_t i = 0; i < rounds; i++) {
        a[i] = 1e6 / race(1, dibs_pair, &first, p->lap_ms).rate;
        b[i] = 1e6 / race(1, dibs_pair, &second, p->lap_ms).rate;
        ratio[i] = b[i] / a[i];
    }
    line("one plain lock", median(a, rounds), 1, "us a pair");
    line(what, median(b, rounds), 1, "us a pair");
    line("of one lock, median", median(ratio, rounds), 2, "x");
    line("of one lock, least", least(ratio, rounds), 2, "x");
    line("of one lock, greatest", greatest(ratio, rounds), 2, "x");
    target(what, AT_MOST, limit, median(ratio, rounds));
}

/* ---- several locks at once --------------------------------------------- */

void measure_multi(const struct plan *p)
{
    dibs_lock *members[NAMES], *group = NULL;
    dibs_client *c = NULL;

    title("multi lock: ten names on one server");
    must(dibs_client_open(p->url, NULL, &c), "open");
    dibs_lock *one = new_plain(c, "alone", 0);
    for (int i = 0; i < NAMES; i++)
        members[i] = new_plain(c, "member", i);
    must(dibs_multi_lock_new(members, NAMES, &group), "new multi lock");
    compare(p, one, group, "multi, ten names, of one lock", 1.7);
    dibs_lock_free(group);
    dibs_lock_free(one);
    for (int i = 0; i < NAMES; i++)
        dibs_lock_free(members[i]);
    dibs_client_free(c);
}

/* ---- opposite orders --------------------------------------------------- */

/* A caller with clients of its own, which are two processes' as far as the
 * servers can tell. */
struct caller {
    dibs_client *clients[TWO];
    dibs_lock *members[NAMES];
    dibs_lock *there; /* all names, in the order everybody gives */
    dibs_lock *back;  /* the same names, the last one first */
};

static void caller_open(struct caller *me, const char *const *urls, int servers)
{
    dibs_lock *turned[NAMES];

    for (int i = 0; i < servers; i++)
        must(dibs_client_open(urls[i], NULL, &me->clients[i]), "open");
    for (int i = 0; i < NAMES; i++)
        me->members[i] = new_plain(me->clients[i % servers], "order", i);
    for (int i = 0; i < NAMES; i++)
        turned[i] = me->members[NAMES - 1 - i];
    must(dibs_multi_lock_new(me->members, NAMES, &me->there), "new multi lock");
    must(dibs_multi_lock_new(turned, NAMES, &me->back), "new multi lock");
}

static void caller_close(struct caller *me, int servers)
{
    dibs_lock_free(me->there);
    dibs_lock_free(me->back);
    for (int i = 0; i < NAMES; i++)
        dibs_lock_free(me->members[i]);
    for (int i = 0; i < servers; i++)
        dibs_client_free(me->clients[i]);
}

static void compare_orders(const struct plan *p, const char *const *urls,
                           int servers, const char *what)
{
    double same[ROUNDS_MAX], opposite[ROUNDS_MAX], ratio[ROUNDS_MAX];
    size_t rounds = (size_t)p->rounds;
    struct caller a, b;

    caller_open(&a, urls, servers);
    caller_open(&b, urls, servers);
    void *agree[TWO] = {a.there, b.there}, *differ[TWO] = {a.there, b.back};
    race(TWO, dibs_pair, agree, p->lap_ms / 4); /* warm-up */
    race(TWO, dibs_pair, differ, p->lap_ms / 4);
    for (size_t i = 0; i < rounds; i++) {
        same[i] = race(TWO, dibs_pair, agree, p->lap_ms).rate;
        opposite[i] = race(TWO, dibs_pair, differ, p->lap_ms).rate;
        ratio[i] = opposite[i] / same[i];
    }
    caller_close(&a, servers);
    caller_close(&b, servers);

    line("the same order", median(same, rounds), 0, "pairs/s");
    line("opposite orders", median(opposite, rounds), 0, "pairs/s");
    line("opposite / same, median", median(ratio, rounds), 2, "x");
    target(what, AT_LEAST, 0.8, median(ratio, rounds));
}

void measure_orders(const struct plan *p)
{
    const char *urls[TWO] = {p->url, server_more()};

    title("multi lock: two callers who want the same ten names");
    compare_orders(p, urls, 1, "opposite orders, of the same");
    title("the same, over two servers");
    compare_orders(p, urls, TWO, "opposite orders, two servers");
}

/* ---- one lock on several servers --------------------------------------- */

void measure_quorum(const struct plan *p)
{
    dibs_client *clients[SERVERS];
    dibs_lock *members[SERVERS], *group = NULL;

    title("quorum lock: five servers on this machine");
    for (int i = 0; i < SERVERS; i++) {
        const char *url = i ? server_more() : p->url;
        must(dibs_client_open(url, NULL, &clients[i]), "open");
        members[i] = new_plain(clients[i], "quorum", 0);
    }
    dibs_lock *one = new_plain(clients[0], "alone", 0);
    must(dibs_quorum_lock_new(members, SERVERS, &group), "new quorum lock");
    compare(p, one, group, "quorum, five servers, of one", 2);
    dibs_lock_free(group);
    dibs_lock_free(one);
    for (int i = 0; i < SERVERS; i++) {
        dibs_lock_free(members[i]);
        dibs_client_free(clients[i]);
    }
}
