/* SPDX-License-Identifier: MIT
 *
 * late_read.c - preloaded: a process in the background that reads from its
 * terminal creates the file "polled", and reads when it has been brought to the
 * front. So it is when it is not scheduled for a while between its poll and its
 * read.
 */
#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

ssize_t read(int fd, void *buf, size_t n)
{
    const struct timespec pause = {.tv_nsec = 10000000};

    if (isatty(fd) && tcgetpgrp(fd) != getpgrp()) {
        close(open("polled", O_CREAT | O_WRONLY, 0600));
        while (tcgetpgrp(fd) != getpgrp())
            nanosleep(&pause, NULL);
    }
    return syscall(SYS_read, fd, buf, n);
}
