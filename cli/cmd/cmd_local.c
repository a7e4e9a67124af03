/* SPDX-License-Identifier: MIT
 *
 * cmd_local.c - dibs local: shows and stops the private server.
 *
 * Stopping the server ends every lock on it. So stop refuses while locks are
 * held, unless --force is given.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <stdlib.h>
#include <string.h>

#include "exit_codes.h"
#include "server/server_select.h"

static void print_status(const struct args *a, const struct local *lo,
                         pid_t pid)
{
    char *url = local_url(lo);
    struct json j;

    if (a->json) {
        json_open(&j, stdout);
        json_bool(&j, "running", pid != 0);
        if (pid != 0)
            json_int(&j, "pid", pid);
        else
            json_null(&j, "pid");
        json_text(&j, "url", url);
        json_text(&j, "log", lo->log);
        json_close(&j);
        putchar('\n');
    } else if (pid != 0) {
        printf("running, process %ld\nurl  %s\nlog  %s\n", (long)pid,
               url ? url : lo->socket, lo->log);
    } else {
        printf("not running\nurl  %s\n", url ? url : lo->socket);
    }
    free(url);
}

static bool count_lock(const char *name, size_t len, const dibs_lock_info *info,
                       void *arg)
{
    (void)name;
    (void)len;
    (void)info;
    ++*(size_t *)arg;
    return true;
}

/* How many locks are held there? A server that does not answer holds none. */
static size_t locks_held(const struct local *lo)
{
    char *url = local_url(lo);
    dibs_client *c = NULL;
    size_t n = 0;

    if (url && dibs_client_open(url, NULL, &c) == DIBS_OK &&
        dibs_client_list(c, NULL, count_lock, &n) != DIBS_OK)
        n = 0;
    dibs_client_free(c);
    free(url);
    return n;
}

static int stop_server(const struct args *a, const struct local *lo)
{
    pid_t pid;
    size_t n = a->force || !local_alive(lo, NULL) ? 0 : locks_held(lo);

    if (n > 0) {
        out_tell(OUT_ERROR, "busy",
                 "%zu lock%s held there (dibs ls); --force stops it anyway", n,
                 n == 1 ? " is" : "s are");
        return EXIT_BUSY;
    }
    int code = local_stop(lo, &pid);
    if (code != EXIT_FINE)
        return code;
    if (a->json)
        print_status(a, lo, 0);
    else if (pid != 0)
        printf("stopped process %ld\n", (long)pid);
    else
        printf("not running\n");
    return out_finish(EXIT_FINE);
}

int cmd_local(const struct args *a)
{
    struct local lo;
    pid_t pid = 0;
    bool status = strcmp(a->words[0], "status") == 0;

    if (!status && strcmp(a->words[0], "stop") != 0)
        return args_wrong(command_find("local"), "dibs local status",
                          "'%s' is neither status nor stop", a->words[0]);
    int code = local_find(&lo);
    if (code != EXIT_FINE || !status)
        return code != EXIT_FINE ? code : stop_server(a, &lo);
    if (!local_alive(&lo, &pid))
        code = EXIT_SERVER;
    print_status(a, &lo, pid);
    return out_finish(code);
}
