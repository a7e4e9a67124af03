/* SPDX-License-Identifier: MIT
 *
 * slots_rows.h - the tables of test_slots_scripts.c. What a row says is in
 * script_kit.h and sync_states.h. N is how many permits are free, Z those that
 * are out, S the slots' numbers, C the channel; IA and IB are permits of the
 * owners A and B, J and J2 those of another client's.
 */
#ifndef DIBS_TESTS_SERVER_SLOTS_ROWS_H
#define DIBS_TESTS_SERVER_SLOTS_ROWS_H

#include "server/sync_states.h"

#define OWNER_A "8743c9c0-0795-4907-87fd-6c719a6b4586:45"
#define OWNER_B "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"
#define MARK    "\321\265\1"
#define ID_A    MARK "aaaaaaaaaaaaa"
#define ID_B    MARK "bbbbbbbbbbbbb"
#define ID_J    "0123456789abcdef"
#define ID_J2   "0123456789abcdeg"
#define HEX_J   "30313233343536373839616263646566"
#define SEAT_A  ID_A OWNER_A
#define SEAT_B  ID_B OWNER_B

#define TAKE     "slots_acquire N Z S | IA A 1 30000 3 0 C"
#define TAKE_ALL "slots_acquire N Z S | IA A 1 30000 3 1 C"
#define OUT_A    "ZADD Z @60000 IA;HSET S 0 " SEAT_A
#define OUT_B    "ZADD Z @60000 IB;HSET S 0 " SEAT_B

