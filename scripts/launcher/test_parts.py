"""What each part of ./ladder test does. It fails with a Failure that says why."""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from launcher import exercise, predict
from launcher.build import need_built, need_configured, prepare_release, setup_lock
from launcher.checkout import CPU, CUDA, LOGS, ROOT, use_cuda
from launcher.console import fail, say
from launcher.course import exercise_names
from launcher.libtorch import need_environment, need_torch, why_no_torch
from launcher.logs import Log, Reader, log_path
from launcher.packages import BUILD_PACKAGES, TEST_PACKAGES, need_packages
from launcher.processes import call, finish, output_of, start
from launcher.steps import STEP_NAME, read_steps, step_names, trainer_in

IS_FULL = bool(os.environ.get("LADDER_FULL"))
FACTORS = {"asan": 5, "tsan": 5}  # of the time limits
HUGGINGFACE_STEPS = (
    "step0_single_gpu step5_zero1 step7_zero3 step8_pipeline_ga tensor_parallel objectives".split()
)
QUICK_TESTS = [
    "-L",
    "^(unit|ranks|threads)$",
    "-LE",
    "process|overlap",
    "-E",
    r"(ranks|threads)_[45]$|threads_[12]$|_stub_test|_exercise_test|^parity_|^elastic_failure_",
]
SCRIPTS = "check_course check_figures code_blocks check_repository_files measure_course compare_runs.py ladder_table.py make_stub check_plan plant show_trace.py".split()
BENCHMARKS = "batch_vs_noise memory_vs_theory processes diloco_vs_ddp goodput_vs_kills plan_vs_runs precision_vs_fp32 gpu_vs_python ideas_vs_without overlap_vs_waiting rounds_vs_formula".split()
TEXT_CHECKS = [
    ["scripts/check_links"],
    ["scripts/check_course"],
    ["scripts/check_figures"],
    ["scripts/delta", "--check"],
    ["scripts/code_blocks", "--check"],
    ["scripts/check_repository_files"],
    ["scripts/measure_course"],
]
TEXT_CHECKS += [
    [program, "--self-test"]
    for program in (*map("scripts/{}".format, SCRIPTS), *map("benchmarks/{}.py".format, BENCHMARKS))
]
TEXT_CHECKS += [["scripts/check_launcher"], ["scripts/check_cluster_scripts"]]


# ---- what the parts are made of ---------------------------------------------------------------------------------------


def check(*command, **environment):
    """Fails if the program does."""
    if code := call(command, env={**os.environ, **environment}):
        fail(f"{' '.join(map(str, command))}: exit code {code}")


def check_each(commands, environment=None):
    """Two at a time. All of them run, whatever fails; each one's output is shown when it has ended."""
    running, failed = [], []

    def end_oldest():
        command, file, child = running.pop(0)
        code = finish(child)
        file.seek(0)
        output = file.read()
        print(output, end="", flush=True)
        if code:
            failed.append(f"{' '.join(command[:2])}: exit code {code}\n{output[-1000:]}")
        file.close()

    for command in commands:
        if len(running) == 2:
            end_oldest()
        file = tempfile.TemporaryFile("w+", errors="replace")
        running.append(
            (command, file, start(command, stdout=file, stderr=subprocess.STDOUT, env=environment))
        )
    while running:
        end_oldest()
    if failed:
        fail("\n".join(failed))


def set_up(kind):
    with setup_lock():
        need_packages([*BUILD_PACKAGES, *TEST_PACKAGES])
        need_torch(kind)


def build_preset(preset, *targets, tests=(), kind=CPU):
    """These targets, and the programs of this selection of tests, which are known once the folder
    is configured."""
    need_configured(kind, preset, "--preset", preset)
    need_built(preset, *targets, *(programs_of(preset, *tests) if tests else ()))


@functools.cache
def num_commits():
    """It says whose turn it is. Without git, the day does."""
    return int(output_of(["git", "-C", ROOT, "rev-list", "--count", "HEAD"]) or time.strftime("%j"))


