/* SPDX-License-Identifier: MIT
 *
 * semaphore_rows.h - the tables of test_semaphore_scripts.c. What a row says is
 * in script_kit.h and sync_states.h. N is how many permits are free, D the book
 * of who has some, G the guard of a request, C the channel; A and B are owners,
 * A2 is A with two permits, A1 with one.
 */
#ifndef DIBS_TESTS_SERVER_SEMAPHORE_ROWS_H
#define DIBS_TESTS_SERVER_SEMAPHORE_ROWS_H

#include "server/sync_states.h"

#define OWNER_A "8743c9c0-0795-4907-87fd-6c719a6b4586:45"
#define OWNER_B "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

#define TAKE "semaphore_acquire N D | A 2 30000 C"
#define MINE "G string ~60000"

static const struct row acquire_rows[] = {
    {"two of three", "SET N 3", TAKE, "2", "2", "N =1 -1;D A2~30000 -1", "",
     PLAIN},
    {"all", "SET N 2", TAKE, "2", "2", "N =0 -1;D A2~30000 -1", "", PLAIN},
    {"nobody has said how many", "", TAKE, "-2", "-2", "", "", PLAIN},
    {"deleted: the book is void", "ZADD D @60000 B1", TAKE, "-2", "-2", "", "",
     PLAIN},
    {"too few", "SET N 1", TAKE, "-1", "-1", "N =1 -1", "", PLAIN},
    {"too few, somebody's lease ends", "SET N 1;ZADD D @60000 B1", TAKE,
     "~60000", "~60000", "N =1 -1;D B1=@60000 -1", "", PLAIN},
    {"below zero", "SET N -4", TAKE, "-1", "-1", "N =-4 -1", "", PLAIN},
    {"again", "SET N 0;ZADD D @9000 A2", TAKE, "2", "2",
     "N =0 -1;D A2~30000 -1", "", PLAIN},
    {"again, and more are free", "SET N 7;ZADD D @60000 A2", TAKE, "2", "2",
     "N =7 -1;D A2=@60000 -1", "", PLAIN},
    {"one who is gone had some", "SET N 0;ZADD D @-1 B3", TAKE, "2", "2",
     "N =1 -1;D A2~30000 -1", "C=1", PLAIN},
    {"one who is gone had too few", "SET N 0;ZADD D @-1 B1", TAKE, "-1", "-1",
     "N =1 -1", "C=1", PLAIN},
    {"one who is gone paid a debt", "SET N -3;ZADD D @-1 B1", TAKE, "-1", "-1",
     "N =-2 -1", "", PLAIN},
    {"somebody else's entry in the book", "SET N 2;ZADD D 5 junk", TAKE, "2",
     "2", "N =0 -1;D A2~30000 -1", "", PLAIN},
    {"both end together", "SET N 3 PX 100000", TAKE, "2", "2",
     "N =1 ~100000;D A2~30000 ~100000", "", PLAIN},
    {"no number", "SET N x", TAKE, "-6", "-6", "N =x -1", "", PLAIN},
    {"the largest number there is", "SET N 9223372036854775807", TAKE, "-6",
     "-6", "N =9223372036854775807 -1", "", PLAIN},
    {"a lock of that name", "HSET N A 1", TAKE, "-WRONGTYPE", "-WRONGTYPE",
     "N A=1 -1", "", PLAIN},
    {"the book is something else", "SET N 3;SET D x", TAKE, "-WRONGTYPE",
     "-WRONGTYPE", "N =3 -1;D =x -1", "", PLAIN},
    {"full", "SET N 3", TAKE, "-OOM", "-OOM", "N =3 -1", "", FULL},
    {"no right to publish", "SET N 0;ZADD D @-1 B3", TAKE, "2", "2",
     "N =1 -1;D A2~30000 -1", "", NO_CHANNEL},
};

#define FREE "semaphore_release N D | A 2 0 C"

