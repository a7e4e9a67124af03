/* SPDX-License-Identifier: MIT
 *
 * kit.c - what the fault tests share.
 *
 * Thread  the test's main thread, except event_told and the callbacks.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/kit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct ts_server *kit_srv;
struct ts_proxy *kit_px;

int64_t kit_ms(int64_t ms)
{
    return ms + ms * (ts_slow() - 1) / 4;
}

/* ---- server and proxy -------------------------------------------------- */

int kit_up(void **state)
{
    (void)state;
    kit_srv = ts_server_start(NULL);
    kit_px = ts_proxy_start(kit_srv);
    return 0;
}

int kit_down(void **state)
{
    (void)state;
    ts_proxy_stop(kit_px);
    ts_server_stop(kit_srv);
    return 0;
}

void kit_load(const struct dibs__script *script)
{
    const char *argv[] = {"SCRIPT", "LOAD", script->src};
    const size_t lens[] = {6, 4, script->len};
    redisReply *r = ts_cmdv(kit_srv, 3, argv, lens);

    if (!r || r->type != REDIS_REPLY_STRING || strcmp(r->str, script->sha) != 0)
        ts_fatal("%s was not loaded under its name", script->name);
    freeReplyObject(r);
}

int kit_fresh(void **state)
{
    (void)state;
    if (ts_server_pid(kit_srv) == 0)
        ts_server_restart(kit_srv);
    ts_proxy_reset(kit_px);
    ts_proxy_kill_all(kit_px, false);
    ts_ok(kit_srv, "CLIENT UNPAUSE");
    ts_ok(kit_srv, "REPLICAOF NO ONE");
    ts_config_set(kit_srv, "maxclients", "10000");
    ts_config_set(kit_srv, "maxmemory", "0");
    ts_ok(kit_srv, "FLUSHALL");
    ts_ok(kit_srv, "ACL SETUSER meek reset on >pass ~* &* +@all -client "
                   "+client|setname");
    kit_load(&dibs__script_mutex_acquire);
    kit_load(&dibs__script_mutex_force);
    kit_load(&dibs__script_mutex_handover);
    kit_load(&dibs__script_mutex_info);
    kit_load(&dibs__script_mutex_release);
    kit_load(&dibs__script_mutex_renew);
    return 0;
}

/* ---- clients ----------------------------------------------------------- */

static void event_told(const dibs_event *ev, void *arg)
{
    struct kit_client *k = arg;
    size_t kind = (size_t)ev->kind, code = (size_t)-ev->err;

    if (kind >= COUNT(k->told) || code >= KIT_ERRS)
        return;
    pthread_mutex_lock(&k->mu);
    k->told[kind]++;
    snprintf(k->text[kind][code], sizeof k->text[kind][code], "%s", ev->text);
    pthread_mutex_unlock(&k->mu);
    if (getenv("KIT_LOUD"))
        fprintf(stderr, "%s: event %d (%s): %s\n", k->label, (int)ev->kind,
                dibs_strerror(ev->err), ev->text);
}

static const char *url_of(const struct kit_opts *o)
{
    if (o->direct)
        return ts_server_url(kit_srv);
    return o->tcp ? ts_proxy_tcp_url(kit_px) : ts_proxy_url(kit_px);
}

struct kit_client *kit_open_err(const struct kit_opts *o, dibs_err *err)
{
    static atomic_uint number;
    struct kit_client *k = ts_alloc(sizeof *k);
    const char *user = o->name ? o->name : o->user == KIT_MEEK ? "meek" : NULL;

