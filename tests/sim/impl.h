/* SPDX-License-Identifier: MIT
 *
 * impl.h - the small Redis as its own files see it.
 *
 * In reading order:
 *
 *   bytes.c dict.c value.c  strings, tables, what a key can hold
 *   keys.c                  the keyspace: looking, changing, expiry
 *   resp.c                  requests read, replies written
 *   session.c               one client: bytes in, bytes out
 *   exec.c                  one command: found, allowed, run, passed on
 *   cmd_*.c                 what the commands do; each file has a table
 *   script.c lua_resp.c     scripts; their values and ours
 *   acl.c tracking.c        who may do what; who is told of a change
 *   pubsub.c                channels
 *   repl.c                  replicas
 *   sentinel.c cluster.c    the other two things a server can be
 *   info.c                  what it tells of itself
 *   server.c                its life, its clock, its faults
 *
 * The simulator (docs/testing.md says what it is for):
 *
 *   prng.h                       one seed, many streams of random numbers
 *   fiber.c fiber_local.c        threads as fibers, processes, time
 *   memory.c                     the same addresses in each run
 *   wrap_sync.c wrap_uv.c wrap_net.c  what the library asks of the system
 *   net.c                        servers, connections, faults of connections
 *   plan.c                       the plan that a seed draws
 *   fault_injector.c             injects the faults of the plan
 *   program.c calls.c extend.c   the simulated programs; *_workload.c and
 *                                concurrent_owner.c for some of their calls
 *   redisson_client.c            Redisson clients beside them
 *   invariant_checker*.c         the promises; delayed_commands.c and
 *                                server_backdoor.c for it
 *   simulation.c                 one run from start to end
 *   sim.c                        many seeds; shrinks a failing one
 *   scale.c                      another program: many clients, no faults
 *   mutants/                     planted bugs
 */
#ifndef DIBS_SIM_IMPL_H
#define DIBS_SIM_IMPL_H

#include "sim/redis.h"
#include "sim/value.h"

#define SR_DBS 16

struct lua_State;
struct sr_call;

/* ---- commands ---------------------------------------------------------- */

enum sr_flags {
    SR_WRITE = 1 << 0,
    SR_READ = 1 << 1,
    SR_DENYOOM = 1 << 2,
    SR_NOSCRIPT = 1 << 3,
    SR_IN_PUBSUB = 1 << 4, /* also where somebody subscribes */
    SR_IN_LOADING = 1 << 5,
    SR_IN_STALE = 1 << 6, /* also on a replica without its master */
    SR_NO_AUTH = 1 << 7,
    SR_SENTINEL = 1 << 8,    /* a sentinel has it, too */
    SR_REPLICATES = 1 << 9,  /* may do, without being a write */
    SR_EVAL = 1 << 10,       /* its keys are counted by its second argument */
    SR_CHANNELS = 1 << 11,   /* its arguments are channels: all ... */
    SR_CHANNEL = 1 << 12,    /* ... or the first */
    SR_PATTERNS = 1 << 13,   /* ... or patterns of them */
    SR_SHARDED = 1 << 14,    /* ... which have slots */
    SR_PUBSUB = 1 << 15,     /* category */
    SR_SLOW_OK = 1 << 16,    /* also while a script does not end */
    SR_ADMIN = 1 << 17,      /* category */
    SR_CONTAINER = 1 << 18,  /* has subcommands: rows "name|sub" */
    SR_NOT_SERVER = 1 << 19, /* only a sentinel has it */
};

struct sr_command {
    const char *name; /* in small letters; "client|info" */
    void (*run)(struct sr_call *k);
    int arity; /* -n: n or more */
    unsigned flags;
    int first, last, step; /* keys among the arguments; last < 0 from the end */
};

/* One command being executed. */
struct sr_call {
    struct sr_server *s;
    struct sr_session *c; /* who asked; at a replica, its master */
    const struct sr_command *cmd;
    int argc;
    struct sr_str *argv; /* views */
    struct sr_buf *out;  /* for its reply */
    bool changed;        /* something; so replicas must have it */
    bool passed_on;      /* they have it already, in other words */
};

