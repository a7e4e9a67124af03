/* SPDX-License-Identifier: MIT
 *
 * sync_states.h - states of counters and of lists of permits, for the rows of
 * the script tests (script_kit.h). A row says of a key
 *
 *     N =3 -1                      a string, 3, without an end
 *     Z I~30000 J=never -1         a sorted set with these members: one that
 *                                  ends 30 s after the call, one that never
 *                                  does; "J=@500": 500 ms after the row
 *                                  began; "J=any": at some time
 *
 * All others are the kit's.
 */
#ifndef DIBS_TESTS_SERVER_SYNC_STATES_H
#define DIBS_TESTS_SERVER_SYNC_STATES_H

#include "server/script_kit.h"

#define NEVER "922337203685477"

static inline void check_ttl(const char *row, const char *key, const char *want)
{
    long long left = ts_pttl(sk_srv, key);
    bool ok = want[0] == '~'
                  ? left <= atoll(want + 1) && left > atoll(want + 1) / 2
                  : left == atoll(want);

    if (strcmp(want, "any") != 0 && !ok)
        fail_msg("%s: %s has %lld ms left, not %s", row, key, left, want);
}

static inline bool score_like(const struct sk_turn *turn, const char *want,
                              const char *score)
{
    if (want[0] == '~') {
        long long ms = atoll(want + 1), at = atoll(score);
        return at >= turn->sent + ms && at <= turn->answered + ms;
    }
    if (strcmp(want, "=any") == 0)
        return true;
    if (strcmp(want, "=never") == 0)
        return strcmp(score, NEVER) == 0;
    if (strncmp(want, "=@", 2) == 0)
        return atoll(score) == sk_began + atoll(want + 2);
    return strcmp(score, want + 1) == 0;
}

static inline void check_members(const struct sk_turn *turn,
                                 const struct sk_words *ws)
{
    const char *row = turn->row->name, *key = ws->w[0];

    if (ts_int(sk_srv, "ZCARD %s", key) != ws->n - 2)
        fail_msg("%s: %s has %lld members", row, key,
                 ts_int(sk_srv, "ZCARD %s", key));
    for (int i = 1; i < ws->n - 1; i++) {
        char member[64];
        const char *want = sk_cut(ws->w[i], member);
        char *score = ts_str(sk_srv, "ZSCORE %s %s", key, member);
        if (!score || !score_like(turn, want, score))
            fail_msg("%s: %s has %s at %s, not %s", row, key, member,
                     score ? score : "nil", want);
        free(score);
    }
    check_ttl(row, key, ws->w[ws->n - 1]);
}

/* A state of these kinds; false: it is one of the kit's. */
static inline bool sync_state(const struct sk_turn *turn,
                              const struct sk_words *ws)
{
    const char *row = turn->row->name, *key = ws->w[0];

    if (ws->n == 3 && ws->w[1][0] == '=') {
        char *value = ts_str(sk_srv, "GET %s", key);
        if (!value || strcmp(value, ws->w[1] + 1) != 0)
            fail_msg("%s: %s is not %s but %s", row, key, ws->w[1],
                     value ? value : "nil");
        free(value);
        check_ttl(row, key, ws->w[2]);
        return true;
    }
    char *type = ts_str(sk_srv, "TYPE %s", key);
    bool listed = strcmp(type, "zset") == 0;
    free(type);
    if (listed)
        check_members(turn, ws);
    return listed;
}

#endif