static const struct row acquire_rows[] = {
    {"nobody has said how many", "", TAKE, "0", "0",
     "N =2 -1;Z IA~30000 -1;S 0=" SEAT_A " -1", "C=2 C=1", PLAIN},
    {"nobody has said how many, and there is one", "",
     "slots_acquire N Z S | IA A 1 30000 1 0 C", "0", "0",
     "N =0 -1;Z IA~30000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"the number was lost, not the permits", OUT_B, TAKE, "1", "1",
     "N =1 -1;Z IA~30000 IB=@60000 -1;S 0=" SEAT_B " 1=" SEAT_A " -1", "C=1",
     PLAIN},
    {"the number was lost, and all are out",
     "ZADD Z @60000 IB @60000 J @60000 J2", TAKE, "~61000", "~61000",
     "N =0 -1;Z IB=@60000 J=@60000 J2=@60000 -1", "", PLAIN},
    {"one of three", "SET N 3", TAKE, "0", "0",
     "N =2 -1;Z IA~30000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"the next one", "SET N 2;" OUT_B, TAKE, "1", "1",
     "N =1 -1;Z IA~30000 IB=@60000 -1;S 0=" SEAT_B " 1=" SEAT_A " -1", "",
     PLAIN},
    {"the total, too", "SET N 4;" OUT_B, TAKE_ALL, "1/5", "1/5",
     "N =3 -1;Z IA~30000 IB=@60000 -1;S 0=" SEAT_B " 1=" SEAT_A " -1", "",
     PLAIN},
    {"a number whose permit is not out", "SET N 3;HSET S 0 " SEAT_B, TAKE, "0",
     "0", "N =2 -1;Z IA~30000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"a lower number whose permit is not out",
     "SET N 2;ZADD Z @60000 IB;HSET S 1 " SEAT_B " 0 " ID_J2 "x", TAKE, "0",
     "0", "N =1 -1;Z IA~30000 IB=@60000 -1;S 0=" SEAT_A " 1=" SEAT_B " -1", "",
     PLAIN},
    {"it had a number before, and did not give it back",
     "SET N 2;ZADD Z @60000 IB;HSET S 0 " SEAT_B " 2 " SEAT_A, TAKE, "1", "1",
     "N =1 -1;Z IA~30000 IB=@60000 -1;S 0=" SEAT_B " 1=" SEAT_A " -1", "",
     PLAIN},
    {"it had the lowest number before",
     "SET N 2;ZADD Z @60000 IB;HSET S 1 " SEAT_B " 0 " SEAT_A, TAKE, "0", "0",
     "N =1 -1;Z IA~30000 IB=@60000 -1;S 0=" SEAT_A " 1=" SEAT_B " -1", "",
     PLAIN},
    {"more than the handle says",
     "SET N 1;ZADD Z @60000 IB @60000 J2;HSET S 0 " SEAT_B " 1 " ID_J2 "x",
     "slots_acquire N Z S | IA A 1 30000 2 0 C", "2", "2",
     "N =0 -1;Z IA~30000 IB=@60000 J2=@60000 -1;S 0=" SEAT_B " 1=" ID_J2
     "x 2=" SEAT_A " -1",
     "", PLAIN},
    {"none is free", "SET N 0;" OUT_B, TAKE, "~60000", "~60000",
     "N =0 -1;Z IB=@60000 -1;S 0=" SEAT_B " -1", "", PLAIN},
    {"none is free, none ends", "SET N 0;ZADD Z " NEVER " J", TAKE, "-1", "-1",
     "N =0 -1;Z J=never -1", "", PLAIN},
    {"none is free, and nobody has one", "SET N 0", TAKE, "-1", "-1", "N =0 -1",
     "", PLAIN},
    {"below zero", "SET N -2", TAKE, "-1", "-1", "N =-2 -1", "", PLAIN},
    {"again", "SET N 1;" OUT_A, TAKE, "0", "0",
     "N =1 -1;Z IA=@60000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"again, and it lengthens", "SET N 0;ZADD Z @9000 IA;HSET S 4 " SEAT_A,
     TAKE, "4", "4", "N =0 -1;Z IA~30000 -1;S 4=" SEAT_A " -1", "", PLAIN},
    {"again, its number was lost", "SET N 0;ZADD Z @9000 IA", TAKE, "0", "0",
     "N =0 -1;Z IA~30000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"one has ended", "SET N 0;ZADD Z @-1 IB;HSET S 0 " SEAT_B, TAKE, "0", "0",
     "N =0 -1;Z IA~30000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"two have ended", "SET N 0;ZADD Z @-1 IB @-5000 J", TAKE, "0", "0",
     "N =1 -1;Z IA~30000 -1;S 0=" SEAT_A " -1", "C=1", PLAIN},
    {"another client's has just ended", "SET N 0;ZADD Z @-500 J", TAKE, "~500",
     "~500", "N =0 -1;Z J=@-500 -1", "", PLAIN},
    {"another client's ended a second ago", "SET N 0;ZADD Z @-1001 J", TAKE,
     "0", "0", "N =0 -1;Z IA~30000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"fewer than are out", "SET N -1;ZADD Z @-1 IB @60000 J", TAKE, "~61000",
     "~61000", "N =0 -1;Z J=@60000 -1", "", PLAIN},
    {"its own has ended", "SET N 0;ZADD Z @-1 IA;HSET S 0 " SEAT_A, TAKE, "0",
     "0", "N =0 -1;Z IA~30000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"the number of permits ends some time", "SET N 3 PX 100000", TAKE, "0",
     "0", "N =2 ~100000;Z IA~30000 ~100000;S 0=" SEAT_A " ~100000", "", PLAIN},
    {"re-entry", "SET N 2;ZADD Z @9000 IA;HSET S 0 " SEAT_A,
     "slots_acquire N Z S | IA A 2 30000 3 0 C", "nil", "nil",
     "N =2 -1;Z IA~30000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"re-entry never shortens", "SET N 2;" OUT_A,
     "slots_acquire N Z S | IA A 2 30000 3 0 C", "nil", "nil",
     "N =2 -1;Z IA=@60000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"re-entry, gone", "SET N 3", "slots_acquire N Z S | IA A 2 30000 3 0 C",
     "-3", "-3", "N =3 -1", "", PLAIN},
    {"re-entry, ended", "SET N 2;ZADD Z @-1 IA",
     "slots_acquire N Z S | IA A 2 30000 3 0 C", "-3", "-3",
     "N =2 -1;Z IA=@-1 -1", "", PLAIN},
    {"no number", "SET N x", TAKE, "-6", "-6", "N =x -1", "", PLAIN},
    {"a fraction", "SET N 1.5", TAKE, "-6", "-6", "N =1.5 -1", "", PLAIN},
    {"the largest number there is", "SET N 9223372036854775807", TAKE, "-6",
     "-6", "N =9223372036854775807 -1", "", PLAIN},
    {"a lock of that name", "HSET N A 1", TAKE, "-WRONGTYPE", "-WRONGTYPE",
     "N A=1 -1", "", PLAIN},
    {"the list is something else", "SET N 3;SET Z x", TAKE, "-WRONGTYPE",
     "-WRONGTYPE", "N =3 -1;Z =x -1", "", PLAIN},
    {"the numbers are something else", "SET N 3;SET S x", TAKE, "-WRONGTYPE",
     "-WRONGTYPE", "N =3 -1;S =x -1", "", PLAIN},
    {"full", "SET N 3", TAKE, "-OOM", "-OOM", "N =3 -1", "", FULL},
    {"full, nobody has said how many", "", TAKE, "-OOM", "-OOM", "", "", FULL},
    {"no right to note the number", "SET N 3", TAKE, "-any", "-any", "N =3 -1",
     "", NO_SET},
    {"no right to publish", "", TAKE, "0", "0",
     "N =2 -1;Z IA~30000 -1;S 0=" SEAT_A " -1", "", NO_CHANNEL},
};

