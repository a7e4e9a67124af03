# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Completion: what "dibs complete" answers, and what bash, zsh and fish make of
# it. Shells that are not installed are passed over, and that is told.

server main
export DIBS_URL=$url
x=1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b
redis main hset only-here "$x:1" 1 >/dev/null
redis main hset 'two words' "$x:1" 1 >/dev/null
mkdir -p path
ln -sf "$DIBS" path/dibs
PATH=$T/path:$PATH
completions=$(cd "$HERE/../../completions" && pwd)

# offers 'LINE' WORDS...: the answer, tabs and descriptions taken off, on a line.
offers() {
    local want=$1
    shift
    case_is "dibs $*"
    ran 0 dibs complete "$@"
    same answer "$want" "$(cut -f 1 <<<"$out" | paste -sd ' ')"
    same stderr '' "$err"
}

offers 'words run' ru
offers 'words run hold acquire extend release info queue ls watch top wait metrics force-unlock doctor slots sem latch acl local completion version help' ''
offers 'words --fair --fair-call' run --fa
offers 'words --url --url-file' --ur
offers 'words' --fa
offers 'words kill' run --on-lost k
offers 'words --on-lost=term' run --on-lost=t
offers 'words text json' --log ''
offers 'files' run --url-file ''
offers 'words only-here' info on
offers 'words only-here' run -n --lease 1m ''
offers 'words only-here' run -u "$url" on
offers 'words only-here' run "--url=$url" on
offers 'words a,only-here' run --multi a,on
offers 'words --' run only-here ''
offers 'words status stop' local ''
offers 'words queue' help qu
offers 'command 4' run job -- rs
offers 'command 4' run job -- rsync -a ''
offers 'words' info job -- x
offers 'words' no-such ''
offers 'words' info -u unix:///no/such/socket ''
offers 'words' info --url-file /no/such/file ''
offers 'words' run -w ''

offers 'words bash zsh fish' completion ''

case_is 'dibs completion prints the scripts'
for row in bash=dibs.bash zsh=_dibs fish=dibs.fish; do
    ran 0 dibs completion ${row%=*}
    cmp -s out.txt "$completions/${row#*=}" || fail "$row"
done
ran 64 dibs completion csh
has stderr 'not one of bash, zsh and fish' "$err"

case_is 'a name that is not seen as it is'
redis main hset $'only-\xe2\x80\xaehere' "$x:1" 1 >/dev/null
ran 0 dibs complete info on
same answer $'words\nonly-here' "$out"
redis main del $'only-\xe2\x80\xaehere' >/dev/null

case_is 'not shown in the help'
ran 0 dibs help
case $out in *complete*) fail 'it is' ;; esac

if type bash >/dev/null; then
    case_is bash
    in_bash() { # LINE: prints what is offered for its end
        bash --norc -c '
            . "$1"
            COMP_LINE=$2 COMP_POINT=${#2}
            IFS=" " read -ra COMP_WORDS <<<"${2//[:=]/ & }"
            [[ $2 != *" " ]] || COMP_WORDS+=("")
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _dibs
            printf "%s\n" "${COMPREPLY[@]}"' - "$completions/dibs.bash" "$1"
    }
    ran 0 in_bash 'dibs info only-'
    same offered only-here "$out"
    ran 0 in_bash 'dibs run --on-lost=k'
    same offered kill "$out"
    ran 0 in_bash 'dibs run job -- redis-cl'
    has offered redis-cli "$out"
fi

if type fish >/dev/null 2>&1; then
    in_fish() { # LINE
        fish --no-config -c 'source $argv[1]; complete -C $argv[2]' \
            "$completions/dibs.fish" "$1"
    }
    case_is fish
    ran 0 in_fish 'dibs info only-'
    same offered only-here "$(cut -f 1 <<<"$out")"
    ran 0 in_fish 'dibs run --max-r'
    same offered $'--max-run\tStop the command after this time' "$out"
    ran 0 in_fish 'dibs run job -- redis-cl'
    has offered redis-cli "$out"
else
    echo 'complete: fish is not installed, its completion is not tried'
fi

if type zsh >/dev/null 2>&1; then
    # A real line editor: what is typed is completed by Tab, then run.
    cat >zpty.zsh <<'ZSH'
zmodload zsh/zpty
zpty shell "TERM=dumb zsh -f -i"
zpty -w shell "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; print READ\Y"
zpty -r shell seen '*READY*'
zpty -w -n shell $'dibs info only-\t\n'
zpty -r shell seen '*owner*' || exit 1
print -r -- $seen
zpty -w -n shell $'dibs run --max-r\t 1s only-free -- redis-cl\t --version\n'
zpty -r shell seen '*redis-cli [0-9]*' || exit 1
print -r -- $seen
zpty -d shell
ZSH
    case_is zsh
    ran 0 timeout $((30 * DIBS_TEST_SLOWNESS)) zsh -f zpty.zsh "$completions"
    has 'a name' only-here "$out"
    has 'an option and a command' 'redis-cli ' "$out"
else
    echo 'complete: zsh is not installed, its completion is not tried'
fi
