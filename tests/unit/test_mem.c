/* SPDX-License-Identifier: MIT
 *
 * test_mem.c - allocation: copies, arrays that grow, and the tap that tests
 * close.
 */
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void test_mem_copies(void **state)
{
    char *p;

    (void)state;
    p = dibs__strdup("");
    assert_string_equal(p, "");
    dibs__free(p);
    p = dibs__strdup("name");
    assert_string_equal(p, "name");
    dibs__free(p);
    p = dibs__memdup("a\0b", 3);
    assert_memory_equal(p, "a\0b\0", 4); /* a NUL behind it */
    dibs__free(p);
    p = dibs__memdup("x", 0);
    assert_string_equal(p, "");
    dibs__free(p);
    p = dibs__strndup("host:port", 4);
    assert_string_equal(p, "host");
    dibs__free(p);
    p = dibs__strndup("host", 100);
    assert_string_equal(p, "host");
    dibs__free(p);
    dibs__free(NULL);
}

static void test_mem_calloc(void **state)
{
    unsigned char *p = dibs__calloc(3, 5);

    (void)state;
    for (int i = 0; i < 15; i++)
        assert_int_equal(p[i], 0);
    dibs__free(p);
    /* The product does not fit: no memory, and no little memory either. The
     * compiler must not see the numbers, it would warn. */
    volatile size_t half = SIZE_MAX / 2 + 1;
    assert_null(dibs__calloc(half, 2));
}

static void test_mem_grow(void **state)
{
    static const struct {
        size_t cap, want, at_least;
    } rows[] = {
        {0, 0, 0},  {0, 1, 8},       {0, 9, 9},         {8, 8, 8},
        {8, 9, 12}, {100, 101, 150}, {100, 1000, 1000},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint32_t *array = NULL;
        size_t cap = 0;

        if (rows[i].cap) {
            assert_true(
                dibs__grow((void **)&array, &cap, rows[i].cap, sizeof *array));
            cap = rows[i].cap;
        }
        for (size_t k = 0; k < cap; k++)
            array[k] = (uint32_t)k;
        assert_true(
            dibs__grow((void **)&array, &cap, rows[i].want, sizeof *array));
        if (cap < rows[i].at_least)
            fail_msg("row %zu: room for %zu", i, cap);
        for (size_t k = 0; k < rows[i].cap; k++)
            assert_int_equal(array[k], k);
        for (size_t k = 0; k < cap; k++)
            array[k] = 1; /* all of it is there */
        dibs__free(array);
    }
}

/* More bytes than a size can say: refused, nothing changed. */
static void test_mem_grow_overflow(void **state)
{
    static const struct {
        size_t want, size;
    } rows[] = {
        {SIZE_MAX, 1},     {SIZE_MAX, 8},     {SIZE_MAX / 8, 16},
        {SIZE_MAX / 2, 3}, {SIZE_MAX / 2, 2}, {SIZE_MAX / 16 + 1, 16},
    };
    void *array = dibs__malloc(80);
    void *before = array;
    size_t cap = 10;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (dibs__grow(&array, &cap, rows[i].want, rows[i].size))
            fail_msg("row %zu: %zu times %zu bytes", i, rows[i].want,
                     rows[i].size);
        assert_ptr_equal(array, before);
        assert_int_equal(cap, 10);
    }
    dibs__free(array);
}

#ifdef DIBS_FAULTS
/* Five allocations, one of each kind; which of them failed, a bit each. */
static unsigned failures(void)
{
    void *p[5];
    unsigned failed = 0;

    p[0] = dibs__malloc(1);
    p[1] = dibs__calloc(1, 1);
    p[2] = dibs__realloc(NULL, 1);
    p[3] = dibs__strdup("x");
    p[4] = dibs__memdup("x", 1);
    for (unsigned i = 0; i < 5; i++) {
        failed |= p[i] ? 0 : 1u << i;
        dibs__free(p[i]);
    }
    return failed;
}

static void test_mem_tap(void **state)
{
    static const struct {
        long at;
        bool all;
        unsigned want;
    } rows[] = {
        {0, false, 0x00}, {1, false, 0x01}, {2, false, 0x02}, {3, false, 0x04},
        {4, false, 0x08}, {5, false, 0x10}, {6, false, 0x00}, {1, true, 0x1f},
        {3, true, 0x1c},  {6, true, 0x00},  {0, true, 0x00},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs__mem_fail_at(rows[i].at, rows[i].all);
        unsigned failed = failures();
        if (failed != rows[i].want)
            fail_msg("row %zu: 0x%x failed", i, failed);
        if (dibs__mem_fail_at(0, false) != 5)
            fail_msg("row %zu: wrong count", i);
    }
}

static void test_mem_grow_fails(void **state)
{
    void *array = dibs__malloc(8);
    void *before = array;
    size_t cap = 8;

    (void)state;
    dibs__mem_fail_at(1, false);
    assert_false(dibs__grow(&array, &cap, 9, 1));
    dibs__mem_fail_at(0, false);
    assert_ptr_equal(array, before);
    assert_int_equal(cap, 8);
    dibs__free(array);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mem_copies),
        cmocka_unit_test(test_mem_calloc),
        cmocka_unit_test(test_mem_grow),
        cmocka_unit_test(test_mem_grow_overflow),
#ifdef DIBS_FAULTS
        cmocka_unit_test(test_mem_tap),
        cmocka_unit_test(test_mem_grow_fails),
#endif
    };
    return cmocka_run_group_tests_name("unit.mem", tests, NULL, NULL);
}
