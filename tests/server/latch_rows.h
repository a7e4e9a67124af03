/* SPDX-License-Identifier: MIT
 *
 * latch_rows.h - the tables of test_latch_scripts.c. What a row says is in
 * script_kit.h and sync_states.h. N is the count, T the notes beside it, C the
 * channel.
 */
#ifndef DIBS_TESTS_SERVER_LATCH_ROWS_H
#define DIBS_TESTS_SERVER_LATCH_ROWS_H

#include "server/sync_states.h"

#define WEEK  "~604800000"
#define SET2  "latch_set N T | 2 0 r C"
#define OPEN  "latch_set N T | 0 0 r C"
#define DOWN  "latch_down N T | u:1 0 C"
#define NAMED "latch_down N T | bob 1 C"
#define LOOK  "latch_look N T | C"

static const struct row set_rows[] = {
    {"open", "", SET2, "1 2", "1 2", "N =2 -1;T #=1 s:r=1 " WEEK, "C=1", PLAIN},
    {"closed", "SET N 5", SET2, "0 5", "0 5", "N =5 -1", "", PLAIN},
    {"again, counted down meanwhile", "SET N 1;HSET T # 1 s:r 1", SET2, "1 1",
     "1 1", "N =1 -1;T #=1 s:r=1 -1", "", PLAIN},
    {"again, open by now", "HSET T # 2 s:r 1", SET2, "1 0", "1 0",
     "T #=2 s:r=1 -1", "", PLAIN},
    {"another client left a zero", "SET N 0", SET2, "1 2", "1 2",
     "N =2 -1;T #=1 s:r=1 " WEEK, "C=1", PLAIN},
    {"another client left less than zero", "SET N -4", SET2, "1 2", "1 2",
     "N =2 -1;T #=1 s:r=1 " WEEK, "C=1", PLAIN},
    {"with a deadline", "HSET T # 4", "latch_set N T | 2 9000 r C", "1 2",
     "1 2", "N =2 ~9000;T #=5 s:r=5 !~9000 " WEEK, "C=1", PLAIN},
    {"a deadline of before is forgotten", "HSET T # 4 ! past", SET2, "1 2",
     "1 2", "N =2 -1;T #=5 s:r=5 " WEEK, "C=1", PLAIN},
    {"to open it", "SET N 5;HSET T # 1 ! 9", OPEN, "1 0", "1 0",
     "T #=2 s:r=2 " WEEK, "C=0", PLAIN},
    {"to open it, it is open: told once more", "", OPEN, "0 0", NULL, "", "C=0",
     PLAIN},
    {"to open it, full", "SET N 5", OPEN, "1 0", "1 0", "T #=1 s:r=1 " WEEK,
     "C=0", FULL},
    {"full", "", SET2, "-OOM", "-OOM", "", "", FULL},
    {"no right to set", "", SET2, "-any", NULL, "T #=1 " WEEK, "", NO_SET},
    {"no number", "SET N x", SET2, "-WRONGTYPE", "-WRONGTYPE", "N =x -1", "",
     PLAIN},
    {"a lock of that name", "HSET N A 1", SET2, "-WRONGTYPE", "-WRONGTYPE",
     "N A=1 -1", "", PLAIN},
};

static const struct row down_rows[] = {
    {"of two", "SET N 2;HSET T # 1", DOWN, "1", "1",
     "N =1 -1;T #=1 c:u:1=1 " WEEK, "", PLAIN},
    {"of two, set by another client", "SET N 2", DOWN, "1", "1",
     "N =1 -1;T c:u:1=0 " WEEK, "", PLAIN},
    {"the last", "SET N 1;HSET T # 1 ! @60000", DOWN, "0", "0",
     "T #=2 c:u:1=1 " WEEK, "C=0", PLAIN},
    {"open: told once more", "", DOWN, "0", NULL, "", "C=0", PLAIN},
    {"open, and it has counted", "HSET T # 2 c:u:1 1", DOWN, "0", "0",
     "T #=2 c:u:1=1 -1", "", PLAIN},
    {"sent again when it was set anew", "SET N 2;HSET T # 7 c:u:1 6", DOWN, "2",
     "2", "N =2 -1;T #=7 c:u:1=6 -1", "", PLAIN},
    {"a name", "SET N 2;HSET T # 1", NAMED, "1", "1",
     "N =1 -1;T #=1 n:bob=1 " WEEK, "", PLAIN},
    {"a name, when it was set anew", "SET N 2;HSET T # 2 n:bob 1", NAMED, "1",
     "1", "N =1 -1;T #=2 n:bob=2 " WEEK, "", PLAIN},
    {"a name and a call are two", "SET N 5;HSET T # 1 c:bob 1", NAMED, "4", "4",
     "N =4 -1;T #=1 c:bob=1 n:bob=1 " WEEK, "", PLAIN},
    {"its end stays", "SET N 2 PX 100000;HSET T # 1", DOWN, "1", "1",
     "N =1 ~100000;T #=1 c:u:1=1 " WEEK, "", PLAIN},
    {"another client left a zero: who waits goes on", "SET N 0", DOWN, "0", "0",
     "T #=1 c:u:1=0 " WEEK, "C=0", PLAIN},
    {"another client left less than zero", "SET N -4", DOWN, "0", "0",
     "T #=1 c:u:1=0 " WEEK, "C=0", PLAIN},
    {"full", "SET N 2", DOWN, "1", "1", "N =1 -1;T c:u:1=0 " WEEK, "", FULL},
    {"full, the last", "SET N 1", DOWN, "0", "0", "T #=1 c:u:1=0 " WEEK, "C=0",
     FULL},
    {"no right to publish", "SET N 1", DOWN, "0", "0", "T #=1 c:u:1=0 " WEEK,
     "", NO_CHANNEL},
    {"no number", "SET N 1.5", DOWN, "-WRONGTYPE", "-WRONGTYPE", "N =1.5 -1",
     "", PLAIN},
    {"a lock of that name", "HSET N A 1", DOWN, "-WRONGTYPE", "-WRONGTYPE",
     "N A=1 -1", "", PLAIN},
    {"the notes are something else", "SET N 2;SET T x", DOWN, "-WRONGTYPE",
     "-WRONGTYPE", "N =2 -1;T =x -1", "", PLAIN},
};

