/* SPDX-License-Identifier: MIT
 *
 * tls.c - one TLS session over one socket, by OpenSSL.
 *
 * Thread  the one that uses the connection; dibs__tls_load on the thread of the
 *         look-up, which may block (resolve.c).
 * Locks   none.
 *
 * How     Each session has its own SSL_CTX, loaded from the files at that time:
 *         a renewed certificate is used from the next connection on.
 *
 *         OpenSSL reads and writes the socket through the BIO functions here,
 *         since its own raise SIGPIPE and have no MSG_DONTWAIT: the same socket
 *         blocks for a borrower and not for io. At most one receive per call
 *         blocks, otherwise a server that sends a record byte by byte could
 *         extend the caller's time limit.
 *
 *         Read-ahead is on, so that a record costs one system call, not two.
 *         So the session may buffer input that poll does not report;
 *         dibs__tls_has_pending does.
 *
 * Trouble A request that the kernel did not take completely was not executed.
 *         That holds for TLS, too, as the server cannot decrypt an incomplete
 *         record. So after a partial write nothing may complete the record: no
 *         close_notify is sent then.
 *
 *         The server is verified unless the URL has insecure=1. Verification
 *         errors get texts of their own, since those of OpenSSL assume its
 *         terms. Texts name files and hosts, but no contents of files.
 *
 *         OpenSSL allocates without base/mem.h; a failed allocation there is an
 *         error like others. A program may exit while io runs, so OpenSSL must
 *         not clean up at exit (OPENSSL_INIT_NO_ATEXIT).
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
    struct dibs__url_tls set; /* a copy: a look-up may outlive the client */
    char *name;               /* host name that the certificate must match */
    SSL *ssl;
    int fd;
    bool may_block_recv; /* the next receive may block */
    bool may_block_send; /* sends may block */
    bool buffered_only;  /* receive nothing from the socket */
    bool peer_closed;
    bool up;             /* the handshake is done */
    bool partial_record; /* its rest must be the next output */
    bool session_failed;
    bool cert_requested; /* the server requested a client certificate */
    int io_errno;        /* of the last system call, or 0 */
    char why[256];
};

/* ---- between OpenSSL and the socket ------------------------------------ */

static int socket_write(BIO *bio, const char *data, int len)
{
    struct dibs__tls *t = BIO_get_data(bio);
    int flags = MSG_NOSIGNAL | (t->may_block_send ? 0 : MSG_DONTWAIT);
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
        t->io_errno = errno;
    return -1;
}

static int socket_read(BIO *bio, char *data, int len)
{
    struct dibs__tls *t = BIO_get_data(bio);
    ssize_t n = -1;

    BIO_clear_retry_flags(bio);
    if (t->buffered_only)
        errno = EAGAIN;
    else
        n = recv(t->fd, data, (size_t)len,
                 t->may_block_recv ? 0 : MSG_DONTWAIT);
    t->may_block_recv = false;
    t->peer_closed = n == 0;
    if (n >= 0)
        return (int)n;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        BIO_set_retry_read(bio);
    else
        t->io_errno = errno;
    return -1;
}

static long socket_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
    (void)bio;
    (void)num;
    (void)ptr;
    return cmd == BIO_CTRL_FLUSH; /* output is not buffered here */
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

/* ---- error texts ------------------------------------------------------- */

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static bool
set_error(struct dibs__tls *t, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(t->why, sizeof t->why, fmt, ap);
    va_end(ap);
    return false;
}

/* Returns the text of OpenSSL's last error, without its source location. */
static const char *openssl_error(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_error());

    return text ? text : "no reason given";
}

static void set_verify_error(struct dibs__tls *t, long verdict)
{
    switch (verdict) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        set_error(t,
                  "TLS: the server's certificate is for another host than %s",
                  t->name);
        return;
    case X509_V_ERR_CERT_HAS_EXPIRED:
        set_error(t, "TLS: the server's certificate has expired");
        return;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        set_error(t, "TLS: the server's certificate is not valid yet");
        return;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        set_error(t, "TLS: the server's certificate is from an unknown CA (%s)",
                  t->set.ca ? t->set.ca : "those of the system were tried");
        return;
    default:
        set_error(t, "TLS: the server's certificate cannot be trusted: %s",
                  X509_verify_cert_error_string(verdict));
    }
}

