/* SPDX-License-Identifier: MIT
 *
 * test_url.c - the table of addresses: what is read from the good ones, and
 * that the bad ones are refused and leave nothing behind.
 *
 * A failure names its row by the text that was read. That a refusal frees what
 * was half built is for the address sanitizer to say.
 */
#include "base/mem.h"
#include "net/url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- good ones --------------------------------------------------------- */

struct good {
    const char *in;
    const char *host; /* NULL: a socket */
    int port;
    const char *path; /* NULL: a host */
    int db;
    const char *user;
    const char *password;
};

/* Checks one string of a row; both may be NULL. */
static void same(const char *row, const char *what, const char *got,
                 const char *want)
{
    if (!got != !want || (got && strcmp(got, want) != 0))
        fail_msg("%s: %s is %s, not %s", row, what, got ? got : "NULL",
                 want ? want : "NULL");
}

static void same_number(const char *row, const char *what, int got, int want)
{
    if (got != want)
        fail_msg("%s: %s is %d, not %d", row, what, got, want);
}

static void check_good(const struct good *row)
{
    struct dibs__url u;
    dibs_err err = dibs__url_parse(row->in, &u, NULL);

    if (err != DIBS_OK)
        fail_msg("%s: refused: %s", row->in, dibs_strerror(err));
    same_number(row->in, "unix_socket", u.unix_socket, row->path != NULL);
    same(row->in, "host", u.host, row->host);
    same_number(row->in, "port", u.port, row->port);
    same(row->in, "path", u.path, row->path);
    same_number(row->in, "db", u.db, row->db);
    same(row->in, "user", u.user, row->user);
    same(row->in, "password", u.password, row->password);
    same_number(row->in, "mode", (int)u.mode, URL_SINGLE);
    same_number(row->in, "list", (int)u.host_count, 0);
    same_number(row->in, "tls", u.tls.on, 0);
    dibs__url_clear(&u);
    if (u.host || u.path || u.user || u.password || u.port || u.db)
        fail_msg("%s: not empty after clear", row->in);
}

