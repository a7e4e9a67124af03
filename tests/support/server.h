/* SPDX-License-Identifier: MIT
 *
 * server.h - a real server for a test, private and gone afterwards.
 *
 * ts_server_start runs redis-server (or what $SERVER names) in a folder of its
 * own under /tmp, listening on a Unix socket in that folder and on a TCP port
 * of 127.0.0.1. Server and folder go with ts_server_stop, or with the process
 * that started them, however that ends: returning from main, a crash, an
 * interrupt, kill -9.
 *
 * Threads    Any function, from any thread; calls for one server take turns.
 * fork       A child may send commands (it gets a connection of its own).
 *            Starting, killing, stopping is for the process that started it.
 * Trouble    What cannot be done ends the program with a message that says
 *            what; only ts_cmd and ts_cmdv return NULL when no reply came.
 */
#ifndef DIBS_TESTS_SERVER_H
#define DIBS_TESTS_SERVER_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Where the scripts are; the build says it. */
#ifndef DIBS_LUA_DIR
#define DIBS_LUA_DIR "lua"
#endif

struct ts_server;

/* ---- its life ---------------------------------------------------------- */

/* extra: more arguments for the server, ended by NULL, or NULL; they win over
 * ours. Returns when it answers. Nothing is persisted unless extra says so. A
 * password in extra (--requirepass) is noticed and used. */
struct ts_server *ts_server_start(const char *const *extra);

/* A sentinel instead, with these lines in its configuration. */
struct ts_server *ts_sentinel_start(const char *lines);

/* Ends it, removes its folder, frees s. Accepts NULL. */
void ts_server_stop(struct ts_server *s);

/* kill -9; returns when it is gone. Harmless if it is gone already. */
void ts_server_kill(struct ts_server *s);
/* Kills it if need be and starts it again, same socket, same port: empty,
 * unless extra asked for persistence. */
void ts_server_restart(struct ts_server *s);
/* SIGSTOP and SIGCONT; both return when it has happened. A paused server lets
 * clients connect (the kernel does) but answers nobody. */
void ts_server_pause(struct ts_server *s);
void ts_server_resume(struct ts_server *s);

const char *ts_server_url(const struct ts_server *s);     /* unix:///... */
const char *ts_server_tcp_url(const struct ts_server *s); /* redis://... */
const char *ts_server_socket(const struct ts_server *s);
const char *ts_server_dir(const struct ts_server *s);
int ts_server_port(const struct ts_server *s);
pid_t ts_server_pid(const struct ts_server *s); /* 0 when killed */

/* For a password that was set after the start; NULL = none. */
void ts_server_password(struct ts_server *s, const char *password);

/* ---- connections of your own ------------------------------------------- */

/* Blocking, with generous time limits. Give back with redisFree. The first
 * has said the password; the others only connect, and return NULL if nobody
 * listens. */
redisContext *ts_connect(struct ts_server *s);
redisContext *ts_dial_unix(const char *path);
redisContext *ts_dial_tcp(int port);

/* ---- commands ---------------------------------------------------------- */

/* As redisCommand has it. freeReplyObject the reply; NULL: none came. */
redisReply *ts_cmd(struct ts_server *s, const char *fmt, ...);
redisReply *ts_cmdv(struct ts_server *s, int argc, const char **argv,
                    const size_t *lens);

/* The reply must be: a number, or the text of one; */
long long ts_int(struct ts_server *s, const char *fmt, ...);
/* a string or nil, which gives NULL; free() it; */
char *ts_str(struct ts_server *s, const char *fmt, ...);
/* anything but an error. */
void ts_ok(struct ts_server *s, const char *fmt, ...);

/* ---- questions --------------------------------------------------------- */

char *ts_hget(struct ts_server *s, const char *key, const char *field);
long long ts_hlen(struct ts_server *s, const char *key);
long long ts_pttl(struct ts_server *s, const char *key); /* -1 none, -2 gone */
bool ts_exists(struct ts_server *s, const char *key);
/* But for those that say who listens: they end by themselves in 5 s. */
long long ts_nkeys(struct ts_server *s);
/* Clients that the server will call when this plain or write lock is free. */
long long ts_waiting(struct ts_server *s, const char *name);
long long ts_numsub(struct ts_server *s, const char *channel);
/* That somebody listens to, but for those that tell of changed keys. */
long long ts_nchannels(struct ts_server *s);
long long ts_client_count(struct ts_server *s); /* but for ourselves */
void ts_config_set(struct ts_server *s, const char *name, const char *value);

/* How often a command ran since the server started (or since ts_reset_stats),
 * by any client, scripts included: "evalsha", "client|kill". */
long long ts_command_calls(struct ts_server *s, const char *command);
/* All of them together, what scripts call included, ours left out. */
long long ts_total_commands(struct ts_server *s);
void ts_reset_stats(struct ts_server *s);
/* A number out of INFO, for example "stats", "expired_keys". */
long long ts_info(struct ts_server *s, const char *section, const char *field);

/* Loads dir/name.lua. The name of a script as the server has it goes to sha.
 * Use DIBS_LUA_DIR for dir. */
void ts_script_load(struct ts_server *s, const char *dir, const char *name,
                    char sha[41]);

/* Calls a script, with a number behind its arguments, and gives its answer
 * without the number; NULL, no reply. An answer without it is fatal. argv has
 * room for one more. */
redisReply *ts_script_call(redisContext *cn, int argc, const char **argv);

/* For scripts: ends(key) is when a key ends, to a millisecond or so:
 * PEXPIRETIME is not older than Redis 7. */
#define TS_LUA_ENDS                                                            \
    "local function ends(key) "                                                \
    "  local function now() "                                                  \
    "    local t = redis.call('time') "                                        \
    "    return t[1] * 1000 + math.floor(t[2] / 1000) "                        \
    "  end "                                                                   \
    "  for _ = 1, 100 do " /* until the server did not stand still between */  \
    "    local from, left = now(), redis.call('pttl', key) "                   \
    "    if left < 0 then return left end "                                    \
    "    if now() - from <= 1 then return from + left end "                    \
    "  end "                                                                   \
    "end "

/* ---- waiting ----------------------------------------------------------- */

/* Until so many listen to the channel; so many clients but for ourselves are
 * connected; the key is there, or is not. False: not within TS_SOON. */
bool ts_wait_numsub(struct ts_server *s, const char *channel, long long n);
bool ts_wait_clients(struct ts_server *s, long long n);
bool ts_wait_exists(struct ts_server *s, const char *key, bool there);

#endif
