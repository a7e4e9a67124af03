/* SPDX-License-Identifier: MIT
 *
 * glob.c - glob patterns with the rules of Redis.
 *
 * Thread  any.
 *
 * How     A star first matches no bytes. On a mismatch, the matcher backtracks
 *         to the last star, which then matches one more byte. Earlier stars
 *         need no retry, so the time is O(pattern length * text length).
 */
#include "base/glob.h"

/* Reads one byte of the pattern, with an optional backslash before it. */
static const char *literal_byte(const char *p, unsigned char *out)
{
    if (*p == '\\' && p[1])
        p++;
    *out = (unsigned char)*p;
    return p + 1;
}

/* p is after the opening bracket. Returns the closing bracket, or the end of
 * the pattern if there is none. *in: whether c is in the set. A range may end
 * with a bracket. */
static const char *match_set(const char *p, unsigned char c, bool *in)
{
    bool not_in = *p == '^', found = false;

    p += not_in;
    while (*p && *p != ']') {
        unsigned char low, high;
        if (*p != '\\' && p[1] == '-' && p[2]) {
            low = (unsigned char)p[0];
            high = (unsigned char)p[2];
            p += 3;
        } else {
            p = literal_byte(p, &low);
            high = low;
        }
        found |= low <= high ? c >= low && c <= high : c >= high && c <= low;
    }
    *in = found != not_in;
    return p;
}

/* Matches one byte against the next pattern element, which is no star. Returns
 * the pattern after it; NULL: no match. */
static const char *match_byte(const char *p, unsigned char c)
{
    unsigned char want;
    bool in = true;

    if (!*p)
        return NULL;
    if (*p == '?')
        return p + 1;
    if (*p == '[') {
        p = match_set(p + 1, c, &in);
        return in ? p + (*p == ']') : NULL;
    }
    p = literal_byte(p, &want);
    return want == c ? p : NULL;
}

bool dibs__glob_match(const char *pattern, const char *text, size_t len)
{
    const char *p = pattern, *star = NULL;
    size_t at = 0, from = 0; /* where the last star's bytes end */

    while (at < len) {
        const char *next;
        if (*p == '*') {
            star = ++p;
            from = at;
        } else if ((next = match_byte(p, (unsigned char)text[at]))) {
            p = next;
            at++;
        } else if (star) {
            p = star;
            at = ++from;
        } else {
            return false;
        }
    }
    while (*p == '*')
        p++;
    return !*p;
}

bool dibs__glob_open(const char *pattern)
{
    bool unused;

    for (const char *p = pattern; *p; p++) {
        if (*p == '[')
            p = match_set(p + 1, 0, &unused);
        else if (*p == '\\')
            p++;
        if (!*p)
            return true;
    }
    return false;
}
