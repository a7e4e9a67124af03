/* SPDX-License-Identifier: MIT
 *
 * fenced_rows.h - the tables of test_fenced_scripts.c. What a row says is in
 * script_kit.h. A is an owner, B another one, L the lock, K the last token, C
 * the channel; W, N, WA and WB are as in wait_rows.h. A token of 1000000 or so
 * is one that only counts. 'us is a token made of the time since the row began.
 */
#ifndef DIBS_TESTS_SERVER_FENCED_ROWS_H
#define DIBS_TESTS_SERVER_FENCED_ROWS_H

#include "server/sync_states.h"

#define TAKE     "fenced_acquire L K | A 1 30000 0"
#define SMALL    "fenced_acquire L K | A 1 30000 1"
#define AGES     "8000000000000000" /* in microseconds; a token far ahead */
#define AGES_1   "8000000000000001"
#define LAST     "9223372036854775807"
#define WEEK     "~604800000"
#define HELD(ms) "HSET L A 1;PEXPIRE L " ms ";SET K 7"

static const struct row acquire_rows[] = {
    {"free, nothing is known", "", TAKE, "'us", "'us",
     "L A=1 ~30000;K string " WEEK, "", PLAIN},
    {"free, a token of long ago", "SET K 7", TAKE, "'us", "'us",
     "L A=1 ~30000;K string " WEEK, "", PLAIN},
    {"free, a token of a clock ahead of ours", "SET K " AGES, TAKE, AGES_1,
     AGES_1, "L A=1 ~30000;K =" AGES_1 " " WEEK, "", PLAIN},
    {"free, a token that Lua cannot count with", "SET K 9007199254740993", TAKE,
     "9007199254740994", "9007199254740994",
     "L A=1 ~30000;K =9007199254740994 " WEEK, "", PLAIN},
    {"free, the last token there is", "SET K " LAST, TAKE, "-overflow",
     "-overflow", "K =" LAST " -1", "", PLAIN},
    {"free, a token below zero", "SET K -5", TAKE, "'us", "'us",
     "L A=1 ~30000;K string " WEEK, "", PLAIN},
    {"free, the token is no number", "SET K abc", TAKE, "-integer", "-integer",
     "K =abc -1", "", PLAIN},
    {"free, the token is a fraction", "SET K 1.5", TAKE, "-integer", "-integer",
     "K =1.5 -1", "", PLAIN},
    {"free, the token looks like a number to Lua", "SET K 0x10", TAKE,
     "-integer", "-integer", "K =0x10 -1", "", PLAIN},
    {"free, no number, as long as a token: it stays as it was",
     "SET K 12345678901234ab PX 600000", TAKE, "-integer", "-integer",
     "K =12345678901234ab ~600000", "", PLAIN},
    {"free, no number to others, as long as a token",
     "SET K 12345678901234e1 PX 600000", TAKE, "-integer", "-integer",
     "K =12345678901234e1 ~600000", "", PLAIN},
    {"free, a token of the year 2001: a new life", "SET K 1000000000000000",
     TAKE, "'us", "'us", "L A=1 ~30000;K string " WEEK, "", PLAIN},
    {"free, a token of the year 2001, with an end: a new life",
     "SET K 1000000000000000 PX 600000", TAKE, "'us", "'us",
     "L A=1 ~30000;K string " WEEK, "", PLAIN},
    {"free, the token is no string", "HSET K a 1", TAKE, "-WRONGTYPE",
     "-WRONGTYPE", "K a=1 -1", "", PLAIN},
    {"small, nothing is known", "", SMALL, "1", "1", "L A=1 ~30000;K =1 -1", "",
     PLAIN},
    {"small, one more", "SET K 7", SMALL, "8", "8", "L A=1 ~30000;K =8 -1", "",
     PLAIN},
    {"small, its end stays", "SET K 7 PX 600000", SMALL, "8", "8",
     "L A=1 ~30000;K =8 ~600000", "", PLAIN},
    {"small, the last one", "SET K " LAST, SMALL, "-overflow", "-overflow",
     "K =" LAST " -1", "", PLAIN},
    {"again, with a longer lease", HELD("1000"), TAKE, "7", "7",
     "L A=1 ~30000;K =7 -1", "", PLAIN},
    {"again, the token was lost", "HSET L A 1;PEXPIRE L 60000", TAKE, "'us",
     "'us", "L A=1 ~60000;K string " WEEK, "", PLAIN},
    {"late, held more often by now", "HSET L A 3;PEXPIRE L 60000;SET K 7", TAKE,
     "7", "7", "L A=3 ~60000;K =7 -1", "", PLAIN},
    {"re-entry spends none", HELD("60000"), "fenced_acquire L K | A 2 30000 0",
     "nil", "nil", "L A=2 ~60000;K =7 -1", "", PLAIN},
    {"re-entry, gone", "SET K 7", "fenced_acquire L K | A 2 30000 0", "-3",
     "-3", "K =7 -1", "", PLAIN},
    {"re-entry, somebody else's", "HSET L B 1;PEXPIRE L 60000;SET K 7",
     "fenced_acquire L K | A 2 30000 0", "-3", "-3", "L B=1 ~60000;K =7 -1", "",
     PLAIN},
    {"busy", "HSET L B 1;PEXPIRE L 60000;SET K 7", TAKE, "~60000", "~60000",
     "L B=1 ~60000;K =7 -1", "", PLAIN},
    {"busy without an end", "HSET L B 1;SET K 7", TAKE, "-1", "-1",
     "L B=1 -1;K =7 -1", "", PLAIN},
    {"a read-write lock", "HSET L mode read B 1", TAKE, "-6", "-6",
     "L mode=read B=1 -1", "", PLAIN},
    {"somebody's data", "HSET L name bob", TAKE, "-6", "-6", "L name=bob -1",
     "", PLAIN},
    {"not a lock", "SET L x", TAKE, "-WRONGTYPE", "-WRONGTYPE", "L string -1",
     "", PLAIN},
    {"full", "SET K 7", TAKE, "-OOM", "-OOM", "K =7 -1", "", FULL},
    {"full, again", HELD("60000"), TAKE, "7", "7", "L A=1 ~60000;K =7 -1", "",
     FULL},
    {"no right to expire: a token is spent, and nothing taken", "", TAKE,
     "-pexpire", "-pexpire", "K string " WEEK, "", NO_PEXPIRE},
    {"no right to set", "", TAKE, "-any", "-any", "", "", NO_SET},
};

