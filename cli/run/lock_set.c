/* SPDX-License-Identifier: MIT
 *
 * lock_set.c - the lock that a command is about: one, several, or one on
 * several servers.
 *
 * Several names are members of a multi lock. One name on several servers is a
 * quorum lock. Both are taken and kept like any other lock. The differences are
 * here: more than one client, and more than one holder that can block us.
 *
 * Nested  Inside a command that dibs runs, the environment lists the owners of
 *         the outer runs (DIBS_OWNERS). A member that one of them holds is not
 *         taken again: the outer dibs keeps it while we run. The server is
 *         asked whether that owner really holds it. If no member is left to
 *         take, this run is nested. If an outer hold ends before our command
 *         does, a pipe reports it (nesting.c).
 *
 * Thread  Opening happens on a thread of its own, all else on the first.
 */
#include "run/lock_set.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "args/lock_type.h"
#include "exit_codes.h"
#include "output/error_advice.h"

/* ---- outer owners ------------------------------------------------------ */

/* Is owner one of the words of list? */
static bool list_has(const char *list, const char *owner)
{
    size_t len = strlen(owner);

    while (list && *list) {
        size_t n = strcspn(list, " ");
        if (n == len && memcmp(list, owner, n) == 0)
            return true;
        list += n + strspn(list + n, " ");
    }
    return false;
}

struct found_outer {
    const char *one, *all; /* owners around us */
    dibs_mode mode;        /* how the one that was found holds it */
    char owner[DIBS_OWNER_MAX];
};

/* One of the holders. An owner that writes may read, too; then the write hold
 * counts. */
static bool is_outer(const char *owner, dibs_mode mode, int64_t holds,
                     int64_t remaining_ms, void *arg)
{
    struct found_outer *o = arg;

    (void)holds;
    if (remaining_ms == -2 || strlen(owner) >= sizeof o->owner ||
        !(list_has(o->one, owner) || list_has(o->all, owner)))
        return true;
    o->mode = mode;
    strcpy(o->owner, owner);
    return mode == DIBS_MODE_READ;
}

static void add_owner(struct lock_set *b, const char *owner)
{
    size_t len = strlen(b->owners), more = strlen(owner);

    if (more == 0 || list_has(b->owners, owner) ||
        len + more + 2 > sizeof b->owners)
        return;
    if (len > 0)
        b->owners[len++] = ' ';
    memcpy(b->owners + len, owner, more + 1);
}

/* Does an outer dibs run hold this very lock? A server of a quorum that does
 * not answer says nothing about that. */
static dibs_err find_outer(struct lock_set *b, const struct args *a,
                           dibs_lock *l, bool *found)
{
    struct found_outer o = {.one = getenv("DIBS_OWNER"),
                            .all = getenv("DIBS_OWNERS")};

    *found = false;
    if (!(o.one && *o.one) && !(o.all && *o.all))
        return DIBS_OK;
    dibs_err err = dibs_lock_holders(l, is_outer, &o);
    if (err != DIBS_OK && a->quorum)
        return DIBS_OK;
    if (err != DIBS_OK || o.mode == DIBS_MODE_NONE)
        return err;
    if (o.mode == DIBS_MODE_READ && a->exclusive)
        return DIBS_ERR_UPGRADE; /* it would wait for its own parent */
    *found = true;
    add_owner(b, o.owner);
    return DIBS_OK;
}

/* ---- opening ----------------------------------------------------------- */

/* One more member, unless it is held for us already. */
static dibs_err add_member(struct lock_set *b, const struct args *a,
                           dibs_client *c, const char *name, size_t *outer)
{
    dibs_lock *l = NULL;
    bool found = false;
    dibs_err err = kind_new(kind_of(a), c, name, a->slots, &l);

    if (err == DIBS_OK)
        err = find_outer(b, a, l, &found);
    if (err != DIBS_OK || (found && !a->quorum))
        dibs_lock_free(l);
    else
        b->members[b->n_members++] = l;
    *outer += found;
    return err;
}

static dibs_err add_names(struct lock_set *b, const struct args *a,
                          size_t *outer)
{
    char *copy = strdup(a->multi), *save = NULL;
    dibs_err err = copy ? DIBS_OK : DIBS_ERR_NOMEM;

    for (char *name = copy ? strtok_r(copy, ",", &save) : NULL;
         name && err == DIBS_OK; name = strtok_r(NULL, ",", &save))
        err = add_member(b, a, b->clients[0], name, outer);
    free(copy);
    return err;
}

/* If an outer run holds it, we have no handle of our own. */
static dibs_err slots_info(const struct lock_set *b, const struct args *a,
                           dibs_lock_info *info)
{
    dibs_lock *own = NULL;
    dibs_err err =
        b->l ? DIBS_OK
             : kind_new(TYPE_SLOTS, b->clients[0], a->words[0], a->slots, &own);

    if (err == DIBS_OK)
        err = dibs_lock_info_get(own ? own : b->l, info);
    dibs_lock_free(own);
    return err;
}

