/* SPDX-License-Identifier: MIT
 *
 * fault_acl.c - the rights that docs/guarantees.md asks for are enough, and no
 * more than the scripts need.
 *
 * The rules are read from that page, so it cannot say anything else. Whatever a
 * user is refused stands in the server's ACL LOG, also what a script caught and
 * got along without: with all rights that log stays empty.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/kit.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define LEASE_MS kit_ms(2400)
#define NAME     "jobs:1"

static void fine(const char *kind, const char *what, dibs_err err)
{
    if (err != DIBS_OK)
        fail_msg("%s: %s: %s", kind, what, dibs_strerror(err));
}

/* ---- the page ---------------------------------------------------------- */

static char *read_file(const char *dir, const char *name)
{
    char *path = ts_text("%s/%s", dir, name);
    char *text = ts_alloc(1 << 17);
    FILE *f = fopen(path, "re");

    if (!f || fread(text, 1, (1 << 17) - 1, f) == 0)
        ts_fatal("%s cannot be read", path);
    fclose(f);
    free(path);
    return text;
}

/* What is between the first `from` and the next `to`; free() it. */
static char *between(const char *text, const char *from, const char *to)
{
    const char *a = strstr(text, from);
    const char *b = a ? strstr(a + strlen(from), to) : NULL;

    if (!b)
        ts_fatal("the page has no %s ... %s", from, to);
    a += strlen(from);
    return ts_text("%.*s", (int)(b - a), a);
}

static char *rule_base, *rule_fair, *rule_rw, *rule_list, *rule_count;
static char *rule_fenced, *rule_slots, *rule_semaphore, *rule_latch;

static int read_rules(void **state)
{
    char *page = read_file(DIBS_DOCS_DIR, "guarantees.md");

    rule_base = between(page, "ACL SETUSER jobs on >PASSWORD", "```");
    rule_fair = between(page, "| fair locks | `", "`");
    rule_rw = between(page, "| read-write locks | `", "`");
    rule_fenced = between(page, "| fenced locks | `", "`");
    rule_slots = between(page, "| slots | `", "`");
    rule_semaphore = between(page, "| semaphores | `", "`");
    rule_latch = between(page, "| latches | `", "`");
    rule_list = between(page, "`dibs metrics` | `", "`");
    rule_count = between(page, "`dibs ls --json` | `+", "`");
    for (char *bar = rule_count; (bar = strstr(bar, "\\|"));)
        memmove(bar, bar + 1, strlen(bar)); /* escaped, in a table */
    free(page);
    return kit_up(state);
}

static int drop_rules(void **state)
{
    free(rule_base);
    free(rule_fair);
    free(rule_rw);
    free(rule_fenced);
    free(rule_slots);
    free(rule_semaphore);
    free(rule_latch);
    free(rule_list);
    free(rule_count);
    return kit_down(state);
}

/* A user with these rights, and nothing refused so far. */
static void user_with(const char *more, const char *less)
{
    char *line = ts_text("ACL SETUSER some reset on >pass %s %s %s +%s %s",
                         rule_base, more, rule_list, rule_count, less);
    const char *argv[128];
    int argc = 0;

    for (char *save, *w = strtok_r(line, " \n", &save); w;
         w = strtok_r(NULL, " \n", &save))
        argv[argc++] = w;
    redisReply *r = ts_cmdv(kit_srv, argc, argv, NULL);
    if (!r || r->type == REDIS_REPLY_ERROR)
        fail_msg("the page's rule: %s", r ? r->str : "no reply");
    freeReplyObject(r);
    free(line);
    ts_ok(kit_srv, "ACL LOG RESET");
}

/* Nothing was refused but this command; NULL = nothing at all. */
static void check_refused(const char *kind, const char *but)
{
    redisReply *r = ts_cmd(kit_srv, "ACL LOG");

    if (!r || r->type != REDIS_REPLY_ARRAY)
        fail_msg("no ACL LOG");
    for (size_t i = 0; i < r->elements; i++) {
        const char *object = "";
        for (size_t j = 0; j + 1 < r->element[i]->elements; j += 2)
            if (strcmp(r->element[i]->element[j]->str, "object") == 0)
                object = r->element[i]->element[j + 1]->str;
        if (!but || strncmp(object, but, strlen(but)) != 0)
            fail_msg("%s: was refused %s", kind, object);
    }
    if (but && r->elements == 0)
        fail_msg("%s: %s was not refused", kind, but);
    freeReplyObject(r);
}

/* ---- every kind in use ------------------------------------------------- */

