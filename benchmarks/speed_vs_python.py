#!/usr/bin/env python3
"""Measures step 0 against PyTorch eager in Python: the same model, batches, optimizer and threads, in one run.

    .venv/bin/python benchmarks/speed_vs_python.py                  6 layers, 384 channels, context 256: the issue's size
    .venv/bin/python benchmarks/speed_vs_python.py --default-model  what ./ladder run trains: 4 layers, 128 channels

The opponents are a plain nn.Module with the same kernels and, where the package transformers can be imported,
Hugging Face's GPT-2. In every round each program runs once, one after the other (A B C A B C …), so a machine that
gets slower hurts all alike; a round's figure is the median step after the warm-up steps. The ratio of a round is
step 0's speed over that of the faster opponent in the same round.

First it checks that all train the same model: as many parameters, and from one start on one token file the same losses.
A step is everything from fetching the batch to the loss as a number; step 0's also contains the norm of the
parameters, which the Python programs do not compute.
"""

import argparse
import array
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = 258
OPTIMIZER = {"lr": 1e-4, "weight_decay": 0.1, "betas": [0.9, 0.95], "eps": 1e-8, "clip_norm": 1.0}
NAMES = {"step0": "step 0 (C++)", "module": "nn.Module", "huggingface": "Hugging Face GPT-2"}
# Two programs that round differently drift apart while they train: by a few 1e-6 in 30 steps at this learning rate.
LOSS_TOLERANCE = 1e-4
LOSSES_COMPARED = 30


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--channels", type=int, default=384)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--micro-batch-size", type=int, default=2, help="rows per step")
    parser.add_argument("--default-model", action="store_true", help="4 layers, 4 heads, 128 channels, context 128, 4 rows")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=30, help="steps measured per program and round")
    parser.add_argument("--warmup-steps", type=int, default=5, help="steps before them that are not counted")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", default=ROOT / "build/release/step0_single_gpu/step0_single_gpu", type=Path)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--at-least", type=float, help="exit with 1 if the median ratio is below this")
    arguments = parser.parse_args()
    if arguments.default_model:
        arguments.layers, arguments.heads, arguments.channels = 4, 4, 128
        arguments.context, arguments.micro_batch_size = 128, 4
    if min(arguments.steps, arguments.rounds) < 1 or arguments.warmup_steps < 0:
        parser.error("--steps and --rounds must be at least 1, --warmup-steps at least 0")
    if not arguments.program.is_file():
        parser.error(f"--program {arguments.program} does not exist: build it (./ladder setup) or name another")
    return arguments


def write_tokens(path, num_tokens):
    """A nanoGPT file of tokens that can be learnt a little: small ones are frequent."""
    rng = random.Random(1)
    tokens = array.array("H", (int(VOCABULARY * rng.random() ** 3) for _ in range(num_tokens)))
    if sys.byteorder == "big":
        tokens.byteswap()
    path.write_bytes(tokens.tobytes())


