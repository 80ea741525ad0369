# Installs the rooms of common and the ideas of the steps, so that another project can say
#
#   find_package(ladder REQUIRED)
#   target_link_libraries(mine PRIVATE ladder::step0_single_gpu_idea)     # or ladder::comm, ladder::optim, …
#
# and include them as they are included here: "step0_single_gpu/accumulate_gradients.hpp".
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/ladder")
get_property(_targets GLOBAL PROPERTY LADDER_INSTALLED_TARGETS)
set_target_properties(ladder_flags PROPERTIES EXPORT_NAME flags)
install(TARGETS ladder_flags ladder_xxhash ladder_onig ladder_utf8proc ${_targets} EXPORT ladder ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT ladder NAMESPACE ladder:: FILE ladder-targets.cmake DESTINATION "${_package_dir}")

install(DIRECTORY "${LADDER_ROOT}/common" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/ladder"
  FILES_MATCHING PATTERN "*.hpp" PATTERN testing EXCLUDE)
file(GLOB _steps RELATIVE "${LADDER_ROOT}" "${LADDER_ROOT}/step*")  # headers to copy, not sources to build
foreach(_step IN LISTS _steps)
  install(DIRECTORY "${LADDER_ROOT}/${_step}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/ladder"
    FILES_MATCHING PATTERN "*.hpp" PATTERN exercise EXCLUDE PATTERN testing EXCLUDE PATTERN train.hpp EXCLUDE)
endforeach()

configure_package_config_file("${LADDER_ROOT}/cmake/ladder-config.cmake.in"
  "${CMAKE_BINARY_DIR}/ladder-config.cmake" INSTALL_DESTINATION "${_package_dir}")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/ladder-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/ladder-config.cmake" "${CMAKE_BINARY_DIR}/ladder-config-version.cmake"
  "${LADDER_ROOT}/cmake/LadderTorch.cmake" "${LADDER_ROOT}/cmake/LadderCuda.cmake" DESTINATION "${_package_dir}")
