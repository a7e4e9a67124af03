/* SPDX-License-Identifier: MIT
 *
 * fault_told.c - what a client tells, in which order: nothing more of a hold
 * that is over.
 */
#include "fault/kit.h"

#include <pthread.h>
#include <string.h>

#define EVENTS_MAX 256

struct log {
    pthread_mutex_t mu;
    dibs_event_kind kinds[EVENTS_MAX];
    size_t n;
};

static void write_down(const dibs_event *ev, void *arg)
{
    struct log *log = arg;

    pthread_mutex_lock(&log->mu);
    if (log->n < EVENTS_MAX)
        log->kinds[log->n++] = ev->kind;
    pthread_mutex_unlock(&log->mu);
}

static size_t count(struct log *log, dibs_event_kind kind, size_t from)
{
    size_t n = 0;

    pthread_mutex_lock(&log->mu);
    for (size_t i = from; i < log->n; i++)
        n += log->kinds[i] == kind;
    pthread_mutex_unlock(&log->mu);
    return n;
}

/* Of the first of its kind; the end if there is none. */
static size_t place_of(struct log *log, dibs_event_kind kind)
{
    size_t i = 0;

    pthread_mutex_lock(&log->mu);
    while (i < log->n && log->kinds[i] != kind)
        i++;
    pthread_mutex_unlock(&log->mu);
    return i;
}

/* Renewals are not answered any more. They fail, and are tried again, until the
 * lease is over; the last of them ends after that, and there is nothing to say
 * about it. */
static void test_told_after_loss(void **state)
{
    static struct log log;
    char *name = kit_name("told");
    dibs_client *c = NULL;
    dibs_lock *l = NULL;

    (void)state;
    memset(&log, 0, sizeof log);
    pthread_mutex_init(&log.mu, NULL);
    kit_want("open",
             dibs_client_open(ts_proxy_url(kit_px),
                              DIBS_CLIENT_OPTS(.lease_ms = kit_ms(6000),
                                               .on_event = write_down,
                                               .event_arg = &log),
                              &c),
             DIBS_OK);
    kit_want("a lock", dibs_lock_new(c, name, &l), DIBS_OK);
    kit_want("taking it", dibs_lock_acquire(l, NULL), DIBS_OK);
    ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST, .match = "EVAL*"});
    TS_WAIT(count(&log, DIBS_EVENT_LOST, 0) == 1);
    kit_want("giving it back", dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
    (void)dibs_client_close(c, 100); /* ends what is under way */
    dibs_client_free(c);
    assert_true(count(&log, DIBS_EVENT_SUSPECT, 0) > 0);
    assert_int_equal(
        count(&log, DIBS_EVENT_SUSPECT, place_of(&log, DIBS_EVENT_LOST)), 0);
    kit_relent();
    free(name);
    pthread_mutex_destroy(&log.mu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_told_after_loss, kit_fresh),
    };

    return cmocka_run_group_tests_name("fault.told", tests, kit_up, kit_down);
}
