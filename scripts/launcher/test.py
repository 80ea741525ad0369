"""./ladder test: runs everything that CI runs, in parts. If one fails, the others still run."""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from launcher import exercise
from launcher.build import need_built, need_configured, setup_lock
from launcher.checkout import CPU, CUDA, LOGS, ROOT, Kind, use_cuda
from launcher.console import Failure, Parser, fail, nearest, say, usage_error
from launcher.libtorch import need_nvcc, need_torch
from launcher.logs import Log, Reader, log_path
from launcher.packages import BUILD_PACKAGES, TEST_PACKAGES, need_packages
from launcher.processes import call, finish, output_of, start
from launcher.steps import step_names

IS_FULL = bool(os.environ.get("LADDER_FULL"))
SANITIZER_FACTOR = 5  # of the time limits
TEXT_CHECKS = """scripts/check_links
    scripts/delta --check
    scripts/check_repository_files --self-test
    scripts/check_repository_files
    scripts/compare_runs.py --self-test
    scripts/ladder_table.py --self-test
    benchmarks/memory_vs_theory.py --self-test
    benchmarks/processes.py --self-test
    benchmarks/diloco_vs_ddp.py --self-test
    benchmarks/goodput_vs_kills.py --self-test
    benchmarks/precision_vs_fp32.py --self-test
    benchmarks/gpu_vs_python.py --self-test
    scripts/check_launcher
    scripts/check_cluster_scripts"""
READERS = "safetensors token_file text_file checkpoint message snapshot wire_format".split()


# ---- parts: the first line of each says what it does ------------------------------------------------------------------


def setup():
    """system packages, libtorch"""
    set_up(CPU)


def formatting():
    """all C++ files follow .clang-format"""
    check("scripts/format")


def includes():
    """includes point in one direction; the check finds planted violations"""
    check("scripts/check_include_direction", "--self-test")
    check("scripts/check_include_direction")


def texts():
    """links work, deltas are up to date; container, workflow and citation agree; scripts find planted faults"""
    for line in TEXT_CHECKS.splitlines():
        check(*line.split())


def build():
    """build/release, everything"""
    need_configured(CPU, "release", "--preset", "release")
    need_built("release", "all")


def alone():
    """each step configured by itself, two of them built and run (all with LADDER_FULL=1); step 0 without MPI

    With LADDER_FULL=1 they are built file by file: that finds a source that includes too little.
    """
    options = ["-G", "Ninja", "-DLADDER_TESTS=OFF", "-DLADDER_BENCHMARKS=OFF"]
    file_by_file = ["-DCMAKE_UNITY_BUILD=OFF"] if IS_FULL else []
    for step in step_names():
        need_configured(CPU, f"alone-{step}", "-S", step, *options, *file_by_file)
        if step in todays(step_names(), 2):
            build_alone(f"alone-{step}", step)
    need_configured(CPU, "alone-without-mpi", "-S", "step0_single_gpu", *options, "-DLADDER_MPI=OFF")
    build_alone("alone-without-mpi", "step0_single_gpu")
    if IS_FULL:
        check("scripts/check_usual_index")  # as on a fresh machine, with a real download


def exercises():
    """one exercise, as a learner meets it: the stub is rejected, the right answer passes (all with LADDER_FULL=1)"""
    for name in todays([*step_names(), exercise.ALONE], 1):
        exercise_like_a_learner(exercise.exercise_of(name))


def sanitizers():
    """unit tests, and multi-rank tests on three ranks, under address and undefined-behavior sanitizers

    Leaks are not checked: libtorch, Open MPI and their threads keep memory until the process ends. Multi-rank tests run on
    three ranks: what goes wrong on two goes wrong on three as well, and a third has orders that two do not have. Graders
    and stubs are left out: the exercises' own tests call the former, and nothing runs in the latter. So is what runs the
    same code as others here: workers that are killed (elastic_test has it), and the parity ladder, whose trainers run as
    threads in thread_ladder_test. With LADDER_FULL=1 the parity ladder runs as well.
    """
    left_out = r"(ranks|threads)_[1245]$|^step.*threads_3$|_grade|_stub_test|^elastic_failure_test$"
    selection = ["-L", "^unit$|^ranks$|^threads$", "-LE", "process|overlap", "-E", left_out + ("" if IS_FULL else "|^parity_")]
    need_configured(CPU, "asan", "--preset", "asan")
    need_built("asan", *programs_of("asan", selection))
    settings = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    run_ctest("asan", selection, SANITIZER_FACTOR, **settings)


