/* SPDX-License-Identifier: MIT
 *
 * subverbs.c - subcommands with a verb: slots, sem and latch.
 *
 *     dibs SUBCOMMAND VERB [options] NAME [NUMBER]
 *
 * A table has the verbs, whether a number follows the name, and which options
 * they take. When the words are placed, the name is the first of them, as it is
 * with every other subcommand.
 *
 * Thread  The first, before there is another.
 */
#include "args/subverbs.h"

#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "exit_codes.h"

enum {
    TAKES_WAIT = 1 << 0,
    TAKES_LEASE = 1 << 1,
    TAKES_OWNER = 1 << 2,
    TAKES_PERMITS = 1 << 3,
    TAKES_AS = 1 << 4,
    TAKES_DEADLINE = 1 << 5,
    TAKES_CODE = 1 << 6,
    TAKES_EXIST = 1 << 7
};

const struct verb verb_rows[] = {
    {CMD_SLOTS, "set", true, 1, 0, "dibs slots set db 3",
     "Say how many may hold it at once.", slots_set},
    {CMD_SLOTS, "info", false, 0, 0, "dibs slots info db",
     "Show how many slots there are, and who has them.", slots_info},
    {CMD_SEM, "set", true, 0, 0, "dibs sem set license 5",
     "Say how many permits there are, if nobody has.", sem_set},
    {CMD_SEM, "add", true, -DIBS_PERMITS_MAX, 0, "dibs sem add license 2",
     "Make permits; behind --, a negative number takes some away.", sem_add},
    {CMD_SEM, "acquire", false, 0,
     TAKES_WAIT | TAKES_LEASE | TAKES_PERMITS | TAKES_CODE,
     "dibs sem acquire --lease 30m license",
     "Take permits until their lease is over, and print a handle.",
     sem_acquire},
    {CMD_SEM, "release", false, 0, TAKES_OWNER,
     "dibs sem release --owner \"$handle\" license", "Give them back.",
     sem_release},
    {CMD_SEM, "drain", false, 0, 0, "dibs sem drain license",
     "Take away all permits that are free.", sem_drain},
    {CMD_SEM, "info", false, 0, 0, "dibs sem info license",
     "Show how many permits are free.", sem_info},
    {CMD_LATCH, "set", true, 0, TAKES_DEADLINE, "dibs latch set ready 3",
     "Close it until it was counted down so often.", latch_set},
    {CMD_LATCH, "down", false, 0, TAKES_AS, "dibs latch down --as web1 ready",
     "Count down by one.", latch_down},
    {CMD_LATCH, "wait", false, 0, TAKES_WAIT | TAKES_CODE | TAKES_EXIST,
     "dibs latch wait -w 5m ready", "Wait until it is open.", latch_wait},
    {CMD_LATCH, "info", false, 0, 0, "dibs latch info ready",
     "Show what is left.", latch_info},
    {0, NULL, false, 0, 0, NULL, NULL, NULL},
};

/* "set, info". */
static char *verb_names(const struct command *cmd)
{
    struct out_text t;
    bool more = false;

    if (!out_text_open(&t))
        return NULL;
    for (const struct verb *v = verb_rows; v->name; v++) {
        if (v->command != cmd->bit)
            continue;
        fprintf(t.f, "%s%s", more ? ", " : "", v->name);
        more = true;
    }
    return out_text_close(&t);
}

const struct verb *verb_find(const struct command *cmd, const char *name)
{
    for (const struct verb *v = verb_rows; v->name; v++)
        if (v->command == cmd->bit && strcmp(v->name, name) == 0)
            return v;
    return NULL;
}

/* Options that not all verbs take. */
static const struct {
    const char *option;
    unsigned bit;
} taken[] = {
    {"wait", TAKES_WAIT},         {"no-wait", TAKES_WAIT},
    {"lease", TAKES_LEASE},       {"owner", TAKES_OWNER},
    {"permits", TAKES_PERMITS},   {"as", TAKES_AS},
    {"deadline", TAKES_DEADLINE}, {"busy-code", TAKES_CODE},
};

bool verb_takes(const struct verb *v, const char *option)
{
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcmp(taken[i].option, option) == 0)
            return (v->takes & taken[i].bit) != 0;
    return true;
}

