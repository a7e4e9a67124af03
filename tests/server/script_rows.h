/* SPDX-License-Identifier: MIT
 *
 * script_rows.h - what each script of the plain lock does, as tables.
 *
 * In the tables these words stand for others:
 *
 *   A, B   two owners         L, C   a lock and its channel; somebody listens
 *                             M, D   another lock and its channel; nobody does
 *
 * A call is the script, its keys, a bar, its arguments. A reply is a number, a
 * string, "nil", "-TEXT" for an error with that text in it ("-any" for any
 * text), or several of these for an array; ~N is a number that was N a moment
 * ago and has been falling since. A state is "KEY FIELD=VALUE ... TTL" for
 * each key, or "KEY string"; a key that is not named must not exist, so
 * nothing is left behind unnoticed.
 */
#ifndef DIBS_TESTS_SCRIPT_ROWS_H
#define DIBS_TESTS_SCRIPT_ROWS_H

#include <stddef.h>

/* Under which circumstances a call is made. */
enum how {
    PLAIN,
    FULL,       /* the server has no memory left */
    NO_PEXPIRE, /* by a user who may not set an expiry */
    NO_CHANNEL  /* by a user who may not publish */
};

struct row {
    const char *name;
    const char *before; /* commands, ';' between them */
    const char *call;
    const char *reply;
    const char *again; /* the reply when sent a second time; NULL = not sent */
    const char *after; /* states, ';' between them */
    int told;          /* messages on C */
    enum how how;
};

#define HELD(ttl) "HSET L A 1;PEXPIRE L " ttl
#define TOO_LONG  "9223372036854775807" /* no server can count that far */

static const struct row acquire_rows[] = {
    {"free", "", "basic_acquire L | A 1 30000", "nil", "nil", "L A=1 ~30000", 0,
     PLAIN},
    {"busy", HELD("600000"), "basic_acquire L | B 1 100000", "~600000",
     "~600000", "L A=1 ~600000", 0, PLAIN},
    {"busy, without a lease", "HSET L A 1", "basic_acquire L | B 1 100000",
     "-1", "-1", "L A=1 -1", 0, PLAIN},
    {"re-entry lengthens", HELD("100000"), "basic_acquire L | A 2 600000",
     "nil", "nil", "L A=2 ~600000", 0, PLAIN},
    {"re-entry never shortens", HELD("600000"), "basic_acquire L | A 2 100000",
     "nil", "nil", "L A=2 ~600000", 0, PLAIN},
    {"re-entry gives a lease", "HSET L A 1", "basic_acquire L | A 2 100000",
     "nil", "nil", "L A=2 ~100000", 0, PLAIN},
    {"reply lost, sent again later", HELD("100000"),
     "basic_acquire L | A 1 600000", "nil", "nil", "L A=1 ~600000", 0, PLAIN},
    {"many holds", "HSET L A 999999;PEXPIRE L 100000",
     "basic_acquire L | A 1000000 600000", "nil", "nil", "L A=1000000 ~600000",
     0, PLAIN},
    {"outer hold gone", "", "basic_acquire L | A 2 100000", "-3", "-3", "", 0,
     PLAIN},
    {"outer hold gone, somebody else has it", "HSET L B 1;PEXPIRE L 600000",
     "basic_acquire L | A 3 100000", "-3", "-3", "L B=1 ~600000", 0, PLAIN},
    {"not a lock", "SET L x", "basic_acquire L | A 1 100000", "-WRONGTYPE",
     "-WRONGTYPE", "L string", 0, PLAIN},
    {"lease refused, free", "", "basic_acquire L | A 1 " TOO_LONG, "-invalid",
     "-invalid", "", 0, PLAIN},
    {"lease refused, re-entry", HELD("100000"),
     "basic_acquire L | A 2 " TOO_LONG, "-invalid", "-invalid", "L A=1 ~100000",
     0, PLAIN},
    {"full, free", "", "basic_acquire L | A 1 100000", "-OOM", "-OOM", "", 0,
     FULL},
    {"full, busy", HELD("600000"), "basic_acquire L | B 1 100000", "~600000",
     "~600000", "L A=1 ~600000", 0, FULL},
    {"full, re-entry", HELD("100000"), "basic_acquire L | A 2 600000", "-OOM",
     "-OOM", "L A=1 ~100000", 0, FULL},
    {"no right to expire, free", "", "basic_acquire L | A 1 100000", "-any",
     "-any", "", 0, NO_PEXPIRE},
    {"no right to expire, busy", HELD("600000"), "basic_acquire L | B 1 100000",
     "~600000", "~600000", "L A=1 ~600000", 0, NO_PEXPIRE},
    {"no right to expire, re-entry", HELD("100000"),
     "basic_acquire L | A 2 600000", "-any", "-any", "L A=1 ~100000", 0,
     NO_PEXPIRE},
    {"no right to expire, no need to", HELD("600000"),
     "basic_acquire L | A 2 100000", "nil", "nil", "L A=2 ~600000", 0,
     NO_PEXPIRE},
    {"right taken away between two sendings", HELD("100000"),
     "basic_acquire L | A 1 600000", "-any", "-any", "", 0, NO_PEXPIRE},
};

