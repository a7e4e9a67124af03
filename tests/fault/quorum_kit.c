/* SPDX-License-Identifier: MIT
 *
 * quorum_kit.c - what the tests of the quorum lock share.
 *
 * Thread  the test's main thread.
 *
 * How     The fault kit knows one server and one proxy; which of ours they are
 *         is changed before each use.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/quorum_kit.h"

#include <string.h>

#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

struct qk_node qk_nodes[QK_N];

const char *const qk_fault_names[QK_FAULTS] = {
    "dead", "cut off", "paused", "slow", "garbage", "nonsense", "restarted"};

static void at(size_t i)
{
    kit_srv = qk_nodes[i].srv;
    kit_px = qk_nodes[i].px;
}

void qk_want(const char *where, dibs_err got, dibs_err want, const char *call)
{
    if (got != want)
        fail_msg("%s: %s: \"%s\", not \"%s\"", where, call, dibs_strerror(got),
                 dibs_strerror(want));
}

/* ---- servers and proxies ----------------------------------------------- */

int qk_up(void **state)
{
    for (size_t i = 0; i < QK_N; i++) {
        kit_up(state);
        qk_nodes[i] = (struct qk_node){kit_srv, kit_px};
    }
    return 0;
}

int qk_down(void **state)
{
    for (size_t i = 0; i < QK_N; i++) {
        at(i);
        ts_server_resume(kit_srv);
        kit_down(state);
    }
    return 0;
}

int qk_fresh(void **state)
{
    for (size_t i = 0; i < QK_N; i++) {
        at(i);
        ts_server_resume(kit_srv);
        kit_fresh(state);
    }
    return 0;
}

/* ---- faults ------------------------------------------------------------ */

void qk_rule(unsigned mask, const struct ts_rule *rule, int rules[QK_N])
{
    QK_EACH(i, mask)
    {
        int id = ts_proxy_rule(qk_nodes[i].px, rule);
        if (rules)
            rules[i] = id;
    }
}

void qk_unrule(unsigned mask)
{
    QK_EACH(i, mask)
    {
        ts_proxy_unrule(qk_nodes[i].px, 0);
        ts_proxy_release(qk_nodes[i].px);
    }
}

static void break_one(enum qk_fault fault, const struct qk_node *n)
{
    static const struct ts_rule slow = {
        .action = TS_DELAY_REPLY, .match = "EVAL*", .ms = 2000};
    static const struct ts_rule garbage = {
        .action = TS_REWRITE_REPLY, .match = "EVAL*", .text = "\x01 no\r\n"};
    static const struct ts_rule nonsense = {.action = TS_REWRITE_REPLY,
                                            .match = "EVAL*",
                                            .text = "*2\r\n+a\r\n+b\r\n"};

    switch (fault) {
    case QK_DEAD:
        ts_server_kill(n->srv);
        break;
    case QK_CUT_OFF:
        ts_proxy_refuse(n->px, true);
        ts_proxy_kill_all(n->px, false);
        break;
    case QK_PAUSED:
        ts_server_pause(n->srv);
        break;
    case QK_SLOW:
        ts_proxy_rule(n->px, &slow);
        break;
    case QK_GARBAGE:
        ts_proxy_rule(n->px, &garbage);
        break;
    case QK_NONSENSE:
        ts_proxy_rule(n->px, &nonsense);
        break;
    default:
        ts_server_restart(n->srv);
    }
}

void qk_break(enum qk_fault fault, unsigned mask)
{
    QK_EACH(i, mask) break_one(fault, &qk_nodes[i]);
}

void qk_mend(unsigned mask)
{
    qk_unrule(mask);
    QK_EACH(i, mask)
    {
        ts_proxy_refuse(qk_nodes[i].px, false);
        if (ts_server_pid(qk_nodes[i].srv) == 0)
            ts_server_restart(qk_nodes[i].srv);
        ts_server_resume(qk_nodes[i].srv);
    }
}

/* ---- parties ----------------------------------------------------------- */

void qk_join_as(struct qk_party *p, const struct kit_opts *o, const char *name)
{
    memset(p, 0, sizeof *p);
    p->name = ts_strdup(name);
    for (size_t i = 0; i < QK_N; i++) {
        at(i);
        p->k[i] = kit_open(o);
        p->l[i] = kit_lock(p->k[i], name);
    }
    QK_WANT("joining", dibs_quorum_lock_new(p->l, QK_N, &p->q), DIBS_OK);
}

void qk_join(struct qk_party *p, const struct kit_opts *o)
{
    char *name = kit_name("quorum");

    qk_join_as(p, o, name);
    free(name);
}

