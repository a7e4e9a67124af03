/* SPDX-License-Identifier: MIT
 *
 * option_checks.c - do the options of a line fit together?
 *
 * Each option was read and is right by itself (args.c). Which kind of lock they
 * ask for is checked in lock_type.c.
 *
 * Thread  The first, before there is another.
 */
#include "args/option_checks.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "args/lock_type.h"
#include "exit_codes.h"

static int check_quorum(const struct args *a, const struct command *cmd)
{
    static const char right[] =
        "dibs run --quorum redis://a,redis://b,redis://c backup -- make";

    if (!a->quorum)
        return EXIT_FINE;
    if (a->multi)
        return args_wrong(cmd, right,
                          "--multi and --quorum cannot be used together");
    if (a->url || a->url_file)
        return args_wrong(cmd, right,
                          "--quorum names the servers; %s is one "
                          "too many",
                          a->url ? "-u" : "--url-file");
    if (a->min_hold_ms > 0)
        return args_wrong(cmd, right,
                          "--min-hold and --quorum cannot be used together");
    return EXIT_FINE;
}

static int check_run(const struct args *a, const struct command *cmd)
{
    if (a->shell && a->argv && a->argv[0])
        return args_wrong(cmd, "dibs run -c STRING NAME",
                          "-c and a command behind --: '%s' is one too many",
                          a->argv[0]);
    return EXIT_FINE;
}

int check_lease(const struct args *a, const struct command *cmd)
{
    if (a->lease_ms >= DIBS_LEASE_MIN_MS)
        return EXIT_FINE;
    return args_wrong(cmd,
                      cmd->bit == CMD_DOCTOR
                          ? "dibs doctor --lease 30s"
                          : "dibs run --lease 30s backup -- rsync -a x y",
                      "--lease: shorter than %d ms", DIBS_LEASE_MIN_MS);
}

int check_take(const struct args *a, const struct command *cmd)
{
    if (a->max_hold_ms > 0 && a->max_hold_ms < DIBS_LEASE_MIN_MS)
        return args_wrong(cmd, "dibs run --max-hold 1h backup -- make all",
                          "--max-hold: shorter than %d ms", DIBS_LEASE_MIN_MS);
    if (a->max_hold_ms > 0 && a->min_hold_ms > a->max_hold_ms)
        return args_wrong(cmd,
                          "dibs run --min-hold 1m --max-hold 1h backup -- make",
                          "--min-hold is longer than --max-hold: nobody would "
                          "hold the lock in between");
    int code = check_quorum(a, cmd);
    if (code == EXIT_FINE)
        code = kind_check(a, cmd);
    if (code != EXIT_FINE)
        return code;
    if (a->shared && a->min_hold_ms > 0)
        return args_wrong(
            cmd, "dibs run -x --min-hold 1m data -- ./load",
            "--min-hold does not work with -s: a shared lock cannot be kept");
    if (cmd->bit == CMD_HOLD && a->for_pid == 0 &&
        (a->on_lost.kind != LOST_SIGNAL || a->on_lost.sig != SIGTERM))
        return args_wrong(cmd, "dibs hold --for-pid $$ --on-lost kill backup",
                          "--on-lost has nobody to signal without --for-pid");
    if (a->no_renew && a->max_hold_ms > 0)
        return args_wrong(cmd,
                          "dibs run --no-renew --lease 1h backup -- make all",
                          "--max-hold has no effect with --no-renew");
    if (a->ready_waiting && a->pass_notify)
        return args_wrong(cmd, "dibs run --ready waiting leader -- ./daemon",
                          "--ready has no effect with --pass-notify");
    if (a->ready_waiting && a->for_pid > 0)
        return args_wrong(cmd, "dibs hold --ready waiting --no-stdin leader",
                          "--ready has no effect with --for-pid");
    if (a->status_fd >= 0) {
        int flags = fcntl(a->status_fd, F_GETFL);
        if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
            return args_wrong(cmd,
                              "dibs run --status-fd 3 backup -- make 3>status",
                              "--status-fd: descriptor %d is not open for "
                              "writing",
                              a->status_fd);
    }
    return cmd->bit == CMD_RUN ? check_run(a, cmd) : EXIT_FINE;
}

int check_publish(const struct args *a, const struct command *cmd)
{
    static const char right[] =
        "dibs run --publish db1:8080 leader -- ./daemon";

    if (!a->publish)
        return EXIT_FINE;
    if (strlen(a->publish) > DIBS_VALUE_MAX)
        return args_wrong(cmd, right, "--publish: longer than %d bytes",
                          DIBS_VALUE_MAX);
    if (a->shared || a->slots > 0 || a->multi || a->quorum)
        return args_wrong(cmd, right,
                          "--publish is for one lock that one holder has");
    return EXIT_FINE;
}

/* Nobody renews what is left, so its lease is never a default. */
int check_left(const struct args *a, const struct command *cmd)
{
    if (cmd->bit != CMD_RELEASE && a->lease_ms == NOT_GIVEN)
        return args_wrong(cmd, cmd->example,
                          "--lease is missing: nobody renews this lock, it "
                          "ends then");
    if (cmd->bit == CMD_EXTEND && !a->owner)
        return args_wrong(cmd, cmd->example, "--owner is missing");
    if (a->owner && a->for_pid > 0)
        return args_wrong(cmd, cmd->example,
                          "--owner and --for-pid cannot be used together");
    return a->owner ? check_quorum(a, cmd) : EXIT_FINE;
}