def races():
    """tests whose ranks are threads of one process, under the thread sanitizer

    libtorch is not built for this sanitizer, which sees its locks and its memory, but not what its kernels read and write.
    The trainers run in thread_ladder_test; with LADDER_FULL=1 each step's own tests run as well.
    """
    selection = ["-L", "^threads$", "-E", "threads_[1245]$" + ("" if IS_FULL else "|^step")]
    need_configured(CPU, "tsan", "--preset", "tsan")
    need_built("tsan", *programs_of("tsan", selection))
    run_ctest("tsan", selection, SANITIZER_FACTOR)


def cuda():
    """build/cuda: GPU tests (skipped without a GPU) and two steps (all with LADDER_FULL=1); needs nvcc

    Without a GPU the GPU tests are only compiled, linked, and listed as skipped. With one that must not happen.
    """
    kind, steps, gpu_tests = use_cuda(), todays(step_names(), 2), ["-L", "gpu"]
    set_up(kind)
    need_configured(kind, "cuda", "--preset", "cuda")
    need_built("cuda", "core_test", *programs_of("cuda", gpu_tests), *steps)
    check("build/cuda/common/core/core_test", "--gtest_brief=1")
    for architecture in ("sm_80", "sm_90"):
        if architecture not in output_of([find_cuobjdump(), "--list-elf", "build/cuda/common/core/core_gpu_test"]):
            fail(f"core_gpu_test has no code for {architecture}")
    for step in steps:
        train_briefly(kind.program(step))
    required = {"LADDER_REQUIRE_GPU": "1"} if output_of(["nvidia-smi", "-L"]) else {}
    run_ctest("cuda", [*gpu_tests, "-j1"], **required)


def fuzz():
    """the readers of foreign files and messages, on inputs from a fuzzer (LADDER_FUZZ_SECONDS each, default 5)

    A file that makes a reader crash, hang or throw anything but CheckError is kept next to the log, .ladder/logs/fuzz-….
    """
    seeds = ROOT / "build/fuzz/seeds"
    need_configured(CPU, "fuzz", "--preset", "fuzz")
    need_built("fuzz", "fuzzers")
    shutil.rmtree(seeds, ignore_errors=True)
    check("build/fuzz/tests/fuzz/write_seeds", seeds)
    for reader in READERS:
        fuzz_one(reader, seeds / reader)


def readme():
    """the commands that the READMEs show"""
    check("scripts/check_readme_commands")


def doxygen():
    """the reference builds without warnings"""
    shutil.rmtree(ROOT / "build/docs", ignore_errors=True)
    (ROOT / "build/docs").mkdir(parents=True)
    Log("doxygen").run(["doxygen", "docs/Doxyfile"])


def tests():
    """ctest in build/release"""
    run_ctest("release", ["-LE", "full"])


PARTS = {"setup": setup, "formatting": formatting, "includes": includes, "texts": texts, "build": build, "alone": alone,
         "exercise": exercises, "sanitizers": sanitizers, "races": races, "cuda": cuda, "fuzz": fuzz, "readme": readme,
         "doxygen": doxygen, "tests": tests}  # fmt: skip
NEED_BUILD = {"readme", "tests"}


# ---- what the parts do ------------------------------------------------------------------------------------------------


def check(*command, **environment: str) -> None:
    """Fails if the program does."""
    if code := call(command, env={**os.environ, **environment}):
        fail(f"{' '.join(map(str, command))}: exit code {code}")


def set_up(kind: Kind) -> None:
    with setup_lock():
        need_packages([*BUILD_PACKAGES, *TEST_PACKAGES])
        need_torch(kind)


