/* SPDX-License-Identifier: MIT
 *
 * net.h - servers, connections to them, and what happens on the way.
 *
 * A connection is two rows of pieces of bytes, one up to the server, one down
 * to the client. Each piece arrives some time after it was sent, in order
 * within its row. Windows of trouble make some of them late, cut them at any
 * byte, or lose them.
 */
#ifndef DIBS_SIM_NET_H
#define DIBS_SIM_NET_H

#include "sim/fiber.h"
#include "sim/redis.h"

struct sim_link;

struct sim_server {
    int id;
    char host[24];
    int port;
    struct sr_server *s;
    struct sr_session *admin; /* the checker's; NULL while it is down */
    struct sr_snapshot *kept; /* while it is down: what it will have */
    bool down, stopped;
    int64_t offset_us; /* its wall clock is that plus simulated time, */
    int64_t ppm;       /* faster by so many millionths */
    struct sim_link *links;
    int64_t tick_at;
    int64_t look_at;     /* us; until then what ends first is not looked for */
    int64_t clean_since; /* us; no trouble of its own since */
    uint64_t commands;
    const char *rights; /* a command, said when it starts; NULL = none */
    int64_t cost_us;    /* of a piece that it reads; 0 = nothing */
    int64_t busy_until, worked_us;
};

/* ---- servers ----------------------------------------------------------- */

struct sim_server *sim_server_new(uint64_t seed, const struct sr_config *how);
void sim_server_stop(struct sim_server *sv);
void sim_server_continue(struct sim_server *sv);
/* The process dies. keep: what it has is there again when it comes back. */
void sim_server_crash(struct sim_server *sv, bool keep);
void sim_server_restart(struct sim_server *sv);
/* After something was done with it from outside: messages go out, and it is
 * looked at again when something is due. */
void sim_server_settle(struct sim_server *sv);
/* One command, by somebody for whom there is no network: the answer as it is
 * in the protocol, line ends as '|'. NULL: it is down or stopped. */
const char *sim_server_ask(struct sim_server *sv, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Called when a server has executed what a client sent, or what was due by its
 * clock. NULL: nobody asks. */
extern void (*sim_server_ran)(struct sim_server *sv);
/* Does this process track the key: would it be told of a change? */
bool sim_is_tracked(const struct sim_server *sv, const char *key,
                    const struct sim_proc *p);
struct sim_server *sim_server_at(const char *host, int port);
extern struct sim_server *sim_servers[64];
extern int sim_nservers;

/* ---- trouble ----------------------------------------------------------- */

enum sim_trouble {
    SIM_SLOW,    /* a piece takes up to amount us more */
    SIM_BLOCKED, /* nothing arrives before the end of the window; then all */
    SIM_HOLE,    /* pieces vanish, and nobody is told: half-open ever after */
    SIM_FLAKY    /* one piece in `amount` is cut, and the connection with it */
};

#define SIM_UP   1
#define SIM_DOWN 2

struct sim_window {
    enum sim_trouble kind;
    int64_t until;
    int proc, server; /* ids; -1 = all */
    int ways;         /* SIM_UP, SIM_DOWN */
    int64_t amount;
    int before; /* only connections that are older than this; 0 = all */
};

extern int sim_next_link; /* for before: those that are there now */
void sim_window_open(const struct sim_window *w);
void sim_windows_close(void); /* all */
/* All connections between them end now, cut at any byte: of what is under way,
 * some arrives and some does not. deaf: only the clients hear of it, and what
 * they have sent still arrives. */
void sim_cut(int proc, int server, bool deaf);
/* The process is gone: the system closes its sockets. */
void sim_hang_up_all(struct sim_proc *p);
/* A server reads these bytes, that a process had given up, more than a lease
 * after that server had answered it again. */
void sim_lateness_add(struct sim_proc *p, const char *bytes, size_t n);
/* Did a server read a command of this owner since then, that its process had
 * given up, so late? */
bool sim_came_late(const struct sim_proc *p, const char *owner, int64_t since);
extern uint64_t sim_pieces, sim_cuts;
extern bool sim_shows_wire; /* the history has all pieces */

/* ---- between net.c and wrap_net.c -------------------------------------- */

struct sim_sock;
struct sim_link *sim_link_new(struct sim_server *sv, struct sim_sock *sock,
                              struct sim_proc *p);
void sim_link_send(struct sim_link *l, const void *bytes, size_t n);
void sim_link_close(struct sim_link *l); /* the client has closed it */

void sim_sock_up(struct sim_sock *s);
void sim_sock_failed(struct sim_sock *s, int error_number);
void sim_sock_arrived(struct sim_sock *s, const void *bytes, size_t n);
void sim_sock_ended(struct sim_sock *s);

#endif
