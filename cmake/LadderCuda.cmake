# Included where LADDER_CUDA is ON: enables nvcc and makes the targets
#
#   ladder::cuda   libtorch with CUDA, its CUDA runtime and NVRTC; defines LADDER_WITH_CUDA for what links it
#   ladder::nccl   the same, and libtorch's NCCL; linked by what calls NCCL itself
#
# A process must hold one CUDA runtime and one NCCL, so both are the very files that libtorch_cuda.so loads; in a Python
# environment they are in packages next to torch. NCCL_ROOT (cache or environment) names another NCCL, for libtorch, too.
if(TARGET ladder::cuda)
  return()
endif()

# ---- the compiler ---------------------------------------------------------------------------------------------------

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR
      "LADDER_CUDA is ON, and nvcc was not found. Install NVIDIA's CUDA toolkit 13.0 (cuda-toolkit-13-0 in NVIDIA's "
      "packages for Debian and Ubuntu), or name an installed one with -DCMAKE_CUDA_COMPILER=FOLDER/bin/nvcc.")
  endif()
endif()
if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
endif()
set(CMAKE_CUDA_ARCHITECTURES "80;90" CACHE STRING "Compute capabilities to compile for: A100 is 80, H100 and H200 90")
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # not the toolkit's next to libtorch's
enable_language(CUDA)

# ---- what libtorch_cuda.so loads ------------------------------------------------------------------------------------

execute_process(COMMAND ldd "${LADDER_TORCH_ROOT}/lib/libtorch_cuda.so" OUTPUT_VARIABLE _loaded ERROR_QUIET)
function(_ladder_loaded_library name result)
  string(REGEX MATCH "${name}[^ ]*\\.so[^ ]* => (/[^ ]+)" _ "${_loaded}")
  if(CMAKE_MATCH_1)
    get_filename_component(CMAKE_MATCH_1 "${CMAKE_MATCH_1}" REALPATH)
  endif()
  set(${result} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()
_ladder_loaded_library(libcudart _cudart)
_ladder_loaded_library(libnccl _nccl)

string(REGEX MATCH "\\.so\\.([0-9]+)" _ "${_cudart}")
set(_cuda_major "${CMAKE_MATCH_1}")
if(NOT _cuda_major)
  message(FATAL_ERROR
    "ldd finds no CUDA runtime (libcudart) for ${LADDER_TORCH_ROOT}/lib/libtorch_cuda.so. Install the packages that "
    "torch asks for ('./ladder setup --cuda' does), or add their folder to LD_LIBRARY_PATH.")
elseif(NOT CMAKE_CUDA_COMPILER_VERSION MATCHES "^${_cuda_major}\\.")
  message(FATAL_ERROR
    "nvcc is ${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER}), and libtorch was built for CUDA ${_cuda_major} "
    "(${_cudart}). Name an nvcc ${_cuda_major} with -DCMAKE_CUDA_COMPILER=FOLDER/bin/nvcc.")
endif()

# ---- ladder::cuda ---------------------------------------------------------------------------------------------------

# The toolkit's headers are those of nvcc's version. Other headers that libtorch's name (cuBLAS, cuSPARSE, cuSOLVER) may
# only be next to the runtime: -idirafter takes from there no more than the toolkit lacks.
set(_toolkit_headers ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
get_filename_component(_more_headers "${_cudart}/../../include" ABSOLUTE)
find_path(_runtime_header cuda_runtime_api.h PATHS ${_toolkit_headers} "${_more_headers}" NO_DEFAULT_PATH NO_CACHE)
find_path(_sparse_header cusparse.h PATHS ${_toolkit_headers} "${_more_headers}" NO_DEFAULT_PATH NO_CACHE)
if(NOT _runtime_header OR NOT _sparse_header)
  message(FATAL_ERROR
    "cuda_runtime_api.h and cusparse.h were not found in ${_toolkit_headers} or ${_more_headers}. Install the complete "
    "CUDA toolkit ${CMAKE_CUDA_COMPILER_VERSION}, or let './ladder setup --cuda' install its headers with torch.")
endif()
add_library(ladder::cuda INTERFACE IMPORTED GLOBAL)
target_include_directories(ladder::cuda SYSTEM INTERFACE ${_toolkit_headers})
target_compile_definitions(ladder::cuda INTERFACE LADDER_WITH_CUDA)
target_compile_options(ladder::cuda INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter \"${_more_headers}\">"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-idirafter,${_more_headers}>"  # in one word, or ccache reorders it
  # CMake 3.25 does not know that nvcc 13 has C++20. libtorch's headers call constexpr functions on the GPU.
  "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr>")
target_link_libraries(ladder::cuda INTERFACE ladder::torch "${_cudart}")

# cuDNN compiles kernels while a program runs. It opens NVRTC by name, and NVRTC, which has no RUNPATH, opens its builtins
# by name. So both are loaded with the program, as Python's torch loads them.
get_filename_component(_runtime_folder "${_cudart}" DIRECTORY)
file(GLOB _nvrtc "${_runtime_folder}/libnvrtc.so.${_cuda_major}")
file(GLOB _nvrtc_builtins "${_runtime_folder}/libnvrtc-builtins.so.${_cuda_major}.*")
if(_nvrtc AND _nvrtc_builtins)
  list(GET _nvrtc_builtins 0 _nvrtc_builtins)  # 13.0, not 13.0.88
  target_link_options(ladder::cuda INTERFACE
    "-Wl,--push-state,--no-as-needed,${_nvrtc},${_nvrtc_builtins},--pop-state")
else()
  message(WARNING
    "${_runtime_folder} holds no libnvrtc.so.${_cuda_major}, or no libnvrtc-builtins: with --deterministic false, cuDNN may "
    "end a run with 'No valid execution plans built'. NVIDIA's package nvidia-cuda-nvrtc has both.")
endif()

# ---- ladder::nccl ---------------------------------------------------------------------------------------------------

set(NCCL_ROOT "$ENV{NCCL_ROOT}" CACHE PATH "Folder of another NCCL than libtorch's: it holds include/ and lib/")
get_filename_component(_nccl_folder "${_nccl}" DIRECTORY)
set(_nccl_place HINTS "${_nccl_folder}/..")
if(NCCL_ROOT)
  set(_nccl_place PATHS "${NCCL_ROOT}" NO_DEFAULT_PATH)  # asked for by name: nothing else will do
  set(_nccl)
endif()
if(NOT _nccl)
  find_library(_nccl NAMES nccl libnccl.so.2 ${_nccl_place} PATH_SUFFIXES lib lib64 NO_CACHE)
endif()
find_path(_nccl_headers nccl.h ${_nccl_place} PATH_SUFFIXES include NO_CACHE)
if(NOT _nccl OR NOT _nccl_headers)
  message(FATAL_ERROR
    "NCCL was not found (library: '${_nccl}', folder of nccl.h: '${_nccl_headers}', NCCL_ROOT: '${NCCL_ROOT}'). "
    "Install libnccl2 and libnccl-dev, or name a folder with include/nccl.h and lib/libnccl.so: -DNCCL_ROOT=FOLDER.")
endif()
add_library(ladder::nccl INTERFACE IMPORTED GLOBAL)
target_include_directories(ladder::nccl SYSTEM INTERFACE "${_nccl_headers}")
target_link_libraries(ladder::nccl INTERFACE ladder::cuda "${_nccl}")

file(STRINGS "${_nccl_headers}/nccl.h" _parts REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM _parts REPLACE ".* " "")
list(JOIN _parts "." _version)
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}, runtime ${_cudart}")
message(STATUS "NCCL ${_version}: ${_nccl}")
