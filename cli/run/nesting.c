/* SPDX-License-Identifier: MIT
 *
 * nesting.c - the dibs runs around us, and when their holds end.
 *
 * A run of a lock that an outer run holds takes nothing (lock_set.c). But the
 * outer hold can end first: the outer run loses it, or it has
 * --foreground and its own command has ended, or it is killed. Then our command
 * has to stop, as if the lock were ours and lost.
 *
 * Pipe    An outer run gives its command the read end of a pipe. It writes
 *         "lost" when the lock is lost. It closes the write end before it
 *         releases the lock; the kernel closes it when the run dies. So data
 *         means lost, and the end without data means ended. We only poll the
 *         pipe and never read from it: others want to read the word, too.
 *
 * Joining While we stop our command, the outer run must not release the lock.
 *         So it has to know that we are there. Each inner run takes a shared
 *         record lock (fcntl) on the pipe. The kernel drops it when the process
 *         ends, however it ends, and the command does not inherit it. Our guard
 *         takes one, too: if we are killed, it is the last to go. The outer
 *         run closes its write end, then waits until the record lock is free.
 *         We lock first and check the pipe then, so one of both notices the
 *         other.
 *
 * Which   DIBS_LOST_FD is the pipe of the innermost run, which may hold another
 *         lock. DIBS_LOST_FDS has all of them:
 *         "owner=descriptor:inode:how:grace". The inode tells whether the
 *         descriptor still is that pipe: scripts and programs close
 *         descriptors, and others then get the number. A run by dibs 0.1 sets
 *         only DIBS_LOST_FD.
 *
 * Grace   The milliseconds from "lost" until the outer run kills its own
 *         command. Ours must be gone by then, too. It is 0 for an outer run
 *         with --on-lost warn, which notices a loss only when it has happened.
 *
 * Closed  Where the pipe is gone, how tells whether that is dangerous. "group":
 *         the outer run waits for its process group, and so for us, and signals
 *         all of it when the lock is lost. "one": it waits for one process.
 *         Then nothing would stop our command, and we do not begin.
 *
 * Thread  Opening happens on a thread of its own, all else on the first.
 */
#include "run/nesting.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output/output.h"
#include "util/time.h"

/* The inode of the pipe that we may read from there; 0 if it is none. */
static uint64_t pipe_inode(int fd)
{
    struct stat st;
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || (flags & O_ACCMODE) != O_RDONLY || fstat(fd, &st) != 0 ||
        !S_ISFIFO(st.st_mode))
        return 0;
    return (uint64_t)st.st_ino;
}

/* What DIBS_LOST_FDS says of an owner; -1: nothing, or the pipe is gone. */
static int listed_fd(struct nesting *o, const char *list, const char *owner,
                     size_t len)
{
    int fd;
    uint64_t inode;

    for (; *list; list += strspn(list, " ")) {
        size_t n = strcspn(list, " ");
        int64_t grace = INT64_MAX;
        char how[8] = "";

        if (n > len && strncmp(list, owner, len) == 0 && list[len] == '=' &&
            sscanf(list + len, "=%d:%" SCNu64 ":%7[a-z]:%" SCNd64, &fd, &inode,
                   how, &grace) >= 2) {
            if (fd >= 0 && inode != 0 && pipe_inode(fd) == inode) {
                o->grace_ms = time_earlier(o->grace_ms, grace);
                return fd;
            }
            if (strcmp(how, "one") == 0)
                o->unguarded = true;
        }
        list += n;
    }
    return -1;
}

/* Of a run by dibs 0.1, which has no list. */
static int plain_fd(const char *owner, size_t len)
{
    const char *text = getenv("DIBS_LOST_FD"), *one = getenv("DIBS_OWNER");
    int fd;

    if (!text || !one || strlen(one) != len || memcmp(one, owner, len) != 0 ||
        sscanf(text, "%d", &fd) != 1)
        return -1;
    return pipe_inode(fd) != 0 ? fd : -1;
}

