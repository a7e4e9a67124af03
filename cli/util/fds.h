/* SPDX-License-Identifier: MIT
 *
 * fds.h - descriptors that a child must not keep.
 *
 * close_range(2) does it at once, but is missing before Linux 5.9 (closing on
 * exec only: 5.11), and where a sandbox does not know it. Then they are closed
 * one by one. Safe between fork and exec.
 */
#ifndef DIBS_CLI_UTIL_FDS_H
#define DIBS_CLI_UTIL_FDS_H

#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FDS_MOST 1048576 /* where there is no limit */

/* Closes first and all above: now, or when a program is started. */
static inline void fds_close_from(int first, bool on_exec)
{
    unsigned how = on_exec ? 1U << 2 : 0; /* CLOSE_RANGE_CLOEXEC */
    struct rlimit most;

    if (syscall(SYS_close_range, (unsigned)first, ~0U, how) == 0)
        return;
    if (getrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur > FDS_MOST)
        most.rlim_cur = FDS_MOST;
    for (int fd = first; fd < (int)most.rlim_cur; fd++) {
        if (on_exec)
            fcntl(fd, F_SETFD, FD_CLOEXEC);
        else
            close(fd);
    }
}

/* Away from stdin, stdout and the folder of our parent, which must not
 * wait for us. */
static inline void fds_leave_input(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (chdir("/") != 0 || null < 0)
        return;
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    close(null);
}

#endif