def todays(names: list[str], count: int) -> list[str]:
    """Different ones each day, in a circle; all with LADDER_FULL=1."""
    first = count * int(time.strftime("%j"))
    return names if IS_FULL else [names[(first + i) % len(names)] for i in range(count)]


def build_alone(folder: str, step: str) -> None:
    need_built(folder, step)
    train_briefly(ROOT / "build" / folder / step)


def train_briefly(program: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tiny = "--steps 2 --layers 1 --channels 32 --heads 2 --context 16".split()
        check(program, *tiny, "--out", f"{folder}/run")
        if not Path(folder, "run/report.json").stat().st_size:
            fail(f"{program} has written no report")


def exercise_like_a_learner(this: exercise.Exercise) -> None:
    with tempfile.TemporaryDirectory() as folder:  # a learner's own files stay as they are
        grade, where = ["./ladder", "exercise", this.name], {"LADDER_EXERCISES": folder}
        log = log_path("exercise-stub")
        with log.open("w") as file:
            code = call(grade, env={**os.environ, **where}, stdout=file, stderr=subprocess.STDOUT)
        if code == 0 or f"not implemented: {this.name}" not in log.read_text():
            print(log.read_text())
            fail(f"{this.name}: the stub {'has passed' if code == 0 else 'fails for another reason'}")
        for stub in this.stubs():
            shutil.copyfile(exercise.solution_of(stub), Path(folder, this.name, stub.name))
        check(*grade, **where)


def programs_of(folder: str, selection: list[str]) -> list[str]:
    """That a selection of tests needs. A test's name is that of its program, followed by the number of ranks."""
    listed = output_of(["ctest", "--test-dir", f"build/{folder}", *selection, "-N"])
    return sorted(set(re.findall(r"^ *Test +#\d+: ([a-z0-9_]+)", listed, re.MULTILINE)))


def run_ctest(folder: str, options: list[str], factor: int = 1, **environment: str) -> None:
    """The tests of a build; on a slow machine all limits are longer. Four at a time on two cores: many wait for processes."""
    scale = time_scale() * factor
    command = ["ctest", "--test-dir", f"build/{folder}", "--timeout", 600 * scale, "--no-tests=error", "-j4", "--output-on-failure"]
    environment = {**os.environ, "LADDER_TIME_SCALE": str(scale), **environment}
    with log_path(f"ctest-{folder}").open("w") as log:
        reader = Reader(f"ctest-{folder}")
        code = call([*command, *options], reader.echo, env=environment, stdout=log, stderr=subprocess.STDOUT)
    reader.echo()
    if code:
        fail(f"tests of build/{folder} have failed")


def find_cuobjdump() -> str:
    """It lists the code for GPUs in a program. Some toolkits lack it, but triton, which comes with torch, brings one."""
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/bin/cuobjdump"
    tritons = CUDA.venv.glob("lib/python3*/site-packages/triton/backends/nvidia/bin/cuobjdump")
    return shutil.which("cuobjdump") or shutil.which(toolkit) or str(next(tritons, "cuobjdump"))


def fuzz_one(reader: str, seeds: Path) -> None:
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    if os.access("/dev/shm", os.W_OK):
        environment["TMPDIR"] = "/dev/shm"  # the checkpoint's files are rewritten for every input
    options = f"-seed=1 -max_total_time={os.environ.get('LADDER_FUZZ_SECONDS') or 5} -max_len=4096 -timeout=10 -rss_limit_mb=2048"
    with tempfile.TemporaryDirectory() as found:
        Log(f"fuzz-{reader}").run(
            [f"build/fuzz/tests/fuzz/{reader}_fuzzer", *options.split(), "-dict=tests/fuzz/words.dict", "-print_final_stats=1",
             f"-artifact_prefix={LOGS}/fuzz-{reader}-", found, seeds], env=environment,
        )  # fmt: skip


# ---- all of them ------------------------------------------------------------------------------------------------------


@functools.cache
def time_scale() -> int:
    """How many times as long as on a fast, idle machine a loop takes on two cores at once, rounded up; measured once."""
    start_s = time.monotonic()
    for child in [start([sys.executable, "-c", "for i in range(15_000_000): pass"]) for _ in range(2)]:
        finish(child)
    return int(time.monotonic() - start_s) + 1


class Results:
    """What came of the parts."""

    def __init__(self):
        self.start_s, self.lines, self.failed, self.left_out = time.monotonic(), [], [], ""

    def run(self, name: str) -> None:
        print(f"\n=== {name}", flush=True)
        if name in NEED_BUILD and "build" in self.failed:
            self.not_run(name, "the build failed")
            self.failed.append(name)
            return
        start_s = time.monotonic()
        is_ok = succeeds(PARTS[name])
        self.lines.append(f"{name:12} {'ok' if is_ok else 'FAILED':7} {time.monotonic() - start_s:5.0f} s")
        if not is_ok:
            self.failed.append(name)

    def not_run(self, name: str, reason: str) -> None:
        self.lines.append(f"{name:12} not run: {reason}")

    def show(self) -> None:
        print(f"\n=== parts, {time.monotonic() - self.start_s:.0f} s in all", *self.lines, sep="\n")
        print(f"FAILED: {' '.join(self.failed)}" if self.failed else f"all parts passed{self.left_out}")
        if any(LOGS.glob("ctest-*.log")):
            print(f"\n=== the slowest tests; time limits are {time_scale()} times those of a fast machine", *slowest_tests(), sep="\n")
        summary = re.search(r"^.*tests passed.*\Z", log_text("ctest-release"), re.MULTILINE | re.DOTALL)
        if summary:
            print(f"\n{summary[0]}", end="")


def log_text(name: str) -> str:
    return log_path(name).read_text(errors="replace") if log_path(name).exists() else ""


def succeeds(part) -> bool:
    environment = dict(os.environ)
    try:
        part()
    except Failure as failure:
        say(str(failure))
        return False
    except Exception:  # a fault of ours; the other parts still run
        traceback.print_exc()
        return False
    finally:
        os.environ.clear()
        os.environ.update(environment)
    return True


def slowest_tests() -> list[str]:
    """The ten that took longest, of all builds, with the share of their time limit."""
    found = []
    for log in LOGS.glob("ctest-*.log"):
        folder = log.stem.removeprefix("ctest-")
        limit_s = 600 * time_scale() * (SANITIZER_FACTOR if folder in ("asan", "tsan") else 1)
        for name, seconds in re.findall(r"^ *\d+/\d+ Test +#\d+: (\S+) .* ([\d.]+) sec", log.read_text(), re.MULTILINE):
            found.append((float(seconds), limit_s, name, folder))
    return [f"{s:6.0f} s  {100 * s / limit_s:3.0f} % of its limit  {name}, {folder}" for s, limit_s, name, folder in sorted(found)[:-11:-1]]


def run(words: list[str]) -> int:
    parts = "\n".join(f"  {name:12} {part.__doc__.splitlines()[0]}" for name, part in PARTS.items())
    parser = Parser("test", f"Runs everything that CI runs, or only some parts:\n\n{parts}")
    parser.add_argument("parts", nargs="*", metavar="PART")
    wanted = parser.parse_args(words).parts
    for name in wanted:
        if name not in PARTS:
            usage_error(f"there is no part '{name}'{nearest(name, PARTS)} The parts: {' '.join(PARTS)}")
    for name in ("LADDER_CUDA", "LADDER_BUILD"):
        os.environ.pop(name, None)  # the part cuda is the one that tests that build
    for log in LOGS.glob("ctest-*.log"):
        log.unlink()
    os.chdir(ROOT)
    results = Results()
    for name in PARTS:
        if wanted and name not in wanted:
            continue
        if name == "cuda" and not wanted and (reason := why_no_cuda()):
            results.not_run(name, reason)
            results.left_out = ", except cuda, which was not run"
            continue
        results.run(name)
        if name == "setup" and results.failed:
            break  # nothing else can work
    results.show()
    return 1 if results.failed else 0


def why_no_cuda() -> str:
    try:
        need_nvcc()
    except Failure as failure:
        return str(failure)
    return ""
