/* SPDX-License-Identifier: MIT
 *
 * fault_track.c - a holder that the server does not tell of changes: for want
 * of a right, of room, of honesty, or of a connection.
 *
 * Two things must hold. Without messages a loss is found by the next renewal,
 * as if there were none: leases here are short then. And where messages were
 * missed for a while, all is looked at once they come again: leases are long
 * then, so that no renewal is due.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/kit.h"

#include <string.h>

#define SHORT_MS kit_ms(3600) /* renewed after more than a second */
#define MANY     20
#define WORD     "CLIENT TRACKING is refused"

struct scene {
    struct kit_client *k;
    dibs_lock *l;
    char *name;
    atomic_int lost;
};

static void begin(struct scene *sc, const struct kit_opts *o)
{
    memset(sc, 0, sizeof *sc);
    sc->k = kit_open(o);
    sc->name = kit_name("track");
    sc->l = kit_lock(sc->k, sc->name);
    kit_want("taking",
             dibs_lock_acquire(
                 sc->l, DIBS_LOCK_OPTS(.on_lost = kit_lost, .arg = &sc->lost)),
             DIBS_OK);
}

/* The key was deleted; the holder finds out. */
static void finds_out(struct scene *sc)
{
    TS_WAIT(atomic_load(&sc->lost) == 1);
    assert_int_equal(dibs_lock_state(sc->l, 0), DIBS_LOST);
    kit_want("giving back", dibs_lock_release(sc->l, NULL), DIBS_ERR_LOST);
}

static void is_lost(struct scene *sc)
{
    ts_ok(kit_srv, "DEL %s", sc->name);
    finds_out(sc);
}

static void end(struct scene *sc)
{
    dibs_lock_free(sc->l);
    kit_close(sc->k);
    free(sc->name);
}

static long long tracked(void)
{
    return ts_info(kit_srv, "stats", "tracking_total_keys");
}

/* ---- rights ------------------------------------------------------------ */

static const char *const less_rights[] = {
    "-client +client|setname +client|info +client|kill",
    "-client +client|setname +client|info +client|kill +client|tracking",
    ("-client +client|setname +client|kill +client|tracking "
     "+client|caching"),
    "-exists",
    "resetchannels &redisson*",
};

/* state: one of these. */
static void test_track_no_rights(void **state)
{
    const char *less = *(const char *const *)*state;
    char *line =
        ts_text("ACL SETUSER some reset on >pass ~* &* +@all %s", less);
    const char *argv[32];
    struct scene sc;
    int argc = 0;

    for (char *save, *w = strtok_r(line, " ", &save); w;
         w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    freeReplyObject(ts_cmdv(kit_srv, argc, argv, NULL));
    free(line);
    begin(&sc, &(struct kit_opts){.name = "some", .lease_ms = SHORT_MS});
    TS_WAIT(kit_heard(sc.k, DIBS_EVENT_WARNING, DIBS_ERR_AUTH, WORD));
    assert_int_equal(dibs_lock_state(sc.l, 0), DIBS_HELD);
    is_lost(&sc);
    assert_int_equal(kit_told(sc.k, DIBS_EVENT_WARNING), 1);
    end(&sc);
}

/* ---- a server that lies ------------------------------------------------ */

/* It, or a proxy before it, says yes to all, and does nothing. */
static void test_track_says_yes(void **state)
{
    struct scene sc;

    (void)state;
    int on = ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_ANSWER,
                                                     .match = "CLIENT",
                                                     .contains = "TRACKING",
                                                     .text = "+OK\r\n"});
    int caching = ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_ANSWER,
                                                          .match = "CLIENT",
                                                          .contains = "CACHING",
                                                          .text = "+OK\r\n"});
    begin(&sc, &(struct kit_opts){.lease_ms = SHORT_MS});
    assert_true(ts_rule_wait(kit_px, on, 1, TS_SOON));
    assert_true(ts_rule_wait(kit_px, caching, 2, TS_SOON));
    is_lost(&sc);
    end(&sc);
}

/* It says yes to one, and then does not know what the other is about. */
static void test_track_half_a_lie(void **state)
{
    struct scene sc;

    (void)state;
    ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_ANSWER,
                                            .match = "CLIENT",
                                            .contains = "TRACKING",
                                            .text = "+OK\r\n"});
    begin(&sc, &(struct kit_opts){.lease_ms = SHORT_MS});
    TS_WAIT(kit_heard(sc.k, DIBS_EVENT_WARNING, DIBS_ERR_AUTH, WORD));
    is_lost(&sc);
    end(&sc);
}

