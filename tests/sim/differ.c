/* SPDX-License-Identifier: MIT
 *
 * differ.c - two servers that must say the same. How to read a step is in
 * differ.h.
 */
#include "sim/differ.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#define PLACES    6 /* connections 1 to 4; 0 and 5 are ours */
#define MAX_WORDS 200
#define MANY      60 /* differences; more of them tell nothing new */

struct df_pair df_first, df_second;

static struct place {
    redisContext *cn;
    struct ts_bytes from_real;
    struct sr_session *session;
    struct ts_bytes from_small;
    long long real_id, small_id;
} places[PLACES];
static int differences;
static int named; /* the place whose number is $id */

static int64_t now_us(void *arg)
{
    struct timespec t;

    (void)arg;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- both ends --------------------------------------------------------- */

struct df_pair df_start(const char *const *extra, bool cluster)
{
    struct df_pair pair = {.real = ts_server_start(extra)};
    struct sr_config config = {.now_us = now_us,
                               .seed = 1,
                               .port = ts_server_port(pair.real),
                               .cluster = cluster};

    pair.small = sr_server_new(&config);
    return pair;
}

struct df_pair df_start_sentinel(const char *lines)
{
    struct df_pair pair = {.real = ts_sentinel_start(lines)};
    struct sr_config config = {
        .now_us = now_us, .port = ts_server_port(pair.real), .sentinel = true};

    pair.small = sr_server_new(&config);
    return pair;
}

int df_up(void **state)
{
    (void)state;
    df_first = df_start(NULL, false);
    return 0;
}

/* Connections 3 and 4, and our 5, are to the second pair, if there is one. */
static struct df_pair *pair_of(int place)
{
    return place >= 3 && df_second.real ? &df_second : &df_first;
}

static void hang_up(struct place *p)
{
    if (p->cn)
        redisFree(p->cn);
    if (p->session)
        sr_close(p->session);
    free(p->from_real.buf);
    free(p->from_small.buf);
    *p = (struct place){0};
}

int df_down(void **state)
{
    (void)state;
    for (int i = 0; i < PLACES; i++)
        hang_up(&places[i]);
    sr_server_free(df_second.small);
    sr_server_free(df_first.small);
    ts_server_stop(df_second.real);
    ts_server_stop(df_first.real);
    df_first = df_second = (struct df_pair){0};
    return 0;
}

bool df_comparable(void)
{
    char *text = ts_str(df_first.real, "INFO server");
    bool is = strstr(text, "redis_version:7.0.");

    free(text);
    return is;
}

/* What a master writes its replica has at once. */
static void take_small(void)
{
    char some[4096];
    size_t got;

    if (df_second.small) {
        sr_deliver(df_second.small, sr_offset(df_first.small));
        sr_acknowledge(df_second.small);
    }
    for (int i = 0; i < PLACES; i++)
        while (places[i].session &&
               (got = sr_take(places[i].session, some, sizeof some)) > 0)
            ts_bytes_add(&places[i].from_small, some, got);
}

static void send_small(struct place *p, const char *bytes, size_t n)
{
    sr_feed(p->session, bytes, n);
    take_small();
}

static void send_real(struct place *p, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(p->cn->fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            ts_fatal("send: %s", strerror(errno));
        bytes += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
    }
}

/* The next reply of the real one; waits for it. */
static ssize_t read_real(struct place *p, const char *what)
{
    for (;;) {
        struct pollfd f = {.fd = p->cn->fd, .events = POLLIN};
        bool broken;
        ssize_t n = ts_resp_reply(ts_bytes_at(&p->from_real),
                                  ts_bytes_len(&p->from_real));
        if (n > 0)
            return n;
        if (n < 0 || poll(&f, 1, (int)TS_SOON) <= 0 ||
            !ts_bytes_read(&p->from_real, p->cn->fd, &broken))
            fail_msg("%s: the real server says nothing", what);
    }
}

static void ask_id(struct place *p);

static struct place *place_at(int i)
{
    struct place *p = &places[i];

    if (!p->cn) {
        p->cn = ts_connect(pair_of(i)->real);
        p->session = sr_open(pair_of(i)->small, "127.0.0.1:1");
        ask_id(p);
    }
    return p;
}

/* ---- comparing --------------------------------------------------------- */

static void show(const char *whose, const char *p, size_t n)
{
    fprintf(stderr, "  %-6s ", whose);
    for (size_t i = 0; i < n && i < 2000; i++)
        if (p[i] == '\r')
            continue;
        else if (p[i] == '\n')
            fputs(" | ", stderr);
        else
            fputc(p[i] >= ' ' && p[i] <= '~' ? p[i] : '.', stderr);
    fputc('\n', stderr);
}

/* Numbers within a minute of each other; the rest equal. */
static bool about_same(const char *a, size_t na, const char *b, size_t nb)
{
    while (na > 0 && nb > 0) {
        char *end_a, *end_b;
        if ((*a >= '0' && *a <= '9') && (*b >= '0' && *b <= '9')) {
            long long x = strtoll(a, &end_a, 10), y = strtoll(b, &end_b, 10);
            if (llabs(x - y) > 60000)
                return false;
            na -= (size_t)(end_a - a);
            nb -= (size_t)(end_b - b);
            a = end_a;
            b = end_b;
        } else if (*a == *b) {
            a++, b++, na--, nb--;
        } else {
            return false;
        }
    }
    return na == nb;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Elements of a flat array, sorted, as one text; free() it. */
static char *sorted(const char *p, size_t n)
{
    struct ts_word words[1000];
    char *texts[1000], *all = ts_strdup("");
    size_t count = ts_resp_words(p, n, words, 1000);

    for (size_t i = 0; i < count; i++)
        texts[i] = ts_text("%.*s", (int)words[i].len, words[i].p);
    qsort(texts, count, sizeof texts[0], by_bytes);
    for (size_t i = 0; i < count; i++) {
        char *more = ts_text("%s %s", all, texts[i]);
        free(all);
        free(texts[i]);
        all = more;
    }
    return all;
}

static bool alike(char mode, const char *a, size_t na, const char *b, size_t nb)
{
    if (mode == '?')
        return a[0] == b[0];
    if (mode == '~')
        return about_same(a, na, b, nb);
    if (mode == '=') {
        char *x = sorted(a, na), *y = sorted(b, nb);
        bool same = strcmp(x, y) == 0;
        free(x);
        free(y);
        return same;
    }
    return na == nb && memcmp(a, b, na) == 0;
}

/* The real one has answered; the small one's clock may be behind. */
static void wait_small(struct place *p)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    struct sr_server *small = pair_of((int)(p - places))->small;

    while (ts_bytes_len(&p->from_small) == 0 && sr_next(small) >= 0 &&
           ts_wait_step(&w)) {
        sr_tick(small);
        take_small();
    }
}

static void compare_one(struct place *p, char mode, const char *what,
                        const char *line)
{
    ssize_t n = read_real(p, line);
    wait_small(p);
    const char *a = ts_bytes_at(&p->from_real);
    const char *b = ts_bytes_at(&p->from_small);
    size_t all = ts_bytes_len(&p->from_small);
    ssize_t m = all ? ts_resp_reply(b, all) : 0;

    if (m <= 0 || !alike(mode, a, (size_t)n, b, (size_t)m)) {
        fprintf(stderr, "%s: %s\n", what, line);
        show("real:", a, (size_t)n);
        show("small:", b, m > 0 ? (size_t)m : all);
        if (m <= 0 || ++differences == MANY)
            fail_msg("they differ");
    }
    p->from_real.start += (size_t)n;
    p->from_small.start += (size_t)m;
}

/* ---- steps ------------------------------------------------------------- */

struct words {
    char *w[MAX_WORDS];
    size_t len[MAX_WORDS];
    int n;
};

/* What stands between two `, less its escapes. */
static const char *take_quoted(const char *at, char *out, size_t *n)
{
    for (*n = 0; *at && *at != '`'; at++) {
        char c = *at;
        if (c == '\\' && at[1] && strchr("nr0\\", at[1]))
            c = *++at == 'n' ? '\n'
                : *at == 'r' ? '\r'
                : *at == '0' ? '\0'
                             : *at;
        out[(*n)++] = c;
    }
    return *at ? at + 1 : at;
}

static struct words split(const char *line)
{
    struct words ws = {.n = 0};

    while (*(line += strspn(line, " "))) {
        char *word = ts_alloc(strlen(line) + 1);
        size_t n = strcspn(line, " ");
        if (*line == '`') {
            line = take_quoted(line + 1, word, &n);
        } else {
            memcpy(word, line, n);
            line += n;
        }
        if (ws.n == MAX_WORDS)
            ts_fatal("too many words");
        ws.len[ws.n] = n;
        ws.w[ws.n++] = word;
    }
    return ws;
}

/* The words as a request; $id is id. free() it. */
static char *request(const struct words *ws, long long id, size_t *n)
{
    char number[32];
    size_t room = 64;

    for (int i = 0; i < ws->n; i++)
        room += ws->len[i] + 64;
    char *out = ts_alloc(room), *at = out;
    snprintf(number, sizeof number, "%lld", id);
    at += sprintf(at, "*%d\r\n", ws->n);
    for (int i = 0; i < ws->n; i++) {
        bool is_id = strcmp(ws->w[i], "$id") == 0;
        const char *p = is_id ? number : ws->w[i];
        size_t len = is_id ? strlen(number) : ws->len[i];
        at += sprintf(at, "$%zu\r\n", len);
        memcpy(at, p, len);
        at += len;
        at += sprintf(at, "\r\n");
    }
    *n = (size_t)(at - out);
    return out;
}

static void send_both(struct place *p, const struct words *ws)
{
    size_t n;
    char *bytes = request(ws, places[named].real_id, &n);

    send_real(p, bytes, n);
    free(bytes);
    bytes = request(ws, places[named].small_id, &n);
    send_small(p, bytes, n);
    free(bytes);
}

static void free_words(struct words *ws)
{
    while (ws->n > 0)
        free(ws->w[--ws->n]);
}

static void ask_id(struct place *p)
{
    struct words ws = split("CLIENT ID");
    ssize_t n;

    send_both(p, &ws);
    free_words(&ws);
    n = read_real(p, "CLIENT ID");
    p->real_id = atoll(ts_bytes_at(&p->from_real) + 1);
    p->from_real.start += (size_t)n;
    p->small_id = atoll(ts_bytes_at(&p->from_small) + 1);
    p->from_small.start = p->from_small.end;
}

static void command(int place, char mode, const char *what, const char *line)
{
    struct place *p = place_at(place);
    struct words ws = split(line);

    send_both(p, &ws);
    free_words(&ws);
    compare_one(p, mode, what, line);
}

#define MAX_LATER 100

static char *later[MAX_LATER];
static int laters;

void df_later(const char *line)
{
    if (laters == MAX_LATER)
        ts_fatal("too many steps at once");
    later[laters++] = ts_strdup(line);
}

static bool has_mode(const char *line)
{
    return strchr("~?=", line[0]) && line[1] == ' ';
}

void df_flush(const char *what)
{
    struct place *p = place_at(1);

    for (int i = 0; i < laters; i++) {
        struct words ws = split(later[i] + (has_mode(later[i]) ? 2 : 0));
        send_both(p, &ws);
        free_words(&ws);
    }
    for (int i = 0; i < laters; i++) {
        compare_one(p, has_mode(later[i]) ? later[i][0] : '\0', what, later[i]);
        free(later[i]);
    }
    laters = 0;
}

/* Until the key has ended at both. */
static void wait_end(const char *key)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    if (!ts_wait_exists(df_first.real, key, false))
        fail_msg("%s does not end", key);
    for (bool there = true; there;) {
        struct place *p = place_at(0);
        char *bytes = ts_text("EXISTS %s\r\n", key);
        send_small(p, bytes, strlen(bytes));
        free(bytes);
        there = ts_bytes_at(&p->from_small)[1] == '1';
        p->from_small.start = p->from_small.end;
        if (there && !ts_wait_step(&w))
            fail_msg("%s does not end in the small one", key);
    }
}

