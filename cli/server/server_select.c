/* SPDX-License-Identifier: MIT
 *
 * server_select.c - which server, and a client of it.
 *
 * In this order: -u, --url-file, $DIBS_URL, $DIBS_URL_FILE, the files of
 * config_file.c, and with none of them a private server (private_server.c).
 * Once a server is named, it is that one or an error: two programs that
 * silently use different servers do not exclude each other.
 *
 * Secrets The command line of a process can be read by everybody on the
 *         machine, so a URL with a password is refused there. Files and the
 *         environment are for that. A URL in a message has its password
 *         struck out.
 *
 * Thread  Picking happens on the first thread; opening may happen on another.
 */
#include "server/server_select.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "exit_codes.h"
#include "output/error_advice.h"
#include "util/time.h"

#define LINE_MAX_BYTES 4096
#define RETRY_MIN_MS   50 /* between attempts to reach a server */
#define RETRY_MAX_MS   1000
#define RETRY_TELL_MS  60000 /* between messages that it does not answer */
#define QUORUM_MIN     3
#define QUORUM_MAX     64

/* ---- reading ----------------------------------------------------------- */

/* Where the password is in a URL, and the '@' behind it; NULL when there is
 * none. An '@' or '/' that should have been escaped does not hide it. */
static const char *password_in(const char *url, const char **at)
{
    const char *from = strstr(url, "://");

    from = from ? from + 3 : url;
    *at = strrchr(from, '@');
    if (!*at)
        return NULL;
    const char *colon = memchr(from, ':', (size_t)(*at - from));
    return colon ? colon + 1 : NULL;
}

/* The same for the password that is for sentinels. */
static const char *sentinel_password_in(const char *url, const char **end)
{
    const char *word = strstr(url, "sentinel_password=");

    if (!word)
        return NULL;
    word += strlen("sentinel_password=");
    *end = word + strcspn(word, "&");
    return word;
}

bool target_has_password(const char *url)
{
    const char *end;

    return password_in(url, &end) || sentinel_password_in(url, &end);
}

static bool has_secret(const char *what, const char *line)
{
    return strcmp(what, "password") == 0 || target_has_password(line);
}

/* A user who may write the file chooses our server; a user who may read it has
 * the password. Groups are up to the administrator. False when it is refused,
 * and an error was printed. */
static bool may_use(const char *what, const char *path, FILE *f, bool secret)
{
    struct stat st;

    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode))
        return true; /* a pipe, for instance */
    if (st.st_mode & S_IWOTH) {
        out_tell(OUT_ERROR, "usage",
                 "everybody may write to '%s', so the %s in it is not used; "
                 "try: chmod 600 '%s'",
                 path, what, path);
        return false;
    }
    if (secret && st.st_mode & S_IROTH)
        out_tell(OUT_WARN, "usage",
                 "everybody may read the password in '%s'; try: chmod 600 '%s'",
                 path, path);
    return true;
}

char *target_read_line(const char *what, const char *path)
{
    char line[LINE_MAX_BYTES];
    char *copy = NULL;
    FILE *f = fopen(path, "re");

    if (!f) {
        out_tell(OUT_ERROR, "usage", "cannot read the %s from '%s': %s", what,
                 path, strerror(errno));
        return NULL;
    }
    if (fgets(line, sizeof line, f)) {
        char *from = line + strspn(line, " \t\r\n");
        size_t len = strlen(from);

        while (len > 0 && strchr(" \t\r\n", from[len - 1]))
            from[--len] = '\0';
        copy = len > 0 ? strdup(from) : NULL;
        explicit_bzero(line, sizeof line);
    }
    bool usable = !copy || may_use(what, path, f, has_secret(what, copy));
    fclose(f);
    if (!usable) {
        explicit_bzero(copy, strlen(copy));
        free(copy);
        return NULL;
    }
    if (!copy)
        out_tell(OUT_ERROR, "usage", "there is no %s in '%s'", what, path);
    return copy;
}

/* The URL with what is between secret and end struck out; frees url. */
static char *strike_out(char *url, const char *secret, const char *end)
{
    char *shown = NULL;

    if (url && secret &&
        asprintf(&shown, "%.*s***%s", (int)(secret - url), url, end) < 0)
        shown = NULL;
    if (!url || !secret)
        return url;
    free(url);
    return shown;
}

/* The URL as it may be shown; free it. */
static char *without_password(const char *url)
{
    const char *end = NULL;
    char *shown = strdup(url);

    const char *secret = shown ? sentinel_password_in(shown, &end) : NULL;
    shown = strike_out(shown, secret, end);
    secret = shown ? password_in(shown, &end) : NULL;
    return strike_out(shown, secret, end);
}