#define FREE "slots_release N Z S | IA 0 0 0 C"

static const struct row release_rows[] = {
    {"the only one", "SET N 2;" OUT_A, FREE, "2", "-1", "N =3 -1", "C=3",
     PLAIN},
    {"its number is not known", "SET N 2;" OUT_A,
     "slots_release N Z S | IA '' 0 0 C", "2", "-1",
     "N =3 -1;S 0=" SEAT_A " -1", "C=3", PLAIN},
    {"not out", "SET N 3", FREE, "-1", "-1", "N =3 -1", "", PLAIN},
    {"it has ended, and nobody has taken it back",
     "SET N 2;ZADD Z @-9000 IA;HSET S 0 " SEAT_A, FREE, "2", "-1", "N =3 -1",
     "C=3", PLAIN},
    {"the number was lost: not made anew", OUT_A, FREE, "1", "-1", "", "",
     PLAIN},
    {"below zero", "SET N -1;" OUT_A, FREE, "1", "-1", "N =0 -1", "", PLAIN},
    {"its end stays", "SET N 2 PX 100000;" OUT_A, FREE, "2", "-1",
     "N =3 ~100000", "C=3", PLAIN},
    {"once less", "SET N 2;" OUT_A, "slots_release N Z S | IA 0 1 0 C", "0",
     "0", "N =2 -1;Z IA=@60000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"once less, gone", "SET N 3", "slots_release N Z S | IA 0 1 0 C", "-1",
     "-1", "N =3 -1", "", PLAIN},
    {"kept", "SET N 2;" OUT_A, "slots_release N Z S | IA 0 0 9000 C", "1", "1",
     "N =2 -1;Z IA~9000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"kept, gone", "SET N 3", "slots_release N Z S | IA 0 0 9000 C", "-1", "-1",
     "N =3 -1", "", PLAIN},
    {"no number: nothing is changed", "SET N x;" OUT_A, FREE, "-WRONGTYPE",
     "-WRONGTYPE", "N =x -1;Z IA=@60000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"a lock of that name", "HSET N A 1", FREE, "-WRONGTYPE", "-WRONGTYPE",
     "N A=1 -1", "", PLAIN},
    {"full", "SET N 2;" OUT_A, FREE, "2", "-1", "N =3 -1", "C=3", FULL},
    {"full, kept", "SET N 2;" OUT_A, "slots_release N Z S | IA 0 0 9000 C", "1",
     "1", "N =2 -1;Z IA~9000 -1;S 0=" SEAT_A " -1", "", FULL},
    {"no right to publish", "SET N 2;" OUT_A, FREE, "1", "-1", "N =3 -1", "",
     NO_CHANNEL},
};

#define HAND "slots_handover Z S | IA IB B 30000 0"

static const struct row handover_rows[] = {
    {"from one to the next", OUT_A, HAND, "0", "0",
     "Z IB~30000 -1;S 0=" SEAT_B " -1", "", PLAIN},
    {"done before, never shortens", OUT_B, HAND, "0", "0",
     "Z IB=@60000 -1;S 0=" SEAT_B " -1", "", PLAIN},
    {"nothing to hand over", "SET N 3", HAND, "-1", "-1", "N =3 -1", "", PLAIN},
    {"it has ended", "ZADD Z @-1 IA", HAND, "-1", "-1", "Z IA=@-1 -1", "",
     PLAIN},
    {"full", OUT_A, HAND, "0", "0", "Z IB~30000 -1;S 0=" SEAT_B " -1", "",
     FULL},
};

