/* SPDX-License-Identifier: MIT
 *
 * value_rows.h - the tables of test_value_scripts.c. What a row says is in
 * script_kit.h. L is the lock, V the value beside it; A and B are owners. A5hi
 * is the value "hi" of A with number 5, and so on; "V A5hi TTL" is the state of
 * a value. AW is A as a writer.
 */
#ifndef DIBS_TESTS_SERVER_VALUE_ROWS_H
#define DIBS_TESTS_SERVER_VALUE_ROWS_H

#include "server/sync_states.h"

#define HELD     "HSET L A 1;PEXPIRE L 60000"
#define HELD_NOW "L A=1 ~60000"
#define SET5     "value_set L V | A 5 hi 9000 C"
#define DROP5    "value_drop V | A 5"
#define GET      "value_get L V |"
#define SAID5    ";SET V A5hi PX 9000"
#define SAID_NOW ";V A5hi ~9000"
#define NO_VALUE NO_PEXPIRE /* by a user who may not read a value */

static const struct row set_rows[] = {
    {"free", "", SET5, "0", "0", "", "", PLAIN},
    {"somebody else has it", "HSET L B 1;PEXPIRE L 60000", SET5, "0", "0",
     "L B=1 ~60000", "", PLAIN},
    {"held", HELD, SET5, "1", "1", HELD_NOW ";V A5hi ~60000", "C=2", PLAIN},
    {"instead of an older one", HELD ";SET V A4old PX 100", SET5, "1", "1",
     HELD_NOW ";V A5hi ~60000", "C=2", PLAIN},
    {"the same again, for longer", HELD ";SET V A5hi PX 100", SET5, "1", "1",
     HELD_NOW ";V A5hi ~60000", "", PLAIN},
    {"a late copy of an older one", HELD ";SET V A6new PX 50000", SET5, "1",
     "1", HELD_NOW ";V A6new ~50000", "", PLAIN},
    {"instead of another owner's", HELD ";SET V B9x PX 50000", SET5, "1", "1",
     HELD_NOW ";V A5hi ~60000", "C=2", PLAIN},
    {"instead of a stranger's text", HELD ";SET V nonsense", SET5, "1", "1",
     HELD_NOW ";V A5hi ~60000", "C=2", PLAIN},
    {"taken back", HELD ";SET V A4old PX 100", "value_set L V | A 5 '' 9000 C",
     "1", "1", HELD_NOW ";V A5 ~60000", "C=2", PLAIN},
    {"with spaces", HELD, "value_set L V | A 5 spaced 9000 C", "1", "1",
     HELD_NOW ";V A5spaced ~60000", "C=2", PLAIN},
    {"a lock without an end", "HSET L A 1", SET5, "1", "1",
     "L A=1 -1;V A5hi ~9000", "C=2", PLAIN},
    {"a large number", HELD ";SET V A1700000000000001old PX 100",
     "value_set L V | A 1700000000000002 hi 9000 C", "1", "1",
     HELD_NOW ";V A1700000000000002hi ~60000", "C=2", PLAIN},
    {"no right to publish", HELD, SET5, "1", "1", HELD_NOW ";V A5hi ~60000", "",
     NO_CHANNEL},
    {"full", HELD, SET5, "-OOM", "-OOM", HELD_NOW, "", FULL},
    {"no right to set", HELD, SET5, "-any", NULL, HELD_NOW, "", NO_SET},
    {"the name is something else", "SET L x", SET5, "-WRONGTYPE", "-WRONGTYPE",
     "L x -1", "", PLAIN},
    {"the value is something else", HELD ";HSET V f v", SET5, "-WRONGTYPE",
     "-WRONGTYPE", HELD_NOW ";V f=v -1", "", PLAIN},
};

static const struct row drop_rows[] = {
    {"there is none", HELD, DROP5, "0", "0", HELD_NOW, "", PLAIN},
    {"its own", "SET V A5hi PX 9000", DROP5, "1", "0", "", "", PLAIN},
    {"an older one", "SET V A4old PX 9000", DROP5, "1", "0", "", "", PLAIN},
    {"late: there is a newer one", "SET V A6new PX 9000", DROP5, "0", "0",
     "V A6new ~9000", "", PLAIN},
    {"another owner's", "SET V B4x PX 9000", DROP5, "0", "0", "V B4x ~9000", "",
     PLAIN},
    {"a stranger's text", "SET V nonsense", DROP5, "0", "0", "V nonsense -1",
     "", PLAIN},
    {"full", "SET V A5hi PX 9000", DROP5, "1", "0", "", "", FULL},
    {"the value is something else", "HSET V f v", DROP5, "-WRONGTYPE",
     "-WRONGTYPE", "V f=v -1", "", PLAIN},
};

