# Writes a C file with the text of each Lua script and its SHA1, by which the
# server caches it. So the library reads no files and computes no SHA1.
#
# Usage: cmake -DOUT=gen/scripts_gen.c -DRESULTS=lock_type.h
#          "-DIN=a.lua;b.lua" -P embed_lua.cmake
#
# The expanded texts are left in the folder lua beside OUT, for tests and for
# luacheck.
#
# Expansion:
#   --@include name   is replaced by the text of lib/name.lua, less the comment
#                     above its first empty line. A part may include parts.
#   lib/envelope.lua  wraps each script; the script stands for its --@script.
#   SCRIPT_NAME       is replaced by the number that enum dibs__script_result
#                     in RESULTS gives that name: it costs nothing at run time,
#                     and C and Lua cannot differ.
#
# Scripts may have only printable ASCII and newlines: other bytes are easy to
# overlook in a review, and servers and log viewers show them differently.
cmake_minimum_required(VERSION 3.18)

# Square brackets, semicolons and backslashes of scripts must survive, so lists
# are not used below.

set(MAX_INCLUDES 64) # per script; more means that a part includes itself

file(READ "${RESULTS}" header)
string(REGEX MATCHALL "SCRIPT_[A-Z_]+ =[ \n]*-?[0-9]+" results "${header}")
if(NOT results)
  message(FATAL_ERROR "${RESULTS}: no SCRIPT_NAME = number")
endif()

# Reads a part, without the comment at its top.
function(read_part path out)
  if(NOT EXISTS "${path}")
    message(FATAL_ERROR "there is no ${path}")
  endif()
  file(READ "${path}" part)
  string(FIND "${part}" "\n\n" head)
  math(EXPR head "${head} + 2")
  string(SUBSTRING "${part}" ${head} -1 part)
  set(${out} "${part}" PARENT_SCOPE)
endfunction()

# Replaces the first occurrence of a line by a part.
function(replace_line text line part out)
  string(FIND "${text}" "${line}" at)
  string(LENGTH "${line}" size)
  math(EXPR rest "${at} + ${size}")
  string(SUBSTRING "${text}" 0 ${at} before)
  string(SUBSTRING "${text}" ${rest} -1 after)
  set(${out} "${before}${part}${after}" PARENT_SCOPE)
endfunction()

# Replaces the names of result codes by their numbers.
function(replace_results text out)
  foreach(result IN LISTS results)
    string(REGEX MATCH "^(SCRIPT_[A-Z_]+) =[ \n]*(-?[0-9]+)$" found "${result}")
    set(name "${CMAKE_MATCH_1}")
    set(number "${CMAKE_MATCH_2}")
    string(REGEX REPLACE "${name}([^A-Z_])" "${number}\\1" text "${text}")
  endforeach()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# The text of a script as the server gets it.
function(expand path out)
  get_filename_component(dir "${path}" DIRECTORY)
  file(READ "${path}" script)
  if(NOT script MATCHES "\n$")
    message(FATAL_ERROR "${path}: its last line has no newline")
  endif()
  read_part("${dir}/../lib/envelope.lua" text)
  replace_line("${text}" "--@script\n" "${script}" text)
  foreach(i RANGE ${MAX_INCLUDES})
    if(NOT text MATCHES "(^|\n)--@include ([a-z_]+)\n")
      break()
    endif()
    set(line "--@include ${CMAKE_MATCH_2}\n")
    read_part("${dir}/../lib/${CMAKE_MATCH_2}.lua" part)
    replace_line("${text}" "${line}" "${part}" text)
  endforeach()
  if(text MATCHES "--@")
    message(FATAL_ERROR
      "${path}: --@ without \"include name\", or a part includes itself")
  endif()
  replace_results("${text}" text)
  if(text MATCHES "SCRIPT_[A-Z_]+")
    message(FATAL_ERROR "${path}: ${CMAKE_MATCH_0} is not in ${RESULTS}")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# A byte that is neither printable ASCII nor a newline ends the build.
function(check_bytes path hex)
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
endfunction()

get_filename_component(out_dir "${OUT}" DIRECTORY)
set(body "")
set(all "")
foreach(path IN LISTS IN)
  get_filename_component(name "${path}" NAME_WE)
  if(NOT name MATCHES "^[a-z][a-z0-9_]*$")
    message(FATAL_ERROR "${path}: not a C identifier")
  endif()

  expand("${path}" text)
  file(WRITE "${out_dir}/lua/${name}.lua" "${text}")
  string(SHA1 sha "${text}")
  string(LENGTH "${text}" len)
  string(HEX "${text}" hex)
  string(REGEX REPLACE "(..)" "0x\\1," hex "${hex}")
  check_bytes("${path}" "${hex}")

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
  "#include \"client/command/script.h\"\n\n${body}")
