# SPDX-License-Identifier: MIT
# Completion of dibs(1) for bash.

# The names of held locks, on the server that the line names: the words of the
# line. Names with blanks need quoting and are left out. Nothing of the line is
# evaluated; a value in quotes loses them.
_dibs_locks() {
    local word value server=()
    while (($# > 0)); do
        word=$1
        shift
        case $word in
        --) break ;;
        -u | --url | --url-file | --password-file) value=${1-} ;;
        --url=* | --url-file=* | --password-file=*)
            value=${word#*=}
            word=${word%%=*}
            ;;
        *) continue ;;
        esac
        case $value in
        \'*\') value=${value:1:${#value}-2} ;;
        \"*\") value=${value:1:${#value}-2} ;;
        esac
        server+=("$word" "$value")
    done
    timeout 1 dibs "${server[@]}" ls 2>/dev/null | awk 'NR > 1 { print $1 }'
}

_dibs() {
    local cur prev words cword
    if declare -F _init_completion >/dev/null; then
        _init_completion -n : || return
    else
        words=("${COMP_WORDS[@]}")
        cword=$COMP_CWORD
        cur=${words[cword]}
        prev=${words[cword - 1]}
    fi
    # bash parts words at : and =, which URLs are full of. Its line does not.
    if [[ ${COMP_LINE-} ]]; then
        local line=${COMP_LINE:0:COMP_POINT}
        read -ra words <<<"$line"
        [[ $line != *[[:space:]] ]] || words+=('')
        cword=$((${#words[@]} - 1))
        cur=${words[cword]}
        prev=${words[cword - 1]}
    fi

    local global="-u --url --url-file --password-file -q --quiet -v --verbose
        --log -h --help -V --version"
    local take="-n --no-wait -w --wait --fair -s --shared -x --exclusive --multi --quorum --lease --no-renew --max-hold --min-hold --replicas
        -E --busy-code --ok-if-busy --any-name --status-fd"
    local commands="run hold info queue ls force-unlock doctor local version help"

    # Which subcommand, and are we behind its "--"?
    local i command= takes_value='^(-[uwtkEc]|--(url|url-file|password-file|log|wait|lease|max-hold|min-hold|max-run|kill-after|on-lost|command|busy-code|status-fd|if-owner|multi|quorum|replicas))$'
    local names=0
    for ((i = 1; i < cword; i++)); do
        if [[ ${words[i]} == -- ]]; then
            if [[ $command == run ]]; then
                if declare -F _command_offset >/dev/null; then
                    _command_offset $((i + 1))
                else
                    COMPREPLY=($(compgen -c -f -- "$cur"))
                fi
            fi
            return
        elif [[ ${words[i]} =~ $takes_value ]]; then
            ((i++))
        elif [[ ${words[i]} != -* ]]; then
            if [[ -z $command ]]; then command=${words[i]}; else ((names++)); fi
        fi
    done

    case $prev in
    --url-file | --password-file)
        COMPREPLY=($(compgen -f -- "$cur"))
        return
        ;;
    --log)
        COMPREPLY=($(compgen -W "text json" -- "$cur"))
        return
        ;;
    --replicas)
        COMPREPLY=($(compgen -W "0 1 2 all" -- "$cur"))
        return
        ;;
    --on-lost)
        COMPREPLY=($(compgen -W "term kill warn exec: HUP INT USR1 USR2" -- "$cur"))
        return
        ;;
    esac
    [[ $prev =~ $takes_value ]] && return

    local name options=$global
    case $command in
    '')
        [[ $cur == -* ]] || options=$commands
        ;;
    run)
        options+=" $take -t --max-run -k --kill-after --on-lost -c --command
            --foreground"
        ;;
    hold) options+=" $take --no-stdin --json" ;;
    info | queue | ls) options+=" --json" ;;
    force-unlock) options+=" --yes --if-owner --json" ;;
    doctor) options+=" --json --lease" ;;
    local) options+=" --force --json" ;;
    esac
    if [[ $cur != -* && $names -eq 0 ]]; then
        case $command in
        run | hold | info | queue | force-unlock | doctor)
            # Names are anybody's: compgen -W would expand what is in them.
            while IFS= read -r name; do
                [[ $name == "$cur"* ]] && COMPREPLY+=("$(printf %q "$name")")
            done < <(_dibs_locks "${words[@]:1:cword-1}")
            if [[ ${COMP_LINE-} && $cur == *:* && ${COMP_WORDBREAKS-} == *:* ]]; then
                # Only what is behind the last : is replaced.
                COMPREPLY=("${COMPREPLY[@]#"${cur%"${cur##*:}"}"}")
            fi
            return
            ;;
        local) options="status stop" ;;
        help) options=$commands ;;
        esac
    elif [[ $cur != -* && $command == run ]]; then
        options=--
    fi
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
} &&
    complete -F _dibs dibs
