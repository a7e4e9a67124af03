/* SPDX-License-Identifier: MIT
 *
 * cmd_server.c - commands on the server itself, and those of a greeting.
 */
#include "sim/impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- greetings --------------------------------------------------------- */

static void cmd_ping(struct sr_call *k)
{
    if (k->argc > 2) {
        sr__reply_arity(k);
    } else if (sr__subscribed(k->c)) {
        sr__reply_array(k, 2);
        sr__reply_text(k, "pong");
        sr__reply_str(k, k->argc == 2 ? k->argv[1] : sr__view(""));
    } else if (k->argc == 2) {
        sr__reply_str(k, k->argv[1]);
    } else {
        sr__reply_status(k, "PONG");
    }
}

static void cmd_echo(struct sr_call *k)
{
    sr__reply_str(k, k->argv[1]);
}

static void cmd_quit(struct sr_call *k)
{
    k->c->closing = true;
    sr__reply_ok(k);
}

static void cmd_select(struct sr_call *k)
{
    int64_t db;

    if (!sr__int(k->argv[1], &db))
        sr__reply_error(k, "ERR value is not an integer or out of range");
    else if (db != 0 && k->s->cluster)
        sr__reply_error(k, "ERR SELECT is not allowed in cluster mode");
    else if (db < 0 || db >= SR_DBS)
        sr__reply_error(k, "ERR DB index is out of range");
    else {
        k->c->db = (int)db;
        sr__reply_ok(k);
    }
}

static void reply_int_text(struct sr_call *k, int64_t n)
{
    struct sr_buf text = {0};

    sr__buf_fmt(&text, "%lld", (long long)n);
    sr__reply_text(k, text.p);
    sr__buf_free(&text);
}

static void cmd_time(struct sr_call *k)
{
    sr__reply_array(k, 2);
    reply_int_text(k, k->s->now_us / 1000000);
    reply_int_text(k, k->s->now_us % 1000000);
}

/* ---- replication ------------------------------------------------------- */

static void cmd_role(struct sr_call *k)
{
    const struct sr_server *s = k->s;

    if (s->config.sentinel) {
        sr__reply_array(k, 2);
        sr__reply_text(k, "sentinel");
        sr__reply_array(k, s->services.count);
        for (struct sr_entry *e = s->services.first; e; e = e->next)
            sr__reply_str(k, e->key);
        return;
    }
    if (s->replica) {
        sr__reply_array(k, 5);
        sr__reply_text(k, "slave");
        sr__reply_text(k, s->master ? s->master->host : "127.0.0.1");
        sr__reply_int(k, s->master ? s->master->config.port : 0);
        sr__reply_text(k, s->master ? "connected" : "connect");
        sr__reply_int(k, s->offset);
        return;
    }
    sr__reply_array(k, 3);
    sr__reply_text(k, "master");
    sr__reply_int(k, s->offset);
    sr__reply_array(k, s->nreplicas);
    for (size_t i = 0; i < s->nreplicas; i++) {
        sr__reply_array(k, 3);
        sr__reply_text(k, s->replicas[i]->host);
        reply_int_text(k, s->replicas[i]->config.port);
        reply_int_text(k, s->replicas[i]->acked);
    }
}

static void cmd_wait(struct sr_call *k)
{
    int64_t count, ms;

    if (k->s->replica) {
        sr__reply_error(k, "ERR WAIT cannot be used with replica instances. "
                           "Please also note that since Redis 4.0 if a replica "
                           "is configured to be writable (which is not the "
                           "default) writes to replicas are just local and are "
                           "not propagated.");
        return;
    }
    if (!sr__arg_int(k, 1, &count))
        return;
    if (!sr__int(k->argv[2], &ms)) {
        sr__reply_error(k, "ERR timeout is not an integer or out of range");
        return;
    }
    if (ms < 0) {
        sr__reply_error(k, "ERR timeout is negative");
        return;
    }
    int acked = sr__repl_acked(k->s, k->c->written);
    if (acked >= count) {
        sr__reply_int(k, acked);
        return;
    }
    k->c->mode = SR_BLOCKED_WAIT;
    k->s->held_up = true;
    k->c->wait_count = count;
    k->c->wait_until = ms ? k->s->now + ms : -1;
}

