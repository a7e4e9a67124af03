/* SPDX-License-Identifier: MIT
 *
 * script.h - the Lua scripts of lua/, embedded by the build, and their calls.
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
    const char *sha; /* SHA-1 for EVALSHA, 40 hex digits */
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

/* Formats an error reply for a user: the server's text, without the script's
 * digest and line. If the error names a line, the Redis command in that line is
 * appended, as in " (hset)": most servers do not name the command that lacks a
 * permission. single: the URL of a single server, else NULL; an error that
 * shows a sentinel or a cluster node there is replaced by a hint. */
void dibs__script_error_text(const char *error, const struct dibs__url *single,
                             char out[DIBS__REASON_MAX]);

/* Appends the start of a script call. The caller must append `keys` KEYS and
 * `args` ARGV; command.c then appends the request number. whole: EVAL with the
 * source, for a server without the script; else EVALSHA. */
void dibs__script_head(struct dibs__buf *out, const struct dibs__script *script,
                       bool whole, size_t keys, size_t args);
/* Returns the script's result without the request number; *storage may hold it.
 * An error reply is returned unchanged. NULL if the reply has another request
 * number. */
const struct dibs__reply *dibs__script_result(const struct dibs__reply *reply,
                                              unsigned number,
                                              struct dibs__reply *storage);

#endif
