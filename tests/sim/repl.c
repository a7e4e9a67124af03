/* SPDX-License-Identifier: MIT
 *
 * repl.c - replicas: what a master changed, in its order, as far as each has
 * read it.
 *
 * The stream is made of pieces: what one command of a client did, a script's
 * effects together. A replica reads a piece whole or not at all; when, the
 * owner of both decides (sr_deliver). Offsets count bytes. What was
 * acknowledged (sr_acknowledge) is what WAIT counts. Pieces that all have read
 * are dropped.
 *
 * A replica that is promoted keeps its offset and goes on from there; its old
 * master forgets it, and so is without it.
 */
#include "sim/impl.h"

#include <stdlib.h>
#include <string.h>

struct sr_repl_entry {
    int64_t end; /* offset behind it */
    struct sr_buf bytes;
};

/* ---- writing ----------------------------------------------------------- */

void sr__repl_begin(struct sr_server *s)
{
    if (s->repl_depth++ == 0)
        s->repl_db = -1;
}

void sr__repl_end(struct sr_server *s)
{
    if (--s->repl_depth > 0 || s->repl_open.n == 0)
        return;
    s->offset += (int64_t)s->repl_open.n;
    if (s->nreplicas) {
        s->stream = sr__grow(s->stream, (s->nstream + 1) * sizeof *s->stream);
        s->stream[s->nstream++] =
            (struct sr_repl_entry){.end = s->offset, .bytes = s->repl_open};
    } else {
        sr__buf_free(&s->repl_open);
    }
    s->repl_open = (struct sr_buf){0};
}

void sr__repl_add(struct sr_server *s, int db, int argc,
                  const struct sr_str *argv)
{
    if (s->replica)
        return;
    if (s->repl_db != db) {
        struct sr_buf number = {0};
        sr__buf_fmt(&number, "%d", db);
        struct sr_str select[2] = {sr__view("SELECT"), {number.p, number.n}};
        sr__out_command(&s->repl_open, 2, select);
        sr__buf_free(&number);
        s->repl_db = db;
    }
    sr__out_command(&s->repl_open, argc, argv);
}

void sr__repl_instead(struct sr_call *k, const struct sr_str *argv, int argc)
{
    k->passed_on = true;
    sr__repl_add(k->s, k->c->db, argc, argv);
}

/* ---- reading ----------------------------------------------------------- */

static void read_piece(struct sr_server *s, const struct sr_buf *bytes)
{
    size_t at = 0;

    while (at < bytes->n) {
        const char *why;
        struct sr_str *argv;
        int argc;
        long len = sr__parse(bytes->p + at, bytes->n - at, &argc, &argv, &why);
        if (len <= 0)
            abort();
        sr__apply(s->from_master, argc, argv);
        free(argv);
        at += (size_t)len;
    }
}

/* Drops what all have read. */
static void trim(struct sr_server *master)
{
    int64_t all = master->offset;
    size_t n = 0;

    for (size_t i = 0; i < master->nreplicas; i++)
        if (master->replicas[i]->offset < all)
            all = master->replicas[i]->offset;
    while (n < master->nstream && master->stream[n].end <= all)
        sr__buf_free(&master->stream[n++].bytes);
    master->nstream -= n;
    if (master->nstream)
        memmove(master->stream, master->stream + n,
                master->nstream * sizeof *master->stream);
}

void sr_deliver(struct sr_server *replica, int64_t offset)
{
    struct sr_server *master = replica->stopped ? NULL : replica->master;

    for (size_t i = 0; master && i < master->nstream; i++) {
        const struct sr_repl_entry *e = &master->stream[i];
        if (e->end <= replica->offset)
            continue;
        if (e->end > offset)
            break;
        read_piece(replica, &e->bytes);
        replica->offset = e->end;
    }
    if (master)
        trim(master);
}

void sr_acknowledge(struct sr_server *replica)
{
    if (replica->stopped)
        return;
    replica->acked = replica->offset;
    if (replica->master)
        sr__wake(replica->master);
}

int64_t sr_offset(const struct sr_server *s)
{
    return s->offset;
}

int sr__repl_acked(const struct sr_server *s, int64_t offset)
{
    int n = 0;

    for (size_t i = 0; i < s->nreplicas; i++)
        n += s->replicas[i]->acked >= offset;
    return n;
}

/* ---- ties -------------------------------------------------------------- */

static void leave_master(struct sr_server *s)
{
    struct sr_server *master = s->master;
    size_t i = 0;

    if (!master)
        return;
    while (master->replicas[i] != s)
        i++;
    master->nreplicas--;
    for (; i < master->nreplicas; i++)
        master->replicas[i] = master->replicas[i + 1];
    s->master = NULL;
    trim(master);
}

void sr__repl_forget(struct sr_server *s)
{
    leave_master(s);
    while (s->nreplicas)
        leave_master(s->replicas[0]);
    for (size_t i = 0; i < s->nstream; i++)
        sr__buf_free(&s->stream[i].bytes);
    free(s->stream);
    free(s->replicas);
    s->stream = NULL;
    s->replicas = NULL;
    s->nstream = 0;
}

void sr_replicate(struct sr_server *master, struct sr_server *replica)
{
    struct sr_snapshot *all = sr_snapshot(master);

    sr__repl_forget(replica);
    sr__keys_load(replica, all);
    sr__track_flushed(replica);
    sr_snapshot_free(all);
    master->replicas = sr__grow(
        master->replicas, (master->nreplicas + 1) * sizeof(struct sr_server *));
    master->replicas[master->nreplicas++] = replica;
    replica->master = master;
    replica->replica = true;
    replica->offset = replica->acked = master->offset;
    if (!replica->from_master) {
        replica->from_master = sr_open(replica, "");
        replica->from_master->is_master = true;
    }
    /* A WAIT here can no longer be answered. */
    for (struct sr_session *c = replica->sessions; c; c = c->next)
        if (c->mode == SR_BLOCKED_WAIT) {
            sr__buf_text(&c->out, "-UNBLOCKED force unblock from blocking "
                                  "operation, instance state changed (master "
                                  "-> replica?)\r\n");
            sr__touch(c);
            c->closing = true;
            sr__session_end(c);
        }
}

void sr_promote(struct sr_server *replica)
{
    leave_master(replica);
    replica->replica = false;
    sr_tick(replica);
}
