/* SPDX-License-Identifier: MIT
 *
 * parse_value.c - reads the values of options: times, numbers, signals.
 *
 * A value is taken whole or refused; nothing is guessed from half of it. Zero
 * often means "no limit", so a time that is too small to tell from zero is
 * rounded up, and one that is too large is refused and not cut.
 *
 * Thread  Any; nothing is shared.
 */
#include "args/parse_value.h"

#include <ctype.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include <dibs/dibs.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const struct {
    const char *suffix;
    int64_t ms;
} units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000},
};

#define BARE_MS INT64_C(1000) /* a bare number is seconds, as for flock(1) */

static const char too_long[] = "is longer than a thousand years";
static const char no_time[] = "is not a time such as 500ms, 10s, 2m or 1h30m";

/* The unit with these letters; 0: there is none. */
static int64_t unit_ms(const char *letters, size_t len)
{
    for (size_t i = 0; i < COUNT(units); i++)
        if (strlen(units[i].suffix) == len &&
            memcmp(letters, units[i].suffix, len) == 0)
            return units[i].ms;
    return 0;
}

/* The part behind the point, in ms, rounded up. *at ends behind the digits. */
static int64_t fraction_ms(const char **at, int64_t unit)
{
    const char *s = *at;
    int64_t scale = 1, value = 0;
    bool rest = false;

    for (; isdigit((unsigned char)*s); s++) {
        if (scale < 1000000000) { /* enough for the smallest part of a day */
            value = value * 10 + (*s - '0');
            scale *= 10;
        } else if (*s != '0') {
            rest = true;
        }
    }
    *at = s;
    /* value < 1e9 and unit < 1e8, so the product fits. */
    int64_t whole = value * unit / scale;
    return whole + (rest || value * unit % scale != 0 ? 1 : 0);
}

/* One number with its unit. */
struct part {
    int64_t value;      /* of the digits before the point */
    const char *digits; /* those behind it, or NULL */
    int64_t unit;       /* in ms; 0: it has none */
};

/* *at ends behind it. NULL, or what is wrong. */
static const char *read_part(const char **at, struct part *p)
{
    const char *s = *at, *from = s;

    *p = (struct part){.value = 0};
    for (; isdigit((unsigned char)*s); s++) {
        if (p->value > DIBS_MS_MAX)
            return too_long;
        p->value = p->value * 10 + (*s - '0');
    }
    bool number = s > from;
    if (*s == '.') {
        p->digits = ++s;
        s += strspn(s, "0123456789");
        number = number || s > p->digits;
    }
    if (!number)
        return *s == '-' || *s == '+' ? "has a sign in it; write 1h30m"
                                      : no_time;
    size_t len = 0;
    while (isalpha((unsigned char)s[len]))
        len++;
    p->unit = unit_ms(s, len);
    if (len > 0 && p->unit == 0)
        return no_time;
    *at = s + len;
    return NULL;
}

/* Adds it up. */
static const char *add_part(const struct part *p, int64_t unit, int64_t *total)
{
    const char *digits = p->digits;

    if (p->value > DIBS_MS_MAX / unit)
        return too_long;
    *total += p->value * unit;
    if (digits)
        *total += fraction_ms(&digits, unit);
    return *total > DIBS_MS_MAX ? too_long : NULL;
}

const char *value_time(const char *text, int64_t *ms)
{
    const char *s = text, *why = NULL;
    int64_t total = 0, last = INT64_MAX;
    struct part p = {.value = 0};

    if (*s == '-' && (isdigit((unsigned char)s[1]) || s[1] == '.'))
        return "is negative";
    do {
        if (p.digits)
            return "has a fraction before its last part; write 1h30m";
        why = read_part(&s, &p);
        if (why)
            return why;
        if (p.unit == 0 && (last != INT64_MAX || *s))
            return *s == '\0' ? "has a number without a unit; write 1h30m"
                              : no_time;
        int64_t unit = p.unit > 0 ? p.unit : BARE_MS;
        if (unit == last)
            return "has a unit twice; write 1h30m";
        if (unit > last)
            return "has its units in the wrong order; write 1h30m";
        last = unit;
        why = add_part(&p, unit, &total);
    } while (!why && *s);
    if (!why)
        *ms = total;
    return why;
}

bool value_number(const char *text, int max, int *out)
{
    int value = 0;

    if (!*text)
        return false;
    for (const char *s = text; *s; s++) {
        if (!isdigit((unsigned char)*s) || value > (max - (*s - '0')) / 10)
            return false;
        value = value * 10 + (*s - '0');
    }
    *out = value;
    return true;
}

bool value_count(const char *text, int64_t max, int64_t *out)
{
    int64_t value = 0;

    for (const char *s = text; *s; s++) {
        if (!isdigit((unsigned char)*s) || value > (max - (*s - '0')) / 10)
            return false;
        value = value * 10 + (*s - '0');
    }
    if (value == 0)
        return false;
    *out = value;
    return true;
}

bool value_replicas(const char *text, int *out)
{
    if (strcmp(text, "all") != 0)
        return value_number(text, INT_MAX, out);
    *out = DIBS_REPLICAS_ALL;
    return true;
}

bool value_signal(const char *text, int *sig)
{
    int number;

    if (value_number(text, SIGRTMAX, &number) && number > 0) {
        *sig = number;
        return true;
    }
    if (strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    for (int i = 1; i < SIGRTMIN; i++) {
        const char *name = sigabbrev_np(i);

        if (name && strcasecmp(name, text) == 0) {
            *sig = i;
            return true;
        }
    }
    return false;
}

bool value_on_lost(const char *text, struct on_lost *out)
{
    struct on_lost lost = {.kind = LOST_SIGNAL};

    if (strcmp(text, "warn") == 0) {
        lost.kind = LOST_WARN;
    } else if (strncmp(text, "exec:", 5) == 0 && text[5] != '\0') {
        lost.kind = LOST_EXEC;
        lost.command = text + 5;
    } else if (!value_signal(text, &lost.sig)) {
        return false;
    }
    *out = lost;
    return true;
}
