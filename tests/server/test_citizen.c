/* SPDX-License-Identifier: MIT
 *
 * test_citizen.c - a library among others in a process: fork, exec, signals,
 * threads by the hundred.
 */
#include "server/kit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHANNEL  "redisson_lock__channel:{l}"
#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

/* ---- fork -------------------------------------------------------------- */

static atomic_int told_in_child;

static void never_told(dibs_err err, void *arg)
{
    (void)err, (void)arg;
    atomic_fetch_add(&told_in_child, 1);
}

static void never_forced(dibs_err err, bool was, void *arg)
{
    (void)was;
    never_told(err, arg);
}

static void never_informed(dibs_err err, const dibs_lock_info *i, void *arg)
{
    (void)i;
    never_told(err, arg);
}

static bool never_listed(const char *name, size_t len,
                         const dibs_lock_info *info, void *arg)
{
    (void)name, (void)len, (void)info;
    never_told(DIBS_OK, arg);
    return true;
}

/* Every call of the header. The number of the first that is not refused, or
 * 0. */
static int all_refused(dibs_client *c, dibs_lock *l)
{
    dibs_lock *none = NULL;
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    char text[DIBS_OWNER_MAX];
    bool was;
    const dibs_err errs[] = {
        dibs_lock_new(c, "x", &none),
        dibs_lock_new_bytes(c, "x", 1, &none),
        dibs_lock_acquire(l, NULL),
        dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 1)),
        dibs_lock_try(l, NULL),
        dibs_lock_release(l, NULL),
        dibs_lock_force_release(l, &was),
        dibs_lock_force_release_owner(l, "x", &was),
        dibs_lock_cancel(l, 0),
        dibs_lock_info_get(l, &info),
        dibs_lock_owner_text(l, 0, text, sizeof text),
        dibs_client_list(c, NULL, never_listed, NULL),
        dibs_lock_acquire_async(l, NULL, never_told, NULL),
        dibs_lock_try_async(l, NULL, never_told, NULL),
        dibs_lock_release_async(l, NULL, never_told, NULL),
        dibs_lock_force_release_async(l, never_forced, NULL),
        dibs_lock_info_get_async(l, never_informed, NULL),
        dibs_client_close(c, 1000),
    };

    for (size_t i = 0; i < COUNT(errs); i++)
        if (errs[i] != DIBS_ERR_FORKED)
            return (int)i + 1;
    if (dibs_lock_state(l, 0) != DIBS_NOT_HELD ||
        dibs_lock_valid_ms(l, 0) != 0 || dibs_lock_holds(l, 0) != 0)
        return 100;
    if (dibs_client_fd(c) != -1 || dibs_client_dispatch(c) != 0 ||
        strlen(dibs_client_id(c)) != 36)
        return 101;
    return none || atomic_load(&told_in_child) ? 102 : 0;
}

/* What a child that runs fn ends with. */
static int in_child(int (*fn)(dibs_client *, dibs_lock *), dibs_client *c,
                    dibs_lock *l)
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        alarm((unsigned)(TS_SOON / 1000)); /* it may hang, then it dies */
        _exit(fn(c, l));
    }
    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int refused_and_freed(dibs_client *c, dibs_lock *l)
{
    int odd = all_refused(c, l);

    dibs_lock_free(l);
    dibs_client_free(c);
    return odd;
}

static int freed_first(dibs_client *c, dibs_lock *l)
{
    dibs_client_free(c);
    dibs_lock_free(l);
    return 0;
}

/* The child is refused and sends nothing; the parent notices nothing. */
/* All connections that were there are there still. There may be more by now:
 * the library makes some when it has the time. */
static void all_connected(const char *before)
{
    char *now = ts_str(srv, "CLIENT LIST");

    for (const char *p = before; p && *p; p = strchr(p, '\n'), p += p != NULL) {
        char *id = ts_text("%.*s", (int)strcspn(p, " "), p); /* "id=7" */
        char *line = ts_text("%s ", id);
        if (!strstr(now, line))
            fail_msg("the connection %s is gone", id);
        free(line);
        free(id);
    }
    free(now);
}

