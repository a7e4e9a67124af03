/* SPDX-License-Identifier: MIT
 *
 * release_plan.c - what to release if dibs is killed: written in
 * advance, executed by another process.
 *
 * The guards of a command (child_guard.c) and of a script (script_guard.c)
 * notice that dibs was killed, and kill the command or signal the script. Once
 * that has ended, the lock should be released at once and not at the end of its
 * lease. A guard is a fork of a process with threads and cannot use the
 * library. So it executes a new dibs, which can.
 *
 * Text    Strings, each with a NUL behind it, in a memory file that only our
 *         processes have: the URL and password are neither on a command line
 *         nor in an environment. Once written it is sealed.
 *
 *             kind and owners, as hold_handle.c writes them
 *             until when the lock has to stay taken (--min-hold)
 *             password, or nothing
 *             for each lock: URL, name
 *
 * Rights  Only the hold of that owner is released. If it is gone, or another
 *         owner has the lock, nothing happens. An owner's name is never
 *         used again.
 *
 * Time    A server that does not answer is tried again for a while; then the
 *         lock ends with its lease.
 *
 * Thread  The first one.
 */
#include "hold/release_plan.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exit_codes.h"
#include "hold/hold_handle.h"
#include "util/fds.h"
#include "util/time.h"

#define RELEASE_PLAN_FD  3
#define RELEASE_PLAN_MAX (1 << 20)
#define PATIENCE_MS      60000 /* for servers that do not answer */
#define PAUSE_MS         250

extern char **environ;

/* ---- writing ----------------------------------------------------------- */

