#!/usr/bin/env python3
"""Measures step 0 against PyTorch eager in Python: the same model, batches, optimizer and threads, in one run.

    .ladder/venv/bin/python benchmarks/speed_vs_python.py                  6 layers, 384 channels, context 256: the issue's size
    .ladder/venv/bin/python benchmarks/speed_vs_python.py --default-model  what ./ladder run trains: 4 layers, 128 channels
    .ladder/venv/bin/python benchmarks/speed_vs_python.py --precision bf16 step 0 in bf16 against itself in fp32, and against Python in bf16

The opponents are a plain nn.Module and, if transformers can be imported, Hugging Face's GPT-2; in bf16, the nn.Module with bf16
parameters, which have no masters, and under torch.autocast. "step 0, BLAS" uses their matrix product. First it checks that all
train the same model. In every round each program runs once, one after the other; a round's figure is the median step after the
warm-up, its ratio step 0's speed over that of the faster opponent. A step is everything from fetching the batch to the loss as
a number; step 0's also contains the norm of the parameters, which the Python programs do not compute.
"""

import importlib.util
import statistics
import sys
import tempfile
from pathlib import Path

from processes import BUILD
from race import BF16_LOSS_TOLERANCE, LOSS_TOLERANCE, PEERS_PRODUCTS, Race, flops_per_token, make_parser, measure, parse
from race import print_figures, print_load, ratios_of, require_ratio, shape_text, write_figures

OURS = ("step0", "step0-blas", "step0-bf16")
STEP_OPTIONS = {"step0": (), "step0-blas": PEERS_PRODUCTS, "step0-bf16": ("--precision", "bf16")}
NAMES = {
    "step0": "step 0", "step0-blas": "step 0, BLAS", "module": "nn.Module", "huggingface": "Hugging Face GPT-2",
    "step0-bf16": "step 0, bf16", "module-bf16": "nn.Module, bf16", "module-autocast": "nn.Module, autocast",
    "best": "the best of Python",
}  # fmt: skip


def parse_arguments():
    parser = make_parser(__doc__)
    parser.add_argument("--program", default=BUILD / "step0_single_gpu/step0_single_gpu", type=Path)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--at-most-of-fp32", type=float,
                        help="with --precision bf16: exit with 1 if a step takes a larger share of its fp32 time")  # fmt: skip
    return parse(parser, "--program")


def main():
    arguments = parse_arguments()
    is_bf16 = arguments.precision == "bf16"
    kinds = ["step0", "step0-bf16", "module-bf16", "module-autocast"] if is_bf16 else ["step0", "step0-blas", "module"]
    if is_bf16:
        pass
    elif importlib.util.find_spec("transformers"):
        kinds.append("huggingface")
    else:
        print(f"Hugging Face GPT-2 is left out; with it: {sys.executable} -m pip install transformers")
    print(shape_text(arguments), flush=True)

    with tempfile.TemporaryDirectory(prefix="ladder-speed-") as folder:
        race = Race(arguments, folder, arguments.program)

        def run(kind, num_steps):
            if kind in OURS:
                return race.run_step(arguments.program, num_steps, *STEP_OPTIONS[kind])
            module, _, precision = kind.partition("-")
            return race.run_python(module, num_steps, precision=precision or "fp32")

        runs = {kind: lambda num_steps, kind=kind: run(kind, num_steps) for kind in kinds}
        tolerance = BF16_LOSS_TOLERANCE if is_bf16 else LOSS_TOLERANCE
        tokens_per_s, loads, progress = measure(arguments, race, runs, NAMES, [kinds], lambda kind: 1, tolerance)

    peers = [speeds for kind, speeds in tokens_per_s.items() if kind not in OURS]
    best = {"best": [max(speeds) for speeds in zip(*peers)]} if peers else {}  # a part, if it was stopped
    ratios = ratios_of(NAMES, [*((kind, "best") for kind in OURS), ("step0-bf16", "step0")], tokens_per_s | best)
    print_figures(NAMES, tokens_per_s, ratios)
    num_parameters, tokens = race.start_report["num_parameters"], arguments.micro_batch_size * arguments.context
    flops = flops_per_token(arguments, num_parameters)
    print(f"\nGFLOP/s by PaLM's formula, {flops / 1e6:.1f} MFLOP a token: 6·parameters + 12·L·C·T; medians over rounds.")
    for kind, speeds in tokens_per_s.items():
        median = statistics.median(speeds)
        print(f"{NAMES[kind]:21}{1e3 * tokens / median:9.1f} ms a step {flops * median / 1e9:9.1f} GFLOP/s")
    print_load(loads)
    progress.finish()

    medians = {name: statistics.median(of_rounds) for name, of_rounds in ratios.items()}
    write_figures(arguments, {
        "num_parameters": num_parameters, "flops_per_token": flops, "tokens_per_step": tokens,
        "tokens_per_second": tokens_per_s, "ratios": ratios, "load": loads, "ratio_medians": medians,
    })  # fmt: skip
    require_ratio(arguments, medians[f"{NAMES['step0-bf16' if is_bf16 else 'step0']} / {NAMES['best']}"])
    share = 1 / medians.get(f"{NAMES['step0-bf16']} / {NAMES['step0']}", 1)
    if is_bf16 and arguments.at_most_of_fp32 and share > arguments.at_most_of_fp32:
        sys.exit(f"a bf16 step takes {share:.3f} of an fp32 step, more than {arguments.at_most_of_fp32}")


if __name__ == "__main__":
    main()
