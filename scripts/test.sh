# ./ladder test: runs everything that CI runs, in parts. If one part fails, the others still run. Ends with the time of
# each part, the slowest tests and ctest's summary. `./ladder test formatting tests` runs only these two parts.
set -euo pipefail
ROOT=$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")
unset LADDER_CUDA LADDER_BUILD  # the part cuda is the one that tests that build
# shellcheck source=scripts/setup.sh
source "$ROOT/scripts/setup.sh"
# shellcheck source=scripts/names.sh
source "$ROOT/scripts/names.sh"
# shellcheck source=scripts/exercises.sh
source "$ROOT/scripts/exercises.sh"
cd "$ROOT"

# Name of each part's function, and what the part does.
PARTS=(
  "setup          system packages, libtorch"
  "formatting     all C++ files follow .clang-format"
  "includes       includes point in one direction; the check finds planted violations"
  "texts          links work, deltas are up to date; container, workflow and citation agree; comparison and table find planted faults"
  "build          build/release, everything"
  "alone          each step configured by itself, two of them built and run (all with LADDER_FULL=1); step 0 without MPI"
  "exercise       one exercise, as a learner meets it: the stub is rejected, the right answer passes"
  "sanitizers     unit tests, and multi-rank tests on three ranks, under address and undefined-behavior sanitizers"
  "races          tests whose ranks are threads of one process, under the thread sanitizer"
  "cuda           build/cuda: GPU tests (skipped without a GPU) and two steps (all with LADDER_FULL=1); needs nvcc"
  "fuzz           the readers of foreign files and messages, on inputs from a fuzzer (LADDER_FUZZ_SECONDS each, default 5)"
  "readme         the commands that the READMEs show"
  "doxygen        the reference builds without warnings"
  "tests          ctest in build/release"
)

part_setup() {
  lock_setup
  # shellcheck disable=SC2086
  need_packages $BUILD_PACKAGES $TEST_PACKAGES
  need_torch
  unlock_setup
}

part_formatting() { scripts/format; }

part_includes() { scripts/check_include_direction --self-test && scripts/check_include_direction; }

part_texts() {
  scripts/check_links && scripts/delta --check &&
    scripts/check_repository_files --self-test && scripts/check_repository_files &&
    scripts/compare_runs.py --self-test && scripts/ladder_table.py --self-test &&
    benchmarks/memory_vs_theory.py --self-test && benchmarks/processes.py --self-test &&
    benchmarks/diloco_vs_ddp.py --self-test && benchmarks/goodput_vs_kills.py --self-test &&
    benchmarks/precision_vs_fp32.py --self-test && benchmarks/gpu_vs_python.py --self-test &&
    scripts/torch_plan.py --self-test && scripts/make_stub --self-test && scripts/check_launcher && scripts/check_cluster_scripts
}

part_build() {
  need_configured release --preset release
  need_built release all
}

