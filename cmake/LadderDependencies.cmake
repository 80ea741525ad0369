# Finds what Ladder needs besides libtorch. All that is missing is named at once, with the command that
# installs it.
set(_missing_packages)
macro(_ladder_need package debian)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND)
    list(APPEND _missing_packages ${debian})
  endif()
endmacro()

_ladder_need(CLI11 libcli11-dev)
_ladder_need(nlohmann_json nlohmann-json3-dev)
find_path(LADDER_XXHASH_INCLUDE_DIR xxhash.h)
if(NOT LADDER_XXHASH_INCLUDE_DIR)
  list(APPEND _missing_packages libxxhash-dev)
endif()
find_path(LADDER_ONIG_INCLUDE_DIR oniguruma.h)
find_library(LADDER_ONIG_LIBRARY onig)
if(NOT LADDER_ONIG_INCLUDE_DIR OR NOT LADDER_ONIG_LIBRARY)
  list(APPEND _missing_packages libonig-dev)
endif()
if(LADDER_MPI)
  enable_language(C)  # FindMPI needs it for MPI's C interface, the only one we use
  find_package(MPI QUIET COMPONENTS C)
  if(NOT MPI_C_FOUND)
    list(APPEND _missing_packages libopenmpi-dev openmpi-bin)
  endif()
endif()
if(LADDER_TESTS)
  _ladder_need(GTest libgtest-dev)
  find_path(LADDER_GMOCK_INCLUDE_DIR gmock/gmock.h)
  if(NOT LADDER_GMOCK_INCLUDE_DIR)
    list(APPEND _missing_packages libgmock-dev)
  endif()
endif()
if(LADDER_BENCHMARKS)
  _ladder_need(benchmark libbenchmark-dev)
endif()

if(_missing_packages)
  list(JOIN _missing_packages " " _missing_packages)
  message(FATAL_ERROR
    "Some packages are missing. On Debian and Ubuntu: apt-get install ${_missing_packages}\n"
    "('./ladder setup' does it where it may. Without tests: -DLADDER_TESTS=OFF; without MPI: -DLADDER_MPI=OFF.)")
endif()

add_library(ladder_xxhash INTERFACE)
target_include_directories(ladder_xxhash SYSTEM INTERFACE
  $<BUILD_INTERFACE:${LADDER_XXHASH_INCLUDE_DIR}>)
add_library(ladder_onig INTERFACE)
target_include_directories(ladder_onig SYSTEM INTERFACE $<BUILD_INTERFACE:${LADDER_ONIG_INCLUDE_DIR}>)
# It has functions named regcomp() and regexec(), too. Behind the C library, it leaves those of the whole process alone.
target_link_libraries(ladder_onig INTERFACE -l:libc.so.6 $<BUILD_INTERFACE:${LADDER_ONIG_LIBRARY}> $<INSTALL_INTERFACE:onig>)
