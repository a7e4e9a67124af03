/* SPDX-License-Identifier: MIT
 *
 * selftest.c - the tests' own tools: does the server do as it is told and go
 * away, does the witness see what it should?
 *
 * A harness that is wrong makes every other test worthless, and quietly so.
 * The proxy has a file of its own, selftest_proxy.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "support/run.h"
#include "support/server.h"
#include "support/util.h"
#include "support/witness.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct ts_server *srv;

static int group_setup(void **state)
{
    (void)state;
    srv = ts_server_start(NULL);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    ts_server_stop(srv);
    return 0;
}

/* Whatever the test before left. */
static int fresh(void **state)
{
    (void)state;
    if (ts_server_pid(srv) == 0)
        ts_server_restart(srv);
    ts_server_resume(srv);
    ts_ok(srv, "FLUSHALL");
    return 0;
}

/* ---- the server -------------------------------------------------------- */

static void test_server_answers(void **state)
{
    (void)state;
    ts_ok(srv, "HSET h f %s", "v");
    ts_ok(srv, "PEXPIRE h 100000");
    char *v = ts_hget(srv, "h", "f");
    assert_string_equal(v, "v");
    free(v);
    assert_null(ts_hget(srv, "h", "g"));
    assert_int_equal(ts_hlen(srv, "h"), 1);
    assert_in_range(ts_pttl(srv, "h"), 1, 100000);
    assert_true(ts_exists(srv, "h"));
    assert_false(ts_exists(srv, "i"));
    assert_int_equal(ts_pttl(srv, "i"), -2);
    assert_int_equal(ts_nkeys(srv), 1);
    assert_int_equal(ts_numsub(srv, "nobody"), 0);

    redisContext *tcp = ts_dial_tcp(ts_server_port(srv));
    assert_non_null(tcp);
    assert_true(ts_wait_clients(srv, 1));
    redisFree(tcp);
    assert_true(ts_wait_clients(srv, 0));
    const char *argv[] = {"SET", "k", "a\0b"};
    const size_t lens[] = {3, 1, 3};
    freeReplyObject(ts_cmdv(srv, 3, argv, lens));
    assert_int_equal(ts_int(srv, "STRLEN k"), 3);
}

static void test_server_counts(void **state)
{
    (void)state;
    ts_ok(srv, "SET warm up");
    ts_reset_stats(srv);
    assert_int_equal(ts_total_commands(srv), 0);
    redisContext *cn = ts_connect(srv);
    for (int i = 0; i < 5; i++)
        freeReplyObject(redisCommand(cn, "GET x"));
    redisFree(cn);
    assert_int_equal(ts_command_calls(srv, "get"), 5);
    assert_int_equal(ts_command_calls(srv, "hmget"), 0);
    assert_int_equal(ts_total_commands(srv), 5);
    assert_int_equal(ts_total_commands(srv), 5);
}

static void test_server_kill_and_restart(void **state)
{
    (void)state;
    pid_t before = ts_server_pid(srv);

    ts_ok(srv, "SET k v");
    ts_server_kill(srv);
    assert_false(ts_pid_alive(before));
    assert_int_equal(ts_server_pid(srv), 0);
    assert_null(ts_cmd(srv, "PING"));
    assert_null(ts_dial_tcp(ts_server_port(srv)));
    ts_server_kill(srv);
    ts_server_restart(srv);
    assert_int_not_equal(ts_server_pid(srv), before);
    assert_int_equal(ts_nkeys(srv), 0);
    redisContext *tcp = ts_dial_tcp(ts_server_port(srv));
    assert_non_null(tcp);
    redisFree(tcp);
}

static void test_server_pause(void **state)
{
    (void)state;
    redisContext *cn = ts_connect(srv);

    ts_server_pause(srv);
    assert_int_equal(redisAppendCommand(cn, "SET k v"), REDIS_OK);
    int sent = 0;
    while (!sent)
        assert_int_equal(redisBufferWrite(cn, &sent), REDIS_OK);
    struct pollfd f = {.fd = cn->fd, .events = POLLIN};
    assert_int_equal(poll(&f, 1, 20), 0);
    ts_server_resume(srv);
    redisReply *r = NULL;
    assert_int_equal(redisGetReply(cn, (void **)&r), REDIS_OK);
    freeReplyObject(r);
    assert_true(ts_exists(srv, "k"));
    redisFree(cn);
}

