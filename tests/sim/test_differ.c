/* SPDX-License-Identifier: MIT
 *
 * test_differ.c - the small server says what a real one says: byte for byte,
 * in the sequences of differ.txt, and in many more that chance has written.
 *
 * Differences that are known, and so not compared: numbers of clients and
 * addresses, times (within a minute), the order of KEYS, SCAN and of the
 * channels in PUBSUB CHANNELS, which fields HRANDFIELD draws, most of what INFO
 * and CLIENT LIST tell, HELLO and RESP3, MULTI, commands that dibs never sends.
 */
#include "sim/differ.h"

/* ---- sequences --------------------------------------------------------- */

static void test_differ_sequences(void **state)
{
    (void)state;
    if (!df_comparable())
        skip();
    assert_true(df_file("differ.txt", NULL) > 500);
}

/* ---- chance ------------------------------------------------------------ */

static uint64_t seed;

static unsigned draw(unsigned below)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15ULL;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return (unsigned)((z ^ z >> 31) % below);
}

#define PICK(list) list[draw(sizeof(list) / sizeof(list)[0])]

/* What the letters of a template stand for. */
static const char *const keys[] = {"a", "b", "c", "d", "e"};
static const char *const members[] = {"x", "y", "z", "x", "``", "7"};
static const char *const numbers[] = {"0",
                                      "1",
                                      "2",
                                      "-1",
                                      "-2",
                                      "3",
                                      "10",
                                      "01",
                                      "1x",
                                      "``",
                                      "+1",
                                      "-0",
                                      "9223372036854775807",
                                      "-9223372036854775808",
                                      "9223372036854775808",
                                      "1.5"};
static const char *const small_numbers[] = {"0",  "1", "2",  "-1",
                                            "-2", "5", "-5", "x"};
static const char *const scores[] = {"0",    "1",    "-1.5", "2.25", "0.1",
                                     "inf",  "-inf", "nan",  "(1",   "(0.1",
                                     "+inf", "1e3",  "x",    "``"};
/* Far away, or over already: so that no clock takes part. */
static const char *const times[] = {
    "1000000", "2000000", "0", "-1", "x", "9223372036854775807"};

/* A comparison of times must not hang on a millisecond. */
static const char *const far_times[] = {"1", "4000000000000", "5000000000000"};

static const char *const templates[] = {
    "SET K V",
    "SET K N",
    "SET K V NX",
    "SET K V XX GET",
    "SET K V PX T",
    "SET K V KEEPTTL",
    "SET K V EX T NX",
    "SET K V GET",
    "SETNX K V",
    "SETEX K T V",
    "PSETEX K T V",
    "GET K",
    "GETSET K V",
    "GETDEL K",
    "MGET K K K",
    "MSET K V K V",
    "STRLEN K",
    "APPEND K V",
    "INCR K",
    "DECR K",
    "INCRBY K N",
    "DECRBY K N",
    "DEL K",
    "DEL K K",
    "UNLINK K",
    "EXISTS K K",
    "TYPE K",
    "RENAME K K",
    "DBSIZE",
    "PEXPIRE K T",
    "PEXPIRE K T NX",
    "PEXPIRE K T XX",
    "PEXPIREAT K A GT",
    "PEXPIREAT K A LT",
    "EXPIRE K T",
    "PEXPIREAT K T",
    "EXPIREAT K T",
    "~ PTTL K",
    "~ TTL K",
    "PERSIST K",
    "HSET K M V",
    "HSET K M N M V",
    "HMSET K M V",
    "HSETNX K M V",
    "HGET K M",
    "HMGET K M M",
    "HGETALL K",
    "HKEYS K",
    "HVALS K",
    "HLEN K",
    "HEXISTS K M",
    "HSTRLEN K M",
    "HDEL K M",
    "HDEL K M M",
    "HINCRBY K M N",
    "HSCAN K 0",
    "HSCAN K 0 MATCH [xy]",
    "HRANDFIELD K 100 WITHVALUES",
    "HRANDFIELD K 100",
    "LPUSH K M",
    "RPUSH K M M M",
    "LPUSHX K M",
    "RPUSHX K M",
    "LPOP K",
    "RPOP K",
    "LPOP K S",
    "RPOP K S",
    "LLEN K",
    "LINDEX K S",
    "LRANGE K S S",
    "LPOS K M",
    "LPOS K M RANK S",
    "LPOS K M COUNT S MAXLEN S",
    "LPOS K M RANK S COUNT S",
    "LREM K S M",
    "LSET K S V",
    "LTRIM K S S",
    "ZADD K F M",
    "ZADD K F M F M",
    "ZADD K NX F M",
    "ZADD K XX CH F M",
    "ZADD K GT CH F M",
    "ZADD K LT F M",
    "ZADD K INCR F M",
    "ZINCRBY K F M",
    "ZREM K M M",
    "ZPOPMIN K",
    "ZPOPMAX K S",
    "ZCARD K",
    "ZSCORE K M",
    "ZMSCORE K M M",
    "ZRANK K M",
    "ZREVRANK K M",
    "ZRANGE K S S",
    "ZRANGE K S S WITHSCORES",
    "ZRANGE K F F BYSCORE",
    "ZRANGE K S S REV",
    "ZRANGE K F F BYSCORE REV LIMIT S S WITHSCORES",
    "ZREVRANGE K S S",
    "ZRANGEBYSCORE K F F",
    "ZRANGEBYSCORE K F F WITHSCORES LIMIT S S",
    "ZREVRANGEBYSCORE K F F",
    "ZCOUNT K F F",
    "ZREMRANGEBYSCORE K F F",
    "ZREMRANGEBYRANK K S S",
    "EVAL `return L` 0",
    "EVAL `return redis.call('set', KEYS[1], L)` 1 K",
    "EVAL `return {redis.pcall('hset', KEYS[1], 'x', L), 1}` 1 K",
    "EVAL `redis.call('hset', KEYS[1], 'm', L) error('no')` 1 K",
    "EVAL `local r = redis.pcall('incrby', KEYS[1], L) return r` 1 K",
    "EVAL `return redis.call('zadd', KEYS[1], L, 'x')` 1 K",
    "EVAL `return type(redis.call('lindex', KEYS[1], 0))` 1 K",
    "EVAL `return tostring(#KEYS)` N K",
    "PUBLISH c V",
    "FLUSHDB"};

