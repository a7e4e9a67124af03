/* SPDX-License-Identifier: MIT
 *
 * resolve.c - asynchronous look-up of a host name.
 *
 * getaddrinfo has no time limit and cannot be canceled. So each look-up has a
 * detached thread, which shares only struct dibs__resolve with io. (libuv's
 * uv_getaddrinfo uses a thread pool that lives as long as the process; a closed
 * client must leave no thread.) Reading the TLS files can be as slow, so the
 * same thread does it.
 *
 * Thread  start, cancel and on_resolved on io; resolve_main on its own.
 *
 * How     The thread and io share the struct; the last user frees it. Under
 *         `mu` the thread checks `canceled`: if set, the thread frees the
 *         struct, else it posts on_resolved, which frees it. A cancel after
 *         the post only prevents the call of fn.
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
    int fd_errno;          /* errno if no descriptor was available, or 0 */
    bool tls_failed;       /* the TLS files could not be loaded */
    pthread_mutex_t mu;
    bool canceled; /* mu */
    int failed;    /* result of getaddrinfo */
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

    rs->fd_errno = dibs__fds_available(1)
                       ? 0
                       : errno; /* getaddrinfo would not report it */
    rs->tls_failed = rs->fd_errno == 0 && rs->tls && !dibs__tls_load(rs->tls);
    if (rs->fd_errno == 0 && !rs->tls_failed)
        rs->failed = getaddrinfo(rs->host, rs->port, &want, &rs->found);
    if (rs->failed)
        rs->found = NULL;
    pthread_mutex_lock(&rs->mu);
    bool canceled = rs->canceled;
    if (!canceled)
        dibs__loop_post(rs->lp, &rs->answer);
    pthread_mutex_unlock(&rs->mu);
    if (canceled)
        resolve_free(rs);
    return NULL;
}

static void on_resolved(struct dibs__task *t)
{
    struct dibs__resolve *rs = DIBS_OF(t, struct dibs__resolve, answer);

    pthread_mutex_lock(&rs->mu); /* wait until the thread has left */
    bool canceled = rs->canceled;
    pthread_mutex_unlock(&rs->mu);
    if (!canceled) {
        char text[DIBS__ERRNO_MAX];
        struct dibs__resolved r = {
            rs->found, rs->tls, rs->tls_failed ? DIBS_ERR_TLS : DIBS_ERR_CONN,
            rs->fd_errno     ? dibs__errno_text(rs->fd_errno, text)
            : rs->tls_failed ? dibs__tls_why(rs->tls)
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
    rs->answer.run = on_resolved;
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
