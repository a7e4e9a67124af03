/* SPDX-License-Identifier: MIT
 *
 * server_identity.c - which server a group member is on, by its run_id.
 *
 * Thread  any.
 * Locks   group.mu.
 *
 * Two addresses may lead to one server. Two members of a quorum lock on it
 * would be two votes of one server; two members of a multi lock with one name
 * would be one lock, and the acquire would wait for itself. INFO returns the
 * server's run_id. It is valid until the connection breaks, since the next
 * connection may lead to another server. A server that refuses INFO is assumed
 * to be a different one; an event warns of that.
 */
#include "group/server_identity.h"

#include "base/mem.h"
#include "client/command/command.h"

#include <string.h>

#define CHECK_MS 500 /* for all servers, when a group is created */

bool dibs__members_same_name(const struct dibs__member *a,
                             const struct dibs__member *b)
{
    return a->entry->name_len == b->entry->name_len &&
           memcmp(a->entry->name, b->entry->name, a->entry->name_len) == 0;
}

/* Any two members of a quorum lock must be on different servers; of a multi
 * lock, two with one name and database. */
static bool must_differ(const struct dibs__group *g, size_t i, size_t j)
{
    const struct dibs__member *a = &g->members[i], *b = &g->members[j];

    return g->quorum || (dibs__members_same_name(a, b) &&
                         a->c->to.url.db == b->c->to.url.db);
}

/* ---- one server -------------------------------------------------------- */

static void write_info(struct dibs__command *cmd, struct dibs__buf *out,
                       bool whole)
{
    (void)cmd;
    (void)whole;
    dibs__buf_array(out, 2);
    dibs__buf_arg_text(out, "INFO");
    dibs__buf_arg_text(out, "server");
}

void dibs__server_identity_query(struct dibs__member *m,
                                 struct dibs__command *cmd, int64_t within,
                                 dibs__server_identity_done *done)
{
    cmd->write = write_info;
    cmd->on_reply = done;
    cmd->expects = 1u << REPLY_TEXT;
    cmd->no_script = true;
    cmd->attempt_ms = within;
    cmd->deadline = dibs__add(dibs__now_ms(), within);
    cmd->connect_by = 0;
    cmd->slot = m->entry->hash_slot;
    dibs__command_start(dibs__entry_route(m->entry), cmd);
}

/* Copies the run_id out of an INFO reply; "" if there is none. */
static void find_run_id(const struct dibs__reply *reply,
                        char out[DIBS__RUN_ID_MAX])
{
    static const char key[] = "\nrun_id:";
    const char *at = NULL;

    out[0] = '\0';
    if (reply && reply->type == REPLY_TEXT)
        at = strstr(reply->text, key);
    if (!at)
        return;
    at += sizeof key - 1;
    size_t len = strcspn(at, "\r\n");
    if (len < DIBS__RUN_ID_MAX) {
        memcpy(out, at, len);
        out[len] = '\0';
    }
}

/* Returns the number of the member's present connection, at least 1. */
static unsigned connection_number(const struct dibs__member *m)
{
    const struct dibs__server *s = dibs__entry_server(m->entry);

    return 1 + (s ? atomic_load(&s->connect_count) : 0);
}

void dibs__server_identity_record(struct dibs__group *g, size_t i, dibs_err err,
                                  const struct dibs__reply *reply)
{
    struct dibs__member *m = &g->members[i];
    char run_id[DIBS__RUN_ID_MAX];

    find_run_id(reply, run_id);
    if (err != DIBS_OK && !reply)
        return; /* no reply: the run_id stays unknown */
    if (!run_id[0] && g->quorum)
        dibs__entry_log_event(
            m->entry, DIBS_EVENT_WARNING, DIBS_ERR_AUTH,
            "INFO is refused: whether the servers of a quorum "
            "are different cannot be checked");
    dibs__lock(&g->mu);
    memcpy(m->run_id, run_id, sizeof run_id);
    m->run_id_epoch = connection_number(m);
    dibs__unlock(&g->mu);
}

bool dibs__server_identity_is_known(struct dibs__group *g, size_t i)
{
    return g->members[i].run_id_epoch == connection_number(&g->members[i]);
}

bool dibs__server_identity_is_duplicate(struct dibs__group *g, size_t i)
{
    for (size_t j = 0; j < g->n; j++)
        if (j != i && dibs__server_identity_is_known(g, j) &&
            g->members[i].run_id[0] && must_differ(g, i, j) &&
            strcmp(g->members[i].run_id, g->members[j].run_id) == 0)
            return true;
    return false;
}

/* ---- all servers, when the group is created ----------------------------- */

struct identity_check {
    struct dibs__command cmd;
    struct dibs__group *g;
    size_t index;
    sem_t *done; /* NULL: no query was sent */
};

static void on_check_reply(struct dibs__command *cmd, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct identity_check *ck = DIBS_OF(cmd, struct identity_check, cmd);

    dibs__server_identity_record(ck->g, ck->index, err, reply);
    sem_post(ck->done);
}

static void query_servers(struct dibs__group *g, struct identity_check *all)
{
    sem_t done;

    sem_init(&done, 0, 0);
    for (size_t i = 0; i < g->n; i++) {
        if (dibs__client_enter(g->members[i].c) != DIBS_OK)
            continue;
        all[i] = (struct identity_check){.g = g, .index = i, .done = &done};
        dibs__server_identity_query(&g->members[i], &all[i].cmd, CHECK_MS,
                                    on_check_reply);
    }
    for (size_t i = 0; i < g->n; i++)
        while (all[i].done && sem_wait(&done) != 0)
            ; /* EINTR */
    for (size_t i = 0; i < g->n; i++)
        if (all[i].done)
            dibs__client_leave(g->members[i].c);
    sem_destroy(&done);
}

dibs_err dibs__server_identity_report(const struct dibs__group *g, size_t i)
{
    return dibs__reason_set(
        DIBS_ERR_INVALID, "'%.80s' at %s: another member is on the same server",
        g->members[i].entry->name, g->members[i].server);
}

dibs_err dibs__server_identity_check(struct dibs__group *g)
{
    struct identity_check *all = dibs__calloc(g->n, sizeof *all);
    dibs_err err = DIBS_OK;

    if (!all)
        return DIBS_ERR_NOMEM;
    query_servers(g, all);
    dibs__free(all);
    for (size_t i = 0; i < g->n && err == DIBS_OK; i++) {
        dibs__lock(&g->mu);
        bool duplicate = dibs__server_identity_is_duplicate(g, i);
        dibs__unlock(&g->mu);
        if (duplicate)
            err = dibs__server_identity_report(g, i);
    }
    return err;
}
