/* SPDX-License-Identifier: MIT
 *
 * replica_ack.h - calls that replicas must have, too: sent in groups, with a
 * WAIT behind each group.
 */
#ifndef DIBS_CLIENT_COMMAND_REPLICA_ACK_H
#define DIBS_CLIENT_COMMAND_REPLICA_ACK_H

#include "net/conn.h"

struct dibs__command;
struct dibs__pooled_conn;
struct dibs__server;

/* One for a server; all of it io only. */
struct dibs__replica_acks {
    struct dibs__pooled_conn *conn; /* the connection; NULL between two */
    bool up;                        /* it is ready */
    bool wait_in_flight;            /* the answer to WAIT is to come */
    bool ending;                    /* nobody waits for it any more */
    struct dibs__list queue;        /* calls that go with the next group */
    struct dibs__list group; /* calls that were answered, and wait for it */
    struct dibs__req wait, role;
    bool counted;         /* ROLE was asked in this group */
    dibs_err refused;     /* and this is why it did not help, or OK */
    int64_t online;       /* replicas that are connected, as ROLE last said */
    int64_t asked, ms;    /* what WAIT was given */
    struct dibs__task go; /* before the loop sleeps: send what waits */
    /* For command.c, which is below: the call goes with the next group; it was
     * answered, and what it did is to be acknowledged. */
    void (*add)(struct dibs__server *s, struct dibs__command *cmd);
    void (*keep)(struct dibs__server *s, struct dibs__command *cmd);
    struct dibs__timer timer; /* to dial again; to look at a WAIT that hangs */
};

void dibs__replica_acks_init(struct dibs__server *s);
/* The client is closing: what waits for acknowledgements ends as unacked, with
 * CLOSED, and so does what is still to be answered. */
void dibs__replica_acks_end(struct dibs__server *s);
/* The main connection went down, or all do: this one must not go on talking to
 * the old server. All calls are started anew, or end. */
void dibs__replica_acks_drop(struct dibs__server *s);
void dibs__replica_acks_abandon(struct dibs__server *s);

#endif
