/* SPDX-License-Identifier: MIT
 *
 * cmd_completion.c - dibs completion: the script that a shell needs to complete
 * command lines of dibs. The scripts are the files in completions/; the build
 * puts their text into the command (cmake/embed_text.cmake).
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <string.h>

#include "exit_codes.h"

extern const char completion_bash[], completion_zsh[], completion_fish[];

int cmd_completion(const struct args *a)
{
    const struct {
        const char *shell, *text;
    } rows[] = {
        {"bash", completion_bash},
        {"zsh", completion_zsh},
        {"fish", completion_fish},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].shell, a->words[0]) == 0) {
            fputs(rows[i].text, stdout);
            return out_finish(EXIT_FINE);
        }
    return args_wrong(command_find("completion"), "dibs completion bash",
                      "'%s' is not one of bash, zsh and fish", a->words[0]);
}
