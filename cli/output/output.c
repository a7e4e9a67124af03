/* SPDX-License-Identifier: MIT
 *
 * output.c - everything the command writes: messages, JSON, columns.
 *
 * Results go to stdout, messages go to stderr. A message is one line, put
 * together first and written by one call, so that the lines of several commands
 * on one terminal or in one log do not mix.
 *
 * Thread  Any. The style is set before there is a second thread; after that
 *         nothing here changes.
 *
 * Trouble Names of locks may hold any bytes. Text for people shows control
 *         characters as escapes, so that a name cannot control a terminal. JSON
 *         is UTF-8 by definition: other bytes become U+FFFD there, and a second
 *         field has all bytes in hexadecimal. If the reader of our messages is
 *         gone, the messages are lost, but dibs goes on: SIGPIPE is blocked
 *         wherever a lock is held.
 */
#include "output/output.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exit_codes.h"
#include "output/progress_line.h"

#define WRITE_MAX_MS 1000 /* for a reader to make room */
#define DAY_S        86400

static struct out_style style;

void out_init(const struct out_style *s)
{
    style = *s;
}

/* ---- text in memory ---------------------------------------------------- */

bool out_text_open(struct out_text *t)
{
    *t = (struct out_text){.text = NULL};
    t->f = open_memstream(&t->text, &t->size);
    return t->f != NULL;
}

char *out_text_close(struct out_text *t)
{
    if (fclose(t->f) == 0)
        return t->text;
    free(t->text);
    return NULL;
}

dibs_err out_text_print(struct out_text *t, dibs_err err)
{
    char *text = out_text_close(t);

    if (text && err == DIBS_OK)
        fwrite(text, 1, t->size, stdout);
    free(text);
    return text ? err : DIBS_ERR_NOMEM;
}

/* ---- JSON -------------------------------------------------------------- */

/* How many of the n bytes at s are one well-formed UTF-8 character; 0 when
 * they do not begin one. Overlong forms, surrogates and what lies beyond
 * U+10FFFF are not well-formed. */
static size_t utf8_length(const unsigned char *s, size_t n)
{
    size_t len = s[0] < 0x80   ? 1
                 : s[0] < 0xC2 ? 0
                 : s[0] < 0xE0 ? 2
                 : s[0] < 0xF0 ? 3
                 : s[0] < 0xF5 ? 4
                               : 0;

    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return len;
}

/* The character of n bytes, well-formed. */
static unsigned code_point(const unsigned char *s, size_t n)
{
    unsigned code = n == 1 ? s[0] : s[0] & (0xFFu >> (n + 1));

    for (size_t i = 1; i < n; i++)
        code = code << 6 | (s[i] & 0x3Fu);
    return code;
}

/* Characters that are not seen, and may change what is: control characters, C1
 * too, marks of direction, and spaces without a width. A name with one of them
 * looks like another name. */
static bool is_unseen(const unsigned char *s, size_t n)
{
    static const struct {
        unsigned first, last;
    } ranges[] = {
        {0x00, 0x1F},       {0x7F, 0x9F},       {0xAD, 0xAD},
        {0x61C, 0x61C},     {0x115F, 0x1160},   {0x17B4, 0x17B5},
        {0x180B, 0x180F},   {0x200B, 0x200F},   {0x2028, 0x202E},
        {0x2060, 0x206F},   {0x3164, 0x3164},   {0xFEFF, 0xFEFF},
        {0xFFA0, 0xFFA0},   {0xFFF0, 0xFFFB},   {0x1BCA0, 0x1BCA3},
        {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF},
    };
    unsigned code = n > 0 ? code_point(s, n) : 0x20;

    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    return false;
}

static void json_ascii(FILE *f, unsigned char c)
{
    static const char from[] = "\"\\\b\f\n\r\t";
    static const char to[] = "\"\\bfnrt";
    const char *at = c != '\0' ? strchr(from, c) : NULL;

    if (at)
        fprintf(f, "\\%c", to[at - from]);
    else if (c < 0x20 || c == 0x7F)
        fprintf(f, "\\u%04x", c);
    else
        putc(c, f);
}

static void json_escape(FILE *f, unsigned code)
{
    if (code > 0xFFFF)
        fprintf(f, "\\u%04x\\u%04x", 0xD7C0 + (code >> 10),
                0xDC00 + (code & 0x3FF));
    else
        fprintf(f, "\\u%04x", code);
}

bool json_string(FILE *f, const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;
    bool whole = true;
    size_t n;

    putc('"', f);
    for (size_t i = 0; i<len; i += n> 0 ? n : 1) {
        n = utf8_length(s + i, len - i);
        if (n == 0) {
            fputs("\\ufffd", f);
            whole = false;
        } else if (n == 1) {
            json_ascii(f, s[i]);
        } else if (is_unseen(s + i, n)) {
            json_escape(f, code_point(s + i, n));
        } else {
            fwrite(s + i, 1, n, f);
        }
    }
    putc('"', f);
    return whole;
}