static void test_server_own_connection_lost(void **state)
{
    (void)state;
    ts_ok(srv, "PING");
    redisContext *cn = ts_connect(srv);
    freeReplyObject(redisCommand(cn, "CLIENT KILL TYPE normal SKIPME yes"));
    redisFree(cn);
    assert_int_equal(ts_int(srv, "INCR once"), 1);
}

static void test_server_persists_if_asked(void **state)
{
    static const char *const extra[] = {
        "--appendonly", "yes", "--appendfsync", "always", "--requirepass",
        "secret word",  NULL};
    struct ts_server *s = ts_server_start(extra);

    (void)state;
    ts_ok(s, "SET k v");
    ts_server_restart(s);
    assert_true(ts_exists(s, "k"));
    redisContext *cn = ts_dial_unix(ts_server_socket(s));
    redisReply *r = redisCommand(cn, "GET k");
    assert_int_equal(r->type, REDIS_REPLY_ERROR);
    freeReplyObject(r);
    redisFree(cn);
    ts_server_stop(s);
}

static bool gone(const char *dir)
{
    return access(dir, F_OK) < 0 && errno == ENOENT;
}

static void test_server_stop_leaves_nothing(void **state)
{
    (void)state;
    size_t fds = ts_fds();
    struct ts_server *s = ts_server_start(NULL);
    pid_t pid = ts_server_pid(s);
    char *dir = ts_strdup(ts_server_dir(s));

    ts_ok(s, "SET k v");
    ts_ok(s, "SAVE");
    ts_server_pause(s);
    ts_server_stop(s);
    assert_true(gone(dir));
    assert_false(ts_pid_alive(pid));
    assert_int_equal(ts_fds(), fds);
    free(dir);
}

struct report {
    pid_t pid;
    char dir[64];
};

/* Starts a server, tells which, and ends without stopping it. */
static int leave_server(int fd, void *how)
{
    struct ts_server *s = ts_server_start(NULL);
    struct report r = {.pid = ts_server_pid(s)};
    char c;

    snprintf(r.dir, sizeof r.dir, "%s", ts_server_dir(s));
    ts_tell(fd, &r, sizeof r);
    if (strcmp(how, "exit") == 0)
        exit(3);
    if (strcmp(how, "return") == 0)
        return 3;
    if (strcmp(how, "interrupt") == 0) {
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
    if (strcmp(how, "with a child") == 0 && fork() == 0) {
        /* It has the descriptors, and lives until the test lets it go. */
        ts_hear(fd, &c, 1, 10 * TS_SOON);
        _exit(0);
    }
    ts_hear(fd, &c, 1, TS_SOON); /* until it is killed */
    return 1;
}

static void test_server_dies_with_its_test(void **state)
{
    static const struct {
        char how[16];
        bool kill;
        int rc;
    } rows[] = {{"exit", false, 3},
                {"return", false, 3},
                {"interrupt", false, 128 + SIGINT},
                {"kill", true, 128 + SIGKILL},
                {"with a child", true, 128 + SIGKILL}};

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char how[16];
        memcpy(how, rows[i].how, sizeof how);
        struct ts_child *ch = ts_spawn(leave_server, how);
        struct report r;
        if (!ts_hear(ts_child_fd(ch), &r, sizeof r, TS_SOON))
            fail_msg("%s: no report", rows[i].how);
        if (rows[i].kill)
            ts_child_kill(ch);
        if (ts_child_wait(ch, TS_SOON) != rows[i].rc)
            fail_msg("%s: ended otherwise", rows[i].how);
        if (i == 0 && !gone(r.dir))
            fail_msg("exit() did not wait for the folder to go");
        TS_WAIT(gone(r.dir) && !ts_pid_alive(r.pid));
        ts_child_free(ch);
    }
}

