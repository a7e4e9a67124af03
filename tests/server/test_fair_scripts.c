/* SPDX-License-Identifier: MIT
 *
 * test_fair_scripts.c - every script of the fair lock alone, against a real
 * server, as a table. The tables are in fair_rows.h; script_kit.c runs them.
 * Here is what the words of this kind mean, and how its queue is looked at.
 */
#include "server/fair_rows.h"

#define LOCK   "order"
#define QUEUE  "redisson_lock_queue:{order}"
#define SCORES "redisson_lock_timeout:{order}"
#define SILENT "dibs_lock_silent:{order}"
#define W      300000
#define CALL   "redisson_lock__channel:{order}:"
#define UUID   "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b"
#define OTHER  "77777777-3c4d-4e5f-8a9b-0c1d2e3f4a5b"

static const char *const words[][2] = {
    {"A", UUID ":1"},
    {"B", UUID ":2"},
    {"C", UUID ":3"},
    {"X", UUID ":8"},
    {"Y", UUID ":9"},
    {"P", CALL},
    {"PA", CALL UUID ":1"},
    {"PB", CALL UUID ":2"},
    {"PC", CALL UUID ":3"},
    {"L", LOCK},
    {"Q", QUEUE},
    {"Z", SCORES},
    {"S", SILENT},
    {"CA", "called " UUID ":1"},
    {"D", OTHER ":4"},
    {"CB", "called " UUID ":2"},
    {"PD", CALL OTHER ":4"},
    {"CD", "called " OTHER ":4"},
    {"CC", "called " UUID ":3"},
    {NULL, NULL},
};
static const char *const channels[] = {"PA", "PB", "PC", "PD", NULL};

/* !N, or ^LAST,SPENT,SCORE */
static char *since(const char *word)
{
    long long last = 0, spent = 0;
    double score = 0;

    if (word[0] == '^' &&
        sscanf(word, "^%lld,%lld,%lf", &last, &spent, &score) == 3)
        return ts_text("%lld %lld %.14g", sk_began - last, spent,
                       (double)sk_began + score);
    if (word[0] != '!')
        return NULL;
    return ts_text("%lld %lld", sk_began - atoll(word + 1), sk_began % W);
}

/* ---- states ------------------------------------------------------------ */

static void check_queue(const struct row *row, const struct sk_words *want)
{
    redisReply *r = ts_cmd(sk_srv, "LRANGE %s 0 -1", QUEUE);
    bool ok = (int)r->elements == want->n - 1;

    for (int i = 1; ok && i < want->n; i++)
        ok = strcmp(r->element[i - 1]->str, want->w[i]) == 0;
    for (size_t i = 0; !ok && i < r->elements; i++)
        print_error("  %s\n", r->element[i]->str);
    if (!ok)
        fail_msg("%s: the queue is not as in \"%s\"", row->name, row->after);
    freeReplyObject(r);
}

static void check_scores(const struct sk_turn *turn,
                         const struct sk_words *want)
{
    const char *row = turn->row->name;

    if (ts_int(sk_srv, "ZCARD %s", SCORES) != want->n - 1)
        fail_msg("%s: there are %lld scores", row,
                 ts_int(sk_srv, "ZCARD %s", SCORES));
    for (int i = 1; i < want->n; i++) {
        char who[64];
        const char *time = sk_cut(want->w[i], who);
        long long ms = atoll(time + 1);
        long long low = (time[0] == '=' ? sk_began : turn->sent) + ms - 2;
        long long high = (time[0] == '=' ? sk_began : turn->answered) + ms + 2;
        char *got = ts_str(sk_srv, "ZSCORE %s %s", SCORES, who);
        bool ok = got && (strstr(time, "inf") ? strcmp(got, time + 1) == 0
                                              : atof(got) >= (double)low &&
                                                    atof(got) <= (double)high);
        if (!ok)
            fail_msg("%s: the score %s is the row's beginning + %.0f", row,
                     want->w[i], got ? atof(got) - (double)sk_began : -1.0);
        free(got);
    }
}

