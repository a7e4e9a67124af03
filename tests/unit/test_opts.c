/* SPDX-License-Identifier: MIT
 *
 * test_opts.c - option structs of other sizes than ours.
 *
 * A program may be older or newer than the library. An older one's struct has
 * the size of an older version, of 0.1 at least; a newer one's is longer, and
 * is fine while the part we do not know is zero. What is longer than any struct
 * will be is a size that was never set.
 *
 * Nobody listens at the address used here. So options that are good end with
 * CONN or NOT_OWNER, and options that are not with INVALID.
 */
#include <dibs/dibs.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a)            (sizeof(a) / sizeof((a)[0]))
#define NOWHERE             "unix:///nonexistent/dibs"
#define MORE                64 /* bytes that a newer struct has */
#define END_OF(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

/* The sizes of 0.1, by the last field that each struct had. A program that was
 * built then must go on working, so these never change. */
#define CLIENT_OPTS_0_1 END_OF(dibs_client_opts, pubsub)
#define LOCK_OPTS_0_1   END_OF(dibs_lock_opts, replicas_timeout_ms)
#define INFO_0_1        END_OF(dibs_lock_info, owner)
#define MEMBER_0_1      END_OF(dibs_member, valid_ms)

/* How long the caller's struct says it is, and which byte of it is not zero
 * (0 = none). */
struct row {
    size_t size, set;
    dibs_err want;
};

/* first: the size of the first version. */
#define ROWS(type, first, good)                                                \
    {                                                                          \
        {0, 0, DIBS_ERR_INVALID}, {1, 0, DIBS_ERR_INVALID},                    \
            {sizeof(size_t), 0, DIBS_ERR_INVALID},                             \
            {first - 1, 0, DIBS_ERR_INVALID}, {first, 0, good},                \
            {first, first, good}, {sizeof(type), 0, good},                     \
            {sizeof(type) + 1, 0, good}, {sizeof(type) + MORE, 0, good},       \
            {sizeof(type) + 1, sizeof(type), DIBS_ERR_INVALID},                \
            {sizeof(type) + MORE, sizeof(type), DIBS_ERR_INVALID},             \
            {sizeof(type) + MORE, sizeof(type) + MORE - 1, DIBS_ERR_INVALID},  \
            {sizeof(type), sizeof(type), good},                                \
            {sizeof(type) + 8, sizeof(type) + 8, good}, {65536, 0, good},      \
            {65537, 0, DIBS_ERR_INVALID},                                      \
    }

/* A struct as the row has it, in memory that ends where it says (so that a
 * sanitizer sees a read beyond), or at the byte that is set. */
static void *make(const struct row *row, size_t ours)
{
    size_t bytes = row->size > row->set + 1 ? row->size : row->set + 1;
    unsigned char *p = calloc(1, bytes < ours ? ours : bytes);

    assert_non_null(p);
    memcpy(p, &row->size, sizeof row->size);
    if (row->set)
        p[row->set] = 1;
    return p;
}

static void test_opts_client(void **state)
{
    static const struct row rows[] =
        ROWS(dibs_client_opts, CLIENT_OPTS_0_1, DIBS_ERR_CONN);

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs_client_opts *opts = make(&rows[i], sizeof *opts);
        dibs_client *c = NULL;
        dibs_err err = dibs_client_open(NOWHERE, opts, &c);
        if (err != rows[i].want)
            fail_msg("row %zu: %s", i, dibs_strerror(err));
        assert_null(c);
        free(opts);
    }
}

struct heard {
    int times;
    dibs_err err;
};

static void hear(dibs_err err, void *arg)
{
    struct heard *h = arg;

    h->times++;
    h->err = err;
}

static void test_opts_lock(void **state)
{
    static const struct row rows[] =
        ROWS(dibs_lock_opts, LOCK_OPTS_0_1, DIBS_ERR_NOT_OWNER);
    struct heard heard = {0, DIBS_OK};
    dibs_client *c;
    dibs_lock *l;
    int started = 0;

    (void)state;
    assert_int_equal(
        dibs_client_open(NOWHERE, DIBS_CLIENT_OPTS(.lazy = true), &c), DIBS_OK);
    assert_int_equal(dibs_lock_new(c, "l", &l), DIBS_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs_lock_opts *opts = make(&rows[i], sizeof *opts);
        bool good = rows[i].want != DIBS_ERR_INVALID;

        /* What is not held cannot be released; nobody needs to be asked. */
        dibs_err err = dibs_lock_release(l, opts);
        if (err != rows[i].want)
            fail_msg("row %zu: release: %s", i, dibs_strerror(err));
        err = dibs_lock_release_async(l, opts, hear, &heard);
        if (err != (good ? DIBS_OK : DIBS_ERR_INVALID))
            fail_msg("row %zu: release_async: %s", i, dibs_strerror(err));
        started += good;
        if (!good && (dibs_lock_try(l, opts) != DIBS_ERR_INVALID ||
                      dibs_lock_acquire(l, opts) != DIBS_ERR_INVALID))
            fail_msg("row %zu: taken", i);
        free(opts);
    }
    assert_int_equal(dibs_client_close(c, 0), DIBS_OK);
    assert_int_equal(heard.times, started); /* once for each that began */
    dibs_lock_free(l);
    dibs_client_free(c);
}

