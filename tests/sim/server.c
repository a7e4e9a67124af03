/* SPDX-License-Identifier: MIT
 *
 * server.c - a server's life: its clock, its faults, its end.
 */
#include "sim/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- clock and chance -------------------------------------------------- */

void sr__clock(struct sr_server *s)
{
    s->now_us = s->config.now_us(s->config.arg);
    s->now = s->now_us / 1000;
}

uint64_t sr__random(struct sr_server *s, uint64_t below)
{
    uint64_t z = s->random += 0x9e3779b97f4a7c15ULL; /* splitmix64 */

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return (z ^ z >> 31) % below;
}

static void name_run(struct sr_server *s)
{
    char *p = s->run_id;

    for (int i = 0; i < 5; i++, p += 8)
        snprintf(p, 9, "%08x", (unsigned)sr__random(s, 1ULL << 32));
}

/* ---- life -------------------------------------------------------------- */

struct sr_server *sr_server_new(const struct sr_config *config)
{
    struct sr_server *s = sr__alloc(sizeof *s);

    s->config = *config;
    if (s->config.port == 0)
        s->config.port = 6379;
    s->host = sr__copy(sr__view(config->host ? config->host : "127.0.0.1")).p;
    s->config.host = s->host;
    s->random = config->seed;
    name_run(s);
    sr__settings_init(s);
    sr__users_init(s);
    if (config->cluster)
        sr__cluster_init(s);
    sr__clock(s);
    s->born = s->now;
    return s;
}

static void free_setting(void *val)
{
    sr__str_free(val);
    free(val);
}

void sr_server_free(struct sr_server *s)
{
    if (!s)
        return;
    sr__sessions_free(s);
    sr__repl_forget(s);
    sr__buf_free(&s->repl_open);
    sr__scripts_free(s);
    sr__track_free(s);
    sr__users_free(s);
    sr__sentinel_free(s);
    sr__cluster_free(s);
    sr__keys_free(s);
    sr__dict_free(&s->settings, free_setting);
    sr__dict_free(&s->ids, NULL);
    for (int i = 0; i < 2; i++) /* empty: all sessions have left */
        sr__dict_free(&s->listeners[i], NULL);
    sr__dict_free(&s->calls, free);
    free(s->host);
    free(s);
}

void sr_restart(struct sr_server *s, const struct sr_snapshot *data)
{
    bool replica = s->replica;

    for (struct sr_session *c = s->sessions; c; c = c->next) {
        sr__session_end(c);
        sr__buf_free(&c->in);
        c->user = NULL;
    }
    sr__sessions_see_gone(s);
    s->from_master = NULL;
    sr__repl_forget(s);
    sr__scripts_free(s);
    sr__track_free(s);
    sr__users_free(s);
    sr__users_init(s);
    sr__users_password(s, sr__view(sr__setting(s, "requirepass")));
    sr__dict_free(&s->calls, free);
    sr__keys_load(s, data);
    s->replica = replica;
    s->offset = s->acked = 0;
    s->last_id = 0;
    s->pause_until = 0;
    s->stopped = false;
    s->commands = s->expired = s->evicted = 0;
    memset(s->fault, 0, sizeof s->fault);
    name_run(s);
    sr__clock(s);
    s->born = s->now;
}

/* ---- faults ------------------------------------------------------------ */

void sr_refuse(struct sr_server *s, sr_refuse_fn *refuse, void *arg)
{
    s->refuse = refuse;
    s->refuse_arg = arg;
}

void sr_fault(struct sr_server *s, enum sr_fault fault, bool on)
{
    s->fault[fault] = on;
}

void sr_stop(struct sr_server *s)
{
    s->stopped = true;
}

void sr_continue(struct sr_server *s)
{
    s->stopped = false;
    sr_tick(s);
    sr__sessions_see_gone(s);
}

bool sr__paused(struct sr_server *s, const struct sr_command *cmd)
{
    return s->pause_until > s->now &&
           (!s->pause_writes_only || (cmd->flags & (SR_WRITE | SR_REPLICATES)));
}

/* ---- time -------------------------------------------------------------- */

void sr_tick(struct sr_server *s)
{
    if (s->stopped)
        return;
    sr__clock(s);
    sr__keys_expire(s);
    sr__wake(s);
}

static void sooner(int64_t *first, int64_t then)
{
    if (then >= 0 && (*first < 0 || then < *first))
        *first = then;
}

int64_t sr_next(struct sr_server *s)
{
    int64_t first = -1;

    sr__clock(s);
    if (s->stopped)
        return -1;
    if (s->pause_until > s->now)
        sooner(&first, s->pause_until);
    else
        sooner(&first, sr__keys_next_expiry(s));
    for (struct sr_session *c = s->sessions; c && s->held_up; c = c->next)
        if (c->mode == SR_BLOCKED_WAIT)
            sooner(&first, c->wait_until);
    return first;
}