/* The one that was put into the queue gave both the same TTL, behind all
 * scores. */
static void check_ttl(const char *row)
{
    const char *at = TS_LUA_ENDS
        "return {ends(KEYS[1]), ends(KEYS[2]), redis.call('zrange', "
        "KEYS[2], -1, -1, 'WITHSCORES')[2]}";
    redisReply *r = ts_cmd(sk_srv, "EVAL %s 2 %s %s", at, QUEUE, SCORES);

    assert_int_equal(r->type, REDIS_REPLY_ARRAY);
    long long q = r->element[0]->integer, z = r->element[1]->integer;
    long long last = (long long)atof(r->element[2]->str);
    freeReplyObject(r);
    if (llabs(q - z) > 2 || q <= last)
        fail_msg("%s: the queue ends at %lld, the scores at %lld, the last "
                 "score at %lld",
                 row, q - sk_began, z - sk_began, last - sk_began);
}

/* Noted, and not forever. */
static void check_silent(const struct row *row, const struct sk_words *want)
{
    if (ts_hlen(sk_srv, SILENT) != want->n - 1)
        fail_msg("%s: %lld are noted as silent", row->name,
                 ts_hlen(sk_srv, SILENT));
    for (int i = 1; i < want->n; i++) {
        char *got = ts_hget(sk_srv, SILENT, want->w[i]);
        if (!got)
            fail_msg("%s: %s is not noted as silent", row->name, want->w[i]);
        free(got);
    }
    long long left = ts_pttl(sk_srv, SILENT);
    if (!strstr(row->before, "HSET S") && (left < 1 || left > 15000))
        fail_msg("%s: they are noted for %lld ms", row->name, left);
}

/* Is the call one to wait, and was it put into the queue? */
static bool queued(const struct sk_turn *turn)
{
    const char *call = turn->row->call;

    return strstr(call, "fair_acquire") && strstr(call, " P 1 ") &&
           turn->want[0] == '~';
}

static bool check_state(const struct sk_turn *turn, const struct sk_words *want)
{
    const char *key = want->w[0];

    if (strcmp(key, QUEUE) == 0) {
        check_queue(turn->row, want);
    } else if (strcmp(key, SCORES) == 0) {
        check_scores(turn, want);
        if (queued(turn))
            check_ttl(turn->row->name);
    } else if (strcmp(key, SILENT) == 0) {
        check_silent(turn->row, want);
    } else {
        return false;
    }
    return true;
}

const struct sk_kind sk_kind = {
    .words = words,
    .channels = channels,
    .rights = {[NO_CHANNEL] = "resetchannels +@all"},
    .word = since,
    .state = check_state,
};

/* ---- the tests --------------------------------------------------------- */

ROWS_TEST(test_fair_scripts_acquire, acquire_rows)
ROWS_TEST(test_fair_scripts_release, release_rows)
ROWS_TEST(test_fair_scripts_leave, leave_rows)
ROWS_TEST(test_fair_scripts_info, info_rows)
ROWS_TEST(test_fair_scripts_vector, vector_rows)

/* A crowd of dead ones: the one that comes clears them away, after one second
 * if there are not too many, and the last in line is called when there are. */
