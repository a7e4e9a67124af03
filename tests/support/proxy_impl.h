/* SPDX-License-Identifier: MIT
 *
 * proxy_impl.h - the inside of the fault proxy, in three files:
 *
 *   proxy.c       its life, its thread, its doors, its switches
 *   proxy_link.c  one client and its connection to the server
 *   proxy_book.c  rules, counts, log: what to do and what was seen
 *
 * One mutex, p.mu, guards everything. The thread holds it except while it
 * polls; the one that else holds it may change what is written here but must
 * leave descriptors alone, since the thread may be polling them, and wake it.
 */
#ifndef DIBS_TESTS_PROXY_IMPL_H
#define DIBS_TESTS_PROXY_IMPL_H

#include <poll.h>
#include <pthread.h>

#include "support/proxy.h"

struct rule {
    struct rule *next;
    int id;
    bool active;
    struct ts_rule spec; /* strings are ours */
    unsigned seen;       /* requests that fitted */
    unsigned hits, executed, done;
};

struct count {
    char name[32]; /* upper case */
    unsigned n;
};

struct link;

struct ts_proxy {
    /* const after init */
    struct ts_server *server;
    char *socket, *url, *tcp_url;
    int port, port_fd;
    int wake; /* eventfd: look again */
    pthread_t thread;

    pthread_mutex_t mu;
    pthread_cond_t changed; /* on the monotonic clock */

    /* mu */
    bool stop, refuse, hole_up, hole_down, bytewise;
    bool kill, kill_rst;  /* end all links at the next round */
    unsigned asked, seen; /* rounds wanted, rounds done */
    struct rule *rules;   /* oldest first; never freed before the end */
    int last_rule;
    struct link *links;
    unsigned last_link, accepted, messages;
    struct count *counts;
    size_t n_counts;
    char **log;
    size_t n_log;

    /* its thread only */
    int doors[2]; /* Unix, TCP; -1 = closed */
    struct pollfd *polls;
    size_t n_polls;
};

/* All that follows: Thread: the proxy's. Locks: needs p.mu. */

/* ---- proxy_book.c */

/* A request was seen: into the log; returns the rule to act, or NULL. */
struct rule *ts__book_request(struct ts_proxy *p, unsigned link,
                              const char *msg, size_t len);
void ts__book_passed(struct ts_proxy *p, const char *msg, size_t len);
/* A message for a subscriber; false: it is to be lost. */
bool ts__book_message(struct ts_proxy *p, const char *msg, size_t len);
void ts__book_executed(struct ts_proxy *p, struct rule *r); /* r may be NULL */
void ts__book_done(struct ts_proxy *p, struct rule *r);     /* r may be NULL */
void ts__book_forget(struct ts_proxy *p);                   /* counts and log */
void ts__book_free(struct ts_proxy *p);

/* ---- proxy_link.c */

/* Takes the client's descriptor. */
void ts__link_open(struct ts_proxy *p, int cfd, bool tcp);
/* What it waits for, two entries; and until when, INT64_MAX = forever. */
int64_t ts__link_polls(const struct link *l, struct pollfd f[2]);
/* What came of it: reads, acts, writes. */
void ts__link_serve(struct link *l, short from_client, short from_server);
void ts__link_release(struct link *l);
void ts__link_kill(struct link *l, bool rst);
/* Frees those that are dead; returns how many live. */
size_t ts__links_sweep(struct ts_proxy *p);
struct link *ts__link_next(const struct link *l);
bool ts__link_dead(const struct link *l);

#endif
