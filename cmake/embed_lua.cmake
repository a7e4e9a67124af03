# Turns Lua scripts into one C file: the bytes as they are, and the SHA1 under
# which the server will know them, so that the library needs neither files at
# run time nor SHA1 code of its own.
#
# Usage: cmake -DOUT=scripts_gen.c "-DIN=a.lua;b.lua" -P embed_lua.cmake
#
# Only printable ASCII and newlines may be in a script: other bytes are easy to
# overlook in a review, and servers and log viewers show them differently.
cmake_minimum_required(VERSION 3.18)

set(body "")
set(all "")
foreach(path IN LISTS IN)
  get_filename_component(name "${path}" NAME_WE)
  if(NOT name MATCHES "^[a-z][a-z0-9_]*$")
    message(FATAL_ERROR "${path}: not a name for a C variable")
  endif()

  file(READ "${path}" hex HEX)
  file(SHA1 "${path}" sha)
  file(SIZE "${path}" len)
  if(len EQUAL 0)
    message(FATAL_ERROR "${path}: is empty")
  endif()
  string(REGEX REPLACE "(..)" "0x\\1," hex "${hex}")

  if(hex MATCHES "0x([89a-f].|0[0-9b-f]|1.|7f),")
    set(byte "0x${CMAKE_MATCH_1}")
    string(FIND "${hex}" "${byte}," at)
    string(SUBSTRING "${hex}" 0 ${at} before)
    string(REGEX MATCHALL "0x0a," lines "${before}")
    list(LENGTH lines line)
    math(EXPR line "${line} + 1")
    message(FATAL_ERROR
      "${path}:${line}: byte ${byte} is neither printable ASCII nor a newline")
  endif()

  # A line of C for each line of the script. The 0 at the end is not part of
  # it; it makes the text readable in a debugger.
  string(REPLACE "0x0a," "0x0a,\n    " hex "${hex}")
  string(APPEND body
    "static const char ${name}_src[] = {\n    ${hex}0\n};\n"
    "const struct dibs__script dibs__script_${name} = {\n"
    "    \"${name}\", \"${sha}\", ${name}_src, ${len}\n"
    "};\n\n")
  string(APPEND all "    &dibs__script_${name},\n")
endforeach()
string(APPEND body
  "const struct dibs__script *const dibs__scripts[] = {\n${all}    0\n};\n")

file(WRITE "${OUT}"
  "/* Made by embed_lua.cmake from the files in lua. Do not edit. */\n"
  "#include \"client/script.h\"\n\n${body}")