static const struct row force_rows[] = {
    {"by its owner", "SET N 1;" OUT_A ";ZADD Z @60000 IB",
     "slots_force N Z S | A C", "1", "0",
     "N =2 -1;Z IB=@60000 -1;S 0=" SEAT_A " -1", "C=2", PLAIN},
    {"by its id", "SET N 1;ZADD Z @60000 J @60000 IB",
     "slots_force N Z S | " HEX_J " C", "1", "0", "N =2 -1;Z IB=@60000 -1",
     "C=2", PLAIN},
    {"nobody's", "SET N 1;" OUT_B, "slots_force N Z S | A C", "0", "0",
     "N =1 -1;Z IB=@60000 -1;S 0=" SEAT_B " -1", "", PLAIN},
    {"an owner whose permit is not out", "SET N 1;HSET S 0 " SEAT_A,
     "slots_force N Z S | A C", "0", "0", "N =1 -1;S 0=" SEAT_A " -1", "",
     PLAIN},
    {"the number was lost", "ZADD Z @60000 J",
     "slots_force N Z S | " HEX_J " C", "1", "0", "", "", PLAIN},
    {"no number", "SET N x;" OUT_A, "slots_force N Z S | A C", "-WRONGTYPE",
     "-WRONGTYPE", "N =x -1;Z IA=@60000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"full", "SET N 1;" OUT_A, "slots_force N Z S | A C", "1", "0",
     "N =2 -1;S 0=" SEAT_A " -1", "C=2", FULL},
};

static const struct row info_rows[] = {
    {"nothing", "", "slots_info N Z S | 0 10", "0 0 0", "0 0 0", "", "", PLAIN},
    {"how many", "SET N 2;" OUT_A, "slots_info N Z S | 0 0", "1 2 1", NULL,
     "N =2 -1;Z IA=@60000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"who", "SET N 1;" OUT_A ";ZADD Z " NEVER " J", "slots_info N Z S | 0 10",
     "1 1 2 A ~60000 0 " HEX_J " -1 -1", NULL,
     "N =1 -1;Z IA=@60000 J=never -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"from the second on", "SET N 1;" OUT_A ";ZADD Z " NEVER " J",
     "slots_info N Z S | 1 10", "1 1 2 " HEX_J " -1 -1", NULL,
     "N =1 -1;Z IA=@60000 J=never -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"one has ended", "SET N 2;ZADD Z @-5000 IA;HSET S 0 " SEAT_A,
     "slots_info N Z S | 0 10", "1 3 0 A -2 0", NULL,
     "N =2 -1;Z IA=@-5000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"no number", "SET N x", "slots_info N Z S | 0 10", "-WRONGTYPE", NULL,
     "N =x -1", "", PLAIN},
    {"a lock of that name", "HSET N A 1", "slots_info N Z S | 0 10",
     "-WRONGTYPE", NULL, "N A=1 -1", "", PLAIN},
};

static const struct row set_rows[] = {
    {"nobody has said how many", "", "slots_set N Z | 3 0 C", "-1", "3",
     "N =3 -1", "C=3 C=1 C=1", PLAIN},
    {"the number was lost, not the permits", "ZADD Z @60000 IA",
     "slots_set N Z | 3 0 C", "-1", "3", "N =2 -1;Z IA=@60000 -1", "C=2 C=1",
     PLAIN},
    {"more", "SET N 2;ZADD Z @60000 IA", "slots_set N Z | 5 0 C", "3", "5",
     "N =4 -1;Z IA=@60000 -1", "C=4 C=1", PLAIN},
    {"fewer", "SET N 3", "slots_set N Z | 1 0 C", "3", "1", "N =1 -1", "",
     PLAIN},
    {"fewer than are out", "SET N 1;ZADD Z @60000 IA @60000 IB",
     "slots_set N Z | 1 0 C", "3", "1", "N =-1 -1;Z IA=@60000 IB=@60000 -1", "",
     PLAIN},
    {"more, but still below zero", "SET N -3;ZADD Z @60000 IA",
     "slots_set N Z | 0 0 C", "-2", "0", "N =-1 -1;Z IA=@60000 -1", "", PLAIN},
    {"the same", "SET N 3", "slots_set N Z | 3 0 C", "3", "3", "N =3 -1", "",
     PLAIN},
    {"if nobody has: somebody has", "SET N 3", "slots_set N Z | 5 1 C", "3",
     "3", "N =3 -1", "", PLAIN},
    {"if nobody has", "", "slots_set N Z | 5 1 C", "-1", "5", "N =5 -1",
     "C=5 C=1 C=1 C=1 C=1", PLAIN},
    {"its end stays", "SET N 3 PX 100000", "slots_set N Z | 5 0 C", "3", "5",
     "N =5 ~100000", "C=5 C=1", PLAIN},
    {"no number", "SET N x", "slots_set N Z | 5 0 C", "-6", "-6", "N =x -1", "",
     PLAIN},
    {"full", "SET N 3", "slots_set N Z | 5 0 C", "-OOM", "-OOM", "N =3 -1", "",
     FULL},
};

