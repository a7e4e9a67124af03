/* SPDX-License-Identifier: MIT
 *
 * fault_rights.c - rights that are missing, and keys that are no locks.
 *
 * A script is not a transaction: what it wrote before it was refused something
 * stays. So whatever right is missing, no key may be left without a TTL, the
 * caller is told AUTH, the server's own words reach the event callback, and
 * what can be done without that right is done.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/kit.h"

#include <stdio.h>
#include <string.h>

#define LEASE_MS kit_ms(2400)

static void want(const char *where, const char *what, dibs_err err,
                 dibs_err wanted)
{
    if (err != wanted)
        fail_msg("%s: %s: %s", where, what, dibs_strerror(err));
}

/* A user with all rights, and then these. */
static void user_may(const char *rights)
{
    char *copy =
        ts_text("ACL SETUSER some reset on >pass ~* &* +@all %s", rights);

    ts_ok(kit_srv, copy);
    free(copy);
}

/* Later: it may do this, or not, from now on. */
static void user_change(const char *rights)
{
    char *copy = ts_text("ACL SETUSER some %s", rights);

    ts_ok(kit_srv, copy);
    free(copy);
}

/* Nothing is locked forever. */
static void no_key_without_ttl(const char *where, const char *name)
{
    if (ts_pttl(kit_srv, name) == -1)
        fail_msg("%s: '%s' has no TTL", where, name);
}

/* ---- a right that was never there -------------------------------------- */

struct row {
    const char *rights;
    dibs_err taking, giving;
    const char *text; /* of the event: the command; NULL: there is none */
};

static const struct row rows[] = {
    {"-evalsha", DIBS_ERR_AUTH, DIBS_ERR_NOT_OWNER, "'evalsha'"},
    {"resetkeys ~other:*", DIBS_ERR_AUTH, DIBS_ERR_NOT_OWNER, "NOPERM"},
    {"-pttl", DIBS_ERR_AUTH, DIBS_ERR_NOT_OWNER, "pttl"},
    {"-hset", DIBS_ERR_AUTH, DIBS_ERR_NOT_OWNER, "hset"},
    {"-pexpire", DIBS_ERR_AUTH, DIBS_ERR_NOT_OWNER, "pexpire"},
    {"-del", DIBS_OK, DIBS_OK, NULL},
    {"-hdel", DIBS_OK, DIBS_OK, NULL},
    {"-del -hdel", DIBS_OK, DIBS_ERR_AUTH, "del"},
    {"-hlen -hgetall -hscan", DIBS_OK, DIBS_OK, NULL},
    {"-publish", DIBS_OK, DIBS_OK, NULL},
    {"resetchannels", DIBS_OK, DIBS_OK, NULL},
    {"-client", DIBS_OK, DIBS_OK, NULL},
};

static void check_row(const struct row *row)
{
    user_may(row->rights);
    struct kit_client *k =
        kit_open(&(struct kit_opts){.name = "some", .lease_ms = LEASE_MS});
    char *name = kit_name("right");
    dibs_lock *l = kit_lock(k, name);

    want(row->rights, "trying", dibs_lock_try(l, NULL), row->taking);
    no_key_without_ttl(row->rights, name);
    if (row->taking != DIBS_OK) {
        want(row->rights, "taking", dibs_lock_acquire(l, NULL), row->taking);
        no_key_without_ttl(row->rights, name);
        if (ts_exists(kit_srv, name))
            fail_msg("%s: refused, and a key is there", row->rights);
    }
    want(row->rights, "giving back", dibs_lock_release(l, NULL), row->giving);
    assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
    if (row->text)
        TS_WAIT(kit_heard(k, DIBS_EVENT_ERROR, DIBS_ERR_AUTH, row->text));
    kit_free_for_all(row->rights, name); /* at the latest with its lease */
    dibs_lock_free(l);
    kit_drop(k);
    free(name);
}

static void test_missing_rights(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        check_row(&rows[i]);
}

/* The text of a script is needed when the server does not know it, and sending
 * it needs another right. */
