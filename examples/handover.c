/* SPDX-License-Identifier: MIT
 *
 * handover.c - taken on one thread, released on another.
 *
 *   handover [URL]          URL defaults to redis://127.0.0.1:6379
 *
 * A lock belongs to an owner, and unless told otherwise the owner is the
 * calling thread. Where work moves between threads, let the work own the lock:
 * dibs_owner_new gives a number that any thread may use, and that goes along
 * with the job.
 */
#include <dibs/dibs.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* What goes from the thread that takes jobs to the one that does them. */
struct job {
    dibs_lock *l;
    dibs_owner owner; /* who holds l: the job itself */
    dibs_err result;
};

/* The second thread. It ends the job, and the job's hold. */
static void *do_job(void *arg)
{
    struct job *job = arg;

    /* The lock is not this thread's: without the job's owner, it is refused. */
    dibs_err mine = dibs_lock_release(job->l, NULL);
    printf("worker:  released as myself: %s\n", dibs_strerror(mine));

    if (dibs_lock_state(job->l, job->owner) == DIBS_HELD)
        printf("worker:  the job holds the lock, working\n");

    job->result =
        dibs_lock_release(job->l, DIBS_LOCK_OPTS(.owner = job->owner));
    printf("worker:  released as the job: %s\n", dibs_strerror(job->result));
    return NULL;
}

/* The first thread takes the lock for a new job and hands both over. */
static dibs_err run(dibs_client *c, dibs_lock *l)
{
    struct job job = {.l = l, .owner = dibs_owner_new(c)};
    pthread_t worker;

    dibs_err err = dibs_lock_acquire(
        l, DIBS_LOCK_OPTS(.owner = job.owner, .wait_ms = 2000));
    if (err != DIBS_OK)
        return err;
    printf("main:    the job has the lock\n");

    int bad = pthread_create(&worker, NULL, do_job, &job);
    if (bad) {
        fprintf(stderr, "handover: no thread: %s\n", strerror(bad));
        dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = job.owner));
        return DIBS_ERR_NOMEM;
    }
    pthread_join(worker, NULL);

    if (job.result == DIBS_OK && dibs_lock_state(l, job.owner) == DIBS_NOT_HELD)
        printf("main:    the job is done, the lock is free\n");
    return job.result;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "redis://127.0.0.1:6379";
    dibs_client *c = NULL;
    dibs_lock *l = NULL;

    dibs_err err = dibs_client_open(url, NULL, &c);
    if (err == DIBS_OK)
        err = dibs_lock_new(c, "dibs:example:handover", &l);
    if (err == DIBS_OK)
        err = run(c, l);
    if (err != DIBS_OK)
        fprintf(stderr, "handover: %s\n", dibs_strerror(err));
    dibs_lock_free(l);
    dibs_client_free(c);
    return err == DIBS_OK ? 0 : 1;
}