#define ASK(mine, how) "fenced_acquire L K | A 1 30000 0 C " mine " " how
#define BUSY           "HSET L B 1;PEXPIRE L 60000;SET K 7;"
#define QUEUE(text)    "ZADD W " text ";PEXPIRE W 10000;"
#define TAKEN          "L A=1 ~30000;K string " WEEK

static const struct row wait_rows[] = {
    {"free", "", ASK("WA", "new"), "'us", "'us", TAKEN, "", PLAIN},
    {"free, called", QUEUE("1 WB"), ASK("WA", "called"), "'us", "'us",
     TAKEN ";W WB=1 ~10000", "", PLAIN},
    {"free, asks again: out of the queue", QUEUE("1 WA 2 WB") "SET N WB",
     ASK("WA", "again"), "'us", "'us", TAKEN ";W WB=2 ~10000", "", PLAIN},
    {"free, a foreign release: the listener stays",
     QUEUE("1 WA 2 WB") "SET N WA", ASK("WA", "foreign"), "'us", "'us",
     TAKEN ";W WB=2 ~10000;N string -1", "", PLAIN},
    {"free, asks again, small", QUEUE("1 WA") "SET K 7",
     "fenced_acquire L K | A 1 30000 1 C WA again", "8", "8",
     "L A=1 ~30000;K =8 -1", "", PLAIN},
    {"free, asks again, the lease is refused: it keeps its place",
     QUEUE("1 WA"), "fenced_acquire L K | A 1 9223372036854775807 0 C WA again",
     "-invalid", "-invalid", "K string " WEEK ";W WA=1 ~10000", "", PLAIN},
    {"reply lost: it has it already", "HSET L A 1;PEXPIRE L 60000;SET K 7",
     ASK("WA", "new"), "7", "7", "L A=1 ~60000;K =7 -1", "", PLAIN},
    {"busy: registered, and no token is spent", BUSY, ASK("WA", "new"),
     "~60000 3", "~60000 3",
     "L B=1 ~60000;K =7 -1;W WA=1 ~10000;N string ~5000", "", PLAIN},
    {"busy, called, another one was faster: to the front",
     BUSY QUEUE("5 WB") "SET N WB PX 5000", ASK("WA", "called"), "~60000 2",
     NULL, "L B=1 ~60000;K =7 -1;W WA=4 WB=5 ~10000;N string ~5000", "", PLAIN},
    {"somebody's data", "HSET L name bob", ASK("WA", "new"), "-6", "-6",
     "L name=bob -1", "", PLAIN},
    {"a read-write lock", "HSET L mode read B 1", ASK("WA", "called"), "-6",
     "-6", "L mode=read B=1 -1", "", PLAIN},
    {"full, busy: not registered", BUSY, ASK("WA", "new"), "~60000 0",
     "~60000 0", "L B=1 ~60000;K =7 -1", "", FULL},
};

