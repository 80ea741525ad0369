# Finds libtorch and makes the target ladder::torch.
#
# Looked for, in this order: LADDER_TORCH (cache or environment), Torch_DIR, CMAKE_PREFIX_PATH, and
# .ladder/venv, or with LADDER_CUDA .ladder/venv-cuda, which ./ladder makes. The libraries are linked directly instead of through
# find_package(Torch), which refuses a CUDA build of torch on a machine without the CUDA toolkit and
# sets compiler flags for the whole project.
if(TARGET ladder::torch)
  return()
endif()

set(LADDER_TORCH "$ENV{LADDER_TORCH}" CACHE PATH
    "Folder of libtorch, or of the Python package torch: it holds include/ and lib/")
option(LADDER_CUDA "Build what runs on NVIDIA GPUs, too; needs nvcc, NCCL and a CUDA build of libtorch" OFF)
set(_torch_venv .ladder/venv)
set(_torch_setup "./ladder setup")
if(LADDER_CUDA)
  string(APPEND _torch_venv -cuda)
  string(APPEND _torch_setup " --cuda")
endif()

set(_torch_candidates)
if(LADDER_TORCH)
  list(APPEND _torch_candidates "${LADDER_TORCH}")  # asked for by name: nothing else will do
else()
  if(Torch_DIR)
    list(APPEND _torch_candidates "${Torch_DIR}/../../..")
  endif()
  set(_torch_prefixes ${CMAKE_PREFIX_PATH} $ENV{CMAKE_PREFIX_PATH})
  foreach(_prefix IN LISTS _torch_prefixes)
    list(APPEND _torch_candidates "${_prefix}" "${_prefix}/../..")
  endforeach()
  file(GLOB _torch_in_venv "${CMAKE_CURRENT_LIST_DIR}/../${_torch_venv}/lib/python3*/site-packages/torch")
  list(APPEND _torch_candidates ${_torch_in_venv})
endif()

set(_torch_root)
foreach(_candidate IN LISTS _torch_candidates)
  if(EXISTS "${_candidate}/lib/libtorch_cpu.so" AND EXISTS "${_candidate}/include/ATen/ATen.h")
    get_filename_component(_torch_root "${_candidate}" REALPATH)
    break()
  endif()
endforeach()
if(NOT _torch_root)
  if(LADDER_TORCH)
    set(_torch_looked "LADDER_TORCH is '${LADDER_TORCH}', which holds no lib/libtorch_cpu.so beside include/ATen/ATen.h.")
  else()
    set(_torch_looked "Looked in Torch_DIR, CMAKE_PREFIX_PATH and ${_torch_venv}.")
  endif()
  message(FATAL_ERROR
    "libtorch was not found. ${_torch_looked}\n"
    "Run '${_torch_setup}', or name an existing one with -DLADDER_TORCH=FOLDER: libtorch's own, or that of the Python package torch.")
endif()

set(LADDER_TORCH_VERSION)
foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)  # 2.9 and later; before
  if(NOT LADDER_TORCH_VERSION AND EXISTS "${_torch_root}/include/${_header}")
    file(STRINGS "${_torch_root}/include/${_header}" _parts REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    list(TRANSFORM _parts REPLACE ".* " "")
    list(JOIN _parts "." LADDER_TORCH_VERSION)
  endif()
endforeach()
set(LADDER_TORCH_ROOT "${_torch_root}")
message(STATUS "libtorch ${LADDER_TORCH_VERSION}: ${_torch_root}")
# Step 1 uses internals of libtorch that differ before 2.11. A newer 2.x probably works.
if(LADDER_TORCH_VERSION VERSION_LESS 2.11 OR LADDER_TORCH_VERSION VERSION_GREATER_EQUAL 3)
  message(FATAL_ERROR
    "libtorch '${LADDER_TORCH_VERSION}' in ${_torch_root} is not supported, 2.11 to 2.15 are: LADDER_TORCH=FOLDER names another.")
elseif(LADDER_TORCH_VERSION VERSION_GREATER_EQUAL 2.16)
  message(WARNING "libtorch ${LADDER_TORCH_VERSION} is newer than 2.15, the newest that Ladder was tested with.")
endif()

# Not libtorch.so, which only loads the others. In a CUDA build it also exports one half of std::filesystem, which calls the
# other half at address 0, and would come before libstdc++'s.
set(_torch_names torch_cpu c10)
if(LADDER_CUDA)
  list(PREPEND _torch_names torch_cuda c10_cuda)
endif()
set(_torch_libraries)
foreach(_name IN LISTS _torch_names)
  if(NOT EXISTS "${_torch_root}/lib/lib${_name}.so")
    message(FATAL_ERROR
      "LADDER_CUDA is '${LADDER_CUDA}', and ${_torch_root}/lib holds no lib${_name}.so. '${_torch_setup}' installs a "
      "CUDA build of libtorch; LADDER_TORCH=FOLDER names one that is on this machine.")
  endif()
  list(APPEND _torch_libraries "${_torch_root}/lib/lib${_name}.so")
endforeach()

add_library(ladder::torch INTERFACE IMPORTED GLOBAL)
target_include_directories(ladder::torch SYSTEM INTERFACE
  "${_torch_root}/include" "${_torch_root}/include/torch/csrc/api/include")
find_package(Threads REQUIRED)
target_link_libraries(ladder::torch INTERFACE
  -Wl,--no-as-needed ${_torch_libraries} -Wl,--as-needed Threads::Threads)
# A CUDA build's libtorch_cpu.so itself needs two CUDA libraries. They are sibling Python packages (nvidia/*/lib), which
# it finds by its own rpath.
target_link_options(ladder::torch INTERFACE "-Wl,-rpath,${_torch_root}/lib" "-Wl,--allow-shlib-undefined")