static void test_url_hosts(void **state)
{
    static const struct good rows[] = {
        {"redis://h", "h", 6379, NULL, 0, NULL, NULL},
        {"redis://localhost", "localhost", 6379, NULL, 0, NULL, NULL},
        {"redis://127.0.0.1", "127.0.0.1", 6379, NULL, 0, NULL, NULL},
        {"redis://A-b_c.example", "A-b_c.example", 6379, NULL, 0, NULL, NULL},
        {"redis://h.example.", "h.example.", 6379, NULL, 0, NULL, NULL},
        {"redis://h:1", "h", 1, NULL, 0, NULL, NULL},
        {"redis://h:65535", "h", 65535, NULL, 0, NULL, NULL},
        {"redis://h:007000", "h", 7000, NULL, 0, NULL, NULL},
        {"redis://h/", "h", 6379, NULL, 0, NULL, NULL},
        {"redis://h/0", "h", 6379, NULL, 0, NULL, NULL},
        {"redis://h/15", "h", 6379, NULL, 15, NULL, NULL},
        {"redis://h:7000/2", "h", 7000, NULL, 2, NULL, NULL},
        {"redis://h/2147483647", "h", 6379, NULL, INT32_MAX, NULL, NULL},
        {"redis://[::1]", "::1", 6379, NULL, 0, NULL, NULL},
        {"redis://[::1]/3", "::1", 6379, NULL, 3, NULL, NULL},
        {"redis://[2001:db8::7]:7000/3", "2001:db8::7", 7000, NULL, 3, NULL,
         NULL},
        {"redis://[::ffff:192.0.2.1]:1", "::ffff:192.0.2.1", 1, NULL, 0, NULL,
         NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        check_good(&rows[i]);
}

/* valkey for redis, in every form; all else is the same. */
static void test_url_valkey(void **state)
{
    static const struct {
        const char *in;
        enum dibs__url_mode mode;
        bool tls;
    } rows[] = {
        {"valkey://ann:pw@h:7000/2", URL_SINGLE, false},
        {"valkeys://ann:pw@h:7000/2?insecure=1", URL_SINGLE, true},
        {"valkey-sentinel://ann:pw@h:7000/svc?db=2", URL_SENTINEL, false},
        {"valkeys-sentinel://ann:pw@h:7000/svc?db=2", URL_SENTINEL, true},
        {"valkey-cluster://ann:pw@h:7000", URL_CLUSTER, false},
        {"valkeys-cluster://ann:pw@h:7000", URL_CLUSTER, true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct dibs__url u;
        const char *row = rows[i].in, *why = "";
        if (dibs__url_parse(row, &u, &why) != DIBS_OK)
            fail_msg("%s: %s", row, why);
        same_number(row, "mode", (int)u.mode, (int)rows[i].mode);
        same_number(row, "tls", u.tls.on, rows[i].tls);
        same(row, "user", u.user, "ann");
        same(row, "password", u.password, "pw");
        same_number(row, "db", u.db, u.mode == URL_CLUSTER ? 0 : 2);
        same(row, "host", u.host_count ? u.hosts[0].name : u.host, "h");
        same_number(row, "port", u.host_count ? u.hosts[0].port : u.port, 7000);
        dibs__url_clear(&u);
    }
}

static void test_url_logins(void **state)
{
    static const struct good rows[] = {
        {"redis://ann@h", "h", 6379, NULL, 0, "ann", NULL},
        {"redis://ann:@h", "h", 6379, NULL, 0, "ann", ""},
        {"redis://ann:pw@h", "h", 6379, NULL, 0, "ann", "pw"},
        {"redis://:pw@h", "h", 6379, NULL, 0, NULL, "pw"},
        {"redis://:pw@h:7000/4", "h", 7000, NULL, 4, NULL, "pw"},
        {"redis://ann:pw@[::1]:7000/4", "::1", 7000, NULL, 4, "ann", "pw"},
        {"redis://:a:b:c@h", "h", 6379, NULL, 0, NULL, "a:b:c"},
        {"redis://::@h", "h", 6379, NULL, 0, NULL, ":"},
        {"redis://a%3ab:p%40s%2Fs%3F%23%25@h", "h", 6379, NULL, 0, "a:b",
         "p@s/s?#%"},
        {"redis://:%20%0a%7f%ff@h", "h", 6379, NULL, 0, NULL, " \n\x7f\xff"},
        {"redis://:%41%4a%4A@h", "h", 6379, NULL, 0, NULL, "AJJ"},
        {"redis://:a+b&c=d;e!$'()*,~@h", "h", 6379, NULL, 0, NULL,
         "a+b&c=d;e!$'()*,~"},
        {"redis://:gr\xc3\xbc\xc3\x9f@h", "h", 6379, NULL, 0, NULL,
         "gr\xc3\xbc\xc3\x9f"},
        {"redis://:[x]@h", "h", 6379, NULL, 0, NULL, "[x]"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        check_good(&rows[i]);
}

static void test_url_sockets(void **state)
{
    static const struct good rows[] = {
        {"unix:///s", NULL, 0, "/s", 0, NULL, NULL},
        {"unix:///run/redis/redis.sock", NULL, 0, "/run/redis/redis.sock", 0,
         NULL, NULL},
        {"unix:///s?db=0", NULL, 0, "/s", 0, NULL, NULL},
        {"unix:///s?db=12", NULL, 0, "/s", 12, NULL, NULL},
        {"unix:///s?db=2147483647", NULL, 0, "/s", INT32_MAX, NULL, NULL},
        {"unix://:pw@/s", NULL, 0, "/s", 0, NULL, "pw"},
        {"unix://ann@/s", NULL, 0, "/s", 0, "ann", NULL},
        {"unix://ann:p%40w@/a/b?db=1", NULL, 0, "/a/b", 1, "ann", "p@w"},
        {"unix:///a%20b%3Fc%23d%25", NULL, 0, "/a b?c#d%", 0, NULL, NULL},
        {"unix:///a@b:c=d&e", NULL, 0, "/a@b:c=d&e", 0, NULL, NULL},
        {"unix:////s", NULL, 0, "//s", 0, NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        check_good(&rows[i]);
}

/* ---- bad ones ---------------------------------------------------------- */

/* Refused, and the place for the result is as it was. */
static void check_bad(const char *row, const char *in)
{
    struct dibs__url u;
    struct dibs__url before;
    const char *why = NULL;

    memset(&u, 0xa5, sizeof u);
    memcpy(&before, &u, sizeof u);
    dibs_err err = dibs__url_parse(in, &u, &why);
    if (err != DIBS_ERR_INVALID)
        fail_msg("%s: gave %s", row, dibs_strerror(err));
    if (!why || !*why)
        fail_msg("%s: refused without a word", row);
    if (memcmp(&u, &before, sizeof u) != 0)
        fail_msg("%s: refused, but the result was written", row);
}

static void check_all_bad(const char *const *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_bad(rows[i], rows[i]);
}

static void test_url_bad_schemes(void **state)
{
    static const char *const rows[] = {
        "",
        "r",
        "redis",
        "redis:",
        "redis:/",
        "redis:/h",
        "redis:h",
        "//h",
        "h",
        "h:6379",
        "127.0.0.1:6379",
        "/run/redis.sock",
        "://h",
        "REDIS://h",
        "REDISS://h",
        "redis-tls://h",
        "redis-sentinel:/h/s",
        "redis-Cluster://h",
        "sentinel://h/s",
        "unixs:///s",
        "redis+unix:///s",
        "valkey:/h",
        "Valkey://h",
        "valkeyss://h",
        "valkey-tls://h",
        "valkeyunix:///s",
        "valkey+unix:///s",
        "http://h",
        "tcp://h",
        "redis ://h",
        "xredis://h",
        "unix:",
        "unix:/s",
        "UNIX:///s",
    };
    (void)state;
    check_all_bad(rows, COUNT(rows));
}

static void test_url_bad_hosts(void **state)
{
    static const char *const rows[] = {
        "redis://",
        "redis:///",
        "redis:///0",
        "redis://:6379",
        "redis://:",
        "redis://h:",
        "redis://h:/1",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:99999999999999999999",
        "redis://h:-1",
        "redis://h:+1",
        "redis://h:0x1",
        "redis://h:6379x",
        "redis://h:1:2",
        "redis://h%41",
        "redis://h,h2",
        "redis://h\\",
        "redis://h\xc3\xbc",
        "redis://*",
        "redis://::1",
        "redis://[",
        "redis://[]",
        "redis://[::1",
        "redis://::1]",
        "redis://[::1]6379",
        "redis://[::1]:",
        "redis://[::1]:0",
        "redis://[::1]]",
        "redis://[::g]",
        "redis://[127.0.0.1]",
        "redis://[h]",
        "redis://[fe80::1%25eth0]",
        "redis://[1:2:3:4:5:6:7:8:9]",
        "redis://[0000000000000000000000000000000000000000000000::1]",
    };
    (void)state;
    check_all_bad(rows, COUNT(rows));
}

static void test_url_bad_logins(void **state)
{
    static const char *const rows[] = {
        "redis://@h",        "redis://:@h",      "redis://@",
        "redis://ann@",      "redis://ann:pw@",  "redis://ann:pw@:6379",
        "redis://ann:pw@/1", "redis://:p@ss@h",  "redis://:p/ss@h",
        "redis://:p?ss@h",   "redis://:p#ss@h",  "redis://:%@h",
        "redis://:%4@h",     "redis://:abc%4@h", "redis://:%4g@h",
        "redis://:%g4@h",    "redis://:% 4@h",   "redis://:%+4@h",
        "redis://:%00@h",    "redis://:pw%00@h", "redis://a%00b:pw@h",
        "redis://a%zz:pw@h", "unix://@/s",       "unix://:@/s",
        "unix://:%0@/s",     "unix://ann:pw/s",  "unix://ann:pw@h/s",
        "unix://ann:pw@",    "unix://:p@ss@/s",
    };
    (void)state;
    check_all_bad(rows, COUNT(rows));
}

static void test_url_bad_tails(void **state)
{
    static const char *const rows[] = {
        "redis://h/-1",         "redis://h/+1",
        "redis://h/x",          "redis://h/1x",
        "redis://h/0x1",        "redis://h/1/",
        "redis://h/1/2",        "redis://h//1",
        "redis://h/%31",        "redis://h/2147483648",
        "redis://h/4294967296", "redis://h/18446744073709551616",
        "redis://h?db=1",       "redis://h/?db=1",
        "redis://h/1?db=1",     "redis://h/1?",
        "redis://h?",           "redis://h#",
        "redis://h/1#x",        "redis://h\n",
        "redis://h/1\r\n",      "redis://h/1\t",
        " redis://h",           "redis://h ",
        "redis://h h",          "redis://:p w@h",
        "redis://:p\x01w@h",    "redis://h\x7f",
    };
    (void)state;
    check_all_bad(rows, COUNT(rows));
}

static void test_url_bad_sockets(void **state)
{
    static const char *const rows[] = {
        "unix://",
        "unix:///",
        "unix:///a/",
        "unix:///a/?db=1",
        "unix:///a%2f",
        "unix://?db=1",
        "unix://s",
        "unix://s/t",
        "unix://./s",
        "unix://%2fs",
        "unix:///s?",
        "unix:///s?db",
        "unix:///s?db=",
        "unix:///s?db=x",
        "unix:///s?db=-1",
        "unix:///s?db=1x",
        "unix:///s?db=2147483648",
        "unix:///s?db=1&db=1",
        "unix:///s?db=1&db=2",
        "unix:///s?db=1&",
        "unix:///s?&db=1",
        "unix:///s?db=1?db=1",
        "unix:///s?DB=1",
        "unix:///s?xdb=1",
        "unix:///s?timeout=1",
        "unix:///s?=1",
        "unix:///s#x",
        "unix:///s?db=1#x",
        "unix:///a b",
        "unix:///a%",
        "unix:///a%2",
        "unix:///a%zz",
        "unix:///a%00b",
        "unix:///s\n",
    };
    (void)state;
    check_all_bad(rows, COUNT(rows));
}

/* ---- lists, and TLS ---------------------------------------------------- */

/* A URL that was read, as one line. */
static void print(const struct dibs__url *u, char *to, size_t size)
{
    static const char *const modes[] = {"single", "sentinel", "cluster"};
    const struct {
        const char *name, *text;
    } strings[] = {
        {"host", u->host},
        {"service", u->service},
        {"user", u->user},
        {"password", u->password},
        {"sentinel_user", u->sentinel_user},
        {"sentinel_password", u->sentinel_password},
        {"ca", u->tls.ca},
        {"cert", u->tls.cert},
        {"key", u->tls.key},
        {"sni", u->tls.sni},
    };
    FILE *f = fmemopen(to, size, "w");

    assert_non_null(f);
    fprintf(f, "%s", modes[u->mode]);
    for (size_t i = 0; i < u->host_count; i++)
        fprintf(f, " <%s>%d", u->hosts[i].name, u->hosts[i].port);
    for (size_t i = 0; i < COUNT(strings); i++)
        if (strings[i].text)
            fprintf(f, " %s=%s", strings[i].name, strings[i].text);
    if (u->port)
        fprintf(f, " port=%d", u->port);
    if (u->db)
        fprintf(f, " db=%d", u->db);
    fprintf(f, "%s%s", u->tls.on ? " tls" : "",
            u->tls.insecure ? " insecure" : "");
    fclose(f);
}

static void test_url_lists(void **state)
{
    static const struct {
        const char *in, *want;
    } rows[] = {
        {"redis-sentinel://h/s", "sentinel <h>26379 service=s"},
        {"redis-sentinel://a:1,b,[::1]:3,[::2]/my%2fs",
         "sentinel <a>1 <b>26379 <::1>3 <::2>26379 service=my/s"},
        {"redis-sentinel://ann:p,w@a,b/s?db=7",
         "sentinel <a>26379 <b>26379 service=s user=ann password=p,w db=7"},
        {"redis-sentinel://a/s?sentinel_password=x%26y=z/?@",
         "sentinel <a>26379 service=s sentinel_password=x&y=z/?@"},
        {"redis-sentinel://:pw@a/s?sentinel_user=eve&db=0&sentinel_password=q",
         "sentinel <a>26379 service=s password=pw sentinel_user=eve "
         "sentinel_password=q"},
        {"redis-cluster://a", "cluster <a>6379"},
        {"redis-cluster://a/", "cluster <a>6379"},
        {"redis-cluster://a,b:7001/0", "cluster <a>6379 <b>7001"},
        {"redis-cluster://ann:pw@[::1]:7000,127.0.0.1:7001",
         "cluster <::1>7000 <127.0.0.1>7001 user=ann password=pw"},
        {"rediss://h", "single host=h port=6379 tls"},
        {"rediss://h/", "single host=h port=6379 tls"},
        {"rediss://ann:pw@[::1]:7000/3",
         "single host=::1 user=ann password=pw port=7000 db=3 tls"},
        {"rediss://h?ca=/etc/a.pem", "single host=h ca=/etc/a.pem port=6379 "
                                     "tls"},
        {"rediss://h/2?cert=c%20d.pem&key=./k&ca=a&sni=redis.example",
         "single host=h ca=a cert=c d.pem key=./k sni=redis.example port=6379 "
         "db=2 tls"},
        {"rediss://h?cert=both.pem", "single host=h cert=both.pem port=6379 "
                                     "tls"},
        {"rediss://h?insecure=1", "single host=h port=6379 tls insecure"},
        {"rediss-sentinel://a,b/s?db=1&ca=x&sentinel_password=y",
         "sentinel <a>26379 <b>26379 service=s sentinel_password=y ca=x db=1 "
         "tls"},
        {"rediss-cluster://a,b?sni=n", "cluster <a>6379 <b>6379 sni=n tls"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct dibs__url u;
        const char *why = "no memory";
        char got[512];
        if (dibs__url_parse(rows[i].in, &u, &why) != DIBS_OK)
            fail_msg("%s: refused: %s", rows[i].in, why);
        print(&u, got, sizeof got);
        same(rows[i].in, "it", got, rows[i].want);
        dibs__url_clear(&u);
    }
}

static void test_url_bad_lists(void **state)
{
    static const char *const rows[] = {
        "redis-sentinel://h",
        "redis-sentinel://h/",
        "redis-sentinel://h?db=1",
        "redis-sentinel://h/?db=1",
        "redis-sentinel:///s",
        "redis-sentinel://,/s",
        "redis-sentinel://a,/s",
        "redis-sentinel://,a/s",
        "redis-sentinel://a,,b/s",
        "redis-sentinel://a:0,b/s",
        "redis-sentinel://a,b:/s",
        "redis-sentinel://a;b/s",
        "redis-sentinel://[a],b/s",
        "redis-sentinel://[::1,::2]/s",
        "redis-sentinel://a/s/",
        "redis-sentinel://a/s/t",
        "redis-sentinel://a/s%00",
        "redis-sentinel://a/s%4",
        "redis-sentinel://a/s?",
        "redis-sentinel://a/s?db=",
        "redis-sentinel://a/s?db=x",
        "redis-sentinel://a/s?db=1&db=1",
        "redis-sentinel://a/s?db=1&",
        "redis-sentinel://a/s?ca=x",
        "redis-sentinel://a/s?insecure=1",
        "redis-sentinel://a/s?service=t",
        "redis-sentinel://a/s?sentinel_user=x",
        "redis-sentinel://a/s?sentinel_password=",
        "redis-sentinel://a/s?sentinel_password=%zz",
        "redis-sentinel://a/s?sentinel_password=x#y",
        "unix://#x",
        "unix://?db=1",
        "redis-cluster://",
        "redis-cluster:///0",
        "redis-cluster://a/1",
        "redis-cluster://a/x",
        "redis-cluster://a/0/",
        "redis-cluster://a,b,",
        "redis-cluster://a?db=0",
        "redis-cluster://a/0?",
        "rediss-cluster://a/1?ca=x",
        "rediss-cluster://a?db=0",
        "rediss-cluster://a?sentinel_password=x",
    };
    (void)state;
    check_all_bad(rows, COUNT(rows));
}

static void test_url_bad_tls(void **state)
{
    static const char *const rows[] = {
        "rediss://",
        "rediss://h,h2",
        "rediss://h?",
        "rediss://h?ca",
        "rediss://h?ca=",
        "rediss://h?=x",
        "rediss://h?ca=a&ca=a",
        "rediss://h?CA=a",
        "rediss://h?cas=a",
        "rediss://h?c=a",
        "rediss://h?ca=a%0",
        "rediss://h?ca=a%00",
        "rediss://h?ca=a&",
        "rediss://h?&ca=a",
        "rediss://h?ca=a&&sni=b",
        "rediss://h?key=k",
        "rediss://h?insecure",
        "rediss://h?insecure=",
        "rediss://h?insecure=0",
        "rediss://h?insecure=11",
        "rediss://h?insecure=true",
        "rediss://h?insecure=1&insecure=1",
        "rediss://h?verify=0",
        "rediss://h?db=1",
        "rediss://h/1x?ca=a",
        "redis://h?ca=a",
        "redis://h?insecure=1",
        "unix:///s?ca=a",
        "rediss+unix:///s",
    };
    (void)state;
    check_all_bad(rows, COUNT(rows));
}

static void test_url_says_why(void **state)
{
    static const struct {
        const char *in, *part;
    } rows[] = {
        {"http://h", "no scheme"},
        {"redis://h,h2", "list of hosts"},
        {"redis://h:0", "port"},
        {"redis://h?db=1", "no query"},
        {"redis-sentinel://a,b", "/service"},
        {"redis-cluster://a/1", "database 0 only"},
        {"rediss://h?key=k", "key needs a cert"},
        {"rediss://h?ca=a&ca=b", "twice"},
        {"rediss://h?verify=0", "does not know"},
        {"redis-sentinel://a/s?ca=a", "this scheme does not take"},
        {"redis-sentinel://a/s?sentinel_user=u", "sentinel_password"},
        {"redis://:%zz@h", "hex"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct dibs__url u;
        const char *why = "";
        assert_int_equal(dibs__url_parse(rows[i].in, &u, &why),
                         DIBS_ERR_INVALID);
        if (!strstr(why, rows[i].part))
            fail_msg("%s: refused with: %s", rows[i].in, why);
    }
}

/* 64 hosts are a list, 65 are a mistake. */
static void test_url_list_length(void **state)
{
    char text[256] = "redis-cluster://h";
    struct dibs__url u;

    (void)state;
    for (int i = 1; i < DIBS__URL_HOSTS_MAX; i++)
        strcat(text, ",h");
    assert_int_equal(dibs__url_parse(text, &u, NULL), DIBS_OK);
    assert_int_equal(u.host_count, DIBS__URL_HOSTS_MAX);
    dibs__url_clear(&u);
    strcat(text, ",h");
    check_bad(text, text);
}

static void test_url_one_of_many(void **state)
{
    static const char many[] = "rediss-sentinel://ann:pw@a,b/s?db=3&ca=x&sni=n&"
                               "sentinel_user=eve&sentinel_password=q";
    struct dibs__url all, one = {0};
    char got[512];

    (void)state;
    assert_int_equal(dibs__url_parse(many, &all, NULL), DIBS_OK);
    assert_int_equal(dibs__url_for_server(&all, "::1", 7, &one), DIBS_OK);
    print(&one, got, sizeof got);
    assert_string_equal(got, "single host=::1 user=ann password=pw ca=x sni=n "
                             "port=7 db=3 tls");
    dibs__url_clear(&one);
    assert_int_equal(dibs__url_for_sentinel(&all, "b", 26379, &one), DIBS_OK);
    print(&one, got, sizeof got);
    assert_string_equal(got, "single host=b user=eve password=q ca=x sni=n "
                             "port=26379 tls");
    dibs__url_clear(&one);
    assert_int_equal(dibs__url_for_server(&all, "", 7, &one), DIBS_ERR_INVALID);
    assert_int_equal(dibs__url_for_server(&all, "a b", 7, &one),
                     DIBS_ERR_INVALID);
    assert_int_equal(dibs__url_for_server(&all, "a", 0, &one),
                     DIBS_ERR_INVALID);
    assert_int_equal(dibs__url_for_sentinel(&all, "a", 65536, &one),
                     DIBS_ERR_INVALID);
    assert_null(one.host);
    dibs__url_clear(&all);
}

/* ---- the limits, from both sides --------------------------------------- */

/* Writes head, then c so often that the whole has len bytes, then tail. */
static char *fill(char *buf, const char *head, char c, size_t len,
                  const char *tail)
{
    size_t head_len = strlen(head);
    size_t tail_len = strlen(tail);

    assert_true(head_len + tail_len <= len);
    memcpy(buf, head, head_len);
    memset(buf + head_len, c, len - head_len - tail_len);
    memcpy(buf + len - tail_len, tail, tail_len + 1);
    return buf;
}

static void check_length(const char *row, const char *in, bool good)
{
    struct dibs__url u;

    if (!good) {
        check_bad(row, in);
        return;
    }
    if (dibs__url_parse(in, &u, NULL) != DIBS_OK)
        fail_msg("%s: refused", row);
    dibs__url_clear(&u);
}

static void test_url_lengths(void **state)
{
    static const struct {
        const char *row;
        const char *head;
        size_t len;
        const char *tail;
        bool good;
    } rows[] = {
        {"host of 253", "redis://", 8 + 253, "", true},
        {"host of 254", "redis://", 8 + 254, "", false},
        {"host of 253 and a port", "redis://", 8 + 253 + 5, ":7000", true},
        {"host of 254 and a port", "redis://", 8 + 254 + 5, ":7000", false},
        {"path of 107", "unix:///", 7 + 107, "", true},
        {"path of 108", "unix:///", 7 + 108, "", false},
        {"path of 107 and a db", "unix:///", 7 + 107 + 5, "?db=1", true},
        {"path of 108 and a db", "unix:///", 7 + 108 + 5, "?db=1", false},
        {"path of 107, one escaped", "unix:///", 7 + 107 + 2, "%41", true},
        {"text of 4096", "redis://:", 4096, "@h", true},
        {"text of 4097", "redis://:", 4097, "@h", false},
        {"text of 1 MiB", "redis://:", 1 << 20, "@h", false},
    };
    static char buf[(1 << 20) + 1];
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        check_length(rows[i].row,
                     fill(buf, rows[i].head, 'x', rows[i].len, rows[i].tail),
                     rows[i].good);
}

/* Every byte that no URL has, at every place of a good one. */
static void test_url_bad_bytes(void **state)
{
    static const char good[] = "redis://ann:pw@h:7000/1";
    char buf[sizeof good];

    (void)state;
    for (int c = 1; c < 256; c++) {
        if (c > ' ' && c != 0x7f)
            continue;
        for (size_t at = 0; at + 1 < sizeof good; at++) {
            memcpy(buf, good, sizeof good);
            buf[at] = (char)c;
            check_bad(buf, buf);
        }
    }
}

static void test_url_clear_empty(void **state)
{
    struct dibs__url u = {0};

    (void)state;
    dibs__url_clear(&u);
    dibs__url_clear(&u);
    assert_null(u.host);
}

#ifdef DIBS_FAULTS
/* Each allocation fails once: NOMEM, and the result is as it was. */
static void test_url_out_of_memory(void **state)
{
    static const char *const rows[] = {"redis://ann:pw@h:7000/1",
                                       "unix://ann:pw@/s?db=1"};
    struct dibs__url u;
    struct dibs__url before;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (long n = 1; n <= 3; n++) { /* user, password, host or path */
            memset(&u, 0xa5, sizeof u);
            memcpy(&before, &u, sizeof u);
            dibs__mem_fail_at(n, false);
            dibs_err err = dibs__url_parse(rows[i], &u, NULL);
            if (err != DIBS_ERR_NOMEM || memcmp(&u, &before, sizeof u) != 0)
                fail_msg("%s: allocation %ld failed, %s", rows[i], n,
                         dibs_strerror(err));
        }
        dibs__mem_fail_at(4, false);
        if (dibs__url_parse(rows[i], &u, NULL) != DIBS_OK)
            fail_msg("%s: needs more than three allocations", rows[i]);
        dibs__mem_fail_at(0, false);
        dibs__url_clear(&u);
    }
}

/* The same for a long one, where the number of allocations is not the point. */
static void test_url_list_out_of_memory(void **state)
{
    static const char text[] =
        "rediss-sentinel://ann:pw@a,b,[::1]:1/s?ca=a&cert=b&key=c&sni=d&"
        "sentinel_user=e&sentinel_password=f";
    struct dibs__url u, one;
    dibs_err err = DIBS_ERR_NOMEM;
    long n = 0;

    (void)state;
    while (err == DIBS_ERR_NOMEM) {
        dibs__mem_fail_at(++n, false);
        err = dibs__url_parse(text, &u, NULL);
    }
    dibs__mem_fail_at(0, false);
    assert_int_equal(err, DIBS_OK);
    assert_true(n > 10);
    err = DIBS_ERR_NOMEM;
    for (n = 0; err == DIBS_ERR_NOMEM;) {
        dibs__mem_fail_at(++n, false);
        err = dibs__url_for_server(&u, "h", 1, &one);
    }
    dibs__mem_fail_at(0, false);
    assert_int_equal(err, DIBS_OK);
    dibs__url_clear(&one);
    dibs__url_clear(&u);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_url_hosts),
        cmocka_unit_test(test_url_valkey),
        cmocka_unit_test(test_url_logins),
        cmocka_unit_test(test_url_sockets),
        cmocka_unit_test(test_url_bad_schemes),
        cmocka_unit_test(test_url_bad_hosts),
        cmocka_unit_test(test_url_bad_logins),
        cmocka_unit_test(test_url_bad_tails),
        cmocka_unit_test(test_url_bad_sockets),
        cmocka_unit_test(test_url_lists),
        cmocka_unit_test(test_url_bad_lists),
        cmocka_unit_test(test_url_bad_tls),
        cmocka_unit_test(test_url_says_why),
        cmocka_unit_test(test_url_list_length),
        cmocka_unit_test(test_url_one_of_many),
        cmocka_unit_test(test_url_lengths),
        cmocka_unit_test(test_url_bad_bytes),
        cmocka_unit_test(test_url_clear_empty),
#ifdef DIBS_FAULTS
        cmocka_unit_test(test_url_out_of_memory),
        cmocka_unit_test(test_url_list_out_of_memory),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
