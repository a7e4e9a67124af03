/* SPDX-License-Identifier: MIT
 *
 * tls.c - one TLS session over one socket, by OpenSSL.
 *
 * Thread  That which has the connection; dibs__tls_load on a thread that may
 *         wait for files (resolve.c).
 * Locks   none.
 *
 * How     Each session has a context of its own, made from the files as they
 *         are then: a certificate that was renewed counts from the next
 *         connection on.
 *
 *         OpenSSL reads and writes the socket through two functions of ours,
 *         since its own would raise SIGPIPE, and know nothing of MSG_DONTWAIT:
 *         the same socket blocks for a caller and does not for the loop. At
 *         most one receive of a call may block. Otherwise a server that sends
 *         a record byte by byte could hold a caller for as long as it likes.
 *
 *         It reads ahead, so that a record costs one system call and not two.
 *         So there may be bytes in the session that no poll tells of;
 *         dibs__tls_more does.
 *
 * Trouble The rule that a request of which the kernel did not take every byte
 *         was not executed holds here, too: half a record cannot be read by
 *         anybody. For that, nothing may be sent behind our back after a send
 *         that did not end; so there is no good-bye then.
 *
 *         Verification is on unless the URL says insecure. Its verdict is put
 *         into words here, since OpenSSL's own are for those who know it.
 *         Texts name files and hosts, and nothing of what is in the files.
 *
 *         OpenSSL's memory is its own: an allocation that fails there is an
 *         error like others. A program may exit while our threads run, so
 *         OpenSSL is asked not to tear itself down at that moment.
 */
#include "net/tls.h"

#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct dibs__tls {
    struct dibs__url_tls set; /* our copy: a look-up may outlive the client */
    char *name;               /* who the server must be */
    SSL *ssl;
    int fd;
    bool wait;     /* the next receive may block, */
    bool wait_out; /* and sends */
    bool dry;      /* no receives at all */
    bool ended;    /* the peer closed */
    bool up;       /* the handshake is done */
    bool half;     /* a record went out in part: its rest must come next */
    bool torn;     /* the session failed */
    bool asked;    /* the server wanted to see our certificate */
    int failed;    /* error number of the last system call, or 0 */
    char why[256];
};

/* ---- between OpenSSL and the socket ------------------------------------ */

static int socket_write(BIO *bio, const char *data, int len)
{
    struct dibs__tls *t = BIO_get_data(bio);
    int flags = MSG_NOSIGNAL | (t->wait_out ? 0 : MSG_DONTWAIT);
    ssize_t n;

    BIO_clear_retry_flags(bio);
    do
        n = send(t->fd, data, (size_t)len, flags);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return (int)n;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        BIO_set_retry_write(bio);
    else
        t->failed = errno;
    return -1;
}

static int socket_read(BIO *bio, char *data, int len)
{
    struct dibs__tls *t = BIO_get_data(bio);
    ssize_t n = -1;

    BIO_clear_retry_flags(bio);
    if (t->dry)
        errno = EAGAIN;
    else
        n = recv(t->fd, data, (size_t)len, t->wait ? 0 : MSG_DONTWAIT);
    t->wait = false;
    t->ended = n == 0;
    if (n >= 0)
        return (int)n;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        BIO_set_retry_read(bio);
    else
        t->failed = errno;
    return -1;
}

static long socket_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
    (void)bio;
    (void)num;
    (void)ptr;
    return cmd == BIO_CTRL_FLUSH; /* nothing is ever held back */
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static BIO_METHOD *method; /* const after once */

static void init_once(void)
{
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "dibs");
    if (!method)
        return;
    BIO_meth_set_write(method, socket_write);
    BIO_meth_set_read(method, socket_read);
    BIO_meth_set_ctrl(method, socket_ctrl);
}

/* ---- what went wrong --------------------------------------------------- */

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static bool
say_why(struct dibs__tls *t, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(t->why, sizeof t->why, fmt, ap);
    va_end(ap);
    return false;
}

/* What OpenSSL's last words are, without where in its source it said them. */
static const char *last_words(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_error());

    return text ? text : "no reason given";
}

static void say_verdict(struct dibs__tls *t, long verdict)
{
    switch (verdict) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        say_why(t, "TLS: the server's certificate is for another host than %s",
                t->name);
        return;
    case X509_V_ERR_CERT_HAS_EXPIRED:
        say_why(t, "TLS: the server's certificate has expired");
        return;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        say_why(t, "TLS: the server's certificate is not valid yet");
        return;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        say_why(t, "TLS: the server's certificate is from an unknown CA (%s)",
                t->set.ca ? t->set.ca : "those of the system were tried");
        return;
    default:
        say_why(t, "TLS: the server's certificate cannot be trusted: %s",
                X509_verify_cert_error_string(verdict));
    }
}