const struct sr_command *sr__command_find(const struct sr_server *s,
                                          struct sr_str name,
                                          const struct sr_str *sub);
/* The tables; a row without a name ends each. */
extern const struct sr_command sr__key_commands[], sr__expire_commands[],
    sr__string_commands[], sr__hash_commands[], sr__list_commands[],
    sr__zset_commands[], sr__zrange_commands[], sr__pubsub_commands[],
    sr__script_commands[], sr__client_commands[], sr__server_commands[],
    sr__acl_commands[], sr__sentinel_commands[], sr__cluster_commands[];
/* Calls fn for each row. */
void sr__commands_each(void (*fn)(const struct sr_command *, void *), void *);

/* Runs what a client sent. False: it must wait, and nothing was done. */
bool sr__execute(struct sr_session *c, int argc, struct sr_str *argv);
/* Why nothing can be written here; NULL: it can. */
const char *sr__write_refused(const struct sr_server *s);
/* Runs what a replica reads. */
void sr__apply(struct sr_session *c, int argc, struct sr_str *argv);
/* The checked command itself, and what follows from it. */
void sr__run(struct sr_call *k);
/* Which arguments are keys: calls fn for each. */
void sr__keys_each(const struct sr_command *cmd, int argc,
                   const struct sr_str *argv,
                   void (*fn)(struct sr_str key, void *arg), void *arg);

/* ---- replies ----------------------------------------------------------- */

