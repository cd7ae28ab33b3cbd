# SPDX-License-Identifier: Apache-2.0
# The installed form: libraries, headers, command, weft.pc and the CMake package.  All of it can be moved as one tree.
include(CMakePackageConfigHelpers)

install(TARGETS weft_shared weft_static EXPORT weft-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "*.def")
if(TARGET weft_command)
  install(TARGETS weft_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES tools/gdb/weft-gdb.py DESTINATION ${CMAKE_INSTALL_DATADIR}/weft/gdb)
  # What `weft bench` builds and runs for its peers.
  install(FILES bench/meter.h bench/pattern.h bench/plan.h DESTINATION ${CMAKE_INSTALL_DATADIR}/weft/bench)
  install(DIRECTORY bench/peers DESTINATION ${CMAKE_INSTALL_DATADIR}/weft/bench FILES_MATCHING PATTERN "*.c" PATTERN "*.py")
endif()

file(RELATIVE_PATH WEFT_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" WEFT_PC_TO_PREFIX "${WEFT_PC_TO_PREFIX}")
configure_file(cmake/weft.pc.in weft.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
configure_package_config_file(cmake/weft-config.cmake.in weft-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(weft-config-version.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION ${package})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/weft-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/weft-config-version.cmake
  DESTINATION ${package})
