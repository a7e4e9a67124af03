# Turns text files into one C file, each into an array of characters with a NUL
# behind it.
#
# Usage: cmake -DOUT=gen/texts.c "-DIN=name=path;name=path" -P embed_text.cmake
cmake_minimum_required(VERSION 3.18)

set(body "")
foreach(pair IN LISTS IN)
  string(REGEX MATCH "^([a-z_]+)=(.+)$" ok "${pair}")
  if(NOT ok)
    message(FATAL_ERROR "'${pair}' is not NAME=PATH")
  endif()
  set(name "${CMAKE_MATCH_1}")
  file(READ "${CMAKE_MATCH_2}" hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," hex "${hex}")
  string(REPLACE "0x0a," "0x0a,\n    " hex "${hex}")
  string(APPEND body
    "extern const char ${name}[];\nconst char ${name}[] = {\n    ${hex}0\n};\n\n")
endforeach()
file(WRITE "${OUT}"
  "/* Made by embed_text.cmake. Do not edit. */\n\n${body}")