static const struct row look_rows[] = {
    {"open", "", LOOK, "0 -1 0", "0 -1 0", "", "", PLAIN},
    {"closed", "SET N 2", LOOK, "2 -1 0", NULL, "N =2 -1", "", PLAIN},
    {"closed, with a deadline", "SET N 2 PX 60000;HSET T # 1 ! @60000", LOOK,
     "2 ~60000 0", NULL, "N =2 ~60000;T #=1 !~60000 -1", "", PLAIN},
    {"its deadline has passed", "HSET T # 1 ! @-1", LOOK, "0 -1 1", "0 -1 1",
     "T #=1 !=past -1", "C=0", PLAIN},
    {"others opened it in time", "HSET T # 1 ! @60000", LOOK, "0 -1 0",
     "0 -1 0", "T #=1 -1", "", PLAIN},
    {"another client left a zero", "SET N 0", LOOK, "0 -1 0", NULL, "N =0 -1",
     "", PLAIN},
    {"full, its deadline has passed", "HSET T # 1 ! @-1", LOOK, "0 -1 1",
     "0 -1 1", "T #=1 !=past -1", "C=0", FULL},
    {"no number", "SET N x", LOOK, "-WRONGTYPE", NULL, "N =x -1", "", PLAIN},
};

/* What other clients of the same keys leave and see, by the numbers of the
 * protocol's golden vectors. */
static const struct row vector_rows[] = {
    {"55: absent: open", "", LOOK, "0 -1 0", NULL, "", "", PLAIN},
    {"55: nothing to count", "", DOWN, "0", NULL, "", "C=0", PLAIN},
    {"56: two", "", SET2, "1 2", NULL, "N =2 -1;T #=1 s:r=1 " WEEK, "C=1",
     PLAIN},
    {"56: five, by another request", "", "latch_set N T | 5 0 q C", "0 2", NULL,
     "N =2 -1;T #=1 s:r=1 " WEEK, "", PLAIN},
    {"57: another client counts", "DECR N", LOOK, "1 -1 0", NULL,
     "N =1 -1;T #=1 s:r=1 " WEEK, "", PLAIN},
    {"57: the last", "", DOWN, "0", NULL, "T #=2 s:r=1 c:u:1=1 " WEEK, "C=0",
     PLAIN},
    {"58: deleted, and who waits goes on", "SET N 1", "latch_set N T | 0 0 q C",
     "1 0", NULL, "T #=3 s:r=1 c:u:1=1 s:q=3 " WEEK, "C=0", PLAIN},
    {"59: a zero does not stand in the way", "SET N 0",
     "latch_set N T | 3 0 p C", "1 3", NULL,
     "N =3 -1;T #=4 s:r=1 c:u:1=1 s:q=3 s:p=4 " WEEK, "C=1", PLAIN},
    {"anew 61: deleted by another client, who told nobody", "", OPEN, "0 0",
     NULL, "", "C=0", PLAIN},
    {"61: set and counted down", "SET N 1", DOWN, "0", NULL,
     "T #=1 c:u:1=0 " WEEK, "C=0", PLAIN},
    {"anew 60: less than zero is open", "SET N -4", LOOK, "0 -1 0", NULL,
     "N =-4 -1", "", PLAIN},
};

#endif
