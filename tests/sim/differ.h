/* SPDX-License-Identifier: MIT
 *
 * differ.h - two servers that must say the same: a real one and the small one.
 *
 * Each has up to four connections, 1 to 4, opened when first used. What is
 * sent goes to both; then both replies are read and compared, byte for byte
 * unless a step says otherwise. The small one goes by the real clock here.
 *
 * A step is a line of words with spaces between them. `...` is one word; in it
 * \n, \r, \0 and \\ stand for themselves.
 *
 *     SET k v            on connection 1
 *     2> SUBSCRIBE c     on connection 2
 *     2< 3               three more messages there
 *     ~ PTTL k           numbers may differ by a minute: the clocks are two
 *     ? CLIENT ID        the same kind of reply, whatever is in it
 *     = KEYS *           elements in any order
 *     ! k                goes on when k has ended
 *     $id 2              from here on $id is the number of connection 2
 *     /                  connection 1 is closed, and opened again when needed;
 *                        2/ the second
 *     %                  the server closed connection 1; 2% the second
 */
#ifndef DIBS_SIM_DIFFER_H
#define DIBS_SIM_DIFFER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/redis.h"
#include "support/resp.h"
#include "support/server.h"
#include "support/util.h"

struct df_pair {
    struct ts_server *real;
    struct sr_server *small;
};

/* The first has connections 1 and 2, and 3 and 4 unless there is a second. */
extern struct df_pair df_first, df_second;

struct df_pair df_start(const char *const *extra, bool cluster);
struct df_pair df_start_sentinel(const char *lines);
/* A first pair, and its end, the second's included. */
int df_up(void **state);
int df_down(void **state);
/* Is the real one of the version that the small one was written after? */
bool df_comparable(void);

/* The first pair is emptied, connections are closed. */
void df_begin(void);
/* what: for the message of a failure. */
void df_step(const char *what, const char *line);
/* Many steps at once, which is quicker: sent and compared by df_flush. Only
 * commands on connection 1, and ~ ? = before them. */
void df_later(const char *line);
void df_flush(const char *what);
/* Fails the test if anything differed; each difference was shown. */
void df_end(void);
/* All sequences of a file in this folder; how many steps there were. A line
 * "@ text" is for the test itself. Ends with df_end. */
int df_file(const char *file, void (*special)(const char *text));
/* All keys, what they hold, how long they live. */
void df_compare_keys(const char *what);

#endif
