/* SPDX-License-Identifier: MIT
 *
 * main.c - the dibs command: picks the subcommand.
 *
 * Folders, in reading order:
 *
 *   args      command line, help, suggestions, completion, configuration file
 *   server    which server; the private server, and one that is unreachable
 *   run       dibs run: which locks (lock_set), acquiring and releasing them
 *             (lock_session), the command (child, child_guard, supervise),
 *             runs inside of runs (nesting)
 *   hold      a lock for a script (holder_daemon, script_guard), one that
 *             outlives its process (hold_handle), and its release when dibs is
 *             killed (release_plan)
 *   inspect   locks as the server has them: one (lock_query), all (snapshot),
 *             all repeatedly (poller); owners by name
 *   top       screen and keyboard of dibs top
 *   output    messages, JSON, events, error advice
 *   cmd       one file for each subcommand
 *
 * The command is a user of the library like any other: of its headers it
 * includes <dibs/dibs.h> and no more.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args/subverbs.h"
#include "args/suggest.h"
#include "cmd.h"
#include "exit_codes.h"
#include "hold/holder_daemon.h"
#include "hold/release_plan.h"

const struct command commands[] = {
    {"run", CMD_RUN, 1, 1, "the NAME of the lock",
     "run [options] NAME -- COMMAND [ARGS...]",
     "dibs run backup -- rsync -a /home /mnt",
     "Hold a lock while a command runs.", cmd_run},
    {"hold", CMD_HOLD, 1, 1, "the NAME of the lock", "hold [options] NAME",
     "dibs hold backup", "Hold a lock until stdin ends or a signal comes.",
     cmd_hold},
    {"acquire", CMD_ACQUIRE, 1, 1, "the NAME of the lock",
     "acquire [options] --lease TIME NAME", "dibs acquire --lease 30m deploy",
     "Take a lock for several steps, and print a handle.", cmd_acquire},
    {"extend", CMD_EXTEND, 1, 1, "the NAME of the lock",
     "extend --owner HANDLE --lease TIME NAME",
     "dibs extend --owner \"$handle\" --lease 30m deploy",
     "Make what 'dibs acquire' took last longer.", cmd_extend},
    {"release", CMD_RELEASE, 1, 1, "the NAME of the lock",
     "release [--owner HANDLE | --for-pid PID] NAME", "dibs release backup",
     "Give back what 'dibs acquire' or 'dibs hold --for-pid' took.",
     cmd_release},
    {"info", CMD_INFO, 1, 1, "the NAME of the lock", "info [--json] NAME",
     "dibs info backup", "Show who holds a lock, and who waits for it.",
     cmd_info},
    {"queue", CMD_QUEUE, 1, 1, "the NAME of the lock", "queue [--json] NAME",
     "dibs queue backup", "Show who waits for a fair lock, in order.",
     cmd_queue},
    {"ls", CMD_LS, 0, 1, "the PATTERN", "ls [-l | --json] [PATTERN]",
     "dibs ls 'backup*'", "List the locks that are held.", cmd_ls},
    {"watch", CMD_WATCH, 0, 1, "the NAME or PATTERN",
     "watch [--json] [--every TIME] [NAME | PATTERN]", "dibs watch 'backup*'",
     "Print a line when a lock changes hands.", cmd_watch},
    {"top", CMD_TOP, 0, 1, "the PATTERN", "top [--every TIME] [PATTERN]",
     "dibs top", "Show the locks on a live screen.", cmd_top},
    {"wait", CMD_WAIT, 1, 1, "the NAME of the lock", "wait [-w TIME] NAME",
     "dibs wait -w 1m backup", "Wait until a lock is free; do not take it.",
     cmd_wait},
    {"metrics", CMD_METRICS, 0, 1, "the PATTERN", "metrics [PATTERN]",
     "dibs metrics", "Print figures for Prometheus.", cmd_metrics},
    {"force-unlock", CMD_FORCE, 1, 1, "the NAME of the lock",
     "force-unlock --yes [--if-owner OWNER] NAME",
     "dibs force-unlock --yes backup", "Take a lock away from its holder.",
     cmd_force_unlock},
    {"doctor", CMD_DOCTOR, 0, 1, "the NAME of a lock",
     "doctor [--json] [--lease TIME] [NAME]", "dibs doctor",
     "Examine the server: is it fit for locks?", cmd_doctor},
    {"slots", CMD_SLOTS, 1, 3, "the NAME of the lock",
     "slots set|info [--json] NAME [NUMBER]", "dibs slots set db 3",
     "Locks that several may hold at a time: how many.", verbs_run},
    {"sem", CMD_SEM, 1, 3, "the NAME of the semaphore",
     "sem set|add|acquire|release|drain|info [options] NAME [NUMBER]",
     "dibs sem acquire --lease 30m license", "Permits of Redisson's semaphore.",
     verbs_run},
    {"latch", CMD_LATCH, 1, 3, "the NAME of the latch",
     "latch set|down|wait|info [options] NAME [NUMBER]",
     "dibs latch wait -w 5m ready", "Wait until so many are ready.", verbs_run},
    {"acl", CMD_ACL, 1, 1, "the PATTERN of names",
     "acl [--user NAME] [--kinds KINDS] PATTERN", "dibs acl 'jobs:*'",
     "Print the rights that a user of locks needs.", cmd_acl},
    {"local", CMD_LOCAL, 1, 1, "status or stop", "local status|stop [--force]",
     "dibs local status", "Show or stop the private server.", cmd_local},
    {"completion", CMD_COMPLETION, 1, 1, "the shell",
     "completion bash|zsh|fish", "dibs completion bash",
     "Print the completion script of a shell.", cmd_completion},
    {"version", CMD_VERSION, 0, 0, "nothing", "version", "dibs version",
     "Show the version.", cmd_version},
    {"help", CMD_HELP, 0, 2, "the subcommand", "help [SUBCOMMAND [VERB]]",
     "dibs help run", "Show help.", cmd_help},
    {NULL, 0, 0, 0, NULL, NULL, NULL, NULL, NULL},
};

const struct command *command_find(const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static bool no_stdout; /* we were started without one */