static void *start_some(void *arg)
{
    struct ts_server **s = arg;

    for (int i = 0; i < 3; i++)
        s[i] = ts_server_start(NULL);
    return NULL;
}

static void test_server_many_at_once(void **state)
{
    struct ts_server *s[6];
    pthread_t t[2];

    (void)state;
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, start_some, s + 3 * i), 0);
    for (size_t i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    for (size_t i = 0; i < COUNT(s); i++) {
        ts_ok(s[i], "SET me %d", (int)i); /* the threads are gone, it is not */
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(ts_server_port(s[i]), ts_server_port(s[j]));
    }
    for (size_t i = 0; i < COUNT(s); i++) {
        assert_int_equal(ts_int(s[i], "GET me"), (int)i);
        ts_server_stop(s[i]);
    }
}

static int child_says(int fd, void *arg)
{
    const long long *parents = arg;
    char c;

    ts_hear(fd, &c, 1, TS_SOON);
    ts_ok(srv, "INCR forked");
    return ts_int(srv, "CLIENT ID") == *parents ? 99 : c;
}

static void test_server_used_by_children(void **state)
{
    struct ts_child *ch[3];

    (void)state;
    long long mine = ts_int(srv, "CLIENT ID"); /* of what they inherit */
    for (size_t i = 0; i < COUNT(ch); i++)
        ch[i] = ts_spawn(child_says, &mine);
    for (size_t i = 0; i < COUNT(ch); i++) {
        char c = (char)(i + 1);
        assert_int_equal(ts_child_wait(ch[i], 0), -1);
        ts_child_pause(ch[i]);
        assert_true(ts_tell(ts_child_fd(ch[i]), &c, 1));
        assert_int_equal(ts_child_wait(ch[i], 5), -1);
        ts_child_resume(ch[i]);
        assert_int_equal(ts_child_wait(ch[i], TS_SOON), c);
        ts_child_free(ch[i]);
    }
    assert_int_equal(ts_int(srv, "GET forked"), 3);
    assert_int_equal(ts_int(srv, "CLIENT ID"), mine);
}

/* ---- the runners ------------------------------------------------------- */

static void ends_at_once(void **state)
{
    (void)state;
    _exit(0);
}

static void passes(void **state)
{
    (void)state;
}

static int run_two(int fd, void *arg)
{
    const struct CMUnitTest two[] = {cmocka_unit_test(ends_at_once),
                                     cmocka_unit_test(passes)};

    (void)fd;
    (void)arg;
    return ts_run_parallel("two", two, COUNT(two), NULL, NULL);
}

/* A test that ends its process has not passed. */
static void test_run_ended_process(void **state)
{
    struct ts_child *ch = ts_spawn(run_two, NULL);

    (void)state;
    assert_int_equal(ts_child_wait(ch, TS_SOON), 1);
    ts_child_free(ch);
}

/* What a test leaves is ended, whatever its name. */
static void test_run_orphan_with_brackets(void **state)
{
    char *command = ts_text(
        "d=$(dirname \"$(readlink /proc/%d/exe)\"); exec \"$d/run_test\" -k x "
        "60 /bin/sh -c 'cp /bin/sleep \"$TMPDIR/a) b\" && "
        "(\"$TMPDIR/a) b\" 60 & echo pid $!)'",
        (int)getpid());
    FILE *f = popen(command, "r");
    char line[200];
    int pid = 0;

    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        (void)sscanf(line, "pid %d", &pid);
    assert_int_equal(pclose(f), 0);
    assert_true(pid > 1);
    bool left = kill(pid, SIGKILL) == 0;
    assert_false(left);
    free(command);
}

/* ---- the witness ------------------------------------------------------- */

