/* SPDX-License-Identifier: MIT
 *
 * server_impl.h - a test's server, as server.c (its process) and server_cmd.c
 * (what is said to it) see it.
 */
#ifndef DIBS_TESTS_SERVER_IMPL_H
#define DIBS_TESTS_SERVER_IMPL_H

#include <pthread.h>

#include "support/server.h"

struct ts_server {
    struct ts_server *next; /* list_mu of server.c */

    pid_t owner; /* this and the next: const after init */
    pid_t keeper;
    int ctl;     /* to the keeper */
    int port_fd; /* keeps the port ours */
    int port;
    char *dir, *socket, *log, *url, *tcp_url;
    char **argv; /* of the server, ended by NULL */

    pthread_mutex_t mu;
    pid_t pid;        /* mu; 0 when there is none */
    bool paused;      /* mu */
    char *password;   /* mu; or NULL */
    redisContext *cn; /* mu; or NULL */
    pid_t cn_pid;     /* mu; the process that opened cn */
    long long own;    /* mu; commands sent by us since it started */
};

/* Locks: needs s.mu. */
void ts__cn_drop(struct ts_server *s);
bool ts__cn_ready(struct ts_server *s); /* it answers; one attempt */

/* A socket bound to a port of 127.0.0.1 that is ours while it is open and that
 * can be listened on by those who set SO_REUSEADDR. */
int ts__port_take(int *port);

#endif
