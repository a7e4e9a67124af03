/* SPDX-License-Identifier: MIT
 *
 * redis.h - a small Redis for tests that live in simulated time: the whole API.
 *
 * A server is an object. It has no thread, no socket and no clock: its owner
 * says what time it is, hands it the bytes of its clients and takes its
 * replies. It answers as Redis 7.0 does, byte for byte, as far as it goes;
 * test_differ.c compares it with a real server. Scripts run in Lua 5.1.
 *
 *     struct sr_server *s = sr_server_new(&(struct sr_config){.now_us = now});
 *     struct sr_session *c = sr_open(s, "10.0.0.1:4000");
 *     sr_feed(c, bytes, n);           a piece may end anywhere
 *     n = sr_take(c, bytes, size);    what it answers
 *     sr_close(c);
 *
 * Same calls, same times, same seed: same bytes. There is no global state, so
 * one process may have many servers. All memory belongs to the server; it goes
 * with sr_server_free, sessions and what they had to say included.
 *
 * Time      is microseconds since 1970 and must not go back. Within one command
 *           it stands still. Keys that ended are gone for everybody who looks;
 *           sr_tick deletes them, wakes who waits (WAIT, CLIENT PAUSE), and
 *           sr_next says when that is due.
 * Thread    one, the caller's.
 * Memory    that ends ends the program: it is a test tool.
 */
#ifndef DIBS_SIM_REDIS_H
#define DIBS_SIM_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sr_server;
struct sr_session;
struct sr_snapshot;

#define SR_SLOTS 16384

struct sr_config {
    int64_t (*now_us)(void *arg); /* required */
    void *arg;
    uint64_t seed;    /* of its random choices and its names */
    const char *host; /* as others know it; NULL = "127.0.0.1" */
    int port;         /* 0 = 6379 */
    bool sentinel;    /* a sentinel instead: no keys */
    bool cluster;     /* a node of a cluster: see sr_slots_assign */
};

struct sr_server *sr_server_new(const struct sr_config *config);
void sr_server_free(struct sr_server *s); /* accepts NULL */

/* ---- sessions ---------------------------------------------------------- */

/* A client connects. addr: where it comes from, "host:port". */
struct sr_session *sr_open(struct sr_server *s, const char *addr);
/* Bytes from the client; they are executed as far as that can be done now. */
void sr_feed(struct sr_session *c, const void *bytes, size_t n);
/* Bytes for the client, up to so many. */
size_t sr_take(struct sr_session *c, void *bytes, size_t size);
/* The same bytes, left where they are. */
size_t sr_peek(const struct sr_session *c, void *bytes, size_t size);
size_t sr_waiting(const struct sr_session *c); /* bytes to be taken */
/* The next session that has bytes to be taken, or was ended, since it was given
 * out last; NULL = none. With sr_owner, which is anything the caller likes,
 * nobody has to look at all of them. */
struct sr_session *sr_touched(struct sr_server *s);
void sr_set_owner(struct sr_session *c, void *owner);
void *sr_owner(const struct sr_session *c);
/* The server has ended the connection; what is waiting may still be taken. */
bool sr_ended(const struct sr_session *c);
int64_t sr_session_id(const struct sr_session *c);
/* The client is gone: nothing of it that was not executed will be. Frees c. */
void sr_close(struct sr_session *c);
/* The same, but a stopped server finds its bytes when it goes on, executes them
 * and only then sees that the client is gone; as a real one does. c is no
 * longer the caller's. */
void sr_hang_up(struct sr_session *c);

/* ---- time -------------------------------------------------------------- */

/* Does what is due by now. */
void sr_tick(struct sr_server *s);
/* When sr_tick has something to do, in ms since 1970; -1 = never. */
int64_t sr_next(struct sr_server *s);
size_t sr_keys(const struct sr_server *s); /* how many there are, about */

/* ---- faults ------------------------------------------------------------ */

/* Asked before each command of a client: NULL, or the error to answer with
 * instead of executing it, such as "BUSY Redis is busy ...". */
typedef const char *sr_refuse_fn(void *arg, int64_t session,
                                 const char *command);
void sr_refuse(struct sr_server *s, sr_refuse_fn *refuse, void *arg);

