/* SPDX-License-Identifier: MIT
 *
 * cmd_client.c - CLIENT: what a session says of itself and does to others.
 */
#include "sim/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- who is it --------------------------------------------------------- */

static void cmd_client_setname(struct sr_call *k)
{
    struct sr_str name = k->argv[2];

    for (size_t i = 0; i < name.n; i++)
        if (name.p[i] < '!' || name.p[i] > '~') {
            sr__reply_error(k, "ERR Client names cannot contain spaces, "
                               "newlines or special characters.");
            return;
        }
    free(k->c->name);
    k->c->name = sr__copy(name).p;
    sr__reply_ok(k);
}

static void cmd_client_getname(struct sr_call *k)
{
    if (k->c->name[0])
        sr__reply_text(k, k->c->name);
    else
        sr__reply_nil(k);
}

static void cmd_client_id(struct sr_call *k)
{
    sr__reply_int(k, k->c->id);
}

/* As CLIENT LIST shows a session. What nobody can know here is 0. */
void sr__session_line(struct sr_buf *out, const struct sr_session *c)
{
    const struct sr_server *s = c->s;
    char flags[8] = "";

    if (sr__subscribed(c))
        strcat(flags, "P");
    if (c->tracking)
        strcat(flags, "t");
    if (c->mode == SR_BLOCKED_WAIT)
        strcat(flags, "b");
    sr__buf_fmt(out,
                "id=%lld addr=%s laddr=%s:%d fd=0 name=%s age=%lld idle=0 "
                "flags=%s db=%d sub=%zu psub=%zu ssub=%zu multi=-1 qbuf=%zu "
                "qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=%zu oll=0 "
                "omem=0 tot-mem=0 events=r cmd=%s user=%s redir=%lld resp=2",
                (long long)c->id, c->addr, s->host, s->config.port, c->name,
                (long long)((s->now - c->born) / 1000), flags[0] ? flags : "N",
                c->db, c->channels.count, c->patterns.count, c->shards.count,
                c->in.n, c->out.n, c->last[0] ? c->last : "NULL",
                c->user ? sr__user_name(c->user) : "(superuser)",
                c->tracking ? (long long)c->redirect : -1LL);
}

static void cmd_client_info(struct sr_call *k)
{
    struct sr_buf text = {0};

    sr__session_line(&text, k->c);
    sr__buf_text(&text, "\n");
    sr__reply_str(k, (struct sr_str){text.p, text.n});
    sr__buf_free(&text);
}

static bool has_type(const struct sr_session *c, struct sr_str type)
{
    bool pubsub = sr__subscribed(c);

    return sr__is(type, pubsub ? "pubsub" : "normal");
}

