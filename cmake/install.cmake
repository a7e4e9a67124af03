# What `make install` puts where: headers, both libraries, dibs.pc, the CMake
# package, man pages, documents and examples. The command installs itself in
# cli/CMakeLists.txt. `make uninstall` (tools/uninstall.sh) takes all of it away
# again, whatever it is.
include(CMakePackageConfigHelpers)

install(FILES include/dibs/dibs.h include/dibs/dibs.hpp include/dibs/dibs.cdef
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/dibs")
install(DIRECTORY include/dibs/cpp
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/dibs")

# Two exports, because only the static library needs libuv, hiredis and OpenSSL
# to be found by whoever links with it.
set(dibs_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/dibs")
install(TARGETS dibs_shared EXPORT dibs-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(TARGETS dibs_static EXPORT dibs-static-targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT dibs-targets
  NAMESPACE dibs:: DESTINATION "${dibs_package_dir}")
install(EXPORT dibs-static-targets
  NAMESPACE dibs:: DESTINATION "${dibs_package_dir}")
configure_package_config_file(cmake/dibs-config.cmake.in
  "${PROJECT_BINARY_DIR}/dibs-config.cmake"
  INSTALL_DESTINATION "${dibs_package_dir}"
  NO_SET_AND_CHECK_MACRO)
# While the major version is 0, a minor one may break what was there.
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/dibs-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/dibs-config.cmake"
  "${PROJECT_BINARY_DIR}/dibs-config-version.cmake"
  DESTINATION "${dibs_package_dir}")

list(JOIN dibs_private_libs " " dibs_pc_libs)
configure_file(dibs.pc.in "${PROJECT_BINARY_DIR}/dibs.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/dibs.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# Man pages, and for each function a page of its name that leads to the one
# that describes it.
set(dibs_man_links "")
foreach(page IN LISTS DIBS_MAN_PAGES)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${page}")
  get_filename_component(target "${page}" NAME)
  file(STRINGS "${page}" lines REGEX "^\\.Fo dibs_[a-z_]+$")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "dibs_[a-z_]+" name "${line}")
    set(link "${PROJECT_BINARY_DIR}/man/${name}.3")
    file(CONFIGURE OUTPUT "${link}" CONTENT ".so man3/${target}\n")
    list(APPEND dibs_man_links "${link}")
  endforeach()
endforeach()
install(FILES ${DIBS_MAN_PAGES} ${dibs_man_links}
  DESTINATION "${CMAKE_INSTALL_MANDIR}/man3")

# Documents, where their links to each other are right, and the examples, which
# are a project of their own.
install(FILES README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md
  SECURITY.md LICENSE
  DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}"
  PATTERN man EXCLUDE)
install(DIRECTORY examples DESTINATION "${CMAKE_INSTALL_DOCDIR}"
  PATTERN __pycache__ EXCLUDE)
