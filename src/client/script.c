/* SPDX-License-Identifier: MIT
 *
 * script.c - calls of scripts: by digest, or whole when the server has not seen
 * the script. EVAL makes it remember, so that is all the loading there is.
 *
 * Thread  any.
 */
#include "client/script.h"

void dibs__script_head(struct dibs__buf *out, const struct dibs__script *script,
                       bool whole, size_t keys, size_t args)
{
    dibs__buf_array(out, 3 + keys + args);
    if (whole) {
        dibs__buf_arg_text(out, "EVAL");
        dibs__buf_arg(out, script->src, script->len);
    } else {
        dibs__buf_arg_text(out, "EVALSHA");
        dibs__buf_arg(out, script->sha, 40);
    }
    dibs__buf_arg_num(out, (int64_t)keys);
}
