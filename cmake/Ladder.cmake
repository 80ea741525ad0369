# What the CMakeLists of Ladder are written in:
#
#   ladder_add_step(NAME IDEA idea [BUILDS_ON earlier_step])   a trainer, its idea library, its tests, its exercise
#   ladder_add_library(room [COMPUTES] [THEORY …] SOURCES … LINK … [CUDA_SOURCES … CUDA_LINK … WITHOUT_CUDA …])
#                                                              a room of common: its files without tensors, the others, and
#                                                              those that need CUDA
#   ladder_add_test(NAME SOURCES … LINK … [RANKS 1 2 3] [THREADS 1 2 3] [GPU])
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
option(LADDER_MPI "Build the mpi transport; without it only torchrun starts several ranks" ON)
option(LADDER_WERROR "Treat warnings as errors" OFF)
option(LADDER_FUZZ "Build the fuzz targets; needs clang" OFF)
set(LADDER_SANITIZE "" CACHE STRING "Sanitizers to build with, for example address,undefined")
set(LADDER_EXERCISE "" CACHE STRING "Steps, or exercises of chapters, whose ideas are taken from LADDER_EXERCISES/STEP instead of the solutions; a list")
set(LADDER_EXERCISES "${LADDER_ROOT}/exercises" CACHE PATH "Folder of the learner's own files")

include("${CMAKE_CURRENT_LIST_DIR}/LadderTorch.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/LadderDependencies.cmake")
if(LADDER_CUDA)
  include("${CMAKE_CURRENT_LIST_DIR}/LadderCuda.cmake")
endif()

# Every target of the project links this one: C++20, warnings, sanitizers. No flag is global.
add_library(ladder_flags INTERFACE)
target_compile_features(ladder_flags INTERFACE cxx_std_20)
set(_warnings
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Wno-missing-field-initializers  # options are written {.layers = 2}, the rest are defaults
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>  # gcc 12 sees ghosts in std::string
  $<$<CXX_COMPILER_ID:Clang>:-Wno-unused-private-field>  # an exercise's stub uses few of them
  $<$<BOOL:${LADDER_WERROR}>:-Werror>)
