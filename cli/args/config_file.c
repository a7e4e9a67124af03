/* SPDX-License-Identifier: MIT
 *
 * config_file.c - defaults of the command, read from files.
 *
 * An option counts first, then the environment, then the user's file
 * ($XDG_CONFIG_HOME/dibs/config, or ~/.config/dibs/config), then the system's
 * (/etc/dibs.conf), then the built-in default. A file has one "key = value" a
 * line; "#" begins a comment line.
 *
 * Strict  A file that cannot be read, or has a line that is wrong, ends the
 *         command. A typing error in "url" would otherwise lead to the private
 *         server, and two programs on two servers do not exclude each other.
 *
 * Trust   A file names the server, so its writer decides who excludes whom. A
 *         file is refused if everybody may write to it, or if it belongs to
 *         another user than root and us.
 *
 * Thread  The first, before there is another.
 */
#include "args/config_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exit_codes.h"
#include "server/server_select.h"

#ifndef DIBS_SYSTEM_SETTINGS
#define DIBS_SYSTEM_SETTINGS "/etc/dibs.conf"
#endif
#define LINE_MAX_BYTES 4096
#define BLANKS         " \t\r\n"

enum setting_key { KEY_URL, KEY_URL_FILE, KEY_LEASE, KEY_WAIT, KEYS };

static const char *const key_names[KEYS] = {
    [KEY_URL] = "url",
    [KEY_URL_FILE] = "url-file",
    [KEY_LEASE] = "lease",
    [KEY_WAIT] = "wait",
};

/* One file and what it says. */
struct settings_file {
    char *path;
    char *values[KEYS];  /* NULL: it does not say */
    int lines[KEYS];     /* where */
    int64_t times[KEYS]; /* of lease and wait, in ms */
};

/* Where the values in use come from, for settings_explain. */
static char *sources[KEYS];

/* The server that a file names; struct args points to it. */
static char *kept_server;

/* ---- one file ---------------------------------------------------------- */

static int wrong_line(const struct settings_file *f, int line, const char *what,
                      const char *word)
{
    out_tell(OUT_ERROR, "usage",
             "%s:%d: %s '%.40s'; there are: url, url-file, "
             "lease, wait, each as 'key = value'",
             f->path, line, what, word);
    return EXIT_USAGE;
}

static int find_key(const char *word)
{
    int key = 0;

    while (key < KEYS && strcmp(word, key_names[key]) != 0)
        key++;
    return key;
}

/* Takes blanks off both ends. */
static char *trim_blanks(char *text)
{
    text += strspn(text, BLANKS);
    for (size_t n = strlen(text); n > 0 && strchr(BLANKS, text[n - 1]);)
        text[--n] = '\0';
    return text;
}

static int check_value(struct settings_file *f, int key, int line)
{
    const char *why = NULL;

    if (key == KEY_LEASE || key == KEY_WAIT)
        why = value_time(f->values[key], &f->times[key]);
    if (!why && key == KEY_LEASE && f->times[key] < DIBS_LEASE_MIN_MS)
        why = "is shorter than the shortest lease";
    if (!why && key == KEY_URL_FILE && f->values[key][0] != '/')
        why = "is not an absolute path";
    if (!why)
        return EXIT_FINE;
    out_tell(OUT_ERROR, "usage", "%s:%d: %s: '%s' %s", f->path, line,
             key_names[key], f->values[key], why);
    return EXIT_USAGE;
}

static int read_line(struct settings_file *f, char *text, int line)
{
    char *equals = strchr(text, '=');

    text = trim_blanks(text);
    if (*text == '\0' || *text == '#')
        return EXIT_FINE;
    if (!equals)
        return wrong_line(f, line, "no '=' behind", text);
    *equals = '\0';
    char *word = trim_blanks(text), *value = trim_blanks(equals + 1);
    int key = find_key(word);
    if (key == KEYS)
        return wrong_line(f, line, "unknown setting", word);
    if (*value == '\0')
        return wrong_line(f, line, "no value for", word);
    if (f->values[key]) {
        out_tell(OUT_ERROR, "usage", "%s:%d: '%s' is in line %d already",
                 f->path, line, word, f->lines[key]);
        return EXIT_USAGE;
    }
    f->values[key] = strdup(value);
    f->lines[key] = line;
    return f->values[key] ? check_value(f, key, line) : EXIT_INTERNAL;
}

