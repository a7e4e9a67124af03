# The one list of what the library is made of, in reading order. Nothing is
# globbed, so a file that was forgotten here is found by tools/check_lists.sh.
set(DIBS_SOURCES
  src/base/error.c
  src/base/mem.c
  src/base/buf.c
  src/base/sync.c
  src/net/loop.c
  src/net/reply.c
  src/net/url.c
  src/net/tls.c
  src/net/resolve.c
  src/net/dial.c
  src/net/conn.c
  src/client/classes.c
  src/client/call.c
  src/client/server.c
  src/client/slot.c
  src/client/cluster.c
  src/client/sentinel.c
  src/client/script.c
  src/client/pubsub.c
  src/client/watchdog.c
  src/client/callback.c
  src/client/topology.c
  src/client/client.c
  src/lock/kind_basic.c
  src/lock/kind_fair.c
  src/lock/kind_rw.c
  src/lock/owner.c
  src/lock/line.c
  src/lock/op.c
  src/lock/acquire.c
  src/lock/wait.c
  src/lock/queue.c
  src/lock/release.c
  src/lock/renew.c
  src/lock/reap.c
  src/lock/locks.c
  src/lock/lock.c
  src/lock/look.c
  src/lock/list.c
)

# Embedded at build time, each as dibs__script_<name>.
set(DIBS_SCRIPTS
  lua/basic_acquire.lua
  lua/basic_release.lua
  lua/basic_renew.lua
  lua/basic_handover.lua
  lua/basic_force.lua
  lua/basic_info.lua
  lua/fair_acquire.lua
  lua/fair_release.lua
  lua/fair_leave.lua
  lua/fair_info.lua
  lua/read_acquire.lua
  lua/read_release.lua
  lua/read_renew.lua
  lua/read_force.lua
  lua/write_acquire.lua
  lua/write_release.lua
  lua/write_leave.lua
  lua/holders.lua
)

# Section 3 of the manual. Each function in a page's synopsis also gets a page
# of its own name that leads to it.
set(DIBS_MAN_PAGES
  docs/man/dibs.3
  docs/man/dibs_client.3
  docs/man/dibs_lock.3
  docs/man/dibs_state.3
  docs/man/dibs_async.3
  docs/man/dibs_errors.3
)
