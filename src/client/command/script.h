/* SPDX-License-Identifier: MIT
 *
 * script.h - the Lua scripts, as they are in lua/, embedded by the build.
 */
#ifndef DIBS_CLIENT_COMMAND_SCRIPT_H
#define DIBS_CLIENT_COMMAND_SCRIPT_H

#include "base/buf.h"
#include "base/error_text.h"
#include "net/resp_reply.h"
#include "net/url.h"

#include <stdbool.h>
#include <stddef.h>

struct dibs__script {
    const char *name;
    const char *sha; /* 40 hex digits, as the server makes them */
    const char *src;
    size_t len;
};

extern const struct dibs__script dibs__script_mutex_acquire;
extern const struct dibs__script dibs__script_mutex_force;
extern const struct dibs__script dibs__script_mutex_handover;
extern const struct dibs__script dibs__script_mutex_info;
extern const struct dibs__script dibs__script_mutex_release;
extern const struct dibs__script dibs__script_mutex_renew;
extern const struct dibs__script dibs__script_fair_acquire;
extern const struct dibs__script dibs__script_fair_info;
extern const struct dibs__script dibs__script_fair_leave;
extern const struct dibs__script dibs__script_fair_release;
extern const struct dibs__script dibs__script_fenced_acquire;
extern const struct dibs__script dibs__script_fenced_handover;
extern const struct dibs__script dibs__script_fenced_info;
extern const struct dibs__script dibs__script_holders;
extern const struct dibs__script dibs__script_latch_down;
extern const struct dibs__script dibs__script_latch_look;
extern const struct dibs__script dibs__script_latch_set;
extern const struct dibs__script dibs__script_multi_acquire;
extern const struct dibs__script dibs__script_multi_release;
extern const struct dibs__script dibs__script_object_info;
extern const struct dibs__script dibs__script_permit_renew;
extern const struct dibs__script dibs__script_read_acquire;
extern const struct dibs__script dibs__script_read_force;
extern const struct dibs__script dibs__script_read_release;
extern const struct dibs__script dibs__script_read_renew;
extern const struct dibs__script dibs__script_semaphore_acquire;
extern const struct dibs__script dibs__script_semaphore_add;
extern const struct dibs__script dibs__script_semaphore_drain;
extern const struct dibs__script dibs__script_semaphore_force;
extern const struct dibs__script dibs__script_semaphore_info;
extern const struct dibs__script dibs__script_semaphore_release;
extern const struct dibs__script dibs__script_semaphore_renew;
extern const struct dibs__script dibs__script_semaphore_set;
extern const struct dibs__script dibs__script_slots_acquire;
extern const struct dibs__script dibs__script_slots_force;
extern const struct dibs__script dibs__script_slots_handover;
extern const struct dibs__script dibs__script_slots_info;
extern const struct dibs__script dibs__script_slots_leave;
extern const struct dibs__script dibs__script_slots_release;
extern const struct dibs__script dibs__script_slots_set;
extern const struct dibs__script dibs__script_value_drop;
extern const struct dibs__script dibs__script_value_get;
extern const struct dibs__script dibs__script_value_set;
extern const struct dibs__script dibs__script_write_acquire;
extern const struct dibs__script dibs__script_write_leave;
extern const struct dibs__script dibs__script_wait_leave;
extern const struct dibs__script dibs__script_write_release;

extern const struct dibs__script *const dibs__scripts[]; /* ended by NULL */

/* The server's own words without the digest and line of the script, and with
 * the command that failed, if the error names its line, as " (hset)": most
 * servers say that a right is missing, but not which. single: the URL, unless
 * it is of a cluster; behind it may be a sentinel, or a node of a cluster. */
void dibs__script_words(const char *error, const struct dibs__url *single,
                        char out[DIBS__REASON_MAX]);

/* The head of a call of the script, with that many KEYS and ARGV to follow;
 * command.c adds the number of the sending (lua/lib/around.lua). whole: with
 * its text, for a server that does not know it. */
void dibs__script_head(struct dibs__buf *out, const struct dibs__script *script,
                       bool whole, size_t keys, size_t args);
/* What the script gave to the sending of that number, maybe in *room; an error
 * as it is. NULL: the reply is not the answer to that sending. */
const struct dibs__reply *dibs__script_result(const struct dibs__reply *reply,
                                              unsigned number,
                                              struct dibs__reply *room);

#endif
