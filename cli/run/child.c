/* SPDX-License-Identifier: MIT
 *
 * child.c - the guarded command, with all that belongs to it.
 *
 * A command is rarely one process. Shell scripts start others, some of them in
 * the background, and the lock must outlast the last of them. So the command
 * leads a process group of its own: one kill(2) reaches all, and the lock is
 * released when the group is empty. A process that leaves the group (setsid, as
 * daemons do) is not waited for.
 *
 * Orphans A process whose parent dies becomes our child
 *         (PR_SET_CHILD_SUBREAPER), and its end wakes us. Only a process whose
 *         parent lives outside the group can end without that; the caller looks
 *         for it from time to time.
 *
 * Death   If we die, the kernel kills the command, and the guard
 * (child_guard.c) kills its group. The new process sends its id to the guard
 * before it becomes the command: we may die before we get to anything.
 *
 * Gap     A child has no group until setpgid is called. Parent and child
 *         both call it, so it is done before either goes on.
 *
 * exec    EOF on a pipe that exec closes means that the command was started.
 * Before that, nothing of the command has run.
 *
 * Terminal The command's group is in the background of the terminal. When it
 *         reads from the terminal, the kernel stops it. We notice, and give it
 *         the terminal if we have it. So programs that never read leave the
 *         terminal to the pipeline that we may be part of.
 *
 * Thread  The first one: PDEATHSIG refers to the thread that forked, not to the
 *         process. Between fork and exec only safe functions are called, since
 *         the library's threads may hold locks of the C library.
 */
#include "run/child.h"

#include "run/nesting.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

void child_init(struct child *ch)
{
    *ch = (struct child){
        .lost_fd = -1, .inner_fd = -1, .tty = -1, .guard = {.fd = -1}};
}

/* ---- environment ------------------------------------------------------- */

static bool same_variable(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");

    return strncmp(a, b, n) == 0 && b[n] == '=';
}

/* Our environment with some variables set. A row without '=' removes a
 * variable. Free the array; the strings belong to others. */
static char **merge_environment(const char *const *add)
{
    size_t ours = 0, more = 0, n = 0;

    while (environ[ours])
        ours++;
    while (add[more])
        more++;
    char **env = calloc(ours + more + 1, sizeof *env);
    if (!env)
        return NULL;
    for (size_t i = 0; i < ours; i++) {
        bool kept = true;
        for (size_t k = 0; k < more && kept; k++)
            kept = !same_variable(add[k], environ[i]);
        if (kept)
            env[n++] = environ[i];
    }
    for (size_t k = 0; k < more; k++)
        if (strchr(add[k], '='))
            env[n++] = (char *)add[k];
    return env;
}

/* Both lists of rows in one; free it. */
static const char **joined_rows(const char *const *rows,
                                const char *const *more)
{
    size_t n = 0, m = 0;

    while (rows[n])
        n++;
    while (more[m])
        m++;
    const char **all = calloc(n + m + 1, sizeof *all);
    if (!all)
        return NULL;
    memcpy(all, rows, n * sizeof *all);
    memcpy(all + n, more, m * sizeof *all);
    return all;
}

/* ---- starting ---------------------------------------------------------- */

struct start {
    const struct child_plan *plan;
    struct guard *guard;
    char **env;
    char number[32]; /* two rows of env */
    char *row;
    pid_t parent;
    int err[2];  /* errno comes back here */
    int lost[2]; /* the command reads from the first */
    int lost_as; /* at this number */
};

/* dash and busybox sh only know descriptors of one digit. Those that scripts
 * redirect most often come last. */
static const int lost_numbers[] = {7, 6, 5, 8, 4, 9, 3};

/* The number at which the command gets the pipe. One that is ours, and would
 * be closed on exec, is free for the command; but not one in use until then,
 * nor that of --status-fd, which the command shall not have. */