static const struct row release_rows[] = {
    {"last hold", HELD("100000"), "basic_release L | A 0 0 C", "2", "-1", "", 1,
     PLAIN},
    {"last hold, nobody listens", "HSET M A 1;PEXPIRE M 100000",
     "basic_release M | A 0 0 D", "1", "-1", "", 0, PLAIN},
    {"all holds at once", "HSET L A 3;PEXPIRE L 100000",
     "basic_release L | A 0 0 C", "2", "-1", "", 1, PLAIN},
    {"once less", "HSET L A 2;PEXPIRE L 600000", "basic_release L | A 1 0 C",
     "0", "0", "L A=1 ~600000", 0, PLAIN},
    {"once less, to be kept", "HSET L A 2;PEXPIRE L 600000",
     "basic_release L | A 1 100000 C", "0", "0", "L A=1 ~600000", 0, PLAIN},
    {"never held", "", "basic_release L | A 0 0 C", "-1", "-1", "", 0, PLAIN},
    {"somebody else's", HELD("100000"), "basic_release L | B 0 0 C", "-1", "-1",
     "L A=1 ~100000", 0, PLAIN},
    {"somebody else's, once less", HELD("100000"), "basic_release L | B 1 0 C",
     "-1", "-1", "L A=1 ~100000", 0, PLAIN},
    {"somebody else's, to be kept", HELD("600000"),
     "basic_release L | B 0 100000 C", "-1", "-1", "L A=1 ~600000", 0, PLAIN},
    {"kept", HELD("600000"), "basic_release L | A 0 100000 C", "1", "1",
     "L A=1 ~100000", 0, PLAIN},
    {"kept for longer than it had", HELD("100000"),
     "basic_release L | A 0 600000 C", "1", "1", "L A=1 ~600000", 0, PLAIN},
    {"not a lock", "SET L x", "basic_release L | A 0 0 C", "-WRONGTYPE",
     "-WRONGTYPE", "L string", 0, PLAIN},
    {"full, last hold", HELD("100000"), "basic_release L | A 0 0 C", "2", "-1",
     "", 1, FULL},
    {"full, kept", HELD("600000"), "basic_release L | A 0 100000 C", "1", "1",
     "L A=1 ~100000", 0, FULL},
    {"full, once less", "HSET L A 2;PEXPIRE L 600000",
     "basic_release L | A 1 0 C", "-OOM", "-OOM", "L A=2 ~600000", 0, FULL},
    {"no right to publish", HELD("100000"), "basic_release L | A 0 0 C", "1",
     "-1", "", 0, NO_CHANNEL},
    {"no right to expire", HELD("100000"), "basic_release L | A 0 0 C", "2",
     "-1", "", 1, NO_PEXPIRE},
    {"no right to expire, kept", HELD("600000"),
     "basic_release L | A 0 100000 C", "-any", "-any", "L A=1 ~600000", 0,
     NO_PEXPIRE},
};

static const struct row renew_rows[] = {
    {"held and absent", HELD("100000"), "basic_renew L M | A 600000 A 600000",
     "10", "10", "L A=1 ~600000", 0, PLAIN},
    {"each its own owner and lease",
     "HSET L A 1;PEXPIRE L 100000;HSET M B 2;PEXPIRE M 100000",
     "basic_renew L M | A 600000 B 300000", "11", "11",
     "L A=1 ~600000;M B=2 ~300000", 0, PLAIN},
    {"never shortens", HELD("600000"), "basic_renew L | A 100000", "1", "1",
     "L A=1 ~600000", 0, PLAIN},
    {"gives a lease", "HSET L A 1", "basic_renew L | A 100000", "1", "1",
     "L A=1 ~100000", 0, PLAIN},
    {"somebody else's", HELD("100000"), "basic_renew L | B 600000", "0", "0",
     "L A=1 ~100000", 0, PLAIN},
    {"one key is no lock",
     "HSET L A 1;PEXPIRE L 100000;SET x x;HSET M A 1;PEXPIRE M 100000",
     "basic_renew L x M | A 600000 A 600000 A 600000", "1e1", "1e1",
     "L A=1 ~600000;x string;M A=1 ~600000", 0, PLAIN},
    {"one lease is refused",
     "HSET L A 1;PEXPIRE L 100000;HSET M A 1;PEXPIRE M 100000",
     "basic_renew L M | A " TOO_LONG " A 600000", "e1", "e1",
     "L A=1 ~100000;M A=1 ~600000", 0, PLAIN},
    {"full", HELD("100000"), "basic_renew L | A 600000", "1", "1",
     "L A=1 ~600000", 0, FULL},
    {"no right to expire", HELD("100000"), "basic_renew L | A 600000", "e", "e",
     "L A=1 ~100000", 0, NO_PEXPIRE},
};