static void expect_closed(struct place *p, const char *what)
{
    bool broken;
    struct pollfd f = {.fd = p->cn->fd, .events = POLLIN};

    if (poll(&f, 1, (int)TS_SOON) <= 0 ||
        ts_bytes_read(&p->from_real, p->cn->fd, &broken))
        fail_msg("%s: the real server does not close", what);
    if (!sr_ended(p->session))
        fail_msg("%s: the small server does not close", what);
    hang_up(p);
}

void df_step(const char *what, const char *line)
{
    int place = 1;

    if (line[0] >= '1' && line[0] <= '4' && strchr("></%", line[1]) &&
        line[1]) {
        place = line[0] - '0';
        line += line[1] == '>' ? 2 : 1;
    }
    line += strspn(line, " ");
    switch (line[0]) {
    case '<':
        for (int n = atoi(line + 1); n > 0; n--)
            compare_one(place_at(place), '\0', what, line);
        break;
    case '~':
    case '?':
    case '=':
        command(place, line[0], what, line + 2);
        break;
    case '!':
        wait_end(line + 2);
        break;
    case '$':
        named = atoi(line + 4);
        place_at(named);
        break;
    case '/':
        hang_up(place_at(place));
        break;
    case '%':
        expect_closed(place_at(place), what);
        break;
    default:
        command(place, '\0', what, line);
    }
}

