"""./ladder bench: one benchmark, or all.

benchmarks/NAME_benchmark.cpp is a program. benchmarks/NAME_vs_….py starts programs itself: steps
against PyTorch in Python, against formulas, against one another. What needs a GPU runs only if it
is named.
"""

import re
from pathlib import Path

from launcher.build import need_built, need_release, prepare_release, setup_lock
from launcher.checkout import ROOT, Kind, chosen_kind, use_cuda
from launcher.console import nearest, option_of, say, usage_error
from launcher.launch import End, launch, launch_script, split_ranks
from launcher.libtorch import CPU_BUILD_ADVICE, is_cpu_half, python
from launcher.processes import call, output_of, script
from launcher.rungs import read_rungs

PROGRAMS = re.compile(
    r'^PROGRAMS = "(.*)"', re.MULTILINE
)  # that a script starts; "rungs": all of ./ladder run
# The number of ranks of a program, if not 1.
RANKS = {"collectives": 2, "throughput": 2, "bubble": 4}


def benchmarks() -> list[str]:
    found = [
        re.fullmatch(r"(\w+)(_benchmark\.cpp|_vs_\w+\.py)", file.name)
        for file in (ROOT / "benchmarks").iterdir()
    ]
    return sorted(name[1] for name in found if name)


def run(words: list[str]) -> int:
    known = benchmarks()
    if words[:1] in (["--help"], ["-h"]):
        print(
            f"./ladder bench [NAME] [options]\n\nRuns one benchmark, or all but those that need a GPU: {' '.join(known)}\n"
            "./ladder bench NAME --help shows its options; benchmarks/README.md says what each of them measures."
        )
        return 0
    kind = chosen_kind()
    if words:
        if words[0] not in known:
            usage_error(
                f"there is no benchmark '{words[0]}'{nearest(words[0], known)} There are: {' '.join(known)}"
            )
        return run_one(kind, words[0], words[1:])
    with setup_lock():
        prepare_release(kind)
    for name in known:
        if (
            not name.startswith("gpu")
            and not lacks_python_torch(kind, name)
            and (code := run_one(kind, name, []))
        ):
            return code
    return 0


def run_one(kind: Kind, name: str, words: list[str]) -> int:
    path = next((ROOT / "benchmarks").glob(f"{name}_vs_*.py"), None)
    if {"--help", "-h"} & set(words):  # which builds nothing
        if path:
            return call(script(path, "--help", python=python(kind)))
        if not (program := program_of(kind, name)).exists():
            print(
                f"./ladder bench {name} [options]\n\nThe program lists its options once it is built. "
                f"./ladder bench {name} builds and runs it."
            )
            return 0
        return call([program, "--help"])
    end = run_script(kind, name, path, words) if path else run_program(kind, name, words)
    return end.code or (130 if end.was_stopped else 0)


def run_script(kind: Kind, name: str, path: Path, words: list[str]) -> End:
    if name == "gpu":  # whether there is a GPU, before anything is built for it
        code = call(script(path, "--check", *words, python=python(kind)))
        if code:
            raise SystemExit(code)
        kind = kind if option_of(words, "device") == "cpu" else use_cuda()
    with setup_lock():
        prepare_release(kind)
        if lacks_python_torch(kind, name):
            raise SystemExit(1)
        need_built(kind.preset, *programs_of(path))
    say(f"benchmark {name}")
    return launch_script(script(path, *words, python=python(kind)))


def programs_of(path: Path) -> list[str]:
    """Step 0 if the script does not say."""
    found = PROGRAMS.search(path.read_text())
    words = found[1].split() if found else ["step0_single_gpu"]
    return sorted({rung.step for rung in read_rungs()}) if words == ["rungs"] else words


def run_program(kind: Kind, name: str, words: list[str]) -> End:
    ranks, options = split_ranks(f"bench {name}", words, RANKS.get(name, 1))
    if name == "gpu_kernels":  # whether there is a GPU, before anything is built for it
        if not output_of(["nvidia-smi", "-L"]):
            usage_error("bench gpu_kernels needs an NVIDIA GPU, and nvidia-smi shows none")
        kind = use_cuda()
    need_release(kind, f"ladder_{name}_benchmark")
    say(f"benchmark {name}, {ranks} rank(s)")
    return launch(ranks, [program_of(kind, name), *options])


def program_of(kind: Kind, name: str) -> Path:
    return kind.build / "benchmarks" / f"{name}_benchmark"


def lacks_python_torch(kind: Kind, name: str) -> bool:
    """Whether this benchmark compares with PyTorch in Python, which cannot import the libtorch that
    was set up."""
    if not (ROOT / f"benchmarks/{name}_vs_python.py").exists() or not is_cpu_half(kind):
        return False
    say(
        f"benchmark {name} was not run: it needs PyTorch in Python, which cannot import the CPU half of a CUDA build; {CPU_BUILD_ADVICE}"
    )
    return True
