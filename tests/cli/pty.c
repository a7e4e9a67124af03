/* SPDX-License-Identifier: MIT
 *
 * pty.c - runs a command on a terminal of its own and types into it.
 *
 *     pty SCRIPT COMMAND [ARGS...]
 *
 * Each line of SCRIPT is one step:
 *
 *     expect TEXT   wait until TEXT has been shown, behind what was last
 *                   expected
 *     match REGEX   the same, with an extended regular expression
 *     send TEXT     type TEXT; \r, \n, \e and three octal digits are escapes
 *     until LINE    run LINE with a shell, again and again until it succeeds
 *     columns N     make the terminal so wide
 *     size R C      make it so high and so wide
 *     screen TEXT   wait until a row of the screen has TEXT (see vt.h)
 *     row N TEXT    the same, of that row, from 0
 *     gone TEXT     wait until no row has TEXT
 *     mark          count what is shown from here on
 *     below N       less than N bytes were shown since the mark
 *     keep FILE     write the screen to a file
 *     hangup        close the terminal
 *
 * A size in the first line is that of the terminal before the command runs.
 *
 * Then it waits for the command and ends as it did: with its exit code, or
 * 128 + n for signal n. What was shown goes to stdout. When a step does not
 * happen in time, the code is 99 and stderr says which.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "vt.h"

static struct {
    int master;
    pid_t pid;
    char shown[1 << 20];
    size_t len, seen, drawn, mark;
    int limit_s;
} t;

static _Noreturn void give_up(const char *what, const char *text)
{
    fprintf(stderr, "pty: %s '%s' did not happen; shown so far:\n%s\n", what,
            text, t.shown);
    kill(-t.pid, SIGKILL);
    kill(t.pid, SIGKILL);
    exit(99);
}

static void open_terminal(void)
{
    t.master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (t.master < 0 || grantpt(t.master) != 0 || unlockpt(t.master) != 0) {
        perror("pty");
        exit(99);
    }
}

static void start(char **argv)
{
    const char *name = ptsname(t.master);

    t.pid = fork();
    if (t.pid != 0)
        return;
    for (int sig = 1; sig < NSIG; sig++) /* scripts ignore some in jobs */
        signal(sig, SIG_DFL);
    setsid();
    int slave = open(name, O_RDWR);
    ioctl(slave, TIOCSCTTY, 0);
    for (int fd = 0; fd < 3; fd++)
        dup2(slave, fd);
    if (slave > 2)
        close(slave);
    execvp(argv[0], argv);
    perror(argv[0]);
    _exit(127);
}

/* Reads what is there; false when the terminal is closed. */
static int pump(int wait_ms)
{
    struct pollfd p = {.fd = t.master, .events = POLLIN};

    if (t.master < 0 || poll(&p, 1, wait_ms) <= 0)
        return t.master >= 0;
    ssize_t n = read(t.master, t.shown + t.len, sizeof t.shown - 1 - t.len);
    if (n <= 0)
        return 0;
    t.len += (size_t)n;
    return 1;
}

static void expect(const char *text)
{
    time_t end = time(NULL) + t.limit_s;

    for (;;) {
        char *at = memmem(t.shown + t.seen, t.len - t.seen, text, strlen(text));
        if (at) {
            t.seen = (size_t)(at - t.shown) + strlen(text);
            return;
        }
        if (time(NULL) > end || !pump(100))
            give_up("expect", text);
    }
}

static void match(const char *regex)
{
    time_t end = time(NULL) + t.limit_s;
    regmatch_t at;
    regex_t re;

    if (regcomp(&re, regex, REG_EXTENDED) != 0)
        give_up("match", regex);
    while (regexec(&re, t.shown + t.seen, 1, &at, 0) != 0)
        if (time(NULL) > end || !pump(100))
            give_up("match", regex);
    t.seen += (size_t)at.rm_eo;
    regfree(&re);
}

static void type(const char *text)
{
    for (const char *s = text; *s; s++) {
        char c = *s;
        if (*s == '\\' && s[1] >= '0' && s[1] <= '7') {
            c = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else if (*s == '\\') {
            s++;
            c = *s == 'r' ? '\r' : *s == 'n' ? '\n' : *s == 'e' ? 27 : *s;
        }
        if (write(t.master, &c, 1) != 1)
            give_up("send", text);
    }
}

static void until(const char *line)
{
    time_t end = time(NULL) + t.limit_s;

    while (system(line) != 0) {
        if (time(NULL) > end)
            give_up("until", line);
        pump(20);
    }
}

static void set_columns(int n)
{
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)n};

    ioctl(t.master, TIOCSWINSZ, &size);
}

