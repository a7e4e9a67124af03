/* SPDX-License-Identifier: MIT
 *
 * leaderd.c - one of many daemons leads, the others follow its address.
 *
 *   leaderd [URL [ADDRESS [BEATS]]]    leads for so many beats; 0: until lost
 */
#include <dibs/dibs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEAT_MS 200

static void lead(dibs_lock *l, const char *address, int beats)
{
    if (dibs_lock_publish(l, 0, address) != DIBS_OK)
        fprintf(stderr, "leaderd: nobody finds me: %s\n", dibs_error_text());
    printf("leading at %s\n", address);
    for (int i = 0; dibs_lock_state(l, 0) == DIBS_HELD; i++) {
        if (beats > 0 && i == beats)
            return;
        poll(NULL, 0, BEAT_MS); /* the work of a leader */
    }
    printf("lost, stepping down\n"); /* in time: nobody else has it yet */
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "redis://127.0.0.1:6379";
    const char *address = argc > 2 ? argv[2] : "127.0.0.1:8080";
    int beats = argc > 3 ? atoi(argv[3]) : 3;
    char now[DIBS_VALUE_MAX + 1], before[DIBS_VALUE_MAX + 1] = "";
    dibs_client *c = NULL;
    dibs_lock *l = NULL;

    setvbuf(stdout, NULL, _IOLBF, 0); /* a log */
    dibs_err err = dibs_client_open(url, NULL, &c);
    if (err == DIBS_OK)
        err = dibs_lock_new(c, "leaders", &l);
    for (bool done = err != DIBS_OK; !done;) {
        err = dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = BEAT_MS));
        if (err == DIBS_OK) {
            lead(l, address, beats);
            done = dibs_lock_release(l, NULL) == DIBS_OK;
        } else if (err != DIBS_ERR_TIMEOUT) {
            done = true;
        } else if (!dibs_lock_published(l, now, sizeof now) && *now &&
                   strcmp(now, before) != 0) {
            printf("following %s\n", strcpy(before, now));
        }
    }
    if (err != DIBS_OK)
        fprintf(stderr, "leaderd: %s\n", dibs_error_text());
    dibs_client_free(c); /* and what it holds */
    dibs_lock_free(l);
    return err != DIBS_OK;
}
