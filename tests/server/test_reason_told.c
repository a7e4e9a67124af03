/* SPDX-License-Identifier: MIT
 *
 * test_reason_told.c - who is told why: the thread that called, the callback,
 * the one that waits in a line, the one that took several locks at once. And
 * who is not.
 */
#include "server/reason_kit.h"

/* Where the code says it all there is no text, and not an older one either. */
static void test_reason_told_none(void **state)
{
    dibs_client *c = kit_open(NULL), *other = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l"), *k = kit_lock(other, "l");

    (void)state;
    WANT(dibs_lock_acquire(NULL, NULL), DIBS_ERR_INVALID);
    assert_string_equal(dibs_error_text(), "lock is NULL");
    FINE(dibs_lock_acquire(l, NULL));
    assert_string_equal(dibs_error_text(), "lock is NULL");
    WANT(dibs_lock_try(k, NULL), DIBS_ERR_BUSY);
    assert_string_equal(dibs_error_text(), "");
    WANT(dibs_lock_acquire(NULL, NULL), DIBS_ERR_INVALID);
    WANT(dibs_lock_acquire(k, DIBS_LOCK_OPTS(.wait_ms = 20)), DIBS_ERR_TIMEOUT);
    assert_string_equal(dibs_error_text(), "");
    WANT(dibs_lock_acquire(NULL, NULL), DIBS_ERR_INVALID);
    WANT(dibs_lock_release(k, NULL), DIBS_ERR_NOT_OWNER);
    assert_string_equal(dibs_error_text(), "");
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    dibs_lock_free(k);
    kit_close(c);
    kit_close(other);
}

/* ---- in a callback ----------------------------------------------------- */

static void read_info(dibs_err err, const dibs_lock_info *info, void *arg)
{
    (void)info;
    read_text(err, arg);
}

static void read_force(dibs_err err, bool was, void *arg)
{
    (void)was;
    read_text(err, arg);
}

static void heard_text(struct read_text *r, dibs_err want, const char *text)
{
    WANT(kit_answer(&r->told), want);
    if (strncmp(r->text, text, strlen(text)) != 0 || (!*text && r->text[0]))
        fail_msg("\"%s\", not \"%s\"", r->text, text);
    memset(r, 0, sizeof *r);
}

static void test_reason_told_in_callbacks(void **state)
{
    char *wrong = ts_text("%s: %s", ts_server_url(srv), WRONGTYPE);
    char *group = ts_text("'l': %s: %s", ts_server_url(srv), WRONGTYPE);
    struct read_text r = {.text = ""};
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l"), *free_one = kit_lock(c, "m"), *both;
    dibs_lock *const two[] = {l, free_one};

    (void)state;
    FINE(dibs_multi_lock_new(two, 2, &both));
    ts_ok(srv, "SET l precious");
    FINE(dibs_lock_acquire_async(l, NULL, read_text, &r));
    heard_text(&r, DIBS_ERR_WRONGTYPE, wrong);
    /* The one before is not that of this one. */
    FINE(dibs_lock_release_async(l, NULL, read_text, &r));
    heard_text(&r, DIBS_ERR_NOT_OWNER, "");
    FINE(dibs_lock_info_get_async(l, read_info, &r));
    heard_text(&r, DIBS_ERR_WRONGTYPE, wrong);
    FINE(dibs_lock_force_release_async(l, read_force, &r));
    heard_text(&r, DIBS_ERR_WRONGTYPE, wrong);
    FINE(dibs_lock_acquire_async(both, NULL, read_text, &r));
    heard_text(&r, DIBS_ERR_WRONGTYPE, group);
    ts_ok(srv, "DEL l");
    dibs_lock_free(both);
    dibs_lock_free(free_one);
    dibs_lock_free(l);
    kit_close(c);
    free(wrong);
    free(group);
}

/* ---- groups ------------------------------------------------------------ */

