/* SPDX-License-Identifier: MIT
 *
 * private_server.h - the private server of a user who gave no URL.
 */
#ifndef DIBS_CLI_SERVER_PRIVATE_SERVER_H
#define DIBS_CLI_SERVER_PRIVATE_SERVER_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#define LOCAL_PATH_MAX sizeof(((struct sockaddr_un *)NULL)->sun_path)

/* Where it lives. */
struct local {
    char dir[LOCAL_PATH_MAX];
    char socket[LOCAL_PATH_MAX]; /* in dir */
    char log[LOCAL_PATH_MAX];    /* in dir */
    char start[LOCAL_PATH_MAX];  /* in dir; locked while starting, stopping */
    char other[LOCAL_PATH_MAX];  /* where it may also have been; or "" */
};

/* Picks the folder; creates nothing. EXIT_FINE, or EXIT_SERVER and an error was
 * printed. */
int local_find(struct local *lo);

/* Makes the folder, if need be. EXIT_FINE, or EXIT_SERVER and it has been said
 * why. */
int local_folder(const struct local *lo);

/* Does a server of ours listen there? Its process id goes to *pid, which may
 * be NULL. */
bool local_alive(const struct local *lo, pid_t *pid);

/* Makes sure that one listens. Any number of commands may do so at once: one
 * starts it, the others wait for that one. All of them wait until the given
 * time on the clock of time.h, but a second at least. */
int local_start(const struct local *lo, int64_t until);

/* Ends it. EXIT_FINE also when there was none; *pid is then 0. */
int local_stop(const struct local *lo, pid_t *pid);

/* The URL of the socket; free it. NULL when out of memory. */
char *local_url(const struct local *lo);

#endif