static int on_screen(const char *text, int row)
{
    t.drawn += vt_take(t.shown + t.drawn, t.len - t.drawn);
    if (vt.wrong[0])
        give_up("only codes that are known, not", vt.wrong);
    for (int r = 0; r < VT_ROWS; r++)
        if ((row < 0 || r == row) && strstr(vt_row(r), text))
            return 1;
    return 0;
}

static void show_screen(FILE *f)
{
    for (int r = 0; r < VT_ROWS; r++)
        fprintf(f, "%s\n", vt_row(r));
}

static void await_screen(const char *text, int row, int there)
{
    time_t end = time(NULL) + t.limit_s;

    while (on_screen(text, row) != there) {
        if (time(NULL) > end || !pump(100)) {
            show_screen(stderr);
            give_up(there ? "screen" : "gone", text);
        }
    }
}

static void keep_screen(const char *path)
{
    FILE *f = fopen(path, "w");

    if (!f)
        give_up("keep", path);
    (void)on_screen("", -1);
    show_screen(f);
    fclose(f);
}

static void set_size(const char *text)
{
    struct winsize size = {0};
    char *rest;

    size.ws_row = (unsigned short)strtol(text, &rest, 10);
    size.ws_col = (unsigned short)strtol(rest, NULL, 10);
    ioctl(t.master, TIOCSWINSZ, &size);
}

static int size_step(const char *line)
{
    if (strncmp(line, "columns ", 8) == 0)
        set_columns(atoi(line + 8));
    else if (strncmp(line, "size ", 5) == 0)
        set_size(line + 5);
    else
        return 0;
    return 1;
}

static void screen_step(const char *line)
{
    char *rest;

    if (strncmp(line, "screen ", 7) == 0)
        await_screen(line + 7, -1, 1);
    else if (strncmp(line, "gone ", 5) == 0)
        await_screen(line + 5, -1, 0);
    else if (strncmp(line, "row ", 4) == 0) {
        long row = strtol(line + 4, &rest, 10);
        await_screen(rest + 1, (int)row, 1);
    } else if (strcmp(line, "mark") == 0)
        t.mark = t.len;
    else if (strncmp(line, "below ", 6) == 0) {
        pump(0);
        if (t.len - t.mark >= (size_t)atol(line + 6))
            give_up("below", line + 6);
    } else if (strncmp(line, "keep ", 5) == 0)
        keep_screen(line + 5);
}

static void step(const char *line)
{
    if (strncmp(line, "expect ", 7) == 0)
        expect(line + 7);
    else if (strncmp(line, "match ", 6) == 0)
        match(line + 6);
    else if (strncmp(line, "send ", 5) == 0)
        type(line + 5);
    else if (strncmp(line, "until ", 6) == 0)
        until(line + 6);
    else if (strcmp(line, "hangup") == 0) {
        close(t.master);
        t.master = -1;
    } else if (!size_step(line)) {
        screen_step(line);
    }
}

static int finish(void)
{
    time_t end = time(NULL) + t.limit_s;
    int status;

    while (waitpid(t.pid, &status, WNOHANG) == 0) {
        if (time(NULL) > end)
            give_up("the end of", "the command");
        if (!pump(20))
            poll(NULL, 0, 20); /* closed: only its end is missing */
    }
    while (t.master >= 0 && pump(0) && t.len < sizeof t.shown - 1) {
        struct pollfd p = {.fd = t.master, .events = POLLIN};
        if (poll(&p, 1, 0) <= 0)
            break;
    }
    fwrite(t.shown, 1, t.len, stdout);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    const char *slow = getenv("DIBS_TEST_SLOWNESS");
    char line[4096];
    int started = 0;
    FILE *f = argc > 2 ? fopen(argv[1], "r") : NULL;

    if (!f) {
        fprintf(stderr, "usage: pty SCRIPT COMMAND [ARGS...]\n");
        return 99;
    }
    t.limit_s = 60 * (slow && atoi(slow) > 0 ? atoi(slow) : 1);
    open_terminal();
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (!started) {
            int sized = size_step(line);

            start(argv + 2);
            started = 1;
            if (sized)
                continue;
        }
        step(line);
    }
    if (!started)
        start(argv + 2);
    fclose(f);
    return finish();
}
