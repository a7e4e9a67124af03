/* SPDX-License-Identifier: MIT
 *
 * reason_kit.h - what the tests of reasons share: who heard what, where.
 */
#ifndef DIBS_TESTS_SERVER_REASON_KIT_H
#define DIBS_TESTS_SERVER_REASON_KIT_H

#include "server/kit.h"

#define WRONGTYPE                                                              \
    "'l' (or a key that belongs to it) is something else, or a lock of "       \
    "another kind"
#define HASTY_MS ts_ms(150)

/* ---- what was said ----------------------------------------------------- */

/* The last text of each kind of event. */
struct said {
    pthread_mutex_t mu;
    char text[DIBS_EVENT_REPLICAS + 1][512]; /* mu */
};
#define SAID                                                                   \
    {                                                                          \
        .mu = PTHREAD_MUTEX_INITIALIZER                                        \
    }

static inline void hear(const dibs_event *ev, void *arg)
{
    struct said *said = arg;

    pthread_mutex_lock(&said->mu);
    snprintf(said->text[ev->kind], sizeof said->text[0], "%s", ev->text);
    pthread_mutex_unlock(&said->mu);
}

static inline bool has_said(struct said *said, dibs_event_kind kind,
                            const char *text)
{
    pthread_mutex_lock(&said->mu);
    bool yes = strncmp(said->text[kind], text, strlen(text)) == 0;
    pthread_mutex_unlock(&said->mu);
    return yes;
}

struct read_text {
    struct told told;
    char text[512];
};

static inline void read_text(dibs_err err, void *arg)
{
    struct read_text *r = arg;

    snprintf(r->text, sizeof r->text, "%s", dibs_error_text());
    kit_tell(err, &r->told);
}

/* The call must end so, with a text that begins so. */
#define ENDS(call, want, address, words)                                       \
    ends((call), (want), (address), (words), __LINE__)

static inline void ends(dibs_err got, dibs_err want, const char *address,
                        const char *words, int line)
{
    char text[512];

    snprintf(text, sizeof text, "%s: %s", address, words);
    if (got != want || strncmp(dibs_error_text(), text, strlen(text)) != 0)
        fail_msg("line %d: %s: \"%s\", not \"%s\"", line, dibs_strerror(got),
                 dibs_error_text(), text);
}

#endif
