# How ctest runs a test: by tests/support/run_test.c, which enforces the time
# limit, gives the test a folder, ends what it leaves behind, and reports failures.
# ctest's own limit is only for run_test.

# Regular expressions of names. `make test` starts 8 tests per core, since most of
# them wait. Those that compute take half a core. They start first, then those
# that take 20 s and more; after the first run ctest has measured the rest.
set(DIBS_BUSY_TESTS "stress\\.(all|quorum|permits|multi)|sim\\.world|cli\\.recipes")
set(DIBS_LONG_TESTS "fault\\.(quorum_lost|quorum_reply|quorum|ghost|refused)"
  "fault\\.(limits|track|objects|rw|reply_lost|late)" "cli\\.run_(lost|wait|limits)"
  "server\\.(lease|multi_hold|oom|tls_refused|called|fair|replicas)")
list(JOIN DIBS_LONG_TESTS "|" DIBS_LONG_TESTS)

# Sanitizers make everything slower, and so every time limit longer. A limit is
# only there to end a hang: it is many times what a test takes.
set(slowness 1)
if(DIBS_SANITIZE STREQUAL "address" OR DIBS_SANITIZE STREQUAL "undefined")
  set(slowness 3)
elseif(DIBS_SANITIZE STREQUAL "thread")
  set(slowness 6)
endif()

# Out of memory is something to answer for, not a crash, also for a sanitizer.
set(tsan_options "allocator_may_return_null=1"
  "suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
list(JOIN tsan_options ":" tsan_options)
set(test_environment
  "DIBS_TEST_SLOWNESS=${slowness}"
  "ASAN_OPTIONS=allocator_may_return_null=1"
  "TSAN_OPTIONS=${tsan_options}")

# dibs_add_test(NAME KIND SECONDS COMMAND... [OPTIONS...] [ENVIRONMENT...]): a
# test that run_test runs, with options for run_test, and variables.
function(dibs_add_test name kind seconds)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "" "ENVIRONMENT;COMMAND;OPTIONS")
  math(EXPR limit "${seconds} * ${slowness}")
  math(EXPR ctest_limit "${limit} + 60")
  add_test(NAME ${name} COMMAND
    run_test ${arg_OPTIONS} ${name} ${limit} ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ctest_limit} LABELS ${kind}
    ENVIRONMENT "${test_environment};${arg_ENVIRONMENT}")
  if(name MATCHES "^(${DIBS_BUSY_TESTS})$")
    set_tests_properties(${name} PROPERTIES PROCESSORS 4 COST 2000)
  elseif(name MATCHES "^(${DIBS_LONG_TESTS})$")
    set_tests_properties(${name} PROPERTIES COST 1000)
  endif()
endfunction()