static void test_witness_sees_two(void **state)
{
    struct ts_witness *w = ts_witness_new(2, 3);

    (void)state;
    assert_true(ts_witness_enter(w, 0, 0));
    assert_true(ts_witness_enter(w, 1, 1));
    assert_int_equal(ts_witness_violations(w), 0);
    assert_string_equal(ts_witness_first(w), "");
    assert_false(ts_witness_enter(w, 0, 2));
    assert_int_equal(ts_witness_inside(w, 0), 0);
    assert_true(ts_witness_leave(w, 0, 0));
    assert_false(ts_witness_leave(w, 0, 2));
    assert_int_equal(ts_witness_inside(w, 0), -1);
    assert_int_equal(ts_witness_violations(w), 2);
    assert_non_null(strstr(ts_witness_first(w), "lock 0: worker 2"));
    assert_non_null(strstr(ts_witness_first(w), "found worker 0"));
    ts_witness_forget(w, 1);
    assert_int_equal(ts_witness_inside(w, 1), -1);
    assert_int_equal(ts_witness_fewest(w), 0);
    assert_int_equal(ts_witness_total(w), 2);
    ts_witness_free(w);
}

#define ROUNDS 300

struct crowd {
    struct ts_witness *w;
    const char *file; /* to lock, or NULL: no lock at all */
    size_t next;
};

static int one_of_many(int fd, void *arg)
{
    struct crowd *c = arg;
    int lock = c->file ? open(c->file, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    char go;

    ts_hear(fd, &go, 1, TS_SOON);
    for (int i = 0; i < ROUNDS; i++) {
        if (c->file && flock(lock, LOCK_EX) < 0)
            return 1;
        ts_witness_enter(c->w, 0, c->next);
        ts_witness_leave(c->w, 0, c->next);
        if (c->file)
            flock(lock, LOCK_UN);
    }
    return 0;
}

/* Processes in and out of one section; returns what the witness noticed. */
static uint64_t crowd_violations(const char *file)
{
    struct crowd c = {.w = ts_witness_new(1, 4), .file = file};
    struct ts_child *ch[4];

    for (; c.next < COUNT(ch); c.next++)
        ch[c.next] = ts_spawn(one_of_many, &c);
    for (size_t i = 0; i < COUNT(ch); i++)
        assert_true(ts_tell(ts_child_fd(ch[i]), "g", 1));
    for (size_t i = 0; i < COUNT(ch); i++) {
        assert_int_equal(ts_child_wait(ch[i], TS_SOON), 0);
        ts_child_free(ch[i]);
    }
    assert_int_equal(ts_witness_fewest(c.w), ROUNDS);
    assert_int_equal(ts_witness_entries(c.w, 2), ROUNDS);
    uint64_t n = ts_witness_violations(c.w);
    ts_witness_free(c.w);
    return n;
}

static void test_witness_and_processes(void **state)
{
    char *file = ts_text("%s/lock", ts_server_dir(srv));

    (void)state;
    assert_int_equal(crowd_violations(file), 0);
    free(file);
    bool noticed = false;
    for (int i = 0; i < 100 && !noticed; i++)
        noticed = crowd_violations(NULL) > 0;
    assert_true(noticed);
}

/* ---- util -------------------------------------------------------------- */

static bool third_time(void *arg)
{
    int *n = arg;

    return ++*n == 3;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static void test_util_waits(void **state)
{
    int n = 0;

    (void)state;
    assert_true(ts_wait_until(third_time, &n, TS_SOON));
    assert_false(ts_wait_until(never, NULL, 3));
    assert_true(ts_slow() >= 1);
    assert_true(ts_pid_alive(getpid()));
}

#define T(f) cmocka_unit_test_setup(f, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_util_waits),
        T(test_server_answers),
        T(test_server_counts),
        T(test_server_kill_and_restart),
        T(test_server_pause),
        T(test_server_own_connection_lost),
        T(test_server_persists_if_asked),
        T(test_server_stop_leaves_nothing),
        T(test_server_dies_with_its_test),
        T(test_server_many_at_once),
        T(test_server_used_by_children),
        T(test_run_ended_process),
        T(test_run_orphan_with_brackets),
        T(test_witness_sees_two),
        T(test_witness_and_processes),
    };

    return cmocka_run_group_tests_name("selftest", tests, group_setup,
                                       group_teardown);
}