static bool known_type(struct sr_call *k, struct sr_str type)
{
    static const char *const names[] = {"normal", "pubsub", "master", "replica",
                                        "slave"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (sr__is(type, names[i]))
            return true;
    sr__reply_error(k, "ERR Unknown client type '%.*s'", (int)type.n, type.p);
    return false;
}

static void cmd_client_list(struct sr_call *k)
{
    struct sr_buf text = {0};
    bool by_type = k->argc == 4 && sr__is(k->argv[2], "type");
    bool by_id = k->argc > 3 && sr__is(k->argv[2], "id");

    if (k->argc > 2 && !by_type && !by_id) {
        sr__reply_syntax(k);
        return;
    }
    if (by_type && !known_type(k, k->argv[3]))
        return;
    for (struct sr_session *c = k->s->sessions; c; c = c->next) {
        bool shown = c->mode != SR_ENDED && !c->is_master && !by_id &&
                     (!by_type || has_type(c, k->argv[3]));
        int64_t wanted;
        for (int i = 3; by_id && i < k->argc && !shown; i++)
            shown = sr__int(k->argv[i], &wanted) && wanted == c->id &&
                    c->mode != SR_ENDED;
        if (!shown)
            continue;
        sr__session_line(&text, c);
        sr__buf_text(&text, "\n");
    }
    sr__reply_str(k, (struct sr_str){text.p, text.n});
    sr__buf_free(&text);
}

/* ---- ending others ----------------------------------------------------- */

struct victims {
    int64_t id; /* 0 = any */
    struct sr_str addr, type;
    const struct sr_user *user;
    bool not_me;
};

static bool is_victim(const struct sr_session *c, const struct victims *v,
                      const struct sr_session *me)
{
    return c->mode != SR_ENDED && !c->is_master && (!v->id || c->id == v->id) &&
           (!v->addr.p || sr__same(v->addr, sr__view(c->addr))) &&
           (!v->type.p || has_type(c, v->type)) &&
           (!v->user || c->user == v->user) && !(v->not_me && c == me);
}

static int64_t kill_all(struct sr_call *k, const struct victims *v)
{
    int64_t killed = 0;

    for (struct sr_session *c = k->s->sessions; c; c = c->next) {
        if (!is_victim(c, v, k->c))
            continue;
        killed++;
        if (c == k->c)
            c->closing = true; /* but first it hears of it */
        else
            sr__session_end(c);
    }
    return killed;
}

/* One pair of words behind CLIENT KILL. */
static bool read_victim(struct sr_call *k, int i, struct victims *v)
{
    struct sr_str word = k->argv[i], to = k->argv[i + 1];

    if (sr__is(word, "id")) {
        if (!sr__int(to, &v->id) || v->id < 1) {
            sr__reply_error(k, "ERR client-id should be greater than 0");
            return false;
        }
    } else if (sr__is(word, "addr")) {
        v->addr = to;
    } else if (sr__is(word, "type")) {
        v->type = to;
        return known_type(k, to);
    } else if (sr__is(word, "user")) {
        v->user = sr__user_find(k->s, to);
        if (!v->user)
            sr__reply_error(k, "ERR No such user '%.*s'", (int)to.n, to.p);
        return v->user;
    } else if (sr__is(word, "skipme") &&
               (sr__is(to, "yes") || sr__is(to, "no"))) {
        v->not_me = sr__is(to, "yes");
    } else {
        sr__reply_syntax(k);
        return false;
    }
    return true;
}

static void cmd_client_kill(struct sr_call *k)
{
    struct victims v = {.not_me = true};

    if (k->argc == 3) {
        v = (struct victims){.addr = k->argv[2]};
        if (kill_all(k, &v))
            sr__reply_ok(k);
        else
            sr__reply_error(k, "ERR No such client");
        return;
    }
    for (int i = 2; i < k->argc; i += 2) {
        if (i + 1 == k->argc) {
            sr__reply_syntax(k);
            return;
        }
        if (!read_victim(k, i, &v))
            return;
    }
    sr__reply_int(k, kill_all(k, &v));
}

/* ---- pausing ----------------------------------------------------------- */

static void cmd_client_pause(struct sr_call *k)
{
    int64_t ms;
    bool writes = k->argc == 4 && sr__is(k->argv[3], "write");

    if (k->argc > 4 ||
        (k->argc == 4 && !writes && !sr__is(k->argv[3], "all"))) {
        sr__reply_error(k, "ERR CLIENT PAUSE mode must be WRITE or ALL");
        return;
    }
    if (!sr__int(k->argv[2], &ms)) {
        sr__reply_error(k, "ERR timeout is not an integer or out of range");
        return;
    }
    if (ms < 0) {
        sr__reply_error(k, "ERR timeout is negative");
        return;
    }
    k->s->pause_until = k->s->now + ms;
    k->s->pause_writes_only = writes;
    sr__reply_ok(k);
}

static void cmd_client_unpause(struct sr_call *k)
{
    k->s->pause_until = 0;
    sr__reply_ok(k);
}

/* ---- tracking ---------------------------------------------------------- */

static bool read_tracking(struct sr_call *k, struct sr_session *want)
{
    for (int i = 3; i < k->argc; i++) {
        if (sr__is(k->argv[i], "redirect") && i + 1 < k->argc) {
            if (!sr__arg_int(k, ++i, &want->redirect))
                return false;
            if (!sr__session_find(k->s, want->redirect)) {
                sr__reply_error(k, "ERR The client ID you want redirect to "
                                   "does not exist");
                return false;
            }
        } else if (sr__is(k->argv[i], "optin")) {
            want->optin = true;
        } else if (sr__is(k->argv[i], "optout")) {
            want->optout = true;
        } else if (sr__is(k->argv[i], "noloop")) {
            want->noloop = true;
        } else {
            sr__reply_syntax(k);
            return false;
        }
    }
    return true;
}

static void cmd_client_tracking(struct sr_call *k)
{
    struct sr_session want = {0}, *c = k->c;

    if (!read_tracking(k, &want))
        return;
    if (sr__is(k->argv[2], "off")) {
        sr__track_leave(c);
    } else if (!sr__is(k->argv[2], "on")) {
        sr__reply_syntax(k);
        return;
    } else if (want.optin && want.optout) {
        sr__reply_error(k, "ERR You can't specify both OPTIN mode and OPTOUT "
                           "mode");
        return;
    } else if (c->tracking &&
               ((want.optin && c->optout) || (want.optout && c->optin))) {
        sr__reply_error(k, "ERR You can't switch OPTIN/OPTOUT mode before "
                           "disabling tracking for this client, and then "
                           "re-enabling it with a different mode.");
        return;
    } else {
        c->tracking = true;
        c->optin = want.optin;
        c->optout = want.optout;
        c->noloop = want.noloop;
        c->redirect = want.redirect;
    }
    sr__reply_ok(k);
}

static void cmd_client_caching(struct sr_call *k)
{
    struct sr_session *c = k->c;
    bool yes = sr__is(k->argv[2], "yes");

    if (!c->tracking || !(c->optin || c->optout)) {
        sr__reply_error(k, "ERR CLIENT CACHING can be called only when the "
                           "client is in tracking mode with OPTIN or OPTOUT "
                           "mode enabled");
        return;
    }
    if (!yes && !sr__is(k->argv[2], "no")) {
        sr__reply_syntax(k);
        return;
    }
    if (yes != c->optin) {
        sr__reply_error(k,
                        "ERR CLIENT CACHING %s is only valid when tracking "
                        "is enabled in %s mode.",
                        yes ? "YES" : "NO", yes ? "OPTIN" : "OPTOUT");
        return;
    }
    c->caching = true;
    sr__reply_ok(k);
}

static void cmd_client_trackinginfo(struct sr_call *k)
{
    const struct sr_session *c = k->c;
    const char *flags[5];
    size_t n = 0;

    flags[n++] = c->tracking ? "on" : "off";
    if (c->optin)
        flags[n++] = "optin";
    if (c->optin && c->caching)
        flags[n++] = "caching-yes";
    if (c->optout)
        flags[n++] = "optout";
    if (c->optout && c->caching)
        flags[n++] = "caching-no";
    if (c->noloop)
        flags[n++] = "noloop";
    sr__reply_array(k, 6);
    sr__reply_text(k, "flags");
    sr__reply_array(k, n);
    for (size_t i = 0; i < n; i++)
        sr__reply_text(k, flags[i]);
    sr__reply_text(k, "redirect");
    sr__reply_int(k, c->tracking ? c->redirect : -1);
    sr__reply_text(k, "prefixes");
    sr__reply_array(k, 0);
}

static void cmd_client_getredir(struct sr_call *k)
{
    sr__reply_int(k, k->c->tracking ? k->c->redirect : -1);
}

#define SELF (SR_NOSCRIPT | SR_IN_LOADING | SR_IN_STALE | SR_SENTINEL)

const struct sr_command sr__client_commands[] = {
    {"client", NULL, -2, SELF | SR_CONTAINER, 0, 0, 0},
    {"client|setname", cmd_client_setname, 3, SELF, 0, 0, 0},
    {"client|getname", cmd_client_getname, 2, SELF, 0, 0, 0},
    {"client|id", cmd_client_id, 2, SELF, 0, 0, 0},
    {"client|info", cmd_client_info, 2, SELF, 0, 0, 0},
    {"client|list", cmd_client_list, -2, SELF | SR_ADMIN, 0, 0, 0},
    {"client|kill", cmd_client_kill, -3, SELF | SR_ADMIN, 0, 0, 0},
    {"client|pause", cmd_client_pause, -3, SELF | SR_ADMIN, 0, 0, 0},
    {"client|unpause", cmd_client_unpause, 2, SELF | SR_ADMIN, 0, 0, 0},
    {"client|tracking", cmd_client_tracking, -3, SELF, 0, 0, 0},
    {"client|caching", cmd_client_caching, 3, SELF, 0, 0, 0},
    {"client|trackinginfo", cmd_client_trackinginfo, 2, SELF, 0, 0, 0},
    {"client|getredir", cmd_client_getredir, 2, SELF, 0, 0, 0},
    {0}};
