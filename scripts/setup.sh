# shellcheck shell=bash
# The set-up of Ladder, part by part: packages, libtorch, configure, build. Sourced by ./ladder and
# scripts/test.sh, which set ROOT. Each need_… function does only what is still missing, says what it
# does, and writes its output to .ladder/logs/NAME.log.

LOGS="$ROOT/.ladder/logs"
# The CPU's set-up; use_cuda below chooses the other one. Neither touches the other.
VENV="$ROOT/.ladder/venv"
REQUIREMENTS="$ROOT/scripts/requirements.txt"
BUILD=release     # the preset, and its folder under build/
# shellcheck disable=SC2034  # for ./ladder
BUILD_SUFFIX=""   # of the names of other build folders
# As many compilers at once as fit: one per core, 1.5 GB each.
JOBS="${LADDER_JOBS:-$(awk -v cores="$(nproc)" '/^MemAvailable/ {
  jobs = int($2 / 1500000); if (jobs > cores) jobs = cores; print jobs < 1 ? 1 : jobs }' /proc/meminfo)}"

BUILD_PACKAGES="g++ cmake ninja-build python3-venv ccache libopenmpi-dev openmpi-bin libgtest-dev
  libgmock-dev libbenchmark-dev libcli11-dev nlohmann-json3-dev libxxhash-dev libzmq3-dev cppzmq-dev libsodium-dev"
# shellcheck disable=SC2034  # for doctor.sh and test.sh
TEST_PACKAGES="doxygen graphviz python3-yaml clang-format-14 clang-16 libclang-rt-16-dev"

say() { printf 'ladder: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
usage_error() { say "$*"; exit 2; }

# LADDER_CUDA=ON builds what runs on NVIDIA GPUs, too, in folders of its own.
CUDA_MAJOR=13  # of the libtorch in requirements-cuda.txt
# shellcheck disable=SC2034  # for ./ladder
use_cuda() {
  export LADDER_CUDA=ON LADDER_BUILD="$ROOT/build/cuda"  # LADDER_BUILD is for benchmarks/processes.py
  VENV="$ROOT/.ladder/venv-cuda"
  REQUIREMENTS="$ROOT/scripts/requirements-cuda.txt"
  BUILD=cuda
  BUILD_SUFFIX=-cuda
}
case ${LADDER_CUDA:-OFF} in
  ON | on | 1) use_cuda ;;
  OFF | off | 0) LADDER_CUDA=OFF ;;
  *) usage_error "LADDER_CUDA is '$LADDER_CUDA', it must be ON or OFF" ;;
esac

# Prints where nvcc is; nothing if there is none.
find_nvcc() {
  if [[ -n ${CUDACXX:-} ]]; then
    command -v "$CUDACXX" || true
  else
    command -v nvcc || command -v "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" || true
  fi
}
# Prints its version, such as 13.0.88; nothing if it does not run.
nvcc_version() { { "$(find_nvcc)" --version | sed -n 's/.* V\([0-9.]*\)$/\1/p'; } 2>/dev/null || true; }
NVCC_ADVICE="install NVIDIA's CUDA toolkit $CUDA_MAJOR.0 (cuda-toolkit-$CUDA_MAJOR-0 in NVIDIA's packages for Debian and \
Ubuntu), or name an installed nvcc with CUDACXX=FILE"
# CUDA's compiler comes with the toolkit, which we do not install: it belongs to the system, as the driver does.
need_nvcc() {
  local version major
  [[ -n $(find_nvcc) ]] || fail "found no nvcc, CUDA's compiler (CUDACXX is '${CUDACXX:-}'): $NVCC_ADVICE"
  version=$(nvcc_version)
  major=${version%%.*}
  if [[ -z $(own_torch) && $major != "$CUDA_MAJOR" ]]; then
    fail "nvcc is ${version:-of unknown version} ($(find_nvcc)), and setup installs libtorch for CUDA $CUDA_MAJOR:" \
      "$NVCC_ADVICE, or a libtorch for your CUDA with LADDER_TORCH=FOLDER"
  fi
}

# logged NAME COMMAND…: writes the command's output to the log; after a failure, shows its end.
logged() {
  local name=$1 log="$LOGS/$1.log"
  shift
  mkdir -p "$LOGS"
  if ! "$@" >"$log" 2>&1; then explain_failure "$name"; fi
}

# Shows where the log of a failed part is, and its end, or the first error of a build.
explain_failure() {
  local log="$LOGS/$1.log"
  say "the part '$1' failed (log: .ladder/logs/$1.log):"
  if grep '^FAILED: ' "$log" | grep -qv 'build.ninja'; then
    sed -n '/^FAILED: /,$p' "$log" | head -n 20 | cut -c1-400 >&2
  else
    tail -n 20 "$log" >&2
  fi
  exit 1
}

# One set-up at a time per checkout; the lock ends with the process, or with unlock_setup.
lock_setup() {
  mkdir -p "$LOGS"
  command -v flock >/dev/null || return 0
  exec 9>"$ROOT/.ladder/lock"
  if ! flock -n 9; then
    say "waiting for another ./ladder that is setting up this checkout"
    flock 9
  fi
}
unlock_setup() { exec 9>&-; }

