/* SPDX-License-Identifier: MIT
 *
 * client_name.c - connection names, which map a client's UUID to host, process
 * and program.
 *
 * Thread  any; there is no state.
 * Locks   none.
 *
 * How     connect.c names every connection dibs/UUID/HOST/PID/PROGRAM. An owner
 *         is UUID:n, so CLIENT LIST shows its host, process and the age of its
 *         connection. No key is written for that.
 *
 * Trust   A name is an unverified claim of a client, for display only. Texts
 *         are truncated, and bytes other than printable ASCII become '?', so
 *         that no name can control a terminal.
 */
#include "client/observe/client_name.h"

#include <ctype.h>
#include <errno.h> /* program_invocation_short_name */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX     "dibs/"
#define PID_DIGITS 10
#define AGE_DIGITS 12

/* ---- the name of this client ------------------------------------------- */

/* CLIENT SETNAME takes printable ASCII without blanks; a slash would end the
 * part. */
static void clean_part(char *text, bool slashes)
{
    for (char *p = text; *p; p++)
        if (*p <= ' ' || *p > '~' || (*p == '/' && !slashes))
            *p = '_';
}

void dibs__client_name_format(const char *id, const char *program,
                              char out[DIBS__CLIENT_NAME_MAX])
{
    char host[DIBS__CLIENT_INFO_TEXT_MAX], part[257];

    if (gethostname(host, sizeof host) != 0 || !host[0])
        snprintf(host, sizeof host, "unknown");
    host[sizeof host - 1] = '\0';
    clean_part(host, false);
    if (!program)
        program = program_invocation_short_name;
    snprintf(part, sizeof part, "%s", *program ? program : "unknown");
    clean_part(part, true);
    snprintf(out, DIBS__CLIENT_NAME_MAX, PREFIX "%s/%s/%ld/%s", id, host,
             (long)getpid(), part);
}

/* ---- names in CLIENT LIST ---------------------------------------------- */

void dibs__client_list_command(struct dibs__buf *out)
{
    dibs__buf_array(out, 4);
    dibs__buf_arg_text(out, "CLIENT");
    dibs__buf_arg_text(out, "LIST");
    dibs__buf_arg_text(out, "TYPE");
    dibs__buf_arg_text(out, "normal");
}

static bool is_uuid(const char *text)
{
    static const char pattern[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

    for (size_t i = 0; i < sizeof pattern - 1; i++)
        if (pattern[i] == 'x' ? !isxdigit((unsigned char)text[i])
                              : text[i] != pattern[i])
            return false;
    return true;
}

bool dibs__client_id_of_owner(const char *owner,
                              char out[DIBS__CLIENT_ID_LEN + 1])
{
    if (!is_uuid(owner) || owner[DIBS__CLIENT_ID_LEN] != ':')
        return false;
    memcpy(out, owner, DIBS__CLIENT_ID_LEN);
    out[DIBS__CLIENT_ID_LEN] = '\0';
    return true;
}

static void copy_clean(char out[DIBS__CLIENT_INFO_TEXT_MAX], const char *from,
                       size_t len)
{
    if (len >= DIBS__CLIENT_INFO_TEXT_MAX)
        len = DIBS__CLIENT_INFO_TEXT_MAX - 1;
    for (size_t i = 0; i < len; i++)
        out[i] = '?';
    for (size_t i = 0; i < len; i++)
        if (from[i] >= ' ' && from[i] <= '~')
            out[i] = from[i];
    out[len] = '\0';
}

/* Digits only. Returns false for another character and for more than `most`
 * digits. */
static bool read_digits(const char *at, size_t len, size_t most, int64_t *out)
{
    *out = 0;
    if (len == 0 || len > most)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (at[i] < '0' || at[i] > '9')
            return false;
        *out = *out * 10 + (at[i] - '0');
    }
    return true;
}

/* Returns the value of a field, which ends at the next space, or NULL. */
static const char *find_field(const char *text, size_t len, const char *name,
                              size_t *size)
{
    const char *at = memmem(text, len, name, strlen(name));

    if (!at)
        return NULL;
    at += strlen(name);
    size_t rest = len - (size_t)(at - text);
    const char *end = memchr(at, ' ', rest);
    *size = end ? (size_t)(end - at) : rest;
    return at;
}

/* UUID/HOST/PID/PROGRAM */
static bool read_name(const char *at, size_t len,
                      struct dibs__client_list_row *out)
{
    const char *end = at + len;

    if (len < DIBS__CLIENT_ID_LEN + 1 || !is_uuid(at) ||
        at[DIBS__CLIENT_ID_LEN] != '/')
        return false;
    const char *host = at + DIBS__CLIENT_ID_LEN + 1;
    const char *pid = memchr(host, '/', (size_t)(end - host));
    if (!pid)
        return false;
    copy_clean(out->who.host, host, (size_t)(pid - host));
    pid++;
    const char *program = memchr(pid, '/', (size_t)(end - pid));
    if (!program ||
        !read_digits(pid, (size_t)(program - pid), PID_DIGITS, &out->who.pid))
        return false;
    program++;
    copy_clean(out->who.program, program, (size_t)(end - program));
    memcpy(out->id, at, DIBS__CLIENT_ID_LEN);
    out->id[DIBS__CLIENT_ID_LEN] = '\0';
    return true;
}

bool dibs__client_list_parse(const char *text, size_t len,
                             struct dibs__client_list_row *out)
{
    size_t n;
    const char *at = find_field(text, len, " name=" PREFIX, &n);

    *out = (struct dibs__client_list_row){.id = ""};
    if (!at || !read_name(at, n, out))
        return false;
    out->who.known = true;
    at = find_field(text, len, " age=", &n);
    if (at && read_digits(at, n, AGE_DIGITS, &out->who.age_ms))
        out->who.age_ms *= 1000;
    else
        out->who.age_ms = 0;
    at = find_field(text, len, " addr=", &n);
    copy_clean(out->who.address, at ? at : "", at ? n : 0);
    return true;
}

void dibs__client_info_merge(struct dibs__client_info *into,
                             const struct dibs__client_info *from)
{
    if (!into->known || from->age_ms > into->age_ms)
        *into = *from;
}

dibs_who dibs__client_info_public(const struct dibs__client_info *w)
{
    return (dibs_who){
        .host = w->host,
        .program = w->program,
        .address = w->address,
        .pid = w->pid,
        .age_ms = w->age_ms,
    };
}
