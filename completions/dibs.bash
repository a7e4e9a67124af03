# SPDX-License-Identifier: MIT
# Completion of dibs(1) for bash. What can come next is known by the command:
# see cli/complete.c.

_dibs() {
    local i word line answer=() words=() cword cur candidate
    # bash parts words at : and =, which URLs are full of. Its line does not.
    if [[ ${COMP_LINE-} ]]; then
        line=${COMP_LINE:0:COMP_POINT}
        read -ra words <<<"$line"
        [[ $line != *[[:space:]] ]] || words+=('')
    else
        words=("${COMP_WORDS[@]:0:COMP_CWORD+1}")
    fi
    cword=$((${#words[@]} - 1))
    cur=${words[cword]}
    # Nothing of the line is evaluated; a word in quotes loses them.
    for ((i = 1; i <= cword; i++)); do
        word=${words[i]}
        case $word in
        \'*\' | \"*\") words[i]=${word:1:${#word}-2} ;;
        esac
    done
    mapfile -t answer < <(dibs complete "${words[@]:1}" 2>/dev/null)

    COMPREPLY=()
    case ${answer[0]-} in
    files) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    command*)
        for ((i = 1; i < COMP_CWORD; i++)); do
            [[ ${COMP_WORDS[i]} != -- ]] || break
        done
        if declare -F _command_offset >/dev/null; then
            _command_offset $((i + 1))
        else
            mapfile -t COMPREPLY < <(compgen -c -f -- "$cur")
        fi
        ;;
    words)
        # Names of locks are anybody's: compgen -W would expand what is in them.
        for candidate in "${answer[@]:1}"; do
            COMPREPLY+=("$(printf %q "${candidate%%$'\t'*}")")
        done
        if [[ ${COMP_LINE-} && $cur == *[:=]* && ${COMP_WORDBREAKS-} == *[:=]* ]]; then
            # Only what is behind the last : or = is replaced.
            COMPREPLY=("${COMPREPLY[@]#"${cur%"${cur##*[:=]}"}"}")
        fi
        ;;
    esac
} &&
    complete -F _dibs dibs