static const struct row handover_rows[] = {
    {"a new hold, a new token", HELD("60000"),
     "fenced_handover L K | A B 30000 0", "'us", "'us",
     "L B=1 ~30000;K string " WEEK, "", PLAIN},
    {"small", HELD("60000"), "fenced_handover L K | A B 30000 1", "8", "8",
     "L B=1 ~30000;K =8 -1", "", PLAIN},
    {"that ends sooner is told", HELD("60000"),
     "fenced_handover L K | A B 30000 1 C", "8", "8", "L B=1 ~30000;K =8 -1",
     "C=0 C=2", PLAIN},
    {"done before", "HSET L B 1;PEXPIRE L 60000;SET K 7",
     "fenced_handover L K | A B 30000 0", "7", "7", "L B=1 ~60000;K =7 -1", "",
     PLAIN},
    {"nothing to hand over", "SET K 7", "fenced_handover L K | A B 30000 0",
     "-1", "-1", "K =7 -1", "", PLAIN},
    {"somebody else's", "HSET L X 1;PEXPIRE L 60000;SET K 7",
     "fenced_handover L K | A B 30000 0", "-1", "-1", "L X=1 ~60000;K =7 -1",
     "", PLAIN},
    {"no number: the old owner keeps it", "HSET L A 1;PEXPIRE L 60000;SET K x",
     "fenced_handover L K | A B 30000 0", "-integer", "-integer",
     "L A=1 ~60000;K =x -1", "", PLAIN},
    {"full: the old owner keeps it", HELD("60000"),
     "fenced_handover L K | A B 30000 0", "-OOM", "-OOM",
     "L A=1 ~60000;K =7 -1", "", FULL},
    {"no right to expire: the old owner keeps it", HELD("60000"),
     "fenced_handover L K | A B 30000 0", "-any", "-any",
     "L A=1 ~60000;K string " WEEK, "", NO_PEXPIRE},
};

static const struct row info_rows[] = {
    {"free", "", "fenced_info L K |", "-2 0 ''", NULL, "", "", PLAIN},
    {"held", "HSET L A 2;PEXPIRE L 60000;SET K 7", "fenced_info L K |",
     "~60000 1 7 A 2", NULL, "L A=2 ~60000;K =7 -1", "", PLAIN},
    {"free, but it was held", "SET K 7", "fenced_info L K |", "-2 0 7", NULL,
     "K =7 -1", "", PLAIN},
    {"the token is no number", "SET K x", "fenced_info L K |", "-2 0 ''", NULL,
     "K =x -1", "", PLAIN},
    {"the token is no string", "HSET K a 1", "fenced_info L K |", "-2 0 ''",
     NULL, "K a=1 -1", "", PLAIN},
    {"somebody's data", "HSET L name bob", "fenced_info L K |", "-6 0 ''", NULL,
     "L name=bob -1", "", PLAIN},
    {"not a lock", "SET L x", "fenced_info L K |", "-WRONGTYPE", NULL,
     "L string -1", "", PLAIN},
};

/* What other clients of the same keys leave and see, by the numbers of the
 * protocol's golden vectors. */
static const struct row vector_rows[] = {
    {"62: A, small", "", "fenced_acquire L K | A 1 30000 1", "1", NULL,
     "L A=1 ~30000;K =1 -1", "", PLAIN},
    {"62: A again, and the token stays", "", "fenced_acquire L K | A 2 30000 1",
     "nil", NULL, "L A=2 ~30000;K =1 -1", "", PLAIN},
    {"62: another client's re-entry spends one", "INCR K",
     "fenced_acquire L K | B 1 30000 1", "~30000", NULL, "L A=2 ~30000;K =2 -1",
     "", PLAIN},
    {"63: A once less", "", "mutex_release L | A 1 0 C", "0", NULL,
     "L A=1 ~30000;K =2 -1", "", PLAIN},
    {"63: free", "", "mutex_release L | A 0 0 C", "2", NULL, "K =2 -1", "C=0",
     PLAIN},
    {"63: B", "", "fenced_acquire L K | B 1 5000 1", "3", NULL,
     "L B=1 ~5000;K =3 -1", "", PLAIN},
    {"63: by force, and the token stays", "", "mutex_force L | B C", "1", NULL,
     "K =3 -1", "C=0", PLAIN},
    {"64: the lock has no end: not taken", "HSET L B 1",
     "fenced_acquire L K | A 1 30000 0", "-1", NULL, "L B=1 -1;K =3 -1", "",
     PLAIN},
    {"64: lock and token were deleted: not a token of before", "DEL L K",
     "fenced_acquire L K | A 1 30000 0", "'us", NULL,
     "L A=1 ~30000;K string " WEEK, "", PLAIN},
};

#endif