/* Messages do not arrive. */
static void test_track_messages_lost(void **state)
{
    struct scene sc;

    (void)state;
    int id = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_SWALLOW_MESSAGE,
                                  .contains = "__redis__:invalidate"});
    begin(&sc, &(struct kit_opts){.lease_ms = SHORT_MS});
    TS_WAIT(tracked() == 1);
    is_lost(&sc);
    assert_true(ts_rule_hits(kit_px, id) > 0);
    end(&sc);
}

/* Anybody may send what looks like a message. */
static void test_track_forged(void **state)
{
    struct scene sc;

    (void)state;
    begin(&sc, &(struct kit_opts){.lease_ms = 0});
    TS_WAIT(tracked() == 1);
    for (int i = 0; i < 100; i++)
        ts_ok(kit_srv, "PUBLISH __redis__:invalidate %s", sc.name);
    assert_int_equal(dibs_lock_state(sc.l, 0), DIBS_HELD);
    is_lost(&sc);
    end(&sc);
}

/* ---- no room ----------------------------------------------------------- */

/* The server keeps one key in mind, and says of the others that they were
 * changed: that is looked at now and then, not all the time. */
static void test_track_no_room(void **state)
{
    struct scene sc[MANY];
    atomic_int lost = 0;

    (void)state;
    ts_config_set(kit_srv, "tracking-table-max-keys", "1");
    for (int i = 0; i < MANY; i++)
        begin(&sc[i], &(struct kit_opts){.lease_ms = SHORT_MS});
    TS_WAIT(ts_command_calls(kit_srv, "exists") >= 3 * MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(dibs_lock_state(sc[i].l, 0), DIBS_HELD);
    for (int i = 0; i < MANY; i++)
        ts_ok(kit_srv, "DEL %s", sc[i].name);
    for (int i = 0; i < MANY; i++) {
        finds_out(&sc[i]);
        lost += atomic_load(&sc[i].lost);
        end(&sc[i]);
    }
    assert_int_equal(lost, MANY);
    ts_config_set(kit_srv, "tracking-table-max-keys", "1000000");
}

/* ---- what it costs ----------------------------------------------------- */

/* Takes it so often. How many ms the longest hold lasted: one of a second would
 * be tracked, and a machine may stand still for that long. */
static int64_t take_often(dibs_lock *l, int times)
{
    int64_t longest = 0;

    for (int i = 0; i < times; i++) {
        int64_t start = ts_now_ms();
        kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
        kit_want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
        int64_t took = ts_now_ms() - start;
        longest = took > longest ? took : longest;
    }
    return longest;
}

/* The proxy counts messages: pairs of short holds send none, nor do renewals of
 * our own. Redis 6 sends one for a renewal, in spite of NOLOOP. */
static void test_track_counts(void **state)
{
    struct scene sc;
    bool old = ts_int(kit_srv, "EVAL %s 0",
                      "return redis.REDIS_VERSION_NUM or 0") == 0;

    (void)state;
    begin(&sc, &(struct kit_opts){.lease_ms = SHORT_MS});
    dibs_lock *l = kit_lock(sc.k, "pairs");
    unsigned before;
    int tries = 0;
    do {
        assert_in_range(tries++, 0, 9);
        TS_WAIT(tracked() == 1);
        before = ts_proxy_messages(kit_px);
    } while (take_often(l, 1000) >= 500);
    long long reads = ts_command_calls(kit_srv, "exists");
    TS_WAIT(ts_command_calls(kit_srv, "exists") >= reads + 3);
    if (!old)
        assert_int_equal(ts_proxy_messages(kit_px), before);
    is_lost(&sc);
    TS_WAIT(ts_proxy_messages(kit_px) > before);
    dibs_lock_free(l);
    end(&sc);
}

/* ---- connections ------------------------------------------------------- */

/* The connection for messages ends, and the key with it. When there is one
 * again, the hold is looked at. */
static void test_track_connection_ends(void **state)
{
    struct scene sc;

    (void)state;
    begin(&sc, &(struct kit_opts){.lease_ms = 0});
    TS_WAIT(tracked() == 1);
    ts_proxy_refuse(kit_px, true);
    ts_ok(kit_srv, "CLIENT KILL TYPE pubsub");
    ts_ok(kit_srv, "DEL %s", sc.name);
    assert_int_equal(dibs_lock_state(sc.l, 0), DIBS_HELD);
    ts_proxy_refuse(kit_px, false);
    is_lost(&sc);
    end(&sc);
}

/* The same if all connections end: it is looked at, and tracked anew. */
static void test_track_all_connections_end(void **state)
{
    struct scene sc;

    (void)state;
    begin(&sc, &(struct kit_opts){.lease_ms = 0});
    TS_WAIT(tracked() == 1);
    ts_proxy_kill_all(kit_px, false);
    TS_WAIT(tracked() == 0);
    TS_WAIT(tracked() == 1);
    is_lost(&sc);
    end(&sc);
}

/* Nobody hears anything of the one whose reply to CLIENT TRACKING is lost. */
static void test_track_reply_lost(void **state)
{
    struct scene sc;

    (void)state;
    ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_DROP_REPLY_CLOSE,
                                            .match = "CLIENT",
                                            .contains = "TRACKING",
                                            .count = 1});
    begin(&sc, &(struct kit_opts){.lease_ms = 0});
    TS_WAIT(tracked() == 1);
    is_lost(&sc);
    end(&sc);
}

