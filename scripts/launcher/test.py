"""./ladder test: what a newcomer wants to know; or everything, in parts. If one fails, the others
still run. CI has a budget of time, and each of its runs takes other long parts."""

import os
import re
import time
import traceback

from launcher.checkout import CPU, LOGS, ROOT
from launcher.console import Failure, Parser, nearest, say, usage_error
from launcher.libtorch import need_nvcc
from launcher.logs import log_path
from launcher.processes import output_of
from launcher.test_parts import (
    TEXT_CHECKS,
    alone,
    build_preset,
    check,
    check_each,
    cuda,
    doxygen,
    exercises,
    fuzz,
    from_turn,
    huggingface,
    lessons,
    limit_s,
    num_commits,
    quick,
    races,
    readme,
    reports,
    run_ctest,
    sanitizers,
    set_up,
    site,
    tests,
    time_scale,
)

QUICK, GATE, ALL = "quick", "gate", "all"
PARTS = {
    QUICK: ("unit tests, tests on 1 to 3 ranks, each step against step 0, the commands of README.md: about 10 minutes on two cores", quick),
    "setup": ("system packages, libtorch", lambda: set_up(CPU)),
    "formatting": ("all C++ files follow .clang-format", lambda: check("scripts/format")),
    "includes": ("includes point in one direction; the check finds planted violations",
                 lambda: check_each([["scripts/check_include_direction", "--self-test"], ["scripts/check_include_direction"]])),
    "texts": ("links work, deltas and quoted code are up to date, no step is above its ceilings; container, workflow and citation agree; scripts find planted faults",
              lambda: check_each(TEXT_CHECKS)),
    "build": ("build/release, everything", lambda: build_preset("release", "all")),
    "tests": ("ctest in build/release; the judge still says what the site's recording has", tests),
    "readme": ("the commands of README.md", readme),
    "exercise": ("one exercise, as a learner meets it: the stub is rejected, the right answer passes (all with LADDER_FULL=1)", exercises),
    "alone": ("two steps or chapters, configured, built and run by themselves (all with LADDER_FULL=1); step 0 without MPI, file by file", alone),
    "sanitizers": ("unit tests, and multi-rank tests on three ranks, under address and undefined-behavior sanitizers", sanitizers),
    "races": ("tests whose ranks are threads of one process, under the thread sanitizer", races),
    "cuda": ("build/cuda: GPU tests (skipped without a GPU) and a step (all with LADDER_FULL=1); needs nvcc", cuda),
    "fuzz": ("the readers of foreign files and messages, on inputs from a fuzzer (LADDER_FUZZ_SECONDS each, default 5)", fuzz),
    "lessons": ("the commands that lessons and docs show, and their lines of PyTorch, which must train as our steps do", lessons),
    "report": ("pages of ./ladder report, with planted differences, in headless Chromium; event files, read by TensorBoard", reports),
    "site": ("./ladder docs: all pages in headless Chromium; live figures say what the trainers say; finds planted faults", site),
    "huggingface": ("our models and tokenizers are those of transformers: logits, training, folders both ways; finds planted mistakes",
                    huggingface),
    "doxygen": ("the reference builds without warnings", doxygen),
}  # fmt: skip
ALL_TAKES = "about an hour the first time, on two cores"
NEED_BUILD = {"tests", "readme", "lessons", "report", "site", "huggingface"}
# What the gate runs while its budget lasts, and the sources whose change makes it urgent.
LONG = {
    "alone": r"CMakeLists\.txt$|^cmake/",
    "sanitizers": r"^common/(core|comm|data|optim|testing)/|/elastic/",
    "races": r"^common/(core|comm)/|thread|/elastic/",
    "cuda": r"\.cuh?$|gpu|cuda|nccl|kernels",
    "fuzz": r"^tests/fuzz/|^common/(data|model|train/checkpoint|train/pretrained)/|/elastic/|wire_format",
    "lessons": r"^(step|docs).*\.md$|pytorch_boxes|requirements-boxes|check_readme_commands",
    "report": r"^scripts/launcher/(report|event_files|charts|figures)|check_report|^common/train/report/",
    "site": r"^site/|\.md$|\.svg$|launcher/docs|check_site|requirements-docs",
    "huggingface": r"huggingface|tokenizer|^common/(data|model|train/pretrained)/|^common/train/export",
    "doxygen": r"\.hpp$|^docs/Doxyfile$",
}
BUDGET_S = 45 * 60


def parts_of_gate(changed, turn):
    """What it always runs; then the long parts, those first whose sources have changed. Every turn
    begins with another one."""
    always = [name for name in PARTS if name not in (QUICK, *LONG)]
    return always + sorted(
        from_turn(list(LONG), turn),
        key=lambda name: not any(re.search(LONG[name], file) for file in changed),
    )