static void test_citizen_fork(void **state)
{
    static int (*const children[])(dibs_client *, dibs_lock *) = {
        all_refused, refused_and_freed, freed_first};
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_lock *other = kit_lock(c, "other");

    (void)state;
    for (size_t i = 0; i < COUNT(children); i++) {
        struct told t = {0};

        FINE(dibs_lock_acquire(l, NULL));
        /* A wait is under way, so that there is a subscription too. */
        ts_ok(srv, "HSET other %s 1", STRANGER);
        FINE(dibs_lock_acquire_async(other, NULL, kit_tell, &t));
        assert_true(ts_wait_numsub(srv, "redisson_lock__channel:{other}", 1));
        char *before = ts_str(srv, "CLIENT LIST");
        int ended = in_child(children[i], c, l);
        if (ended != 0)
            fail_msg("child %zu ended with %d", i, ended);
        assert_int_equal(dibs_lock_state(l, 0), DIBS_HELD);
        assert_int_equal(kit_count(l, "l", 0), 1);
        all_connected(before);
        free(before);
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_release(l, NULL));
        FINE(dibs_lock_release(l, NULL));
        assert_false(ts_exists(srv, "l"));
        ts_ok(srv, "DEL other");
        ts_ok(srv, "PUBLISH redisson_lock__channel:{other} 0");
        FINE(kit_answer(&t));
        FINE(dibs_lock_release(other, NULL));
    }
    dibs_lock_free(l);
    dibs_lock_free(other);
    kit_close(c);
}

static atomic_bool enough;

static void *use(void *arg)
{
    dibs_lock *l = arg;
    dibs_err err = DIBS_OK;

    while (err == DIBS_OK && !atomic_load(&enough)) {
        err = dibs_lock_acquire(l, NULL);
        if (err == DIBS_OK)
            err = dibs_lock_release(l, NULL);
    }
    return (void *)(intptr_t)err;
}

/* At any moment, with any mutex in any thread's hands. */
static void test_citizen_fork_in_full_swing(void **state)
{
    enum { THREADS = 4, FORKS = 30 };
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    pthread_t threads[THREADS];
    int ended = 0;
    void *err;

    (void)state;
    atomic_store(&enough, false);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, use, l);
    for (int i = 0; i < FORKS && ended == 0; i++)
        ended = in_child(refused_and_freed, c, l);
    atomic_store(&enough, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &err);
        FINE((dibs_err)(intptr_t)err);
    }
    assert_int_equal(ended, 0);
    dibs_lock_free(l);
    kit_close(c);
}

#if defined(__SANITIZE_THREAD__)
#define NO_THREADS_IN_CHILD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_THREADS_IN_CHILD 1
#endif
#endif

#ifndef NO_THREADS_IN_CHILD
/* A client of the child's own, next to the one that is not. */
static int own_client(dibs_client *c, dibs_lock *l)
{
    dibs_client *mine = NULL;
    dibs_lock *lock = NULL;

    (void)c, (void)l;
    if (dibs_client_open(ts_server_url(srv), NULL, &mine) != DIBS_OK ||
        dibs_lock_new(mine, "l", &lock) != DIBS_OK)
        return 1;
    if (dibs_lock_try(lock, NULL) != DIBS_ERR_BUSY) /* the parent has it */
        return 2;
    dibs_lock_free(lock);
    if (dibs_lock_new(mine, "child", &lock) != DIBS_OK ||
        dibs_lock_acquire(lock, NULL) != DIBS_OK)
        return 3;
    if (dibs_client_close(mine, 0) != DIBS_OK)
        return 4;
    dibs_lock_free(lock);
    dibs_client_free(mine);
    return 0;
}

static void test_citizen_fork_and_open(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    assert_int_equal(in_child(own_client, c, l), 0);
    assert_int_equal(kit_count(l, "l", 0), 1);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}
#endif

/* ---- descriptors ------------------------------------------------------- */

/* All that are open, as bits; and how many of those are not close-on-exec. */
static void list_fds(bool open[256], bool inherited[256])
{
    for (int fd = 0; fd < 256; fd++) {
        int flags = fcntl(fd, F_GETFD);
        open[fd] = flags >= 0;
        inherited[fd] = flags >= 0 && !(flags & FD_CLOEXEC);
    }
}

