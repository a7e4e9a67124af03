/* SPDX-License-Identifier: MIT
 *
 * sd_notify.c - sends the state of a command to systemd (sd_notify(3)).
 *
 * systemd gives a service of Type=notify a datagram socket, in NOTIFY_SOCKET,
 * and listens to what comes there. That is the whole protocol, so there is no
 * need to link its library:
 *
 *     STATUS=...            a line for systemctl status
 *     READY=1               the lock is held, and the command runs
 *     WATCHDOG=1            a sign of life, twice in each WATCHDOG_USEC
 *     STOPPING=1            the lock is lost or about to be released
 *
 * There is no sign of life while the lock is not surely ours. So if renewals
 * fail for longer than WatchdogSec, systemd acts as the unit says.
 *
 * The command does not get NOTIFY_SOCKET: dibs is the main process of the
 * service, and what the command said there would count as said by dibs. It
 * would be ready before it has the lock. With --pass-notify it is the other way
 * round: the command tells, and dibs does not.
 *
 * Thread  The first one.
 *
 * Trouble If the socket is not what it should be, or is not read, a message
 *         is lost, and -v says so. The lock does not depend on it.
 */
#include "run/sd_notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "util/time.h"

#define SEND_S 1 /* systemd is busy: no longer than this */

static struct {
    struct sockaddr_un to;
    socklen_t len; /* 0: no socket */
    int64_t every_ms, next_at;
} notify = {.next_at = TIME_NEVER};

/* '@' stands for the NUL byte of a name that is in no folder. */
static bool notify_address(const char *name)
{
    size_t len = strlen(name);

    if ((name[0] != '/' && name[0] != '@') || len < 2 ||
        len >= sizeof notify.to.sun_path)
        return false;
    notify.to.sun_family = AF_UNIX;
    memcpy(notify.to.sun_path, name, len + 1);
    notify.len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    if (name[0] == '@')
        notify.to.sun_path[0] = '\0';
    else
        notify.len++;
    return true;
}

/* Signs of life are wanted from us, and not from another process. */
static int64_t watchdog_ms(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");

    if (!usec || (pid && strtoll(pid, NULL, 10) != (long long)getpid()))
        return 0;
    long long us = strtoll(usec, NULL, 10);
    return us > 0 ? us / 1000 : 0;
}

void notify_open(bool passed)
{
    const char *name = getenv("NOTIFY_SOCKET");

    if (passed || !name || !*name)
        return;
    if (!notify_address(name)) {
        out_tell(OUT_INFO, "notify", "NOTIFY_SOCKET is no address: '%s'", name);
        return;
    }
    int64_t limit = watchdog_ms();
    notify.every_ms = limit > 1 ? limit / 2 : limit;
}

static void send_text(const char *text, size_t len)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = SEND_S};

    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (fd < 0 || sendto(fd, text, len, MSG_NOSIGNAL,
                         (const struct sockaddr *)&notify.to, notify.len) < 0)
        out_tell(OUT_INFO, "notify", "cannot tell systemd: %s",
                 strerror(errno));
    if (fd >= 0)
        close(fd);
}

void notify_tell(const char *change, const char *fmt, ...)
{
    char *line = NULL, *message = NULL;
    va_list ap;

    if (notify.len == 0)
        return;
    va_start(ap, fmt);
    int n = vasprintf(&line, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    char *shown = out_printable(line, (size_t)n); /* no second line in it */
    n = asprintf(&message, "%s%sSTATUS=%s", change ? change : "",
                 change ? "\n" : "", shown ? shown : "");
    if (n >= 0)
        send_text(message, (size_t)n);
    if (change && strcmp(change, "READY=1") == 0 && notify.every_ms > 0)
        notify.next_at = time_now() + notify.every_ms;
    free(line);
    free(shown);
    if (n >= 0)
        free(message);
}

int64_t notify_due(void)
{
    return notify.next_at;
}

void notify_alive(bool ours, int64_t now)
{
    static const char alive[] = "WATCHDOG=1";

    if (now < notify.next_at)
        return;
    notify.next_at = now + notify.every_ms;
    if (ours)
        send_text(alive, sizeof alive - 1);
}