static const struct row get_rows[] = {
    {"nothing", "", GET, "", "", "", "", PLAIN},
    {"held, nothing published", HELD, GET, "", "", HELD_NOW, "", PLAIN},
    {"published", HELD ";SET V A5hi PX 9000", GET, "A hi", "A hi",
     HELD_NOW ";V A5hi ~9000", "", PLAIN},
    {"taken back", HELD ";SET V A5 PX 9000", GET, "A ''", "A ''",
     HELD_NOW ";V A5 ~9000", "", PLAIN},
    {"with spaces", HELD ";SET V A5spaced PX 9000", GET, "A spaced", "A spaced",
     HELD_NOW ";V A5spaced ~9000", "", PLAIN},
    {"the lock is free", "SET V A5hi PX 9000", GET, "", "", "V A5hi ~9000", "",
     PLAIN},
    {"another owner has it by now", "HSET L B 1;SET V A5hi PX 9000", GET, "",
     "", "L B=1 -1;V A5hi ~9000", "", PLAIN},
    {"a stranger's text", HELD ";SET V nonsense", GET, "", "",
     HELD_NOW ";V nonsense -1", "", PLAIN},
    {"full", HELD ";SET V A5hi PX 9000", GET, "A hi", "A hi",
     HELD_NOW ";V A5hi ~9000", "", FULL},
    {"the name is something else", "SET L x;SET V A5hi PX 9000", GET,
     "-WRONGTYPE", "-WRONGTYPE", "L x -1;V A5hi ~9000", "", PLAIN},
};

/* Scripts that look at a lock tell the number of its holder's value, last. */
static const struct row number_rows[] = {
    {"plain", HELD SAID5, "mutex_info L | V", "~60000 1 0 A 1 5", NULL,
     HELD_NOW SAID_NOW, "", PLAIN},
    {"fair", HELD SAID5, "fair_info L Q Z S | 0 9 V", "~60000 1 0 A 1 5", NULL,
     HELD_NOW SAID_NOW, "", PLAIN},
    {"fenced", HELD SAID5 ";SET K 7", "fenced_info L K | V", "~60000 1 7 A 1 5",
     NULL, HELD_NOW SAID_NOW ";K 7 -1", "", PLAIN},
    {"a writer", "HSET L mode write AW 1;SET V AW5hi PX 9000",
     "mutex_info L | V", "-1 2 0 mode write AW 1 5", NULL,
     "L mode=write AW=1 -1;V AW5hi ~9000", "", PLAIN},
    {"none", HELD, "mutex_info L | V", "~60000 1 0 A 1", NULL, HELD_NOW, "",
     PLAIN},
    {"taken back", HELD ";SET V A5 PX 9000", "mutex_info L | V",
     "~60000 1 0 A 1", NULL, HELD_NOW ";V A5 ~9000", "", PLAIN},
    {"not the holder's", HELD ";SET V B4x PX 9000", "mutex_info L | V",
     "~60000 1 0 A 1", NULL, HELD_NOW ";V B4x ~9000", "", PLAIN},
    {"free", "SET V A5hi PX 9000", "mutex_info L | V", "-2 0 0", NULL,
     "V A5hi ~9000", "", PLAIN},
    {"a stranger's text", HELD ";SET V nonsense", "mutex_info L | V",
     "~60000 1 0 A 1", NULL, HELD_NOW ";V nonsense -1", "", PLAIN},
    {"a stranger's number", HELD ";SET V Ahuge", "mutex_info L | V",
     "~60000 1 0 A 1", NULL, HELD_NOW ";V Ahuge -1", "", PLAIN},
    {"the value is something else", HELD ";HSET V f v", "mutex_info L | V",
     "~60000 1 0 A 1", NULL, HELD_NOW ";V f=v -1", "", PLAIN},
    {"no right to it", HELD SAID5, "mutex_info L | V", "~60000 1 0 A 1", NULL,
     HELD_NOW SAID_NOW, "", NO_VALUE},
    {"nobody asks", HELD SAID5, "mutex_info L |", "~60000 1 0 A 1", NULL,
     HELD_NOW SAID_NOW, "", PLAIN},
};

/* A hold that is ended by force takes its value along, and no other one. */
static const struct row ended_rows[] = {
    {"plain", HELD SAID5, "mutex_force L | A C", "1", "0", "", "C=0", PLAIN},
    {"fair", HELD SAID5, "fair_leave L Q Z S | A P 1 9000 5000", "1", NULL, "",
     "", PLAIN},
    {"a writer", "HSET L mode write AW 1;SET V AW5hi PX 9000",
     "write_leave L R G | A 1", "1", "0", "", "R=1 R=0", PLAIN},
    {"not that owner's", HELD ";SET V B4x PX 9000", "mutex_force L | A C", "1",
     "0", "V B4x ~9000", "C=0", PLAIN},
    {"not the holder", HELD SAID5, "mutex_force L | B C", "0", "0",
     HELD_NOW SAID_NOW, "", PLAIN},
    {"fair: only out of the queue", HELD SAID5,
     "fair_leave L Q Z S | A P 0 9000 5000", "0", "0", HELD_NOW SAID_NOW, "",
     PLAIN},
    {"a writer waits no more", "HSET L mode write AW 1;SET V AW5hi PX 9000",
     "write_leave L R G | A 0", "0", "0", "L mode=write AW=1 -1;V AW5hi ~9000",
     "", PLAIN},
    {"full", HELD SAID5, "mutex_force L | A C", "1", "0", "", "C=0", FULL},
    {"no right to it: it is left", HELD SAID5, "mutex_force L | A C", "1", "0",
     "V A5hi ~9000", "C=0", NO_VALUE},
    {"the value is something else", HELD ";HSET V f v", "mutex_force L | A C",
     "1", "0", "V f=v -1", "C=0", PLAIN},
};

#endif
