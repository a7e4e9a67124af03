/* SPDX-License-Identifier: MIT
 *
 * check_network.c - doctor checks of TLS, of sentinels or the cluster, and of
 * the lock's key.
 *
 * Thread  app.
 * Locks   none.
 *
 * What the client has stored is not queried. Members that io modifies are read
 * only if they are atomic.
 */
#include "admin/check_context.h"

#include <string.h>

#define SLOTS 16384

/* ---- TLS --------------------------------------------------------------- */

static bool is_local(const char *host)
{
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           strncmp(host, "127.", 4) == 0;
}

/* With sentinels url.host changes, on io; the list of hosts does not. */
static bool on_this_machine(const struct dibs__url *url)
{
    for (size_t i = 0; i < url->host_count; i++)
        if (!is_local(url->hosts[i].name))
            return false;
    return url->mode == URL_SINGLE ? is_local(url->host) : url->host_count > 0;
}

static void check_tls(struct dibs__check_ctx *ctx)
{
    const struct dibs__url *url = &ctx->c->to.url;

    if (url->unix_socket)
        dibs__check_report(ctx, "tls", DIBS_VERDICT_OK,
                           "none needed: a Unix socket");
    else if (url->tls.on && url->tls.insecure)
        dibs__check_report(
            ctx, "tls", DIBS_VERDICT_WARNING,
            "encrypted, but insecure=1: the server's identity is "
            "not verified");
    else if (url->tls.on)
        dibs__check_report(ctx, "tls", DIBS_VERDICT_OK,
                           "encrypted, the server's certificate is verified%s",
                           url->tls.cert ? ", and a client certificate is sent"
                                         : "");
    else if (on_this_machine(url))
        dibs__check_report(ctx, "tls", DIBS_VERDICT_OK,
                           "none, but the server is on this machine");
    else
        dibs__check_report(ctx, "tls", DIBS_VERDICT_WARNING,
                           "none: password and locks can be read and modified "
                           "in the network");
}

/* ---- sentinels, cluster ------------------------------------------------ */

/* Returns a number of CLUSTER INFO, which is in ctx->reply; -1: none. */
static int64_t cluster_number(const struct dibs__check_ctx *ctx,
                              const char *field)
{
    const char *at = strstr(dibs__query_reply_text(&ctx->reply), field);

    return at && at[strlen(field)]
               ? dibs__check_parse_count(at + strlen(field) + 1)
               : -1;
}

static void check_slots(struct dibs__check_ctx *ctx)
{
    if (DIBS__CHECK_QUERY(ctx, "CLUSTER", "INFO") != DIBS_OK) {
        dibs__check_report(ctx, "slots", DIBS_VERDICT_NOTE, "unknown: %s",
                           dibs__check_error(ctx));
        return;
    }
    int64_t ok = cluster_number(ctx, "cluster_slots_ok");
    bool is_up =
        strstr(dibs__query_reply_text(&ctx->reply), "cluster_state:ok");
    if (is_up && ok == SLOTS)
        dibs__check_report(ctx, "slots", DIBS_VERDICT_OK, "all %d are served",
                           SLOTS);
    else
        dibs__check_report(ctx, "slots", DIBS_VERDICT_PROBLEM,
                           "%lld of %d are served%s: locks in other slots fail",
                           (long long)ok, SLOTS,
                           is_up ? "" : ", and the cluster is down");
}

static void check_sentinels(struct dibs__check_ctx *ctx)
{
    const struct dibs__sentinels *sn = ctx->c->sentinels;
    unsigned n = atomic_load(&sn->known_count);

    if (n < 3)
        dibs__check_report(ctx, "sentinels", DIBS_VERDICT_WARNING,
                           "%u known: fewer than three cannot tell a failed "
                           "master from a network partition",
                           n);
    else if (!atomic_load(&sn->is_watching))
        dibs__check_report(ctx, "sentinels", DIBS_VERDICT_WARNING,
                           "%u known, but none is subscribed to: a failover is "
                           "detected when commands fail",
                           n);
    else
        dibs__check_report(ctx, "sentinels", DIBS_VERDICT_OK,
                           "%u known, one of them is subscribed to", n);
}

static void check_topology(struct dibs__check_ctx *ctx)
{
    if (ctx->c->cluster)
        dibs__check_report(
            ctx, "cluster", DIBS_VERDICT_NOTE,
            "the findings are those of one node, the one with slot 0; "
            "run this with the URLs of other nodes for theirs");
    else if (dibs__check_info_number(ctx, "cluster_enabled"))
        dibs__check_report(
            ctx, "cluster", DIBS_VERDICT_WARNING,
            "a node of a cluster, used as a single server: locks "
            "of other nodes' slots fail");
    if (dibs__check_info_number(ctx, "cluster_enabled"))
        check_slots(ctx);
    if (ctx->c->sentinels)
        check_sentinels(ctx);
}

/* ---- the lock's key ----------------------------------------------------- */

/* Reports a key that is not a lock. */
static void check_other_key(struct dibs__check_ctx *ctx)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    if (dibs_client_look(ctx->c, ctx->name, &info) != DIBS_OK)
        info.kind = DIBS_KIND_OTHER;
    if (info.kind == DIBS_KIND_SLOTS || info.kind == DIBS_KIND_SEMAPHORE ||
        info.kind == DIBS_KIND_LATCH)
        dibs__check_report(ctx, "key", DIBS_VERDICT_OK, "%s",
                           info.kind == DIBS_KIND_SLOTS ? "slots, and held"
                           : info.kind == DIBS_KIND_SEMAPHORE ? "a semaphore"
                                                              : "a latch");
    else if (info.kind == DIBS_KIND_COUNTER)
        dibs__check_report(
            ctx, "key", DIBS_VERDICT_NOTE,
            "a number: slots, a semaphore or a latch; no lock of "
            "one holder can be taken under this name");
    else
        dibs__check_report(
            ctx, "key", DIBS_VERDICT_PROBLEM,
            "the key has another type and is not modified: no lock "
            "can be taken");
}

static void check_key(struct dibs__check_ctx *ctx)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_lock *l = NULL;

    if (!ctx->name)
        return;
    dibs_err err = dibs_lock_new(ctx->c, ctx->name, &l);
    if (err == DIBS_OK)
        err = dibs_lock_info_get(l, &info);
    if (err == DIBS_ERR_WRONGTYPE)
        check_other_key(ctx);
    else if (err == DIBS_ERR_AUTH || err == DIBS_ERR_SERVER)
        dibs__check_report(ctx, "key", DIBS_VERDICT_PROBLEM,
                           "the lock cannot be read: %.300s",
                           dibs_error_text());
    else if (err == DIBS_OK)
        dibs__check_report(ctx, "key", DIBS_VERDICT_OK, "%s",
                           info.locked ? "a lock, and held" : "free");
    dibs_lock_free(l);
}

void dibs__check_network(struct dibs__check_ctx *ctx)
{
    check_tls(ctx);
    check_topology(ctx);
    if (!ctx->fatal_err && !ctx->stopped)
        check_key(ctx);
}
