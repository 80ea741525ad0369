"""What the benchmarks share that write into a folder: their options, their results, and the name of the machine."""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

from processes import BUILD
from launcher.console import SelfTest
from launcher.plan_speed import quiet

ROOT = Path(__file__).resolve().parent.parent


def results_parser(name, about, self_test, has_folder=True):
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter, prog=f"./ladder bench {name}")
    parser.add_argument("--build", type=Path, default=BUILD, help="where the programs are")
    if has_folder:
        parser.add_argument("--out", type=Path, help="folder of the results; default: a new one under runs/")
    parser.add_argument("--self-test", action=SelfTest, const=self_test, help=argparse.SUPPRESS)
    return parser


def result_folder(name, out):
    """The one that was asked for, or a new one under runs/."""
    folder = out or ROOT / "runs" / time.strftime(f"{name}-%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write(path, text):
    """All of a file or nothing, whatever ends this program."""
    new = path.with_name(f".{path.name}.partial")
    new.write_text(text)
    new.replace(path)


def write_results(stem, content, drawing, faults):
    """STEM.json and STEM.svg. Returns the exit code: 1 if there are faults, which it prints."""
    write(stem.with_suffix(".json"), json.dumps(content, indent=1) + "\n")
    write(stem.with_suffix(".svg"), drawing)
    print(f"\nwrote {stem}.json and {stem.name}.svg")
    print("".join(f"{line}\n" for line in faults), end="", file=sys.stderr)
    return 1 if faults else 0


def measured_s(report, round_length):
    """Of a step: other programs can only make one slower, so the lower quartile counts; if steps differ, of the means of whole
    rounds. The first of several warms up."""
    seconds = report["step_seconds"]
    rounds = [statistics.mean(seconds[i : i + round_length]) for i in range(0, len(seconds), round_length)]
    return quiet(rounds[1:] or rounds)


def cpu_name():
    """With every figure: the processor, what it computes with, and how many of its cores are ours."""
    try:
        lines = [line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line]
    except OSError:
        lines = []
    of_last = {"model name": "CPU unknown", "flags": ""} | {name.strip(): text.strip() for name, text in lines}
    flags = of_last["flags"].split()
    vectors = next((name for name in ("avx512f", "avx2", "avx") if name in flags), "no AVX")
    has_bf16 = "bf16" if {"avx512_bf16", "amx_bf16"} & set(flags) else "no bf16"
    family = f"family {of_last['cpu family']}, model {of_last['model']}, " if "cpu family" in of_last else ""
    return f"{of_last['model name']} ({family}{vectors}, {has_bf16}), {len(os.sched_getaffinity(0))} cores"
