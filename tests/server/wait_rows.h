/* SPDX-License-Identifier: MIT
 *
 * wait_rows.h - how clients wait for a plain lock, be called and leave, as
 * tables; how to read them is in script_kit.h. The words, beside those of
 * script_rows.h:
 *
 *   W          the queue: the channels of clients that wait, the oldest first
 *   N          the listener: the client that listens to the lock's channel
 *   WA WB WC   channels of clients; somebody listens, so they live
 *   WX WY      the same; nobody listens: these clients are gone
 */
#ifndef DIBS_TESTS_WAIT_ROWS_H
#define DIBS_TESTS_WAIT_ROWS_H

#include "server/script_kit.h"

#define BUSY           "HSET L A 1;PEXPIRE L 600000;"
#define QUEUE(text)    "ZADD W " text ";PEXPIRE W 10000;"
#define LISTENER(who)  "SET N " who " PX 5000;"
#define ASK(mine, how) "mutex_acquire L | B 1 100000 C " mine " " how
#define FREED          "mutex_release L | A 0 0 C"
#define STAYS          "L A=1 ~600000;"

static const struct row wait_rows[] = {
    {"free", "", ASK("WB", "new"), "nil", "nil", "L B=1 ~100000", "", PLAIN},
    {"free, others wait: it may overtake", QUEUE("1 WA"), ASK("WB", "new"),
     "nil", "nil", "L B=1 ~100000;W WA=1 ~10000", "", PLAIN},
    {"free, called", QUEUE("1 WA"), ASK("WB", "called"), "nil", "nil",
     "L B=1 ~100000;W WA=1 ~10000", "", PLAIN},
    {"free, asks again: out of the queue", QUEUE("1 WA 2 WB"),
     ASK("WB", "again"), "nil", "nil", "L B=1 ~100000;W WA=1 ~10000", "",
     PLAIN},
    {"free, asks again: nobody called it, so the listener is gone",
     QUEUE("1 WA 2 WB") LISTENER("WA"), ASK("WB", "again"), "nil", "nil",
     "L B=1 ~100000;W WA=1 ~10000", "", PLAIN},
    {"free, a foreign release: the listener stays",
     QUEUE("1 WA 2 WB") LISTENER("WB"), ASK("WB", "foreign"), "nil", "nil",
     "L B=1 ~100000;W WA=1 ~10000;N string ~5000", "", PLAIN},
    {"free, asks again, the lease is refused: it keeps its place",
     QUEUE("1 WB"), "mutex_acquire L | B 1 9223372036854775807 C WB again",
     "-invalid", "-invalid", "W WB=1 ~10000", "", PLAIN},
    {"reply lost: it has it already", "HSET L B 1;PEXPIRE L 600000",
     ASK("WB", "new"), "nil", "nil", "L B=1 ~600000", "", PLAIN},

    {"busy: registered, and the listener", BUSY, ASK("WB", "new"), "~600000 3",
     "~600000 3", STAYS "W WB=1 ~10000;N string ~5000", "", PLAIN},
    {"busy: the second listens, too, so that one may go",
     BUSY QUEUE("1 WA") LISTENER("WA"), ASK("WB", "new"), "~600000 2", NULL,
     STAYS "W WA=1 WB=2 ~10000;N string ~5000", "", PLAIN},
    {"busy: the third does not", BUSY QUEUE("1 WA 2 WC") LISTENER("WA"),
     ASK("WB", "new"), "~600000 1", "~600000 1",
     STAYS "W WA=1 WC=2 WB=3 ~10000;N string ~5000", "", PLAIN},
    {"busy, the listener is gone: the next to ask is it",
     BUSY QUEUE("1 WA 2 WB 3 WC"), ASK("WB", "again"), "~600000 3", NULL,
     STAYS "W WA=1 WB=2 WC=3 ~10000;N string ~5000", "", PLAIN},
    {"busy, asks again: its place, not the end",
     BUSY QUEUE("1 WB 2 WA 3 WC") LISTENER("WA"), ASK("WB", "again"),
     "~600000 1", "~600000 1", STAYS "W WB=1 WA=2 WC=3 ~10000;N string ~5000",
     "", PLAIN},
    {"busy, asks again, and the queue was lost", BUSY LISTENER("WA"),
     ASK("WB", "again"), "~600000 2", "~600000 2",
     STAYS "W WB=1 ~10000;N string ~5000", "", PLAIN},
    {"busy, called, another one was faster: to the front",
     BUSY QUEUE("5 WA 6 WC") LISTENER("WA"), ASK("WB", "called"), "~600000 1",
     "~600000 1", STAYS "W WB=4 WA=5 WC=6 ~10000;N string ~5000", "", PLAIN},
    {"busy, called, and nobody else waits", BUSY, ASK("WB", "called"),
     "~600000 3", "~600000 3", STAYS "W WB=1 ~10000;N string ~5000", "", PLAIN},
    {"busy, the listener asks again: it stays the listener",
     BUSY QUEUE("1 WB 2 WA 3 WC") "SET N WB PX 1000", ASK("WB", "again"),
     "~600000 3", "~600000 3", STAYS "W WB=1 WA=2 WC=3 ~10000;N string ~5000",
     "", PLAIN},
    {"busy, another one is the listener",
     BUSY QUEUE("1 WB 2 WA 3 WC") "SET N WA PX 1000", ASK("WB", "again"),
     "~600000 1", "~600000 1", STAYS "W WB=1 WA=2 WC=3 ~10000;N string ~1000",
     "", PLAIN},
    {"free, a foreign release: out of the queue", QUEUE("1 WA 2 WB"),
     ASK("WB", "foreign"), "nil", "nil", "L B=1 ~100000;W WA=1 ~10000", "",
     PLAIN},
    {"busy after a foreign release: all are to listen",
     BUSY QUEUE("1 WB 2 WA 3 WC") "SET N WB PX 1000", ASK("WB", "foreign"),
     "~600000 3", "~600000 3", STAYS "W WB=1 WA=2 WC=3 ~10000;N string ~5000",
     "", PLAIN},
    {"busy, all are to listen, but not longer than that",
     BUSY QUEUE("1 WA 2 WC 3 WB") "SET N all PX 1000", ASK("WB", "again"),
     "~600000 2", "~600000 2", STAYS "W WA=1 WC=2 WB=3 ~10000;N string ~1000",
     "", PLAIN},
    {"busy, a lock without a lease", "HSET L A 1", ASK("WB", "new"), "-1 3",
     NULL, "L A=1 -1;W WB=1 ~10000;N string ~5000", "", PLAIN},
    {"data of an application", "HSET L name bob", ASK("WB", "new"), "-6", "-6",
     "L name=bob -1", "", PLAIN},
    {"a read-write lock", "HSET L mode read A 1", ASK("WB", "called"), "-6",
     "-6", "L mode=read A=1 -1", "", PLAIN},
    {"busy, a score is inf", BUSY "ZADD W inf WA", ASK("WB", "new"),
     "~600000 3", "~600000 3", STAYS "W WA=inf WB=inf any;N string ~5000", "",
     PLAIN},
    {"busy, the queue's key is something else", BUSY "SET W x",
     ASK("WB", "new"), "~600000 0", "~600000 0", STAYS "W string -1", "",
     PLAIN},
    {"busy, the listener's key is something else", BUSY "HSET N x 1",
     ASK("WB", "again"), "~600000 2", "~600000 2",
     STAYS "W WB=1 ~10000;N x=1 -1", "", PLAIN},
    {"full, busy: not registered", BUSY, ASK("WB", "new"), "~600000 0",
     "~600000 0", STAYS, "", FULL},
    {"full, busy, it is registered", BUSY QUEUE("1 WB"), ASK("WB", "again"),
     "~600000 0", "~600000 0", STAYS "W WB=1 ~10000", "", FULL},
    {"no right to expire: not registered", BUSY, ASK("WB", "new"), "~600000 0",
     "~600000 0", STAYS, "", NO_PEXPIRE},
    {"no right to the queue: not registered", BUSY, ASK("WB", "new"),
     "~600000 0", "~600000 0", STAYS, "", NO_SET},
};