# missing_packages NAME…: prints those that are not installed; nothing if there is no dpkg.
missing_packages() {
  command -v dpkg-query >/dev/null || return 0
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || printf '%s ' "$package"
  done
}

# need_packages NAME…: installs them if it may. Outside Debian and Ubuntu, CMake reports what is missing.
need_packages() {
  if [[ $LADDER_CUDA == ON ]]; then need_nvcc; fi # before anything is fetched
  [[ -z ${LADDER_SKIP_PACKAGES:-} ]] || return 0
  local missing sudo=()
  missing=$(missing_packages "$@")
  [[ -n $missing ]] || return 0
  if [[ $(id -u) != 0 ]]; then
    sudo -n true 2>/dev/null || fail "please install: sudo apt-get install ${missing% }   (or set LADDER_SKIP_PACKAGES=1 to use the tools that are installed)"
    sudo=(sudo -n)
  fi
  say "installing system packages: ${missing% }"
  APT=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get)
  # shellcheck disable=SC2086
  logged packages install_packages $missing
}
install_packages() { "${APT[@]}" update && "${APT[@]}" install -y --no-install-recommends "$@"; }

# Prints the user's own libtorch: LADDER_TORCH, Torch_DIR, or one inside CMAKE_PREFIX_PATH.
own_torch() {
  if [[ -n ${LADDER_TORCH:-} ]]; then realpath -m "$LADDER_TORCH"; return; fi
  if [[ -n ${Torch_DIR:-} ]]; then printf '%s' "$Torch_DIR/../../.."; return; fi
  local prefix folder prefixes
  IFS=':;' read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}"; do
    for folder in "$prefix" "$prefix/../.."; do
      if [[ -e $folder/lib/libtorch_cpu.so ]]; then printf '%s' "$folder"; return; fi
    done
  done
}

