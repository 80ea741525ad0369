#!/usr/bin/env python3
"""Measures step 0 against PyTorch eager in Python: the same model, batches, optimizer and threads,
in one run.

    .ladder/venv/bin/python benchmarks/speed_vs_python.py                  6 layers, 384 channels, context 256
    .ladder/venv/bin/python benchmarks/speed_vs_python.py --default-model  what ./ladder run trains: 4 layers, 128 channels
    .ladder/venv/bin/python benchmarks/speed_vs_python.py --precision bf16 step 0 in bf16 against itself in fp32, and against Python in bf16

The opponents are a plain nn.Module and, if transformers can be imported, Hugging Face's GPT-2; in
bf16, the nn.Module with bf16 parameters, which have no masters, and under torch.autocast. "step 0,
BLAS" uses their matrix product. First it checks that all train the same model. In every round each
program runs once, one after the other; a round's figure is the median step after the warm-up, its
ratio step 0's speed over that of the faster opponent. A step is everything from fetching the batch
to the loss as a number; step 0's also contains the norm of the parameters, which the Python
programs do not compute.
"""

import importlib.util
import statistics
import sys
from pathlib import Path

from race import (
    BUILD,
    BF16_LOSS_TOLERANCE,
    LOSS_TOLERANCE,
    PEERS_PRODUCTS,
    Race,
    flops_per_token,
    make_parser,
    parse,
    require_ratio,
    shape_text,
)

OURS, BEST = ("step0", "step0-blas", "step0-bf16"), "the best of Python"


def parse_arguments():
    parser = make_parser(__doc__)
    parser.add_argument("--program", default=BUILD / "step0_single_gpu/step0_single_gpu", type=Path)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument(
        "--at-most-of-fp32",
        type=float,
        help="with --precision bf16: exit with 1 if a step takes a larger share of its fp32 time",
    )
    return parse(parser)


def make_race(arguments):
    race = Race(arguments, arguments.program)
    race.add_step("step0", "step 0", arguments.program)
    if arguments.precision == "bf16":
        race.add_step("step0-bf16", "step 0, bf16", arguments.program, "--precision", "bf16")
        race.add_python("module-bf16", "nn.Module, bf16", "--precision", "bf16")
        race.add_python("module-autocast", "nn.Module, autocast", "--precision", "autocast")
        return race
    race.add_step("step0-blas", "step 0, BLAS", arguments.program, *PEERS_PRODUCTS)
    race.add_python("module", "nn.Module")
    if importlib.util.find_spec("transformers"):
        race.add_python("huggingface", "Hugging Face GPT-2", model="huggingface")
    else:
        print(
            f"Hugging Face GPT-2 is left out; with it: {sys.executable} -m pip install transformers"
        )
    return race


def main():
    arguments = parse_arguments()
    print(shape_text(arguments), flush=True)
    race, is_bf16 = make_race(arguments), arguments.precision == "bf16"
    race.measure(race.programs, tolerance=BF16_LOSS_TOLERANCE if is_bf16 else LOSS_TOLERANCE)

    peers = [speeds for kind, speeds in race.tokens_per_s.items() if kind not in OURS]
    best = (
        {BEST: [max(speeds) for speeds in zip(*peers)]} if peers else {}
    )  # a part, if it was stopped
    ratios = race.ratios([*((kind, BEST) for kind in OURS), ("step0-bf16", "step0")], best)
    race.print_figures(ratios)
    num_parameters, tokens = (
        race.start_report["num_parameters"],
        arguments.micro_batch_size * arguments.context,
    )
    flops = flops_per_token(arguments, num_parameters)
    print(
        f"\nGFLOP/s by PaLM's formula, {flops / 1e6:.1f} MFLOP a token: 6·parameters + 12·L·C·T; medians over rounds."
    )
    for kind, speeds in race.tokens_per_s.items():
        median = statistics.median(speeds)
        print(
            f"{race.programs[kind].name:21}{1e3 * tokens / median:9.1f} ms a step {flops * median / 1e9:9.1f} GFLOP/s"
        )
    medians = {name: statistics.median(of_rounds) for name, of_rounds in ratios.items()}
    facts = {"num_parameters": num_parameters, "flops_per_token": flops, "tokens_per_step": tokens}
    race.finish(**facts, ratios=ratios, ratio_medians=medians)
    require_ratio(
        arguments, medians[f"{race.programs['step0-bf16' if is_bf16 else 'step0'].name} / {BEST}"]
    )
    share = 1 / medians.get("step 0, bf16 / step 0", 1)
    if is_bf16 and arguments.at_most_of_fp32 and share > arguments.at_most_of_fp32:
        sys.exit(
            f"a bf16 step takes {share:.3f} of an fp32 step, more than {arguments.at_most_of_fp32}"
        )


if __name__ == "__main__":
    main()
