#!/usr/bin/env python3
"""Measures step 4 on several ranks against step 0 on one, and against DistributedDataParallel in Python: in one run.

    .ladder/venv/bin/python benchmarks/ddp_vs_python.py                  2 ranks; 6 layers, 384 channels, context 256
    .ladder/venv/bin/python benchmarks/ddp_vs_python.py --default-model  what ./ladder run trains: 4 layers, 128 channels

In every round each program runs once, one after the other, so a machine that gets slower hurts all alike; a round's
figure is the median step after the warm-up steps:

    step 0             one process
    step 0, N copies   N processes at once that know nothing of each other: what the machine has to give
    step 4             N ranks
    … BLAS             steps 0 and 4 again with --products blas, the matrix product of the Python programs
    nn.Module          one process: the faster one of speed_vs_python.py's opponents
    Python DDP         N processes of it, DistributedDataParallel over gloo; ours communicate over Open MPI

The batch grows with the ranks: each has as many rows as one process alone. First it checks that all train the same
model: as many parameters, and from one start on one token file the same losses, of step 0 and nn.Module and, on the
rows of all ranks, of step 4 and Python DDP. A step is everything from fetching the batch to the loss as a number: in
step 4 the loss of all ranks, in Python DDP that of the rank.
"""

import statistics
import tempfile
from pathlib import Path

from processes import BUILD
from race import LOSSES_COMPARED, PEERS_PRODUCTS, Race, check_same_model, make_parser, parse, print_figures
from race import ratios_of, require_program, require_ratio, run_rounds, shape_text, write_figures

NAMES = {
    "step0": "step 0", "copies": "step 0, copies", "step4": "step 4", "step0-blas": "step 0, BLAS",
    "step4-blas": "step 4, BLAS", "module": "nn.Module", "ddp": "Python DDP",
}  # fmt: skip
# Scaling against one's own single process first, then ours over theirs, as it is and with the same matrix product.
RATIOS = [
    ("step4", "step0"), ("copies", "step0"), ("step4", "copies"), ("step4-blas", "step0-blas"), ("ddp", "module"),
    ("step0", "module"), ("step4", "ddp"), ("step0-blas", "module"), ("step4-blas", "ddp"),
]  # fmt: skip


def parse_arguments():
    parser = make_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="of step 4 and of Python DDP")
    parser.add_argument("--step0", default=BUILD / "step0_single_gpu/step0_single_gpu", type=Path)
    parser.add_argument("--step4", default=BUILD / "step4_bucketed_ddp/step4_bucketed_ddp", type=Path)
    parser.add_argument("--bucket-mb", type=float, help="step 4's, in MiB (default: its own)")
    arguments = parse(parser)
    if arguments.ranks < 2:
        parser.error("--ranks must be at least 2")
    require_program(parser, "--step0", arguments.step0)
    require_program(parser, "--step4", arguments.step4)
    return arguments


def main():
    arguments = parse_arguments()
    ranks = arguments.ranks
    print(f"{ranks} ranks; {shape_text(arguments)}")
    with tempfile.TemporaryDirectory(prefix="ladder-ddp-") as folder:
        race = Race(arguments, folder, arguments.step0, ranks)
        buckets = [] if arguments.bucket_mb is None else ["--bucket-mb", str(arguments.bucket_mb)]
        runs = {
            "step0": lambda steps: race.run_step(arguments.step0, steps),
            "copies": lambda steps: race.run_step(arguments.step0, steps, copies=ranks),
            "step4": lambda steps: race.run_step(arguments.step4, steps, *buckets, ranks=ranks),
            "step0-blas": lambda steps: race.run_step(arguments.step0, steps, *PEERS_PRODUCTS),
            "step4-blas": lambda steps: race.run_step(arguments.step4, steps, *buckets, *PEERS_PRODUCTS, ranks=ranks),
            "module": lambda steps: race.run_python("module", steps),
            "ddp": lambda steps: race.run_python("module", steps, ranks),
        }
        for same in [("step0", "step0-blas", "module"), ("step4", "step4-blas", "ddp")]:
            check_same_model({kind: runs[kind](LOSSES_COMPARED) for kind in same}, NAMES)
        alone = ("step0", "step0-blas", "module")
        tokens_per_s, loads = run_rounds(arguments, race, runs, lambda kind: 1 if kind in alone else ranks)

    ratios = ratios_of(NAMES, RATIOS, tokens_per_s)
    print_figures(NAMES, tokens_per_s, ratios)
    print("Load of the machine before each round: " + " ".join(f"{load:.1f}" for load in loads))
    write_figures(arguments, {"tokens_per_second": tokens_per_s, "ratios": ratios, "load": loads})
    require_ratio(arguments, statistics.median(ratios[f"{NAMES['step4']} / {NAMES['step0']}"]))


if __name__ == "__main__":
    main()
