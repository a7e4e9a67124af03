/* SPDX-License-Identifier: MIT
 *
 * info.c - what a server tells of itself: INFO, and its settings.
 *
 * Only what dibs and its tests read is there. It says that it is 7.0.15, the
 * version it was compared with.
 */
#include "sim/impl.h"

#include <stdlib.h>
#include <string.h>

#define USED 1000000 /* bytes it says it has in use when empty */

/* ---- settings ---------------------------------------------------------- */

static const char *const defaults[][2] = {
    {"maxmemory", "0"},
    {"maxmemory-policy", "noeviction"},
    {"maxclients", "10000"},
    {"requirepass", ""},
    {"min-replicas-to-write", "0"},
    {"min-replicas-max-lag", "10"},
    {"appendonly", "no"},
    {"appendfsync", "everysec"},
    {"save", ""},
    {"timeout", "0"},
    {"tcp-keepalive", "300"},
    {"busy-reply-threshold", "5000"},
    {"lua-time-limit", "5000"},
    {"replica-serve-stale-data", "yes"},
    {"replica-read-only", "yes"},
    {"repl-diskless-sync-delay", "5"},
    {"notify-keyspace-events", ""},
    {"tracking-table-max-keys", "1000000"},
    {"databases", "16"},
    {"port", "6379"},
    {"bind", "127.0.0.1"},
    {"unixsocket", ""},
    {"dir", "/"},
    {"daemonize", "no"},
};

void sr__settings_init(struct sr_server *s)
{
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        struct sr_str *to = sr__alloc(sizeof *to);
        *to = sr__copy(sr__view(defaults[i][1]));
        sr__dict_add(&s->settings, sr__view(defaults[i][0]), to);
    }
}

const char *sr__setting(const struct sr_server *s, const char *name)
{
    const struct sr_str *v = sr__dict_get(&s->settings, sr__view(name));

    return v ? v->p : "";
}

int64_t sr__setting_int(const struct sr_server *s, const char *name)
{
    return strtoll(sr__setting(s, name), NULL, 10);
}

bool sr__full(const struct sr_server *s)
{
    int64_t most = sr__setting_int(s, "maxmemory");

    return s->fault[SR_FULL] || (most > 0 && most < USED);
}

/* ---- INFO -------------------------------------------------------------- */

static void server_part(struct sr_server *s, struct sr_buf *out)
{
    sr__buf_fmt(out,
                "redis_version:7.0.15\r\nredis_mode:%s\r\nprocess_id:1\r\n"
                "run_id:%s\r\ntcp_port:%d\r\nserver_time_usec:%lld\r\n"
                "uptime_in_seconds:%lld\r\nhz:10\r\n",
                s->config.sentinel ? "sentinel"
                : s->cluster       ? "cluster"
                                   : "standalone",
                s->run_id, s->config.port, (long long)s->now_us,
                (long long)((s->now - s->born) / 1000));
}

static void clients_part(struct sr_server *s, struct sr_buf *out)
{
    size_t n = 0, blocked = 0, tracking = 0;

    for (struct sr_session *c = s->sessions; c; c = c->next) {
        n += c->mode != SR_ENDED && !c->is_master;
        blocked += c->mode == SR_BLOCKED_WAIT;
        tracking += c->tracking;
    }
    sr__buf_fmt(out,
                "connected_clients:%zu\r\nmaxclients:%s\r\n"
                "blocked_clients:%zu\r\ntracking_clients:%zu\r\n",
                n, sr__setting(s, "maxclients"), blocked, tracking);
}

static void memory_part(struct sr_server *s, struct sr_buf *out)
{
    sr__buf_fmt(out,
                "used_memory:%d\r\nmaxmemory:%s\r\nmaxmemory_policy:%s\r\n"
                "number_of_cached_scripts:%zu\r\n",
                USED, sr__setting(s, "maxmemory"),
                sr__setting(s, "maxmemory-policy"), s->scripts.count);
}

