/* SPDX-License-Identifier: MIT
 *
 * resp_reply.h - what a server said, within limits.
 *
 * The parsing is hiredis's. The replies are ours: they live in the reader,
 * cost no allocation once it is warm, and end with the next call to it; copy
 * what you need. A reply that is larger, longer or deeper than any server would
 * send to a lock is a protocol error, from any sender.
 */
#ifndef DIBS_NET_RESP_REPLY_H
#define DIBS_NET_RESP_REPLY_H

#include <dibs/dibs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIBS__REPLY_DEPTH    4           /* arrays in arrays */
#define DIBS__REPLY_ELEMENTS 65536       /* of one array */
#define DIBS__REPLY_BYTES    (16u << 20) /* of one reply, all in all */
#define DIBS__REPLY_LINE     65536       /* of a status, an error, a number */
/* The largest number, up and down: what scripts can count to. A larger one is
 * cut to that; so a time of a server can be added to one of ours. */
#define DIBS__REPLY_NUM_MAX (INT64_C(1) << 53)

enum dibs__reply_type {
    REPLY_NIL,
    REPLY_NUM,
    REPLY_TEXT, /* bulk or simple string */
    REPLY_ERROR,
    REPLY_ARRAY
};

struct dibs__reply {
    enum dibs__reply_type type;
    int64_t num;               /* REPLY_NUM; at most DIBS__REPLY_NUM_MAX */
    const char *text;          /* REPLY_TEXT, REPLY_ERROR; NUL behind it */
    size_t len;                /* of text, or elements of the array */
    struct dibs__reply **elem; /* REPLY_ARRAY */
};

struct dibs__reader {
    void *hi;                   /* redisReader */
    struct reply_chunk *chunks; /* memory of the reply being read */
    size_t used;                /* of all chunks */
    bool beyond;                /* a limit was passed */
    bool given;                 /* a reply is out; its memory ends next call */
    bool open_line;             /* what is left is a line without its end */
    bool begun;                 /* something has come behind the last reply */
};

dibs_err dibs__reader_init(struct dibs__reader *r);
void dibs__reader_clear(struct dibs__reader *r);

/* Adds bytes as they came. OK, NOMEM or PROTOCOL. */
dibs_err dibs__reader_feed(struct dibs__reader *r, const char *data,
                           size_t len);
/* The next whole reply; *out is NULL if there is none yet. OK, NOMEM or
 * PROTOCOL; after an error the reader is good for nothing but clear. */
dibs_err dibs__reader_next(struct dibs__reader *r,
                           const struct dibs__reply **out);
/* Bytes behind the last reply, which nobody asked for. */
bool dibs__reader_more(const struct dibs__reader *r);

/* A reply's number as a time: not beyond DIBS_MS_MAX. Those below zero mean
 * something else. */
static inline int64_t dibs__reply_ms(int64_t num)
{
    return num < DIBS_MS_MAX ? num : DIBS_MS_MAX;
}

/* Within DIBS__REPLY_NUM_MAX. */
static inline int64_t dibs__reply_cut(int64_t num)
{
    return num > DIBS__REPLY_NUM_MAX    ? DIBS__REPLY_NUM_MAX
           : num < -DIBS__REPLY_NUM_MAX ? -DIBS__REPLY_NUM_MAX
                                        : num;
}

/* Can it be the reply to a command that is answered with these types, one bit
 * each? 0: with any. An error always can. If not, it is the reply to another
 * command, and the connection is out of step. */
static inline bool dibs__reply_fits(const struct dibs__reply *r,
                                    unsigned expects)
{
    return r->type == REPLY_ERROR || !expects || (expects & 1u << r->type);
}

/* The i-th element as a number or text; false if it is something else. */
bool dibs__reply_num(const struct dibs__reply *r, size_t i, int64_t *out);
const struct dibs__reply *dibs__reply_text(const struct dibs__reply *r,
                                           size_t i);

#endif