static void test_opts_info(void **state)
{
    static const struct {
        size_t size;
        dibs_err want;
    } rows[] = {
        {0, DIBS_ERR_INVALID},
        {INFO_0_1 - 1, DIBS_ERR_INVALID},
        {INFO_0_1, DIBS_ERR_CONN},
        {sizeof(dibs_lock_info), DIBS_ERR_CONN},
        {sizeof(dibs_lock_info) + MORE, DIBS_ERR_CONN},
        {65537, DIBS_ERR_INVALID},
        {SIZE_MAX, DIBS_ERR_INVALID},
    };
    dibs_client *c;
    dibs_lock *l;

    (void)state;
    assert_int_equal(
        dibs_client_open(NOWHERE, DIBS_CLIENT_OPTS(.lazy = true), &c), DIBS_OK);
    assert_int_equal(dibs_lock_new(c, "l", &l), DIBS_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct {
            dibs_lock_info info;
            char more[MORE];
        } out, before;

        memset(&out, 0x5a, sizeof out);
        out.info.size = rows[i].size;
        before = out;
        dibs_err err = dibs_lock_info_get(l, &out.info);
        if (err != rows[i].want)
            fail_msg("row %zu: %s", i, dibs_strerror(err));
        /* A failure leaves it as it was. */
        assert_memory_equal(&out, &before, sizeof out);
    }
    dibs_lock_free(l);
    dibs_client_free(c);
}

/* ---- structs that end where memory ends -------------------------------- */

/* Memory of that many bytes, behind which there is nothing; all of it set. */
static void *at_the_edge(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED && bytes <= page);
    assert_int_equal(mprotect(p + page, page, PROT_NONE), 0);
    return p + page - bytes;
}

static void off_the_edge(void *p)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    munmap((void *)((uintptr_t)p & ~(page - 1)), 2 * page);
}

/* A size that was never set is not believed: nothing is read behind it. */
static void test_opts_size_of_rubbish(void **state)
{
    static const size_t sizes[] = {
        SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 32, (size_t)1 << 20, 65537,
    };
    dibs_client_opts *co = at_the_edge(sizeof *co);
    dibs_lock_opts *lo = at_the_edge(sizeof *lo);
    dibs_lock_info *info = at_the_edge(sizeof *info);
    dibs_member *member = at_the_edge(sizeof *member);
    dibs_client *c = NULL, *none = NULL;
    dibs_lock *l, *group;

    (void)state;
    assert_int_equal(
        dibs_client_open(NOWHERE, DIBS_CLIENT_OPTS(.lazy = true), &c), DIBS_OK);
    assert_int_equal(dibs_lock_new(c, "l", &l), DIBS_OK);
    assert_int_equal(dibs_multi_lock_new(&l, 1, &group), DIBS_OK);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        co->size = lo->size = info->size = member->size = sizes[i];
        const dibs_err errs[] = {
            dibs_client_open(NOWHERE, co, &none),
            dibs_lock_acquire(l, lo),
            dibs_lock_try(l, lo),
            dibs_lock_release(l, lo),
            dibs_lock_acquire_async(l, lo, hear, NULL),
            dibs_lock_try_async(l, lo, hear, NULL),
            dibs_lock_release_async(l, lo, hear, NULL),
            dibs_lock_acquire(group, lo),
            dibs_lock_release(group, lo),
            dibs_lock_info_get(l, info),
            dibs_lock_members(group, 0, 0, member),
        };
        for (size_t k = 0; k < COUNT(errs); k++)
            if (errs[k] != DIBS_ERR_INVALID)
                fail_msg("size %zu, call %zu: %s", sizes[i], k,
                         dibs_strerror(errs[k]));
    }
    dibs_lock_free(group);
    dibs_lock_free(l);
    dibs_client_free(c);
    off_the_edge(co);
    off_the_edge(lo);
    off_the_edge(info);
    off_the_edge(member);
}

