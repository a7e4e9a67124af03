/* SPDX-License-Identifier: MIT
 *
 * sentinel.c - a server as a sentinel: it knows where the master is, which
 * other sentinels there are, and says so when the master changes. It decides
 * nothing; its owner does.
 */
#include "sim/impl.h"

#include <stdio.h>
#include <stdlib.h>

struct place {
    struct sr_str host;
    int port;
};

static struct place *place_new(const char *host, int port)
{
    struct place *p = sr__alloc(sizeof *p);

    p->host = sr__copy(sr__view(host));
    p->port = port;
    return p;
}

static void place_free(void *val)
{
    struct place *p = val;

    if (p)
        sr__str_free(&p->host);
    free(p);
}

void sr__sentinel_free(struct sr_server *s)
{
    sr__dict_free(&s->services, place_free);
    sr__dict_free(&s->peers, place_free);
}

void sr_sentinel_master(struct sr_server *s, const char *service,
                        const char *host, int port)
{
    struct sr_entry *e = sr__dict_find(&s->services, sr__view(service));
    struct place *now = place_new(host, port);

    if (!e) {
        sr__dict_add(&s->services, sr__view(service), now);
        return;
    }
    struct place *old = e->val;
    struct sr_buf text = {0};
    sr__buf_fmt(&text, "%s %s %d %s %d", service, old->host.p, old->port, host,
                port);
    e->val = now;
    sr__publish(s, sr__view("+switch-master"), (struct sr_str){text.p, text.n});
    sr__buf_free(&text);
    place_free(old);
}

void sr_sentinel_peer(struct sr_server *s, const char *host, int port)
{
    char name[300];

    snprintf(name, sizeof name, "%s:%d", host, port);
    if (!sr__dict_find(&s->peers, sr__view(name)))
        sr__dict_add(&s->peers, sr__view(name), place_new(host, port));
}

/* ---- commands ---------------------------------------------------------- */

static void reply_port(struct sr_call *k, int port)
{
    char text[16];

    snprintf(text, sizeof text, "%d", port);
    sr__reply_text(k, text);
}

static void cmd_sentinel_get_master_addr_by_name(struct sr_call *k)
{
    const struct place *p = sr__dict_get(&k->s->services, k->argv[2]);

    if (!p) {
        sr__reply_nil_array(k);
        return;
    }
    sr__reply_array(k, 2);
    sr__reply_str(k, p->host);
    reply_port(k, p->port);
}

static bool known(struct sr_call *k)
{
    if (sr__dict_find(&k->s->services, k->argv[2]))
        return true;
    sr__reply_error(k, "ERR No such master with that name");
    return false;
}

static void reply_place(struct sr_call *k, struct sr_str name,
                        const struct place *p, const char *flags)
{
    sr__reply_array(k, 8);
    sr__reply_text(k, "name");
    sr__reply_str(k, name);
    sr__reply_text(k, "ip");
    sr__reply_str(k, p->host);
    sr__reply_text(k, "port");
    reply_port(k, p->port);
    sr__reply_text(k, "flags");
    sr__reply_text(k, flags);
}

static void cmd_sentinel_sentinels(struct sr_call *k)
{
    if (!known(k))
        return;
    sr__reply_array(k, k->s->peers.count);
    for (struct sr_entry *e = k->s->peers.first; e; e = e->next)
        reply_place(k, e->key, e->val, "sentinel");
}

static void cmd_sentinel_master(struct sr_call *k)
{
    if (known(k))
        reply_place(k, k->argv[2], sr__dict_get(&k->s->services, k->argv[2]),
                    "master");
}

static void cmd_sentinel_masters(struct sr_call *k)
{
    sr__reply_array(k, k->s->services.count);
    for (struct sr_entry *e = k->s->services.first; e; e = e->next)
        reply_place(k, e->key, e->val, "master");
}

#define ONLY (SR_SENTINEL | SR_NOT_SERVER | SR_ADMIN | SR_NOSCRIPT)

const struct sr_command sr__sentinel_commands[] = {
    {"sentinel", NULL, -2, ONLY | SR_CONTAINER, 0, 0, 0},
    {"sentinel|get-master-addr-by-name", cmd_sentinel_get_master_addr_by_name,
     3, ONLY, 0, 0, 0},
    {"sentinel|sentinels", cmd_sentinel_sentinels, 3, ONLY, 0, 0, 0},
    {"sentinel|master", cmd_sentinel_master, 3, ONLY, 0, 0, 0},
    {"sentinel|masters", cmd_sentinel_masters, 2, ONLY, 0, 0, 0},
    {0}};