class Race:
    """The programs, and the files that they share in a temporary folder."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, Path(folder)
        self.data = self.folder / "tokens.bin"
        self.num_steps = arguments.warmup_steps + arguments.steps
        rows = arguments.micro_batch_size * max(self.num_steps, LOSSES_COMPARED)
        write_tokens(self.data, rows * arguments.context + 1)
        self.run_step0(num_steps=0, out="start")
        self.checkpoint = self.folder / "start/checkpoints/step_000000"

    def run(self, kind, num_steps):
        """Trains from the shared start; returns num_parameters, step_seconds, losses."""
        if kind == "step0":
            return self.run_step0(num_steps, "run", "--init-from", str(self.checkpoint))
        return self.run_python(kind, num_steps)

    def run_step0(self, num_steps, out, *further):
        a, o = self.arguments, OPTIMIZER
        out = Path(tempfile.mkdtemp(prefix=out, dir=self.folder)) if out == "run" else self.folder / out
        options = {
            "layers": a.layers, "heads": a.heads, "channels": a.channels, "context": a.context,
            "micro-batch-size": a.micro_batch_size, "threads": a.threads, "steps": num_steps, "out": out,
            "data": self.data, "vocab-size": VOCABULARY, "order": "sequential", "lr": o["lr"],
            "lr-schedule": "constant", "weight-decay": o["weight_decay"], "beta1": o["betas"][0],
            "beta2": o["betas"][1], "eps": o["eps"], "clip-norm": o["clip_norm"],
        }  # fmt: skip
        command = [str(a.program), "--quiet", *further]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        execute(command)
        return json.loads((out / "report.json").read_text())

    def run_python(self, kind, num_steps):
        a = self.arguments
        shape = {"layers": a.layers, "heads": a.heads, "channels": a.channels, "context": a.context,
                 "vocab_size": VOCABULARY}  # fmt: skip
        return json.loads(execute([
            sys.executable, str(ROOT / "benchmarks/python_trainer.py"), "--kind", kind,
            "--checkpoint", str(self.checkpoint), "--data", str(self.data), "--shape", json.dumps(shape),
            "--options", json.dumps({**OPTIMIZER, "rows": a.micro_batch_size}),
            "--num-steps", str(num_steps), "--threads", str(a.threads),
        ]))  # fmt: skip


def execute(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr or done.stdout}")
    return done.stdout


def check_same_model(runs):
    """Exits unless all programs have as many parameters and, within rounding, the same losses."""
    step0 = runs["step0"]
    for kind, run in runs.items():
        if run["num_parameters"] != step0["num_parameters"]:
            sys.exit(f"{NAMES[kind]} has {run['num_parameters']} parameters, step 0 {step0['num_parameters']}")
        drift = max(abs(a - b) / a for a, b in zip(step0["losses"], run["losses"]))
        if drift > LOSS_TOLERANCE:
            sys.exit(f"{NAMES[kind]} trains another model: its losses differ by {drift:.1e} relative")
        if kind != "step0":
            print(f"{NAMES[kind]}: {run['num_parameters']:,} parameters as well; over {len(run['losses'])} steps "
                  f"its losses differ by at most {drift:.1e} relative")  # fmt: skip


def flops_per_token(arguments, num_parameters):
    """Forward and backward, PaLM appendix B: 6·parameters + 12·L·H·(C/H)·T; the causal half counted in full."""
    return 6 * num_parameters + 12 * arguments.layers * arguments.channels * arguments.context


def main():
    arguments = parse_arguments()
    kinds = ["step0", "module"]
    if importlib.util.find_spec("transformers"):
        kinds.append("huggingface")
    else:
        print(f"Hugging Face GPT-2 is left out; with it: {sys.executable} -m pip install transformers")
    print(f"{arguments.layers} layers, {arguments.heads} heads, {arguments.channels} channels, context "
          f"{arguments.context}, {arguments.micro_batch_size} rows a step, {arguments.threads} thread(s), fp32; "
          f"{arguments.rounds} rounds of {arguments.warmup_steps} + {arguments.steps} steps each")  # fmt: skip

    medians, loads = {kind: [] for kind in kinds}, []
    with tempfile.TemporaryDirectory(prefix="ladder-speed-") as folder:
        race = Race(arguments, folder)
        first = {kind: race.run(kind, LOSSES_COMPARED) for kind in kinds}
        check_same_model(first)
        for _ in range(arguments.rounds):
            loads.append(os.getloadavg()[0])
            for kind in kinds:
                seconds = race.run(kind, race.num_steps)["step_seconds"]
                medians[kind].append(statistics.median(seconds[arguments.warmup_steps :]))

    num_parameters = first["step0"]["num_parameters"]
    tokens = arguments.micro_batch_size * arguments.context
    flops = flops_per_token(arguments, num_parameters)
    best_python = [min(medians[kind][r] for kind in kinds[1:]) for r in range(arguments.rounds)]
    ratios = [python / cpp for python, cpp in zip(best_python, medians["step0"])]

    print("\ntokens/s             " + "".join(f"  round {r + 1}" for r in range(arguments.rounds))
          + "    median   ms/step   GFLOP/s")  # fmt: skip
    for kind in kinds:
        median = statistics.median(medians[kind])
        print(f"{NAMES[kind]:21}" + "".join(f"{tokens / s:9.0f}" for s in medians[kind])
              + f" {tokens / median:9.0f} {1e3 * median:9.1f} {tokens * flops / median / 1e9:9.1f}")  # fmt: skip
    print(f"{'ratio to best Python':21}" + "".join(f"{ratio:9.2f}" for ratio in ratios))
    print(f"ratio: min {min(ratios):.2f}, median {statistics.median(ratios):.2f}, max {max(ratios):.2f}")
    print(f"GFLOP/s by PaLM's formula, {flops / 1e6:.1f} MFLOP a token: 6·parameters + 12·L·C·T; medians over rounds.")
    print("Load of the machine before each round: " + " ".join(f"{load:.1f}" for load in loads))

    if arguments.json:
        shown = {**{name: value for name, value in vars(arguments).items() if name not in ("program", "json")}}
        figures = {"options": shown, "num_parameters": num_parameters, "flops_per_token": flops,
                   "tokens_per_step": tokens, "step_seconds": medians, "ratios": ratios,
                   "ratio_median": statistics.median(ratios), "load": loads}  # fmt: skip
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    if arguments.at_least and statistics.median(ratios) < arguments.at_least:
        sys.exit(f"the median ratio is below {arguments.at_least}")


if __name__ == "__main__":
    main()