static const struct row release_rows[] = {
    {"all: a message for each permit", "SET N 1;ZADD D @60000 A2", FREE, "2",
     "-1", "N =3 -1", "C=3 C=1", PLAIN},
    {"very many: eight messages will do", "SET N 0;ZADD D @60000 A99",
     "semaphore_release N D | A 99 0 C", "2", "-1", "N =99 -1",
     "C=99 C=1 C=1 C=1 C=1 C=1 C=1 C=1", PLAIN},
    {"some", "SET N 1;ZADD D @60000 A2", "semaphore_release N D | A 2 1 C", "0",
     "0", "N =2 -1;D A1=@60000 -1", "C=2", PLAIN},
    {"some, later than the rest", "SET N 3", "semaphore_release N D | A 2 1 C",
     "-1", "-1", "N =3 -1", "", PLAIN},
    {"nobody's: nothing comes from nothing", "SET N 1", FREE, "-1", "-1",
     "N =1 -1", "", PLAIN},
    {"it had fewer", "SET N 1;ZADD D @60000 A1", FREE, "-1", "-1",
     "N =1 -1;D A1=@60000 -1", "", PLAIN},
    {"ended, and nobody has taken it back", "SET N 1;ZADD D @-9000 A2", FREE,
     "2", "-1", "N =3 -1", "C=3 C=1", PLAIN},
    {"deleted: not made anew", "ZADD D @60000 A2 @60000 B1", FREE, "1", "-1",
     "", "", PLAIN},
    {"a debt is paid first", "SET N -1;ZADD D @60000 A2", FREE, "2", "-1",
     "N =1 -1", "C=1", PLAIN},
    {"a debt is left", "SET N -9;ZADD D @60000 A2", FREE, "1", "-1", "N =-7 -1",
     "", PLAIN},
    {"its end stays", "SET N 1 PX 100000;ZADD D @60000 A2", FREE, "2", "-1",
     "N =3 ~100000", "C=3 C=1", PLAIN},
    {"no number: nothing is changed", "SET N x;ZADD D @60000 A2", FREE,
     "-WRONGTYPE", "-WRONGTYPE", "N =x -1;D A2=@60000 -1", "", PLAIN},
    {"full", "SET N 1;ZADD D @60000 A2", FREE, "2", "-1", "N =3 -1", "C=3 C=1",
     FULL},
    {"full, some", "SET N 1;ZADD D @60000 A2",
     "semaphore_release N D | A 2 1 C", "0", "0", "N =2 -1;D A1=@60000 -1",
     "C=2", FULL},
    {"no right to publish", "SET N 1;ZADD D @60000 A2", FREE, "1", "-1",
     "N =3 -1", "", NO_CHANNEL},
};

static const struct row force_rows[] = {
    {"whatever it has", "SET N 1;ZADD D @60000 A2 @60000 B1",
     "semaphore_force N D | A C", "1", "0", "N =3 -1;D B1=@60000 -1", "C=3 C=1",
     PLAIN},
    {"nothing", "SET N 1;ZADD D @60000 B1", "semaphore_force N D | A C", "0",
     "0", "N =1 -1;D B1=@60000 -1", "", PLAIN},
    {"deleted: not made anew", "ZADD D @60000 A2", "semaphore_force N D | A C",
     "1", "0", "", "", PLAIN},
    {"no number", "SET N x;ZADD D @60000 A2", "semaphore_force N D | A C",
     "-WRONGTYPE", "-WRONGTYPE", "N =x -1;D A2=@60000 -1", "", PLAIN},
    {"full", "SET N 1;ZADD D @60000 A2", "semaphore_force N D | A C", "1", "0",
     "N =3 -1", "C=3 C=1", FULL},
};

