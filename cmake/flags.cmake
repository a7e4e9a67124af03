# How our own code is compiled, as two targets to link with: dibs_sanitize for
# everything that is linked together, dibs_flags for C and C++ files of ours. Neither
# reaches those who use the library.

if(DIBS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Kind of build" FORCE)
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)

# One sanitizer for the whole build: half-checked programs report nonsense.
add_library(dibs_sanitize INTERFACE)
set(dibs_sanitizers address undefined thread)
if(DIBS_SANITIZE)
  if(NOT DIBS_SANITIZE IN_LIST dibs_sanitizers)
    message(FATAL_ERROR
      "DIBS_SANITIZE is ${DIBS_SANITIZE}; it must be one of: "
      "${dibs_sanitizers}")
  endif()
  set(flag "-fsanitize=${DIBS_SANITIZE}")
  if(DIBS_SANITIZE STREQUAL "address")
    string(APPEND flag ",undefined")
  endif()
  target_compile_options(dibs_sanitize INTERFACE ${flag} -O1
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(dibs_sanitize INTERFACE ${flag})
endif()
if(DIBS_COVERAGE)
  target_link_options(dibs_sanitize INTERFACE --coverage)
endif()

add_library(dibs_flags INTERFACE)
target_link_libraries(dibs_flags INTERFACE dibs_sanitize)
target_compile_definitions(dibs_flags INTERFACE _GNU_SOURCE)
target_compile_options(dibs_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wformat=2 -Wundef
  "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>"
  "$<$<COMPILE_LANGUAGE:CXX>:-Wold-style-cast;-Wnon-virtual-dtor>"
  $<$<COMPILE_LANG_AND_ID:C,Clang,AppleClang>:-Wthread-safety>
  $<$<BOOL:${DIBS_WERROR}>:-Werror>)
