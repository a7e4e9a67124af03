/* SPDX-License-Identifier: MIT
 *
 * kit.h - what the fault tests share: a server with the fault proxy before it,
 * clients that remember what they were told, and looks at the server that do
 * not go through the library.
 *
 * Use     One server and one proxy a program, made by kit_up and ended by
 *         kit_down (cmocka's group fixtures). kit_fresh before each test.
 * Time    Leases here are either so long that nothing in a test ends by itself
 *         (KIT_LONG), or as short as the test needs. So when a lock is free
 *         again soon, somebody has freed it.
 * Noise   With $KIT_LOUD set, every event of every client goes to stderr.
 */
#ifndef DIBS_TESTS_KIT_H
#define DIBS_TESTS_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dibs/dibs.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "client/command/script.h"
#include "support/proxy.h"
#include "support/run.h"
#include "support/server.h"
#include "support/util.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Longer than any hang guard. */
#define KIT_LONG ts_ms(120000)

/* Times that a test sits out: a command's that is not answered, a lease that
 * ends. Longer where things are slow, but not by as much as a hang guard. */
int64_t kit_ms(int64_t ms);

extern struct ts_server *kit_srv;
extern struct ts_proxy *kit_px;

int kit_up(void **state);
int kit_down(void **state);
/* No rules, no keys, no clients, full rights; the scripts are loaded. */
int kit_fresh(void **state);
/* The server knows this script, too. */
void kit_load(const struct dibs__script *script);

/* ---- clients ----------------------------------------------------------- */

enum kit_user {
    KIT_FULL, /* may do everything */
    KIT_MEEK  /* may not use CLIENT KILL and CLIENT INFO */
};

/* Zero is the default of every field. */
struct kit_opts {
    enum kit_user user;
    bool direct; /* not through the proxy */
    bool tcp;    /* through the proxy, by TCP */
    bool lazy;
    bool dispatch;      /* callbacks run in dibs_client_dispatch */
    int64_t timeout_ms; /* of a command; 0 = one that will not pass */
    int64_t connect_ms; /* of a connection; 0 = one that will not pass */
    int64_t lease_ms;   /* 0 = KIT_LONG */
    const char *name;   /* user and password, instead of the above */
};

#define KIT_ERRS 32 /* more than there are */

struct kit_client {
    dibs_client *c;
    char label[24]; /* as CLIENT LIST and the proxy's log have it */
    /* What it was told, by kind; and the last text of each kind and error. */
    pthread_mutex_t mu;
    unsigned told[16];            /* mu */
    char text[16][KIT_ERRS][256]; /* mu */
};

struct kit_client *kit_open(const struct kit_opts *o);
/* The same, where opening may fail: NULL, and why in err. */
struct kit_client *kit_open_err(const struct kit_opts *o, dibs_err *err);
/* Closes, which must release everything, and frees. Accepts NULL. */
void kit_close(struct kit_client *k);
/* Frees; whatever it still had to do stays undone. Accepts NULL. */
void kit_drop(struct kit_client *k);

unsigned kit_told(struct kit_client *k, dibs_event_kind kind);
/* Has the last event of the kind about this error this in its text? */
bool kit_heard(struct kit_client *k, dibs_event_kind kind, dibs_err err,
               const char *text);

dibs_lock *kit_lock(struct kit_client *k, const char *name);
/* Sync calls of this thread go straight to a connection from now on, rather
 * than through the I/O thread. Through the proxy only. */
void kit_warm(struct kit_client *k, dibs_lock *l, const char *name);

/* ---- calls ------------------------------------------------------------- */

/* An async call's end. All zero = under way. */
struct kit_end {
    atomic_bool over;
    dibs_err err;
};

void kit_ended(dibs_err err, void *end); /* the callback for it */
/* Until it is over. */
#define kit_wait(end) kit_wait_at((end), __FILE__, __LINE__)
dibs_err kit_wait_at(struct kit_end *end, const char *file, int line);

typedef dibs_err kit_sync_fn(dibs_lock *l, const dibs_lock_opts *o);
typedef dibs_err kit_async_fn(dibs_lock *l, const dibs_lock_opts *o, dibs_cb cb,
                              void *arg);
/* One or the other, to its end. */
dibs_err kit_call(dibs_lock *l, bool is_async, kit_sync_fn *sync,
                  kit_async_fn *async, const dibs_lock_opts *o);

/* The call must end so; what says which. */
#define kit_want(what, err, wanted)                                            \
    kit_want_at((what), (err), (wanted), #err, __FILE__, __LINE__)
void kit_want_at(const char *what, dibs_err err, dibs_err wanted,
                 const char *call, const char *file, int line);

/* on_lost that counts; arg is an atomic_int. */
void kit_lost(const char *name, dibs_owner owner, void *arg);

/* ---- the server's view ------------------------------------------------- */

/* Holds the server has for this owner; 0: none. */
long long kit_holds(dibs_lock *l, dibs_owner owner, const char *name);
/* The key is as our owner's view has it: so many holds, nobody else's, with a
 * TTL. Fails the test otherwise; where says which row. */
void kit_check(const char *where, dibs_lock *l, dibs_owner owner,
               const char *name, long long holds);
/* Waits until the key is gone; fails the test if it stays. */
void kit_gone(const char *where, const char *name);
/* The key goes, and a stranger can have the lock, and gives it back. */
void kit_free_for_all(const char *where, const char *name);
/* Waits until the server has no key at all; fails the test if one stays. */
void kit_no_keys(const char *where);

/* ---- rules ------------------------------------------------------------- */

/* What a request of this script for so many keys, this one the first, has in
 * it, and no other request has: for a rule's contains. free() it. */
char *kit_needle_keys(const struct dibs__script *script, int keys,
                      const char *first);
/* The same for a request with this key alone. */
char *kit_needle(const struct dibs__script *script, const char *name);
/* The rule for these requests; its contains is filled in. Returns its number.
 */
int kit_rule(const struct dibs__script *script, const char *name,
             const struct ts_rule *rule);
/* All rules are over, and what was held back comes after all. */
void kit_relent(void);

/* A name nobody had before in this program. free() it. */
char *kit_name(const char *stem);

#endif
