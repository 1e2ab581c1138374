# `cmake --install`: the library, its headers, the program, and the files by which another CMake
# project finds them with find_package(Hedgerow).
#
# The installed library stands on the torch of one Python environment. The program and the library
# know its folder by their run path; HedgerowConfig.cmake looks for the same torch version in the
# environment of the project that uses it.
include(CMakePackageConfigHelpers)

set(HEDGEROW_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Hedgerow)
file(RELATIVE_PATH from_bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})

set_target_properties(hedgerow PROPERTIES
  INSTALL_RPATH "$ORIGIN;${HEDGEROW_TORCH_DIR}/lib"
  INSTALL_RPATH_USE_LINK_PATH OFF)
set_target_properties(hedgerow_torch PROPERTIES EXPORT_NAME torch)
install(TARGETS hedgerow hedgerow_torch EXPORT HedgerowTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/hedgerow
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(TARGET hedgerow_program)
  set_target_properties(hedgerow_program PROPERTIES
    INSTALL_RPATH "$ORIGIN/${from_bin_to_lib};${HEDGEROW_TORCH_DIR}/lib"
    INSTALL_RPATH_USE_LINK_PATH OFF)
  install(TARGETS hedgerow_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(EXPORT HedgerowTargets NAMESPACE Hedgerow:: DESTINATION ${HEDGEROW_CMAKE_DIR})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/HedgerowConfig.cmake.in ${PROJECT_BINARY_DIR}/HedgerowConfig.cmake
  INSTALL_DESTINATION ${HEDGEROW_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/HedgerowConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/HedgerowConfig.cmake
              ${PROJECT_BINARY_DIR}/HedgerowConfigVersion.cmake
  DESTINATION ${HEDGEROW_CMAKE_DIR})
