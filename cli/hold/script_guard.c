/* SPDX-License-Identifier: MIT
 *
 * script_guard.c - a process that signals a script if its keeper is killed.
 *
 * If the keeper (holder_daemon.c) is killed, the lock is not renewed any more,
 * and the script does not know. The guard waits for that, on a pipe that only
 * the keeper writes to. It sends TERM to the script then, and KILL when the
 * lease ends. Once the script has ended, the guard becomes a process that
 * releases the lock (release_plan.c). The memory file
 * for that is there from the start; the keeper fills it in when it has the
 * lock.
 *
 * Thread  Forked off before there are threads, so it may call anything.
 */
#include "hold/script_guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "util/fds.h"
#include "util/guard_process.h"
#include "util/time.h"

struct orders {
    int64_t kill_at; /* on the clock of time.h */
    bool held;       /* false: if the keeper ends now, nothing is lost */
};

static void signal_script(const struct args *a, const struct script *s)
{
    out_tell(OUT_ERROR, "lost",
             "the process that held %s was killed; signaling process %d",
             a->words[0], (int)s->pid);
    script_signal(s, SIGTERM);
}

/* Waits for the keeper's death. True: it has died with the lock, and the script
 * has ended. */
static bool watch_keeper(const struct args *a, const struct script *s, int fd)
{
    struct orders o = {.kill_at = TIME_NEVER}, next;
    int timer = time_fd();
    struct pollfd p[3] = {{.fd = fd, .events = POLLIN},
                          {.fd = s->fd, .events = POLLIN},
                          {.fd = timer, .events = POLLIN}};

    for (;;) {
        time_arm(timer, o.kill_at);
        if (poll(p, 3, TIME_POLL(timer)) < 0)
            continue;
        bool ended = p[1].revents && script_ended(s);
        ssize_t n = p[0].revents ? read(fd, &next, sizeof next) : -1;
        if (n == (ssize_t)sizeof next) {
            o = next;
        } else if (n == 0) {
            p[0].fd = -1;
            if (!o.held)
                return false;
            if (!script_ended(s))
                signal_script(a, s);
        } else if (ended && p[0].fd < 0) {
            return true;
        } else if (ended) {
            p[1].fd = -1; /* the keeper releases; if it cannot, we do */
            if (!o.held)
                return false;
        } else if (time_now() >= o.kill_at) {
            script_signal(s, SIGKILL);
            o.kill_at = TIME_NEVER;
        }
        if (p[0].fd < 0 && p[1].fd < 0)
            return true;
    }
}

int script_guard_start(struct script_guard *w, const struct args *a,
                       const struct script *s, int news_fd)
{
    int fd = -1;

    *w = (struct script_guard){.fd = -1, .release = {.fd = -1, .exe = -1}};
    if (a->on_lost.kind == LOST_WARN)
        return 0;
    release_plan_open(&w->release);
    pid_t pid = guard_process_fork("dibs-watcher", &fd);
    if (pid == 0) {
        close(news_fd);
        if (a->status_fd > STDERR_FILENO)
            close(a->status_fd);
        fds_leave_input();
        struct script own = *s;
        (void)script_own_timer(&own);
        if (watch_keeper(a, &own, fd))
            release_plan_exec(&w->release);
        _exit(0);
    }
    if (pid < 0)
        return errno;
    w->fd = fd;
    return 0;
}

void script_guard_set_release_plan(struct script_guard *w,
                                   const struct lock_session *g)
{
    if (!g->nested)
        release_plan_write(&w->release, g);
    release_plan_close(&w->release);
}

void script_guard_update(struct script_guard *w, int64_t kill_at, bool held)
{
    struct orders o = {kill_at, held};

    guard_process_send(&w->fd, &o, sizeof o);
}