typedef dibs_err (*new_fn)(dibs_client *, const char *, dibs_lock **);

static const struct kind {
    const char *name;
    new_fn new, rival; /* a rival cannot have it at the same time */
    char **more;
} kinds[] = {
    {"plain", dibs_lock_new, dibs_lock_new, NULL},
    {"fair", dibs_fair_lock_new, dibs_fair_lock_new, &rule_fair},
    {"read", dibs_read_lock_new, dibs_write_lock_new, &rule_rw},
    {"write", dibs_write_lock_new, dibs_read_lock_new, &rule_rw},
};

static bool see_holder(const char *owner, dibs_mode mode, int64_t holds,
                       int64_t remaining_ms, void *arg)
{
    (void)owner;
    (void)mode;
    (void)holds;
    (void)remaining_ms;
    ++*(int *)arg;
    return true;
}

static bool see_waiter(size_t place, const char *owner, int64_t remaining_ms,
                       void *arg)
{
    (void)place;
    (void)owner;
    (void)remaining_ms;
    ++*(int *)arg;
    return true;
}

static bool see_lock(const char *name, size_t len, const dibs_lock_info *info,
                     void *arg)
{
    (void)name;
    (void)len;
    *(int *)arg += info->locked;
    return true;
}

/* All that can be asked about a lock that is held. */
static void look(const struct kind *k, dibs_client *c, dibs_lock *l)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    int holders = 0, locks = 0, waiters = 0;
    size_t listeners = 0;

    fine(k->name, "info", dibs_lock_info_get(l, &info));
    assert_true(info.locked);
    fine(k->name, "holders", dibs_lock_holders(l, see_holder, &holders));
    assert_int_equal(holders, 1);
    fine(k->name, "list", dibs_client_list(c, "jobs:*", see_lock, &locks));
    assert_int_equal(locks, 1);
    fine(k->name, "queue", dibs_lock_queue(l, see_waiter, &waiters));
    fine(k->name, "listeners", dibs_lock_listeners(l, &listeners));
}

/* Somebody waits and is woken; somebody else gives up. */
static void wait_for_it(const struct kind *k, dibs_lock *held, dibs_lock *want,
                        dibs_owner owner)
{
    struct kit_end end = {.err = DIBS_OK};
    const dibs_lock_opts *o = DIBS_LOCK_OPTS(.owner = owner);

    dibs_err err = dibs_lock_acquire(want, DIBS_LOCK_OPTS(.wait_ms = 50));
    if (err != DIBS_ERR_TIMEOUT)
        fail_msg("%s: giving up: %s", k->name, dibs_strerror(err));
    fine(k->name, "lining up",
         dibs_lock_acquire_async(want, o, kit_ended, &end));
    TS_WAIT(ts_nchannels(kit_srv) > 0); /* it listens */
    fine(k->name, "giving back", dibs_lock_release(held, NULL));
    fine(k->name, "being woken", kit_wait(&end));
    fine(k->name, "giving back", dibs_lock_release(want, o));
}

static void use(const struct kind *k, struct kit_client *a,
                struct kit_client *b)
{
    struct kit_end end = {.err = DIBS_OK};
    dibs_lock *la, *lb;
    bool was = false;

    fine(k->name, "new", k->new (a->c, NAME, &la));
    fine(k->name, "new", k->rival(b->c, NAME, &lb));
    fine(k->name, "taking", dibs_lock_acquire(la, NULL));
    fine(k->name, "once more", dibs_lock_try(la, NULL));
    fine(k->name, "giving back", dibs_lock_release(la, NULL));
    look(k, a->c, la);
    long long renewals = ts_command_calls(kit_srv, "pexpire");
    TS_WAIT(ts_command_calls(kit_srv, "pexpire") > renewals + 1);
    wait_for_it(k, la, lb, dibs_owner_new(b->c));

    /* Inside one client: handed over, or in turn. */
    dibs_owner next_owner = dibs_owner_new(a->c);
    fine(k->name, "taking", dibs_lock_acquire(la, NULL));
    fine(k->name, "lining up",
         dibs_lock_acquire_async(la, DIBS_LOCK_OPTS(.owner = next_owner),
                                 kit_ended, &end));
    fine(k->name, "giving back", dibs_lock_release(la, NULL));
    fine(k->name, "inheriting", kit_wait(&end));
    fine(k->name, "forcing", dibs_lock_force_release(la, &was));
    assert_true(was);
    kit_gone(k->name, NAME);
    assert_int_equal(dibs_lock_release(la, DIBS_LOCK_OPTS(.owner = next_owner)),
                     DIBS_ERR_LOST);
    dibs_lock_free(la);
    dibs_lock_free(lb);
}

