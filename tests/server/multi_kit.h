/* SPDX-License-Identifier: MIT
 *
 * multi_kit.h - what the tests of the multi lock share: two servers, three
 * clients, and groups made of words.
 *
 * Words   A member is a letter for its kind (p plain, f fair, r read, w write)
 *         and its name; behind an @ the number of its client, 0 if there is
 *         none. 0 and 1 are clients of srv, 2 is one of srv2. "pa fb wc@2" are
 *         three members on two servers.
 */
#ifndef DIBS_TESTS_MULTI_KIT_H
#define DIBS_TESTS_MULTI_KIT_H

#include "server/kit.h"

#define LONG_MS    600000 /* nothing in a test lasts so long */
#define WORDS_MAX  16
#define CLIENTS    3
#define OWNED(o)   DIBS_LOCK_OPTS(.owner = (o))
#define AT_LEISURE DIBS_LOCK_OPTS(.wait_ms = TS_SOON)

static struct ts_server *srv2;
static long long kit_strange2; /* its connections before the test */

static inline int multi_start(void **state)
{
    srv2 = ts_server_start(NULL);
    return kit_start(state);
}

static inline int multi_stop(void **state)
{
    ts_server_stop(srv2);
    return kit_stop(state);
}

static inline int multi_before(void **state)
{
    ts_ok(srv2, "FLUSHALL");
    kit_strange2 = ts_client_count(srv2);
    return kit_before(state);
}

static inline int multi_after(void **state)
{
    if (kit_clients == 0 && ts_nkeys(srv2) != 0)
        fail_msg("%lld keys are left on the second server", ts_nkeys(srv2));
    if (kit_clients == 0 && !ts_wait_clients(srv2, kit_strange2))
        fail_msg("connections are left on the second server");
    return kit_after(state);
}

#define MULTI_TEST(f)                                                          \
    cmocka_unit_test_setup_teardown(f, multi_before, multi_after)
#define MULTI_RUN(name, tests)                                                 \
    cmocka_run_group_tests_name(name, tests, multi_start, multi_stop)
/* For programs that mostly wait. */
#define MULTI_RUN_PARALLEL(name, tests)                                        \
    TS_RUN_PARALLEL(name, tests, multi_start, multi_stop)

/* ---- clients and groups ------------------------------------------------ */

struct world {
    dibs_client *c[CLIENTS];
};

static inline struct world kit_world(const dibs_client_opts *opts)
{
    struct world w;

    for (int i = 0; i < CLIENTS; i++)
        w.c[i] = kit_open_at(ts_server_url(i == 2 ? srv2 : srv), opts);
    return w;
}

static inline void kit_world_end(struct world *w)
{
    for (int i = 0; i < CLIENTS; i++)
        kit_close(w->c[i]);
}

/* A word, taken apart. */
struct word {
    char kind, name[24];
    int client;
};

static inline size_t kit_words(const char *text, struct word *out)
{
    size_t n = 0;
    int used = 0;

    for (; sscanf(text, " %c%23[^ @]%n", &out[n].kind, out[n].name, &used) == 2;
         n++) {
        assert_true(n + 1 < WORDS_MAX);
        text += used;
        out[n].client = *text == '@' ? text[1] - '0' : 0;
        text += *text == '@' ? 2 : 0;
    }
    return n;
}

static inline dibs_lock *kit_make(dibs_client *c, char kind, const char *name)
{
    dibs_lock *l = NULL;

    FINE(kind == 'p'   ? dibs_lock_new(c, name, &l)
         : kind == 'f' ? dibs_fair_lock_new(c, name, &l)
         : kind == 'r' ? dibs_read_lock_new(c, name, &l)
                       : dibs_write_lock_new(c, name, &l));
    return l;
}

static inline dibs_lock *kit_one(struct world *w, const char *word)
{
    struct word is[WORDS_MAX];

    assert_int_equal(kit_words(word, is), 1);
    return kit_make(w->c[is[0].client], is[0].kind, is[0].name);
}