bool lock_set_check_slot_count(struct lock_set *b, const struct args *a)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    if (slots_info(b, a, &info) != DIBS_OK || info.slots == 0 ||
        info.slots == a->slots)
        return true;
    out_tell(OUT_ERROR, "usage",
             "%s has %" PRId64 " slot%s, and --slots says %" PRId64
             "; 'dibs slots set %s %" PRId64 "' changes it",
             a->words[0], info.slots, info.slots == 1 ? "" : "s", a->slots,
             a->words[0], a->slots);
    return false;
}

/* With --slots: if the server has another number, is it one of something else?
 * Only then is it looked for, in keys that slots need no right to. */
static int refuse_number(const struct lock_set *b, const struct args *a)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    if (a->slots == 0 || a->owner || slots_info(b, a, &info) != DIBS_OK ||
        info.slots == 0 || info.slots == a->slots)
        return EXIT_FINE;
    return kind_refuse(b->clients[0], a->words[0], DIBS_KIND_SLOTS);
}

/* docs/keys.md has the layout. */
void lock_set_permit(const char *owner, char permit[33])
{
    const char *colon = strrchr(owner, ':');
    size_t n = 16;

    permit[0] = '\0';
    if (!colon || colon - owner != 36)
        return;
    snprintf(permit, 33, "d1b501%010llx",
             strtoull(colon + 1, NULL, 10) & 0xffffffffffULL);
    for (const char *s = owner; n < 32; s++)
        if (*s != '-')
            permit[n++] = *s;
    permit[n] = '\0';
}

static dibs_err make_lock(struct lock_set *b, const struct args *a)
{
    size_t outer = 0;
    dibs_err err = DIBS_OK;

    if (a->multi)
        err = add_names(b, a, &outer);
    for (size_t i = 0; !a->multi && i < b->n_clients && err == DIBS_OK; i++)
        err = add_member(b, a, b->clients[i], a->words[0], &outer);
    if (err != DIBS_OK)
        return err;
    b->nested = a->quorum ? outer > b->n_clients / 2 : b->n_members == 0;
    if (b->nested || !a->quorum)
        (void)nesting_open(&b->outer, b->owners);
    if (b->nested)
        return DIBS_OK;
    b->group = a->quorum || b->n_members > 1;
    if (!b->group)
        b->l = b->members[0];
    else if (a->quorum)
        err = dibs_quorum_lock_new(b->members, b->n_members, &b->l);
    else
        err = dibs_multi_lock_new(b->members, b->n_members, &b->l);
    b->owners[0] = '\0';
    return err;
}

static int tell_not_opened(const struct args *a, dibs_err err)
{
    char text[512]; /* the library's own is gone with its next call */

    snprintf(text, sizeof text, "%s", dibs_error_text());
    if (a->quorum && err == DIBS_ERR_INVALID)
        out_tell(OUT_ERROR, "usage",
                 "--quorum: two of the addresses are the same server");
    else
        return failure_tell(a, err, text, NULL);
    return out_exit_of(err);
}

/* One descriptor for all clients. */
static bool join_fds(struct lock_set *b)
{
    if (b->n_clients == 1) {
        b->fd = dibs_client_fd(b->clients[0]);
        return true;
    }
    b->fd = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; b->fd >= 0 && i < b->n_clients; i++) {
        struct epoll_event ev = {.events = EPOLLIN};
        if (epoll_ctl(b->fd, EPOLL_CTL_ADD, dibs_client_fd(b->clients[i]),
                      &ev) != 0)
            return false;
    }
    return b->fd >= 0;
}

int lock_set_open(struct lock_set *b, const struct args *a,
                  const struct target *t, const dibs_client_opts *opts)
{
    *b = (struct lock_set){.fd = -1, .outer = {.fd = -1}};
    for (size_t i = 0; i < target_count(t); i++) {
        int code = target_open(t, i, opts, &b->clients[i]);
        if (code != EXIT_FINE)
            return code;
        b->n_clients++;
    }
    if (!join_fds(b)) {
        out_tell(OUT_ERROR, "internal", "no descriptors left");
        return EXIT_INTERNAL;
    }
    int code = refuse_number(b, a);
    if (code != EXIT_FINE)
        return code;
    dibs_err err = make_lock(b, a);
    if (err == DIBS_OK && a->strict && !lock_set_check_slot_count(b, a))
        return EXIT_USAGE;
    if (err == DIBS_OK && b->outer.unguarded) {
        out_tell(OUT_ERROR, "usage",
                 "an outer dibs run holds %s with --foreground, but its "
                 "descriptor DIBS_LOST_FD was closed here, so it cannot tell "
                 "us when the hold ends: leave it open",
                 a->words[0]);
        return EXIT_USAGE;
    }
    return err == DIBS_OK ? EXIT_FINE : tell_not_opened(a, err);
}