    pthread_mutex_init(&k->mu, NULL);
    snprintf(k->label, sizeof k->label, "kit-%u.",
             atomic_fetch_add(&number, 1));
    *err = dibs_client_open(
        url_of(o),
        DIBS_CLIENT_OPTS(.command_timeout_ms =
                             o->timeout_ms ? o->timeout_ms : TS_SOON,
                         .connect_timeout_ms =
                             o->connect_ms ? o->connect_ms : TS_SOON,
                         .lazy = o->lazy,
                         .callbacks = o->dispatch ? DIBS_CALLBACKS_DISPATCH
                                                  : DIBS_CALLBACKS_THREAD,
                         .lease_ms = o->lease_ms ? o->lease_ms : KIT_LONG,
                         .user = user, .password = user ? "pass" : NULL,
                         .client_name = k->label, .on_event = event_told,
                         .event_arg = k),
        &k->c);
    if (*err == DIBS_OK)
        return k;
    pthread_mutex_destroy(&k->mu);
    free(k);
    return NULL;
}

struct kit_client *kit_open(const struct kit_opts *o)
{
    dibs_err err;
    struct kit_client *k = kit_open_err(o, &err);

    if (!k)
        fail_msg("no client: %s", dibs_strerror(err));
    return k;
}

void kit_drop(struct kit_client *k)
{
    if (!k)
        return;
    dibs_client_close(k->c, 1);
    dibs_client_free(k->c);
    pthread_mutex_destroy(&k->mu);
    free(k);
}

void kit_close(struct kit_client *k)
{
    dibs_err err = k ? dibs_client_close(k->c, TS_SOON) : DIBS_OK;

    kit_drop(k);
    if (err != DIBS_OK)
        fail_msg("closing: %s", dibs_strerror(err));
}

unsigned kit_told(struct kit_client *k, dibs_event_kind kind)
{
    pthread_mutex_lock(&k->mu);
    unsigned n = k->told[kind];
    pthread_mutex_unlock(&k->mu);
    return n;
}

bool kit_heard(struct kit_client *k, dibs_event_kind kind, dibs_err err,
               const char *text)
{
    pthread_mutex_lock(&k->mu);
    bool is = strstr(k->text[kind][-err], text) != NULL;
    pthread_mutex_unlock(&k->mu);
    return is;
}

dibs_lock *kit_lock(struct kit_client *k, const char *name)
{
    dibs_lock *l = NULL;

    assert_int_equal(dibs_lock_new(k->c, name, &l), DIBS_OK);
    return l;
}

/* On which connection the last, or the first, request with this text came. */
static unsigned connection_of(const char *text, bool first)
{
    unsigned n = ts_proxy_logged(kit_px, text);
    char *line = n ? ts_proxy_log_line(kit_px, text, first ? 0 : n - 1) : NULL;
    unsigned number = 0;

    if (line && sscanf(line, "%*d #%u", &number) != 1)
        number = 0;
    free(line);
    return number;
}

void kit_warm(struct kit_client *k, dibs_lock *l, const char *name)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);
    unsigned mine = connection_of(k->label, true);

    assert_int_not_equal(mine, 0);
    for (;;) { /* a client that does not wait long may have to ask again */
        dibs_lock_info info = DIBS_LOCK_INFO_INIT;
        dibs_err err = dibs_lock_info_get(l, &info);
        if (err != DIBS_OK && err != DIBS_ERR_UNKNOWN && err != DIBS_ERR_CONN)
            fail_msg("warming up: %s", dibs_strerror(err));
        if (err == DIBS_OK && connection_of(name, false) != mine)
            return;
        if (!ts_wait_step(&w))
            fail_msg("no connection was ever borrowed");
    }
}

/* ---- calls ------------------------------------------------------------- */

void kit_ended(dibs_err err, void *end)
{
    struct kit_end *e = end;

    e->err = err;
    atomic_store(&e->over, true);
}

dibs_err kit_wait_at(struct kit_end *end, const char *file, int line)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while (!atomic_load(&end->over))
        if (!ts_wait_step(&w)) {
            print_error("an async call is not over after %lld ms\n",
                        (long long)TS_SOON);
            if (kit_px)
                ts_proxy_log_print(kit_px, stderr);
            _fail(file, line);
        }
    return end->err;
}

