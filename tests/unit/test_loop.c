/* SPDX-License-Identifier: MIT
 *
 * test_loop.c - a timer that is always late leaves other work its turn.
 */
#include "net/event_loop.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct dibs__loop loop;
static struct dibs__timer late;
static struct dibs__task start, work;
static sem_t worked;
static unsigned fired;

static void late_fired(struct dibs__timer *t)
{
    fired++;
    dibs__timer_set(&loop, t, dibs__now_ms() - 1000);
}

static void start_late(struct dibs__task *t)
{
    (void)t;
    dibs__timer_set(&loop, &late, dibs__now_ms() - 1000);
}

/* Posted again until the timer has fired some times: both have their turn. */
static void work_off(struct dibs__task *t)
{
    if (fired < 3) {
        dibs__loop_post(&loop, t);
        return;
    }
    dibs__timer_stop(&loop, &late);
    sem_post(&worked);
}

static void test_loop_late_timer(void **state)
{
    (void)state;
    late.fire = late_fired;
    start.run = start_late;
    work.run = work_off;
    sem_init(&worked, 0, 0);
    assert_int_equal(dibs__loop_start(&loop), DIBS_OK);
    dibs__loop_post(&loop, &start);
    dibs__loop_post(&loop, &work);
    while (sem_wait(&worked) != 0)
        ;
    dibs__loop_stop(&loop);
    assert_true(fired >= 3);
    sem_destroy(&worked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loop_late_timer),
    };

    return cmocka_run_group_tests_name("unit.loop", tests, NULL, NULL);
}