static const struct row add_rows[] = {
    {"more", "SET N 4", "semaphore_add N G | 2 C", "6", "6", "N =6 -1;" MINE,
     "C=6 C=1", PLAIN},
    {"nobody has said how many", "", "semaphore_add N G | 1 C", "1", "1",
     "N =1 -1;" MINE, "C=1", PLAIN},
    {"none: it only tells what is free", "SET N 4", "semaphore_add N G | 0 C",
     "4", "4", "N =4 -1;" MINE, "C=4", PLAIN},
    {"none, and nobody has said how many", "", "semaphore_add N G | 0 C", "0",
     "0", MINE, "", PLAIN},
    {"fewer", "SET N 6", "semaphore_add N G | -2 C", "4", "4", "N =4 -1;" MINE,
     "", PLAIN},
    {"below zero, and nobody is told", "SET N 6", "semaphore_add N G | -10 C",
     "-4", "-4", "N =-4 -1;" MINE, "", PLAIN},
    {"a debt is left", "SET N -4", "semaphore_add N G | 3 C", "-1", "-1",
     "N =-1 -1;" MINE, "", PLAIN},
    {"its end stays", "SET N 3 PX 100000", "semaphore_add N G | 1 C", "4", "4",
     "N =4 ~100000;" MINE, "C=4", PLAIN},
    {"more than 32 bits", "SET N 2147483647", "semaphore_add N G | 1 C",
     "-bits", "-bits", "N =2147483647 -1", "", PLAIN},
    {"less than 32 bits", "SET N -2147483648", "semaphore_add N G | -1 C",
     "-bits", "-bits", "N =-2147483648 -1", "", PLAIN},
    {"no number", "SET N x", "semaphore_add N G | 1 C", "-WRONGTYPE",
     "-WRONGTYPE", "N =x -1", "", PLAIN},
    {"a lock of that name", "HSET N A 1", "semaphore_add N G | 1 C",
     "-WRONGTYPE", "-WRONGTYPE", "N A=1 -1", "", PLAIN},
    {"full", "SET N 4", "semaphore_add N G | 1 C", "-OOM", "-OOM", "N =4 -1",
     "", FULL},
    {"no right to guard", "SET N 4", "semaphore_add N G | 1 C", "-any", "-any",
     "N =4 -1", "", NO_SET},
};

static const struct row drain_rows[] = {
    {"what is free", "SET N 3", "semaphore_drain N G |", "3", "3",
     "N =0 -1;" MINE, "", PLAIN},
    {"nothing is", "SET N 0", "semaphore_drain N G |", "0", "0",
     "N =0 -1;" MINE, "", PLAIN},
    {"a debt stays", "SET N -4", "semaphore_drain N G |", "0", "0",
     "N =-4 -1;" MINE, "", PLAIN},
    {"nobody has said how many", "", "semaphore_drain N G |", "0", "0", MINE,
     "", PLAIN},
    {"its end stays", "SET N 3 PX 50000", "semaphore_drain N G |", "3", "3",
     "N =0 ~50000;" MINE, "", PLAIN},
    {"no number", "SET N x", "semaphore_drain N G |", "-WRONGTYPE",
     "-WRONGTYPE", "N =x -1", "", PLAIN},
};

static const struct row set_rows[] = {
    {"nobody has said how many", "", "semaphore_set N D G | 3 C", "1", "1",
     "N =3 -1;" MINE, "C=3 C=1 C=1", PLAIN},
    {"none, for now", "", "semaphore_set N D G | 0 C", "1", "1",
     "N =0 -1;" MINE, "", PLAIN},
    {"the book of one that was deleted is void", "ZADD D @60000 A2",
     "semaphore_set N D G | 3 C", "1", "1", "N =3 -1;" MINE, "C=3 C=1 C=1",
     PLAIN},
    {"somebody has", "SET N 0;ZADD D @60000 A2", "semaphore_set N D G | 3 C",
     "0", "0", "N =0 -1;D A2=@60000 -1;" MINE, "", PLAIN},
    {"no number", "SET N x", "semaphore_set N D G | 3 C", "-WRONGTYPE",
     "-WRONGTYPE", "N =x -1", "", PLAIN},
    {"full", "", "semaphore_set N D G | 3 C", "-OOM", "-OOM", "", "", FULL},
};

static const struct row info_rows[] = {
    {"nobody has said how many", "ZADD D @60000 A2", "semaphore_info N D | C",
     "0 0 0 -1", "0 0 0 -1", "D A2=@60000 -1", "", PLAIN},
    {"some are free, some are not", "SET N 3;ZADD D @60000 A2",
     "semaphore_info N D | C", "1 3 1 ~60000", NULL, "N =3 -1;D A2=@60000 -1",
     "", PLAIN},
    {"one who is gone had some", "SET N 0;ZADD D @-1 A2",
     "semaphore_info N D | C", "1 2 0 -1", "1 2 0 -1", "N =2 -1", "C=2 C=1",
     PLAIN},
    {"a debt", "SET N -4", "semaphore_info N D | C", "1 -4 0 -1", NULL,
     "N =-4 -1", "", PLAIN},
    {"no number", "SET N x", "semaphore_info N D | C", "-WRONGTYPE", NULL,
     "N =x -1", "", PLAIN},
};

