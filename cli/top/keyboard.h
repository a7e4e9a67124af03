/* SPDX-License-Identifier: MIT
 *
 * keyboard.h - keys typed on a terminal, out of the bytes that it sends.
 */
#ifndef DIBS_CLI_TOP_KEYBOARD_H
#define DIBS_CLI_TOP_KEYBOARD_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes below 256 are themselves. */
enum {
    KEY_NONE = -1, /* nothing, or not all of it yet */
    KEY_ESCAPE = 27,
    KEY_UP = 256,
    KEY_DOWN,
    KEY_PAGE_UP,
    KEY_PAGE_DOWN,
    KEY_HOME,
    KEY_END,
    KEY_OTHER /* one that means nothing here */
};

struct keys {
    char bytes[64];
    size_t n;
};

/* Reads what was typed. False: the terminal is gone. */
bool keys_read(struct keys *k, int fd);
/* The next key. over: no more bytes have come for a while, so an escape at the
 * end is the key of that name. */
int keys_next(struct keys *k, bool over);

#endif
