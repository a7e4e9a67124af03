/* SPDX-License-Identifier: MIT
 *
 * resp_reply.h - replies of a server, parsed by hiredis and limited in size.
 *
 * A reply is in the reader's memory and valid until the next
 * dibs__reader_next; the caller must copy what it needs. Small replies cost no
 * allocation. A reply beyond the limits below is a protocol error, so a server
 * cannot exhaust the memory of the client.
 */
#ifndef DIBS_NET_RESP_REPLY_H
#define DIBS_NET_RESP_REPLY_H

#include <dibs/dibs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIBS__REPLY_DEPTH    4           /* nested arrays */
#define DIBS__REPLY_ELEMENTS 65536       /* per array */
#define DIBS__REPLY_BYTES    (16u << 20) /* per reply, all objects */
#define DIBS__REPLY_LINE     65536       /* per line: status, error, number */
/* Numbers are clamped to +-2^53, the range of exact integers in Lua. So a time
 * of a server can be added to a local one without overflow. */
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
    const char *text;          /* REPLY_TEXT, REPLY_ERROR; NUL-terminated */
    size_t len;                /* of text, or number of elements */
    struct dibs__reply **elem; /* REPLY_ARRAY */
};

struct dibs__reader {
    void *hiredis;              /* redisReader */
    struct reply_chunk *chunks; /* memory of the current reply */
    size_t used;                /* bytes in all chunks */
    bool limit_exceeded;
    bool reply_returned;  /* its memory is freed by the next call */
    bool line_incomplete; /* the unparsed rest is a line without its end */
    bool has_input;       /* bytes were received after the last reply */
};

dibs_err dibs__reader_init(struct dibs__reader *r);
void dibs__reader_clear(struct dibs__reader *r);

/* Adds received bytes. Returns OK, NOMEM or PROTOCOL. */
dibs_err dibs__reader_feed(struct dibs__reader *r, const char *data,
                           size_t len);
/* Sets *out to the next complete reply, or NULL if there is none yet. Returns
 * OK, NOMEM or PROTOCOL; after an error only dibs__reader_clear is allowed. */
dibs_err dibs__reader_next(struct dibs__reader *r,
                           const struct dibs__reply **out);
/* Returns whether bytes were received after the last reply. */
bool dibs__reader_has_input(const struct dibs__reader *r);

/* Returns a reply's number as a time, at most DIBS_MS_MAX. Negative numbers are
 * result codes and stay. */
static inline int64_t dibs__reply_ms(int64_t num)
{
    return num < DIBS_MS_MAX ? num : DIBS_MS_MAX;
}

/* Clamps to +-DIBS__REPLY_NUM_MAX. */
static inline int64_t dibs__reply_clamp(int64_t num)
{
    return num > DIBS__REPLY_NUM_MAX    ? DIBS__REPLY_NUM_MAX
           : num < -DIBS__REPLY_NUM_MAX ? -DIBS__REPLY_NUM_MAX
                                        : num;
}

/* Returns whether r can be the reply to a command whose replies have these
 * types (a bit for each; 0: any type). An error always can. If not, r is the
 * reply to another command: the connection is desynchronized. */
static inline bool dibs__reply_has_type(const struct dibs__reply *r,
                                        unsigned expects)
{
    return r->type == REPLY_ERROR || !expects || (expects & 1u << r->type);
}

/* Return the i-th element as a number or text; false or NULL if it is missing
 * or of another type. */
bool dibs__reply_num(const struct dibs__reply *r, size_t i, int64_t *out);
const struct dibs__reply *dibs__reply_text(const struct dibs__reply *r,
                                           size_t i);

#endif
