/* SPDX-License-Identifier: MIT
 *
 * run_test.c - runs one test for ctest and cleans up behind it.
 *
 *     run_test [-k] NAME SECONDS PROGRAM [ARGUMENT...]
 *
 * The test gets a new folder as TMPDIR and DIBS_TEST_DIR. Its output goes to
 * the file "output" there, server.c puts the logs of its servers beside it. A
 * test that succeeds loses the folder. One that fails keeps it, and the last
 * lines of the report name the failed check, the logs and the command to run
 * the test again. One that is interrupted loses the folder, too.
 *
 * Time    After SECONDS the test gets SIGTERM, and SIGKILL 5 s later. ctest's
 * own limit is longer: it would kill this process, which could then neither
 *         report nor clean up.
 * Orphans This process is a subreaper, so every descendant whose parent has
 *         ended becomes its child. After the test it waits ORPHAN_MS for them,
 *         then kills them, which fails the test; with -k they are killed at
 *         once, for tests that leave their servers to this program.
 * Signals SIGINT, SIGTERM and SIGHUP end the test. SIGTERM also comes if ctest
 *         dies; SIGKILL comes to the test if this process dies.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TERM_MS   5000 /* from SIGTERM to SIGKILL */
#define ORPHAN_MS 5000 /* for descendants to end by themselves */
#define LINES_MAX 12   /* lines of the output that the report repeats */
#define LOGS_MAX  6    /* server logs that the report names one by one */

enum end { END_RUNNING, END_EXITED, END_TIMEOUT, END_INTERRUPTED };

static struct {
    const char *name;
    char dir[200], output[220];
    pid_t pid;
    bool ended;
    int status; /* as waitpid has it, once ended */
    enum end end;
    int orphans; /* descendants that were killed */
    char orphan[32];
} test;

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "run_test: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void make_folder(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(test.dir, sizeof test.dir, "%s/dibs-t.XXXXXX",
             tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(test.dir))
        die(test.dir);
    snprintf(test.output, sizeof test.output, "%s/output", test.dir);
}