/* The server ended the handshake with an alert. */
static void set_alert_error(struct dibs__tls *t, int alert)
{
    bool about_cert = alert == TLS13_AD_CERTIFICATE_REQUIRED ||
                      alert == SSL_AD_HANDSHAKE_FAILURE ||
                      (alert >= SSL_AD_BAD_CERTIFICATE &&
                       alert <= SSL_AD_CERTIFICATE_UNKNOWN) ||
                      alert == TLS1_AD_UNKNOWN_CA ||
                      alert == TLS1_AD_ACCESS_DENIED ||
                      alert == TLS1_AD_DECRYPT_ERROR;

    if (about_cert && t->cert_requested && !t->set.cert)
        set_error(
            t, "TLS: the server wants a client certificate, but none is set");
    else if (about_cert && t->cert_requested)
        set_error(t, "TLS: the server does not accept our certificate %s: %s",
                  t->set.cert, openssl_error());
    else
        set_error(t, "TLS: the server refuses: %s", openssl_error());
}

/* Sets the error text after a failed SSL function. */
static void set_ssl_error(struct dibs__tls *t)
{
    long verdict = SSL_get_verify_result(t->ssl);
    int reason = ERR_GET_REASON(ERR_peek_error());

    if (!t->up && !t->set.insecure && verdict != X509_V_OK)
        set_verify_error(t, verdict);
    else if (reason > SSL_AD_REASON_OFFSET)
        set_alert_error(t, reason - SSL_AD_REASON_OFFSET);
    else if (!t->up && (reason == SSL_R_WRONG_VERSION_NUMBER ||
                        reason == SSL_R_PACKET_LENGTH_TOO_LONG))
        set_error(t, "TLS: the server does not speak TLS on this port");
    else
        set_error(t, "TLS: %s", openssl_error());
}

/* ---- the files --------------------------------------------------------- */

/* No passphrase is available, and OpenSSL must not prompt for one. */
static int no_passphrase(char *buf, int size, int writing, void *arg)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)arg;
    return 0;
}

/* Sets the error text for a file that could not be used: the system's error if
 * it cannot be opened, else `lacks`. */
static bool set_file_error(struct dibs__tls *t, const char *word,
                           const char *path, const char *lacks)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char text[80];

    if (fd < 0)
        return set_error(t, "TLS: cannot read %s '%s': %s", word, path,
                         strerror_r(errno, text, sizeof text));
    close(fd);
    return set_error(t, "TLS: %s '%s' %s", word, path, lacks);
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Without a configured CA the system's are used. Their default locations are
 * passed explicitly, since OpenSSL prefers paths from the environment. */
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
    return set_file_error(t, "ca", ca, "has no certificate in it (PEM)");
}

static bool load_own(struct dibs__tls *t, SSL_CTX *ctx)
{
    const char *cert = t->set.cert, *key = t->set.key ? t->set.key : cert;

    if (!cert)
        return true;
    if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1)
        return set_file_error(t, "cert", cert,
                              "has no certificate in it (PEM)");
    ERR_clear_error();
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
        return set_file_error(
            t, "key", key,
            ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH
                ? "does not belong to the certificate"
                : "has no key in it that can be read (PEM, no "
                  "passphrase)");
    if (SSL_CTX_check_private_key(ctx) != 1)
        return set_file_error(t, "key", key,
                              "does not belong to the certificate");
    return true;
}

/* ---- a session --------------------------------------------------------- */

static int on_cert_request(SSL *ssl, void *arg)
{
    struct dibs__tls *t = arg;

    (void)ssl;
    t->cert_requested = true;
    return 1;
}

static bool is_address(const char *name)
{
    struct in6_addr ignored;

    return inet_pton(AF_INET, name, &ignored) == 1 ||
           inet_pton(AF_INET6, name, &ignored) == 1;
}

/* Sets the name to verify, and for SNI. */
static bool set_server_name(struct dibs__tls *t)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(t->ssl);

    /* An intermediate CA in the trust store suffices. */
    X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_PARTIAL_CHAIN);
    X509_VERIFY_PARAM_set_hostflags(param,
                                    X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (is_address(t->name))
        return X509_VERIFY_PARAM_set1_ip_asc(param, t->name) == 1;
    return X509_VERIFY_PARAM_set1_host(param, t->name, 0) == 1 &&
           SSL_set_tlsext_host_name(t->ssl, t->name) == 1;
}

