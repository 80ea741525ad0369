# shellcheck shell=bash
# ./ladder doctor: shows what is installed and what is missing, one line each, and how to get it. Changes nothing.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")
# shellcheck source=scripts/setup.sh
source "$ROOT/scripts/setup.sh"

SIZE="1 to 1.3 GB" NEEDED_GB=6
if [[ $LADDER_CUDA == ON ]]; then SIZE="5 GB" NEEDED_GB=12; fi
num_missing=0
here() { printf '  ok       %-14s %s\n' "$1" "$2"; }
missing() {
  printf '  MISSING  %-14s %s\n' "$1" "$2"
  num_missing=$((num_missing + 1))
}
note() { printf '  note     %-14s %s\n' "$1" "$2"; }

# at_least A B: version A is B or later
at_least() { [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]; }
first_version() { grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' | head -n 1; }

# program NAME COMMAND LEAST PACKAGE
program() {
  local version
  if ! command -v "$2" >/dev/null; then
    missing "$1" "not found; install $4"
    return
  fi
  version=$("$2" --version 2>/dev/null | first_version || true)
  if at_least "$version" "$3"; then
    here "$1" "$version ($(command -v "$2"))"
  else
    missing "$1" "$version is too old, $3 is needed; install a newer $4"
  fi
}

check_packages() {
  local packages
  if ! command -v dpkg-query >/dev/null; then
    note packages "no dpkg here: CMake will report what is missing. Debian's names: $(xargs <<<"$BUILD_PACKAGES")"
    return
  fi
  # shellcheck disable=SC2086
  packages=$(missing_packages $BUILD_PACKAGES)
  if [[ -z $packages ]]; then here packages "everything that the build needs"; else missing packages "apt-get install $packages"; fi
  # shellcheck disable=SC2086
  packages=$(missing_packages $TEST_PACKAGES)
  if [[ -z $packages ]]; then
    here "test packages" "everything else that ./ladder test needs"
  else
    missing "test packages" "only for ./ladder test: apt-get install $packages"
  fi
}

check_torch() {
  local torch
  torch=$(own_torch)
  if [[ -n $torch && -e $torch/lib/libtorch_cpu.so ]]; then
    here libtorch "yours: $torch"
  elif [[ -n $torch ]]; then
    missing libtorch "'$torch' has no lib/libtorch_cpu.so; correct LADDER_TORCH or Torch_DIR, or unset them"
  elif has_venv && is_cpu_half "$VENV"; then
    here libtorch "$(grep -o '^torch==.*' "$REQUIREMENTS") in ${VENV#"$ROOT/"}, the CPU half of a CUDA build: all that the trainers need"
    note "Python's torch" "cannot be imported, so there are no benchmarks against Python, and no torchrun; $CPU_BUILD_ADVICE"
  elif has_venv; then
    here libtorch "$(grep -o '^torch==.*' "$REQUIREMENTS") in ${VENV#"$ROOT/"}"
  else
    missing libtorch "none in ${VENV#"$ROOT/"}; ./ladder setup installs it ($SIZE on disk), LADDER_TORCH=FOLDER uses another"
  fi
}

# What a CUDA build needs. It is missing only where there is such a build, or LADDER_CUDA=ON asks for one.
check_cuda() {
  local lacks=note version torch header runtime
  if [[ $LADDER_CUDA == ON || -e $ROOT/.ladder/venv-cuda ]]; then lacks=missing; fi
  version=$(nvcc_version)
  if [[ $version == "$CUDA_MAJOR".* || -n $version && -n $(own_torch) ]]; then
    here nvcc "$version ($(find_nvcc))"
  elif [[ -n $version ]]; then
    "$lacks" nvcc "$version ($(find_nvcc)), $CUDA_MAJOR is needed; $NVCC_ADVICE"
  else
    "$lacks" nvcc "none; only ./ladder setup --cuda needs it: $NVCC_ADVICE"
  fi
  torch=$(use_cuda && own_or_installed_torch)
  if [[ -e $torch/lib/libtorch_cuda.so ]]; then
    here "CUDA libtorch" "${torch#"$ROOT/"}"
    runtime=$(ldd "$torch/lib/libtorch_cuda.so" 2>/dev/null | sed -n 's|.* => \(/.*\)/libcudart\.so.*|\1|p' || true)
    if compgen -G "$runtime/libnvrtc.so.*" >/dev/null && compgen -G "$runtime/libnvrtc-builtins.so.*" >/dev/null; then
      here NVRTC "$(realpath --relative-base="$ROOT" "$runtime")"
    else
      "$lacks" NVRTC "no libnvrtc, or no libnvrtc-builtins, in ${runtime:-the folder of libcudart}: cuDNN needs them with \
--deterministic false; remove ${VENV#"$ROOT/"} and run ./ladder setup --cuda, or install nvidia-cuda-nvrtc"
    fi
  else
    "$lacks" "CUDA libtorch" "none in ${torch:-.ladder/venv-cuda}; ./ladder setup --cuda installs one (5 GB on disk)"
  fi
  header=$(realpath -m "${NCCL_ROOT:-$torch/../nvidia/nccl}/include/nccl.h")
  if [[ ! -e $header ]]; then header=/usr/include/nccl.h; fi
  version=$(sed -nE 's/^#define NCCL_(MAJOR|MINOR|PATCH) +([0-9]+).*/\2/p' "$header" 2>/dev/null | paste -sd.)
  if [[ -n $version ]]; then
    here NCCL "$version (${header#"$ROOT/"})"
  else
    "$lacks" NCCL "none; it comes with the libtorch of ./ladder setup --cuda, NCCL_ROOT=FOLDER names another"
  fi
}
own_or_installed_torch() {
  local torch
  torch=$(own_torch)
  printf '%s' "${torch:-$(compgen -G "$VENV/lib/python3*/site-packages/torch" || true)}"
}

# The driver belongs to the machine. Without it CUDA programs are built all the same, and say so when they start.
check_gpu() {
  local gpus
  if gpus=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null) && [[ -n $gpus ]]; then
    note GPU "$(wc -l <<<"$gpus") x $(head -n 1 <<<"${gpus%,*}"), driver ${gpus##*, }"
  else
    note GPU "none, or no driver (nvidia-smi shows none); the steps train on the CPU"
  fi
}