void json_open(struct json *j, FILE *f)
{
    *j = (struct json){.f = f};
    putc('{', f);
}

void json_close(struct json *j)
{
    putc('}', j->f);
}

static void json_key(struct json *j, const char *key)
{
    if (j->more)
        putc(',', j->f);
    j->more = true;
    json_string(j->f, key, strlen(key));
    putc(':', j->f);
}

void json_any(struct json *j, const char *key)
{
    json_key(j, key);
}

void json_null(struct json *j, const char *key)
{
    json_key(j, key);
    fputs("null", j->f);
}

void json_int(struct json *j, const char *key, int64_t value)
{
    json_key(j, key);
    fprintf(j->f, "%" PRId64, value);
}

void json_bool(struct json *j, const char *key, bool value)
{
    json_key(j, key);
    fputs(value ? "true" : "false", j->f);
}

void json_bytes(struct json *j, const char *key, const char *s, size_t len)
{
    json_key(j, key);
    if (json_string(j->f, s, len))
        return;
    fprintf(j->f, ",\"%s_hex\":\"", key);
    for (size_t i = 0; i < len; i++)
        fprintf(j->f, "%02x", (unsigned char)s[i]);
    putc('"', j->f);
}

void json_text(struct json *j, const char *key, const char *value)
{
    if (value)
        json_bytes(j, key, value, strlen(value));
    else
        json_null(j, key);
}

void json_list_open(struct json *j, const char *key)
{
    json_key(j, key);
    putc('[', j->f);
    j->items = false;
}

void json_list_next(struct json *j, struct json *item)
{
    if (j->items)
        fputs(",\n ", j->f);
    j->items = true;
    json_open(item, j->f);
}

void json_list_close(struct json *j)
{
    putc(']', j->f);
}

/* ---- messages ---------------------------------------------------------- */

static void utc_stamp(char *buf, size_t size)
{
    struct timespec now;
    struct tm tm;
    char day[32];

    clock_gettime(CLOCK_REALTIME, &now);
    if (!gmtime_r(&now.tv_sec, &tm) ||
        strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm) == 0)
        day[0] = '\0';
    snprintf(buf, size, "%s.%03ldZ", day, now.tv_nsec / 1000000);
}

static void log_json(FILE *f, enum out_level level, const char *event,
                     const struct out_fact *facts, const char *text)
{
    static const char *const levels[] = {"error", "warning", "info"};
    char when[48];
    struct json j;

    utc_stamp(when, sizeof when);
    json_open(&j, f);
    json_text(&j, "time", when);
    json_text(&j, "level", levels[level]);
    json_text(&j, "event", event);
    if (style.name)
        json_text(&j, "name", style.name);
    for (; facts && facts->key; facts++) {
        if (facts->text)
            json_text(&j, facts->key, facts->text);
        else
            json_int(&j, facts->key, facts->number);
    }
    json_text(&j, "text", text);
    json_close(&j);
}

/* A pipe that is ready has room for PIPE_BUF bytes: a larger write could
 * block. */
bool out_write(int fd, const char *text, size_t len)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    while (len > 0 && poll(&p, 1, WRITE_MAX_MS) == 1) {
        ssize_t n = write(fd, text, len < PIPE_BUF ? len : PIPE_BUF);

        if (n <= 0)
            break;
        text += n;
        len -= (size_t)n;
    }
    return len == 0;
}

/* One write for the whole line. A message that nobody reads is dropped: it must
 * not keep us from the lock and from signals. */
static void write_line(const char *line, size_t len)
{
    progress_clear();
    (void)out_write(STDERR_FILENO, line, len);
}

PRINTF(4, 0)
static void tell_line(enum out_level level, const char *event,
                      const struct out_fact *facts, const char *fmt, va_list ap)
    PRINTF(4, 0);

static void tell_line(enum out_level level, const char *event,
                      const struct out_fact *facts, const char *fmt, va_list ap)
{
    char *text = NULL;
    struct out_text line;

    if ((level == OUT_WARN && style.quiet) ||
        (level == OUT_INFO && !style.verbose))
        return;
    int n = vasprintf(&text, fmt, ap);
    if (n < 0)
        return;

    if (out_text_open(&line)) {
        char *shown = style.json ? NULL : out_printable(text, (size_t)n);
        if (style.json)
            log_json(line.f, level, event, facts, text);
        else
            fprintf(line.f, "dibs: %s", shown ? shown : text);
        free(shown);
        putc('\n', line.f);
        char *whole = out_text_close(&line);
        if (whole)
            write_line(whole, line.size);
        free(whole);
    }
    free(text);
}

