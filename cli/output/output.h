/* SPDX-License-Identifier: MIT
 *
 * output.h - everything the command writes: messages, JSON, columns.
 */
#ifndef DIBS_CLI_OUTPUT_OUTPUT_H
#define DIBS_CLI_OUTPUT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <dibs/dibs.h>

#if defined(__GNUC__)
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PRINTF(fmt, args)
#endif

/* ---- messages: to stderr, as text or as JSON lines --------------------- */

enum out_level {
    OUT_ERROR, /* always printed */
    OUT_WARN,  /* not with -q */
    OUT_INFO   /* only with -v */
};

struct out_style {
    bool quiet;       /* -q */
    bool verbose;     /* -v */
    bool json;        /* --log json */
    bool no_stdout;   /* we were started without one */
    const char *name; /* the lock all of this is about, or NULL */
};

/* Set once, before there are threads. */
void out_init(const struct out_style *style);

/* One line. event is a fixed word for programs that read the log. */
void out_tell(enum out_level level, const char *event, const char *fmt, ...)
    PRINTF(3, 4);

/* A field of its own in a JSON log, beside the text. */
struct out_fact {
    const char *key;  /* NULL ends a list of them */
    const char *text; /* NULL: it is the number */
    int64_t number;
};

void out_tell_facts(enum out_level level, const char *event,
                    const struct out_fact *facts, const char *fmt, ...)
    PRINTF(4, 5);

/* Writes to fd, but waits at most a second for a reader to make room. Whether
 * all of it was written. */
bool out_write(int fd, const char *text, size_t len);

/* ---- text that is put together in memory ------------------------------- */

struct out_text {
    FILE *f; /* write here */
    char *text;
    size_t size;
};

/* False when out of memory. */
bool out_text_open(struct out_text *t);
/* The text, to be freed; NULL when out of memory. */
char *out_text_close(struct out_text *t);
/* The same, and on success (err is DIBS_OK) the text goes to stdout: all of it
 * or nothing. Returns err, or DIBS_ERR_NOMEM. */
dibs_err out_text_print(struct out_text *t, dibs_err err);

/* ---- JSON -------------------------------------------------------------- */

/* Writes len bytes as a JSON string, quotes included. Bytes that are not
 * UTF-8 become U+FFFD; returns whether there were none. */
bool json_string(FILE *f, const char *s, size_t len);

/* A JSON object on one line, field by field: json_open, fields, json_close. */
struct json {
    FILE *f;
    bool more;  /* a field was written before */
    bool items; /* an object of the list was written before */
};

void json_open(struct json *j, FILE *f);
void json_close(struct json *j);
void json_text(struct json *j, const char *key, const char *value);
void json_bytes(struct json *j, const char *key, const char *s, size_t len);
void json_int(struct json *j, const char *key, int64_t value);
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);
/* What the caller writes next is the value. */
void json_any(struct json *j, const char *key);

/* A field that is a list of objects: open, next for each (then its fields and
 * json_close of the item), close. */
void json_list_open(struct json *j, const char *key);
void json_list_next(struct json *j, struct json *item);
void json_list_close(struct json *j);

/* ---- text for people --------------------------------------------------- */

enum out_color { COLOR_PLAIN, COLOR_HEAD, COLOR_GOOD, COLOR_BUSY, COLOR_BAD };

/* Whether colors make sense on this stream: a terminal, and no NO_COLOR. */
bool out_colored(FILE *f);
const char *out_color(bool on, enum out_color c);

/* Control characters are written as \n, \x1b and the like. The caller frees it;
 * NULL when out of memory. */
char *out_printable(const char *s, size_t len);

/* "350 ms", "27.3 s", "4 min 10 s", "5 h 3 min", "1 d 2 h" into buf, which is
 * returned. */
#define OUT_SPAN_MAX 32
const char *out_span(int64_t ms, char buf[OUT_SPAN_MAX]);

/* Returns whether there is a stdout. If not, prints that name is not taken. */
bool out_has_stdout(const char *name);

/* Flushes stdout. Returns code, or prints a message and returns EXIT_INTERNAL
 * if not all output could be written. */
int out_finish(int code);

/* ---- errors of the library --------------------------------------------- */

/* The exit code for an error of the library. */
int out_exit_of(dibs_err err);

#endif