static void remove_folder(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", test.dir, (char *)NULL);
        _exit(127);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

/* ---- processes --------------------------------------------------------- */

_Noreturn static void run_child(char **argv, pid_t parent,
                                const sigset_t *before)
{
    int fd = open(test.output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (fd < 0 || getppid() != parent)
        _exit(126);
    setenv("TMPDIR", test.dir, 1);
    setenv("DIBS_TEST_DIR", test.dir, 1);
    dup2(fd, 1);
    dup2(fd, 2);
    sigprocmask(SIG_SETMASK, before, NULL);
    execv(argv[0], argv);
    fprintf(stderr, "run_test: cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* Reaps all that have ended. False: there are no children. */
static bool reap_children(void)
{
    pid_t pid;
    int status;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == test.pid) {
            test.ended = true;
            test.status = status;
        }
    return pid == 0;
}

/* Waits until a signal comes, at most until then. 0: the time is over. */
static int next_signal(const sigset_t *set, int64_t until)
{
    int64_t left = until - now_ms();
    struct timespec ts = {.tv_sec = left / 1000,
                          .tv_nsec = left % 1000 * 1000000};
    int sig;

    if (left <= 0)
        return 0;
    sig = sigtimedwait(set, NULL, &ts);
    return sig > 0 ? sig : errno == EINTR ? SIGCHLD : 0;
}

/* Until the test has ended, by itself or because it was told to. */
static void wait_for_test(const sigset_t *set, int64_t until)
{
    test.end = END_RUNNING;
    while (reap_children(), !test.ended) {
        int sig = next_signal(set, until);

        if (sig == SIGCHLD)
            continue;
        if (test.end == END_RUNNING) {
            test.end = sig ? END_INTERRUPTED : END_TIMEOUT;
            kill(test.pid, SIGTERM);
            kill(test.pid, SIGCONT);
            until = now_ms() + TERM_MS;
        } else if (!sig) {
            kill(test.pid, SIGKILL);
            until = now_ms() + TERM_MS;
        }
    }
    if (test.end == END_RUNNING)
        test.end = END_EXITED;
}

/* Kills each child of ours; their children become ours. */
static void kill_children(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *e;

    while (proc && (e = readdir(proc))) {
        char path[300], text[512], state, *name, *end;
        int parent;
        FILE *f;

        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        f = fopen(path, "re");
        if (!f)
            continue;
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
        name = strchr(text, '(');
        end = strrchr(text, ')'); /* the name may have any bytes in it */
        if (name && end && sscanf(end + 1, " %c %d", &state, &parent) == 2 &&
            parent == getpid() && state != 'Z') {
            snprintf(test.orphan, sizeof test.orphan, "%.*s",
                     (int)(end - name - 1), name + 1);
            test.orphans++;
            kill(atoi(text), SIGKILL);
        }
    }
    if (proc)
        closedir(proc);
}

static void end_orphans(const sigset_t *set, int64_t grace_ms)
{
    int64_t until = now_ms() + grace_ms;

    while (reap_children() && next_signal(set, until) == SIGCHLD)
        ;
    for (int i = 0; i < 1000 && reap_children(); i++) {
        kill_children();
        next_signal(set, now_ms() + 10);
    }
}

/* ---- the report -------------------------------------------------------- */

static void copy_output(void)
{
    char buf[16384];
    int fd = open(test.output, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    while (fd >= 0 && (n = read(fd, buf, sizeof buf)) > 0)
        if (write(1, buf, (size_t)n) < 0)
            break;
    if (fd >= 0)
        close(fd);
}

/* Is this the line of a failed check: cmocka's, tests/cli/lib.sh's, one of the
 * simulator, of an assert, or of a sanitizer? */
static bool is_finding(const char *line)
{
    static const char *const marks[] = {
        "[  ERROR   ] --- ", "[   LINE   ] --- ", "FAIL: ",  "test harness: ",
        "Assertion `",       "runtime error: ",   "ERROR: ", "WARNING: Thread",
        "run_test: ",        "AssertionError",    "promise", NULL};

    for (int i = 0; marks[i]; i++)
        if (strstr(line, marks[i]))
            return true;
    return false;
}

/* The statement at FILE:LINE, of a line "[   LINE   ] --- FILE:LINE: ...". */
static void print_source(const char *line)
{
    const char *at = strstr(line, "LINE   ] --- ");
    char path[400], text[300];
    int number = 0, shown = 0;
    FILE *f;

    if (!at || sscanf(at + 13, "%399[^:]:%d", path, &number) != 2)
        return;
    f = fopen(path, "re");
    for (int i = 1; f && shown < 4 && fgets(text, sizeof text, f); i++) {
        if (i < number)
            continue;
        printf("           %s", text);
        if (strchr(text, ';'))
            break;
        shown++;
    }
    if (f)
        fclose(f);
}

/* What was expected and what was seen, or the last lines of the output. */
static void print_findings(void)
{
    FILE *f = fopen(test.output, "re");
    char *line = NULL;
    char *last[LINES_MAX] = {0};
    size_t size = 0, n = 0, found = 0;

    while (f && getline(&line, &size, f) > 0) {
        if (is_finding(line) && found < LINES_MAX) {
            found++;
            printf("  %s", line);
            print_source(line);
        }
        free(last[n % LINES_MAX]);
        last[n++ % LINES_MAX] = strdup(line);
    }
    for (size_t i = 0; i < LINES_MAX; i++) {
        char *text = last[(n + i) % LINES_MAX];

        if (text && !found)
            printf("  %s", text);
        free(text);
    }
    free(line);
    if (f)
        fclose(f);
}

static void print_end(void)
{
    if (test.end == END_TIMEOUT)
        printf("it did not end in time");
    else if (test.end == END_INTERRUPTED)
        printf("interrupted");
    else if (WIFSIGNALED(test.status))
        printf("signal %d, %s", WTERMSIG(test.status),
               strsignal(WTERMSIG(test.status)));
    else if (WEXITSTATUS(test.status) != 0)
        printf("exit code %d", WEXITSTATUS(test.status));
    else
        printf("it left %d processes, of them %s", test.orphans, test.orphan);
}

/* server.c and tests/cli/lib.sh put them there. */
static void print_logs(void)
{
    static const char *const folders[] = {"", "/t"};

    for (int i = 0; i < 2; i++) {
        char pattern[220];
        glob_t found;

        snprintf(pattern, sizeof pattern, "%s%s/*.log", test.dir, folders[i]);
        if (glob(pattern, 0, NULL, &found) != 0)
            continue;
        if (found.gl_pathc > LOGS_MAX)
            printf("  server logs: %s\n", pattern);
        else
            for (size_t k = 0; k < found.gl_pathc; k++)
                printf("  server log: %s\n", found.gl_pathv[k]);
        globfree(&found);
    }
}

static void print_report(void)
{
    const char *make = getenv("DIBS_TEST_MAKE");

    printf("\n---- %s FAILED: ", test.name);
    print_end();
    printf("\n");
    print_findings();
    printf("  output:     %s\n", test.output);
    print_logs();
    printf("  run it:     %s TEST=%s\n", make ? make : "make test", test.name);
}

int main(int argc, char **argv)
{
    bool kill_at_once = argc > 1 && strcmp(argv[1], "-k") == 0;
    char **arg = argv + 1 + kill_at_once;
    int64_t start = now_ms();
    sigset_t set, before;
    struct rusage use;
    pid_t ctest = getppid(), self = getpid();

    if (argc < 4 + kill_at_once) {
        fputs("usage: run_test [-k] NAME SECONDS PROGRAM [ARGUMENT...]\n",
              stderr);
        return 2;
    }
    test.name = arg[0];
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != ctest)
        return 2;
    make_folder();
    test.pid = fork();
    if (test.pid < 0)
        die("fork");
    if (test.pid == 0)
        run_child(arg + 2, self, &before);
    signal(SIGPIPE, SIG_IGN); /* ctest may have gone */
    wait_for_test(&set, start + 1000 * atoll(arg[1]));
    end_orphans(&set, kill_at_once ? 0 : ORPHAN_MS);

    bool ok = test.end == END_EXITED && WIFEXITED(test.status) &&
              WEXITSTATUS(test.status) == 0 &&
              (kill_at_once || test.orphans == 0);
    getrusage(RUSAGE_CHILDREN, &use);
    copy_output();
    if (!ok)
        print_report();
    printf("%s: %.1f s, processor %.1f s\n", test.name,
           (double)(now_ms() - start) / 1000,
           (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
               (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6);
    fflush(stdout);
    if (ok || test.end == END_INTERRUPTED)
        remove_folder();
    return ok ? 0 : test.end == END_INTERRUPTED ? 130 : 1;
}
