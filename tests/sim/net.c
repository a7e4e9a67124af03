/* SPDX-License-Identifier: MIT
 *
 * net.c - servers, connections to them, and what happens on the way.
 *
 * How     A connection (link) has two rows of pieces. One event at a time is
 *         set for each row, for the arrival of its first piece; so the order
 *         within a row stays. The end of a connection is
 *         a piece, too: what was sent before it still arrives, and a server
 *         executes it although no call waits for the reply: a late copy.
 *
 * Trouble A cut loses a row from some byte on. The other side gets a reset,
 *         unless the fault is a hole: then no side notices, and only a time
 *         limit helps.
 */
#include "sim/net.h"

#include "sim/wrap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOWS_MAX 64
#define NEAR_US     60   /* the fastest way there */
#define FAR_US      900  /* a slow one */
#define MANY_KEYS   2000 /* more are looked through only now and then */
#define LOOK_KEY_US 10   /* until then, for each of them */

enum piece_kind { BYTES, OPENING, ENDING, RESET };

struct piece {
    struct piece *next;
    enum piece_kind kind;
    bool queued; /* the server has seen it, and comes to it in its turn */
    int64_t when;
    size_t n;
    char bytes[];
};

struct row {
    struct piece *first, **last;
    bool set; /* an event will look at it */
    bool hole;
    int64_t latest;
};

struct sim_link {
    struct sim_link *next;
    struct sim_server *server;
    struct sim_proc *proc;
    int proc_id;
    struct sim_sock *sock;      /* NULL: closed by the client, */
    int64_t heard_at;           /* when the server answered it next; 0 = no */
    struct sr_session *session; /* NULL: not yet, or not any more */
    bool over;                  /* at the server: nothing goes in any more */
    struct row up, down;
    int port;
};

struct sim_server *sim_servers[64];
int sim_nservers;
uint64_t sim_pieces, sim_cuts;
bool sim_shows_wire;
int sim_next_link = 20000;
void (*sim_server_ran)(struct sim_server *sv);

static struct sim_window windows[WINDOWS_MAX];
static int nwindows;
static struct sim_chance weather;

static void row_set(struct sim_link *l, struct row *r);

/* ---- trouble ----------------------------------------------------------- */

void sim_window_open(const struct sim_window *w)
{
    if (nwindows < WINDOWS_MAX)
        windows[nwindows++] = *w;
}

void sim_windows_close(void)
{
    nwindows = 0;
    for (int i = 0; i < sim_nservers; i++)
        for (struct sim_link *l = sim_servers[i]->links; l; l = l->next) {
            row_set(l, &l->up);
            row_set(l, &l->down);
        }
}

static const struct sim_window *window_of(const struct sim_link *l, int way,
                                          enum sim_trouble kind)
{
    for (int i = nwindows; i-- > 0;) {
        const struct sim_window *w = &windows[i];
        if (w->until <= sim_now())
            windows[i] = windows[--nwindows];
        else if (w->kind == kind && (w->ways & way) &&
                 (w->proc < 0 || w->proc == l->proc_id) &&
                 (w->before == 0 || l->port < w->before) &&
                 (w->server < 0 || w->server == l->server->id))
            return w;
    }
    return NULL;
}

/* ---- rows -------------------------------------------------------------- */

static int way_of(const struct sim_link *l, const struct row *r)
{
    return r == &l->up ? SIM_UP : SIM_DOWN;
}

static void row_add(struct sim_link *l, struct row *r, enum piece_kind kind,
                    const void *bytes, size_t n)
{
    const struct sim_window *slow = window_of(l, way_of(l, r), SIM_SLOW);
    int64_t takes = sim_between(&weather, NEAR_US, FAR_US);

    if (r->hole)
        return;
    if (window_of(l, way_of(l, r), SIM_HOLE)) {
        r->hole = true;
        sim_cuts++;
        return;
    }
    if (slow)
        takes += sim_skewed(&weather, slow->amount);
    struct piece *p = malloc(sizeof *p + n);
    p->kind = kind;
    p->queued = false;
    p->next = NULL;
    p->n = n;
    p->when = sim_now() + takes > r->latest ? sim_now() + takes : r->latest;
    r->latest = p->when;
    if (n > 0)
        memcpy(p->bytes, bytes, n);
    if (!r->first)
        r->last = &r->first;
    *r->last = p;
    r->last = &p->next;
    row_set(l, r);
}

static void row_clear(struct row *r)
{
    while (r->first) {
        struct piece *p = r->first;
        r->first = p->next;
        free(p);
    }
}

/* ---- the server's side ------------------------------------------------- */

static int64_t server_now(void *arg)
{
    const struct sim_server *sv = arg;
    int64_t now = sim_now();

    return SIM_EPOCH_US + sv->offset_us + now + now / 1000 * sv->ppm / 1000;
}

