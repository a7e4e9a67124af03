/* SPDX-License-Identifier: MIT
 *
 * async.c - ask for locks without waiting for them.
 *
 *   async [URL]             URL defaults to redis://127.0.0.1:6379
 *
 * An async call starts something and returns; the outcome comes to a callback,
 * exactly once, on a thread that the library keeps for this. Each task here has
 * an owner of its own, since a thread that never waits may well be busy with
 * several at a time. Three tasks show the three ways it can go:
 *
 *   first    takes the lock and gives it back
 *   second   waits in line behind it, until we change our mind
 *   third    takes it for a moment only, and learns that the moment is over
 */
#include <dibs/dibs.h>
#include <pthread.h>
#include <stdio.h>

/* Where callbacks leave word for main. A program that is built around
 * callbacks would go on from inside them; this one tells its story in order. */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;

struct outcome {
    const char *what; /* for people */
    bool done;        /* mu */
    dibs_err err;     /* mu; valid when done */
};

/* Runs on the callback thread: short, and never waiting for dibs. */
static void on_done(dibs_err err, void *arg)
{
    struct outcome *o = arg;

    printf("  callback: %s: %s\n", o->what, dibs_strerror(err));
    pthread_mutex_lock(&mu);
    o->err = err;
    o->done = true;
    pthread_cond_signal(&news);
    pthread_mutex_unlock(&mu);
}

/* A lock ended although nobody released it. Whatever it guarded must stop. It
 * does not come any more once the release has told its end, so what arg points
 * to may be gone then. */
static void on_lost(const char *name, dibs_owner owner, void *arg)
{
    printf("  callback: %s is gone, owner %llu\n", name,
           (unsigned long long)owner);
    on_done(DIBS_ERR_LOST, arg);
}

/* Waits for a callback. It needs no time limit: all we start has one. */
static dibs_err outcome_wait(struct outcome *o)
{
    pthread_mutex_lock(&mu);
    while (!o->done)
        pthread_cond_wait(&news, &mu);
    dibs_err err = o->err;
    pthread_mutex_unlock(&mu);
    return err;
}

/* Asks for the lock and looks at the answer later. */
static dibs_err first_takes(dibs_lock *l, dibs_owner first)
{
    static struct outcome got = {.what = "first asked"};

    printf("first asks for the lock, and we could do something else now\n");
    dibs_err err = dibs_lock_acquire_async(
        l, DIBS_LOCK_OPTS(.owner = first, .wait_ms = 1000), on_done, &got);
    return err == DIBS_OK ? outcome_wait(&got) : err;
}

/* Stands in line behind first, then leaves it. The callback comes all the
 * same: exactly once is a promise. */
static dibs_err second_gives_up(dibs_lock *l, dibs_owner second)
{
    static struct outcome got = {.what = "second asked"};

    printf("second asks too, and we cancel it\n");
    dibs_err err = dibs_lock_acquire_async(
        l, DIBS_LOCK_OPTS(.owner = second, .wait_ms = 1000), on_done, &got);
    if (err == DIBS_OK)
        err = dibs_lock_cancel(l, second);
    if (err == DIBS_OK)
        err = outcome_wait(&got);
    return err == DIBS_ERR_CANCELED ? DIBS_OK : err;
}

static dibs_err first_releases(dibs_lock *l, dibs_owner first)
{
    static struct outcome freed = {.what = "first released"};

    printf("first gives it back\n");
    dibs_err err = dibs_lock_release_async(l, DIBS_LOCK_OPTS(.owner = first),
                                           on_done, &freed);
    return err == DIBS_OK ? outcome_wait(&freed) : err;
}

/* With a lease of its own a lock is not renewed, and ends when it ends. */
static dibs_err third_loses(dibs_lock *l, dibs_owner third)
{
    static struct outcome got = {.what = "third asked"};
    static struct outcome lost = {.what = "third held it"};

    printf("third takes it for 300 ms and stays longer than that\n");
    dibs_err err = dibs_lock_acquire_async(
        l,
        DIBS_LOCK_OPTS(.owner = third, .wait_ms = 1000, .lease_ms = 300,
                       .on_lost = on_lost, .arg = &lost),
        on_done, &got);
    if (err == DIBS_OK)
        err = outcome_wait(&got);
    if (err != DIBS_OK)
        return err;

    outcome_wait(&lost);
    err = dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = third));
    printf("third releases, too late: %s\n", dibs_strerror(err));
    return err == DIBS_ERR_LOST ? DIBS_OK : err;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "redis://127.0.0.1:6379";
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    dibs_owner first = 0;

    dibs_err err = dibs_client_open(url, NULL, &c);
    if (err == DIBS_OK)
        err = dibs_lock_new(c, "dibs:example:async", &l);
    if (err == DIBS_OK) {
        first = dibs_owner_new(c);
        err = first_takes(l, first);
    }
    if (err == DIBS_OK)
        err = second_gives_up(l, dibs_owner_new(c));
    if (err == DIBS_OK)
        err = first_releases(l, first);
    if (err == DIBS_OK)
        err = third_loses(l, dibs_owner_new(c));

    if (err != DIBS_OK)
        fprintf(stderr, "async: %s\n", dibs_strerror(err));
    dibs_client_free(c); /* the last callback is over when this returns */
    dibs_lock_free(l);
    return err == DIBS_OK ? 0 : 1;
}