static void test_fair_scripts_crowd_of_dead(void **state)
{
    const char *fill = "for i = 1, 300 do redis.call('rpush', KEYS[1], i);"
                       "redis.call('zadd', KEYS[2], ARGV[1], i) end";

    (void)state;
    sk_begin();
    sk_commands("crowd", HELD);
    ts_ok(sk_srv, "EVAL %s 2 %s %s %lld", fill, QUEUE, SCORES,
          sk_began + 900000);
    freeReplyObject(sk_call(WAIT("C"), PLAIN));
    sk_expect("nobody hears", RELEASE("A"), "-2");
    sk_check_told("crowd", "PC=0");
    /* What C does then, with the seconds left out. */
    bool taken = false;
    for (int i = 0; i < 10 && !taken; i++) {
        redisReply *r = sk_call(WAIT("C"), PLAIN);
        taken = r->type == REDIS_REPLY_NIL;
        freeReplyObject(r);
        assert_true(taken || ts_hlen(sk_srv, SILENT) > 0);
        ts_ok(sk_srv, "EVAL %s 1 %s",
              "for _, who in ipairs(redis.call('hkeys', KEYS[1])) do "
              "local t, r = redis.call('hget', KEYS[1], who):match('(.+) (.+)')"
              " redis.call('hset', KEYS[1], who, t - 1000 .. ' ' .. r) end",
              SILENT);
    }
    assert_true(taken);
    assert_false(ts_exists(sk_srv, QUEUE));
    assert_false(ts_exists(sk_srv, SCORES));
    assert_false(ts_exists(sk_srv, SILENT));
}

/* When one is out because it did not come, the others of its client have a
 * second each: if its process is stopped, so are they. */
static void test_fair_scripts_one_process(void **state)
{
    static const struct {
        const char *next, *called, *spent;
    } rows[] = {
        {IN("A", "600000"), "CA", " 4000 "},
        {IN("D", "600000"), "CD", " 0 "},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        sk_begin();
        sk_commands("one process",
                    IN("B", "1000.5") "HSET S CB ^1000,4000,1000.5");
        sk_commands("one process", rows[i].next);
        sk_expect("one process", WAIT("C"), "~1000");
        char *noted = ts_hget(sk_srv, SILENT, sk_meaning(rows[i].called));
        assert_non_null(noted);
        assert_non_null(strstr(noted, rows[i].spent));
        free(noted);
    }
}

/* In a long queue a waiter keeps its place though nobody counts that far, and
 * its score is rather too high than too low. */
static void test_fair_scripts_far_back(void **state)
{
    const char *fill = "for i = 1, 3000 do redis.call('rpush', KEYS[1], i);"
                       "redis.call('zadd', KEYS[2], ARGV[1], i) end";

    (void)state;
    sk_begin();
    sk_commands("far back", HELD);
    ts_ok(sk_srv, "EVAL %s 2 %s %s %lld", fill, QUEUE, SCORES,
          sk_began + 900000);
    for (int i = 0; i < 3; i++) {
        sk_expect("W / 3", WAIT("C"), "100000");
        freeReplyObject(ts_cmd(sk_srv, "RPUSH %s behind%d", QUEUE, i));
        assert_int_equal(ts_int(sk_srv, "LPOS %s %s", QUEUE, sk_meaning("C")),
                         3000);
    }
    char *score = ts_str(sk_srv, "ZSCORE %s %s", SCORES, sk_meaning("C"));
    assert_true(atof(score) >=
                (double)(sk_began + 30000 + 300000LL * 3001 - 2));
    free(score);
}

/* No script of the fair lock without a table. */
static void test_fair_scripts_all_tested(void **state)
{
    static const char *const names[] = {"fair_", NULL};
    static const struct row *const tables[] = {acquire_rows, release_rows,
                                               leave_rows, info_rows};

    (void)state;
    sk_all_tested(names, tables, COUNT(tables));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fair_scripts_acquire),
        cmocka_unit_test(test_fair_scripts_release),
        cmocka_unit_test(test_fair_scripts_leave),
        cmocka_unit_test(test_fair_scripts_info),
        cmocka_unit_test(test_fair_scripts_vector),
        cmocka_unit_test(test_fair_scripts_crowd_of_dead),
        cmocka_unit_test(test_fair_scripts_one_process),
        cmocka_unit_test(test_fair_scripts_far_back),
        cmocka_unit_test(test_fair_scripts_all_tested),
    };

    return cmocka_run_group_tests_name("fair_scripts", tests, sk_up, sk_down);
}