/* A value as Lua has it. */
static void add_literal(char *out, size_t size, int depth)
{
    static const char *const plain[] = {"1",
                                        "-3",
                                        "3.99",
                                        "-3.99",
                                        "1e15",
                                        "2^53",
                                        "0.1",
                                        "true",
                                        "false",
                                        "nil",
                                        "'text'",
                                        "''",
                                        "'a\\nb'",
                                        "'12'",
                                        "1/0",
                                        "{}",
                                        "{ok='fine'}",
                                        "{err='MY mistake'}",
                                        "{err='nocode'}",
                                        "{err='two\\nlines'}",
                                        "redis.error_reply('oops')",
                                        "redis.error_reply('-OH no')",
                                        "redis.status_reply('yes')",
                                        "redis.sha1hex('x')",
                                        "#KEYS",
                                        "ARGV[1]",
                                        "redis.pcall('nope')",
                                        "redis.pcall('get')",
                                        "redis.pcall()",
                                        "{1, 2, nil, 4}",
                                        "{a=1}",
                                        "nosuch",
                                        "redis.pcall('subscribe', 'x')"};
    size_t n = strlen(out);

    if (depth == 0 || draw(3) > 0) {
        snprintf(out + n, size - n, "%s", PICK(plain));
        return;
    }
    snprintf(out + n, size - n, "{");
    for (unsigned i = draw(4); i > 0; i--) {
        add_literal(out, size, depth - 1);
        n = strlen(out);
        snprintf(out + n, size - n, i > 1 ? ", " : "");
    }
    n = strlen(out);
    snprintf(out + n, size - n, "}");
}

static void add_letter(char *out, size_t size, char letter)
{
    size_t n = strlen(out);
    const char *word = letter == 'K'   ? PICK(keys)
                       : letter == 'M' ? PICK(members)
                       : letter == 'V' ? PICK(members)
                       : letter == 'N' ? PICK(numbers)
                       : letter == 'S' ? PICK(small_numbers)
                       : letter == 'F' ? PICK(scores)
                       : letter == 'T' ? PICK(times)
                       : letter == 'A' ? PICK(far_times)
                                       : NULL;

    if (letter == 'L')
        add_literal(out, size, 2);
    else
        snprintf(out + n, size - n, "%s", word);
}

/* A template with its letters filled in; at times a word is missing, or one
 * too many. A letter stands alone between signs that are not letters. */
static void write_step(char *out, size_t size)
{
    const char *t = PICK(templates);
    unsigned spoil = draw(40);

    out[0] = '\0';
    for (const char *p = t; *p; p++) {
        bool alone =
            (p == t || strchr(" ,(", p[-1])) && (!p[1] || strchr(" ,)`", p[1]));
        size_t n = strlen(out);
        if (alone && strchr("KMVNSFTAL", *p))
            add_letter(out, size, *p);
        else
            snprintf(out + n, size - n, "%c", *p);
    }
    size_t n = strlen(out);
    if (spoil == 0)
        snprintf(out + n, size - n, " more");
    char *last = strrchr(out, ' ');
    if (spoil == 1 && last && !strchr(out, '`') && out[0] != '~' &&
        strncmp(out, "HRANDFIELD", 10) != 0)
        *last = '\0';
}

static void test_differ_by_chance(void **state)
{
    const char *asked = getenv("DIBS_SIM_SEED");
    int rounds = asked ? 500000 : 50000;
    char what[64], line[2000];

    (void)state;
    if (!df_comparable())
        skip();
    seed = asked ? strtoull(asked, NULL, 10) : 1;
    for (int i = 0; i < rounds; i++) {
        if (i % 1000 == 0)
            df_begin();
        write_step(line, sizeof line);
        df_later(line);
        if (i % 50 != 49)
            continue;
        snprintf(what, sizeof what, "by chance, up to step %d", i);
        df_flush(what);
        if (i % 250 == 249)
            df_compare_keys(what);
    }
    df_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differ_sequences),
        cmocka_unit_test(test_differ_by_chance),
    };

    return cmocka_run_group_tests_name("sim differ", tests, df_up, df_down);
}