static int lost_number(const struct start *st)
{
    for (size_t i = 0; i < sizeof lost_numbers / sizeof *lost_numbers; i++) {
        int fd = lost_numbers[i], flags = fcntl(fd, F_GETFD);

        if ((flags < 0 || (flags & FD_CLOEXEC)) && fd != st->err[1] &&
            fd != st->plan->kept_fd)
            return fd;
    }
    return st->lost[0];
}

static bool make_environment(struct start *st)
{
    const char *owners = st->plan->owners;
    const char *more[] = {NULL, NULL, NULL};

    if (owners) {
        st->lost_as = lost_number(st);
        snprintf(st->number, sizeof st->number, "DIBS_LOST_FD=%d", st->lost_as);
        more[0] = st->number;
        more[1] = st->row = nesting_env(
            &(struct nesting_terms){.owners = owners,
                                    .fd = st->lost_as,
                                    .pipe_fd = st->lost[0],
                                    .foreground = st->plan->foreground,
                                    .grace_ms = st->plan->grace_ms});
        if (!st->row)
            return false;
    }
    const char **all = joined_rows(st->plan->env, more);
    st->env = all ? merge_environment(all) : NULL;
    free(all);
    return st->env != NULL;
}

/* In the new process. */
static _Noreturn void become_command(const struct start *st)
{
    int why = 0;

    if (!st->plan->foreground)
        setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != st->parent)
        _exit(1); /* it died before prctl was called */
    guard_set(st->guard, getpid(), !st->plan->foreground, st->plan->kill_at);
    if (st->plan->owners && st->lost_as != st->lost[0])
        dup2(st->lost[0], st->lost_as);
    else if (st->plan->owners)
        fcntl(st->lost[0], F_SETFD, 0);
    signals_restore(st->plan->signals);
    execvpe(st->plan->argv[0], st->plan->argv, st->env);
    why = errno;
    ssize_t n = write(st->err[1], &why, sizeof why);
    _exit(n < 0 ? 1 : 127);
}

/* The command's errno from exec; 0 once it runs. */
static int await_exec(pid_t pid, int fd)
{
    int why = 0;
    ssize_t n;

    do
        n = read(fd, &why, sizeof why);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof why)
        return 0;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return why;
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int fork_command(struct child *ch, const struct start *st)
{
    pid_t pid = fork();

    if (pid < 0)
        return errno;
    if (pid == 0)
        become_command(st);
    if (ch->group)
        setpgid(pid, pid); /* fails if it has gone on already: then it did */
    ch->pid = pid;
    return 0;
}

int child_start(struct child *ch, const struct child_plan *plan)
{
    struct start st = {.plan = plan,
                       .guard = &ch->guard,
                       .parent = getpid(),
                       .err = {-1, -1},
                       .lost = {-1, -1}};
    int why = ENOMEM;

    if (pipe2(st.err, O_CLOEXEC) != 0 ||
        (plan->owners && pipe2(st.lost, O_CLOEXEC) != 0)) {
        why = errno;
        goto out;
    }
    if (!make_environment(&st))
        goto out;
    ch->group = !plan->foreground;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const struct guard_plan guard = {.release = plan->release,
                                     .inner_fd = st.lost[0],
                                     .outer_fds = plan->outer->fds,
                                     .n_outer = plan->outer->n};
    why = guard_start(&ch->guard, &guard) ? fork_command(ch, &st) : errno;
    close_end(&st.err[1]);
    if (why == 0)
        why = await_exec(ch->pid, st.err[0]);
    if (why == 0) {
        ch->inner_fd = st.lost[0];
        ch->lost_fd = st.lost[1];
        st.lost[0] = st.lost[1] = -1;
    } else {
        (void)guard_stop(&ch->guard);
        ch->pid = 0;
    }
out:
    for (int i = 0; i < 2; i++) {
        close_end(&st.err[i]);
        close_end(&st.lost[i]);
    }
    free(st.env);
    free(st.row);
    return why;
}