static const struct row renew_rows[] = {
    {"out and not", "ZADD Z @9000 IA", "permit_renew Z Z | IA 30000 IB 30000",
     "10", "10", "Z IA~30000 -1", "", PLAIN},
    {"never shortens", "ZADD Z @60000 IA", "permit_renew Z | IA 30000", "1",
     "1", "Z IA=@60000 -1", "", PLAIN},
    {"it has ended", "ZADD Z @-1 IA", "permit_renew Z | IA 30000", "0", "0",
     "Z IA=@-1 -1", "", PLAIN},
    {"only to ask", "ZADD Z @9000 IA", "permit_renew Z | IA -1", "1", "1",
     "Z IA=@9000 -1", "", PLAIN},
    {"one list is something else", "ZADD Z @9000 IA;SET N 3",
     "permit_renew N Z | IA 30000 IA 30000", "e1", "e1",
     "Z IA~30000 -1;N =3 -1", "", PLAIN},
    {"names behind the arguments", "ZADD Z @9000 IA;SET N 3",
     "permit_renew | IA 30000 IA 30000 N Z", "m1", "m1",
     "Z IA~30000 -1;N =3 -1", "", PLAIN},
    {"full", "ZADD Z @9000 IA", "permit_renew Z | IA 30000", "1", "1",
     "Z IA~30000 -1", "", FULL},
};

/* What other clients of the same keys leave and see, by the numbers of the
 * protocol's golden vectors. Scores of theirs are by their own clocks. */
static const struct row vector_rows[] = {
    {"33: set, and one without an end", "SET N 3;ZADD Z " NEVER " J;DECR N",
     "slots_acquire N Z S | IA A 1 60000 3 1 C", "0/3", NULL,
     "N =1 -1;Z J=never IA~60000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"34: the last one", "", "slots_acquire N Z S | IB B 1 400 3 0 C", "1",
     NULL, "N =0 -1;Z J=never IA=any IB~400 -1;S 0=" SEAT_A " 1=" SEAT_B " -1",
     "", PLAIN},
    {"35: none is left", "", "slots_acquire N Z S | J2 X 1 30000 3 0 C", "~400",
     NULL, "N =0 -1;Z J=never IA=any IB=any -1;S 0=" SEAT_A " 1=" SEAT_B " -1",
     "", PLAIN},
    {"37: given back by another client", "ZREM Z IB;INCR N",
     "slots_release N Z S | IB 1 0 0 C", "-1", NULL,
     "N =1 -1;Z J=never IA=any -1;S 0=" SEAT_A " 1=" SEAT_B " -1", "", PLAIN},
    {"41: this one, too", "", "slots_release N Z S | IA 0 0 0 C", "2", NULL,
     "N =2 -1;Z J=never -1;S 1=" SEAT_B " -1", "C=2", PLAIN},
    {"anew 42: fewer than are out",
     "SET N 1;ZADD Z @-1500 J @-1500 J2;SET N -1",
     "slots_acquire N Z S | IA A 1 30000 1 0 C", "0", NULL,
     "N =0 -1;Z IA~30000 -1;S 0=" SEAT_A " -1", "", PLAIN},
    {"anew 44: both end together", "SET N 2 PX 100000",
     "slots_acquire N Z S | IA A 1 30000 2 0 C", "0", NULL,
     "N =1 ~100000;Z IA~30000 ~100000;S 0=" SEAT_A " ~100000", "", PLAIN},
    {"44: and still after more were made", "", "slots_set N Z | 3 0 C", "2",
     NULL, "N =2 ~100000;Z IA=any ~100000;S 0=" SEAT_A " ~100000", "C=2",
     PLAIN},
    {"anew 45: the number was deleted", "ZADD Z @60000 IA",
     "slots_release N Z S | IA 0 0 0 C", "1", NULL, "", "", PLAIN},
    {"anew 47: another client's, by its id", "SET N 1;ZADD Z @60000 J",
     "slots_force N Z S | " HEX_J " C", "1", NULL, "N =2 -1", "C=2", PLAIN},
};

#endif