/* A program of 0.1 has structs of that size, and nothing behind them. */
static void test_opts_program_of_0_1(void **state)
{
    dibs_client_opts *co = at_the_edge(CLIENT_OPTS_0_1 + 4); /* and padding */
    dibs_lock_opts *lo = at_the_edge(LOCK_OPTS_0_1);
    dibs_lock_info *info = at_the_edge(INFO_0_1);
    dibs_member *member = at_the_edge(MEMBER_0_1);
    dibs_client *c = NULL;
    dibs_lock *l, *group;

    (void)state;
    co->size = CLIENT_OPTS_0_1 + 4;
    co->lazy = true;
    lo->size = LOCK_OPTS_0_1;
    lo->owner = 5;
    info->size = INFO_0_1;
    member->size = MEMBER_0_1;
    assert_int_equal(dibs_client_open(NOWHERE, co, &c), DIBS_OK);
    assert_int_equal(dibs_lock_new(c, "l", &l), DIBS_OK);
    assert_int_equal(dibs_multi_lock_new(&l, 1, &group), DIBS_OK);
    assert_int_equal(dibs_lock_try(l, lo), DIBS_ERR_CONN);
    assert_int_equal(dibs_lock_release(l, lo), DIBS_ERR_NOT_OWNER);
    assert_int_equal(dibs_lock_info_get(l, info), DIBS_ERR_CONN);
    assert_int_equal(dibs_lock_members(group, 0, 0, member), DIBS_OK);
    assert_int_equal(member->size, MEMBER_0_1);
    assert_string_equal(member->name, "l");
    dibs_lock_free(group);
    dibs_lock_free(l);
    dibs_client_free(c);
    off_the_edge(co);
    off_the_edge(lo);
    off_the_edge(info);
    off_the_edge(member);
}

/* On the machines there are programs for, in numbers. */
static void test_opts_sizes_of_0_1(void **state)
{
    (void)state;
    if (sizeof(void *) != 8)
        skip();
    assert_int_equal(CLIENT_OPTS_0_1, 164);
    assert_int_equal(LOCK_OPTS_0_1, 88);
    assert_int_equal(INFO_0_1, 208);
    assert_int_equal(MEMBER_0_1, 48);
}

/* What the macros make is what a struct filled by hand is. */
static void test_opts_macros(void **state)
{
    const dibs_lock_opts *l = DIBS_LOCK_OPTS(.wait_ms = 5, .owner = 7);
    const dibs_client_opts *c = DIBS_CLIENT_OPTS(.lease_ms = 500);
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    (void)state;
    assert_int_equal(l->size, sizeof *l);
    assert_int_equal(l->wait_ms, 5);
    assert_int_equal(l->owner, 7);
    assert_int_equal(l->lease_ms, 0);
    assert_null(l->on_lost);
    assert_int_equal(c->size, sizeof *c);
    assert_int_equal(c->lease_ms, 500);
    assert_null(c->user);
    assert_int_equal(info.size, sizeof info);
    assert_false(info.locked);
}

static void test_opts_errors_have_texts(void **state)
{
    static const struct {
        dibs_err err;
        const char *text;
    } rows[] = {
#define DIBS_X(name, value, words) {name, words},
        DIBS_ERR_MAP(DIBS_X)
#undef DIBS_X
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_true(i == 0 || rows[i].err < rows[i - 1].err);
        assert_string_equal(dibs_strerror(rows[i].err), rows[i].text);
    }
    assert_int_equal(DIBS_ERR_PROTOCOL, -17); /* numbers stay as they are */
    assert_int_equal(DIBS_ERR_TLS, -19);
    assert_non_null(dibs_strerror((dibs_err)1));
    assert_non_null(dibs_strerror((dibs_err)-999));
    assert_string_equal(dibs_version(), "0.2.0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opts_client),
        cmocka_unit_test(test_opts_lock),
        cmocka_unit_test(test_opts_info),
        cmocka_unit_test(test_opts_size_of_rubbish),
        cmocka_unit_test(test_opts_program_of_0_1),
        cmocka_unit_test(test_opts_sizes_of_0_1),
        cmocka_unit_test(test_opts_macros),
        cmocka_unit_test(test_opts_errors_have_texts),
    };
    return cmocka_run_group_tests_name("unit.opts", tests, NULL, NULL);
}
