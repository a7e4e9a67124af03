/* SPDX-License-Identifier: MIT
 *
 * test_latch_scripts.c - every script of the latch alone, against a real
 * server, as a table. The tables are in latch_rows.h; script_kit.c runs them.
 */
#include "server/latch_rows.h"

static const char *const words[][2] = {
    {"N", "gate"},
    {"T", "{gate}:dibs_down"},
    {"C", "redisson_countdownlatch__channel__{gate}"},
    {NULL, NULL},
};
static const char *const channels[] = {"C", NULL};

/* One note: as it should be, some time from now ("!~9000"), or whatever it is
 * ("!"). */
static bool note_like(const struct sk_turn *turn, const char *want)
{
    const char *sign = strpbrk(want, "=~");
    char field[64];

    snprintf(field, sizeof field, "%.*s",
             sign ? (int)(sign - want) : (int)strlen(want), want);
    char *value = ts_hget(sk_srv, sk_meaning("T"), field);
    bool ok = value != NULL;
    if (ok && sign && *sign == '=')
        ok = strcmp(value, sign + 1) == 0;
    else if (ok && sign)
        ok = atoll(value) >= sk_began + atoll(sign + 1) &&
             atoll(value) <= turn->answered + atoll(sign + 1);
    free(value);
    return ok;
}

static bool latch_state(const struct sk_turn *turn, const struct sk_words *ws)
{
    const char *row = turn->row->name, *key = ws->w[0];

    if (strcmp(key, sk_meaning("T")) != 0 || ws->w[1][0] == '=')
        return sync_state(turn, ws);
    if (ts_hlen(sk_srv, key) != ws->n - 2)
        fail_msg("%s: %lld notes", row, ts_hlen(sk_srv, key));
    for (int i = 1; i < ws->n - 1; i++)
        if (!note_like(turn, ws->w[i]))
            fail_msg("%s: the notes do not have %s", row, ws->w[i]);
    check_ttl(row, key, ws->w[ws->n - 1]);
    return true;
}

const struct sk_kind sk_kind = {
    .words = words,
    .channels = channels,
    .rights =
        {[NO_SET] = "&* +@all -set", [NO_CHANNEL] = "resetchannels +@all"},
    .state = latch_state,
};

ROWS_TEST(test_latch_scripts_set, set_rows)
ROWS_TEST(test_latch_scripts_down, down_rows)
ROWS_TEST(test_latch_scripts_look, look_rows)
STORY_TEST(test_latch_scripts_vectors, vector_rows)

/* Each ticket once, however often it is sent: a thousand of them. */
static void test_latch_scripts_many_tickets(void **state)
{
    (void)state;
    sk_begin();
    sk_commands("set", "SET N 1000");
    for (int i = 0; i < 2000; i++) {
        char *call = ts_text("latch_down N T | %d %d C", i / 2, i % 4 / 2);
        char *left = ts_text("%d", 999 - i / 2);
        sk_expect("down", call, left);
        free(call);
        free(left);
    }
    sk_check_told("down", "C=0");
    assert_int_equal(ts_int(sk_srv, "EXISTS %s", sk_meaning("N")), 0);
}

/* No script without a table. */
static void test_latch_scripts_all_tested(void **state)
{
    static const char *const names[] = {"latch_", NULL};
    static const struct row *const tables[] = {set_rows, down_rows, look_rows};

    (void)state;
    sk_all_tested(names, tables, COUNT(tables));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_latch_scripts_set),
        cmocka_unit_test(test_latch_scripts_down),
        cmocka_unit_test(test_latch_scripts_look),
        cmocka_unit_test(test_latch_scripts_vectors),
        cmocka_unit_test(test_latch_scripts_many_tickets),
        cmocka_unit_test(test_latch_scripts_all_tested),
    };

    return cmocka_run_group_tests_name("latch_scripts", tests, sk_up, sk_down);
}