static void tick_server(void *arg, int64_t number)
{
    struct sim_server *sv = arg;

    if (sv->tick_at != number || sv->down)
        return;
    sv->tick_at = SIM_NEVER;
    if (!sv->stopped)
        sr_tick(sv->s);
    if (sim_server_ran)
        sim_server_ran(sv);
    sim_server_settle(sv);
}

static void collect_answers(struct sim_server *sv)
{
    static char bytes[65536];

    for (struct sr_session *c; (c = sr_touched(sv->s));) {
        struct sim_link *l = sr_owner(c);
        size_t n;
        if (!l || l->session != c) /* the checker's, or one that is over */
            continue;
        while ((n = sr_take(c, bytes, sizeof bytes)) > 0)
            row_add(l, &l->down, BYTES, bytes, n);
        if (sr_ended(c)) {
            sr_close(l->session);
            l->session = NULL;
            l->over = true;
            row_add(l, &l->down, ENDING, NULL, 0);
        }
    }
}

static void drop_links(struct sim_server *sv)
{
    struct sim_link **at = &sv->links;

    while (*at) {
        struct sim_link *l = *at;
        if (l->session || l->sock || l->up.set || l->down.set) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        l->proc->unheard -= l->heard_at == 0;
        row_clear(&l->up);
        row_clear(&l->down);
        free(l);
    }
}

void sim_server_settle(struct sim_server *sv)
{
    if (sv->down)
        return;
    collect_answers(sv);
    if (sr_keys(sv->s) > MANY_KEYS && sim_now() < sv->look_at &&
        sv->tick_at != SIM_NEVER && sv->tick_at > sim_now())
        return;
    int64_t next = sv->stopped ? -1 : sr_next(sv->s);
    if (next < 0)
        return;
    int64_t in = next * 1000 - server_now(sv);
    int64_t when = sim_now() + (in > 0 ? in - in / 1000000 * sv->ppm + 1 : 100);
    if (sr_keys(sv->s) > MANY_KEYS) {
        sv->look_at = sim_now() + (int64_t)sr_keys(sv->s) * LOOK_KEY_US;
        when = when < sv->look_at ? sv->look_at : when;
    }
    if (sv->tick_at != SIM_NEVER && sv->tick_at <= when &&
        sv->tick_at > sim_now())
        return;
    sv->tick_at = when;
    sim_at(when, tick_server, sv, when);
}

/* The server's side of the connection is over; the client hears of it. */
static void reset_link(struct sim_link *l)
{
    if (l->session && l->server->stopped)
        sr_hang_up(l->session);
    else if (l->session)
        sr_close(l->session);
    l->session = NULL;
    l->over = true;
    row_clear(&l->up);
}

static void open_session(struct sim_link *l)
{
    char addr[40];

    if (l->server->down) {
        l->over = true;
        row_add(l, &l->down, RESET, NULL, 0);
        return;
    }
    snprintf(addr, sizeof addr, "10.1.%d.1:%d", l->proc_id & 255, l->port);
    l->session = sr_open(l->server->s, addr);
    sr_set_owner(l->session, l);
    row_add(l, &l->down, OPENING, NULL, 0);
}

/* For the history: a piece, scripts and line ends left out. */
static void show_piece(const struct sim_link *l, const char *way,
                       const struct piece *p)
{
    char text[260];
    size_t to = 0;

    if (!sim_shows_wire)
        return;
    for (size_t i = 0; i < p->n && to < sizeof text - 1; i++) {
        unsigned char c = (unsigned char)p->bytes[i];
        if (c == '\n' || (c == '*' && i == 0))
            continue;
        if (c == '$') /* and the length behind it */
            while (i + 1 < p->n && p->bytes[i + 1] != '\n')
                i++;
        else
            text[to++] = c == '\r' ? ' ' : c >= 32 && c < 127 ? (char)c : '?';
    }
    text[to] = '\0';
    printf("%12.6f      %s %d %s %d  %s%s\n", (double)sim_now() / 1e6,
           l->proc->name, l->port, way, l->server->id,
           p->kind == BYTES     ? ""
           : p->kind == OPENING ? "(open)"
           : p->kind == ENDING  ? "(end)"
                                : "(reset)",
           text);
}

/* P6: without the right to end connections, a client looks for a lease after
 * the first answer for what may have come of it; a little less, by a clock that
 * is fast. */
static void note_late_copy(const struct sim_link *l, const struct piece *p)
{
    struct sim_proc *proc = l->proc;

    proc->late_copy_at = sim_now();
    if (l->heard_at == 0 ||
        sim_now() - l->heard_at <= proc->lease_us - proc->lease_us / 50)
        return;
    sim_lateness_add(proc, p->bytes, p->n);
}