/* What making a group of these comes to. Its members are freed at once. */
static inline dibs_err kit_group_err(struct world *w, const char *text,
                                     dibs_lock **out)
{
    struct word is[WORDS_MAX];
    dibs_lock *m[WORDS_MAX];
    size_t n = kit_words(text, is);

    for (size_t i = 0; i < n; i++)
        m[i] = kit_make(w->c[is[i].client], is[i].kind, is[i].name);
    dibs_err err = dibs_multi_lock_new(m, n, out);
    for (size_t i = 0; i < n; i++)
        dibs_lock_free(m[i]);
    return err;
}

static inline dibs_lock *kit_group(struct world *w, const char *text)
{
    dibs_lock *g = NULL;

    FINE(kit_group_err(w, text, &g));
    return g;
}

/* ---- looks ------------------------------------------------------------- */

static inline struct ts_server *kit_server(const struct word *word)
{
    return word->client == 2 ? srv2 : srv;
}

/* Every member's key is there, with a TTL, and this owner has it so often. */
static inline void kit_have(struct world *w, const char *text, dibs_owner owner,
                            long long holds)
{
    struct word is[WORDS_MAX];
    size_t n = kit_words(text, is);

    for (size_t i = 0; i < n; i++) {
        dibs_lock *l = kit_make(w->c[is[i].client], is[i].kind, is[i].name);
        char owner_text[DIBS_OWNER_MAX] = "";
        if (dibs_lock_holds(l, owner) != holds)
            fail_msg("%s: %s is held %lld times", text, is[i].name,
                     (long long)dibs_lock_holds(l, owner));
        FINE(dibs_lock_owner_text(l, owner, owner_text, sizeof owner_text));
        char *has = ts_hget(kit_server(&is[i]), is[i].name, owner_text);
        if (!has || atoll(has) != holds)
            fail_msg("%s: the server has %s holds of %s", text,
                     has ? has : "no", is[i].name);
        if (ts_pttl(kit_server(&is[i]), is[i].name) <= 0)
            fail_msg("%s: %s has no TTL", text, is[i].name);
        free(has);
        dibs_lock_free(l);
    }
}

/* So many keys on the servers. */
static inline void kit_keys(const char *where, long long first,
                            long long second)
{
    if (ts_nkeys(srv) != first || ts_nkeys(srv2) != second)
        fail_msg("%s: %lld and %lld keys, not %lld and %lld", where,
                 ts_nkeys(srv), ts_nkeys(srv2), first, second);
}

/* The same, soon: one that gave up leaves a queue, and nobody waits for that.
 */
static inline void kit_keys_soon(const char *where, long long first,
                                 long long second)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while (ts_nkeys(srv) != first || ts_nkeys(srv2) != second)
        if (!ts_wait_step(&w))
            break;
    kit_keys(where, first, second);
}

static inline dibs_member kit_member(dibs_lock *g, size_t i, dibs_owner owner)
{
    dibs_member m = DIBS_MEMBER_INIT;

    FINE(dibs_lock_members(g, i, owner, &m));
    return m;
}

/* A stranger has it, as a kind that is in the way of this member, and forever
 * if ms is 0. */
static inline void kit_block(const struct word *word, long long ms)
{
    bool rw = word->kind == 'r' || word->kind == 'w';

    ts_ok(
        kit_server(word),
        rw ? "HSET %s mode write 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7:write 1"
           : "HSET %s 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7 1",
        word->name);
    ts_ok(kit_server(word), "PEXPIRE %s %lld", word->name, ms ? ms : LONG_MS);
}

/* It goes, and says so. */
static inline void kit_unblock(const struct word *word)
{
    bool rw = word->kind == 'r' || word->kind == 'w';

    ts_ok(kit_server(word), "DEL %s", word->name);
    ts_ok(kit_server(word), "PUBLISH %s:{%s} 0",
          rw ? "redisson_rwlock" : "redisson_lock__channel", word->name);
}

#endif