# libtorch in a virtual environment of our own. It is made under another name and renamed once it is complete, so the
# remains of an interrupted set-up are never mistaken for it. No other environment is touched.
has_venv() { cmp -s "$REQUIREMENTS" "$VENV/requirements.txt"; }
need_torch() {
  [[ -z $(own_torch) ]] || return 0
  if has_venv; then return 0; fi
  local new="$VENV.partial" cuda=()
  if [[ $LADDER_CUDA == ON ]]; then cuda=(--cuda); fi
  say "asking pip what $(grep -o '^torch==.*' "$REQUIREMENTS") needs"
  rm -rf "$new"
  logged venv make_plan "$new"
  "$new/bin/python" "$ROOT/scripts/torch_plan.py" "$new/plan.json" "${cuda[@]}" >"$new/packages.txt" || exit 1
  logged venv install_torch "$new"
  rm -rf "$VENV"
  mv "$new" "$VENV"
}
# Only pip 25.3 and later can plan without downloading; without a network, the installed one can still install files.
make_plan() {
  python3 -m venv "$1" || return
  "$1/bin/python" -m pip install "${PIP_OPTIONS[@]}" --upgrade 'pip>=25.3' || true
  "$1/bin/python" -m pip install "${PIP_OPTIONS[@]}" --dry-run --ignore-installed --use-feature=fast-deps \
    --report "$1/plan.json" -r "$REQUIREMENTS"
}
# The environment's scripts name its folder, which is about to be renamed.
install_torch() {
  local name=${VENV##*/}
  "$1/bin/python" -m pip install "${PIP_OPTIONS[@]}" --no-deps -r "$1/packages.txt" && check_torch_loads "$1" &&
    grep -rlIF "$name.partial" "$1/bin" "$1/pyvenv.cfg" | xargs -d '\n' sed -i "s|$name\.partial|$name|g" &&
    cp "$REQUIREMENTS" "$1/requirements.txt"
}
check_torch_loads() {
  if ! is_cpu_half "$1"; then
    "$1/bin/python" -c 'import torch'
    return
  fi
  rm -f "$1/bin/torchrun"  # it could only say that it cannot import torch
  "$1/bin/python" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$1"/lib/python3*/site-packages/torch/lib/libtorch_cpu.so
}
# is_cpu_half VENV: whether it holds the CPU half of a CUDA build (torch_plan.py), which Python cannot import.
is_cpu_half() { [[ $LADDER_CUDA == OFF ]] && compgen -G "$1/lib/python3*/site-packages/torch/lib/libtorch_cuda.so" >/dev/null; }
CPU_BUILD_ADVICE="for a CPU build, give pip an index that has one (PIP_EXTRA_INDEX_URL, or extra-index-url in pip's \
configuration), remove .ladder/venv and run ./ladder setup"
PIP_OPTIONS=(--disable-pip-version-check --progress-bar off)

# The -D options of every build folder. ccache's paths are relative, so that build folders share its objects.
cmake_options() {
  local torch languages=CXX language
  torch=$(own_torch)
  printf '%s\n' "-DLADDER_TORCH=$torch" "-DLADDER_CUDA=$LADDER_CUDA"
  if [[ $LADDER_CUDA == ON ]]; then
    printf '%s\n' "-DCMAKE_CUDA_COMPILER=$(find_nvcc)"
    languages="CXX CUDA"
  fi
  command -v ccache >/dev/null || return 0
  for language in $languages; do
    printf '%s\n' "-DCMAKE_${language}_COMPILER_LAUNCHER=cmake;-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;CCACHE_BASEDIR=$ROOT;CCACHE_NOHASHDIR=1;ccache"
  done
}

# need_configured FOLDER OPTION…: runs CMake for build/FOLDER once per set of options; Ninja repeats it when files change.
# In CI warnings are errors. A folder configured that way is also used outside CI, to avoid building it twice.
need_configured() {
  local name=$1 folder="$ROOT/build/$1" stamp options have home
  shift
  stamp="$folder/.ladder_configured"
  mapfile -t options < <(cmake_options)
  options+=("$@")
  have=$(cat "$stamp" 2>/dev/null || true)
  if [[ -z ${CI:-} && ${have##*$'\n'} == -DLADDER_WERROR=ON ]]; then have=${have%$'\n'*}; fi
  if [[ -n ${CI:-} ]]; then options+=(-DLADDER_WERROR=ON); fi
  home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$folder/CMakeCache.txt" 2>/dev/null || true)
  if [[ -n $home && ! $home -ef $ROOT && ! $home -ef $ROOT/${home##*/} ]]; then
    say "build/$name belongs to $home: recreating it"  # the checkout was moved or copied
    rm -rf "$folder"
    have=""
  fi
  if [[ -f $folder/build.ninja && ! $ROOT/CMakePresets.json -nt $stamp &&
    $have == "$(printf '%s\n' "${options[@]}")" ]]; then return 0; fi
  say "configuring build/$name"
  rm -f "$stamp"
  (cd "$ROOT" && logged "configure-$name" cmake -B "$folder" "${options[@]}") || exit 1
  printf '%s\n' "${options[@]}" >"$stamp"
}

# need_built FOLDER TARGET…: builds, with one line of progress on a terminal; silent if there is nothing to do.
need_built() {
  local name=$1 log="$LOGS/build-$1.log"
  shift
  mkdir -p "$LOGS"
  if ! cmake --build "$ROOT/build/$name" -j "$JOBS" --target "$@" 2>&1 | tee "$log" | show_progress "build-$name" "$* in build/$name"; then
    explain_failure "build-$name"
  fi
}
show_progress() {
  local line columns next=0
  columns=$(tput cols 2>/dev/null || echo 80)
  while IFS= read -r line; do
    [[ $line =~ ^\[[0-9]+/[0-9]+\] ]] || continue
    if ((next == 0)); then
      say "building $2, $JOBS at a time (log: .ladder/logs/$1.log)"
      next=$((SECONDS + 60))
    fi
    if [[ -t 2 ]]; then
      printf '\r\033[K%.*s' "$((columns - 1))" "$line" >&2
    elif ((SECONDS >= next)); then
      say "  ${line:0:100}"
      next=$((SECONDS + 60))
    fi
  done
  if [[ -t 2 ]] && ((next > 0)); then printf '\r\033[K' >&2; fi
}

# is_built FOLDER TARGET…
is_built() {
  local name=$1
  shift
  cmake --build "$ROOT/build/$name" --target "$@" -- -n 2>/dev/null | grep -q 'no work to do'
}

# await_session PID: waits until setsid has given the process a session, or it has ended. Before that there is no group to
# end, and a signal can get lost: just after the fork it is still a bash with our traps, which it then forgets.
await_session() {
  until kill -0 -- "-$1" 2>/dev/null || ! kill -0 "$1" 2>/dev/null; do sleep 0.01; done
}

# build_behind TARGET…: builds in build/$BUILD in the background, in a session of its own that ends with us.
# finish_build waits for it, and fails if there was none.
build_behind() {
  local log="$LOGS/build-behind.log"
  say "building the other steps in the background (log: .ladder/logs/build-behind.log)"
  builder=""
  trap end_build EXIT
  setsid nice cmake --build "$ROOT/build/$BUILD" -j "$JOBS" --target "$@" >"$log" 2>&1 </dev/null &
  builder=$!
}
end_build() {
  trap '' INT TERM HUP
  builder=${builder:-${!:-}}  # we may end before it has its name, or before it is there
  [[ -n $builder ]] || return 0
  await_session "$builder"
  kill -TERM -- "-$builder" 2>/dev/null || true
}
finish_build() {
  [[ -n ${builder:-} ]] || return 1
  tail -n 1 --pid="$builder" -s 0.5 -f "$LOGS/build-behind.log" | show_progress build-behind "the other steps"
  wait "$builder" || explain_failure build-behind
  trap - EXIT
  builder=""
}

# Does what every command needs before it builds in build/$BUILD; need_release then builds these targets.
prepare_release() {
  lock_setup
  # shellcheck disable=SC2086
  need_packages $BUILD_PACKAGES
  need_torch
  need_configured "$BUILD" --preset "$BUILD"
}
need_release() {
  prepare_release
  need_built "$BUILD" "$@"
  unlock_setup
}