static const struct row handover_rows[] = {
    {"from one to the next", HELD("100000"), "basic_handover L | A B 600000",
     "1", "1", "L B=1 ~600000", 0, PLAIN},
    {"a new owner has a lease of its own", HELD("600000"),
     "basic_handover L | A B 100000", "1", "1", "L B=1 ~100000", 0, PLAIN},
    {"done before, never shortens", "HSET L B 1;PEXPIRE L 600000",
     "basic_handover L | A B 100000", "1", "1", "L B=1 ~600000", 0, PLAIN},
    {"gives a lease", "HSET L A 1", "basic_handover L | A B 100000", "1", "1",
     "L B=1 ~100000", 0, PLAIN},
    {"done before, held more often since", "HSET L B 2;PEXPIRE L 100000",
     "basic_handover L | A B 600000", "1", "1", "L B=2 ~600000", 0, PLAIN},
    {"nothing to hand over", "", "basic_handover L | A B 100000", "-1", "-1",
     "", 0, PLAIN},
    {"somebody else has it", "HSET L X 1;PEXPIRE L 600000",
     "basic_handover L | A B 100000", "-1", "-1", "L X=1 ~600000", 0, PLAIN},
    {"somebody else has it, shorter", "HSET L X 1;PEXPIRE L 100000",
     "basic_handover L | A B 600000", "-1", "-1", "L X=1 ~100000", 0, PLAIN},
    {"not a lock", "SET L x", "basic_handover L | A B 100000", "-WRONGTYPE",
     "-WRONGTYPE", "L string", 0, PLAIN},
    {"lease refused", HELD("100000"), "basic_handover L | A B " TOO_LONG,
     "-invalid", "-invalid", "L A=1 ~100000", 0, PLAIN},
    {"full", HELD("600000"), "basic_handover L | A B 100000", "1", "1",
     "L B=1 ~100000", 0, FULL},
    {"no right to expire", HELD("100000"), "basic_handover L | A B 600000",
     "-any", "-any", "L A=1 ~100000", 0, NO_PEXPIRE},
};

static const struct row force_rows[] = {
    {"its holder", "HSET L A 3;PEXPIRE L 100000", "basic_force L | A C", "1",
     "0", "", 1, PLAIN},
    {"another holder", HELD("100000"), "basic_force L | B C", "0", "0",
     "L A=1 ~100000", 0, PLAIN},
    {"no holder", "", "basic_force L | A C", "0", "0", "", 0, PLAIN},
    {"not a lock", "SET L x", "basic_force L | A C", "-WRONGTYPE", "-WRONGTYPE",
     "L string", 0, PLAIN},
    {"full", HELD("100000"), "basic_force L | A C", "1", "0", "", 1, FULL},
    {"no right to publish", HELD("100000"), "basic_force L | A C", "1", "0", "",
     0, NO_CHANNEL},
};

static const struct row info_rows[] = {
    {"free", "", "basic_info L |", "-2 0 0", "-2 0 0", "", 0, PLAIN},
    {"held", "HSET L A 2;PEXPIRE L 100000", "basic_info L |", "~100000 1 0 A 2",
     "~100000 1 0 A 2", "L A=2 ~100000", 0, PLAIN},
    {"without a lease", "HSET L A 1", "basic_info L |", "-1 1 0 A 1",
     "-1 1 0 A 1", "L A=1 -1", 0, PLAIN},
    {"several fields", "HSET L A 2 B 1;PEXPIRE L 100000", "basic_info L |",
     "~100000 2 0 A 2 B 1", NULL, "L A=2 B=1 ~100000", 0, PLAIN},
    {"not a lock", "SET L x", "basic_info L |", "-WRONGTYPE", NULL, "L string",
     0, PLAIN},
    {"full", HELD("100000"), "basic_info L |", "~100000 1 0 A 1", NULL,
     "L A=1 ~100000", 0, FULL},
};

/* What other clients of the same keys leave and see, by the numbers of the
 * protocol's golden vectors. */
static const struct row vector_rows[] = {
    {"1: A takes it", "", "basic_acquire L | A 1 30000", "nil", NULL,
     "L A=1 ~30000", 0, PLAIN},
    {"1: A again", "", "basic_acquire L | A 2 30000", "nil", NULL,
     "L A=2 ~30000", 0, PLAIN},
    {"1: B", "", "basic_acquire L | B 1 30000", "~30000", NULL, "L A=2 ~30000",
     0, PLAIN},
    {"2: A once less, and no latch", "", "basic_release L | A 1 0 C", "0", NULL,
     "L A=1 ~30000", 0, PLAIN},
    {"18: held and absent", "", "basic_renew L M | A 30000 A 30000", "10", NULL,
     "L A=1 ~30000", 0, PLAIN},
    {"a count raised by another client of A's", "HINCRBY L A 1",
     "basic_release L | A 1 0 C", "0", NULL, "L A=1 ~30000", 0, PLAIN},
    {"the last, as everybody does it", "", "basic_release L | A 0 0 C", "2",
     NULL, "", 1, PLAIN},
    {"B", "", "basic_acquire L | B 1 30000", "nil", NULL, "L B=1 ~30000", 0,
     PLAIN},
};

#endif