/* The server ended the handshake with an alert. */
static void say_alert(struct dibs__tls *t, int alert)
{
    bool ours = alert == TLS13_AD_CERTIFICATE_REQUIRED ||
                alert == SSL_AD_HANDSHAKE_FAILURE ||
                (alert >= SSL_AD_BAD_CERTIFICATE &&
                 alert <= SSL_AD_CERTIFICATE_UNKNOWN) ||
                alert == TLS1_AD_UNKNOWN_CA || alert == TLS1_AD_ACCESS_DENIED ||
                alert == TLS1_AD_DECRYPT_ERROR;

    if (ours && t->asked && !t->set.cert)
        say_why(t,
                "TLS: the server wants a client certificate, and we have none");
    else if (ours && t->asked)
        say_why(t, "TLS: the server does not accept our certificate %s: %s",
                t->set.cert, last_words());
    else
        say_why(t, "TLS: the server refuses: %s", last_words());
}

/* Puts the failure of an operation into words. */
static void explain_ssl(struct dibs__tls *t)
{
    long verdict = SSL_get_verify_result(t->ssl);
    int reason = ERR_GET_REASON(ERR_peek_error());

    if (!t->up && !t->set.insecure && verdict != X509_V_OK)
        say_verdict(t, verdict);
    else if (reason > SSL_AD_REASON_OFFSET)
        say_alert(t, reason - SSL_AD_REASON_OFFSET);
    else if (!t->up && (reason == SSL_R_WRONG_VERSION_NUMBER ||
                        reason == SSL_R_PACKET_LENGTH_TOO_LONG))
        say_why(t, "TLS: the server does not speak TLS on this port");
    else
        say_why(t, "TLS: %s", last_words());
}

/* ---- the files --------------------------------------------------------- */

/* There is nobody to type a passphrase. */
static int no_passphrase(char *buf, int size, int writing, void *arg)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)arg;
    return 0;
}

/* Why a file was of no use: the system's reason, or else ours. */
static bool say_file(struct dibs__tls *t, const char *word, const char *path,
                     const char *lacks)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char text[80];

    if (fd < 0)
        return say_why(t, "TLS: cannot read %s '%s': %s", word, path,
                       strerror_r(errno, text, sizeof text));
    close(fd);
    return say_why(t, "TLS: %s '%s' %s", word, path, lacks);
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Without a CA of ours the system's count. Its usual places are asked for by
 * name, as OpenSSL would look into the environment first. */
static bool load_ca(struct dibs__tls *t, SSL_CTX *ctx)
{
    const char *ca = t->set.ca;

    if (t->set.insecure)
        return true;
    if (!ca) {
        (void)SSL_CTX_load_verify_locations(ctx, X509_get_default_cert_file(),
                                            NULL);
        (void)SSL_CTX_load_verify_locations(ctx, NULL,
                                            X509_get_default_cert_dir());
        return true;
    }
    if (is_folder(ca) ? SSL_CTX_load_verify_locations(ctx, NULL, ca)
                      : SSL_CTX_load_verify_locations(ctx, ca, NULL))
        return true;
    return say_file(t, "ca", ca, "has no certificate in it (PEM)");
}

static bool load_own(struct dibs__tls *t, SSL_CTX *ctx)
{
    const char *cert = t->set.cert, *key = t->set.key ? t->set.key : cert;

    if (!cert)
        return true;
    if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1)
        return say_file(t, "cert", cert, "has no certificate in it (PEM)");
    ERR_clear_error();
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
        return say_file(t, "key", key,
                        ERR_GET_REASON(ERR_peek_last_error()) ==
                                X509_R_KEY_VALUES_MISMATCH
                            ? "does not belong to the certificate"
                            : "has no key in it that can be read (PEM, no "
                              "passphrase)");
    if (SSL_CTX_check_private_key(ctx) != 1)
        return say_file(t, "key", key, "does not belong to the certificate");
    return true;
}

/* ---- a session --------------------------------------------------------- */

static int cert_asked(SSL *ssl, void *arg)
{
    struct dibs__tls *t = arg;

    (void)ssl;
    t->asked = true;
    return 1;
}

static bool is_address(const char *name)
{
    struct in6_addr ignored;

    return inet_pton(AF_INET, name, &ignored) == 1 ||
           inet_pton(AF_INET6, name, &ignored) == 1;
}

/* Who must answer, and whom we ask for. */
static bool set_name(struct dibs__tls *t)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(t->ssl);

    /* What is trusted is trusted, be it a root or below one. */
    X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_PARTIAL_CHAIN);
    X509_VERIFY_PARAM_set_hostflags(param,
                                    X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (is_address(t->name))
        return X509_VERIFY_PARAM_set1_ip_asc(param, t->name) == 1;
    return X509_VERIFY_PARAM_set1_host(param, t->name, 0) == 1 &&
           SSL_set_tlsext_host_name(t->ssl, t->name) == 1;
}

