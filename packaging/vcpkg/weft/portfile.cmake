# SPDX-License-Identifier: Apache-2.0
# An overlay port for vcpkg; it builds the tree in which it lies: vcpkg install weft --overlay-ports=packaging/vcpkg
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DWEFT_BUILD_TESTS=OFF -DWEFT_BUILD_PYTHON=OFF -DWEFT_BUILD_TOOLS=OFF -DWEFT_NVCC=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME weft CONFIG_PATH lib/cmake/weft)
vcpkg_fixup_pkgconfig()
if(VCPKG_LIBRARY_LINKAGE STREQUAL "static")
  file(GLOB unwanted "${CURRENT_PACKAGES_DIR}/lib/libweft.so*" "${CURRENT_PACKAGES_DIR}/debug/lib/libweft.so*")
else()
  file(GLOB unwanted "${CURRENT_PACKAGES_DIR}/lib/libweft.a" "${CURRENT_PACKAGES_DIR}/debug/lib/libweft.a")
endif()
if(unwanted)
  file(REMOVE ${unwanted})
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
