/* SPDX-License-Identifier: MIT
 *
 * owner_info.c - who an owner is: host, pid, program, and since when.
 *
 * Clients of dibs tell that by the names of their connections. Not known are
 * Redisson's clients, owners that are not connected, and all of them if our
 * user has no right to CLIENT LIST. Then the owner is shown by itself.
 *
 * The time is the age of the owner's connection: a client that has lost it and
 * connected again looks younger than it is.
 *
 * Thread  Any.
 */
#include "inspect/owner_info.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void who_copy(struct who *w, const dibs_who *from)
{
    *w = (struct who){.known = from != NULL};
    if (!from)
        return;
    snprintf(w->host, sizeof w->host, "%s", from->host);
    snprintf(w->program, sizeof w->program, "%s", from->program);
    snprintf(w->address, sizeof w->address, "%s", from->address);
    w->pid = from->pid;
    w->age_ms = from->age_ms;
}

static bool copy_known(size_t index, const dibs_who *who, void *arg)
{
    struct who *all = arg;

    who_copy(&all[index], who);
    return true;
}

void who_ask(dibs_client *c, const char *const owners[], struct who out[],
             size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (struct who){.known = false};
    dibs_err err =
        n > 0 ? dibs_client_who(c, owners, n, copy_known, out) : DIBS_OK;
    if (err != DIBS_OK)
        out_tell(OUT_INFO, "who", "cannot tell who the owners are: %s",
                 dibs_strerror(err));
}

/* Whole units. */
static const char *age_text(int64_t ms, char buf[OUT_SPAN_MAX])
{
    int64_t s = ms / 1000;

    if (s < 60)
        snprintf(buf, OUT_SPAN_MAX, "%" PRId64 " s", s);
    else if (s < 3600)
        snprintf(buf, OUT_SPAN_MAX, "%" PRId64 " min", s / 60);
    else if (s < 2 * 86400)
        snprintf(buf, OUT_SPAN_MAX, "%" PRId64 " h", s / 3600);
    else
        snprintf(buf, OUT_SPAN_MAX, "%" PRId64 " days", s / 86400);
    return buf;
}

const char *who_text(const struct who *w, char buf[WHO_TEXT_MAX])
{
    char age[OUT_SPAN_MAX];

    buf[0] = '\0';
    if (w->known)
        snprintf(buf, WHO_TEXT_MAX, "%s, pid %" PRId64 ", %s, %s", w->host,
                 w->pid, w->program, age_text(w->age_ms, age));
    return buf;
}

const char *owner_describe(const struct who *w, char buf[WHO_TEXT_MAX])
{
    char text[WHO_TEXT_MAX];

    buf[0] = '\0';
    if (w->known)
        snprintf(buf, WHO_TEXT_MAX, " (%.*s)", WHO_TEXT_MAX - 4,
                 who_text(w, text));
    return buf;
}

void who_json(struct json *j, const struct who *w)
{
    struct json item;

    if (!w->known) {
        json_null(j, "who");
        return;
    }
    json_any(j, "who");
    json_open(&item, j->f);
    json_text(&item, "host", w->host);
    json_int(&item, "pid", w->pid);
    json_text(&item, "program", w->program);
    json_text(&item, "address", w->address);
    json_int(&item, "age_ms", w->age_ms);
    json_close(&item);
}

void who_program(const char *path, char buf[WHO_PART_MAX])
{
    const char *slash = strrchr(path, '/');
    const char *base = slash && slash[1] ? slash + 1 : path;

    snprintf(buf, WHO_PART_MAX, "%s", *base ? base : "dibs");
    for (char *p = buf; *p; p++)
        if (*p <= ' ' || *p > '~')
            *p = '_';
}