static void empty(int place)
{
    command(place, '\0', "begin", "FLUSHALL");
    command(place, '\0', "begin", "SCRIPT FLUSH");
}

void df_begin(void)
{
    for (int i = 1; i < PLACES - 1; i++)
        hang_up(&places[i]);
    empty(0);
    named = 0;
}

/* Reads "# name" and the steps below it. */
int df_file(const char *file, void (*special)(const char *what))
{
    char line[8192], name[200] = "";
    char *path = ts_text("%s/%s", DIBS_SIM_DIR, file);
    FILE *f = fopen(path, "re");
    int steps = 0;

    if (!f)
        fail_msg("%s cannot be read", path);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#') {
            snprintf(name, sizeof name, "%.190s", line + 2);
            df_begin();
        } else if (line[0] == '@') {
            special(line + 2);
        } else if (line[0] && line[0] != ';') {
            df_step(name, line);
            steps++;
        }
    }
    fclose(f);
    free(path);
    df_end();
    return steps;
}

void df_end(void)
{
    int n = differences;

    differences = 0;
    if (n)
        fail_msg("%d replies differ", n);
}

void df_compare_keys(const char *what)
{
    static const char *const keys[] = {"a", "b", "c", "d", "e"};

    command(0, '=', what, "KEYS *");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        static const char *const looks[][2] = {{"TYPE", ""},
                                               {"GET", ""},
                                               {"HGETALL", ""},
                                               {"LRANGE", "0 -1"},
                                               {"ZRANGE", "0 -1 WITHSCORES"},
                                               {"PTTL", ""}};
        for (size_t j = 0; j < sizeof looks / sizeof looks[0]; j++) {
            char line[64];
            snprintf(line, sizeof line, "%s %s %s", looks[j][0], keys[i],
                     looks[j][1]);
            command(0, line[0] == 'P' ? '~' : '\0', what, line);
        }
    }
}
