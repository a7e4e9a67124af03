/* SPDX-License-Identifier: MIT
 *
 * keyboard.c - keys typed on a terminal, out of the bytes that it sends.
 *
 * A key with a name sends several bytes, which begin with an escape: ESC [ A,
 * or ESC O A, or ESC [ 5 ~. Over a slow line they may come one by one, so what
 * is not whole waits for more. The escape key sends the escape alone.
 *
 * Thread  The first one.
 */
#include "top/keyboard.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

bool keys_read(struct keys *k, int fd)
{
    ssize_t n = read(fd, k->bytes + k->n, sizeof k->bytes - k->n);

    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    k->n += (size_t)n;
    return n > 0;
}

static void drop_bytes(struct keys *k, size_t n)
{
    k->n -= n;
    memmove(k->bytes, k->bytes + n, k->n);
}

/* What the last byte of such a sequence says; number: what stands before. */
static int named_key(char last, int number)
{
    switch (last) {
    case 'A':
        return KEY_UP;
    case 'B':
        return KEY_DOWN;
    case 'H':
        return KEY_HOME;
    case 'F':
        return KEY_END;
    case '~':
        return number == 5                  ? KEY_PAGE_UP
               : number == 6                ? KEY_PAGE_DOWN
               : number == 1 || number == 7 ? KEY_HOME
               : number == 4 || number == 8 ? KEY_END
                                            : KEY_OTHER;
    default:
        return KEY_OTHER;
    }
}

int keys_next(struct keys *k, bool over)
{
    int number = 0;

    if (k->n == 0)
        return KEY_NONE;
    unsigned char first = (unsigned char)k->bytes[0];
    bool named = first == KEY_ESCAPE && k->n > 1 &&
                 (k->bytes[1] == '[' || k->bytes[1] == 'O');
    if (first == KEY_ESCAPE && k->n == 1 && !over)
        return KEY_NONE;
    if (!named) {
        drop_bytes(k, 1);
        return first;
    }
    for (size_t i = 2; i < k->n; i++) {
        char c = k->bytes[i];

        if (c >= '0' && c <= '9' && number < 1000) {
            number = number * 10 + (c - '0');
        } else if (c >= '@' && c <= '~') {
            drop_bytes(k, i + 1);
            return named_key(c, number);
        }
    }
    if (!over && k->n < sizeof k->bytes)
        return KEY_NONE;
    k->n = 0; /* no end comes: nothing that we know */
    return KEY_OTHER;
}