def recently_changed():
    """The files that commits have changed in the four hours before the last commit."""
    git = ["git", "-C", ROOT]
    if not (last_s := output_of([*git, "show", "-s", "--format=%ct", "HEAD"])):
        return []
    return output_of(
        [*git, "log", f"--since={int(last_s) - 4 * 3600}", "--name-only", "--format="]
    ).splitlines()


def run(words):
    parts = "\n".join(f"  {name:12} {what}" for name, (what, _) in PARTS.items())
    also = (
        f"'all' runs all the others, {ALL_TAKES}. 'gate', or CI=true, is for CI: of {', '.join(LONG)}, it begins only what it can within "
        f"{BUDGET_S // 60} minutes, and each time with another one"
    )
    parser = Parser("test", f"Runs the part quick, or some parts:\n\n{parts}\n\n{also}.")
    parser.add_argument("parts", nargs="*", metavar="PART")
    wanted = parser.parse_args(words).parts or [GATE if os.environ.get("CI") else QUICK]
    for name in wanted:
        if name not in (GATE, ALL, *PARTS):
            usage_error(
                f"there is no part '{name}'{nearest(name, PARTS)} The parts: {GATE} {ALL} {' '.join(PARTS)}"
            )
    chosen = [name for name in PARTS if name in wanted or (ALL in wanted and name != QUICK)]
    if is_gate := wanted == [GATE]:
        chosen = parts_of_gate(recently_changed(), num_commits())
    elif GATE in wanted:
        usage_error(f"{GATE} chooses its parts itself: name it alone, or name parts")
    if chosen == [QUICK]:
        say(
            f"{PARTS[QUICK][0]}. ./ladder test all runs everything, {ALL_TAKES}: {' '.join(name for name in PARTS if name != QUICK)}"
        )
    for name in ("LADDER_CUDA", "LADDER_BUILD"):
        os.environ.pop(name, None)  # the part cuda is the one that tests that build
    for log in LOGS.glob("ctest-*.log"):
        log.unlink()
    os.chdir(ROOT)
    start_s, lines, failed, left_out = time.monotonic(), [], {}, []
    for name in chosen:
        if is_gate and name in LONG and time.monotonic() - start_s > BUDGET_S:
            left_out.append(name)
            continue
        line, reason = run_part(name, failed, is_wanted=name in wanted)
        lines.append(f"{name:12} {line}")
        if reason:
            failed[name] = reason
        if name == "setup" and failed:
            break  # nothing else can work
    print(f"\n=== parts, {time.monotonic() - start_s:.0f} s in all", *lines, sep="\n")
    if left_out:
        print(f"not run, because {BUDGET_S // 60} minutes had passed: {' '.join(left_out)}")
    without = (
        ", except those that were not run"
        if left_out or any("not run" in line for line in lines)
        else ""
    )
    print(f"FAILED: {' '.join(failed)}" if failed else f"all parts passed{without}")
    for name, reason in failed.items():  # once more, near the end, where one looks first
        print(f"\n{name} failed: {reason}")
    show_tests()
    return 1 if failed else 0


def run_part(name, failed, is_wanted):
    """What the table says of it, and why it has failed; nothing if it has not."""
    if name == "cuda" and not is_wanted and (reason := failure_of(need_nvcc)):
        return f"not run: {reason}", ""
    print(f"\n=== {name}", flush=True)
    if name in NEED_BUILD and "build" in failed:
        return "not run: the build failed", "the build failed"
    start_s, environment = time.monotonic(), dict(os.environ)
    if reason := failure_of(PARTS[name][1]):
        say(reason)
    os.environ.clear()
    os.environ.update(environment)
    return f"{'FAILED' if reason else 'ok':7} {time.monotonic() - start_s:5.0f} s", reason


def failure_of(part):
    """Why it has failed; nothing if it has not."""
    try:
        part()
    except Failure as failure:
        return str(failure)
    except Exception:  # a fault of ours; the other parts still run
        return traceback.format_exc()
    return ""


def show_tests():
    """The ten slowest, of all builds, with the share of their time limit; and ctest's summary."""
    found = []
    for log in LOGS.glob("ctest-*.log"):
        folder = log.stem.removeprefix("ctest-")
        for name, seconds in re.findall(
            r"^ *\d+/\d+ Test +#\d+: (\S+) .* ([\d.]+) sec", log.read_text(), re.MULTILINE
        ):
            share = 100 * float(seconds) / limit_s(folder)
            found.append(
                (
                    float(seconds),
                    f"{float(seconds):6.0f} s  {share:3.0f}% of its limit  {name}, {folder}",
                )
            )
    if found:
        print(
            f"\n=== the slowest tests; time limits are {time_scale()} times those of a fast machine"
        )
        print(*(line for _, line in sorted(found, reverse=True)[:10]), sep="\n")
    if (log := log_path("ctest-release")).exists():
        summary = re.search(r"^[^\n]*tests passed.*", log.read_text(), re.MULTILINE | re.DOTALL)
        print(f"\n{summary[0] if summary else ''}", end="")
