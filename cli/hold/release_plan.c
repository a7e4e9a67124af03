/* SPDX-License-Identifier: MIT
 *
 * release_plan.c - what is to be released when dibs is killed: written down
 * before, and carried out by another process.
 *
 * The guard of a command (child_guard.c) and the watcher of a script
 * (script_guard.c) see that dibs was killed, and end what it guarded. When
 * nobody is left, the lock could be free, but neither of them can talk to a
 * server: the guard is a copy of a process with threads. So each becomes a new
 * dibs, which does.
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
 * Rights  Only the hold of that owner is released. If it is gone, or somebody
 *         else has the lock by now, nothing happens. An owner's name is never
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

#define WILL_FD     3
#define WILL_MAX    (1 << 20)
#define PATIENCE_MS 60000 /* for servers that do not answer */
#define PAUSE_MS    250

extern char **environ;

/* ---- writing ----------------------------------------------------------- */

void will_open(struct will *w)
{
    w->fd = memfd_create("dibs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    w->exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
}

void will_close(struct will *w)
{
    if (w->fd >= 0)
        close(w->fd);
    if (w->exe >= 0)
        close(w->exe);
    *w = (struct will){.fd = -1, .exe = -1};
}

static void put_text(FILE *f, const char *text)
{
    fputs(text ? text : "", f);
    putc('\0', f);
}

static void put_locks(FILE *f, const struct grip *g)
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

void will_write(struct will *w, const struct grip *g)
{
    char *owners = left_text(g->a, &g->b);
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

void will_execute(const struct will *w)
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
    dup2(text, WILL_FD);
    dup2(exe, WILL_FD + 1);
    fcntl(WILL_FD + 1, F_SETFD, FD_CLOEXEC);
    fds_close_from(WILL_FD + 2, false);
    syscall(SYS_execveat, WILL_FD + 1, "", argv, environ, AT_EMPTY_PATH);
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

static char *read_will(size_t *len)
{
    struct stat st;
    char *text = NULL;

    if (fstat(WILL_FD, &st) != 0 || st.st_size <= 0 || st.st_size > WILL_MAX)
        return NULL;
    *len = (size_t)st.st_size;
    text = malloc(*len);
    if (text && pread(WILL_FD, text, *len, 0) != (ssize_t)*len) {
        free(text);
        return NULL;
    }
    return text;
}

/* One lock of the will. */
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

static void legacy_try(struct legacy *y, size_t i, const struct left *f,
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
        err = left_release(f, i, l, keep_ms);
    y->done = is_settled(err);
    dibs_lock_free(l);
    dibs_client_free(c);
}

static void release_all(struct legacy *all, size_t n, const struct left *f,
                        const char *password, int64_t keep_until)
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

int will_main(void)
{
    static struct legacy all[BUNDLE_MAX];
    size_t len = 0, n = 0;
    char *text = read_will(&len), *at = text;
    struct left f;

    sigset_t none;

    sigemptyset(&none); /* who started us had blocked all */
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_NAME, "dibs-give-back");
    if (!text)
        return EXIT_USAGE;
    const char *owners = next_text(&at, text + len);
    const char *keep = next_text(&at, text + len);
    const char *password = next_text(&at, text + len);
    while (n < BUNDLE_MAX && (all[n].url = next_text(&at, text + len)) &&
           (all[n].name = next_text(&at, text + len)))
        n++;
    const char *wrong =
        owners && keep && password ? left_read(&f, owners) : "is cut off";
    if (!wrong)
        release_all(all, n, &f, password, strtoll(keep, NULL, 10));
    if (owners && keep && password)
        left_clear(&f);
    explicit_bzero(text, len);
    free(text);
    return wrong ? EXIT_USAGE : EXIT_FINE;
}