dibs_err kit_call(dibs_lock *l, bool is_async, kit_sync_fn *sync,
                  kit_async_fn *async, const dibs_lock_opts *o)
{
    struct kit_end end = {.err = DIBS_OK};

    if (!is_async)
        return sync(l, o);
    dibs_err err = async(l, o, kit_ended, &end);
    return err == DIBS_OK ? kit_wait(&end) : err;
}

void kit_want_at(const char *what, dibs_err err, dibs_err wanted,
                 const char *call, const char *file, int line)
{
    if (err == wanted)
        return;
    print_error("%s: %s: \"%s\", not \"%s\"\n", what, call, dibs_strerror(err),
                dibs_strerror(wanted));
    _fail(file, line);
}

void kit_lost(const char *name, dibs_owner owner, void *arg)
{
    (void)name;
    (void)owner;
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* ---- the server's view ------------------------------------------------- */

long long kit_holds(dibs_lock *l, dibs_owner owner, const char *name)
{
    char field[DIBS_OWNER_MAX];

    if (dibs_lock_owner_text(l, owner, field, sizeof field) != DIBS_OK)
        return 0;
    char *value = ts_hget(kit_srv, name, field);
    long long n = value ? atoll(value) : 0;
    free(value);
    return n;
}

void kit_check(const char *where, dibs_lock *l, dibs_owner owner,
               const char *name, long long holds)
{
    long long known = dibs_lock_holds(l, owner);
    long long here = kit_holds(l, owner, name);
    long long owners = ts_hlen(kit_srv, name);

    if (known != holds)
        fail_msg("%s: we think we hold it %lld times, not %lld", where, known,
                 holds);
    if (here != holds || owners != (holds > 0))
        fail_msg("%s: the server has %lld holds of ours, not %lld, and %lld "
                 "owners",
                 where, here, holds, owners);
    if (holds > 0 && ts_pttl(kit_srv, name) <= 0)
        fail_msg("%s: there is no TTL", where);
}

void kit_gone(const char *where, const char *name)
{
    if (!ts_wait_exists(kit_srv, name, false))
        fail_msg("%s: '%s' stays locked", where, name);
}

void kit_free_for_all(const char *where, const char *name)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = kit_lock(k, name);
    dibs_err err = dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON));

    if (err != DIBS_OK)
        fail_msg("%s: a stranger gets: %s", where, dibs_strerror(err));
    kit_check(where, l, 0, name, 1);
    if (dibs_lock_release(l, NULL) != DIBS_OK)
        fail_msg("%s: the stranger cannot give it back", where);
    dibs_lock_free(l);
    kit_close(k);
    kit_gone(where, name);
}

void kit_no_keys(const char *where)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while (ts_nkeys(kit_srv) != 0)
        if (!ts_wait_step(&w))
            fail_msg("%s: %lld keys stay", where, ts_nkeys(kit_srv));
}

/* ---- rules and names --------------------------------------------------- */

char *kit_needle_keys(const struct dibs__script *script, int keys,
                      const char *first)
{
    return ts_text("%s\r\n$1\r\n%d\r\n$%zu\r\n%s\r\n", script->sha, keys,
                   strlen(first), first);
}

char *kit_needle(const struct dibs__script *script, const char *name)
{
    return kit_needle_keys(script, 1, name);
}

int kit_rule(const struct dibs__script *script, const char *name,
             const struct ts_rule *rule)
{
    char *needle = kit_needle(script, name);
    struct ts_rule whole = *rule;

    whole.contains = needle;
    int id = ts_proxy_rule(kit_px, &whole);
    free(needle);
    return id;
}

void kit_relent(void)
{
    ts_proxy_unrule(kit_px, 0);
    ts_proxy_release(kit_px);
}

char *kit_name(const char *stem)
{
    static atomic_uint number;

    return ts_text("%s-%u", stem, atomic_fetch_add(&number, 1));
}