int verb_unknown(const struct command *cmd, const char *word)
{
    if ((cmd->bit & CMD_VERBS) == 0)
        return args_wrong(command_find("help"), cmd->example,
                          "'%s' has no verbs: '%s' is one word too many",
                          cmd->name, word);
    char *names = verb_names(cmd);
    int code = args_wrong(cmd, cmd->example, "'%s' is not one of %s", word,
                          names ? names : "its verbs");

    free(names);
    return code;
}

/* A whole number from least to the most permits that can be. */
static bool read_number(const char *text, int64_t least, int64_t *out)
{
    char *end;

    if (!*text || strspn(text, "-0123456789") != strlen(text) ||
        strlen(text) > 12)
        return false;
    *out = strtoll(text, &end, 10);
    return *end == '\0' && *out >= least && *out <= DIBS_PERMITS_MAX;
}

static int place_number(struct args *a, const struct command *cmd,
                        const struct verb *v)
{
    if (!v->number && a->n_words > 1)
        return args_wrong(cmd, v->example, "unexpected word '%s'", a->words[1]);
    if (!v->number)
        return EXIT_FINE;
    if (a->n_words < 2)
        return args_wrong(cmd, v->example, "the number is missing");
    if (!read_number(a->words[1], v->least, &a->number))
        return args_wrong(cmd, v->example,
                          "'%s' is not a number from %lld to %lld", a->words[1],
                          (long long)v->least, (long long)DIBS_PERMITS_MAX);
    return EXIT_FINE;
}

/* An option that the verb does not take would have no effect. */
static int check_options(const struct args *a, const struct command *cmd,
                         const struct verb *v)
{
    const struct {
        bool given;
        unsigned bit;
        const char *name;
    } rows[] = {
        {a->wait_ms != NOT_GIVEN, TAKES_WAIT, a->wait_ms == 0 ? "-n" : "-w"},
        {a->lease_ms != NOT_GIVEN, TAKES_LEASE, "--lease"},
        {a->owner != NULL, TAKES_OWNER, "--owner"},
        {a->permits > 0, TAKES_PERMITS, "--permits"},
        {a->as != NULL, TAKES_AS, "--as"},
        {a->deadline_ms > 0, TAKES_DEADLINE, "--deadline"},
        {a->busy_code != EXIT_BUSY, TAKES_CODE, "-E"},
        {a->of > 0, TAKES_EXIST, "--of"},
        {a->must_exist, TAKES_EXIST, "--must-exist"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given && !(v->takes & rows[i].bit))
            return args_wrong(cmd, v->example, "%s has no effect with '%s %s'",
                              rows[i].name, cmd->name, v->name);
    if ((v->takes & TAKES_LEASE) && a->lease_ms == NOT_GIVEN)
        return args_wrong(cmd, v->example,
                          "--lease is missing: nobody renews these permits, "
                          "they come back then");
    if (a->of > 0 && a->must_exist)
        return args_wrong(cmd, "dibs latch wait --of 3 ready",
                          "--of and --must-exist cannot be used together");
    if ((v->takes & TAKES_OWNER) && !a->owner)
        return args_wrong(cmd, v->example, "--owner is missing");
    return EXIT_FINE;
}

int verbs_place(struct args *a, const struct command *cmd)
{
    if ((cmd->bit & CMD_VERBS) == 0)
        return EXIT_FINE;
    if (a->n_words == 0) {
        char *names = verb_names(cmd);
        int code = args_wrong(cmd, cmd->example, "the verb is missing: %s",
                              names ? names : "");
        free(names);
        return code;
    }
    const struct verb *v = verb_find(cmd, a->words[0]);
    if (!v)
        return verb_unknown(cmd, a->words[0]);
    a->verb = v;
    a->n_words--;
    for (int i = 0; i < a->n_words; i++)
        a->words[i] = a->words[i + 1];
    if (a->n_words == 0)
        return args_wrong(cmd, v->example, "the NAME is missing");
    int code = place_number(a, cmd, v);
    return code == EXIT_FINE ? check_options(a, cmd, v) : code;
}

int verbs_run(const struct args *a)
{
    return a->verb->run(a);
}