static void test_reason_told_group(void **state)
{
    struct ts_server *s = ts_server_start(NULL);
    dibs_client *c = kit_open(NULL);
    dibs_client *far = kit_open_at(ts_server_tcp_url(s), NULL);
    dibs_lock *a = kit_lock(c, "a"), *b = kit_lock(far, "b"), *both, *most;
    dibs_lock *const two[] = {a, b}, *const alone[] = {b};
    char *text = ts_text("'b': %s: Connection refused", ts_server_tcp_url(s));

    (void)state;
    FINE(dibs_multi_lock_new(two, 2, &both));
    FINE(dibs_quorum_lock_new(alone, 1, &most));
    FINE(dibs_lock_acquire(b, DIBS_LOCK_OPTS(.owner = 77)));
    WANT(dibs_lock_try(both, NULL), DIBS_ERR_BUSY);
    assert_int_equal(strncmp(dibs_error_text(), "'b' at 127.0.0.1:", 17), 0);
    assert_non_null(strstr(dibs_error_text(), dibs_strerror(DIBS_ERR_BUSY)));
    WANT(dibs_lock_acquire(both, DIBS_LOCK_OPTS(.wait_ms = 20)),
         DIBS_ERR_TIMEOUT);
    assert_int_equal(strncmp(dibs_error_text(), "'b' at 127.0.0.1:", 17), 0);
    FINE(dibs_lock_release(b, DIBS_LOCK_OPTS(.owner = 77)));
    ts_server_kill(s);
    /* The connection is known to be gone when a call has found that out. */
    TS_WAIT(dibs_lock_try(b, NULL) == DIBS_ERR_CONN);
    WANT(dibs_lock_try(both, NULL), DIBS_ERR_CONN);
    assert_string_equal(dibs_error_text(), text);
    WANT(dibs_lock_try(most, DIBS_LOCK_OPTS(.member_ms = TS_SOON)),
         DIBS_ERR_CONN);
    assert_string_equal(dibs_error_text(), text);
    dibs_lock_free(both);
    dibs_lock_free(most);
    dibs_lock_free(a);
    dibs_lock_free(b);
    dibs_client_free(far);
    kit_clients--;
    kit_close(c);
    free(text);
    ts_server_stop(s);
}

/* ---- waiting, closing -------------------------------------------------- */

/* Two wait, and only the first of them asks; the other hears why, too. */
static void test_reason_told_in_line(void **state)
{
    struct ts_server *s = ts_server_start(NULL);
    char *text = ts_text("%s: Connection refused", ts_server_tcp_url(s));
    dibs_client *c = kit_open_at(ts_server_tcp_url(s), NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct read_text first = {.text = ""}, second = {.text = ""};

    (void)state;
    ts_ok(s, "HSET l 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1");
    FINE(dibs_lock_acquire_async(
        l, DIBS_LOCK_OPTS(.owner = 7, .wait_ms = ts_ms(3000)), read_text,
        &first));
    FINE(dibs_lock_acquire_async(
        l, DIBS_LOCK_OPTS(.owner = 8, .wait_ms = ts_ms(2700)), read_text,
        &second));
    assert_true(ts_wait_numsub(s, "redisson_lock__channel:{l}", 1));
    ts_server_kill(s);
    dibs_err err = kit_answer(&second.told); /* which never asked */
    if (err != DIBS_ERR_TIMEOUT)
        WANT(err, DIBS_ERR_CONN);
    assert_string_equal(second.text, text);
    err = kit_answer(&first.told);
    if (err != DIBS_ERR_TIMEOUT && err != DIBS_ERR_CONN)
        WANT(err, DIBS_ERR_UNKNOWN); /* it was asking when the server went */
    assert_string_equal(first.text, text);
    dibs_lock_free(l);
    dibs_client_free(c);
    kit_clients--;
    free(text);
    ts_server_stop(s);
}

/* What could not be given back, the close says. */
static void test_reason_told_close(void **state)
{
    struct ts_server *s = ts_server_start(NULL);
    dibs_client *c = kit_open_at(ts_server_tcp_url(s), NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    ts_server_kill(s);
    ENDS(dibs_client_close(c, HASTY_MS), DIBS_ERR_UNKNOWN,
         "not every release was confirmed in time; last error",
         ts_server_tcp_url(s));
    dibs_lock_free(l);
    dibs_client_free(c);
    kit_clients--;
    ts_server_stop(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_reason_told_none),
        KIT_TEST(test_reason_told_in_callbacks),
        KIT_TEST(test_reason_told_group),
        KIT_TEST(test_reason_told_in_line),
        KIT_TEST(test_reason_told_close),
    };
    return KIT_RUN("server.reason_told", tests);
}