static void test_missing_eval(void **state)
{
    (void)state;
    user_may("-eval");
    struct kit_client *k = kit_open(&(struct kit_opts){.name = "some"});
    dibs_lock *l = kit_lock(k, "eval");
    want("-eval", "taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    want("-eval", "giving back", dibs_lock_release(l, NULL), DIBS_OK);
    ts_ok(kit_srv, "SCRIPT FLUSH");
    want("-eval", "taking", dibs_lock_acquire(l, NULL), DIBS_ERR_AUTH);
    TS_WAIT(kit_heard(k, DIBS_EVENT_ERROR, DIBS_ERR_AUTH, "NOPERM"));
    dibs_lock_free(l);
    kit_close(k);
}

/* A right to the locks and to nothing else is enough to take one. Then it must
 * be enough to give it back. */
static void test_right_to_the_key_alone(void **state)
{
    (void)state;
    user_may("resetkeys ~mine:*");
    struct kit_client *k = kit_open(&(struct kit_opts){.name = "some"});
    dibs_lock *l = kit_lock(k, "mine:1");
    bool was = false;
    want("key alone", "taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    want("key alone", "taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    want("key alone", "giving back", dibs_lock_release(l, NULL), DIBS_OK);
    want("key alone", "giving back", dibs_lock_release(l, NULL), DIBS_OK);
    kit_gone("key alone", "mine:1");
    want("key alone", "taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    want("key alone", "forcing", dibs_lock_force_release(l, &was), DIBS_OK);
    assert_true(was);
    want("key alone", "giving back", dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(k);
}

/* ---- a right that goes away -------------------------------------------- */

/* The right to renew goes while a lock is held: what was held stays held as
 * long as its lease, a re-entry is refused and changes nothing, and it can be
 * given back. */
static void test_renewal_forbidden(void **state)
{
    (void)state;
    user_may("");
    struct kit_client *k =
        kit_open(&(struct kit_opts){.name = "some", .lease_ms = LEASE_MS});
    dibs_lock *l = kit_lock(k, "renew");
    atomic_int lost = 0;
    const dibs_lock_opts *o = DIBS_LOCK_OPTS(.on_lost = kit_lost, .arg = &lost);

    want("-pexpire", "taking", dibs_lock_acquire(l, o), DIBS_OK);
    user_change("-pexpire");
    want("-pexpire", "once more",
         dibs_lock_try(l, DIBS_LOCK_OPTS(.lease_ms = KIT_LONG)), DIBS_ERR_AUTH);
    kit_check("-pexpire", l, 0, "renew", 1);
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_SUSPECT);
    user_change("+pexpire");
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_HELD);
    user_change("-pexpire");
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_SUSPECT);
    want("-pexpire", "giving back", dibs_lock_release(l, NULL), DIBS_OK);
    kit_gone("-pexpire", "renew");
    assert_int_equal(atomic_load(&lost), 0);

    user_change("+pexpire");
    want("-evalsha", "taking", dibs_lock_acquire(l, o), DIBS_OK);
    user_change("-evalsha -eval");
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    TS_WAIT(atomic_load(&lost) == 1);
    want("-evalsha", "giving back", dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    kit_free_for_all("-evalsha", "renew");
    dibs_lock_free(l);
    kit_drop(k);
}

/* A hand-over renews, and may not. The lock must not stay with anybody. */
static void test_handover_forbidden(void **state)
{
    struct kit_end end = {.err = DIBS_OK};

    (void)state;
    user_may("");
    struct kit_client *k = kit_open(&(struct kit_opts){.name = "some"});
    dibs_lock *l = kit_lock(k, "hand");
    dibs_owner next_owner = dibs_owner_new(k->c);
    want("-pexpire", "taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    want("-pexpire", "lining up",
         dibs_lock_acquire_async(
             l, DIBS_LOCK_OPTS(.owner = next_owner, .lease_ms = 2 * KIT_LONG),
             kit_ended, &end),
         DIBS_OK);
    user_change("-pexpire");
    dibs_err err = dibs_lock_release(l, NULL);
    if (err != DIBS_OK && err != DIBS_ERR_AUTH)
        fail_msg("giving back: %s", dibs_strerror(err));
    assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
    want("-pexpire", "inheriting", kit_wait(&end), DIBS_ERR_AUTH);
    kit_free_for_all("-pexpire", "hand");
    dibs_lock_free(l);
    kit_close(k);
}

/* The password is changed; connections that are there work on, new ones are
 * refused, and that is an error at once. */
static void test_password_changed(void **state)
{
    (void)state;
    user_may("");
    struct kit_client *k = kit_open(&(struct kit_opts){.name = "some"});
    dibs_lock *l = kit_lock(k, "pass");
    want("password", "taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    user_change("resetpass >other");
    want("password", "once more", dibs_lock_acquire(l, NULL), DIBS_OK);
    want("password", "giving back", dibs_lock_release(l, NULL), DIBS_OK);
    ts_proxy_kill_all(kit_px, false);
    want("password", "once more", dibs_lock_try(l, NULL), DIBS_ERR_AUTH);
    TS_WAIT(kit_heard(k, DIBS_EVENT_DISCONNECTED, DIBS_ERR_AUTH, "WRONGPASS"));
    user_change("resetpass >pass");
    struct ts_wait w = ts_wait_begin(TS_SOON);
    while (dibs_lock_try(l, NULL) != DIBS_OK)
        if (!ts_wait_step(&w))
            fail_msg("never works again");
    kit_check("password", l, 0, "pass", 2);
    want("password", "giving back", dibs_lock_release(l, NULL), DIBS_OK);
    want("password", "giving back", dibs_lock_release(l, NULL), DIBS_OK);
    kit_gone("password", "pass");
    dibs_lock_free(l);
    kit_close(k);
}

/* ---- keys that are no locks -------------------------------------------- */

static void test_wrong_type(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = kit_lock(k, "text");
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    (void)state;
    ts_ok(kit_srv, "SET text precious");
    want("text", "trying", dibs_lock_try(l, NULL), DIBS_ERR_WRONGTYPE);
    want("text", "taking", dibs_lock_acquire(l, NULL), DIBS_ERR_WRONGTYPE);
    want("text", "looking", dibs_lock_info_get(l, &info), DIBS_ERR_WRONGTYPE);
    want("text", "forcing", dibs_lock_force_release(l, NULL),
         DIBS_ERR_WRONGTYPE);
    want("text", "giving back", dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    TS_WAIT(kit_heard(k, DIBS_EVENT_ERROR, DIBS_ERR_WRONGTYPE,
                      dibs_strerror(DIBS_ERR_WRONGTYPE)));
    dibs_lock_free(l);
    kit_close(k);
    char *text = ts_str(kit_srv, "GET text");
    assert_string_equal(text, "precious");
    free(text);
}

/* One key of many turns into something else. All others are renewed as if
 * nothing had happened. */
static void test_wrong_type_among_many(void **state)
{
    enum { N = 5, BAD = 2 };
    struct kit_client *k =
        kit_open(&(struct kit_opts){.direct = true, .lease_ms = LEASE_MS});
    dibs_lock *l[N];
    atomic_int lost[N];
    char name[16];

    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "k%d", i);
        l[i] = kit_lock(k, name);
        atomic_init(&lost[i], 0);
        want("many", "taking",
             dibs_lock_acquire(
                 l[i], DIBS_LOCK_OPTS(.on_lost = kit_lost, .arg = &lost[i])),
             DIBS_OK);
    }
    ts_ok(kit_srv, "DEL k%d", BAD);
    ts_ok(kit_srv, "SET k%d precious", BAD);
    TS_WAIT(dibs_lock_state(l[BAD], 0) == DIBS_LOST);
    TS_WAIT(atomic_load(&lost[BAD]) == 1);
    long long renewals = ts_command_calls(kit_srv, "pexpire");
    TS_WAIT(ts_command_calls(kit_srv, "pexpire") >= renewals + 2 * N);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "k%d", i);
        if (i != BAD)
            kit_check(name, l[i], 0, name, 1);
        want(name, "giving back", dibs_lock_release(l[i], NULL),
             i == BAD ? DIBS_ERR_LOST : DIBS_OK);
        assert_int_equal(atomic_load(&lost[i]), i == BAD);
        dibs_lock_free(l[i]);
    }
    char *text = ts_str(kit_srv, "GET k%d", BAD);
    assert_string_equal(text, "precious");
    free(text);
    kit_drop(k);
    assert_int_equal(ts_nkeys(kit_srv), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_missing_rights, kit_fresh),
        cmocka_unit_test_setup(test_missing_eval, kit_fresh),
        cmocka_unit_test_setup(test_right_to_the_key_alone, kit_fresh),
        cmocka_unit_test_setup(test_renewal_forbidden, kit_fresh),
        cmocka_unit_test_setup(test_handover_forbidden, kit_fresh),
        cmocka_unit_test_setup(test_password_changed, kit_fresh),
        cmocka_unit_test_setup(test_wrong_type, kit_fresh),
        cmocka_unit_test_setup(test_wrong_type_among_many, kit_fresh),
    };

    return TS_RUN_PARALLEL("fault.rights", tests, kit_up, kit_down);
}