static void persistence_part(struct sr_server *s, struct sr_buf *out)
{
    sr__buf_fmt(out,
                "loading:%d\r\nrdb_bgsave_in_progress:0\r\n"
                "rdb_last_bgsave_status:%s\r\naof_enabled:0\r\n",
                s->fault[SR_LOADING], s->fault[SR_MISCONF] ? "err" : "ok");
}

static void stats_part(struct sr_server *s, struct sr_buf *out)
{
    sr__buf_fmt(out,
                "total_connections_received:%lld\r\n"
                "total_commands_processed:%llu\r\nexpired_keys:%llu\r\n"
                "evicted_keys:%llu\r\ntracking_total_keys:%zu\r\n",
                (long long)s->last_id, (unsigned long long)s->commands,
                (unsigned long long)s->expired, (unsigned long long)s->evicted,
                s->tracked.count);
}

static void replication_part(struct sr_server *s, struct sr_buf *out)
{
    sr__buf_fmt(out, "role:%s\r\n", s->replica ? "slave" : "master");
    if (s->replica)
        sr__buf_fmt(out,
                    "master_host:%s\r\nmaster_port:%d\r\n"
                    "master_link_status:%s\r\nslave_repl_offset:%lld\r\n",
                    s->master ? s->master->host : "",
                    s->master ? s->master->config.port : 0,
                    s->master && !s->fault[SR_LINK_DOWN] ? "up" : "down",
                    (long long)s->offset);
    sr__buf_fmt(out, "connected_slaves:%zu\r\n", s->nreplicas);
    for (size_t i = 0; i < s->nreplicas; i++)
        sr__buf_fmt(out,
                    "slave%zu:ip=%s,port=%d,state=online,offset=%lld,lag=0\r\n",
                    i, s->replicas[i]->host, s->replicas[i]->config.port,
                    (long long)s->replicas[i]->acked);
    sr__buf_fmt(out, "master_repl_offset:%lld\r\n", (long long)s->offset);
}

static void commandstats_part(struct sr_server *s, struct sr_buf *out)
{
    for (struct sr_entry *e = s->calls.first; e; e = e->next)
        sr__buf_fmt(out, "cmdstat_%s:calls=%llu,usec=0,usec_per_call=0.00\r\n",
                    e->key.p, (unsigned long long)*(uint64_t *)e->val);
}

static void cluster_part(struct sr_server *s, struct sr_buf *out)
{
    sr__buf_fmt(out, "cluster_enabled:%d\r\n", s->cluster != NULL);
}

static void keyspace_part(struct sr_server *s, struct sr_buf *out)
{
    for (int i = 0; i < SR_DBS; i++)
        if (s->db[i].count)
            sr__buf_fmt(out, "db%d:keys=%zu,expires=0,avg_ttl=0\r\n", i,
                        s->db[i].count);
}

static const struct part {
    const char *name;
    void (*write)(struct sr_server *s, struct sr_buf *out);
    bool usual;
} parts[] = {
    {"Server", server_part, true},
    {"Clients", clients_part, true},
    {"Memory", memory_part, true},
    {"Persistence", persistence_part, true},
    {"Stats", stats_part, true},
    {"Replication", replication_part, true},
    {"Commandstats", commandstats_part, false},
    {"Cluster", cluster_part, true},
    {"Keyspace", keyspace_part, true},
};

void sr__info(struct sr_server *s, struct sr_buf *out, int argc,
              const struct sr_str *argv)
{
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        bool wanted = argc == 0 && parts[i].usual;
        for (int j = 0; j < argc; j++)
            wanted |= sr__is(argv[j], parts[i].name) ||
                      sr__is(argv[j], "all") || sr__is(argv[j], "everything") ||
                      (sr__is(argv[j], "default") && parts[i].usual);
        if (!wanted)
            continue;
        sr__buf_fmt(out, "%s# %s\r\n", out->n ? "\r\n" : "", parts[i].name);
        parts[i].write(s, out);
    }
}