/* An answer too many is in front of one that is about tracking. The connection
 * ends before one more question is answered by what belongs to another; on the
 * next one all is well. */
static void test_track_out_of_step(void **state)
{
    static const struct {
        const char *contains, *answers;
    } rows[] = {
        {"TRACKING", "$-1\r\n+OK\r\n"},
        {"CACHING", "$-1\r\n+OK\r\n"},
        {"CACHING", "+OK\r\n+OK\r\n"},
    };
    struct scene sc;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        int id = ts_proxy_rule(kit_px,
                               &(struct ts_rule){.action = TS_REWRITE_REPLY,
                                                 .match = "CLIENT",
                                                 .contains = rows[i].contains,
                                                 .text = rows[i].answers,
                                                 .count = 1});
        begin(&sc, &(struct kit_opts){.lease_ms = 0});
        assert_true(ts_rule_wait(kit_px, id, 1, TS_SOON));
        TS_WAIT(kit_heard(sc.k, DIBS_EVENT_DISCONNECTED, DIBS_ERR_CONN,
                          "a reply to another command"));
        TS_WAIT(ts_info(kit_srv, "clients", "tracking_clients") == 1);
        assert_int_equal(dibs_lock_state(sc.l, 0), DIBS_HELD);
        is_lost(&sc);
        end(&sc);
    }
}

/* A server that always answers so is not asked for ever: each time a connection
 * ends. An error ends none, also one without a word. */
static void test_track_never_in_step(void **state)
{
    static const struct {
        const char *answer;
        unsigned asked;
    } rows[] = {{":1\r\n", 4}, {"-\r\n", 1}};
    struct scene sc;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        int id =
            ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_REWRITE_REPLY,
                                                    .match = "CLIENT",
                                                    .contains = "TRACKING",
                                                    .text = rows[i].answer});
        begin(&sc, &(struct kit_opts){.lease_ms = SHORT_MS});
        TS_WAIT(kit_heard(sc.k, DIBS_EVENT_WARNING, DIBS_ERR_AUTH, WORD));
        is_lost(&sc);
        kit_want("again", dibs_lock_acquire(sc.l, NULL), DIBS_OK);
        assert_int_equal(dibs_lock_state(sc.l, 0), DIBS_HELD);
        kit_want("giving back", dibs_lock_release(sc.l, NULL), DIBS_OK);
        assert_int_equal(ts_rule_hits(kit_px, id), rows[i].asked);
        ts_proxy_unrule(kit_px, id);
        end(&sc);
    }
}

#define NO_RIGHTS(i)                                                           \
    {                                                                          \
        "test_track_no_rights " #i, test_track_no_rights, kit_fresh, NULL,     \
            (void *)&less_rights[i]                                            \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_track_out_of_step, kit_fresh),
        cmocka_unit_test_setup(test_track_counts, kit_fresh),
        cmocka_unit_test_setup(test_track_never_in_step, kit_fresh),
        cmocka_unit_test_setup(test_track_no_room, kit_fresh),
        NO_RIGHTS(0),
        NO_RIGHTS(1),
        NO_RIGHTS(2),
        NO_RIGHTS(3),
        NO_RIGHTS(4),
        cmocka_unit_test_setup(test_track_says_yes, kit_fresh),
        cmocka_unit_test_setup(test_track_half_a_lie, kit_fresh),
        cmocka_unit_test_setup(test_track_messages_lost, kit_fresh),
        cmocka_unit_test_setup(test_track_forged, kit_fresh),
        cmocka_unit_test_setup(test_track_connection_ends, kit_fresh),
        cmocka_unit_test_setup(test_track_all_connections_end, kit_fresh),
        cmocka_unit_test_setup(test_track_reply_lost, kit_fresh),
    };

    return TS_RUN_PARALLEL("fault.track", tests, kit_up, kit_down);
}
