/* SPDX-License-Identifier: MIT
 *
 * kit.h - what the tests of several servers share: sentinels with a master and
 * replicas, a cluster, and a row of all kinds of locks.
 *
 * Use     One set of servers a program, made and ended by cmocka's group
 *         fixtures. Everything else a test makes, it ends.
 */
#ifndef DIBS_TESTS_TOPOLOGY_KIT_H
#define DIBS_TESTS_TOPOLOGY_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dibs/dibs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/server.h"
#include "support/util.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Longer than any hang guard. */
#define TOP_LONG ts_ms(120000)

static inline void want(const char *what, dibs_err err, dibs_err wanted)
{
    if (err != wanted)
        fail_msg("%s: %s", what, dibs_strerror(err));
}

/* ---- kinds ------------------------------------------------------------- */

struct top_kind {
    const char *name;
    dibs_err (*make)(dibs_client *c, const char *name, dibs_lock **out);
};

extern const struct top_kind top_kinds[4];

dibs_lock *top_lock(dibs_client *c, size_t kind, const char *name);
/* Taken, nested, looked at, given back, all kinds, under names that begin
 * with this. */
void top_all_kinds(dibs_client *c, const char *prefix);

/* ---- what a client told ------------------------------------------------ */

struct top_events {
    atomic_int of[16]; /* by kind */
    atomic_int lost;   /* on_lost */
    char last[300];    /* text of the last trouble */
};

void top_hear(const dibs_event *ev, void *arg); /* on_event */
void top_lost(const char *name, dibs_owner owner, void *arg);

/* For async calls. */
struct top_end {
    atomic_bool over;
    dibs_err err;
};

void top_ended(dibs_err err, void *arg);
dibs_err top_wait(struct top_end *end);

/* ---- sentinels --------------------------------------------------------- */

#define SERVICE "locks"

/* A master with two replicas, and three sentinels. */
struct top_sentinels {
    struct ts_server *server[3], *sentinel[3];
    char url[200];
};

/* After this long without an answer a server is taken for dead. A slow machine
 * must not look like one: patient, until a test wants a failover. */
#define TOP_PATIENT_MS   5000
#define TOP_IMPATIENT_MS 700

void top_sentinels_start(struct top_sentinels *t);
void top_sentinels_patience(struct top_sentinels *t, int ms);
void top_sentinels_stop(struct top_sentinels *t);
/* Which of the servers the sentinels call the master: an index, -1 none. */
int top_master(struct top_sentinels *t);
/* Waits until another than this one is it, and says so itself. */
int top_master_after(struct top_sentinels *t, int old);
/* Tells one server to be a replica of the other. False: it did not hear it. */
bool top_follow(struct ts_server *s, struct ts_server *master);
/* The old one is back, as a replica; all are in step. */
void top_heal(struct top_sentinels *t, int old);
/* All that the master has is at its replicas. */
void top_in_step(struct top_sentinels *t, int master);

/* ---- clusters ---------------------------------------------------------- */

/* Three masters, and behind them a replica of each: node[i + 3] of node[i]. */
struct top_cluster {
    struct ts_server *node[6];
    char id[6][41];
    char url[200];
};

/* No replica takes over before this is allowed: a slow machine would else lead
 * to a failover that nobody wants. */
void top_cluster_start(struct top_cluster *t, const char *const *extra);
void top_cluster_allow_failover(struct top_cluster *t);
void top_cluster_stop(struct top_cluster *t);
int top_slot(struct top_cluster *t, const char *key);
/* Which node this one takes for the slot's owner; -1: none. */
int top_believed(struct top_cluster *t, int node, int slot);
/* Which of the nodes has this slot now; -1: none that answers. */
int top_owner(struct top_cluster *t, int slot);
/* All masters have heard of the latest epoch: the one that takes a slot now is
 * believed. */
bool top_in_epoch(struct top_cluster *t);
/* Moves a slot with its keys, step by step as redis-cli does. */
void top_move_slot(struct top_cluster *t, int slot, int from, int to);
/* The first two steps: both know that it is on its way. */
void top_begin_move(struct top_cluster *t, int slot, int from, int to);
void top_move_keys(struct top_cluster *t, int slot, int from, int to);
void top_end_move(struct top_cluster *t, int slot, int from, int to);
/* A name in that slot. */
void top_name_in(struct top_cluster *t, int slot, char *buf, size_t size);

#endif