void out_tell(enum out_level level, const char *event, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    tell_line(level, event, NULL, fmt, ap);
    va_end(ap);
}

void out_tell_facts(enum out_level level, const char *event,
                    const struct out_fact *facts, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    tell_line(level, event, facts, fmt, ap);
    va_end(ap);
}

/* ---- text for people --------------------------------------------------- */

bool out_colored(FILE *f)
{
    const char *no = getenv("NO_COLOR");
    const char *term = getenv("TERM");

    return !(no && *no) && !(term && strcmp(term, "dumb") == 0) &&
           isatty(fileno(f));
}

const char *out_color(bool on, enum out_color c)
{
    static const char *const codes[] = {
        [COLOR_PLAIN] = "\033[0m", [COLOR_HEAD] = "\033[1m",
        [COLOR_GOOD] = "\033[32m", [COLOR_BUSY] = "\033[33m",
        [COLOR_BAD] = "\033[31m",
    };

    return on ? codes[c] : "";
}

char *out_printable(const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;
    struct out_text shown;
    size_t n;

    if (!out_text_open(&shown))
        return NULL;
    FILE *f = shown.f;
    for (size_t i = 0; i<len; i += n> 0 ? n : 1) {
        n = utf8_length(s + i, len - i);
        bool control = is_unseen(s + i, n);

        if (s[i] == '\n' || s[i] == '\t')
            fputs(s[i] == '\n' ? "\\n" : "\\t", f);
        else if (n > 0 && !control)
            fwrite(s + i, 1, n, f);
        else
            for (size_t k = 0; k < (n > 0 ? n : 1); k++)
                fprintf(f, "\\x%02x", s[i + k]);
    }
    return out_text_close(&shown);
}

const char *out_span(int64_t ms, char buf[OUT_SPAN_MAX])
{
    int64_t s = ms / 1000;

    if (ms < 1000)
        snprintf(buf, OUT_SPAN_MAX, "%" PRId64 " ms", ms);
    else if (s < 60)
        snprintf(buf, OUT_SPAN_MAX, "%" PRId64 ".%" PRId64 " s", s,
                 ms % 1000 / 100);
    else if (s < 3600)
        snprintf(buf, OUT_SPAN_MAX, "%" PRId64 " min %" PRId64 " s", s / 60,
                 s % 60);
    else if (s < DAY_S)
        snprintf(buf, OUT_SPAN_MAX, "%" PRId64 " h %" PRId64 " min", s / 3600,
                 s % 3600 / 60);
    else
        snprintf(buf, OUT_SPAN_MAX, "%" PRId64 " d %" PRId64 " h", s / DAY_S,
                 s % DAY_S / 3600);
    return buf;
}

bool out_has_stdout(const char *name)
{
    int flags = fcntl(STDOUT_FILENO, F_GETFL);

    if (!style.no_stdout && flags >= 0 && (flags & O_ACCMODE) != O_RDONLY)
        return true;
    out_tell(OUT_ERROR, "stdout",
             "stdout is %s, and the handle would be lost: %s is not taken",
             style.no_stdout ? "closed" : "not open for writing", name);
    return false;
}

int out_finish(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    out_tell(OUT_ERROR, "stdout", "cannot write to stdout");
    return EXIT_INTERNAL;
}

/* ---- exit codes --------------------------------------------------------- */

const struct exit_row exit_rows[] = {
#define EXIT_X(name, value, cause, text) {value, cause, text},
    EXIT_MAP(EXIT_X)
#undef EXIT_X
        {0, NULL, NULL},
};

/* ---- errors of the library --------------------------------------------- */

int out_exit_of(dibs_err err)
{
    switch (err) { /* no default: the compiler names a missing case */
    case DIBS_OK:
        return EXIT_FINE;
    case DIBS_ERR_INVALID:
    case DIBS_ERR_UPGRADE:
    case DIBS_ERR_WRONGTYPE:
        return EXIT_USAGE;
    case DIBS_ERR_BUSY:
    case DIBS_ERR_TIMEOUT:
        return EXIT_BUSY;
    case DIBS_ERR_AUTH:
        return EXIT_NOPERM;
    case DIBS_ERR_CONN:
    case DIBS_ERR_UNKNOWN:
    case DIBS_ERR_SERVER:
    case DIBS_ERR_PROTOCOL:
    case DIBS_ERR_TLS:
    case DIBS_ERR_REPLICAS:
        return EXIT_SERVER;
    case DIBS_ERR_LOST:
        return EXIT_LOST;
    case DIBS_ERR_NOMEM:
    case DIBS_ERR_NOT_OWNER:
    case DIBS_ERR_CLOSED:
    case DIBS_ERR_DEADLOCK:
    case DIBS_ERR_FORKED:
    case DIBS_ERR_CANCELED:
        break;
    }
    return EXIT_INTERNAL;
}