static const struct row call_rows[] = {
    {"a release calls the first, and tells the listener",
     BUSY QUEUE("1 WA 2 WB"), FREED, "3", "-1", "W WB=2 ~10000",
     "C=0 WA=order C=2", PLAIN},
    {"the last one", BUSY QUEUE("1 WA"), FREED, "3", "-1", "",
     "C=0 WA=order C=2", PLAIN},
    {"clients that are gone are passed over", BUSY QUEUE("1 WX 2 WY 3 WB"),
     FREED, "3", "-1", "", "C=0 WB=order C=2", PLAIN},
    {"all are gone", BUSY QUEUE("1 WX 2 WY") LISTENER("WX"), FREED, "1", "-1",
     "N string ~5000", "C=0 C=2", PLAIN},
    {"only the listener hears: nobody is woken", BUSY LISTENER("WA"), FREED,
     "1", "-1", "N string ~5000", "C=0 C=2", PLAIN},
    {"nobody hears on the lock's channel: the first is called all the same",
     "HSET M A 1;PEXPIRE M 100000;ZADD WM 1 WA 2 WB",
     "mutex_release M | A 0 0 D", "2", "-1", "WM WB=2 -1", "WA=a:{7}", PLAIN},
    {"nobody can tell who hears: the first is called",
     "HSET M A 1;PEXPIRE M 100000;ZADD WM 1 WX 2 WA",
     "mutex_release M | A 0 0 D publish", "2", "-1", "WM WA=2 -1", "", PLAIN},
    {"held once less: nobody is called",
     "HSET L A 2;PEXPIRE L 600000;" QUEUE("1 WA"), "mutex_release L | A 1 0 C",
     "0", "0", "L A=1 ~600000;W WA=1 ~10000", "", PLAIN},
    {"kept: nobody is called", BUSY QUEUE("1 WA"),
     "mutex_release L | A 0 100000 C", "1", "1", "L A=1 ~100000;W WA=1 ~10000",
     "C=0", PLAIN},
    {"not held: nobody is called", QUEUE("1 WA"), FREED, "-1", "-1",
     "W WA=1 ~10000", "", PLAIN},
    {"the queue's key is something else", BUSY "SET W x", FREED, "2", "-1",
     "W string -1", "C=0", PLAIN},
    {"full", BUSY QUEUE("1 WA"), FREED, "3", "-1", "", "C=0 WA=order C=2",
     FULL},
    {"no right to publish", BUSY QUEUE("1 WA"), FREED, "1", "-1",
     "W WA=1 ~10000", "", NO_CHANNEL},
    {"no right to the queue", BUSY QUEUE("1 WA"), FREED, "2", "-1",
     "W WA=1 ~10000", "C=0", NO_SET},
    {"a hold is ended", BUSY QUEUE("1 WA"), "mutex_force L | A C", "1", "0", "",
     "C=0 WA=order C=2", PLAIN},
};