/* What other clients of the same keys leave and see, by the numbers of the
 * protocol's golden vectors. */
static const struct row vector_rows[] = {
    {"21: absent: none are free", "", "semaphore_info N D | C", "0 0 0 -1",
     NULL, "", "", PLAIN},
    {"21: absent: not taken", "", "semaphore_acquire N D | A 1 30000 C", "-2",
     NULL, "", "", PLAIN},
    {"22: set", "", "semaphore_set N D G | 3 C", "1", NULL, "N =3 -1;" MINE,
     "C=3 C=1 C=1", PLAIN},
    {"22: set once more", "DEL G", "semaphore_set N D G | 5 C", "0", NULL,
     "N =3 -1;" MINE, "", PLAIN},
    {"23: two", "DEL G", "semaphore_acquire N D | A 2 30000 C", "2", NULL,
     "N =1 -1;D A2~30000 -1", "", PLAIN},
    {"23: two more", "", "semaphore_acquire N D | B 2 30000 C", "~30000", NULL,
     "N =1 -1;D A2=any -1", "", PLAIN},
    {"24: one back", "", "semaphore_release N D | A 2 1 C", "0", NULL,
     "N =2 -1;D A1=any -1", "C=2", PLAIN},
    {"24: the other one", "", "semaphore_release N D | A 1 0 C", "2", NULL,
     "N =3 -1", "C=3", PLAIN},
    {"25: made", "", "semaphore_add N G | 3 C", "6", NULL, "N =6 -1;" MINE,
     "C=6 C=1 C=1", PLAIN},
    {"25: taken away", "DEL G", "semaphore_add N G | -10 C", "-4", NULL,
     "N =-4 -1;" MINE, "", PLAIN},
    {"26: not taken", "DEL G", "semaphore_acquire N D | A 1 30000 C", "-1",
     NULL, "N =-4 -1", "", PLAIN},
    {"26: drained: the debt stays", "", "semaphore_drain N G |", "0", NULL,
     "N =-4 -1;" MINE, "", PLAIN},
    {"27: given by another client", "DEL G;INCRBY N 7", "semaphore_drain N G |",
     "3", NULL, "N =0 -1;" MINE, "", PLAIN},
    {"anew 28: released after it was deleted", "ZADD D @60000 A2",
     "semaphore_release N D | A 2 0 C", "1", NULL, "", "", PLAIN},
    {"29: set to none by another client; two from elsewhere come back",
     "SET N 0;ZADD D @60000 A2", "semaphore_release N D | A 2 0 C", "2", NULL,
     "N =2 -1", "C=2 C=1", PLAIN},
    {"anew 29: set to none", "", "semaphore_set N D G | 0 C", "1", NULL,
     "N =0 -1;" MINE, "", PLAIN},
    {"anew 30: with an end", "SET N 3 PX 60000",
     "semaphore_acquire N D | A 1 30000 C", "1", NULL,
     "N =2 ~60000;D A1~30000 ~60000", "", PLAIN},
    {"30: which stays", "", "semaphore_release N D | A 1 0 C", "2", NULL,
     "N =3 ~60000", "C=3", PLAIN},
    {"31: also when more are made", "", "semaphore_add N G | 1 C", "4", NULL,
     "N =4 ~60000;" MINE, "C=4", PLAIN},
    {"anew 32: more than other clients can count", "SET N 3000000000",
     "semaphore_acquire N D | A 1 30000 C", "1", NULL,
     "N =2999999999 -1;D A1~30000 -1", "", PLAIN},
    {"anew 50: a message for each of two", "SET N 0;ZADD D @60000 A2",
     "semaphore_release N D | A 2 0 C", "2", NULL, "N =2 -1", "C=2 C=1", PLAIN},
};

#endif
