/* SPDX-License-Identifier: MIT
 *
 * proxy.h - between a client and its server, and up to no good.
 *
 * The proxy understands the protocol: it knows where requests and replies end
 * and which belong together, so a test can say "lose the reply of the second
 * EVALSHA that has this in it" and nothing else goes wrong. It serves clients
 * on a Unix socket and a TCP port of its own and speaks to the server through
 * the server's Unix socket, one connection for each of its clients.
 *
 * Threads    Any function, from any thread. The proxy has a thread of its own.
 * Order      What concerns one request happens when all before it on the same
 *            connection has been answered; the rest of the world is left alone.
 *            Where a rule ends a connection, nothing that came behind the
 *            request it was for is passed on.
 * A client   that closes its end ends nothing the proxy has still to deliver:
 *            what is held back runs at the server when it is let go, and a
 *            request on its way is finished. Only then the server sees the end.
 * fork       A child has no proxy; it may connect to its parent's.
 *
 * RESP2 only, and no MONITOR, CLIENT REPLY or UNSUBSCRIBE of everything by a
 * client that has patterns too: then the proxy loses count.
 */
#ifndef DIBS_TESTS_PROXY_H
#define DIBS_TESTS_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "support/server.h"

struct ts_proxy;

struct ts_proxy *ts_proxy_start(struct ts_server *s);
/* Ends all connections and the thread. Stop it before its server. Accepts
 * NULL. */
void ts_proxy_stop(struct ts_proxy *p);

const char *ts_proxy_url(const struct ts_proxy *p);     /* unix:///... */
const char *ts_proxy_tcp_url(const struct ts_proxy *p); /* redis://... */
const char *ts_proxy_socket(const struct ts_proxy *p);
int ts_proxy_port(const struct ts_proxy *p);

/* ---- rules ------------------------------------------------------------- */

enum ts_action {
    TS_PASS = 0,         /* nothing; for counting and waiting */
    TS_CLOSE_BEFORE,     /* close, request not passed on: not executed */
    TS_CUT_REQUEST_AT,   /* pass on `at` bytes of it, close: not executed */
    TS_HOLD_REQUEST,     /* keep it, and all behind it, until released */
    TS_ANSWER,           /* answer `text`, not passed on: not executed */
    TS_DROP_REPLY_CLOSE, /* executed; close instead of the reply */
    TS_SWALLOW_REPLY,    /* executed; no reply, connection stays */
    TS_HOLD_REPLY,       /* executed; reply, and all behind it, kept until
                            released */
    TS_DELAY_REPLY,      /* the same for `ms` */
    TS_CUT_REPLY_AT,     /* executed; `at` bytes of the reply, then close */
    TS_REWRITE_REPLY,    /* executed; `text` instead of the reply */
    TS_DUPLICATE_REPLY,  /* executed; the reply, and again after `ms` */
    TS_DRIP,             /* executed; a byte of the reply every `ms` */
    TS_CORRUPT,          /* executed; byte `at` of the reply with `bits`
                            turned over (0 = all); `at` wraps round */
    TS_SWALLOW_MESSAGE   /* not a request but a published message on its way
                            to a subscriber: it is lost */
};

/* Zero is the default of every field. Strings are copied. */
struct ts_rule {
    enum ts_action action;
    const char *match;    /* the command, as a shell pattern, in any case:
                             "EVAL*"; NULL = any */
    const char *contains; /* occurs in the request (or message): a script's
                             SHA, a key, an owner; NULL = any */
    unsigned skip;        /* leave the first so many alone */
    unsigned count;       /* then act so often; 0 = always */
    size_t at;
    int64_t ms;
    const char *text;
    size_t text_len; /* 0 = up to text's NUL */
    bool bare;       /* text as it is: it does not have the number of the call
                        of a script, which is put into it else */
    unsigned char bits;
    bool rst; /* where the action closes: by a reset, not by an end. TCP only;
                 on a Unix socket an end is all there is */
};

/* The first rule that fits is the one. Returns its number. */
int ts_proxy_rule(struct ts_proxy *p, const struct ts_rule *rule);
/* The rule acts no more; what it has begun goes on. 0 = all rules. */
void ts_proxy_unrule(struct ts_proxy *p, int id);
/* Lets go all that is held, in both directions. Rules stay; what one that acts
 * no more has begun to hold, but has no reply yet, it will not hold. */
void ts_proxy_release(struct ts_proxy *p);

/* hits: requests the rule acted on. executed: how many of them the server
 * answered. done: how many of them are over: the client has its reply, or the
 * connection is closed, or a held one has run at the server, or cannot any
 * more because its connection is gone. */
unsigned ts_rule_hits(struct ts_proxy *p, int id);
unsigned ts_rule_executed(struct ts_proxy *p, int id);
unsigned ts_rule_done(struct ts_proxy *p, int id);
/* Until it is at least n. False: not within timeout_ms. */
bool ts_rule_wait(struct ts_proxy *p, int id, unsigned hits,
                  int64_t timeout_ms);
bool ts_rule_wait_done(struct ts_proxy *p, int id, unsigned done,
                       int64_t timeout_ms);

/* ---- the whole proxy --------------------------------------------------- */

/* Nothing passes to the server, or from it, on any connection; nobody is told.
 * What was sent meanwhile passes when it ends. */
void ts_proxy_blackhole(struct ts_proxy *p, bool to_server, bool to_client);
/* New connections are refused; existing ones stay. */
void ts_proxy_refuse(struct ts_proxy *p, bool refuse);
/* Every byte is sent on its own, in both directions. */
void ts_proxy_bytewise(struct ts_proxy *p, bool bytewise);
/* Ends all connections now, held or not. Returns when it is done. */
void ts_proxy_kill_all(struct ts_proxy *p, bool rst);
/* As if new: no rules, nothing held, no blackhole, no refusing, no counts.
 * Connections stay. Numbers of rules are not used again. */
void ts_proxy_reset(struct ts_proxy *p);

/* ---- what it has seen -------------------------------------------------- */

unsigned ts_proxy_accepted(struct ts_proxy *p); /* connections ever */
unsigned ts_proxy_open(struct ts_proxy *p);     /* connections now, those whose
                                                   client is gone too */
/* Requests passed on to the server; a shell pattern, NULL = all. */
unsigned ts_proxy_requests(struct ts_proxy *p, const char *command);
bool ts_proxy_wait_requests(struct ts_proxy *p, const char *command, unsigned n,
                            int64_t timeout_ms);
/* Messages that subscribers were sent, swallowed ones left out. */
unsigned ts_proxy_messages(struct ts_proxy *p);

/* Every request as it was seen, one line each: ms, number of the connection,
 * then the command and its first arguments, long ones cut. How many lines have
 * the text in them (NULL = all); a copy of the nth of these (from 0), to be
 * freed, or NULL; all of it. */
unsigned ts_proxy_logged(struct ts_proxy *p, const char *text);
char *ts_proxy_log_line(struct ts_proxy *p, const char *text, unsigned nth);
void ts_proxy_log_print(struct ts_proxy *p, FILE *to);

#endif