# What nvcc makes of a .cu file, which the host's compiler then gets, is not ours to mend: fewer warnings.
set(_cuda_warnings -Xcompiler=-Wall,-Wextra $<$<BOOL:${LADDER_WERROR}>:-Werror=all-warnings>)
target_compile_options(ladder_flags INTERFACE
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:${_warnings}>>"
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CUDA>:${_cuda_warnings}>>")
# A header of libtorch that needs an operator includes this one, instead of all two thousand.
target_compile_definitions(ladder_flags INTERFACE $<BUILD_INTERFACE:AT_PER_OPERATOR_HEADERS>)
target_include_directories(ladder_flags INTERFACE
  $<BUILD_INTERFACE:${LADDER_ROOT}> $<INSTALL_INTERFACE:include/ladder>)
if(LADDER_SANITIZE)
  # Without the checks of undefined behavior that double the time of compiling: a null pointer ends the program anyway,
  # and the address sanitizer sees an object's end better than object-size.
  target_compile_options(ladder_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LADDER_SANITIZE};-fno-sanitize=null,vptr,object-size;-fno-sanitize-recover=undefined;-fno-omit-frame-pointer>")
  target_link_options(ladder_flags INTERFACE -fsanitize=${LADDER_SANITIZE})
  string(TOUPPER "${LADDER_SANITIZE}" _sanitizers)
  string(REPLACE "," ";" _sanitizers "${_sanitizers}")
  list(TRANSFORM _sanitizers PREPEND LADDER_SANITIZE_)  # LADDER_SANITIZE_ADDRESS, LADDER_SANITIZE_THREAD
  target_compile_definitions(ladder_flags INTERFACE ${_sanitizers})
endif()

# One precompiled header for all: torch's headers cost more than ours by far.
add_library(ladder_pch STATIC "${LADDER_ROOT}/cmake/precompiled.cpp")
target_link_libraries(ladder_pch PUBLIC ladder_flags ladder::torch)
target_precompile_headers(ladder_pch PRIVATE "${LADDER_ROOT}/cmake/precompiled.hpp")
# ccache compares this instead of the compiled header, whose bytes differ in each build folder.
file(SHA256 "${LADDER_ROOT}/cmake/precompiled.hpp" _pch)
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/ladder_pch.dir/cmake_pch.hxx.gch.sum" "${_pch} ${LADDER_TORCH_VERSION} ${LADDER_TORCH_ROOT}")

function(_ladder_target target)  # [COMPUTES] [WITHOUT_TORCH]
  target_link_libraries(${target} PUBLIC ladder_flags)
  if(NOT "WITHOUT_TORCH" IN_LIST ARGN)
    target_precompile_headers(${target} REUSE_FROM ladder_pch)
  endif()
  # It compiles in half the time. What takes long when it runs are loops over numbers: those of libtorch, and of the rooms
  # that say COMPUTES.
  set(less_optimized $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  if(LADDER_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set(less_optimized "SHELL:-O0 -Xclang -fno-validate-pch")  # the precompiled header is optimized
  endif()
  if(NOT "COMPUTES" IN_LIST ARGN)
    target_compile_options(${target} PRIVATE "${less_optimized}")
  endif()
endfunction()

# Adds NAME_theory: the objects of files without tensors, which are compiled where no header of libtorch is found. They are part
# of the room's or step's library as well; ladder_theory has those of all rooms.
function(_ladder_theory name)  # [COMPUTES] SOURCE…
  set(options "${ARGN}")
  list(FILTER options INCLUDE REGEX "^COMPUTES$")
  list(REMOVE_ITEM ARGN COMPUTES)
  add_library(${name}_theory OBJECT ${ARGN})
  _ladder_target(${name}_theory WITHOUT_TORCH ${options})
endfunction()

# COMPUTES: its loops over numbers take time, so it is compiled with all optimizations.
#
# THEORY: those of its files that need no tensor (_ladder_theory).
#
# CUDA_SOURCES (.cu and .cpp) and CUDA_LINK count only where LADDER_CUDA is ON, WITHOUT_CUDA only where it is OFF. What links
# the room where it is ON sees LADDER_WITH_CUDA as well, so that a header means the same everywhere.
function(ladder_add_library room)
  cmake_parse_arguments(arg "COMPUTES" "" "THEORY;SOURCES;LINK;LINK_PRIVATE;CUDA_SOURCES;CUDA_LINK;WITHOUT_CUDA" ${ARGN})
  if(NOT LADDER_CUDA)
    list(APPEND arg_SOURCES ${arg_WITHOUT_CUDA})
  endif()
  if(LADDER_CUDA AND (arg_CUDA_SOURCES OR arg_CUDA_LINK))
    list(APPEND arg_SOURCES ${arg_CUDA_SOURCES})
    list(APPEND arg_LINK ladder::cuda ${arg_CUDA_LINK})
    list(FILTER arg_CUDA_SOURCES INCLUDE REGEX "\\.cu$")
    if(arg_CUDA_SOURCES)
      set_source_files_properties(${arg_CUDA_SOURCES} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endif()
  set(computes)
  if(arg_COMPUTES)
    set(computes COMPUTES)
  endif()
  if(arg_THEORY)
    _ladder_theory(ladder_${room} ${computes} ${arg_THEORY})
    list(APPEND arg_SOURCES $<TARGET_OBJECTS:ladder_${room}_theory>)
  endif()
  add_library(ladder_${room} STATIC ${arg_SOURCES})
  add_library(ladder::${room} ALIAS ladder_${room})
  set_target_properties(ladder_${room} PROPERTIES EXPORT_NAME ${room})
  _ladder_target(ladder_${room} ${computes})
  target_link_libraries(ladder_${room} PUBLIC ${arg_LINK} ladder::torch PRIVATE ${arg_LINK_PRIVATE})
  set_property(GLOBAL APPEND PROPERTY LADDER_INSTALLED_TARGETS ladder_${room})
endfunction()

# A GoogleTest program. Without RANKS it is an ordinary one, found test by test. With RANKS it links
# common/testing's main for MPI and ctest runs the whole program once per number of ranks; one that
# cannot start has failed, not been skipped. In a build without MPI it is left out, or with OR_ALONE
# run on one rank. With THREADS it also runs without MPI, its ranks being threads of one process
# (common/testing/rank_test.hpp). With OWN_MAIN it is any program that ends with exit code 0 if all
# is well.
#
# With GPU it is built only where LADDER_CUDA is ON, and has the label gpu: ctest -LE gpu leaves these
# tests out, ctest -L gpu runs them. Without a usable GPU they are listed as skipped, not as passed
# (common/testing/gpu_or_skip.cpp).
function(ladder_add_test name)
  if(NOT LADDER_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "OR_ALONE;OWN_MAIN;GPU" "" "SOURCES;LINK;RANKS;THREADS;LABELS" ${ARGN})
  if(arg_RANKS AND NOT LADDER_MPI AND NOT arg_OR_ALONE AND NOT arg_THREADS)
    return()
  endif()
  if(arg_GPU AND NOT LADDER_CUDA)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  _ladder_target(${name})
  target_link_libraries(${name} PRIVATE ${arg_LINK} ladder_testing GTest::gmock)
  set(properties)
  if("overlap" IN_LIST arg_LABELS)  # it measures time
    list(APPEND properties RUN_SERIAL ON)
  endif()
  if(arg_GPU)
    list(APPEND properties SKIP_RETURN_CODE 77)
    list(APPEND arg_LABELS gpu)
    target_link_libraries(${name} PRIVATE ladder_testing_gpu_or_skip)
  endif()
  if(NOT arg_OWN_MAIN)
    target_link_libraries(${name} PRIVATE $<IF:$<BOOL:${arg_RANKS}${arg_THREADS}>,ladder_testing_mpi_main,GTest::gtest_main>)
  endif()
  foreach(threads IN LISTS arg_THREADS)
    add_test(NAME ${name}.threads_${threads} COMMAND ${name} --threads ${threads})
    set_tests_properties(${name}.threads_${threads} PROPERTIES
      LABELS "threads;${arg_LABELS}" PROCESSORS ${threads} ${properties})
  endforeach()
  if(arg_THREADS AND (NOT LADDER_MPI OR NOT arg_RANKS))
    return()
  endif()
  if(NOT arg_RANKS OR NOT LADDER_MPI)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "unit;${arg_LABELS}" ${properties})
    return()
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}.ranks_${ranks}
      COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks} --oversubscribe --bind-to none $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.ranks_${ranks} PROPERTIES
      LABELS "ranks;${arg_LABELS}" PROCESSORS ${ranks} ${properties}
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
  endforeach()
endfunction()

include("${CMAKE_CURRENT_LIST_DIR}/LadderStep.cmake")

# The time limit of a test in seconds, where `ctest --timeout` gives no other, as ./ladder test does on a slow machine.
enable_testing()
file(WRITE "${CMAKE_BINARY_DIR}/DartConfiguration.tcl" "TimeOut: 600\n")
add_subdirectory("${LADDER_ROOT}/common" "${CMAKE_BINARY_DIR}/common")
