/* SPDX-License-Identifier: MIT
 *
 * rw_wait_rows.h - how clients wait for a write lock and are called, as tables;
 * how to read them is in script_kit.h. The words, beside those of rw_rows.h:
 *
 *   W          the queue: the channels of clients that wait, the oldest first
 *   N          the listener: the client that listens to the lock's channel
 *   WA WB      channels of clients; somebody listens, so they live
 *   WX         the same; nobody listens: this client is gone
 *
 * Readers are not in the queue: all of them listen to the lock's channel.
 */
#ifndef DIBS_TESTS_RW_WAIT_ROWS_H
#define DIBS_TESTS_RW_WAIT_ROWS_H

#include "server/rw_rows.h"

#define WAITERS(text)      ";ZADD W " text ";PEXPIRE W 10000"
#define WRITE_OR_WAIT(how) "write_acquire L P G | A 1 30000 2500 H T C WA " how

static const struct row rw_wait_rows[] = {
    {"free", "", WRITE_OR_WAIT("new"), "nil", "nil", "L mode=write AW=1 ~30000",
     "", PLAIN},
    {"free, called", "SET G BW PX 2500", WRITE_OR_WAIT("called"), "nil", "nil",
     "L mode=write AW=1 ~30000", "", PLAIN},
    {"free, asks again: out of the queue", "ZADD W 1 WA 2 WB",
     WRITE_OR_WAIT("again"), "nil", "nil",
     "L mode=write AW=1 ~30000;W WB=2 any", "", PLAIN},
    {"free, asks again, the lease is refused: it keeps its place",
     "ZADD W 1 WA", "write_acquire L P G | A 1 " TOO_LONG " 0 H T C WA again",
     "-invalid", "-invalid", "W WA=1 any", "", PLAIN},
    {"a writer has it", B_WRITES("60000"), WRITE_OR_WAIT("new"), "~60000 3",
     "~60000 3",
     "L mode=write BW=1 ~60000;G string ~2500;W WA=1 ~10000;N string ~5000", "",
     PLAIN},
    {"readers have it", B_READS("60000") WAITERS("1 WB 2 WX") ";SET N WB",
     WRITE_OR_WAIT("new"), "~60000 1", "~60000 1",
     "L mode=read B=1 ~60000;Q string ~60000;G string ~2500;"
     "W WB=1 WX=2 WA=3 ~10000;N string -1",
     "", PLAIN},
    {"readers were faster than the one that was called: to the front",
     B_READS("60000") WAITERS("1 WB 2 WX") ";SET N WB", WRITE_OR_WAIT("called"),
     "~60000 1", "~60000 1",
     "L mode=read B=1 ~60000;Q string ~60000;G string ~2500;"
     "W WA=0 WB=1 WX=2 ~10000;N string -1",
     "", PLAIN},
    {"it reads itself", A_READS("60000"), WRITE_OR_WAIT("new"), "-5", "-5",
     "L mode=read A=1 ~60000;P string ~60000", "", PLAIN},
    {"full: not registered", B_WRITES("60000"), WRITE_OR_WAIT("new"),
     "~60000 0", "~60000 0", "L mode=write BW=1 ~60000", "", FULL},

    {"a writer is done: readers are told, a writer is called",
     A_WRITES("60000") WAITERS("1 WX 2 WB"), UNWRITE("A", "0", "0"), "3", "-1",
     "", "C=1 C=0 WB=order C=2", PLAIN},
    {"a writer is done, and goes on reading",
     A_WRITES("60000") ";HSET L A 1;SET P 1 PX 60000" WAITERS("1 WB"),
     UNWRITE("A", "0", "0"), "3", "-1",
     "L mode=read A=1 ~60000;P string ~60000", "C=1 C=0 WB=order C=2", PLAIN},
    {"held once less", A_WRITES("60000") ";HSET L AW 2" WAITERS("1 WB"),
     UNWRITE("A", "1", "0"), "0", "0", "L mode=write AW=1 ~60000;W WB=1 ~10000",
     "", PLAIN},
    {"the last reader is done", A_READS("60000") WAITERS("1 WB"),
     UNREAD("A", "P", "0"), "3", "-1", "", "C=0 WB=order C=2", PLAIN},
    {"the last reader is done, another one is known that is not there",
     A_READS("60000") WAITERS("1 WB"), UNREAD_BY("A", "P", "0", "B"), "3", "-1",
     "", "C=0 WB=order C=2", PLAIN},
    {"a reader is done, another one is not",
     A_READS("60000") ";HSET L B 1;SET Q 1 PX 60000" WAITERS("1 WB"),
     UNREAD("A", "P", "0"), "1", "-1",
     "L mode=read B=1 ~60000;Q string ~60000;W WB=1 ~10000", "", PLAIN},
    {"a reader's hold is ended", A_READS("60000") WAITERS("1 WB"),
     "read_force L P C | A H T 0", "1", "0", "", "C=0 WB=order C=2", PLAIN},
    {"a writer's hold is ended", A_WRITES("60000") WAITERS("1 WB"),
     "write_leave L C G | A 1", "1", "0", "", "C=1 C=0 WB=order C=2", PLAIN},
    {"a writer that kept readers out waits no more",
     "SET G A PX 2500" WAITERS("1 WB"), "write_leave L C G | A 0", "0", "0", "",
     "C=1 C=0 WB=order C=2", PLAIN},
};

#endif