static void test_citizen_close_on_exec(void **state)
{
    bool before[256], open[256], inherited[256];
    int fresh = 0;

    (void)state;
    list_fds(before, inherited);
    dibs_client *c =
        kit_open(DIBS_CLIENT_OPTS(.callbacks = DIBS_CALLBACKS_DISPATCH));
    char *url = ts_text("redis://localhost:%d", ts_server_port(srv));
    dibs_client *d = kit_open_at(url, NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_lock *waits = kit_lock(d, "l");
    struct told t = {0};
    for (int i = 0; i < 20; i++) { /* so that there is more than one */
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_release(l, NULL));
        FINE(dibs_lock_acquire(waits, NULL));
        FINE(dibs_lock_release(waits, NULL));
    }
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_acquire_async(waits, NULL, kit_tell, &t));
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    list_fds(open, inherited);
    for (int fd = 0; fd < 256; fd++) {
        fresh += open[fd] && !before[fd];
        if (inherited[fd] && !before[fd])
            fail_msg("descriptor %d goes to other programs", fd);
    }
    assert_true(fresh >= 5);
    FINE(dibs_lock_release(l, NULL));
    FINE(kit_answer(&t));
    free(url);
    dibs_lock_free(l);
    dibs_lock_free(waits);
    kit_close(c);
    kit_close(d);
}

/* ---- signals ----------------------------------------------------------- */

static void dispositions(struct sigaction now[NSIG])
{
    memset(now, 0, NSIG * sizeof *now);
    for (int s = 1; s < NSIG; s++)
        sigaction(s, NULL, &now[s]);
}

/* How many connections there are, and the newest by the server's number. */
static int connections(long long *newest)
{
    char *list = ts_str(srv, "CLIENT LIST TYPE normal");
    char *save = NULL;
    int n = 0;

    *newest = 0;
    for (char *line = strtok_r(list, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        const char *id = strstr(line, "id=");
        if (!id || !strstr(line, " name=dibs/"))
            continue;
        n++;
        if (atoll(id + 3) > *newest)
            *newest = atoll(id + 3);
    }
    free(list);
    return n;
}

static dibs_err pair(dibs_lock *l)
{
    dibs_err err = dibs_lock_acquire(l, NULL);

    return err == DIBS_OK ? dibs_lock_release(l, NULL) : err;
}

/* Connections break while nobody looks: now the one that callers talk on
 * themselves, now all. A broken pipe would end this program. */
static void test_citizen_sigpipe(void **state)
{
    static struct sigaction before[NSIG], after[NSIG];
    long long newest;

    (void)state;
    signal(SIGPIPE, SIG_DFL);
    dispositions(before);
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    for (int i = 0; i < 20; i++) {
        /* The first is io's; those made later are there to be borrowed. */
        while (i < 10 && connections(&newest) < 2)
            FINE(pair(l));
        FINE(dibs_lock_acquire(l, NULL));
        if (i < 10 && connections(&newest) > 1)
            ts_ok(srv, "CLIENT KILL ID %lld", newest);
        else if (i >= 10)
            ts_ok(srv, "CLIENT KILL TYPE normal SKIPME yes");
        FINE(dibs_lock_release(l, NULL));
    }
    dispositions(after);
    for (int s = 1; s < NSIG; s++)
        if (after[s].sa_handler != before[s].sa_handler)
            fail_msg("signal %d is handled differently", s);
    dibs_lock_free(l);
    kit_close(c);
}

static atomic_long alarms;

static void on_alarm(int sig)
{
    (void)sig;
    atomic_fetch_add(&alarms, 1);
}

static void storm(bool on)
{
    struct itimerval every = {{0, on ? 1000 : 0}, {0, on ? 1000 : 0}};

    setitimer(ITIMER_REAL, &every, NULL);
}

/* A signal a millisecond, and calls are not restarted. What is asked of the
 * server for the sake of the test is asked in the calm. */
static void test_citizen_interrupted(void **state)
{
    struct sigaction sa = {.sa_handler = on_alarm}, before;
    dibs_err open, waits = DIBS_OK, pairs = DIBS_OK, slow = DIBS_OK;
    dibs_err gone = DIBS_OK;
    dibs_client *c = NULL;
    dibs_lock *l = NULL, *taken = NULL;

    (void)state;
    ts_ok(srv, "HSET taken %s 1", STRANGER);
    sigaction(SIGALRM, &sa, &before);
    storm(true);
    open = dibs_client_open(ts_server_url(srv), NULL, &c);
    if (open == DIBS_OK && dibs_lock_new(c, "l", &l) == DIBS_OK &&
        dibs_lock_new(c, "taken", &taken) == DIBS_OK) {
        waits = dibs_lock_acquire(taken, DIBS_LOCK_OPTS(.wait_ms = 200));
        for (int i = 0; i < 500 && pairs == DIBS_OK; i++) {
            pairs = dibs_lock_acquire(l, NULL);
            if (pairs == DIBS_OK)
                pairs = dibs_lock_release(l, NULL);
        }
        for (int i = 0; i < 3 && slow == DIBS_OK; i++) {
            slow =
                dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = kit_short()));
            if (slow == DIBS_OK) /* behind a lease that must end first */
                slow = dibs_lock_acquire(
                    l, DIBS_LOCK_OPTS(.owner = dibs_owner_new(c),
                                      .lease_ms = kit_short()));
            if (slow == DIBS_OK && dibs_lock_release(l, NULL) != DIBS_ERR_LOST)
                slow = DIBS_ERR_INVALID;
        }
        gone = dibs_client_close(c, 0);
    }
    storm(false);
    sigaction(SIGALRM, &before, NULL);
    FINE(open);
    WANT(waits, DIBS_ERR_TIMEOUT);
    FINE(pairs);
    FINE(slow);
    FINE(gone);
    assert_true(atomic_load(&alarms) > 50);
    dibs_lock_free(l);
    dibs_lock_free(taken);
    dibs_client_free(c);
    ts_ok(srv, "DEL taken");
    assert_true(ts_wait_exists(srv, "l", false));
}