void child_hook(const struct child *ch, const char *line,
                const struct child_plan *plan)
{
    char *const argv[] = {"sh", "-c", (char *)line, NULL};
    char pid[32];

    snprintf(pid, sizeof pid, "DIBS_PID=%ld", (long)ch->pid);
    const char **add = joined_rows(plan->env, (const char *const[]){pid, NULL});
    char **env = add ? merge_environment(add) : NULL;
    if (env && fork() == 0) {
        setpgid(0, 0);
        signals_restore(plan->signals);
        execve("/bin/sh", argv, env);
        _exit(127);
    }
    free(env);
    free(add);
}

/* ---- while it runs ----------------------------------------------------- */

void child_signal(struct child *ch, int sig)
{
    if (ch->pid == 0 || (!ch->group && ch->ended))
        return;
    if (kill(ch->group ? -ch->pid : ch->pid, sig) != 0 && errno == EPERM)
        ch->denied = true;
}

void child_reap(struct child *ch)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        if (pid != ch->pid)
            continue; /* an orphan of the group, a hook, the guard */
        if (WIFSTOPPED(status)) {
            ch->stopped_by = WSTOPSIG(status);
        } else if (WIFCONTINUED(status)) {
            ch->stopped_by = 0;
        } else {
            ch->ended = true;
            ch->status = status;
            ch->stopped_by = 0;
        }
    }
}

/* Reads "pid (name) state ppid pgrp ..." of /proc/PID/stat. */
static bool in_group(const char *pid, pid_t group)
{
    char path[64], text[512];
    char state;
    int pgrp;

    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *behind = strrchr(text, ')'); /* a name may hold anything */
    if (!behind || sscanf(behind + 1, " %c %*d %d", &state, &pgrp) != 2)
        return false;
    return pgrp == group && state != 'Z' && state != 'X';
}

/* Does anything but zombies remain of the group? The parent of a zombie may
 * have left the group, and may never ask for it: waiting could take forever. */
static bool group_lives(pid_t group)
{
    bool lives = false;
    const struct dirent *e;
    DIR *d = opendir("/proc");

    if (!d)
        return true;
    while (!lives && (e = readdir(d)) != NULL)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
            lives = in_group(e->d_name, group);
    closedir(d);
    return lives;
}

bool child_gone(struct child *ch)
{
    if (ch->pid == 0)
        return true;
    if (!ch->ended || !ch->group)
        return ch->ended;
    if (kill(-ch->pid, 0) != 0 && errno == ESRCH)
        return true;
    return !group_lives(ch->pid);
}

void child_tell_lost(struct child *ch)
{
    static const char text[] = "lost\n";

    if (ch->lost_fd < 0)
        return;
    ssize_t n = write(ch->lost_fd, text, sizeof text - 1);
    (void)n; /* its end is as readable as its text */
    close_end(&ch->lost_fd);
}

void child_tell_end(struct child *ch)
{
    close_end(&ch->lost_fd);
}

bool child_has_inner(const struct child *ch)
{
    return nesting_is_joined(ch->inner_fd);
}

/* ---- the terminal ------------------------------------------------------ */

bool child_tty_ours(struct child *ch)
{
    if (ch->tty < 0)
        ch->tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    return ch->tty >= 0 && tcgetpgrp(ch->tty) == getpgrp();
}

void child_give_tty(struct child *ch)
{
    if (ch->tty >= 0 && tcsetpgrp(ch->tty, ch->pid) == 0)
        ch->has_tty = true;
}

void child_take_tty(struct child *ch)
{
    if (!ch->has_tty)
        return;
    ch->has_tty = false;
    if (tcgetpgrp(ch->tty) == ch->pid)
        tcsetpgrp(ch->tty, getpgrp());
}

void child_close(struct child *ch)
{
    child_take_tty(ch);
    (void)guard_stop(&ch->guard);
    close_end(&ch->lost_fd);
    close_end(&ch->inner_fd);
    close_end(&ch->tty);
}