static void leave(struct qk_party *p, void (*end)(struct kit_client *))
{
    dibs_lock_free(p->q);
    for (size_t i = 0; i < QK_N; i++) {
        dibs_lock_free(p->l[i]);
        end(p->k[i]);
    }
    free((char *)p->name);
}

void qk_part(struct qk_party *p)
{
    leave(p, kit_close);
}

void qk_drop(struct qk_party *p)
{
    leave(p, kit_drop);
}

void qk_take(const char *where, struct qk_party *p)
{
    QK_WANT(where,
            dibs_lock_acquire(
                p->q, DIBS_LOCK_OPTS(.wait_ms = TS_SOON, .member_ms = TS_SOON,
                                     .on_lost = kit_lost, .arg = &p->lost)),
            DIBS_OK);
}

static void wait_mine(const char *where, struct qk_party *p, unsigned want)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while (qk_mine(p, QK_ALL) != want || qk_held(p) != want)
        if (!ts_wait_step(&w))
            fail_msg("%s: wanted %#x, the servers have %#x, the library %#x",
                     where, want, qk_mine(p, QK_ALL), qk_held(p));
}

void qk_take_all(const char *where, struct qk_party *p)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    for (;;) { /* a server that was away may be late once more */
        qk_take(where, p);
        struct ts_wait all = ts_wait_begin(ts_ms(2000));
        while (qk_held(p) != QK_ALL && ts_wait_step(&all))
            ;
        if (qk_held(p) == QK_ALL)
            return;
        QK_WANT(where, dibs_lock_release(p->q, NULL), DIBS_OK);
        if (!ts_wait_step(&w))
            fail_msg("%s: never got all five", where);
    }
}

void qk_works(const char *where, struct qk_party *p)
{
    qk_take_all(where, p);
    wait_mine(where, p, QK_ALL);
    QK_WANT(where, dibs_lock_release(p->q, NULL), DIBS_OK);
    qk_clean(where, QK_ALL, 0);
}

dibs_member qk_member(struct qk_party *p, size_t i)
{
    dibs_member m = DIBS_MEMBER_INIT;

    QK_WANT("member", dibs_lock_members(p->q, i, 0, &m), DIBS_OK);
    return m;
}

unsigned qk_held(struct qk_party *p)
{
    unsigned mask = 0;

    for (size_t i = 0; i < QK_N; i++)
        mask |= (unsigned)(qk_member(p, i).state == DIBS_HELD) << i;
    return mask;
}

/* ---- the servers' view ------------------------------------------------- */

long long qk_holds(struct qk_party *p, size_t i)
{
    const char *id = dibs_client_id(p->k[i]->c);
    redisReply *r = ts_cmd(qk_nodes[i].srv, "HGETALL %s", p->name);
    long long n = 0;

    if (!r || r->type != REDIS_REPLY_ARRAY)
        ts_fatal("server %zu does not say who has it", i);
    for (size_t f = 0; f + 1 < r->elements; f += 2)
        if (strncmp(r->element[f]->str, id, strlen(id)) == 0)
            n += atoll(r->element[f + 1]->str);
    freeReplyObject(r);
    return n;
}

unsigned qk_mine(struct qk_party *p, unsigned among)
{
    unsigned mask = 0;

    QK_EACH(i, among) mask |= (unsigned)(qk_holds(p, i) > 0) << i;
    return mask;
}

void qk_stranger(unsigned mask, const char *name)
{
    QK_EACH(i, mask)
    {
        ts_ok(qk_nodes[i].srv, "HSET %s " STRANGER " 1", name);
        ts_ok(qk_nodes[i].srv, "PEXPIRE %s %lld", name, (long long)KIT_LONG);
    }
}

void qk_stranger_off(unsigned mask, const char *name)
{
    QK_EACH(i, mask) ts_ok(qk_nodes[i].srv, "DEL %s", name);
}

static bool is_clean(size_t i, bool stranger)
{
    struct ts_server *s = qk_nodes[i].srv;

    if (ts_nkeys(s) != stranger)
        return false;
    if (!stranger)
        return true;
    char *name = ts_str(s, "RANDOMKEY");
    char *value = name ? ts_hget(s, name, STRANGER) : NULL;
    bool clean = value && ts_hlen(s, name) == 1;
    free(name);
    free(value);
    return clean;
}

void qk_clean(const char *where, unsigned mask, unsigned strangers)
{
    QK_EACH(i, mask)
    {
        struct ts_wait w = ts_wait_begin(TS_SOON);
        while (!is_clean(i, strangers >> i & 1))
            if (!ts_wait_step(&w))
                fail_msg("%s: something stays on server %zu", where, i);
    }
}

void qk_free_for_all(const char *where, const char *name)
{
    struct qk_party p;

    qk_join_as(&p, &(struct kit_opts){.direct = true}, name);
    qk_works(where, &p);
    qk_part(&p);
}