/* A reply is lost: the connection it was on must be killed by the next. */
static void lose_a_reply(const struct kind *k, struct kit_client *a)
{
    dibs_lock *l;

    fine(k->name, "new", k->new (a->c, NAME, &l));
    int id =
        ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_DROP_REPLY_CLOSE,
                                                .match = "EVAL*",
                                                .count = 1});
    fine(k->name, "taking", dibs_lock_acquire(l, NULL));
    assert_int_equal(ts_rule_hits(kit_px, id), 1);
    fine(k->name, "giving back", dibs_lock_release(l, NULL));
    kit_gone(k->name, NAME);
    dibs_lock_free(l);
}

/* state: the kind. */
static void test_acl_is_enough(void **state)
{
    const struct kit_opts o = {.name = "some", .lease_ms = LEASE_MS};
    const struct kind *k = *state;

    for (int may_kill = 1; may_kill >= 0; may_kill--) {
        user_with(k->more ? *k->more : "", "");
        if (!may_kill)
            user_with(k->more ? *k->more : "",
                      "-client +client|setname +client|info "
                      "+client|tracking +client|caching");
        struct kit_client *a = kit_open(&o), *b = kit_open(&o);
        use(k, a, b);
        check_refused(k->name, NULL);
        kit_close(b); /* the reply that is lost must be one of a */
        lose_a_reply(k, a);
        if (may_kill)
            assert_int_equal(kit_told(a, DIBS_EVENT_WARNING), 0);
        else
            TS_WAIT(
                kit_heard(a, DIBS_EVENT_WARNING, DIBS_ERR_AUTH, "CLIENT KILL"));
        check_refused(k->name, may_kill ? NULL : "client");
        kit_close(a);
        assert_int_equal(ts_nkeys(kit_srv), 0);
    }
}

/* ---- what is not one lock for one owner -------------------------------- */

/* Taken, taken again, renewed, looked at, waited for, handed over, given
 * back. */
static void use_valued(const char *what, dibs_lock *l, dibs_client *c)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    struct kit_end end = {.err = DIBS_OK};
    dibs_owner next_owner = dibs_owner_new(c);
    int holders = 0;

    fine(what, "taking", dibs_lock_acquire(l, NULL));
    fine(what, "once more", dibs_lock_try(l, NULL));
    fine(what, "giving back", dibs_lock_release(l, NULL));
    fine(what, "info", dibs_lock_info_get(l, &info));
    fine(what, "holders", dibs_lock_holders(l, see_holder, &holders));
    assert_int_equal(holders, 1);
    fine(what, "lining up",
         dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.owner = next_owner),
                                 kit_ended, &end));
    int64_t until = ts_now_ms() + LEASE_MS;
    TS_WAIT(ts_now_ms() > until);
    fine(what, "giving back", dibs_lock_release(l, NULL));
    fine(what, "inheriting", kit_wait(&end));
    fine(what, "giving back",
         dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = next_owner)));
}

static void use_fenced(dibs_client *c)
{
    dibs_lock *l;

    fine("fenced", "new", dibs_fenced_lock_new(c, NAME, &l));
    use_valued("fenced", l, c);
    dibs_lock_free(l);
}

static void use_slots(dibs_client *c)
{
    char owner[DIBS_OWNER_MAX];
    dibs_lock *l;

    fine("slots", "new", dibs_slots_lock_new(c, NAME, 1, &l));
    use_valued("slots", l, c);
    fine("slots", "set", dibs_slots_set(l, 3));
    fine("slots", "taking", dibs_lock_acquire(l, NULL));
    fine("slots", "owner", dibs_lock_owner_text(l, 0, owner, sizeof owner));
    fine("slots", "forcing", dibs_lock_force_release_owner(l, owner, NULL));
    dibs_lock_free(l);
}