bool nesting_is_outer_fd(int fd)
{
    const char *list = getenv("DIBS_LOST_FDS"), *one = getenv("DIBS_LOST_FD");
    const char *number = list;
    uint64_t inode = pipe_inode(fd);
    int named;

    while (inode != 0 && number && (number = strchr(number, '=')) != NULL) {
        uint64_t of;

        if (sscanf(++number, "%d:%" SCNu64, &named, &of) == 2 && named == fd &&
            of == inode)
            return true;
    }
    return inode != 0 && !list && one && sscanf(one, "%d", &named) == 1 &&
           named == fd;
}

static bool add_fd(struct nesting *o, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN};

    for (size_t i = 0; i < o->n; i++)
        if (o->fds[i] == fd)
            return true;
    if (o->fd < 0)
        o->fd = epoll_create1(EPOLL_CLOEXEC);
    if (o->n == NESTING_MAX || o->fd < 0 ||
        epoll_ctl(o->fd, EPOLL_CTL_ADD, fd, &ev) != 0)
        return false;
    o->fds[o->n++] = fd;
    return true;
}

bool nesting_open(struct nesting *o, const char *owners)
{
    const char *list = getenv("DIBS_LOST_FDS");
    bool all = true;

    *o = (struct nesting){.fd = -1, .grace_ms = INT64_MAX};
    for (; *owners; owners += strspn(owners, " ")) {
        size_t n = strcspn(owners, " ");
        int fd = list ? listed_fd(o, list, owners, n) : plain_fd(owners, n);

        all = fd >= 0 && add_fd(o, fd) && all;
        owners += n;
    }
    return all;
}

void nesting_close(struct nesting *o)
{
    if (o->fd >= 0)
        close(o->fd);
    *o = (struct nesting){.fd = -1};
}

enum nesting_state nesting_state(const struct nesting *o)
{
    enum nesting_state state = NESTING_HELD;

    for (size_t i = 0; i < o->n && state != NESTING_LOST; i++) {
        struct pollfd p = {.fd = o->fds[i], .events = POLLIN};

        if (poll(&p, 1, 0) == 1)
            state = p.revents & POLLIN ? NESTING_LOST : NESTING_ENDED;
    }
    return state;
}

static void lock_pipe(int fd, short type)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET};

    (void)fcntl(fd, F_SETLK, &l); /* without it, all is as in dibs 0.1 */
}

void nesting_join_fd(int fd)
{
    lock_pipe(fd, F_RDLCK);
}

void nesting_join(const struct nesting *o)
{
    for (size_t i = 0; i < o->n; i++)
        nesting_join_fd(o->fds[i]);
}

void nesting_leave_fd(int fd)
{
    lock_pipe(fd, F_UNLCK);
}

void nesting_leave(const struct nesting *o)
{
    for (size_t i = 0; i < o->n; i++)
        nesting_leave_fd(o->fds[i]);
}

bool nesting_is_joined(int fd)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    return fd >= 0 && fcntl(fd, F_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

int nesting_first_fd(const struct nesting *o)
{
    return o->n > 0 ? o->fds[0] : -1;
}

char *nesting_env(const struct nesting_terms *t)
{
    const char *outer = getenv("DIBS_LOST_FDS"), *owners = t->owners;
    struct out_text row;

    if (!out_text_open(&row))
        return NULL;
    fputs("DIBS_LOST_FDS=", row.f);
    for (; *owners; owners += strspn(owners, " ")) {
        int n = (int)strcspn(owners, " ");

        fprintf(row.f, "%.*s=%d:%" PRIu64 ":%s:%" PRId64 " ", n, owners, t->fd,
                pipe_inode(t->pipe_fd), t->foreground ? "one" : "group",
                t->grace_ms);
        owners += n;
    }
    fputs(outer ? outer : "", row.f);
    return out_text_close(&row);
}