static void cmd_replicaof(struct sr_call *k)
{
    if (sr__is(k->argv[1], "no") && sr__is(k->argv[2], "one")) {
        sr_promote(k->s);
        sr__reply_ok(k);
    } else {
        sr__reply_error(k, "ERR only REPLICAOF NO ONE");
    }
}

/* ---- settings ---------------------------------------------------------- */

static void cmd_config_get(struct sr_call *k)
{
    struct sr_buf found = {0};
    size_t n = 0;

    for (struct sr_entry *e = k->s->settings.first; e; e = e->next) {
        bool fits = false;
        for (int i = 2; i < k->argc; i++)
            fits |= sr__glob(k->argv[i], e->key);
        if (!fits)
            continue;
        sr__out_bulk(&found, e->key);
        sr__out_bulk(&found, *(struct sr_str *)e->val);
        n += 2;
    }
    sr__reply_array(k, n);
    sr__buf_add(k->out, found.p, found.n);
    sr__buf_free(&found);
}

static void cmd_config_set(struct sr_call *k)
{
    if (k->argc % 2 != 0) {
        sr__reply_syntax(k);
        return;
    }
    for (int i = 2; i < k->argc; i += 2) {
        struct sr_str *to = sr__dict_get(&k->s->settings, k->argv[i]);
        if (!to) {
            sr__reply_error(k,
                            "ERR Unknown option or number of arguments for "
                            "CONFIG SET - '%.*s'",
                            (int)k->argv[i].n, k->argv[i].p);
            return;
        }
        sr__str_free(to);
        *to = sr__copy(k->argv[i + 1]);
        if (sr__is(k->argv[i], "requirepass"))
            sr__users_password(k->s, *to);
    }
    sr__reply_ok(k);
}

static void cmd_config_resetstat(struct sr_call *k)
{
    sr__dict_free(&k->s->calls, free);
    k->s->commands = k->s->expired = k->s->evicted = 0;
    sr__reply_ok(k);
}

static void cmd_info(struct sr_call *k)
{
    struct sr_buf text = {0};

    sr__info(k->s, &text, k->argc - 1, k->argv + 1);
    sr__reply_str(k, (struct sr_str){text.p, text.n});
    sr__buf_free(&text);
}

#define EASY  (SR_IN_LOADING | SR_IN_STALE | SR_SENTINEL)
#define ADMIN (SR_ADMIN | SR_NOSCRIPT | SR_IN_LOADING | SR_IN_STALE)

const struct sr_command sr__server_commands[] = {
    {"ping", cmd_ping, -1, SR_SENTINEL | SR_IN_PUBSUB, 0, 0, 0},
    {"echo", cmd_echo, 2, EASY, 0, 0, 0},
    {"quit", cmd_quit, -1, EASY | SR_NOSCRIPT | SR_NO_AUTH | SR_IN_PUBSUB, 0, 0,
     0},
    {"select", cmd_select, 2, SR_IN_LOADING | SR_IN_STALE, 0, 0, 0},
    {"time", cmd_time, 1, SR_IN_LOADING | SR_IN_STALE, 0, 0, 0},
    {"role", cmd_role, 1, EASY | SR_NOSCRIPT, 0, 0, 0},
    {"wait", cmd_wait, 3, SR_NOSCRIPT, 0, 0, 0},
    {"replicaof", cmd_replicaof, 3, ADMIN, 0, 0, 0},
    {"config", NULL, -2, ADMIN | SR_CONTAINER, 0, 0, 0},
    {"config|get", cmd_config_get, -3, ADMIN, 0, 0, 0},
    {"config|set", cmd_config_set, -4, ADMIN, 0, 0, 0},
    {"config|resetstat", cmd_config_resetstat, 2, ADMIN, 0, 0, 0},
    {"info", cmd_info, -1, EASY, 0, 0, 0},
    {0}};
