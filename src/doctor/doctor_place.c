/* SPDX-License-Identifier: MIT
 *
 * doctor_place.c - the way to the server, and with whom it stands: TLS,
 * sentinels, a cluster.
 *
 * Thread  app.
 * Locks   none.
 *
 * What the client knows itself is not asked for; but only what does not change
 * on io is looked at.
 */
#include "doctor/doctor.h"

#include <string.h>

#define SLOTS 16384

/* ---- the way there ----------------------------------------------------- */

static bool is_local(const char *host)
{
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           strncmp(host, "127.", 4) == 0;
}

/* Where sentinels tell the host it changes, on io; the list does not. */
static bool on_this_machine(const struct dibs__url *url)
{
    for (size_t i = 0; i < url->host_count; i++)
        if (!is_local(url->hosts[i].name))
            return false;
    return url->mode == URL_SINGLE ? is_local(url->host) : url->host_count > 0;
}

static void encryption(struct dibs__doctor *d)
{
    const struct dibs__url *url = &d->c->to.url;

    if (url->unix_socket)
        dibs__doctor_say(d, "tls", DIBS_VERDICT_OK,
                         "none needed: a Unix socket");
    else if (url->tls.on && url->tls.insecure)
        dibs__doctor_say(d, "tls", DIBS_VERDICT_WARNING,
                         "encrypted, but insecure=1: whoever answers is taken "
                         "for the server");
    else if (url->tls.on)
        dibs__doctor_say(d, "tls", DIBS_VERDICT_OK,
                         "encrypted, the server's certificate is verified%s",
                         url->tls.cert ? ", and ours is shown" : "");
    else if (on_this_machine(url))
        dibs__doctor_say(d, "tls", DIBS_VERDICT_OK,
                         "none, but it does not leave this machine");
    else
        dibs__doctor_say(d, "tls", DIBS_VERDICT_WARNING,
                         "none: password and locks can be read, and changed, "
                         "on the way");
}

/* A field of CLUSTER INFO, which d->reply has. */
static int64_t cluster_number(const struct dibs__doctor *d, const char *field)
{
    const char *at = strstr(dibs__answer_text(&d->reply), field);

    return at && at[strlen(field)] ? dibs__doctor_count(at + strlen(field) + 1)
                                   : -1;
}

static void cluster(struct dibs__doctor *d)
{
    if (DIBS__ASK(d, "CLUSTER", "INFO") != DIBS_OK) {
        dibs__doctor_say(d, "slots", DIBS_VERDICT_NOTE, "unknown: %s",
                         dibs__doctor_why(d));
        return;
    }
    int64_t ok = cluster_number(d, "cluster_slots_ok");
    bool well = strstr(dibs__answer_text(&d->reply), "cluster_state:ok");
    if (well && ok == SLOTS)
        dibs__doctor_say(d, "slots", DIBS_VERDICT_OK, "all %d are served",
                         SLOTS);
    else
        dibs__doctor_say(d, "slots", DIBS_VERDICT_PROBLEM,
                         "%lld of %d are served%s: locks elsewhere fail",
                         (long long)ok, SLOTS,
                         well ? "" : ", and the cluster is down");
}

static void sentinels(struct dibs__doctor *d)
{
    const struct dibs__sentinels *sn = d->c->sentinels;
    unsigned n = atomic_load(&sn->seen);

    if (n < 3)
        dibs__doctor_say(d, "sentinels", DIBS_VERDICT_WARNING,
                         "%u known: with fewer than three nobody can tell a "
                         "dead master from a cut cable",
                         n);
    else if (!atomic_load(&sn->watches))
        dibs__doctor_say(d, "sentinels", DIBS_VERDICT_WARNING,
                         "%u known, but none tells of changes: a failover is "
                         "noticed when commands fail",
                         n);
    else
        dibs__doctor_say(d, "sentinels", DIBS_VERDICT_OK,
                         "%u known, one of them tells of changes", n);
}

/* What depends on how servers stand together. */
static void topology(struct dibs__doctor *d)
{
    if (d->c->cluster)
        dibs__doctor_say(d, "cluster", DIBS_VERDICT_NOTE,
                         "all of this is about one of its nodes, the one that "
                         "has slot 0; ask others by their own URLs");
    else if (dibs__doctor_number(d, "cluster_enabled"))
        dibs__doctor_say(d, "cluster", DIBS_VERDICT_WARNING,
                         "a node of a cluster, used as a single server: locks "
                         "of other nodes' slots fail");
    if (dibs__doctor_number(d, "cluster_enabled"))
        cluster(d);
    if (d->c->sentinels)
        sentinels(d);
}

/* Is what is under the lock's name a lock, if there is anything? */
static void key(struct dibs__doctor *d)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_lock *l = NULL;

    if (!d->name)
        return;
    dibs_err err = dibs_lock_new(d->c, d->name, &l);
    if (err == DIBS_OK)
        err = dibs_lock_info_get(l, &info);
    dibs_lock_free(l);
    if (err == DIBS_ERR_WRONGTYPE)
        dibs__doctor_say(d, "key", DIBS_VERDICT_PROBLEM,
                         "there is something else under this name, and it is "
                         "left alone: no lock can be taken");
    else if (err == DIBS_OK)
        dibs__doctor_say(d, "key", DIBS_VERDICT_OK, "%s",
                         info.locked ? "a lock, and held" : "free");
}

void dibs__doctor_place(struct dibs__doctor *d)
{
    encryption(d);
    topology(d);
    if (!d->gone && !d->enough)
        key(d);
}
