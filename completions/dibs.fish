# SPDX-License-Identifier: MIT
# Completion of dibs(1) for fish. What can come next is known by the command:
# see cli/complete.c.

function __dibs_complete
    set -l words (commandline -opc)
    set -e words[1]
    set -l current (commandline -ct)
    set -l answer (dibs complete $words $current 2>/dev/null)
    switch "$answer[1]"
        case files
            __fish_complete_path $current
        case 'command *'
            set -l at (string replace 'command ' '' -- $answer[1])
            set -l rest $words[$at..-1] $current
            complete -C (string join ' ' -- (string escape -- $rest))
        case words
            printf '%s\n' $answer[2..-1]
    end
end

complete -c dibs -f -a '(__dibs_complete)'