/* The server answers a process that has given up others before. */
static void note_answer(const struct sim_link *to)
{
    for (struct sim_link *l = to->server->links; l && to->proc->unheard > 0;
         l = l->next)
        if (l->proc == to->proc && !l->sock && l->heard_at == 0) {
            l->heard_at = sim_now();
            l->proc->unheard--;
        }
}

static void arrive_up(struct sim_link *l, const struct piece *p)
{
    sim_pieces++;
    show_piece(l, "->", p);
    if (p->kind == OPENING) {
        open_session(l);
        return;
    }
    if (!l->session) {
        if (p->kind == BYTES && !l->over)
            row_add(l, &l->down, RESET, NULL, 0);
        return;
    }
    if (p->kind == BYTES) {
        if (!l->sock)
            note_late_copy(l, p);
        sr_feed(l->session, p->bytes, p->n);
        l->server->commands++;
        if (sim_server_ran)
            sim_server_ran(l->server);
    } else {
        reset_link(l);
    }
    sim_server_settle(l->server);
}

static void arrive_down(struct sim_link *l, const struct piece *p)
{
    sim_pieces++;
    show_piece(l, "<-", p);
    if (!l->sock)
        return;
    if (p->kind == BYTES)
        note_answer(l);
    if (p->kind == OPENING)
        sim_sock_up(l->sock);
    else if (p->kind == BYTES)
        sim_sock_arrived(l->sock, p->bytes, p->n);
    else if (p->kind == ENDING)
        sim_sock_ended(l->sock);
    else
        sim_sock_failed(l->sock, ECONNRESET);
}

/* Cuts the row at some byte of this piece; the rest is lost. */
static void cut_here(struct sim_link *l, struct row *r, struct piece *p)
{
    sim_cuts++;
    p->n = (size_t)sim_between(&weather, 0, (int64_t)p->n);
    if (r == &l->up) {
        if (p->n > 0 && l->session)
            arrive_up(l, p);
        reset_link(l);
        row_add(l, &l->down, RESET, NULL, 0);
        return;
    }
    if (p->n > 0)
        arrive_down(l, p);
    reset_link(l);
    row_clear(r);
    if (l->sock)
        sim_sock_failed(l->sock, ECONNRESET);
}

/* A server that has much to do: first come, first served. True: not yet. */
static bool must_queue(struct sim_link *l, const struct row *r, struct piece *p)
{
    struct sim_server *sv = l->server;

    if (r != &l->up || p->kind != BYTES || p->queued || sv->cost_us == 0)
        return false;
    p->queued = true;
    if (sv->busy_until < sim_now())
        sv->busy_until = sim_now();
    sv->busy_until += sv->cost_us;
    sv->worked_us += sv->cost_us;
    p->when = sv->busy_until;
    if (r->first == p && l->up.latest < p->when)
        l->up.latest = p->when;
    return true;
}

static void row_due(struct sim_link *l, struct row *r)
{
    r->set = false;
    while (r->first) {
        struct piece *p = r->first;
        if (p->when > sim_now() || window_of(l, way_of(l, r), SIM_BLOCKED) ||
            must_queue(l, r, p))
            break;
        r->first = p->next;
        const struct sim_window *flaky = window_of(l, way_of(l, r), SIM_FLAKY);
        if (flaky && p->kind == BYTES && sim_once_in(&weather, flaky->amount))
            cut_here(l, r, p);
        else if (r == &l->up)
            arrive_up(l, p);
        else
            arrive_down(l, p);
        free(p);
    }
    row_set(l, r);
    struct sim_server *sv = l->server;
    if (!l->session && !l->sock)
        drop_links(sv);
}

static void up_due(void *arg, int64_t number)
{
    (void)number;
    row_due(arg, &((struct sim_link *)arg)->up);
}

static void down_due(void *arg, int64_t number)
{
    (void)number;
    row_due(arg, &((struct sim_link *)arg)->down);
}

static void row_set(struct sim_link *l, struct row *r)
{
    if (!r->first || r->set)
        return;
    const struct sim_window *blocked = window_of(l, way_of(l, r), SIM_BLOCKED);
    int64_t when = blocked && blocked->until > r->first->when ? blocked->until
                                                              : r->first->when;
    r->set = true;
    sim_at(when, r == &l->up ? up_due : down_due, l, 0);
}

/* ---- the client's side ------------------------------------------------- */

struct sim_link *sim_link_new(struct sim_server *sv, struct sim_sock *sock,
                              struct sim_proc *p)
{
    struct sim_link *l = calloc(1, sizeof *l);