static bool session_init(struct dibs__tls *t, SSL_CTX *ctx)
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
        return set_error(t, "TLS: this OpenSSL has no TLS 1.2");
    if (!load_ca(t, ctx) || !load_own(t, ctx))
        return false;
    t->ssl = SSL_new(ctx);
    BIO *bio = t->ssl ? BIO_new(method) : NULL;
    if (!bio)
        return set_error(t, "TLS: out of memory");
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio); /* takes ownership */
    SSL_set_cert_cb(t->ssl, on_cert_request, t);
    SSL_set_connect_state(t->ssl);
    return set_server_name(t) ||
           set_error(t, "TLS: '%s' is not a valid host name", t->name);
}

bool dibs__tls_load(struct dibs__tls *t)
{
    pthread_once(&once, init_once);
    ERR_clear_error();
    SSL_CTX *ctx = method ? SSL_CTX_new(TLS_client_method()) : NULL;
    bool ok = ctx ? session_init(t, ctx) : set_error(t, "TLS: out of memory");
    SSL_CTX_free(ctx); /* the session has a reference */
    ERR_clear_error();
    return ok;
}

struct dibs__tls *dibs__tls_new(const struct dibs__url *url)
{
    struct dibs__tls *t = dibs__calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->fd = -1;
    t->set.insecure = url->tls.insecure;
    if (dibs__copy_text(url->tls.ca, &t->set.ca) &&
        dibs__copy_text(url->tls.cert, &t->set.cert) &&
        dibs__copy_text(url->tls.key, &t->set.key) &&
        dibs__copy_text(url->tls.sni ? url->tls.sni : url->host, &t->name)) {
        size_t len = strlen(t->name);
        if (len > 1 && t->name[len - 1] == '.')
            t->name[len - 1] = '\0'; /* certificates omit the final dot */
        return t;
    }
    dibs__tls_free(t);
    return NULL;
}

void dibs__tls_free(struct dibs__tls *t)
{
    if (!t)
        return;
    if (t->up && !t->session_failed && !t->partial_record) {
        t->may_block_recv = t->may_block_send = false;
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

/* ---- I/O --------------------------------------------------------------- */

static void begin_io(struct dibs__tls *t, int flags)
{
    ERR_clear_error(); /* SSL_get_error reads the thread's error queue */
    t->may_block_recv = t->may_block_send = !(flags & MSG_DONTWAIT);
    t->io_errno = 0;
}

/* Returns what send(2) or recv(2) would, and sets errno. */
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
        t->session_failed = true;
        if (t->peer_closed)
            return 0;
        errno = t->io_errno ? t->io_errno : EPIPE;
        return -1;
    default:
        t->session_failed = true;
        set_ssl_error(t);
        errno = EPROTO;
        return -1;
    }
}

enum dibs__tls_step dibs__tls_handshake(struct dibs__tls *t, int fd)
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
        set_error(
            t, "the server closed the connection in the TLS handshake; is this "
               "its port for TLS?");
        return TLS_CUT;
    }
    return TLS_FAILED;
}

ssize_t dibs__tls_send(struct dibs__tls *t, const void *data, size_t len,
                       int flags)
{
    const size_t max = 1u << 20; /* OpenSSL's count is an int */

    begin_io(t, flags);
    ssize_t n =
        io_outcome(t, SSL_write(t->ssl, data, (int)(len < max ? len : max)));
    t->partial_record = n <= 0;
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

bool dibs__tls_has_pending(const struct dibs__tls *t)
{
    return SSL_has_pending(t->ssl) == 1;
}

void dibs__tls_set_buffered_only(struct dibs__tls *t, bool on)
{
    t->buffered_only = on;
}

bool dibs__tls_has_no_input(struct dibs__tls *t, bool look)
{
    char byte;

    if (!look && !dibs__tls_has_pending(t))
        return true;
    begin_io(t, MSG_DONTWAIT);
    ssize_t n = io_outcome(t, SSL_peek(t->ssl, &byte, 1));
    return n < 0 && errno == EAGAIN;
}
