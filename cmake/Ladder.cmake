# What the CMakeLists of Ladder are written in:
#
#   ladder_add_step(NAME IDEA idea [BUILDS_ON earlier_step])   a trainer, its idea library, its tests, its exercise
#   ladder_add_library(room SOURCES … LINK …)                  a room of common
#   ladder_add_test(NAME SOURCES … LINK … [RANKS 1 2 3] [THREADS 1 2 3])
#                                                              a GoogleTest program, run once per number of ranks
#
# Included by the root project and by each step alone; the first to include it finds the dependencies.
include_guard(GLOBAL)

get_filename_component(LADDER_ROOT "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# Up to eight sources in one compilation, for most of a source's time goes into libtorch's headers.
option(CMAKE_UNITY_BUILD "Compile several sources at once" ON)
option(LADDER_TESTS "Build the tests" ON)
option(LADDER_BENCHMARKS "Build the benchmarks" ON)
option(LADDER_MPI "Build the mpi transport; without it only one rank runs" ON)
option(LADDER_WERROR "Treat warnings as errors" OFF)
option(LADDER_FUZZ "Build the fuzz targets; needs clang" OFF)
set(LADDER_SANITIZE "" CACHE STRING "Sanitizers to build with, for example address,undefined")
set(LADDER_EXERCISE "" CACHE STRING "Step, or loss_scaler, whose idea is taken from LADDER_EXERCISES/STEP instead of the reference")
set(LADDER_EXERCISES "${LADDER_ROOT}/exercises" CACHE PATH "Folder of the learner's own files")

include("${CMAKE_CURRENT_LIST_DIR}/LadderTorch.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/LadderDependencies.cmake")

# Every target of the project links this one: C++20, warnings, sanitizers. No flag is global.
add_library(ladder_flags INTERFACE)
target_compile_features(ladder_flags INTERFACE cxx_std_20)
target_compile_options(ladder_flags INTERFACE
  $<BUILD_INTERFACE:-Wall> $<BUILD_INTERFACE:-Wextra> $<BUILD_INTERFACE:-Wpedantic>
  $<BUILD_INTERFACE:-Wshadow> $<BUILD_INTERFACE:-Wnon-virtual-dtor>
  $<BUILD_INTERFACE:-Wno-missing-field-initializers>  # options are written {.layers = 2}, the rest are defaults
  $<BUILD_INTERFACE:$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>>  # gcc 12 sees ghosts in std::string
  $<BUILD_INTERFACE:$<$<CXX_COMPILER_ID:Clang>:-Wno-unused-private-field>>  # an exercise's stub uses few of them
  $<BUILD_INTERFACE:$<$<BOOL:${LADDER_WERROR}>:-Werror>>)
# A header of libtorch that needs an operator includes this one, instead of all two thousand.
target_compile_definitions(ladder_flags INTERFACE $<BUILD_INTERFACE:AT_PER_OPERATOR_HEADERS>)
target_include_directories(ladder_flags INTERFACE
  $<BUILD_INTERFACE:${LADDER_ROOT}> $<INSTALL_INTERFACE:include/ladder>)
if(LADDER_SANITIZE)
  target_compile_options(ladder_flags INTERFACE
    -fsanitize=${LADDER_SANITIZE} -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(ladder_flags INTERFACE -fsanitize=${LADDER_SANITIZE})
endif()

# One precompiled header for all: torch's headers cost more than ours by far.
add_library(ladder_pch STATIC "${LADDER_ROOT}/cmake/precompiled.cpp")
target_link_libraries(ladder_pch PUBLIC ladder_flags ladder::torch)
target_precompile_headers(ladder_pch PRIVATE "${LADDER_ROOT}/cmake/precompiled.hpp")

function(_ladder_target target)
  target_link_libraries(${target} PUBLIC ladder_flags)
  target_precompile_headers(${target} REUSE_FROM ladder_pch)
endfunction()

function(ladder_add_library room)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;LINK_PRIVATE" ${ARGN})
  add_library(ladder_${room} STATIC ${arg_SOURCES})
  add_library(ladder::${room} ALIAS ladder_${room})
  set_target_properties(ladder_${room} PROPERTIES EXPORT_NAME ${room})
  _ladder_target(ladder_${room})
  target_link_libraries(ladder_${room} PUBLIC ${arg_LINK} ladder::torch PRIVATE ${arg_LINK_PRIVATE})
  set_property(GLOBAL APPEND PROPERTY LADDER_INSTALLED_TARGETS ladder_${room})
endfunction()

# A GoogleTest program. Without RANKS it is an ordinary one, found test by test. With RANKS it links
# common/testing's main for MPI and ctest runs the whole program once per number of ranks; one that
# cannot start has failed, not been skipped. In a build without MPI it is left out, or with OR_ALONE
# run on one rank. With THREADS it also runs without MPI, its ranks being threads of one process
# (common/testing/rank_test.hpp). With OWN_MAIN it is any program that ends with exit code 0 if all
# is well.
function(ladder_add_test name)
  if(NOT LADDER_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "OR_ALONE;OWN_MAIN" "TIMEOUT" "SOURCES;LINK;RANKS;THREADS;LABELS" ${ARGN})
  if(arg_RANKS AND NOT LADDER_MPI AND NOT arg_OR_ALONE AND NOT arg_THREADS)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SOURCES})
  _ladder_target(${name})
  # The code that is tested keeps its optimization; the test itself compiles in two thirds of the time.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_link_libraries(${name} PRIVATE ${arg_LINK} ladder_testing GTest::gmock)
  if(NOT arg_OWN_MAIN)
    target_link_libraries(${name} PRIVATE $<IF:$<BOOL:${arg_RANKS}${arg_THREADS}>,ladder_testing_mpi_main,GTest::gtest_main>)
  endif()
  foreach(threads IN LISTS arg_THREADS)
    add_test(NAME ${name}.threads_${threads} COMMAND ${name} --threads ${threads})
    set_tests_properties(${name}.threads_${threads} PROPERTIES
      TIMEOUT ${arg_TIMEOUT} LABELS "threads;${arg_LABELS}" PROCESSORS ${threads})
  endforeach()
  if(arg_THREADS AND (NOT LADDER_MPI OR NOT arg_RANKS))
    return()
  endif()
  if(NOT arg_RANKS OR NOT LADDER_MPI)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "unit;${arg_LABELS}")
    return()
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}.ranks_${ranks}
      COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks} --oversubscribe --bind-to none $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.ranks_${ranks} PROPERTIES
      TIMEOUT ${arg_TIMEOUT} LABELS "ranks;${arg_LABELS}" PROCESSORS ${ranks}
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  endforeach()
endfunction()

include("${CMAKE_CURRENT_LIST_DIR}/LadderStep.cmake")

enable_testing()
add_subdirectory("${LADDER_ROOT}/common" "${CMAKE_BINARY_DIR}/common")