/* A file of this name exists. May it decide on our server? */
static int check_trust(const struct settings_file *f, const struct stat *st)
{
    const char *why = NULL;

    if (!S_ISREG(st->st_mode))
        why = "it is not a regular file";
    else if (st->st_mode & S_IWOTH)
        why = "everybody may write to it; try: chmod o-w";
    else if (st->st_uid != 0 && st->st_uid != geteuid())
        why = "it belongs to another user";
    if (!why)
        return EXIT_FINE;
    out_tell(OUT_ERROR, "usage", "the settings in '%s' are not used: %s",
             f->path, why);
    return EXIT_USAGE;
}

static void warn_of_readers(const struct settings_file *f,
                            const struct stat *st)
{
    const char *url = f->values[KEY_URL];

    if (url && (st->st_mode & S_IROTH) && target_has_password(url))
        out_tell(OUT_WARN, "usage",
                 "everybody may read the password in '%s'; try: chmod 600 "
                 "'%s'",
                 f->path, f->path);
}

static int read_lines(struct settings_file *f, FILE *in)
{
    char text[LINE_MAX_BYTES];
    int code = EXIT_FINE;

    for (int line = 1; code == EXIT_FINE && fgets(text, sizeof text, in);
         line++) {
        if (!strchr(text, '\n') && !feof(in))
            code = wrong_line(f, line, "too long, or with a NUL byte:", text);
        else
            code = read_line(f, text, line);
        explicit_bzero(text, sizeof text);
    }
    if (code == EXIT_FINE && ferror(in)) {
        out_tell(OUT_ERROR, "usage", "cannot read '%s': %s", f->path,
                 strerror(errno));
        code = EXIT_USAGE;
    }
    return code;
}

/* A file that does not exist says nothing. */
static int read_file(struct settings_file *f)
{
    struct stat st;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return EXIT_FINE;
    FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!in || fstat(fd, &st) != 0) {
        out_tell(OUT_ERROR, "usage", "cannot read '%s': %s", f->path,
                 strerror(errno));
        if (in)
            fclose(in);
        else if (fd >= 0)
            close(fd);
        return EXIT_USAGE;
    }
    int code = check_trust(f, &st);
    if (code == EXIT_FINE)
        code = read_lines(f, in);
    if (code == EXIT_FINE && f->values[KEY_URL] && f->values[KEY_URL_FILE]) {
        out_tell(OUT_ERROR, "usage",
                 "%s:%d: url and url-file both name the server; drop one",
                 f->path, f->lines[KEY_URL_FILE]);
        code = EXIT_USAGE;
    }
    if (code == EXIT_FINE)
        warn_of_readers(f, &st);
    fclose(in);
    return code;
}

/* ---- which value counts ------------------------------------------------ */

/* The path of the user's file; NULL: there is none. */
static char *user_path(void)
{
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char *path = NULL;
    int n = -1;

    if (xdg && *xdg == '/')
        n = asprintf(&path, "%s/dibs/config", xdg);
    else if (home && *home == '/')
        n = asprintf(&path, "%s/.config/dibs/config", home);
    return n < 0 ? NULL : path;
}

static void set_source(int key, const char *text)
{
    free(sources[key]);
    sources[key] = strdup(text);
}

static void set_source_line(const struct settings_file *f, int key)
{
    free(sources[key]);
    if (asprintf(&sources[key], "%s, line %d", f->path, f->lines[key]) < 0)
        sources[key] = NULL;
}

