# Turns Lua scripts into one C file: their text, and the SHA1 under which the
# server will know it, so that the library needs neither files at run time nor
# SHA1 code of its own.
#
# Usage: cmake -DOUT=gen/scripts_gen.c "-DIN=a.lua;b.lua" -P embed_lua.cmake
#
# Beside OUT, in lua, the whole texts are left for tests.
#
# What several scripts share is written once, in lua/lib. A line
#
#     --@include name
#
# in a script is replaced by the text of lib/name.lua beside it, less the
# comment above its first empty line. A part must not include another one.
#
# Around all of it comes lib/around.lua, which says what for: the script is where
# it has the line "--@script".
#
# Only printable ASCII and newlines may be in a script: other bytes are easy to
# overlook in a review, and servers and log viewers show them differently.
cmake_minimum_required(VERSION 3.18)

# Square brackets, semicolons and backslashes of scripts must survive, so lists
# are not used below.

# The text of a part, less the comment at its top.
function(read_part path out)
  if(NOT EXISTS "${path}")
    message(FATAL_ERROR "there is no ${path}")
  endif()
  file(READ "${path}" part)
  if(part MATCHES "(^|\n)--@include")
    message(FATAL_ERROR "${path}: a part must not include another one")
  endif()
  string(FIND "${part}" "\n\n" head)
  math(EXPR head "${head} + 2")
  string(SUBSTRING "${part}" ${head} -1 part)
  set(${out} "${part}" PARENT_SCOPE)
endfunction()

# Puts a part in the place of the first such line of a text.
function(put_in text line part out)
  string(FIND "${text}" "${line}" at)
  string(LENGTH "${line}" size)
  math(EXPR rest "${at} + ${size}")
  string(SUBSTRING "${text}" 0 ${at} before)
  string(SUBSTRING "${text}" ${rest} -1 after)
  set(${out} "${before}${part}${after}" PARENT_SCOPE)
endfunction()

# A script's text with its parts, and what is around it.
function(expand path out)
  get_filename_component(dir "${path}" DIRECTORY)
  file(READ "${path}" script)
  if(NOT script MATCHES "\n$")
    message(FATAL_ERROR "${path}: its last line has no end")
  endif()
  read_part("${dir}/../lib/around.lua" text)
  put_in("${text}" "--@script\n" "${script}" text)
  while(text MATCHES "(^|\n)--@include ([a-z_]+)\n")
    set(line "--@include ${CMAKE_MATCH_2}\n")
    read_part("${dir}/../lib/${CMAKE_MATCH_2}.lua" part)
    put_in("${text}" "${line}" "${part}" text)
  endwhile()
  if(text MATCHES "--@")
    message(FATAL_ERROR "${path}: --@ is not followed by \"include name\"")
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
    message(FATAL_ERROR "${path}: not a name for a C variable")
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
