/* SPDX-License-Identifier: MIT
 * hello.c - take a lock, do something, give it back:  hello [URL] */
#include <dibs/dibs.h>
#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "redis://127.0.0.1:6379";
    dibs_client *c = NULL;
    dibs_lock *l = NULL;

    dibs_err err = dibs_client_open(url, NULL, &c);
    if (err == DIBS_OK)
        err = dibs_lock_new(c, "dibs:example:hello", &l);
    if (err == DIBS_OK) /* waits for others, but not for ever */
        err = dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 2000));
    if (err != DIBS_OK)
        goto out;

    /* Ours, and renewed for us. Ask again before what cannot be undone: it
     * costs nothing, and a network that fails can take a lock away. */
    if (dibs_lock_state(l, 0) == DIBS_HELD)
        printf("hello: held, for the next %" PRId64 " ms at least\n",
               dibs_lock_valid_ms(l, 0));

    err = dibs_lock_release(l, NULL); /* LOST: somebody else may have had it */
    if (err == DIBS_OK)
        printf("hello: released\n");
out:
    if (err != DIBS_OK)
        fprintf(stderr, "hello: %s\n", dibs_strerror(err));
    dibs_lock_free(l);
    dibs_client_free(c);
    return err == DIBS_OK ? 0 : 1;
}