/* ---- threads ----------------------------------------------------------- */

enum { CROWD = 200, TURNS = 10, LOCKS = 8 };

static struct {
    dibs_lock *l;
    long inside, sum; /* the lock guards them, or it does not */
    atomic_bool broken;
} shared[LOCKS];

static void *one_of_many(void *arg)
{
    size_t me = (size_t)(uintptr_t)arg;
    dibs_err err = DIBS_OK;

    for (size_t i = 0; i < TURNS && err == DIBS_OK; i++) {
        size_t k = (me + i) % LOCKS;
        err = dibs_lock_acquire(shared[k].l, NULL);
        if (err != DIBS_OK)
            break;
        if (shared[k].inside++ != 0)
            atomic_store(&shared[k].broken, true);
        shared[k].sum++;
        shared[k].inside--;
        err = dibs_lock_release(shared[k].l, NULL);
    }
    return (void *)(intptr_t)err;
}

/* All through one client, on no more connections than it was given. */
static void test_citizen_many_threads(void **state)
{
    static pthread_t threads[CROWD];
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.max_connections = 3));
    long sum = 0;
    void *err;

    (void)state;
    for (int i = 0; i < LOCKS; i++) {
        char name[] = {'l', (char)('0' + i), '\0'};
        shared[i].l = kit_lock(c, name);
    }
    for (size_t i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, one_of_many,
                                        (void *)(uintptr_t)i),
                         0);
    for (size_t i = 0; i < CROWD; i++) {
        pthread_join(threads[i], &err);
        FINE((dibs_err)(intptr_t)err);
    }
    /* Three for commands, one to listen, and one for changes of keys if
     * somebody held a lock for a second, which happens on a slow machine. */
    long long most = 4 + ts_numsub(srv, "__redis__:invalidate");
    assert_true(ts_client_count(srv) - kit_strange <= most);
    assert_int_equal(ts_nkeys(srv), 0);
    for (int i = 0; i < LOCKS; i++) {
        assert_false(atomic_load(&shared[i].broken));
        sum += shared[i].sum;
        dibs_lock_free(shared[i].l);
    }
    assert_int_equal(sum, CROWD * TURNS);
    kit_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_citizen_fork),
        KIT_TEST(test_citizen_fork_in_full_swing),
#ifndef NO_THREADS_IN_CHILD
        KIT_TEST(test_citizen_fork_and_open),
#endif
        KIT_TEST(test_citizen_close_on_exec),
        KIT_TEST(test_citizen_sigpipe),
        KIT_TEST(test_citizen_interrupted),
        KIT_TEST(test_citizen_many_threads),
    };
    return KIT_RUN("server.citizen", tests);
}