static void use_semaphore(dibs_client *c)
{
    struct kit_end end = {.err = DIBS_OK};
    dibs_semaphore *s;
    int64_t n;

    fine("semaphore", "new", dibs_semaphore_new(c, NAME, &s));
    fine("semaphore", "set", dibs_semaphore_set(s, 1, NULL));
    fine("semaphore", "taking", dibs_semaphore_acquire(s, NULL));
    fine("semaphore", "lining up",
         dibs_semaphore_acquire_async(s, NULL, kit_ended, &end));
    int64_t until = ts_now_ms() + LEASE_MS;
    TS_WAIT(ts_now_ms() > until);
    fine("semaphore", "add", dibs_semaphore_add(s, 1, NULL));
    fine("semaphore", "being woken", kit_wait(&end));
    fine("semaphore", "giving back", dibs_semaphore_release(s, NULL));
    fine("semaphore", "giving back", dibs_semaphore_release(s, NULL));
    fine("semaphore", "available", dibs_semaphore_available(s, &n));
    fine("semaphore", "drain", dibs_semaphore_drain(s, &n));
    assert_int_equal(n, 2);
    dibs_semaphore_free(s);
}

static void use_latch(dibs_client *c)
{
    struct kit_end end = {.err = DIBS_OK};
    dibs_latch *l;
    int64_t n;

    fine("latch", "new", dibs_latch_new(c, NAME, &l));
    fine("latch", "set",
         dibs_latch_set(l, 1, DIBS_LATCH_OPTS(.deadline_ms = KIT_LONG), NULL));
    fine("latch", "wait", dibs_latch_wait_async(l, NULL, kit_ended, &end));
    TS_WAIT(ts_nchannels(kit_srv) > 0);
    fine("latch", "count", dibs_latch_count(l, &n));
    fine("latch", "down", dibs_latch_count_down(l, NULL, NULL));
    fine("latch", "being woken", kit_wait(&end));
    dibs_latch_free(l);
}

static void test_acl_is_enough_for_objects(void **state)
{
    const struct {
        const char *name, *rule;
        void (*use)(dibs_client *c);
    } objects[] = {
        {"fenced", rule_fenced, use_fenced},
        {"slots", rule_slots, use_slots},
        {"semaphore", rule_semaphore, use_semaphore},
        {"latch", rule_latch, use_latch},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(objects); i++) {
        user_with(objects[i].rule, "");
        struct kit_client *k =
            kit_open(&(struct kit_opts){.name = "some", .lease_ms = LEASE_MS});
        objects[i].use(k->c);
        check_refused(objects[i].name, NULL);
        kit_close(k);
        ts_ok(kit_srv, "FLUSHALL");
    }
}

/* ---- no more than is needed -------------------------------------------- */

/* Is +word one of the words of the rule? */
static bool grants(const char *rule, const char *word, size_t len)
{
    for (const char *at = rule; (at = strchr(at, '+'));)
        if (strncmp(++at, word, len) == 0 && !isalpha((unsigned char)at[len]) &&
            at[len] != '|')
            return true;
    return false;
}

/* Calls fn for every command in the scripts whose names begin so. */
static void each_command(const char *prefix,
                         void (*fn)(const char *word, size_t len, void *arg),
                         void *arg)
{
    DIR *dir = opendir(DIBS_LUA_DIR);

    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 ||
            !strstr(e->d_name, ".lua"))
            continue;
        char *text = read_file(DIBS_LUA_DIR, e->d_name);
        for (const char *at = text; (at = strstr(at, "call('"));) {
            at += strlen("call('");
            fn(at, strcspn(at, "'"), arg);
        }
        /* How to publish is an argument, if it is not the usual way. */
        if (strstr(text, "call(ARGV[i] or 'publish'"))
            fn("publish", strlen("publish"), arg);
        free(text);
    }
    closedir(dir);
}

struct needs {
    const char *rules[3];
    char found[2048]; /* each command with a + before it */
};

static void need(const char *word, size_t len, void *arg)
{
    struct needs *n = arg;
    bool granted = false;

    for (size_t i = 0; i < COUNT(n->rules) && n->rules[i]; i++)
        granted |= grants(n->rules[i], word, len);
    if (!granted)
        fail_msg("the page does not grant %.*s", (int)len, word);
    strcat(n->found, "+");
    strncat(n->found, word, len);
}

/* Every command that the rule grants is in the scripts, or one of these. */
static void check_needed(const char *rule, const char *found, const char *known)
{
    for (const char *at = rule; (at = strchr(at, '+'));) {
        size_t len = strcspn(++at, " \n");
        if (!grants(found, at, len) && !grants(known, at, len))
            fail_msg("nothing needs +%.*s", (int)len, at);
    }
}