/* If we are started without stdin, stdout or stderr, the first socket that we
 * open would get that number, and messages would go into the socket. So we open
 * /dev/null there. The guarded command still gets what we got: nothing. */
static void fill_descriptors(void)
{
    no_stdout = fcntl(STDOUT_FILENO, F_GETFD) < 0;
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", (fd == 0 ? O_RDONLY : O_WRONLY) | O_CLOEXEC) < 0)
            _exit(EXIT_INTERNAL);
}

static void set_style(const struct args *a, const struct command *cmd)
{
    bool named = cmd && (cmd->bit & (CMD_ASK | CMD_LEFT | CMD_INFO | CMD_QUEUE |
                                     CMD_FORCE | CMD_WAIT | CMD_VERBS));

    out_init(&(struct out_style){
        .quiet = a->quiet,
        .verbose = a->verbose,
        .json = a->log_json,
        .no_stdout = no_stdout,
        .name = named && a->n_words > 0 ? a->words[0] : NULL,
    });
}

int cmd_version(const struct args *a)
{
    (void)a;
    printf("dibs %s\n", dibs_version());
    return out_finish(EXIT_FINE);
}

/* What was meant instead of argv[i]? Without more words than that there is
 * only the synopsis to show. */
static int no_such_command(int argc, char **argv, int i)
{
    const struct command *meant = hint_command(argv[i]);
    struct typed line = {argc, argv};
    char *right = NULL, *hint;

    if (!meant)
        hint = args_text("'dibs help' lists the subcommands");
    else if (i + 1 >= argc)
        right = args_text("dibs %s", meant->synopsis);
    else
        right = (meant->bit == CMD_RUN ? hint_run_line
                                       : hint_line)(&line, i, 1, meant->name);
    if (right)
        hint = args_text("did you mean: %s", right);
    else if (meant)
        hint = NULL;
    free(right);
    return args_hint(NULL, hint, "there is no subcommand '%s'",
                     hint_word(argv[i]));
}

int main(int argc, char **argv)
{
    struct args a;
    int i;

    fill_descriptors();
    if (argc > 1 && strcmp(argv[1], "complete") == 0)
        return complete_line(argc - 2, argv + 2);
    if (argc == 2 && strcmp(argv[1], "give-back") == 0)
        return release_plan_main(); /* not for people: see release_plan.c */
    args_init(&a);
    int code = args_before(&a, argc, argv, &i);
    if (code != EXIT_FINE)
        return code;
    if (i >= argc && a.version)
        return cmd_version(&a);
    if (i >= argc && a.help)
        return help_show(NULL, NULL);
    if (i >= argc)
        return args_wrong(NULL, "dibs run NAME -- COMMAND",
                          "a subcommand is missing; 'dibs help' lists them");

    const struct command *cmd = command_find(argv[i]);
    if (!cmd)
        return no_such_command(argc, argv, i);
    code = args_behind(&a, cmd, argc, argv, i + 1);
    set_style(&a, cmd);
    if (code != EXIT_FINE)
        return code;
    if (a.help)
        return help_show(cmd, a.n_words > 0 ? a.words[0] : NULL);
    return a.version ? cmd_version(&a) : cmd->run(&a);
}