    l->server = sv;
    l->sock = sock;
    l->proc = p;
    l->proc_id = p->id;
    l->port = sim_next_link++;
    l->next = sv->links;
    sv->links = l;
    row_add(l, &l->up, OPENING, NULL, 0);
    return l;
}

void sim_link_send(struct sim_link *l, const void *bytes, size_t n)
{
    row_add(l, &l->up, BYTES, bytes, n);
}

void sim_link_close(struct sim_link *l)
{
    l->sock = NULL;
    l->proc->unheard++;
    row_add(l, &l->up, ENDING, NULL, 0);
    if (l->up.hole && l->session) { /* the server finds out some day */
        l->up.hole = false;
        row_add(l, &l->up, ENDING, NULL, 0);
    }
}

void sim_cut(int proc, int server, bool deaf)
{
    for (int i = 0; i < sim_nservers; i++) {
        if (server >= 0 && server != i)
            continue;
        for (struct sim_link *l = sim_servers[i]->links; l; l = l->next) {
            if ((proc >= 0 && l->proc_id != proc) || !l->session)
                continue;
            if (deaf) {
                sim_cuts++;
                row_clear(&l->down);
                row_add(l, &l->down, RESET, NULL, 0);
                continue;
            }
            struct row *r = sim_once_in(&weather, 2) ? &l->up : &l->down;
            struct piece *p = r->first;
            if (!p || p->kind != BYTES) {
                sim_cuts++;
                reset_link(l);
                row_add(l, &l->down, RESET, NULL, 0);
                continue;
            }
            r->first = p->next;
            cut_here(l, r, p);
            free(p);
        }
        sim_server_settle(sim_servers[i]);
    }
}

/* ---- who tracks a key -------------------------------------------------- */

struct tracker {
    const struct sim_proc *proc;
    bool found;
};

static void match_tracker(void *owner, void *arg)
{
    const struct sim_link *l = owner;
    struct tracker *tr = arg;

    tr->found |= l->proc == tr->proc;
}

bool sim_is_tracked(const struct sim_server *sv, const char *key,
                    const struct sim_proc *p)
{
    struct tracker tr = {p, false};

    sr_tracked_by(sv->s, key, match_tracker, &tr);
    return tr.found;
}

/* ---- servers ----------------------------------------------------------- */

struct sim_server *sim_server_new(uint64_t seed, const struct sr_config *how)
{
    struct sim_server *sv = calloc(1, sizeof *sv);
    struct sr_config config = *how;

    if (sim_nservers == 0)
        weather = sim_stream(seed, 2);
    sv->id = sim_nservers;
    sv->port = how->port ? how->port : 6379;
    snprintf(sv->host, sizeof sv->host, "10.0.0.%d", sv->id + 1);
    sv->tick_at = SIM_NEVER;
    config.now_us = server_now;
    config.arg = sv;
    config.seed = seed + (uint64_t)sv->id;
    config.host = sv->host;
    config.port = sv->port;
    sv->s = sr_server_new(&config);
    sv->admin = sr_open(sv->s, "10.0.0.99:1");
    sim_servers[sim_nservers++] = sv;
    return sv;
}

struct sim_server *sim_server_at(const char *host, int port)
{
    for (int i = 0; i < sim_nservers; i++)
        if (strcmp(sim_servers[i]->host, host) == 0 &&
            sim_servers[i]->port == port)
            return sim_servers[i];
    return NULL;
}

void sim_server_stop(struct sim_server *sv)
{
    if (sv->stopped || sv->down)
        return;
    sv->stopped = true;
    sr_stop(sv->s);
}

void sim_server_continue(struct sim_server *sv)
{
    if (!sv->stopped)
        return;
    sv->stopped = false;
    if (sv->down)
        return;
    sr_continue(sv->s);
    sr_tick(sv->s);
    sim_server_settle(sv);
}

void sim_server_crash(struct sim_server *sv, bool keep)
{
    if (sv->down)
        return;
    sim_server_continue(sv);
    sv->kept = keep ? sr_snapshot(sv->s) : NULL;
    sr_close(sv->admin);
    sv->admin = NULL;
    for (struct sim_link *l = sv->links; l; l = l->next)
        if (l->session) {
            reset_link(l);
            row_add(l, &l->down, RESET, NULL, 0);
        }
    sv->down = true;
    sv->tick_at = SIM_NEVER;
}

void sim_server_restart(struct sim_server *sv)
{
    if (!sv->down)
        return;
    sv->down = false;
    sr_restart(sv->s, sv->kept);
    sr_snapshot_free(sv->kept);
    sv->kept = NULL;
    sv->admin = sr_open(sv->s, "10.0.0.99:1");
    if (sv->rights)
        sim_server_ask(sv, "%s", sv->rights);
    sim_server_settle(sv);
}