static bool set_up(struct dibs__tls *t, SSL_CTX *ctx)
{
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    SSL_CTX_set_verify(ctx, t->set.insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER,
                       NULL);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1)
        return say_why(t, "TLS: this OpenSSL has no TLS 1.2");
    if (!load_ca(t, ctx) || !load_own(t, ctx))
        return false;
    t->ssl = SSL_new(ctx);
    BIO *bio = t->ssl ? BIO_new(method) : NULL;
    if (!bio)
        return say_why(t, "TLS: out of memory");
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio); /* takes it */
    SSL_set_cert_cb(t->ssl, cert_asked, t);
    SSL_set_connect_state(t->ssl);
    return set_name(t) || say_why(t, "TLS: '%s' is no name of a host", t->name);
}

bool dibs__tls_load(struct dibs__tls *t)
{
    pthread_once(&once, init_once);
    ERR_clear_error();
    SSL_CTX *ctx = method ? SSL_CTX_new(TLS_client_method()) : NULL;
    bool fine = ctx ? set_up(t, ctx) : say_why(t, "TLS: out of memory");
    SSL_CTX_free(ctx); /* the session has a reference */
    ERR_clear_error();
    return fine;
}

static bool keep_text(const char *from, char **to)
{
    *to = from ? dibs__strdup(from) : NULL;
    return !from || *to;
}

struct dibs__tls *dibs__tls_new(const struct dibs__url *url)
{
    struct dibs__tls *t = dibs__calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->fd = -1;
    t->set.insecure = url->tls.insecure;
    if (keep_text(url->tls.ca, &t->set.ca) &&
        keep_text(url->tls.cert, &t->set.cert) &&
        keep_text(url->tls.key, &t->set.key) &&
        keep_text(url->tls.sni ? url->tls.sni : url->host, &t->name)) {
        size_t len = strlen(t->name);
        if (len > 1 && t->name[len - 1] == '.')
            t->name[len - 1] = '\0'; /* certificates do not write it */
        return t;
    }
    dibs__tls_free(t);
    return NULL;
}

void dibs__tls_free(struct dibs__tls *t)
{
    if (!t)
        return;
    if (t->up && !t->torn && !t->half) {
        t->wait = t->wait_out = false;
        SSL_shutdown(t->ssl);
    }
    SSL_free(t->ssl);
    ERR_clear_error();
    dibs__free(t->set.ca);
    dibs__free(t->set.cert);
    dibs__free(t->set.key);
    dibs__free(t->name);
    dibs__free(t);
}

const char *dibs__tls_why(const struct dibs__tls *t)
{
    return t->why;
}

/* ---- in use ------------------------------------------------------------ */

static void begin_io(struct dibs__tls *t, int flags)
{
    ERR_clear_error(); /* SSL_get_error would take an old one for ours */
    t->wait = t->wait_out = !(flags & MSG_DONTWAIT);
    t->failed = 0;
}

/* What send and recv would return, and errno. */
static ssize_t io_outcome(struct dibs__tls *t, int result)
{
    if (result > 0)
        return result;
    switch (SSL_get_error(t->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        t->torn = true;
        if (t->ended)
            return 0;
        errno = t->failed ? t->failed : EPIPE;
        return -1;
    default:
        t->torn = true;
        explain_ssl(t);
        errno = EPROTO;
        return -1;
    }
}

enum dibs__tls_step dibs__tls_shake(struct dibs__tls *t, int fd)
{
    t->fd = fd;
    begin_io(t, MSG_DONTWAIT);
    int result = SSL_do_handshake(t->ssl);
    if (result == 1) {
        t->up = true;
        return TLS_DONE;
    }
    int error = SSL_get_error(t->ssl, result);
    if (error == SSL_ERROR_WANT_READ)
        return TLS_READ;
    if (error == SSL_ERROR_WANT_WRITE)
        return TLS_WRITE;
    ssize_t n = io_outcome(t, result);
    if (n == 0 || errno != EPROTO) {
        say_why(
            t, "the server closed the connection in the TLS handshake; is this "
               "its port for TLS?");
        return TLS_CUT;
    }
    return TLS_FAILED;
}

ssize_t dibs__tls_send(struct dibs__tls *t, const void *data, size_t len,
                       int flags)
{
    const size_t most = 1u << 20; /* OpenSSL's count is an int */

    begin_io(t, flags);
    ssize_t n =
        io_outcome(t, SSL_write(t->ssl, data, (int)(len < most ? len : most)));
    t->half = n <= 0;
    if (n != 0)
        return n;
    errno = EPIPE;
    return -1;
}

ssize_t dibs__tls_recv(struct dibs__tls *t, void *data, size_t len, int flags)
{
    begin_io(t, flags);
    return io_outcome(t, SSL_read(t->ssl, data, (int)len));
}

bool dibs__tls_more(const struct dibs__tls *t)
{
    return SSL_has_pending(t->ssl) == 1;
}

void dibs__tls_dry(struct dibs__tls *t, bool dry)
{
    t->dry = dry;
}

bool dibs__tls_quiet(struct dibs__tls *t, bool look)
{
    char byte;

    if (!look && !dibs__tls_more(t))
        return true;
    begin_io(t, MSG_DONTWAIT);
    ssize_t n = io_outcome(t, SSL_peek(t->ssl, &byte, 1));
    return n < 0 && errno == EAGAIN;
}