void lock_set_close(struct lock_set *b, int64_t ms)
{
    for (size_t i = 0; i < b->n_clients; i++)
        dibs_client_close(b->clients[i], ms);
    if (b->group)
        dibs_lock_free(b->l);
    for (size_t i = 0; i < b->n_members; i++)
        dibs_lock_free(b->members[i]);
    for (size_t i = 0; i < b->n_clients; i++)
        dibs_client_free(b->clients[i]);
    if (b->n_clients > 1 && b->fd >= 0)
        close(b->fd);
    b->n_clients = b->n_members = 0;
    b->l = NULL;
    b->fd = -1;
}

/* ---- callbacks --------------------------------------------------------- */

int lock_set_fd(const struct lock_set *b)
{
    return b->fd;
}

void lock_set_dispatch(struct lock_set *b)
{
    for (size_t i = 0; i < b->n_clients; i++)
        dibs_client_dispatch(b->clients[i]);
}

/* ---- what became of it ------------------------------------------------- */

void lock_set_owner(struct lock_set *b, dibs_owner owner,
                    char text[DIBS_OWNER_MAX])
{
    char one[DIBS_OWNER_MAX];

    text[0] = '\0';
    for (size_t i = 0; i < b->n_members; i++) {
        if (dibs_lock_owner_text(b->members[i], owner, one, sizeof one) !=
            DIBS_OK)
            continue;
        if (!text[0])
            memcpy(text, one, sizeof one);
        add_owner(b, one);
    }
}

static bool read_member(struct lock_set *b, size_t i, dibs_owner owner,
                        dibs_member *m)
{
    *m = (dibs_member){.size = sizeof *m};
    return b->group && dibs_lock_members(b->l, i, owner, m) == DIBS_OK;
}

/* Of a quorum each member has a client of its own. */
static dibs_client *member_client(const struct lock_set *b, size_t member)
{
    return b->clients[b->n_clients > 1 ? member : 0];
}

/* A member, and its name if there are others. */
static void describe_blocker(struct lock_set *b, size_t member,
                             const char *name, char *text, size_t size,
                             struct holder_seen *by)
{
    const dibs_lock_info *info = &by->info;
    const char *owner = info->owner;
    char span[OUT_SPAN_MAX], who[WHO_TEXT_MAX];

    if (dibs_lock_info_get(b->members[member], &by->info) != DIBS_OK ||
        !kind_held(info))
        return;
    who_ask(member_client(b, member), &owner, &by->who, 1);
    if (info->slots > 0) {
        snprintf(text, size,
                 "all %" PRId64
                 " slots are held, one by %s%s, lease ends in %s "
                 "unless it is renewed",
                 info->slots, info->owner, owner_describe(&by->who, who),
                 info->ttl_ms < 0 ? "no time" : out_span(info->ttl_ms, span));
        return;
    }
    snprintf(
        text, size,
        info->ttl_ms < 0 ? "%s%sheld by %s%s, %s"
                         : "%s%sheld by %s%s, lease ends in %s unless it "
                           "is renewed",
        name, *name ? " is " : "", info->owner, owner_describe(&by->who, who),
        info->ttl_ms < 0 ? "lease without end" : out_span(info->ttl_ms, span));
}

void lock_set_holder(struct lock_set *b, dibs_owner owner, char *text,
                     size_t size, struct holder_seen *by)
{
    dibs_member m;

    *text = '\0';
    if (!b->group) {
        describe_blocker(b, 0, "", text, size, by);
        return;
    }
    for (size_t i = 0; i < b->n_members && !*text; i++)
        if (read_member(b, i, owner, &m) && m.verdict == DIBS_ERR_BUSY)
            describe_blocker(b, i, m.name, text, size, by);
}

static const char *verdict_word(const dibs_member *m)
{
    if (m->verdict == DIBS_OK)
        return "taken";
    if (m->verdict == DIBS_ERR_CANCELED)
        return "not asked";
    if (m->verdict == DIBS_ERR_UNKNOWN)
        return "no answer";
    return dibs_strerror(m->verdict);
}

void lock_set_log(struct lock_set *b, dibs_owner owner)
{
    dibs_member m;

    for (size_t i = 0; i < b->n_members && read_member(b, i, owner, &m); i++)
        out_tell(OUT_INFO, "member", "%s at %s: %s", m.name, m.server,
                 verdict_word(&m));
}

bool lock_set_has_pending(struct lock_set *b, dibs_owner owner)
{
    dibs_member m;

    for (size_t i = 0; i < b->n_members && read_member(b, i, owner, &m); i++)
        if (m.verdict == DIBS_ERR_UNKNOWN)
            return true;
    return false;
}

void lock_set_json(struct lock_set *b, dibs_owner owner, FILE *f)
{
    struct json j;
    dibs_member m;

    putc('[', f);
    for (size_t i = 0; i < b->n_members && read_member(b, i, owner, &m); i++) {
        if (i > 0)
            putc(',', f);
        json_open(&j, f);
        json_bytes(&j, "name", m.name, m.name_len);
        json_text(&j, "server", m.server);
        json_text(&j, "verdict", verdict_word(&m));
        json_close(&j);
    }
    putc(']', f);
}