# The folder of each step, and of each chapter that trains, is a project of its own. All are configured; two are built and run, different ones each day. With
# LADDER_FULL=1 all are built, file by file: that finds a source that includes too little.
part_alone() {
  local folder step today
  today=$(steps_of_today)
  for folder in $(step_folders); do
    step=${folder##*/}
    need_configured "alone-$step" -S "$folder" -G Ninja -DLADDER_TESTS=OFF -DLADDER_BENCHMARKS=OFF \
      ${LADDER_FULL:+-DCMAKE_UNITY_BUILD=OFF}
    if grep -qx "$step" <<<"$today"; then build_alone "$step"; fi
  done
  need_configured alone-without-mpi -S step0_single_gpu -G Ninja -DLADDER_TESTS=OFF -DLADDER_BENCHMARKS=OFF -DLADDER_MPI=OFF
  build_alone step0_single_gpu alone-without-mpi
  if [[ -n ${LADDER_FULL:-} ]]; then scripts/check_usual_index; fi # as on a fresh machine, with a real download
}
# Prints two steps, with LADDER_FULL=1 all. Today's two follow yesterday's, in a circle.
steps_of_today() {
  local steps i
  mapfile -t steps < <(steps)
  for i in "${!steps[@]}"; do
    if (((i + ${#steps[@]} - 2 * 10#$(date +%j) % ${#steps[@]}) % ${#steps[@]} < 2)) || [[ -n ${LADDER_FULL:-} ]]; then
      printf '%s\n' "${steps[i]}"
    fi
  done
}
build_alone() {
  local step=$1 folder=${2:-alone-$1}
  need_built "$folder" "$step"
  train_briefly "build/$folder/$step"
}
train_briefly() {
  local out
  out=$(mktemp -d)
  "$1" --steps 2 --layers 1 --channels 32 --heads 2 --context 16 --out "$out/run"
  test -s "$out/run/report.json"
  rm -r "$out"
}

# A different one each day; all with LADDER_FULL=1.
part_exercise() {
  local steps=(step[0-9]*_*/ loss_scaler) step
  if [[ -z ${LADDER_FULL:-} ]]; then steps=("${steps[10#$(date +%j) % ${#steps[@]}]}"); fi
  for step in "${steps[@]%/}"; do exercise_like_a_learner "$step"; done
}
exercise_like_a_learner() {
  local step=$1 log stub
  LADDER_EXERCISES=$(mktemp -d)  # a learner's own files stay as they are
  export LADDER_EXERCISES
  log=$LADDER_EXERCISES/log
  if ./ladder exercise "$step" >"$log" 2>&1; then
    cat "$log"
    echo "$step: the stub has passed"
    return 1
  fi
  grep "not implemented: $step" "$log" || { cat "$log"; return 1; }
  for stub in "$LADDER_EXERCISES/$step"/*.cpp; do
    cp "$(solution_of "$(folder_of_exercise "$step")/${stub##*/}")" "$stub"
  done
  ./ladder exercise "$step"
  rm -r "$LADDER_EXERCISES"
}

# Leaks are not checked: libtorch, Open MPI and their threads keep memory until the process ends. Multi-rank tests run on
# three ranks: what goes wrong on two goes wrong on three as well, and a third has orders that two do not have. Graders and
# stubs are left out: the exercises' own tests call the former, and nothing runs in the latter. So is what runs the same
# code as others here: workers that are killed (elastic_test has it), and the parity ladder, whose trainers run as threads
# in thread_ladder_test. With LADDER_FULL=1 the parity ladder runs as well.
part_sanitizers() {
  local selection=(-L '^unit$|^ranks$|^threads$' -LE 'process|overlap'
    -E "(ranks|threads)_[1245]\$|^step.*threads_3\$|_stub_test|^elastic_failure_test\$$(
      [[ -n ${LADDER_FULL:-} ]] || echo '|^parity_')")
  need_configured asan --preset asan
  # shellcheck disable=SC2046
  need_built asan $(programs_of asan "${selection[@]}")
  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 run_ctest asan "$SANITIZER_FACTOR" "${selection[@]}"
}
SANITIZER_FACTOR=5  # of the time limits
# run_ctest FOLDER FACTOR OPTION…: runs the tests of build/FOLDER, whose time limits are FACTOR times the usual ones.
# On a slow machine all limits are longer (measure_time_scale). Four at a time on two cores: many tests wait for processes.
run_ctest() {
  local folder=$1 scale=$((TIME_SCALE * $2))
  shift 2
  LADDER_TIME_SCALE=$scale ctest --test-dir "build/$folder" --timeout $((600 * scale)) --no-tests=error -j4 \
    --output-on-failure "$@" 2>&1 | tee "$LOGS/ctest-$folder.log"
}
# The programs that a selection of tests needs. A test's name is that of its program, followed by the number of ranks.
programs_of() {
  local folder=$1
  shift
  ctest --test-dir "build/$folder" "$@" -N | sed -nE 's/^ *Test +#[0-9]+: ([a-z0-9_]+).*/\1/p' | sort -u
}

# libtorch is not built for this sanitizer, which sees its locks and its memory, but not what its kernels read and write.
# The trainers run in thread_ladder_test; with LADDER_FULL=1 each step's own tests run as well.
part_races() {
  local selection=(-L '^threads$' -E "threads_[1245]\$$([[ -n ${LADDER_FULL:-} ]] || echo '|^step')")
  need_configured tsan --preset tsan
  # shellcheck disable=SC2046
  need_built tsan $(programs_of tsan "${selection[@]}")
  run_ctest tsan "$SANITIZER_FACTOR" "${selection[@]}"
}

# Without a GPU the GPU tests are only compiled, linked, and listed as skipped. With one that must not happen.
part_cuda() {
  local steps step architecture
  use_cuda
  mapfile -t steps < <(steps_of_today)
  part_setup
  need_configured cuda --preset cuda
  # shellcheck disable=SC2046
  need_built cuda core_test $(programs_of cuda -L gpu) "${steps[@]}"
  build/cuda/common/core/core_test --gtest_brief=1
  for architecture in sm_80 sm_90; do
    "$(find_cuobjdump)" --list-elf build/cuda/common/core/core_gpu_test | grep "$architecture"
  done
  for step in "${steps[@]}"; do train_briefly "build/cuda/$step/$step"; done
  if nvidia-smi -L 2>/dev/null; then export LADDER_REQUIRE_GPU=1; fi
  run_ctest cuda 1 -L gpu -j1
}
# It lists the code for GPUs in a program. Some toolkits lack it, but triton, which comes with torch, brings one.
find_cuobjdump() {
  command -v cuobjdump || command -v "${CUDA_HOME:-/usr/local/cuda}/bin/cuobjdump" ||
    compgen -G "$VENV/lib/python3*/site-packages/triton/backends/nvidia/bin/cuobjdump"
}

# A file that makes a reader crash, hang or throw anything but CheckError is kept next to the log, .ladder/logs/fuzz-….
part_fuzz() {
  local reader seeds="$ROOT/build/fuzz/seeds"
  need_configured fuzz --preset fuzz
  need_built fuzz fuzzers
  rm -rf "$seeds"
  build/fuzz/tests/fuzz/write_seeds "$seeds"
  for reader in safetensors token_file text_file checkpoint message snapshot wire_format; do
    logged "fuzz-$reader" fuzz "$reader" "$seeds/$reader"
  done
}
fuzz() {
  local found
  found=$(mktemp -d)
  if [[ -w /dev/shm ]]; then export TMPDIR=/dev/shm; fi # the checkpoint's files are rewritten for every input
  ASAN_OPTIONS=detect_leaks=0 "build/fuzz/tests/fuzz/$1_fuzzer" -seed=1 -max_total_time="${LADDER_FUZZ_SECONDS:-5}" \
    -max_len=4096 -timeout=10 -rss_limit_mb=2048 -dict=tests/fuzz/words.dict -artifact_prefix="$LOGS/fuzz-$1-" \
    -print_final_stats=1 "$found" "$2" && rm -r "$found"
}

part_readme() { scripts/check_readme_commands; }

part_doxygen() {
  rm -rf build/docs
  mkdir -p build/docs
  logged doxygen doxygen docs/Doxyfile
}

part_tests() { run_ctest release 1 -LE full; }

# Sets TIME_SCALE to how many times as long as on a fast, idle machine a loop takes on two cores at once, rounded up.
measure_time_scale() {
  local start=$EPOCHREALTIME core
  for core in 1 2; do python3 -c 'for i in range(15_000_000): pass' & done
  wait
  TIME_SCALE=$(awk -v from="$start" -v to="$EPOCHREALTIME" 'BEGIN { print int(to - from) + 1 }')
}

# Prints the ten tests that took longest, of all builds, with the share of their time limit.
slowest_tests() {
  local log folder
  for log in "$LOGS"/ctest-*.log; do
    folder=${log##*/ctest-}
    sed -nE "s|^ *[0-9]+/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec.*|\2 \1 ${folder%.log}|p" "$log"
  done | sort -rn | awk -v limit=$((600 * TIME_SCALE)) -v factor="$SANITIZER_FACTOR" 'NR <= 10 {
    printf "%6.0f s  %3.0f %% of its limit  %s, %s\n", $1, 100 * $1 / (limit * ($3 ~ /^[at]san$/ ? factor : 1)), $2, $3 }'
}

# run_part NAME: adds its time and result to TABLE. A part runs in a shell of its own that stops at the first error.
run_part() {
  local name=$1 start=$SECONDS status=0 result=ok
  printf '\n=== %s\n' "$name"
  if [[ $name == @(readme|tests) && " ${FAILED[*]} " == *" build "* ]]; then
    FAILED+=("$name")
    TABLE+=("$(printf '%-12s %-7s' "$name" "not run: the build failed")")
    return
  fi
  set +e
  (set -e && "part_$name")
  status=$?
  set -e
  if ((status != 0)); then
    result=FAILED
    FAILED+=("$name")
  fi
  TABLE+=("$(printf '%-12s %-7s %5d s' "$name" "$result" $((SECONDS - start)))")
  if ((status >= 128)); then exit "$status"; fi # Ctrl-C
}

main() {
  local line name description reason not_run=""
  FAILED=() TABLE=()
  mkdir -p "$LOGS"
  rm -f "$LOGS"/ctest-*.log
  for name in "$@"; do
    printf '%s\n' "${PARTS[@]}" | grep -q "^$name " || usage_error "there is no part '$name'. The parts: $(printf '%s\n' "${PARTS[@]}" | cut -d' ' -f1 | xargs)"
  done
  measure_time_scale
  for line in "${PARTS[@]}"; do
    read -r name description <<<"$line"
    if (($# > 0)) && [[ " $* " != *" $name "* ]]; then continue; fi
    if [[ $name == cuda && $# == 0 ]] && ! reason=$( (use_cuda && need_nvcc) 2>&1); then
      TABLE+=("$(printf '%-12s %-7s' "$name" "not run: ${reason#ladder: }")")
      not_run=", except cuda, which was not run"
      continue
    fi
    run_part "$name"
    if [[ $name == setup && ${#FAILED[@]} != 0 ]]; then break; fi # nothing else can work
  done
  printf '\n=== parts, %d s in all\n' "$SECONDS"
  printf '%s\n' "${TABLE[@]}"
  if ((${#FAILED[@]} > 0)); then printf 'FAILED: %s\n' "${FAILED[*]}"; else echo "all parts passed$not_run"; fi
  if compgen -G "$LOGS/ctest-*.log" >/dev/null; then
    printf '\n=== the slowest tests; time limits are %d times those of a fast machine\n' "$TIME_SCALE"
    slowest_tests
  fi
  if [[ -f $LOGS/ctest-release.log ]]; then
    echo
    sed -n '/tests passed/,$p' "$LOGS/ctest-release.log"
  fi
  ((${#FAILED[@]} == 0))
}
main "$@"