static void test_acl_is_no_more_than_needed(void **state)
{
    struct needs plain = {.rules = {rule_base}};
    struct needs fair = {.rules = {rule_base, rule_fair}};
    struct needs rw = {.rules = {rule_base, rule_rw}};
    struct needs fenced = {.rules = {rule_base, rule_fenced}};
    struct needs slots = {.rules = {rule_base, rule_slots}};
    struct needs semaphore = {.rules = {rule_base, rule_semaphore}};
    struct needs latch = {.rules = {rule_base, rule_latch}};
    struct needs looking = {.rules = {rule_base, rule_slots, rule_semaphore}};

    (void)state;
    each_command("mutex_", need, &plain);
    each_command("wait_", need, &plain);
    each_command("holders", need, &plain);
    each_command("fair_", need, &fair);
    each_command("read_", need, &rw);
    each_command("write_", need, &rw);
    each_command("fenced_", need, &fenced);
    each_command("slots_", need, &slots);
    each_command("permit_", need, &slots);
    each_command("semaphore_", need, &semaphore);
    each_command("permit_", need, &semaphore);
    each_command("latch_", need, &latch);
    each_command("object_", need, &looking);
    check_needed(rule_base, plain.found,
                 "+eval +evalsha +subscribe +unsubscribe +client|setname "
                 "+client|info +client|kill +client|tracking +client|caching "
                 "+exists");
    check_needed(rule_fair, fair.found, "");
    check_needed(rule_rw, rw.found, "");
    check_needed(rule_fenced, fenced.found, "");
    check_needed(rule_slots, slots.found, "");
    check_needed(rule_semaphore, semaphore.found, "");
    check_needed(rule_latch, latch.found, "");
}

/* ---- the page and the library ------------------------------------------- */

/* Words with a blank behind each. */
struct words {
    char text[8192];
};

static bool has_word(const struct words *w, const char *word)
{
    char one[160];

    snprintf(one, sizeof one, " %s ", word);
    return strstr(w->text, one) != NULL;
}

static bool add_word(const char *word, void *arg)
{
    struct words *w = arg;
    size_t n = strlen(w->text);

    if (n == 0)
        n = (size_t)snprintf(w->text, sizeof w->text, " ");
    if (!has_word(w, word))
        snprintf(w->text + n, sizeof w->text - n, "%s ", word);
    return true;
}

/* Rules of the page only: what is neither key, channel nor command is left. */
static void add_page(struct words *w, const char *rule)
{
    char *copy = ts_text("%s", rule), *save;

    for (char *one = strtok_r(copy, " \n", &save); one;
         one = strtok_r(NULL, " \n", &save))
        if (strchr("~&+", one[0]))
            add_word(one, w);
    free(copy);
}

static void compare_words(const char *kind, const struct words *all,
                          const struct words *other, const char *where)
{
    char *copy = ts_text("%s", all->text), *save;

    for (char *one = strtok_r(copy, " ", &save); one;
         one = strtok_r(NULL, " ", &save))
        if (!has_word(other, one))
            fail_msg("%s: %s has no %s", kind, where, one);
    free(copy);
}

static void test_acl_page_is_what_the_library_says(void **state)
{
    const struct {
        const char *kind, *rule;
    } rows[] = {
        {"plain", ""},         {"fair", rule_fair},
        {"rw", rule_rw},       {"fence", rule_fenced},
        {"slots", rule_slots}, {"sem", rule_semaphore},
        {"latch", rule_latch}, {"value", "~dibs_lock_value:{jobs:*} +get +set"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct words page = {""}, library = {""};
        add_page(&page, rule_base);
        add_page(&page, rows[i].rule);
        fine(rows[i].kind, "rules",
             dibs_acl_rules("jobs:*", rows[i].kind, add_word, &library));
        compare_words(rows[i].kind, &page, &library, "dibs_acl_rules");
        compare_words(rows[i].kind, &library, &page, "the page");
    }
    struct words look = {""};
    fine("look", "rules", dibs_acl_rules("jobs:*", "look", add_word, &look));
    assert_true(has_word(&look, rule_list));
    assert_true(has_word(&look, "+pubsub|numsub"));
    assert_true(has_word(&look, "+client|list"));
}

#define ENOUGH(i)                                                              \
    {                                                                          \
        "test_acl_is_enough " #i, test_acl_is_enough, kit_fresh, NULL,         \
            (void *)&kinds[i]                                                  \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_acl_is_enough_for_objects, kit_fresh),
        ENOUGH(0),
        ENOUGH(1),
        ENOUGH(2),
        ENOUGH(3),
        cmocka_unit_test_setup(test_acl_is_no_more_than_needed, kit_fresh),
        cmocka_unit_test(test_acl_page_is_what_the_library_says),
    };

    return TS_RUN_PARALLEL("fault.acl", tests, read_rules, drop_rules);
}
