/* SPDX-License-Identifier: MIT
 *
 * resp.h - bytes from a socket, and the messages of the Redis protocol (RESP2)
 * in them: where each ends, and its words.
 *
 * For the fault proxy, which passes bytes on as they came and only needs to
 * know which of them belong together.
 */
#ifndef DIBS_TESTS_RESP_H
#define DIBS_TESTS_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A queue of bytes: in at the end, out by raising start. All zero = empty. */
struct ts_bytes {
    char *buf;
    size_t start, end, cap;
};

char *ts_bytes_at(const struct ts_bytes *b); /* the first */
size_t ts_bytes_len(const struct ts_bytes *b);
void ts_bytes_add(struct ts_bytes *b, const char *data, size_t n);
/* One read without waiting. False: nothing more will come; broken says whether
 * it was an error that ended it. */
bool ts_bytes_read(struct ts_bytes *b, int fd, bool *broken);

struct ts_word {
    const char *p; /* into the message; no NUL behind it */
    size_t len;
};

/* The length of the first reply, or request, in buf. 0: it goes on behind the
 * end of buf. -1: this is no RESP2. A request may also be a line of text. */
ssize_t ts_resp_reply(const char *buf, size_t len);
ssize_t ts_resp_request(const char *buf, size_t len);

/* The first max words of a complete message: the strings and numbers of an
 * array, or the words of a line. Stops at the first thing that is neither.
 * Returns how many were found. */
size_t ts_resp_words(const char *msg, size_t len, struct ts_word *words,
                     size_t max);

/* How many replies a request will have; -1 = until nothing is subscribed to.
 * Notices a subscriber. */
long ts_resp_replies(const char *msg, size_t len, bool *subscribed);

/* The number that a call of a script has as its last argument; "" if the
 * message is none. lua/lib/around.lua says what it is for. */
#define TS_NUMBER 5
void ts_resp_number(const char *msg, size_t len, char number[TS_NUMBER]);
/* Adds a reply as a script's answer to that call: with the number. "": as it
 * is. */
void ts_bytes_add_answer(struct ts_bytes *b, const char *number,
                         const char *reply, size_t len);

#endif
