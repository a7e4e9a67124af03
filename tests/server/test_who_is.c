/* SPDX-License-Identifier: MIT
 *
 * test_who_is.c - who an owner is, as the names of connections tell it.
 */
#include "server/kit.h"

#include <unistd.h>

struct answer {
    size_t calls;
    size_t stop; /* after so many; 0 = never */
    bool known[8];
    char program[8][80], host[8][80];
    int64_t pid[8];
};

static bool note_who(size_t index, const dibs_who *who, void *arg)
{
    struct answer *a = arg;

    a->known[index] = true;
    snprintf(a->program[index], sizeof a->program[0], "%s", who->program);
    snprintf(a->host[index], sizeof a->host[0], "%s", who->host);
    a->pid[index] = who->pid;
    a->calls++;
    return a->calls != a->stop;
}

static char *owner_of(dibs_client *c, int number)
{
    return ts_text("%s:%d", dibs_client_id(c), number);
}

static void test_who_is_told(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(DIBS_CLIENT_OPTS(.client_name = "reports-7"));
    char *own = owner_of(c, 1), *other = owner_of(d, 1), *more = owner_of(d, 9);
    const char *const owners[] = {
        other, "00000000-0000-4000-8000-000000000001:1", more, own, "mode", ""};
    struct answer a = {.calls = 0};
    char host[65] = "";

    (void)state;
    ts_reset_stats(srv);
    FINE(dibs_client_who(c, owners, COUNT(owners), note_who, &a));
    /* Redis 6 counts all forms of CLIENT together. */
    if (ts_command_calls(srv, "client") == 0)
        assert_int_equal(ts_command_calls(srv, "client|list"), 1);
    assert_int_equal(a.calls, 3);
    assert_true(a.known[0] && a.known[2] && a.known[3]);
    assert_string_equal(a.program[0], "reports-7");
    assert_string_equal(a.program[2], "reports-7");
    assert_string_equal(a.program[3], "test_who_is");
    gethostname(host, sizeof host - 1);
    assert_string_equal(a.host[0], host);
    for (int i = 0; i < 4; i++)
        assert_int_equal(a.pid[i], i == 1 ? 0 : getpid());

    a = (struct answer){.stop = 1};
    FINE(dibs_client_who(c, owners, COUNT(owners), note_who, &a));
    assert_int_equal(a.calls, 1);
    FINE(dibs_client_who(c, NULL, 0, note_who, &a));
    WANT(dibs_client_who(c, NULL, 1, note_who, &a), DIBS_ERR_INVALID);
    WANT(dibs_client_who(c, owners, 1, NULL, &a), DIBS_ERR_INVALID);
    WANT(dibs_client_who(NULL, owners, 1, note_who, &a), DIBS_ERR_INVALID);
    kit_close(d);
    a = (struct answer){.calls = 0};
    TS_WAIT(
        (a.calls = 0, dibs_client_who(c, owners, 1, note_who, &a) == DIBS_OK &&
                          a.calls == 0));
    kit_close(c);
    free(own);
    free(other);
    free(more);
}

/* A connection may be called anything; nothing of it can hurt. */
static void test_who_claims(void **state)
{
    static const char id[] = "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b";
    dibs_client *c = kit_open(NULL);
    char *owner = ts_text("%s:1", id), *set;
    const char *const owners[] = {owner};
    struct answer a = {.calls = 0};

    (void)state;
    set = ts_text("dibs/%s/$(reboot)/1/%%s%%n;id", id);
    ts_ok(srv, "CLIENT SETNAME %s", set);
    FINE(dibs_client_who(c, owners, 1, note_who, &a));
    assert_string_equal(a.host[0], "$(reboot)");
    assert_string_equal(a.program[0], "%s%n;id");
    free(set);
    a = (struct answer){.calls = 0};
    set = ts_text("dibs/%s/broken", id);
    ts_ok(srv, "CLIENT SETNAME %s", set);
    FINE(dibs_client_who(c, owners, 1, note_who, &a));
    assert_int_equal(a.calls, 0);
    free(set);
    ts_ok(srv, "CLIENT SETNAME x");
    free(owner);
    kit_close(c);
}

struct who_told {
    atomic_int calls;
    dibs_err err;
    bool known;
    char program[80];
};

static void note_told(dibs_err err, const dibs_who *who, void *arg)
{
    struct who_told *t = arg;

    t->err = err;
    t->known = who != NULL;
    snprintf(t->program, sizeof t->program, "%s", who ? who->program : "");
    atomic_fetch_add(&t->calls, 1);
}

static void test_who_async(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.client_name = "me"));
    dibs_lock *l = kit_lock(c, "a");
    char *own = owner_of(c, 1);
    struct who_told t = {.known = false};

    (void)state;
    FINE(dibs_lock_who_async(l, own, note_told, &t));
    TS_WAIT(atomic_load(&t.calls) == 1);
    FINE(t.err);
    assert_true(t.known);
    assert_string_equal(t.program, "me");
    FINE(dibs_lock_who_async(l, "somebody", note_told, &t));
    TS_WAIT(atomic_load(&t.calls) == 2);
    FINE(t.err);
    assert_false(t.known);
    WANT(dibs_lock_who_async(l, NULL, note_told, &t), DIBS_ERR_INVALID);
    WANT(dibs_lock_who_async(l, own, NULL, &t), DIBS_ERR_INVALID);
    WANT(dibs_lock_who_async(NULL, own, note_told, &t), DIBS_ERR_INVALID);
    dibs_lock_free(l);
    kit_close(c);
    free(own);
}

/* Without the right, nobody is known, and no event complains. */
static atomic_int events;

static void note_event(const dibs_event *ev, void *arg)
{
    (void)arg;
    events += ev->err == DIBS_ERR_AUTH;
}

static void test_who_refused(void **state)
{
    char *url = ts_text("redis://shy:pass@127.0.0.1:%d", ts_server_port(srv));
    struct answer a = {.calls = 0};
    struct who_told t = {.known = true};

    (void)state;
    ts_ok(srv, "ACL SETUSER shy reset on >pass ~* &* +@all -client "
               "+client|setname +client|info");
    dibs_client *c = kit_open_at(url, DIBS_CLIENT_OPTS(.on_event = note_event));
    dibs_lock *l = kit_lock(c, "a");
    char *own = owner_of(c, 1);
    const char *const owners[] = {own};
    WANT(dibs_client_who(c, owners, 1, note_who, &a), DIBS_ERR_AUTH);
    assert_int_equal(a.calls, 0);
    FINE(dibs_lock_who_async(l, own, note_told, &t));
    TS_WAIT(atomic_load(&t.calls) == 1);
    WANT(t.err, DIBS_ERR_AUTH);
    assert_false(t.known);
    dibs_lock_free(l);
    kit_close(c);
    assert_int_equal(events, 0);
    ts_ok(srv, "ACL DELUSER shy");
    free(own);
    free(url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_who_is_told),
        KIT_TEST(test_who_claims),
        KIT_TEST(test_who_async),
        KIT_TEST(test_who_refused),
    };

    return KIT_RUN("who_is", tests);
}
