/* SPDX-License-Identifier: MIT
 *
 * private_server_orphan.c - a private server that cannot be reached any more.
 *
 * A user's runtime folder is removed at logout, and a cleaner may remove the
 * socket in /tmp. The server still runs then, and its clients still hold their
 * locks, but a new client cannot find it. If the new client started a second
 * server, two clients would hold one lock. So before a server is started, we
 * search /proc for an earlier one, by its working directory, which the kernel
 * still knows when the folder is gone. /proc/net/unix shows whether a
 * client is connected to it. If none is, no lock is held there, and that server
 * is ended.
 *
 * Needed  Without this search, two holders of one lock are easy to get: hold a
 *         lock, remove the folder, run another command (cli.local does that).
 *
 * Thread  Any; with the folder locked.
 */
#include "server/private_server_orphan.h"

#include <ctype.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define END_MS   5000
#define LEAVE_MS 300

static bool same_path(const char *link, const char *dir)
{
    size_t n = strlen(dir);

    return strncmp(link, dir, n) == 0 &&
           (!link[n] || strcmp(link + n, " (deleted)") == 0);
}

/* One line of a file in /proc; "" if it cannot be read. */
static void read_proc_line(const char *path, char *out, int size)
{
    FILE *f = fopen(path, "re");

    if (!f || !fgets(out, size, f))
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    if (f)
        fclose(f);
}

static bool is_server(const char *pid, const char *dir)
{
    char path[64], text[512];
    struct stat st;

    snprintf(path, sizeof path, "/proc/%.20s", pid);
    if (stat(path, &st) != 0 || st.st_uid != geteuid())
        return false;
    snprintf(path, sizeof path, "/proc/%.20s/cwd", pid);
    ssize_t n = readlink(path, text, sizeof text - 1);
    if (n < 0)
        return false;
    text[n] = '\0';
    if (!same_path(text, dir))
        return false;
    snprintf(path, sizeof path, "/proc/%.20s/comm", pid);
    read_proc_line(path, text, sizeof text);
    return strcmp(text, "redis-server") == 0 ||
           strcmp(text, "valkey-server") == 0;
}

static pid_t find_server(const char *dir)
{
    DIR *all = opendir("/proc");
    pid_t found = 0;

    for (struct dirent *e; all && !found && (e = readdir(all));)
        if (isdigit((unsigned char)e->d_name[0]) && is_server(e->d_name, dir))
            found = (pid_t)atol(e->d_name);
    if (all)
        closedir(all);
    return found;
}

/* Returns whether a client is connected to this socket; true if unknown. A line
 * is number, references, protocol, flags, type, state (03: connected), inode
 * and the path. */
static bool has_clients(pid_t pid, const char *socket)
{
    char path[64], line[512];

    snprintf(path, sizeof path, "/proc/%ld/net/unix", (long)pid);
    FILE *f = fopen(path, "re");
    bool found = !f;

    while (f && !found && fgets(line, sizeof line, f)) {
        unsigned state = 0;
        int at = 0;

        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%*s %*s %*s %*s %*s %x %*s %n", &state, &at) == 1 &&
            at > 0)
            found = state == 3 && strcmp(line + at, socket) == 0;
    }
    if (f)
        fclose(f);
    return found;
}

/* Whether it is gone now. A pidfd cannot come to mean another process; an old
 * Linux has none, and its process id is used. */
static bool end_orphan(pid_t pid, const char *dir)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    bool gone = false;

    if (find_server(dir) == pid) {
        if (fd >= 0) {
            syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0);
            gone = poll(&p, 1, END_MS) == 1;
        } else {
            kill(pid, SIGTERM);
        }
        for (int i = 0; fd < 0 && !gone && i < END_MS / 10; i++) {
            gone = kill(pid, 0) != 0;
            poll(NULL, 0, 10);
        }
    }
    if (fd >= 0)
        close(fd);
    return gone;
}

pid_t orphan_busy(const char *dir, const char *socket)
{
    pid_t pid = find_server(dir);
    bool busy = pid != 0;

    /* A client may be closing just now. */
    for (int i = 0; busy && i < LEAVE_MS / 10; i++) {
        busy = has_clients(pid, socket);
        if (busy)
            poll(NULL, 0, 10);
    }
    return pid == 0 || (!busy && end_orphan(pid, dir)) ? 0 : pid;
}