check_build() {
  if [[ ! -f $ROOT/build/$BUILD/build.ninja ]]; then
    missing build "build/$BUILD is not configured; ./ladder setup configures it"
  elif ! cmake --build "$ROOT/build/$BUILD" -- -n 2>/dev/null | grep -q 'no work to do'; then
    missing build "build/$BUILD is not up to date; ./ladder setup builds it"
  else
    here build "build/$BUILD is up to date"
  fi
}

check_debugger() {
  local debugger
  debugger=$(command -v gdb || command -v lldb || true)
  if [[ -n $debugger ]]; then
    here debugger "$("$debugger" --version | first_version) ($debugger), for ./ladder debug"
  else
    note debugger "none; only ./ladder debug needs one: install gdb or lldb"
  fi
}

# What multiplies 16-bit numbers, and whether sums of 512 ones are 512: added up in bf16, they would end at 256.
check_instructions() {
  local flags found="" name python="$VENV/bin/python" sums
  flags=" $(grep -m 1 -E '^(flags|Features)' /proc/cpuinfo 2>/dev/null | cut -d: -f2) "
  for name in avx2 avx512f avx512_bf16 avx512_fp16 amx_bf16 amx_fp16 bf16 asimd; do
    if [[ $flags == *" $name "* ]]; then found+="${found:+, }$name"; fi
  done
  if [[ $flags == *" avx512_bf16 "* || $flags == *" amx_bf16 "* ]]; then
    here "instructions" "${found}: --precision bf16 is faster than fp32"
  else
    note "instructions" "${found:-none that we know}; none for bf16: --precision bf16 saves memory, but not time"
  fi
  if [[ ! -x $python ]]; then return 0; fi
  if is_cpu_half "$VENV"; then
    note "products" "not checked: Python cannot import this libtorch"
    return
  fi
  sums=$("$python" - <<'PYTHON' 2>&1 || true
import torch
wrong = []
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    for rows, columns in ((1, 1), (3, 33), (64, 64)):
        product = torch.ones(rows, 512, dtype=dtype) @ torch.ones(512, columns, dtype=dtype)
        if not bool((product == 512).all()):
            wrong.append(f"{rows}x512 times 512x{columns} in {dtype} is {product.min().item()} to {product.max().item()}")
print("; ".join(wrong) or "right")
PYTHON
  )
  if [[ $sums == right ]]; then
    here "products" "sums of 512 ones are 512 in fp32, bf16 and fp16"
  else
    missing "products" "sums of 512 ones are not 512: $sums; this libtorch cannot train in that format here"
  fi
}

check_machine() {
  local memory_gb free_gb
  memory_gb=$(awk '/^MemAvailable/ { print int($2 / 1000000) }' /proc/meminfo)
  free_gb=$(df -Pk "$ROOT" | awk 'NR == 2 { print int($4 / 1000000) }')
  note machine "$(nproc) cores, $memory_gb GB of memory available: $JOBS compiler(s) at a time (LADDER_JOBS=N changes it)"
  if ((free_gb >= NEEDED_GB)) || [[ -d $ROOT/build/$BUILD ]]; then
    here disk "$free_gb GB free"
  else
    missing disk "$free_gb GB free, about $NEEDED_GB are needed for libtorch and all builds"
  fi
}

echo "Ladder in $ROOT:"
program compiler "${CXX:-g++}" 11.0 "g++"
program cmake cmake 3.25 cmake
program ninja ninja 1.10 ninja-build
program python python3 3.9 "python3 and python3-venv"
program mpirun mpirun 4.0 "openmpi-bin and libopenmpi-dev"
check_packages
check_torch
check_build
check_debugger
check_instructions
check_machine
check_cuda
check_gpu
if ((num_missing > 0)); then
  echo "$num_missing missing. ./ladder setup installs what it can."
  exit 1
fi
echo "Nothing is missing."
