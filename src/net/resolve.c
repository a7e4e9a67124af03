/* SPDX-License-Identifier: MIT
 *
 * resolve.c - a host name looked up without anybody waiting for it.
 *
 * getaddrinfo can take as long as it likes and cannot be stopped. So each
 * look-up has a thread of its own that ends by itself, and shares nothing with
 * us but one small struct. (libuv's own look-up runs on a pool of threads that
 * stays for the life of the process; a closed client shall leave none.) Files
 * for TLS can be as slow, so they are read on the same thread.
 *
 * Thread  start, cancel and the answer on io; look_up on its own.
 *
 * How     The struct has two users, the thread and the loop; the last one frees
 *         it. Under `mu` the thread sees whether it was canceled, and if not
 *         posts the answer. A cancel after that finds it posted, and the posted
 *         task does the freeing.
 */
#include "net/resolve.h"

#include "base/error_text.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct dibs__resolve {
    struct dibs__task answer;
    struct dibs__loop *lp;
    dibs__resolve_fn fn;
    void *arg;
    char *host;
    char port[8];
    struct dibs__tls *tls; /* or NULL */
    int starved;           /* errno: there was no descriptor */
    bool unusable;         /* tls could not be loaded */
    pthread_mutex_t mu;
    bool canceled; /* mu */
    bool posted;   /* mu */
    int failed;    /* getaddrinfo's answer */
    struct addrinfo *found;
};

static void resolve_free(struct dibs__resolve *rs)
{
    if (!rs)
        return;
    if (rs->found)
        freeaddrinfo(rs->found);
    dibs__tls_free(rs->tls);
    pthread_mutex_destroy(&rs->mu);
    dibs__free(rs->host);
    dibs__free(rs);
}

static void *resolve_main(void *arg)
{
    struct dibs__resolve *rs = arg;
    struct addrinfo want = {.ai_family = AF_UNSPEC,
                            .ai_socktype = SOCK_STREAM,
                            .ai_flags = AI_ADDRCONFIG};

    rs->starved = dibs__fds_left(1) ? 0 : errno; /* nothing else is wrong */
    rs->unusable = rs->starved == 0 && rs->tls && !dibs__tls_load(rs->tls);
    if (rs->starved == 0 && !rs->unusable)
        rs->failed = getaddrinfo(rs->host, rs->port, &want, &rs->found);
    if (rs->failed)
        rs->found = NULL;
    pthread_mutex_lock(&rs->mu);
    bool canceled = rs->canceled;
    if (!canceled) {
        rs->posted = true;
        dibs__loop_post(rs->lp, &rs->answer);
    }
    pthread_mutex_unlock(&rs->mu);
    if (canceled)
        resolve_free(rs);
    return NULL;
}

static void tell_resolved(struct dibs__task *t)
{
    struct dibs__resolve *rs = DIBS_OF(t, struct dibs__resolve, answer);

    pthread_mutex_lock(&rs->mu); /* the thread may still be inside */
    bool canceled = rs->canceled;
    pthread_mutex_unlock(&rs->mu);
    if (!canceled) {
        char text[DIBS__ERRNO_MAX];
        struct dibs__resolved r = {
            rs->found, rs->tls, rs->unusable ? DIBS_ERR_TLS : DIBS_ERR_CONN,
            rs->starved    ? dibs__errno_text(rs->starved, text)
            : rs->unusable ? dibs__tls_why(rs->tls)
                           : gai_strerror(rs->failed)};
        rs->found = NULL;
        rs->tls = NULL;
        rs->fn(rs->arg, &r);
    }
    resolve_free(rs);
}

struct dibs__resolve *dibs__resolve_start(struct dibs__loop *lp,
                                          const struct dibs__url *url,
                                          dibs__resolve_fn fn, void *arg)
{
    struct dibs__resolve *rs = dibs__calloc(1, sizeof *rs);
    pthread_t thread;

    if (!rs)
        return NULL;
    pthread_mutex_init(&rs->mu, NULL);
    rs->lp = lp;
    rs->fn = fn;
    rs->arg = arg;
    rs->answer.run = tell_resolved;
    rs->host = dibs__strdup(url->host);
    snprintf(rs->port, sizeof rs->port, "%d", url->port & 0xffff);
    rs->tls = url->tls.on ? dibs__tls_new(url) : NULL;
    if (rs->host && (rs->tls || !url->tls.on) &&
        dibs__thread_start(&thread, "dibs-dns", resolve_main, rs)) {
        pthread_detach(thread);
        return rs;
    }
    resolve_free(rs);
    return NULL;
}

void dibs__resolve_cancel(struct dibs__resolve *rs)
{
    pthread_mutex_lock(&rs->mu);
    rs->canceled = true;
    pthread_mutex_unlock(&rs->mu);
}
