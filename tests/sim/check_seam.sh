#!/bin/bash
# Everything that the library asks of the system must be simulated, or be
# harmless: no waiting, no clock, no chance, no network. A new call that is
# neither would make a simulated run hang or differ from its replay; this finds
# it. Usage: check_seam.sh LIBDIBS_A
set -euo pipefail
library=$(readlink -e "$1") || { echo "check_seam: no $1" >&2; exit 2; }
cd "$(dirname "$0")"

harmless='
_GLOBAL_OFFSET_TABLE_ __assert_fail __ctype_b_loc __ctype_tolower_loc
__errno_location
epoll_create1 epoll_ctl
__isoc99_sscanf __isoc23_sscanf __isoc23_strtol __isoc23_strtoll
__isoc23_strtoull __tls_get_addr __stack_chk_fail abort explicit_bzero
gai_strerror getnameinfo inet_pton inet_ntop madvise memchr memcmp memcpy
memmove memrchr memset mmap mmap64 munmap open64 open stat stat64 pthread_once
qsort bsearch sigfillset snprintf vsnprintf sscanf strchr strrchr strcmp
strcspn strerror_r strlen strncmp strnlen strsep strspn strstr strtok_r strtol
strtoll strtoull strpbrk memmem tolower program_invocation_short_name
'
wrapped=$(sed -n '/set(DIBS_SIM_WRAPPED/,/^)/p' CMakeLists.txt |
    sed 's/set(DIBS_SIM_WRAPPED//; s/^)//')
bad=0
for symbol in $(nm "$library" 2>/dev/null | awk '$1 == "U" { print $2 }' | sort -u); do
    case $symbol in
    dibs_* | BIO_* | ERR_* | OPENSSL_* | SSL_* | TLS_* | X509_* | redisReader*)
        continue ;;
    esac
    if ! grep -qw -- "$symbol" <<<"$wrapped $harmless"; then
        echo "check_seam: $symbol is neither simulated nor known as harmless" >&2
        bad=1
    fi
done
[ $bad -eq 0 ] && echo "check_seam: the library asks for nothing else"
exit $bad