enum sr_fault {
    SR_LOADING,   /* its data are not there yet */
    SR_BUSY,      /* a script does not end */
    SR_FULL,      /* no memory left: OOM */
    SR_MISCONF,   /* it cannot write its file: no writes */
    SR_LINK_DOWN, /* a replica without its master: MASTERDOWN */
    SR_FAULTS
};
void sr_fault(struct sr_server *s, enum sr_fault fault, bool on);

/* A stopped process: bytes pile up; they are executed when it goes on, session
 * by session in order of their ids. Who wants another order keeps bytes back,
 * and feeds them afterwards. */
void sr_stop(struct sr_server *s);
void sr_continue(struct sr_server *s);

/* Memory was short, and this key had to go. False: there is no such key. */
bool sr_evict(struct sr_server *s, int db, const char *key);
/* This hash ended by itself, before the end that was seen last, and is not
 * there since. */
bool sr_ended_sooner(const struct sr_server *s, const char *key);

/* ---- looks that change nothing ----------------------------------------- */

/* Is there such a key, whose time is not over? */
bool sr_has(const struct sr_server *s, const char *key);
/* A string key as a number; `none` if there is no such key. */
int64_t sr_number(const struct sr_server *s, const char *key, int64_t none);
/* This hash expired, and is not there since. */
bool sr_expired(const struct sr_server *s, const char *key);
/* Has a hash this field, with this value? NULL: with any. */
bool sr_field_is(const struct sr_server *s, const char *key, const char *field,
                 const char *value);
/* Calls fn with the owner of each session that tracks this key. */
void sr_tracked_by(const struct sr_server *s, const char *key,
                   void (*fn)(void *owner, void *arg), void *arg);

/* ---- data -------------------------------------------------------------- */

/* All keys, as a copy. */
struct sr_snapshot *sr_snapshot(const struct sr_server *s);
void sr_snapshot_free(struct sr_snapshot *snap); /* accepts NULL */

/* The process dies and another takes its place: sessions end, scripts and
 * settings of clients are forgotten, numbers of connections begin anew, it has
 * another run_id. Its data are those of the snapshot; NULL = none. It is a
 * master, unless it was a replica: then it is one still, and has to be synced
 * again (sr_replicate). */
void sr_restart(struct sr_server *s, const struct sr_snapshot *data);

/* ---- replication ------------------------------------------------------- */

/* replica becomes one of master's, with all its data as they are now. Both
 * must live until one of them is promoted, restarted or freed. */
void sr_replicate(struct sr_server *master, struct sr_server *replica);
/* How far the master has written, how far the replica has read. */
int64_t sr_offset(const struct sr_server *s);
/* The replica reads on, up to an offset of the master's; not while it is
 * stopped. A script, or any other command, is read whole or not at all. */
void sr_deliver(struct sr_server *replica, int64_t offset);
/* The master hears how far the replica is; WAIT counts that. */
void sr_acknowledge(struct sr_server *replica);
/* The replica becomes a master, with what it has read. Its old master does not
 * notice. */
void sr_promote(struct sr_server *replica);

/* ---- sentinels --------------------------------------------------------- */

/* What a sentinel says of a service; when it said otherwise before, those
 * who listen to +switch-master are told. */
void sr_sentinel_master(struct sr_server *s, const char *service,
                        const char *host, int port);
/* Another sentinel that it knows of. */
void sr_sentinel_peer(struct sr_server *s, const char *host, int port);

/* ---- clusters ---------------------------------------------------------- */

/* Each node has its own view of who has which slots. */
void sr_slots_assign(struct sr_server *s, int first, int last,
                     const struct sr_server *owner); /* NULL = nobody */
enum sr_slot_move { SR_STABLE, SR_MIGRATING, SR_IMPORTING };
/* A slot on its way to, or from, the other. */
void sr_slot_move(struct sr_server *s, int slot, enum sr_slot_move move,
                  const struct sr_server *other);
/* A message published at one node of a cluster is heard at all: fn is told of
 * each, and hands it to the others with sr_message, when it likes. */
typedef void sr_published_fn(void *arg, struct sr_server *at,
                             const char *channel, const char *message);
void sr_on_publish(struct sr_server *s, sr_published_fn *fn, void *arg);
void sr_message(struct sr_server *s, const char *channel, const char *message);
/* MIGRATE: one key goes over. False: it is not there. */
bool sr_key_move(struct sr_server *from, struct sr_server *to, const char *key);
int sr_key_slot(const char *key, size_t n);

#endif
