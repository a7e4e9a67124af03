/* SPDX-License-Identifier: MIT
 *
 * quorum_kit.h - what the tests of the quorum lock share: five servers, each
 * with a fault proxy before it, parties that have a client at each of them, and
 * looks at the servers that do not go through the library.
 *
 * Use     qk_up and qk_down are cmocka's group fixtures, qk_fresh comes before
 *         each test. Sets of servers are masks, server i being bit i.
 * Time    As in kit.h: leases are long unless a test says otherwise, so what
 *         goes soon was given back.
 */
#ifndef DIBS_TESTS_QUORUM_KIT_H
#define DIBS_TESTS_QUORUM_KIT_H

#include "fault/kit.h"

#define QK_N    5
#define QK_NEED 3
#define QK_ALL  ((1u << QK_N) - 1)

/* Each i in the mask. */
#define QK_EACH(i, mask)                                                       \
    for (size_t i = 0; i < QK_N; i++)                                          \
        if ((mask) >> i & 1)

/* The call must end so; where says which row. */
#define QK_WANT(where, call, want) qk_want((where), (call), (want), #call)
void qk_want(const char *where, dibs_err got, dibs_err want, const char *call);

struct qk_node {
    struct ts_server *srv;
    struct ts_proxy *px;
};

extern struct qk_node qk_nodes[QK_N];

int qk_up(void **state);
int qk_down(void **state);
/* All alive and empty, no rules, no clients; the scripts are loaded. */
int qk_fresh(void **state);

/* ---- faults ------------------------------------------------------------ */

enum qk_fault {
    QK_DEAD,      /* kill -9 */
    QK_CUT_OFF,   /* connections closed, new ones refused */
    QK_PAUSED,    /* SIGSTOP */
    QK_SLOW,      /* replies come 2 s late */
    QK_GARBAGE,   /* replies are no RESP */
    QK_NONSENSE,  /* replies are RESP, but no answer to what was asked */
    QK_RESTARTED, /* empty */
    QK_FAULTS
};

extern const char *const qk_fault_names[QK_FAULTS];

/* Something happens to these servers, and is over. */
void qk_break(enum qk_fault fault, unsigned mask);
void qk_mend(unsigned mask);
/* The same rule at each of them; rules[i] are the numbers, or NULL. */
void qk_rule(unsigned mask, const struct ts_rule *rule, int rules[QK_N]);
void qk_unrule(unsigned mask); /* and lets go what was held */

/* ---- parties ----------------------------------------------------------- */

struct qk_party {
    struct kit_client *k[QK_N];
    dibs_lock *l[QK_N];
    dibs_lock *q;
    const char *name; /* of the lock; ours to free */
    atomic_int lost;  /* times it was told so */
};

/* Clients at all five, and a quorum lock of a name nobody had before. */
void qk_join(struct qk_party *p, const struct kit_opts *o);
/* The same name again; for a party that is to contend. */
void qk_join_as(struct qk_party *p, const struct kit_opts *o, const char *name);
/* Closes all of them, which must release everything. */
void qk_part(struct qk_party *p);
/* The same, where that may be too much to ask. */
void qk_drop(struct qk_party *p);

/* Takes it, which must be granted; with so much patience that the first round
 * is the only one. */
void qk_take(const char *where, struct qk_party *p);
/* Takes it until all five are held: one may be late for the first round. */
void qk_take_all(const char *where, struct qk_party *p);
/* Takes it and has all five, and gives it back, and nothing is left. */
void qk_works(const char *where, struct qk_party *p);
dibs_member qk_member(struct qk_party *p, size_t i);
/* Those members that are HELD, as the library has it. */
unsigned qk_held(struct qk_party *p);

/* ---- the servers' view ------------------------------------------------- */

/* How often this party has the lock at server i, by the server's word. */
long long qk_holds(struct qk_party *p, size_t i);
/* Those of these servers that have something of this party's. */
unsigned qk_mine(struct qk_party *p, unsigned among);
/* These servers' keys are taken by somebody who is none of us. */
void qk_stranger(unsigned mask, const char *name);
/* The stranger has gone. */
void qk_stranger_off(unsigned mask, const char *name);
/* Waits until these servers have nothing, but for strangers where there are
 * some; fails the test if something stays. */
void qk_clean(const char *where, unsigned mask, unsigned strangers);
/* A newcomer gets it on all five and gives it back. */
void qk_free_for_all(const char *where, const char *name);

#endif