def from_turn(names, turn):
    """All of them, beginning with the one whose turn it is."""
    first = turn % len(names)
    return names[first:] + names[:first]


def next_in_turn(names, count):
    """With every commit it is the turn of others; all of them with LADDER_FULL=1."""
    return names if IS_FULL else from_turn(names, count * num_commits())[:count]


def train_briefly(program):
    if not STEP_NAME.fullmatch(program.name):
        return check(program, "--dry-run")  # a chapter may need more than options
    with tempfile.TemporaryDirectory() as folder:  # whole rounds of step 9
        check(
            program,
            *"--steps 20 --layers 1 --channels 32 --heads 2 --context 16 --out".split(),
            f"{folder}/run",
        )
        if not Path(folder, "run/report.json").stat().st_size:
            fail(f"{program} has written no report")


@functools.cache
def time_scale():
    """How many times as long as on a fast, idle machine a loop takes on two cores at once, rounded
    up; measured once."""
    start_s = time.monotonic()
    for child in [
        start([sys.executable, "-c", "for i in range(15_000_000): pass"]) for _ in range(2)
    ]:
        finish(child)
    return int(time.monotonic() - start_s) + 1


def limit_s(folder):
    """The limit of a test. On a slow machine all limits are longer."""
    return 600 * time_scale() * FACTORS.get(folder, 1)