/* Does an option or the environment name the server? */
static bool server_is_named(const struct args *a)
{
    if (a->quorum)
        set_source(KEY_URL, "--quorum");
    else if (a->url)
        set_source(KEY_URL, "-u");
    else if (a->url_file)
        set_source(KEY_URL, "--url-file");
    else if (getenv("DIBS_URL"))
        set_source(KEY_URL, "$DIBS_URL");
    else if (getenv("DIBS_URL_FILE"))
        set_source(KEY_URL, "$DIBS_URL_FILE");
    return sources[KEY_URL] != NULL;
}

/* Moves what is still missing from the file to a. */
static void fill_from_file(struct args *a, struct settings_file *f)
{
    bool named = sources[KEY_URL] != NULL;

    for (int key = KEY_URL; key <= KEY_URL_FILE && !named; key++) {
        if (!f->values[key])
            continue;
        free(kept_server);
        kept_server = f->values[key];
        f->values[key] = NULL;
        *(key == KEY_URL ? &a->set_url : &a->set_url_file) = kept_server;
        set_source_line(f, key);
        if (key == KEY_URL_FILE) {
            free(sources[KEY_URL]);
            sources[KEY_URL] = sources[KEY_URL_FILE];
            sources[KEY_URL_FILE] = NULL;
        }
    }
    if (f->values[KEY_LEASE] && a->lease_ms == NOT_GIVEN) {
        a->lease_ms = f->times[KEY_LEASE];
        set_source_line(f, KEY_LEASE);
    }
    if (f->values[KEY_WAIT] && a->wait_ms == NOT_GIVEN) {
        a->wait_ms = f->times[KEY_WAIT];
        set_source_line(f, KEY_WAIT);
    }
}

static void fill_defaults(struct args *a)
{
    if (!sources[KEY_URL])
        set_source(KEY_URL, "nowhere: the private server is used");
    if (a->lease_ms == NOT_GIVEN) {
        a->lease_ms = LEASE_DEFAULT;
        set_source(KEY_LEASE, "the built-in default");
    }
    if (a->wait_ms == NOT_GIVEN) {
        a->wait_ms = WAIT_FOREVER;
        set_source(KEY_WAIT, "the built-in default");
    }
}

static int read_and_fill(struct args *a, char *path)
{
    struct settings_file f = {.path = path};
    int code = path ? read_file(&f) : EXIT_FINE;

    if (code == EXIT_FINE)
        fill_from_file(a, &f);
    for (int key = 0; key < KEYS; key++) {
        if (f.values[key])
            explicit_bzero(f.values[key], strlen(f.values[key]));
        free(f.values[key]);
    }
    free(path);
    return code;
}

int settings_apply(struct args *a)
{
    (void)server_is_named(a);
    if (a->lease_ms != NOT_GIVEN)
        set_source(KEY_LEASE, "--lease");
    if (a->wait_ms != NOT_GIVEN)
        set_source(KEY_WAIT, "-w or -n");
    int code = read_and_fill(a, user_path());
    if (code == EXIT_FINE)
        code = read_and_fill(a, strdup(DIBS_SYSTEM_SETTINGS));
    fill_defaults(a);
    return code;
}

void settings_explain(const struct args *a,
                      void (*tell)(const char *text, void *arg), void *arg)
{
    char span[OUT_SPAN_MAX], text[512];

    snprintf(text, sizeof text, "the server's address comes from %s",
             sources[KEY_URL] ? sources[KEY_URL] : "?");
    tell(text, arg);
    snprintf(text, sizeof text, "lease %s, from %s",
             out_span(a->lease_ms, span),
             sources[KEY_LEASE] ? sources[KEY_LEASE] : "?");
    tell(text, arg);
    snprintf(text, sizeof text, "wait %s, from %s",
             a->wait_ms == WAIT_FOREVER ? "without end"
                                        : out_span(a->wait_ms, span),
             sources[KEY_WAIT] ? sources[KEY_WAIT] : "?");
    tell(text, arg);
}