/* ---- picking ----------------------------------------------------------- */

static const char *env_value(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* Set, but empty: a mistake in a script, and no reason to use another server.
 */
static bool is_hollow(const char *name)
{
    const char *value = getenv(name);

    return value && !*value;
}

static int refuse_password(const char *option)
{
    return args_wrong(NULL,
                      "dibs run -u redis://db1.example --password-file FILE",
                      "a password in %s can be seen by everybody (ps); use "
                      "--password-file, --url-file, $DIBS_URL or "
                      "$DIBS_PASSWORD",
                      option);
}

/* Where the next URL begins: behind a comma that a scheme follows. A list of
 * hosts within a URL has commas, too. */
static char *next_url(char *s)
{
    for (; (s = strchr(s, ',')); s++) {
        size_t n = strspn(s + 1, "abcdefghijklmnopqrstuvwxyz-");
        if (n > 0 && strncmp(s + 1 + n, "://", 3) == 0)
            return s;
    }
    return NULL;
}

/* Splits t->url into the URLs. */
static int pick_quorum(const struct args *a, struct target *t)
{
    static const char right[] =
        "dibs run --quorum redis://a,redis://b,redis://c backup -- make";
    size_t n = 0;

    t->url = strdup(a->quorum);
    t->urls = calloc(QUORUM_MAX + 1, sizeof *t->urls);
    if (!t->url || !t->urls)
        return EXIT_INTERNAL;
    for (char *s = t->url, *end; s; s = end ? end + 1 : NULL) {
        end = next_url(s);
        if (end)
            *end = '\0';
        if (n == QUORUM_MAX)
            return args_wrong(NULL, right, "--quorum: more than %d servers",
                              QUORUM_MAX);
        if (target_has_password(s))
            return refuse_password("--quorum");
        t->urls[n++] = s;
    }
    for (size_t i = 0; i < n && n < QUORUM_MIN; i++)
        if (strchr(t->urls[i], ','))
            return args_wrong(NULL, right,
                              "--quorum: '%s' counts as one address; each "
                              "server needs its own scheme, such as redis://",
                              t->urls[i]);
    if (n < QUORUM_MIN)
        return args_wrong(NULL, right,
                          "--quorum: %zu address%s given, and at least %d are "
                          "needed: a majority must be left when one server is "
                          "gone",
                          n, n == 1 ? "" : "es", QUORUM_MIN);
    return EXIT_FINE;
}

static int pick_url(const struct args *a, struct target *t)
{
    const char *file = a->url_file;

    if (a->quorum)
        return pick_quorum(a, t);
    if (a->url) {
        if (target_has_password(a->url))
            return refuse_password("-u");
        t->url = strdup(a->url);
    } else if (!file &&
               (is_hollow("DIBS_URL") ||
                (!env_value("DIBS_URL") && is_hollow("DIBS_URL_FILE")))) {
        return args_wrong(NULL, "unset DIBS_URL DIBS_URL_FILE",
                          "$%s is set, but empty",
                          is_hollow("DIBS_URL") ? "DIBS_URL" : "DIBS_URL_FILE");
    } else if (!file && env_value("DIBS_URL")) {
        t->url = strdup(env_value("DIBS_URL"));
    } else if (file || (file = env_value("DIBS_URL_FILE")) != NULL) {
        t->url = target_read_line("URL", file);
        return t->url ? EXIT_FINE : EXIT_USAGE;
    } else if (a->set_url) {
        t->url = strdup(a->set_url);
    } else if (a->set_url_file) {
        t->url = target_read_line("URL", a->set_url_file);
        return t->url ? EXIT_FINE : EXIT_USAGE;
    } else {
        t->embedded = true;
        return EXIT_FINE;
    }
    return t->url ? EXIT_FINE : EXIT_INTERNAL;
}

static int pick_password(const struct args *a, struct target *t)
{
    const char *text = env_value("DIBS_PASSWORD");

    if (a->password_file) {
        if (t->embedded)
            return args_wrong(NULL,
                              "dibs run -u redis://db1.example "
                              "--password-file FILE backup -- make",
                              "--password-file without a server: the private "
                              "one has no password");
        t->password = target_read_line("password", a->password_file);
        return t->password ? EXIT_FINE : EXIT_USAGE;
    }
    if (!text || t->embedded)
        return EXIT_FINE;
    t->password = strdup(text);
    return t->password ? EXIT_FINE : EXIT_INTERNAL;
}

int target_pick(const struct args *a, struct target *t)
{
    *t = (struct target){.a = a};
    if (a->server_wait_ms == WAIT_FOREVER)
        t->server_until = TIME_NEVER;
    else if (a->server_wait_ms != NOT_GIVEN)
        t->server_until = time_now() + a->server_wait_ms;
    int code = pick_url(a, t);

    if (code == EXIT_FINE)
        code = pick_password(a, t);
    if (code != EXIT_FINE || !t->embedded)
        return code;
    code = local_find(&t->local);
    if (code != EXIT_FINE)
        return code;
    t->url = local_url(&t->local);
    out_tell(OUT_INFO, "local",
             "no URL given: the private server of this user on this machine, "
             "%s",
             t->local.socket);
    return t->url ? EXIT_FINE : EXIT_INTERNAL;
}

void target_clear(struct target *t)
{
    if (t->url)
        explicit_bzero(t->url, strlen(t->url));
    if (t->password)
        explicit_bzero(t->password, strlen(t->password));
    free(t->url);
    free(t->urls);
    free(t->password);
    *t = (struct target){.url = NULL};
}

/* ---- opening ----------------------------------------------------------- */

size_t target_count(const struct target *t)
{
    size_t n = 0;

    while (t->urls && t->urls[n])
        n++;
    return t->urls ? n : 1;
}

/* Events while a client is opened are not printed: if opening fails, its reason
 * is. Later events go to the callback of the caller. */
static struct {
    atomic_bool over;
    dibs_event_cb then;
    void *arg;
} opening;

static void while_opening(const dibs_event *ev, void *arg)
{
    (void)arg;
    if (opening.over && opening.then)
        opening.then(ev, opening.arg);
}

/* What the library says: "redis://host:port: words", or only words. */
struct reason {
    char text[FAILURE_MAX];
    const char *words;
};

static void get_reason(struct reason *r)
{
    snprintf(r->text, sizeof r->text, "%s", dibs_error_text());
    failure_trim(r->text);
    r->words = failure_words(r->text);
}

/* It does not answer. The library's address has a port, which the user's may
 * not have. With retry_ms, it is being tried again for so long; TIME_NEVER:
 * without end. */
static void tell_no_answer(const struct target *t, const char *url,
                           const struct reason *r, int64_t retry_ms)
{
    char span[OUT_SPAN_MAX], step[FAILURE_MAX];
    bool addressed = r->words > r->text;

    if (retry_ms > 0)
        out_tell(OUT_WARN, "server", "no answer from %s%s%s; trying again%s%s",
                 addressed ? "" : url, addressed || !*r->text ? "" : ": ",
                 r->text, retry_ms == TIME_NEVER ? "" : " for ",
                 retry_ms == TIME_NEVER ? "" : out_span(retry_ms, span));
    else
        out_tell(OUT_ERROR, "server", "no answer from %s%s%s%s",
                 addressed ? "" : url, addressed || !*r->text ? "" : ": ",
                 r->text, failure_step(t->a, DIBS_ERR_CONN, r->text, step));
}

/* The URL as it may be shown; free it. */
static char *shown_url(const struct target *t, const char *url)
{
    /* A file with a password in the place of one with a URL? */
    bool file =
        t->a->url_file || !(t->a->url || t->a->quorum || env_value("DIBS_URL"));

    return file && !strstr(url, "://") ? strdup("***") : without_password(url);
}

static void tell_open_failed(const struct target *t, const char *name,
                             dibs_err err, int64_t retry_ms)
{
    char step[FAILURE_MAX];
    struct reason r;

    get_reason(&r);
    char *shown = shown_url(t, name);
    const char *url = shown ? shown : "the server";
    const char *colon = *r.words ? ": " : "";
    const char *words =
        strncmp(r.words, "url: ", 5) == 0 ? r.words + 5 : r.words;

    switch (err) {
    case DIBS_ERR_NOMEM: /* of memory, or of descriptors */
        out_tell(OUT_ERROR, "internal", "cannot use %s: %s", url,
                 *r.words ? r.words : dibs_strerror(err));
        break;
    case DIBS_ERR_INVALID:
        out_tell(OUT_ERROR, "usage",
                 "'%s' is not the address of a server%s%s; for example: "
                 "redis://db1.example:6379 or unix:///run/redis.sock",
                 url, colon, words);
        break;
    case DIBS_ERR_CONN:
        tell_no_answer(t, url, &r, retry_ms);
        break;
    case DIBS_ERR_AUTH:
        out_tell(OUT_ERROR, "noperm",
                 "%s refused our user, password or rights%s%s%s", url, colon,
                 r.words, failure_step(t->a, err, r.text, step));
        break;
    default:
        out_tell(OUT_ERROR, "server", "cannot use %s: %s%s%s%s", url,
                 dibs_strerror(err), colon, r.words,
                 failure_step(t->a, err, r.text, step));
    }
    free(shown);
}

/* A private server may be stopped between our look and our call; then a second
 * attempt starts another. */
static int open_embedded(const struct target *t, const dibs_client_opts *opts,
                         dibs_client **out, dibs_err *err)
{
    int code = EXIT_FINE;

    *err = DIBS_ERR_CONN;
    for (int again = 0; again < 2 && *err == DIBS_ERR_CONN; again++) {
        code = local_start(&t->local, t->until);
        if (code != EXIT_FINE)
            return code;
        *err = dibs_client_open(t->url, opts, out);
    }
    return code;
}

/* Until when to try again; 0: not. */
static int64_t retry_until(const struct target *t)
{
    if (t->server_until != 0)
        return t->server_until;
    return t->until == TIME_NEVER ? 0 : t->until;
}

/* Was there a fatal signal? Waits for one until then. */
static bool fatal_signal(const struct target *t, int64_t until)
{
    struct pollfd p = {.fd = t->signals ? t->signals->fd : -1,
                       .events = POLLIN};
    struct signal_got got;

    do {
        int64_t left = until - time_now();
        if (poll(&p, 1, left > 0 ? (int)left : 0) <= 0)
            continue;
        while (signals_next(t->signals, &got)) {
            if (got.sig == SIGTSTP)
                signals_stop(SIGTSTP, false);
            else if (signals_fatal(got.sig))
                return (*t->stopped_by = got.sig) != 0;
        }
    } while (time_now() < until);
    return false;
}

/* A server that was named may not be there yet: the machine, or the server, is
 * being started. With a limit for waiting that is waited for, too. */
static dibs_err open_named(const struct target *t, const char *url,
                           const dibs_client_opts *opts, dibs_client **out)
{
    dibs_err err = dibs_client_open(url, opts, out);
    int64_t pause = RETRY_MIN_MS, until = retry_until(t), tell_at = 0, now;

    while (err == DIBS_ERR_CONN && (now = time_now()) < until) {
        if (now >= tell_at) {
            tell_open_failed(t, url, err,
                             until == TIME_NEVER ? until : until - now);
            tell_at = now + RETRY_TELL_MS;
        }
        if (fatal_signal(t, time_earlier(now + pause, until)))
            return err;
        pause = pause < RETRY_MAX_MS / 2 ? 2 * pause : RETRY_MAX_MS;
        err = dibs_client_open(url, opts, out);
    }
    if (err != DIBS_OK)
        (void)fatal_signal(t, 0);
    return err;
}

/* As target_open; *why is the library's error. */
static int open_reasoned(const struct target *t, size_t i,
                         const dibs_client_opts *opts, dibs_client **out,
                         dibs_err *why)
{
    const char *url = t->urls ? t->urls[i] : t->url;
    dibs_client_opts all = *opts;
    int code = EXIT_FINE;
    dibs_err err = DIBS_OK;

    opening.over = false;
    opening.then = opts->on_event;
    opening.arg = opts->event_arg;
    if (!t->urls) /* those of a quorum are opened without a look at them */
        all.on_event = while_opening;
    all.password = t->password;
    all.lazy |= t->urls != NULL;
    if (t->embedded)
        code = open_embedded(t, &all, out, &err);
    else
        err = open_named(t, url, &all, out);
    *why = err;
    if (code != EXIT_FINE)
        return code;
    opening.over = true;
    if (err != DIBS_OK && !(t->stopped_by && *t->stopped_by))
        tell_open_failed(t, url, err, 0);
    return out_exit_of(err);
}

int target_open(const struct target *t, size_t i, const dibs_client_opts *opts,
                dibs_client **out)
{
    dibs_err err;

    return open_reasoned(t, i, opts, out, &err);
}

int target_look(const struct args *a, dibs_client **out,
                struct target_server *server)
{
    struct target t;
    int code = target_pick(a, &t);

    *out = NULL;
    *server = (struct target_server){.err = DIBS_OK};
    if (code == EXIT_FINE) {
        server->url = shown_url(&t, t.url);
        server->private = t.embedded;
    }
    if (code == EXIT_FINE && (!t.embedded || local_alive(&t.local, NULL)))
        code = open_reasoned(&t, 0,
                             DIBS_CLIENT_OPTS(.client_name = "dibs-look",
                                              .lease_ms = a->lease_ms),
                             out, &server->err);
    target_clear(&t);
    return code;
}

void target_server_clear(struct target_server *server)
{
    free(server->url);
    server->url = NULL;
}
