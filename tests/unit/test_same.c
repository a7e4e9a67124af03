/* SPDX-License-Identifier: MIT
 *
 * test_same.c - what two URLs say about whether they mean one database: enough
 * to refuse one lock twice in a group before any server is asked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/client.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* A client that was never opened: only its URL is looked at. */
static dibs_client *client_at(const char *url)
{
    dibs_client *c = calloc(1, sizeof *c);

    assert_non_null(c);
    assert_int_equal(dibs__url_parse(url, &c->to.url, NULL), DIBS_OK);
    return c;
}

static void client_gone(dibs_client *c)
{
    dibs__url_clear(&c->to.url);
    free(c);
}

static void test_same_place(void **state)
{
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"redis://a", "redis://a:6379/0", true},
        {"redis://a", "redis://b", false},
        {"redis://a:1", "redis://a:2", false},
        {"redis://a/1", "redis://a/2", false},
        {"redis://a", "unix:///a", false},
        {"redis://a", "redis-cluster://a", false},
        {"unix:///s", "unix:///s", true},
        {"unix:///s", "unix:///t", false},
        {"unix:///s?db=1", "unix:///s?db=2", false},
        {"redis-sentinel://a,b/m", "redis-sentinel://c,b/m", true},
        {"redis-sentinel://a,b/m", "redis-sentinel://c,d/m", false},
        {"redis-sentinel://a/m", "redis-sentinel://a/n", false},
        {"redis-sentinel://a/m?db=1", "redis-sentinel://a/m?db=2", false},
        {"redis-cluster://a,b", "redis-cluster://b,c", true},
        {"redis-cluster://a:1", "redis-cluster://a:2", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs_client *a = client_at(rows[i].a), *b = client_at(rows[i].b);
        if (dibs__client_same_server(a, b) != rows[i].same ||
            dibs__client_same_server(b, a) != rows[i].same)
            fail_msg("%s and %s", rows[i].a, rows[i].b);
        assert_true(dibs__client_same_server(a, a));
        client_gone(a);
        client_gone(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_place),
    };

    return cmocka_run_group_tests_name("unit.same", tests, NULL, NULL);
}
