/* SPDX-License-Identifier: MIT
 *
 * option_table.c - the table of all options: which subcommands take them, where
 * their value goes, what it may be, and a sentence for the help.
 *
 * args.c reads a command line by it; help.c, suggest.c and complete.c use it,
 * too.
 */
#include "args/args.h"

#include <stddef.h>

#define AT(field) offsetof(struct args, field)

const struct option_row option_rows[] = {
    {'n', "no-wait", NULL, OPT_NOWAIT, AT(wait_ms),
     CMD_ASK | CMD_WAIT | CMD_SEM | CMD_LATCH, NULL,
     "Do not wait when the lock is taken."},
    {'w', "wait", "TIME", OPT_TIME, AT(wait_ms),
     CMD_ASK | CMD_WAIT | CMD_SEM | CMD_LATCH, "10s",
     "Wait at most this long, for the lock and for the server; 0 is -n. "
     "Default: wait for the lock without limit."},
    {0, "server-wait", "TIME", OPT_EVER, AT(server_wait_ms),
     CMD_ASK | CMD_LEFT | CMD_WAIT | CMD_VERBS, "forever",
     "Wait at most this long, or 'forever', for a server that does not answer "
     "at the start. Default: as -w says; without it, one attempt."},
    {0, "fair", NULL, OPT_FLAG, AT(fair), CMD_ASK, NULL,
     "A fair lock: those who ask first get it first."},
    {0, "fair-call", "TIME", OPT_TIME, AT(fair_call_ms), CMD_ASK, "5s",
     "With --fair: how long the free lock is kept for the first in the queue "
     "if that one is stopped and does not take it. Default 5s."},
    {'s', "shared", NULL, OPT_FLAG, AT(shared), CMD_ASK, NULL,
     "A read-write lock, to read: together with other -s, but not while "
     "somebody holds it with -x."},
    {'x', "exclusive", NULL, OPT_FLAG, AT(exclusive), CMD_ASK, NULL,
     "A read-write lock, to write: alone. Without -s, -x, -N and --fair the "
     "lock is a plain one, and exclusive, too. Use one kind for one name."},
    {0, "fence", NULL, OPT_FLAG, AT(fence), CMD_ASK, NULL,
     "A plain lock with a token, in $DIBS_TOKEN: a number that grows with each "
     "hold. What the lock protects can refuse an older one."},
    {'N', "slots", "N", OPT_COUNT, AT(slots), CMD_ASK, "3",
     "At most N hold it at a time. $DIBS_SLOT is the number of ours, from 0."},
    {0, "strict", NULL, OPT_FLAG, AT(strict), CMD_ASK, NULL,
     "With --slots: refuse if the server has another number of slots, instead "
     "of a warning."},
    {0, "spin", NULL, OPT_FLAG, AT(spin), CMD_ASK, NULL,
     "Ask again and again instead of listening for the release; for a server "
     "without pub/sub."},
    {0, "no-reentry", NULL, OPT_FLAG, AT(no_reentry), CMD_TAKE, NULL,
     "If a dibs run around this one holds the lock, do not go in: exit 75."},
    {0, "multi", "NAMES", OPT_TEXT, AT(multi), CMD_ASK | CMD_LEFT,
     "stock,orders",
     "Several locks at once, all or none, instead of NAME: names with commas "
     "between them."},
    {0, "quorum", "URLS", OPT_TEXT, AT(quorum), CMD_ASK | CMD_LEFT,
     "redis://a,redis://b,redis://c",
     "The lock on more than half of these independent servers (RedLock), "
     "instead of -u: three URLs or more, with commas between them."},
    {0, "lease", "TIME", OPT_TIME, AT(lease_ms),
     CMD_ASK | CMD_EXTEND | CMD_DOCTOR | CMD_SEM, "30s",
     "The server frees the lock this long after our last sign of life. Default "
     "30s, renewed while the command runs."},
    {0, "no-renew", NULL, OPT_FLAG, AT(no_renew), CMD_TAKE, NULL,
     "Do not renew: the lock ends with its lease. The command is stopped "
     "before that."},
    {0, "max-hold", "TIME", OPT_TIME, AT(max_hold_ms), CMD_TAKE, "1h",
     "Renew no longer than this. The command is stopped before the lock ends."},
    {0, "min-hold", "TIME", OPT_TIME, AT(min_hold_ms), CMD_TAKE, "1m",
     "Keep the lock taken for at least this long, also when the command ends "
     "sooner."},
    {0, "replicas", "N", OPT_REPLICAS, AT(replicas), CMD_ASK, "1",
     "This many replicas of the server must have the lock, too, or it is not "
     "taken: a number, or all that are connected. Default 0."},
    {0, "publish", "VALUE", OPT_TEXT, AT(publish), CMD_TAKE, "db1:8080",
     "Publish VALUE with the lock, as the address of a leader: 'dibs info' "
     "shows it to others while the lock is held. At most 4096 bytes."},
    {0, "release-wait", "TIME", OPT_EVER, AT(release_wait_ms), CMD_TAKE, "30s",
     "When the server does not confirm the release, try again for this long, "
     "but not longer than the lease; then exit 82. Default 30s."},
    {0, "ready", "WHEN", OPT_READY, AT(ready_waiting), CMD_TAKE, "waiting",
     "Under systemd: when the service counts as started: held (default), or "
     "waiting, as soon as dibs waits for the lock."},
    {0, "pass-notify", NULL, OPT_FLAG, AT(pass_notify), CMD_RUN, NULL,
     "Under systemd: leave NOTIFY_SOCKET to the command, and tell nothing."},
    {'t', "max-run", "TIME", OPT_TIME, AT(max_run_ms), CMD_RUN, "10m",
     "Stop the command after this time; exit 124. Default: no limit."},
    {'k', "kill-after", "TIME", OPT_TIME, AT(kill_after_ms), CMD_RUN, "5s",
     "The time from TERM to KILL when dibs stops the command. Default 5s; when "
     "the lock is being lost, a third of the lease at most."},
    {0, "on-lost", "WHAT", OPT_LOST, AT(on_lost), CMD_TAKE, "term",
     "What to do when the lock is being lost: term (default), kill, a signal's "
     "name, exec:CMD or warn. After all but warn, KILL follows before the "
     "lease ends."},
    {'c', "command", "STRING", OPT_TEXT, AT(shell), CMD_RUN,
     "'pg_dump db | gzip > db.gz'",
     "Run STRING with /bin/sh, instead of a command behind --."},
    {0, "foreground", NULL, OPT_FLAG, AT(foreground), CMD_RUN, NULL,
     "Leave the command in the process group of dibs, which then signals the "
     "command only and waits for it only."},
    {'E', "busy-code", "CODE", OPT_CODE, AT(busy_code),
     CMD_ASK | CMD_WAIT | CMD_SEM | CMD_LATCH, "75",
     "Exit code when the lock could not be taken in time. Default 75."},
    {0, "ok-if-busy", NULL, OPT_FLAG, AT(ok_if_busy), CMD_TAKE, NULL,
     "When the lock could not be taken in time, print nothing and exit 0."},
    {0, "any-name", NULL, OPT_FLAG, AT(any_name), CMD_ASK, NULL,
     "Accept a NAME with spaces or control characters."},
    {0, "no-stdin", NULL, OPT_FLAG, AT(no_stdin), CMD_HOLD, NULL,
     "Do not watch stdin: hold until a signal comes."},
    {0, "for-pid", "PID", OPT_PID, AT(for_pid), CMD_HOLD | CMD_RELEASE, "$$",
     "Hold in the background, until that process ends or 'dibs release' asks;"
     " exit 0 once it is held. For a shell script: $$."},
    {0, "status-fd", "N", OPT_FD, AT(status_fd), CMD_TAKE, "3",
     "At the end, write one line of JSON to descriptor N: how it ended, and "
     "why."},
    {0, "yes", NULL, OPT_FLAG, AT(yes), CMD_FORCE, NULL,
     "Yes, take the lock away from its holder."},
    {0, "if-owner", "OWNER", OPT_TEXT, AT(if_owner), CMD_FORCE,
     "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1",
     "Only if this owner, as 'dibs info' shows it, holds the lock."},
    {0, "owner", "HANDLE", OPT_TEXT, AT(owner), CMD_LEFT | CMD_SEM,
     "\"$handle\"", "The hold that 'dibs acquire' took: what it printed."},
    {0, "permits", "N", OPT_COUNT, AT(permits), CMD_SEM, "2",
     "With acquire: how many. Default 1."},
    {0, "as", "WHO", OPT_TEXT, AT(as), CMD_LATCH, "web1",
     "With down: count once for this name, however often it is sent."},
    {0, "deadline", "TIME", OPT_TIME, AT(deadline_ms), CMD_LATCH, "1h",
     "With set: open by itself after this time. Who waits then exits 75."},
    {0, "of", "N", OPT_COUNT, AT(of), CMD_LATCH, "3",
     "With wait: if nobody has set the latch, set it to N first."},
    {0, "must-exist", NULL, OPT_FLAG, AT(must_exist), CMD_LATCH, NULL,
     "With wait: if nobody has set the latch, exit 1; without this it counts "
     "as open."},
    {0, "kinds", "KINDS", OPT_TEXT, AT(kinds), CMD_ACL, "plain,fair",
     "Of these kinds only, with commas between them: plain, fair, rw, fence, "
     "slots, sem, latch, value, look, metrics, doctor, replicas, cluster. "
     "Default: all but the last four."},
    {0, "user", "NAME", OPT_TEXT, AT(user), CMD_ACL, "jobs",
     "The name of the user. Default dibs."},
    {0, "force", NULL, OPT_FLAG, AT(force), CMD_LOCAL, NULL,
     "Stop the private server even while locks are held."},
    {0, "every", "TIME", OPT_TIME, AT(every_ms), CMD_WATCH | CMD_TOP, "1s",
     "How often to ask the server. Default 1s; 'watch' of one lock: 250ms. "
     "With "
     "very many locks it is asked less often."},
    {'l', "long", NULL, OPT_FLAG, AT(all_columns), CMD_LS, NULL,
     "All columns: also how many hold it, how often the first of them does, "
     "and "
     "the owner as the server knows it."},
    {0, "json", NULL, OPT_FLAG, AT(json),
     CMD_LOOK | CMD_WATCH | CMD_HOLD | CMD_ACQUIRE | CMD_LEFT | CMD_LOCAL |
         CMD_DOCTOR | CMD_VERBS,
     NULL, "Answer in JSON."},
    {'u', "url", "URL", OPT_TEXT, AT(url), CMD_ALL, "redis://db1.example:6379",
     "The server: redis://[user@]host[:port][/db] or unix:///path[?db=N];"
     " rediss://host[:port][?ca=FILE&cert=FILE&key=FILE] for TLS;"
     " redis-sentinel://host[:port],.../service or"
     " redis-cluster://host[:port],... for more than one;"
     " valkey may replace redis. No password here: everybody can see it."
     " Default: $DIBS_URL, a file (see man dibs), or else a private server."},
    {0, "url-file", "FILE", OPT_TEXT, AT(url_file), CMD_ALL, "/etc/dibs.url",
     "Read the URL from a file; it may have a password. Default:"
     " $DIBS_URL_FILE."},
    {0, "password-file", "FILE", OPT_TEXT, AT(password_file), CMD_ALL,
     "/etc/dibs.password",
     "Read the password from a file. Default: $DIBS_PASSWORD."},
    {'q', "quiet", NULL, OPT_FLAG, AT(quiet), CMD_ALL, NULL,
     "Print errors only."},
    {'v', "verbose", NULL, OPT_FLAG, AT(verbose), CMD_ALL, NULL,
     "Print what happens, who has the lock, and how long we waited."},
    {0, "log", "FORMAT", OPT_LOG, AT(log_json), CMD_ALL, "json",
     "Messages on stderr as text (default) or json, one object a line."},
    {'h', "help", NULL, OPT_FLAG, AT(help), CMD_ALL, NULL, "Show this help."},
    {'V', "version", NULL, OPT_FLAG, AT(version), CMD_ALL, NULL,
     "Show the version."},
    {0, NULL, NULL, OPT_FLAG, 0, 0, NULL, NULL},
};