void sr__reply_status(struct sr_call *k, const char *text);
void sr__reply_ok(struct sr_call *k);
void sr__reply_int(struct sr_call *k, int64_t n);
void sr__reply_str(struct sr_call *k, struct sr_str s);
void sr__reply_text(struct sr_call *k, const char *text);
void sr__reply_float(struct sr_call *k, double d);
void sr__reply_nil(struct sr_call *k);
void sr__reply_array(struct sr_call *k, size_t n);
void sr__reply_nil_array(struct sr_call *k);
/* With its code: "ERR ...". */
void sr__reply_error(struct sr_call *k, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void sr__reply_syntax(struct sr_call *k);
void sr__reply_wrongtype(struct sr_call *k);
void sr__reply_arity(struct sr_call *k);
/* The argument as a number, or an error reply and false. */
bool sr__arg_int(struct sr_call *k, int i, int64_t *out);
bool sr__arg_range(struct sr_call *k, int i, int64_t low, int64_t high,
                   int64_t *out);
bool sr__arg_float(struct sr_call *k, int i, double *out);
/* When n units from now, or since 1970, are over. False: never. */
bool sr__expire_time(struct sr_call *k, int64_t n, int64_t unit, bool at,
                     int64_t *out);
void sr__reply_bad_expire(struct sr_call *k);
/* The same into any buffer. */
void sr__out_bulk(struct sr_buf *out, struct sr_str s);
void sr__out_command(struct sr_buf *out, int argc, const struct sr_str *argv);

/* A request at the beginning of these bytes. Gives how long it is; 0: not
 * all of it is there; -1: it is none, *why says so. argv are views, to be
 * freed. An empty line has no arguments. */
long sr__parse(const char *p, size_t n, int *argc, struct sr_str **argv,
               const char **why);

/* ---- keys -------------------------------------------------------------- */

/* What the key holds; NULL: nothing, or it has ended. */
struct sr_value *sr__key(struct sr_call *k, struct sr_str key);
/* The same, if it is of this type; else an error reply and false. */
bool sr__key_of(struct sr_call *k, struct sr_str key, enum sr_type type,
                struct sr_value **out);
/* An empty value for a key that has none; the caller says changed. */
struct sr_value *sr__key_make(struct sr_call *k, struct sr_str key,
                              enum sr_type type);
/* It holds something else now; an expiry is gone. Takes over v. */
void sr__key_put(struct sr_call *k, struct sr_str key, struct sr_value *v);
bool sr__key_del(struct sr_call *k, struct sr_str key);
/* Must be said after every change; deletes what became empty. */
void sr__key_changed(struct sr_call *k, struct sr_str key);
/* This hash is to end then. */
void sr__key_promised(struct sr_call *k, struct sr_str key, int64_t end);
/* Everything in a database, -1 = in all. */
void sr__keys_flush(struct sr_call *k, int db);
void sr__keys_free(struct sr_server *s);
void sr__keys_load(struct sr_server *s, const struct sr_snapshot *snap);
/* Deletes what has ended. */
void sr__keys_expire(struct sr_server *s);
int64_t sr__keys_next_expiry(const struct sr_server *s);

/* ---- sessions ---------------------------------------------------------- */

enum sr_mode { SR_NORMAL, SR_BLOCKED_WAIT, SR_ENDED };

struct sr_session {
    struct sr_session *next, *prev; /* in order of their ids */
    struct sr_server *s;
    int64_t id;
    char *addr, *name;
    struct sr_user *user; /* NULL: has not said who it is */
    int db;
    enum sr_mode mode;
    bool closing;   /* when this command is over */
    bool asking;    /* ASKING came right before */
    bool is_master; /* a replica's session for what its master sends */
    bool executing;
    bool gone;    /* the client; it goes when the server has seen that */
    bool touched; /* it has something to say; see sr_touched */
    struct sr_session *touched_next;
    void *owner; /* whatever the one that opened it likes */
    struct sr_buf in, out;
    int64_t born;
    char last[64]; /* command */

    struct sr_dict channels, patterns, shards; /* subscribed to */

    bool tracking, optin, optout, noloop;
    bool caching;     /* CLIENT CACHING came right before */
    int64_t redirect; /* 0 = to itself */

    int64_t wait_count, wait_until; /* WAIT */
    int64_t written;                /* offset behind its last write */
};

void sr__touch(struct sr_session *c); /* something was written for it */
void sr__sessions_free(struct sr_server *s);
void sr__sessions_see_gone(struct sr_server *s);
void sr__session_run(struct sr_session *c);
void sr__session_end(struct sr_session *c);
struct sr_session *sr__session_find(struct sr_server *s, int64_t id);
void sr__session_line(struct sr_buf *out, const struct sr_session *c);

/* ---- channels ---------------------------------------------------------- */

int64_t sr__publish(struct sr_server *s, struct sr_str channel,
                    struct sr_str message);
void sr__pubsub_leave(struct sr_session *c); /* all, silently */
void sr__pubsub_slot_gone(struct sr_server *s, int slot);
bool sr__subscribed(const struct sr_session *c);

/* ---- rights ------------------------------------------------------------ */

struct sr_user;

struct sr_user *sr__user_find(struct sr_server *s, struct sr_str name);
const char *sr__user_name(const struct sr_user *u);
bool sr__user_enters(const struct sr_user *u, struct sr_str password);
bool sr__user_open(const struct sr_user *u); /* no password needed */
void sr__users_init(struct sr_server *s);
void sr__users_free(struct sr_server *s);
/* requirepass */
void sr__users_password(struct sr_server *s, struct sr_str password);

enum sr_denied { SR_MAY, SR_NOT_COMMAND, SR_NOT_KEY, SR_NOT_CHANNEL };
enum sr_denied sr__user_may(const struct sr_user *u,
                            const struct sr_command *cmd, int argc,
                            const struct sr_str *argv);

/* ---- tracking ---------------------------------------------------------- */

/* c has read the keys of this command. */
void sr__track(struct sr_session *c, const struct sr_command *cmd, int argc,
               const struct sr_str *argv);
/* A key was changed, by the session that runs if there is one. */
void sr__track_changed(struct sr_server *s, struct sr_str key);
void sr__track_flushed(struct sr_server *s);
/* What was meant for the session that has just been answered. */
void sr__track_told(struct sr_server *s, struct sr_session *c);
void sr__track_leave(struct sr_session *c);
void sr__track_free(struct sr_server *s);

/* ---- scripts ----------------------------------------------------------- */

void sr__scripts_free(struct sr_server *s);
void sr__sha1_hex(struct sr_str s, char hex[41]);
/* A reply as a Lua value, and the other way round. */
size_t sr__lua_push(struct lua_State *lua, const char *reply, size_t n);
void sr__lua_reply(struct lua_State *lua, struct sr_call *k);

/* ---- replication ------------------------------------------------------- */

struct sr_repl_entry;

/* Between these two, all that is passed on is one piece. */
void sr__repl_begin(struct sr_server *s);
void sr__repl_end(struct sr_server *s);
void sr__repl_add(struct sr_server *s, int db, int argc,
                  const struct sr_str *argv);
/* The call, in these words instead of its own; NULL ends them. */
void sr__repl_instead(struct sr_call *k, const struct sr_str *argv, int argc);
int sr__repl_acked(const struct sr_server *s, int64_t offset);
void sr__repl_forget(struct sr_server *s); /* all its ties */

/* ---- clusters ---------------------------------------------------------- */

struct sr_cluster;

/* May this command run here? Else an error reply and false. */
bool sr__cluster_allows(struct sr_call *k);
bool sr__cluster_local(struct sr_server *s, struct sr_str key);
void sr__cluster_init(struct sr_server *s);
void sr__cluster_free(struct sr_server *s);
void sr__sentinel_free(struct sr_server *s);

/* ---- the server -------------------------------------------------------- */

struct sr_server {
    struct sr_config config;
    char *host;
    uint64_t random;
    char run_id[41];
    int64_t born; /* ms */

    struct sr_dict db[SR_DBS]; /* key to struct sr_value * */
    struct sr_dict promised;   /* hash to struct sr_promise *, see keys.c */
    struct sr_dict settings;   /* CONFIG: name to struct sr_str * */
    struct sr_dict calls;      /* command to uint64_t * */
    uint64_t commands, expired, evicted;
    uint64_t requests; /* commands of clients, without those of scripts */

    struct sr_session *sessions, *last_session;
    int64_t nsessions;  /* that have not ended */
    struct sr_dict ids; /* number to session, of those */
    int64_t last_id;
    struct sr_session *touched, **touched_last;
    bool held_up;               /* somebody may have to wait */
    struct sr_session *running; /* whose command is executed */
    int64_t now;                /* ms; stands still in a command */
    int64_t now_us;

    int64_t pause_until;
    bool pause_writes_only;
    bool stopped;
    bool fault[SR_FAULTS];
    sr_refuse_fn *refuse;
    void *refuse_arg;
    sr_published_fn *published;
    void *published_arg;

    struct sr_dict listeners[2]; /* channel to struct sr_dict * of sessions */
    size_t npatterns;            /* that somebody listens to */
    uint64_t messages;           /* that went to somebody */

    struct sr_dict users;
    struct sr_dict tracked; /* key to struct sr_dict * of session ids */
    struct sr_value *told;  /* messages for the session that runs; or NULL */

    struct lua_State *lua;
    struct sr_dict scripts; /* digest to struct sr_str * */
    bool script_wrote, script_full;
    struct sr_call *script; /* the EVAL that runs */

    /* as a master */
    struct sr_repl_entry *stream;
    size_t nstream;
    int64_t offset;
    int repl_depth;
    struct sr_buf repl_open;
    int repl_db;
    struct sr_server **replicas;
    size_t nreplicas;
    /* as a replica */
    struct sr_server *master;
    bool replica;
    int64_t acked;
    struct sr_session *from_master;

    struct sr_dict services, peers; /* as a sentinel */
    struct sr_cluster *cluster;
};

void sr__clock(struct sr_server *s); /* reads it */
uint64_t sr__random(struct sr_server *s, uint64_t below);
const char *sr__setting(const struct sr_server *s, const char *name);
int64_t sr__setting_int(const struct sr_server *s, const char *name);
void sr__settings_init(struct sr_server *s);
bool sr__full(const struct sr_server *s);
bool sr__paused(struct sr_server *s, const struct sr_command *cmd);
void sr__wake(struct sr_server *s); /* sessions that may go on */
void sr__info(struct sr_server *s, struct sr_buf *out, int argc,
              const struct sr_str *argv);

#endif
