/* SPDX-License-Identifier: MIT
 *
 * fuzz_reply.c - any bytes as what a server says.
 *
 * A socket gives bytes in pieces of any size, and the replies must not depend
 * on them. So the input is read once as a whole, once byte by byte and once
 * for each place where it can be cut in two, and every reading must find the
 * same replies and end the same way. Each reply is looked at down to its last
 * byte, and must keep the limits of resp_reply.h.
 */
#include "net/resp_reply.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Above this not every place is cut, only so many of them. */
#define CUTS_MAX 256

/* Holds in every build, with NDEBUG too. */
#define MUST(cond)                                                             \
    do {                                                                       \
        if (!(cond)) {                                                         \
            fprintf(stderr, "fuzz_reply: not so: %s\n", #cond);                \
            abort();                                                           \
        }                                                                      \
    } while (0)

/* What a reading found. */
struct found {
    dibs_err err;    /* how it ended */
    size_t replies;  /* whole ones */
    uint64_t digest; /* of all that was in them */
};

/* FNV-1a, to compare contents without keeping them. */
static void mix(struct found *f, const void *data, size_t len)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < len; i++) {
        f->digest ^= p[i];
        f->digest *= UINT64_C(1099511628211);
    }
}

static void look_at(struct found *f, const struct dibs__reply *r, size_t depth)
{
    MUST(r);
    MUST(depth <= DIBS__REPLY_DEPTH + 1);
    mix(f, &r->type, sizeof r->type);
    switch (r->type) {
    case REPLY_NIL:
        break;
    case REPLY_NUM:
        mix(f, &r->num, sizeof r->num);
        break;
    case REPLY_TEXT:
    case REPLY_ERROR:
        MUST(r->text && r->text[r->len] == '\0');
        MUST(r->len < DIBS__REPLY_BYTES);
        mix(f, &r->len, sizeof r->len);
        mix(f, r->text, r->len);
        break;
    case REPLY_ARRAY:
        MUST(r->len <= DIBS__REPLY_ELEMENTS);
        mix(f, &r->len, sizeof r->len);
        for (size_t i = 0; i < r->len; i++)
            look_at(f, r->elem[i], depth + 1);
        break;
    }
}

/* The two helpers must agree with what is there, and stay inside. */
static void ask_elements(const struct dibs__reply *r)
{
    size_t count = r->type == REPLY_ARRAY ? r->len : 0;
    int64_t num = 0;

    for (size_t i = 0; i < count && i < 8; i++) {
        const struct dibs__reply *e = r->elem[i];
        bool is_num = e->type == REPLY_NUM;
        bool is_text = e->type == REPLY_TEXT;
        MUST(dibs__reply_num(r, i, &num) == is_num);
        MUST(!is_num || num == e->num);
        MUST((dibs__reply_text(r, i) == e) == is_text);
    }
    MUST(!dibs__reply_num(r, count, &num));
    MUST(!dibs__reply_text(r, count));
    MUST(!dibs__reply_num(r, SIZE_MAX, &num));
}

/* Feeds one piece, from memory of its exact size, and takes out what is
 * whole. */
static void read_piece(struct dibs__reader *rd, struct found *f,
                       const uint8_t *data, size_t len)
{
    const struct dibs__reply *r = NULL;
    char *copy = malloc(len > 0 ? len : 1);

    MUST(copy);
    if (len > 0)
        memcpy(copy, data, len);
    f->err = dibs__reader_feed(rd, copy, len);
    free(copy);

    while (f->err == DIBS_OK) {
        f->err = dibs__reader_next(rd, &r);
        if (f->err != DIBS_OK || !r)
            break;
        look_at(f, r, 1);
        ask_elements(r);
        f->replies++;
    }
}

/* Reads all, in pieces of step bytes; the first has `first`. */
static struct found read_in_pieces(const uint8_t *data, size_t size,
                                   size_t first, size_t step)
{
    struct found f = {.digest = UINT64_C(14695981039346656037)};
    struct dibs__reader rd;
    size_t at = 0;
    size_t len = first < size ? first : size;

    MUST(dibs__reader_init(&rd) == DIBS_OK);
    do {
        read_piece(&rd, &f, data + at, len);
        at += len;
        len = step < size - at ? step : size - at;
    } while (f.err == DIBS_OK && at < size);

    MUST(f.err == DIBS_OK || f.err == DIBS_ERR_PROTOCOL);
    dibs__reader_clear(&rd);
    return f;
}

static void same(const struct found *a, const struct found *b)
{
    MUST(a->err == b->err);
    MUST(a->replies == b->replies);
    MUST(a->digest == b->digest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct found whole = read_in_pieces(data, size, size, size);
    struct found bytes = read_in_pieces(data, size, 1, 1);
    size_t step = size / CUTS_MAX + 1;

    same(&whole, &bytes);
    for (size_t cut = step; cut < size; cut += step) {
        struct found halves = read_in_pieces(data, size, cut, size);
        same(&whole, &halves);
    }
    return 0;
}
