/* SPDX-License-Identifier: MIT
 *
 * replica_ack.h - commands whose writes replicas must confirm: sent in groups,
 * each followed by one WAIT.
 */
#ifndef DIBS_CLIENT_COMMAND_REPLICA_ACK_H
#define DIBS_CLIENT_COMMAND_REPLICA_ACK_H

#include "net/conn.h"

struct dibs__command;
struct dibs__pooled_conn;
struct dibs__server;

/* One per server. io only. */
struct dibs__replica_acks {
    struct dibs__pooled_conn *conn; /* dedicated connection, or NULL */
    bool up;                        /* conn is ready */
    bool wait_in_flight;            /* the reply to WAIT is pending */
    bool ending;             /* the client is closing: accept no commands */
    struct dibs__list queue; /* commands of the next group */
    struct dibs__list group; /* commands that have a reply and await WAIT */
    struct dibs__req wait, role;
    bool role_sent;          /* ROLE was sent with this group */
    dibs_err refused;        /* error of that ROLE, or OK */
    int64_t replicas_online; /* connected replicas, from the latest ROLE */
    int64_t wait_replicas, wait_ms; /* arguments of WAIT */
    struct dibs__task send_task;    /* sends the next group, before the loop
                                       sleeps */
    /* Called by command.c, which does not depend on replica_ack.c. add: queues
     * the command for the next group. keep: the command has its reply and
     * waits for WAIT. */
    void (*add)(struct dibs__server *s, struct dibs__command *cmd);
    void (*keep)(struct dibs__server *s, struct dibs__command *cmd);
    struct dibs__timer timer; /* redial, or check for an obsolete WAIT */
};

void dibs__replica_acks_init(struct dibs__server *s);
/* The client is closing: completes all commands with CLOSED; those that were
 * executed as under_replicated. Later commands get the same. */
void dibs__replica_acks_end(struct dibs__server *s);
/* The main connection is down, so another server may answer now: closes conn
 * and restarts all commands. */
void dibs__replica_acks_drop(struct dibs__server *s);
/* Closes the descriptor and nothing else: in a child after fork. */
void dibs__replica_acks_abandon(struct dibs__server *s);

#endif
