# What a program needs besides libdibs.a, as linker flags: dibs_private_libs.
# It goes into dibs.pc, and into the command that has no shared libraries.
#
# This is not left to Requires.private in dibs.pc: for --cflags pkg-config
# follows that, too, and whoever links with the shared library would need the
# development files of libuv, hiredis and OpenSSL, and get their flags.
set(dibs_private_libs
  ${DIBS_UV_STATIC_LDFLAGS} ${DIBS_HIREDIS_STATIC_LDFLAGS}
  ${DIBS_SSL_STATIC_LDFLAGS} -pthread)

# Debian has no libuv.a; there it is libuv_a.a, and libuv.pc does not know it.
find_library(DIBS_UV_ARCHIVE NAMES libuv.a libuv_a.a
  HINTS ${DIBS_UV_STATIC_LIBRARY_DIRS} ${DIBS_UV_LIBDIR})
mark_as_advanced(DIBS_UV_ARCHIVE)
if(DIBS_UV_ARCHIVE MATCHES "/libuv_a\\.a$")
  list(TRANSFORM dibs_private_libs REPLACE "^-luv$" "-luv_a")
endif()

# Where the linker looks anyway need not be said.
foreach(place IN LISTS CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
  list(REMOVE_ITEM dibs_private_libs "-L${place}")
endforeach()

# Once each, and behind all that may need it.
list(REVERSE dibs_private_libs)
list(REMOVE_DUPLICATES dibs_private_libs)
list(REVERSE dibs_private_libs)