#define LEAVE(mine) "wait_leave L | C " mine " 0"
#define STOP(mine)  "wait_leave L | C " mine " 1"

static const struct row leave_rows[] = {
    {"busy: out of the queue", BUSY QUEUE("1 WA 2 WB"), LEAVE("WA"), "0", "0",
     STAYS "W WB=2 ~10000", "", PLAIN},
    {"busy, not in it", BUSY QUEUE("1 WA"), LEAVE("WB"), "0", "0",
     STAYS "W WA=1 ~10000", "", PLAIN},
    {"busy, it listened for all: the next one is called",
     BUSY QUEUE("1 WA 2 WB") LISTENER("WA"), STOP("WA"), "1", "0",
     "L A=1 ~600000", "WB=order C=2", PLAIN},
    {"free, it listened for all: two are called, one may get it",
     QUEUE("1 WA 2 WB 3 WC") LISTENER("WA"), STOP("WA"), "2", "0", "",
     "WB=order C=2 WC=order C=2", PLAIN},
    {"free, it listened for all, one is left",
     QUEUE("1 WA 2 WB") LISTENER("WA"), STOP("WA"), "1", "0", "",
     "WB=order C=2", PLAIN},
    {"busy, it goes on listening", BUSY QUEUE("1 WA 2 WB") LISTENER("WA"),
     LEAVE("WA"), "0", "0", STAYS "W WB=2 ~10000;N string ~5000", "", PLAIN},
    {"busy, another one listens", BUSY QUEUE("1 WA 2 WB") LISTENER("WB"),
     STOP("WA"), "0", "0", STAYS "W WB=2 ~10000;N string ~5000", "", PLAIN},
    {"free: the next one is called", QUEUE("1 WA 2 WB 3 WC"), LEAVE("WA"), "1",
     NULL, "W WC=3 ~10000", "WB=order C=2", PLAIN},
    {"free, it was called: the next one is", QUEUE("2 WB"), LEAVE("WA"), "1",
     "0", "", "WB=order C=2", PLAIN},
    {"free, nobody waits", "", LEAVE("WA"), "0", "0", "", "", PLAIN},
    {"free, those who wait are gone", QUEUE("1 WX 2 WY"), LEAVE("WA"), "0", "0",
     "", "", PLAIN},
    {"full", QUEUE("1 WA 2 WB"), LEAVE("WA"), "1", "0", "", "WB=order C=2",
     FULL},
    {"no right to publish", QUEUE("1 WA 2 WB"), LEAVE("WA"), "1", "0", "", "",
     NO_CHANNEL},
    {"no right to the queue", QUEUE("1 WA"), LEAVE("WA"), "0", "0",
     "W WA=1 ~10000", "", NO_SET},
};

#endif