void release_plan_open(struct release_plan *w)
{
    w->fd = memfd_create("dibs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    w->exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
}

void release_plan_close(struct release_plan *w)
{
    if (w->fd >= 0)
        close(w->fd);
    if (w->exe >= 0)
        close(w->exe);
    *w = (struct release_plan){.fd = -1, .exe = -1};
}

static void put_text(FILE *f, const char *text)
{
    fputs(text ? text : "", f);
    putc('\0', f);
}

static void put_locks(FILE *f, const struct lock_session *g)
{
    const struct target *t = &g->target;
    char *copy = g->a->multi ? strdup(g->a->multi) : NULL, *save = NULL;

    for (char *name = copy ? strtok_r(copy, ",", &save) : NULL; name;
         name = strtok_r(NULL, ",", &save)) {
        put_text(f, t->url);
        put_text(f, name);
    }
    for (size_t i = 0; !g->a->multi && i < target_count(t); i++) {
        put_text(f, t->urls ? t->urls[i] : t->url);
        put_text(f, g->a->words[0]);
    }
    free(copy);
}

void release_plan_write(struct release_plan *w, const struct lock_session *g)
{
    char *owners = hold_handle_format(g->a, &g->b);
    int copy = w->fd >= 0 ? dup(w->fd) : -1;
    FILE *f = copy >= 0 ? fdopen(copy, "w") : NULL;

    if (owners && f) {
        put_text(f, owners);
        fprintf(f, "%" PRId64, g->held_at + g->a->min_hold_ms);
        putc('\0', f);
        put_text(f, g->target.password);
        put_locks(f, g);
    }
    if (f)
        fclose(f);
    else if (copy >= 0)
        close(copy);
    free(owners);
    if (w->fd >= 0)
        (void)fcntl(w->fd, F_ADD_SEALS,
                    F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
}

/* ---- carrying out ------------------------------------------------------ */

/* Where descriptors are while the lowest ones are being set. */
#define ASIDE 32

void release_plan_exec(const struct release_plan *w)
{
    char *argv[] = {"dibs", "give-back", NULL};
    struct stat st;

    if (w->fd < 0 || w->exe < 0 || fstat(w->fd, &st) != 0 || st.st_size == 0)
        return;
    int text = fcntl(w->fd, F_DUPFD, ASIDE);
    int exe = fcntl(w->exe, F_DUPFD, ASIDE);
    int null = open("/dev/null", O_RDWR);
    if (text < 0 || exe < 0 || null < 0)
        return;
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
    dup2(text, RELEASE_PLAN_FD);
    dup2(exe, RELEASE_PLAN_FD + 1);
    fcntl(RELEASE_PLAN_FD + 1, F_SETFD, FD_CLOEXEC);
    fds_close_from(RELEASE_PLAN_FD + 2, false);
    syscall(SYS_execveat, RELEASE_PLAN_FD + 1, "", argv, environ,
            AT_EMPTY_PATH);
}

/* The next string of the text; NULL at its end. */
static const char *next_text(char **at, const char *end)
{
    char *text = *at, *nul = memchr(text, '\0', (size_t)(end - text));

    if (!nul)
        return NULL;
    *at = nul + 1;
    return text;
}

static char *read_plan(size_t *len)
{
    struct stat st;
    char *text = NULL;

    if (fstat(RELEASE_PLAN_FD, &st) != 0 || st.st_size <= 0 ||
        st.st_size > RELEASE_PLAN_MAX)
        return NULL;
    *len = (size_t)st.st_size;
    text = malloc(*len);
    if (text && pread(RELEASE_PLAN_FD, text, *len, 0) != (ssize_t)*len) {
        free(text);
        return NULL;
    }
    return text;
}

/* Releases one lock of the plan. */
struct legacy {
    const char *url, *name;
    bool done;
};

/* Is there nothing more to do about it? */
static bool is_settled(dibs_err err)
{
    return err != DIBS_ERR_CONN && err != DIBS_ERR_UNKNOWN &&
           err != DIBS_ERR_SERVER;
}

static void legacy_try(struct legacy *y, size_t i, const struct hold_handle *f,
                       const char *password, int64_t keep_ms)
{
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    dibs_err err = dibs_client_open(
        y->url,
        DIBS_CLIENT_OPTS(.password = *password ? password : NULL,
                         .max_connections = 1, .client_name = "dibs-give-back"),
        &c);

    if (err == DIBS_OK)
        err = kind_new(f->kind, c, y->name, 1, &l);
    if (err == DIBS_OK)
        err = hold_handle_release(f, i, l, keep_ms);
    y->done = is_settled(err);
    dibs_lock_free(l);
    dibs_client_free(c);
}

static void release_all(struct legacy *all, size_t n,
                        const struct hold_handle *f, const char *password,
                        int64_t keep_until)
{
    int64_t until = time_now() + PATIENCE_MS;
    bool open = n > 0;

    while (open) {
        open = false;
        for (size_t i = 0; i < n; i++) {
            int64_t keep = keep_until - time_now();
            if (!all[i].done)
                legacy_try(&all[i], i, f, password, keep > 0 ? keep : 0);
            open |= !all[i].done;
        }
        if (time_now() > until)
            break;
        if (open)
            poll(NULL, 0, PAUSE_MS);
    }
}

int release_plan_main(void)
{
    static struct legacy all[LOCK_SET_MAX];
    size_t len = 0, n = 0;
    char *text = read_plan(&len), *at = text;
    struct hold_handle f;

    sigset_t none;

    sigemptyset(&none); /* who started us had blocked all */
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_NAME, "dibs-give-back");
    if (!text)
        return EXIT_USAGE;
    const char *owners = next_text(&at, text + len);
    const char *keep = next_text(&at, text + len);
    const char *password = next_text(&at, text + len);
    while (n < LOCK_SET_MAX && (all[n].url = next_text(&at, text + len)) &&
           (all[n].name = next_text(&at, text + len)))
        n++;
    const char *wrong = owners && keep && password
                            ? hold_handle_parse(&f, owners)
                            : "is cut off";
    if (!wrong)
        release_all(all, n, &f, password, strtoll(keep, NULL, 10));
    if (owners && keep && password)
        hold_handle_clear(&f);
    explicit_bzero(text, len);
    free(text);
    return wrong ? EXIT_USAGE : EXIT_FINE;
}
