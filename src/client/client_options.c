/* SPDX-License-Identifier: MIT
 *
 * client_options.c - checks and stores a client's options and URL.
 *
 * Thread  app.
 *
 * A refused option is reported by name, as an event and in dibs_error_text.
 * Options take precedence over the URL.
 */
#include "base/api_args.h"
#include "base/mem.h"
#include "client/client.h"
#include "client/observe/client_name.h"

#include <string.h>

#define COMMAND_TIMEOUT_MS 3000
#define CONNECT_TIMEOUT_MS 3000
#define FAIR_WAIT_MIN_MS   1000
#define FAIR_CALL_MIN_MS   100
#define CONNECTIONS_MAX    64
#define CLIENT_NAME_MAX    256

/* ---- options ----------------------------------------------------------- */

static dibs_err check_client_name(const char *name)
{
    if (!name)
        return DIBS_OK;
    if (!*name || strlen(name) > CLIENT_NAME_MAX)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "client_name must have 1 to %d bytes",
                                CLIENT_NAME_MAX);
    for (const char *p = name; *p; p++)
        if (*p <= ' ' || *p > '~')
            return dibs__reason_set(
                DIBS_ERR_INVALID,
                "client_name has a space, or a character that is not ASCII");
    return DIBS_OK;
}

static dibs_err check_times(const dibs_client_opts *o)
{
    if (dibs__check_ms("command_timeout_ms", o->command_timeout_ms, 0,
                       INT32_MAX) ||
        dibs__check_ms("connect_timeout_ms", o->connect_timeout_ms, 0,
                       INT32_MAX) ||
        dibs__check_ms("lease_ms", o->lease_ms, DIBS_LEASE_MIN_MS,
                       DIBS_MS_MAX) ||
        dibs__check_ms("fair_wait_ms", o->fair_wait_ms, FAIR_WAIT_MIN_MS,
                       DIBS_MS_MAX) ||
        dibs__check_ms("fair_call_ms", o->fair_call_ms, FAIR_CALL_MIN_MS,
                       DIBS_MS_MAX))
        return DIBS_ERR_INVALID;
    return DIBS_OK;
}

static dibs_err check_options(const dibs_client_opts *o)
{
    if (check_times(o) != DIBS_OK ||
        check_client_name(o->client_name) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (o->max_connections > CONNECTIONS_MAX)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "max_connections is %u, it must be at most %d",
                                o->max_connections, CONNECTIONS_MAX);
    if (o->replicas < DIBS_REPLICAS_NONE)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "replicas is %d, it must be a number or one of "
                                "DIBS_REPLICAS_ALL and _NONE",
                                o->replicas);
    if ((unsigned)o->callbacks > DIBS_CALLBACKS_DISPATCH)
        return dibs__reason_set(
            DIBS_ERR_INVALID,
            "callbacks is %d, which is no DIBS_CALLBACKS_ value",
            (int)o->callbacks);
    if ((unsigned)o->pubsub > DIBS_PUBSUB_BOTH)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "pubsub is %d, which is no DIBS_PUBSUB_ value",
                                (int)o->pubsub);
    return DIBS_OK;
}

/* ---- target ------------------------------------------------------------ */

/* Emits the thread's error text as an event. No dibs__client_enter: no other
 * thread has the client yet. */
static dibs_err emit_refusal(dibs_client *c)
{
    dibs__client_emit_event(c, DIBS_EVENT_ERROR, DIBS_ERR_INVALID,
                            dibs_error_text());
    return DIBS_ERR_INVALID;
}

static dibs_err refuse_options(dibs_client *c, const char *why)
{
    dibs__reason_set(DIBS_ERR_INVALID, "%s", why);
    return emit_refusal(c);
}

static bool replace_text(char **field, const char *with)
{
    if (!with)
        return true;
    if (*field)
        explicit_bzero(*field, strlen(*field)); /* it may be a password */
    dibs__free(*field);
    *field = *with ? dibs__strdup(with) : NULL;
    return !*with || *field;
}

static dibs_err tls_set(dibs_client *c, struct dibs__url_tls *tls,
                        const dibs_client_opts *o)
{
    bool has_tls_option =
        o->tls_ca || o->tls_cert || o->tls_key || o->tls_sni || o->tls_insecure;

    if (has_tls_option && !tls->on)
        return refuse_options(c,
                              "TLS options, but the URL begins with no rediss");
    if (tls->on && !DIBS__TLS_BUILT)
        return refuse_options(
            c, "this dibs was built without TLS, which the URL wants");
    if (!replace_text(&tls->ca, o->tls_ca) ||
        !replace_text(&tls->cert, o->tls_cert) ||
        !replace_text(&tls->key, o->tls_key) ||
        !replace_text(&tls->sni, o->tls_sni))
        return DIBS_ERR_NOMEM;
    tls->insecure |= o->tls_insecure;
    if (tls->key && !tls->cert)
        return refuse_options(c, "a key for TLS, but no certificate");
    return DIBS_OK;
}

static dibs_err target_set(dibs_client *c, const char *url,
                           const dibs_client_opts *o)
{
    struct dibs__target *to = &c->to;
    const char *why = "";
    char name[DIBS__CLIENT_NAME_MAX];
    dibs_err err = dibs__url_parse(url, &to->url, &why);

    if (err == DIBS_ERR_INVALID) {
        dibs__reason_set(err, "url: %s", why);
        return emit_refusal(c);
    }
    if (err != DIBS_OK)
        return err;
    to->command_timeout_ms =
        o->command_timeout_ms ? o->command_timeout_ms : COMMAND_TIMEOUT_MS;
    to->connect_timeout_ms =
        o->connect_timeout_ms ? o->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    dibs__client_name_format(c->id, o->client_name, name);
    to->client_name = dibs__strdup(name);
    if (!to->client_name || !replace_text(&to->url.user, o->user) ||
        !replace_text(&to->url.password, o->password) ||
        !replace_text(&to->url.sentinel_user, o->sentinel_user) ||
        !replace_text(&to->url.sentinel_password, o->sentinel_password))
        return DIBS_ERR_NOMEM;
    if (to->url.sentinel_user && !to->url.sentinel_password)
        return refuse_options(c, "a user for the sentinels, but no password");
    if (to->url.user && !to->url.password)
        return refuse_options(c, "a user, but no password");
    return tls_set(c, &to->url.tls, o);
}

dibs_err dibs__options_apply(dibs_client *c, const char *url,
                             const dibs_client_opts *o)
{
    return check_options(o) == DIBS_OK ? target_set(c, url, o)
                                       : emit_refusal(c);
}