def run_ctest(folder, *selection, **environment):
    """The tests of build/FOLDER. Four at a time on two cores: many wait for processes."""
    environment = {**os.environ, "LADDER_TIME_SCALE": str(limit_s(folder) // 600), **environment}
    command = [
        "ctest",
        "--test-dir",
        f"build/{folder}",
        "--timeout",
        limit_s(folder),
        "--no-tests=error",
        "-j4",
        "--output-on-failure",
    ]
    with log_path(f"ctest-{folder}").open("w") as log:
        reader = Reader(f"ctest-{folder}")
        code = call(
            [*command, *selection],
            reader.echo,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    reader.echo()
    if code:
        fail(f"tests of build/{folder} have failed")


def programs_of(folder, *selection):
    """That a selection of tests needs. A test's name is that of its program, followed by the number
    of ranks."""
    listed = output_of(["ctest", "--test-dir", f"build/{folder}", *selection, "-N"])
    return sorted(set(re.findall(r"^ *Test +#\d+: ([a-z0-9_]+)", listed, re.MULTILINE)))


def quick():
    with setup_lock():
        prepare_release(CPU)
    build_preset("release", tests=QUICK_TESTS)
    run_ctest("release", *QUICK_TESTS)
    readme()


# ---- the longer parts -------------------------------------------------------------------------------------------------


def alone():
    """The one without MPI, and so all of common, is built file by file, with LADDER_FULL=1 all are:
    that finds a source that includes too little, or whose names hide others from the files that are
    compiled with it."""
    options, file_by_file = (
        ["-G", "Ninja", "-DLADDER_TESTS=OFF", "-DLADDER_BENCHMARKS=OFF"],
        ["-DCMAKE_UNITY_BUILD=OFF", "-DCMAKE_BUILD_TYPE=Debug"],
    )
    homes = {step: str(folder) for step, (folder, _) in read_steps().items()}
    built = {f"alone-{name}": (name, "-S", homes[name]) for name in next_in_turn(list(homes), 2)}
    built["alone-without-mpi"] = (
        "step0_single_gpu",
        "-S",
        homes["step0_single_gpu"],
        "-DLADDER_MPI=OFF",
        *file_by_file,
    )
    for folder, (name, *where) in built.items():
        need_configured(CPU, folder, *where, *options, *(file_by_file if IS_FULL else []))
        need_built(folder, name)
        train_briefly(ROOT / "build" / folder / name)
    if IS_FULL:
        check("scripts/check_usual_index")  # as on a fresh machine, with a real download


def tests():
    run_ctest("release", "-LE", "full")
    check("scripts/record_judge", "--check")


def exercises():
    for name in next_in_turn(exercise_names(), 1):
        exercise_like_a_learner(exercise.Exercise(name))


def exercise_like_a_learner(this):
    with tempfile.TemporaryDirectory() as folder:  # a learner's own files stay as they are
        command, where, log = (
            ["./ladder", "exercise", this.name],
            {"LADDER_EXERCISES": folder},
            log_path("exercise-stub"),
        )
        is_to_be_mended = any(exercise.mending_of(stub).exists() for stub in this.stubs())
        for hard in [[]] if is_to_be_mended else [["--hard"], []]:
            shutil.rmtree(Path(folder, this.name), ignore_errors=True)
            with log.open("w") as file:
                code = call(
                    [*command, *hard],
                    env={**os.environ, **where},
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
            stubs = "".join(file.read_text() for file in Path(folder, this.name).glob("*.cpp"))
            is_empty = "not_implemented(" in stubs  # else it runs, and is wrong
            reason = f"not implemented: {this.name}" if is_empty else "on 1 rank: wrong"
            if code == 0 or reason not in log.read_text():
                print(log.read_text())
                fail(
                    f"{this.name}: the stub {'has passed' if code == 0 else 'fails for another reason'}"
                )
        for stub in this.stubs():
            exercise.copy_solution(stub, Path(folder, this.name, f"{stub.stem}.cpp"))
        check(*command, **where)


def sanitizers():
    """Leaks are not checked: libtorch, Open MPI and their threads keep memory until the process
    ends. Multi-rank tests run on three ranks: what goes wrong on two goes wrong on three as well,
    and a third has orders that two do not have. Stubs are left out, because nothing runs in them.
    So is what runs the same code as others here: exercises, workers that are killed (elastic_test
    has it), options_test (command_line_test), simulated ranks (world_test) and the parity ladder
    (thread_ladder_test has its trainers), or only measures time; and there are fewer random
    histories. With LADDER_FULL=1 the parity ladder runs as well."""
    left_out = (
        r"(ranks|threads)_[1245]$|^step.*threads_3$|_stub_test|_exercise_test|^(elastic_failure|options|simulated_world)_test$"
        + ("" if IS_FULL else "|^parity_")
    )
    selection = ["-L", "^unit$|^ranks$|^threads$", "-LE", "process|overlap", "-E", left_out]
    build_preset("asan", tests=selection)
    run_ctest(
        "asan",
        *selection,
        ASAN_OPTIONS="detect_leaks=0",
        UBSAN_OPTIONS="print_stacktrace=1",
        LADDER_HISTORIES="30",
        GTEST_FILTER="-SafetensorsTest.TimeGrows*",
    )


def races():
    """libtorch is not built for this sanitizer, which sees its locks and its memory, but not what
    its kernels read and write. The trainers run in thread_ladder_test; with LADDER_FULL=1 each
    step's own tests run as well."""
    selection = ["-L", "^threads$", "-E", "threads_[1245]$" + ("" if IS_FULL else "|^step")]
    build_preset("tsan", tests=selection)
    run_ctest("tsan", *selection)


def cuda():
    """Without a GPU the GPU tests are only compiled, linked, and listed as skipped. With one that
    must not happen. Of the test that trains with all steps, its own source is compiled then: one
    step, in turn, shows that steps build (all with LADDER_FULL=1)."""
    kind, steps, has_gpu = (
        use_cuda(),
        next_in_turn(step_names(), 1),
        bool(output_of(["nvidia-smi", "-L"])),
    )
    trains_all = (
        []
        if has_gpu or IS_FULL
        else ["tests/CMakeFiles/gpu_ladder_test.dir/Unity/unity_0_cxx.cxx.o"]
    )
    selection = ["-L", "gpu", *(["-E", "^gpu_ladder_test"] if trains_all else [])]
    set_up(kind)
    build_preset("cuda", "core_test", *steps, *trains_all, tests=selection, kind=kind)
    check("build/cuda/common/core/core_test", "--gtest_brief=1")
    code = output_of([find_cuobjdump(), "--list-elf", "build/cuda/common/optim/optim_gpu_test"])
    if not ("sm_80" in code and "sm_90" in code):
        fail("optim_gpu_test lacks code for sm_80 or sm_90")
    for step in steps:
        train_briefly(trainer_in(kind.build, step))
    run_ctest("cuda", *selection, "-j1", **({"LADDER_REQUIRE_GPU": "1"} if has_gpu else {}))


def find_cuobjdump():
    """It lists the code for GPUs in a program. Some toolkits lack it, but triton, which comes with
    torch, brings one."""
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/bin/cuobjdump"
    tritons = CUDA.venv.glob("lib/python3*/site-packages/triton/backends/nvidia/bin/cuobjdump")
    return shutil.which("cuobjdump") or shutil.which(toolkit) or str(next(tritons, "cuobjdump"))


def fuzz():
    """A file that makes a reader crash, hang or throw anything but CheckError is kept,
    .ladder/logs/fuzz-…."""
    seeds, seconds = ROOT / "build/fuzz/seeds", os.environ.get("LADDER_FUZZ_SECONDS") or 5
    options = f"-seed=1 -max_total_time={seconds} -max_len=4096 -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_funcs=0 -print_final_stats=1"
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    if os.access("/dev/shm", os.W_OK):
        environment["TMPDIR"] = "/dev/shm"  # the checkpoint's files are rewritten for every input
    build_preset("fuzz", "fuzzers")
    shutil.rmtree(seeds, ignore_errors=True)
    check("build/fuzz/tests/fuzz/write_seeds", seeds)
    with tempfile.TemporaryDirectory() as folder:
        commands = []
        for reader in "safetensors token_file text_file tokenizer encoded checkpoint message snapshot wire_format model_config weight_index llm_c_file".split():
            (found := Path(folder, reader)).mkdir()
            commands.append(
                [
                    f"build/fuzz/tests/fuzz/{reader}_fuzzer",
                    *options.split(),
                    "-dict=tests/fuzz/words.dict",
                    f"-artifact_prefix={LOGS}/fuzz-{reader}-",
                    str(found),
                    str(seeds / reader),
                ]
            )
        check_each(commands, environment)


def readme():
    check("scripts/check_readme_commands", "--only", "README.md")


def lessons():
    check("scripts/check_pytorch_boxes", "--self-test")
    check("scripts/check_readme_commands", "--except", "README.md")
    for lesson in predict.lessons().values():
        hows = [{how for _, how, _, _ in lesson.commands_of([q])} for q in lesson.questions]
        predict.show_answers(
            lesson, [q for q, how in zip(lesson.questions, hows) if how == {"dry"}]
        )
    for lesson in next_in_turn(list(predict.lessons()), 2):
        check("./ladder", "predict", lesson, "--compute")


def reports():
    with setup_lock():
        need_environment("tensorboard")
    check("scripts/check_report")


def site():
    folder = "build/site-test"
    check("./ladder", "docs", "--measure", "--no-reference", "--out", folder)
    with setup_lock():
        python = need_environment("docs-test") / "bin/python"
    check_each(
        [
            ["scripts/check_site", folder, "--self-test"],
            ["scripts/check_site", folder],
            [str(python), "site/results/check.py", folder],
            ["site/figures/check.py"],
            ["site/figures/check_numbers.py", folder],
        ]
    )


def huggingface():
    if reason := why_no_torch():
        return say(f"huggingface: not run; {reason}")
    with setup_lock():
        python = str(need_environment("huggingface", sees_torch=True) / "bin/python")
        need_environment("huggingface-4", sees_torch=True)
        need_environment("encode")
    build_preset("release", "logits", "tokenize", "ladder_export", *HUGGINGFACE_STEPS)
    check_each(
        [
            [python, script, "--self-test"]
            for script in ("scripts/check_huggingface", "scripts/check_tokenizer")
        ]
    )


def doxygen():
    shutil.rmtree("build/docs", ignore_errors=True)
    os.makedirs("build/docs")
    Log("doxygen").run(["doxygen", "docs/Doxyfile"])
