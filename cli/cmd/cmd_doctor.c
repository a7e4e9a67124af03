/* SPDX-License-Identifier: MIT
 *
 * cmd_doctor.c - dibs doctor: what this server means for locks.
 *
 * One line for each finding, the verdict first; with --json one object, and
 * only when all of it is known. A problem makes the exit code 1, so that a
 * deployment can end with it; warnings and notes do not.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <stdlib.h>
#include <string.h>

#include "args/config_file.h"
#include "exit_codes.h"
#include "inspect/lock_query.h"
#include "server/server_select.h"

#define EXIT_PROBLEM 1

static const struct {
    const char *word;
    enum out_color color;
} verdicts[] = {
    [DIBS_VERDICT_OK] = {"ok", COLOR_GOOD},
    [DIBS_VERDICT_NOTE] = {"note", COLOR_HEAD},
    [DIBS_VERDICT_WARNING] = {"warning", COLOR_BUSY},
    [DIBS_VERDICT_PROBLEM] = {"problem", COLOR_BAD},
};

struct findings {
    const struct args *a;
    dibs_verdict worst;
    bool colored;
    struct json *j; /* NULL: as text */
    struct target_server server;
};

static bool print_finding(const char *check, dibs_verdict verdict,
                          const char *text, void *arg)
{
    struct findings *all = arg;
    struct json item;

    if (verdict > all->worst)
        all->worst = verdict;
    if (all->j) {
        json_list_next(all->j, &item);
        json_text(&item, "check", check);
        json_text(&item, "verdict", verdicts[verdict].word);
        json_text(&item, "text", text);
        json_close(&item);
        return true;
    }
    char *shown = out_printable(text, strlen(text)); /* some is the server's */
    printf("%s%-8s%s %-12s %s\n",
           out_color(all->colored, verdicts[verdict].color),
           verdicts[verdict].word, out_color(all->colored, COLOR_PLAIN), check,
           shown ? shown : "");
    free(shown);
    return true;
}

static void print_setting(const char *text, void *arg)
{
    (void)print_finding("settings", DIBS_VERDICT_OK, text, arg);
}

/* A user who forgets the URL on two machines has two servers. JSON has the
 * address in a field of its own. */
static void examine_address(struct findings *all)
{
    const char *url = all->server.url ? all->server.url : "?";
    char *text = NULL;

    if (!all->server.private && !all->j)
        print_finding("server", DIBS_VERDICT_OK, url, all);
    if (all->server.private &&
        asprintf(&text,
                 "private, as no URL was given: %s; other users and other "
                 "machines do not share its locks",
                 url) >= 0)
        print_finding("server", DIBS_VERDICT_NOTE, text, all);
    free(text);
}

static dibs_err examine_server(dibs_client *c, const char *name,
                               struct findings *all)
{
    examine_address(all);
    if (all->a->verbose)
        settings_explain(all->a, print_setting, all);
    return dibs_client_doctor(c, name, print_finding, all);
}

static dibs_err as_text(dibs_client *c, const char *name, struct findings *all)
{
    all->colored = out_colored(stdout);
    return examine_server(c, name, all);
}

static dibs_err as_json(dibs_client *c, const char *name, struct findings *all)
{
    struct out_text text;
    struct json j;

    if (!out_text_open(&text))
        return DIBS_ERR_NOMEM;
    json_open(&j, text.f);
    all->j = &j;
    json_list_open(&j, "checks");
    dibs_err err = examine_server(c, name, all);
    json_list_close(&j);
    json_text(&j, "verdict", verdicts[all->worst].word);
    json_text(&j, "server", all->server.url);
    json_close(&j);
    putc('\n', text.f);
    return out_text_print(&text, err);
}

int cmd_doctor(const struct args *a)
{
    const char *name = a->n_words > 0 ? a->words[0] : NULL;
    struct findings all = {.a = a, .worst = DIBS_VERDICT_OK};
    dibs_client *c;
    int code = target_look(a, &c, &all.server);

    if (code == EXIT_FINE && !c) {
        out_tell(OUT_ERROR, "server",
                 "there is no server to examine: no URL was given, and the "
                 "private server does not run");
        target_server_clear(&all.server);
        return EXIT_SERVER;
    }
    if (code == EXIT_FINE) {
        dibs_err err = (a->json ? as_json : as_text)(c, name, &all);
        if (err != DIBS_OK)
            query_failed("cannot examine the server", err);
        code = out_exit_of(err);
    }
    dibs_client_free(c);
    target_server_clear(&all.server);
    if (code == EXIT_FINE && all.worst == DIBS_VERDICT_PROBLEM)
        code = EXIT_PROBLEM;
    return out_finish(code);
}
