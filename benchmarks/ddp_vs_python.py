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
from pathlib import Path

from processes import BUILD
from race import make_parser, parse_ranks, race_on_ranks, require_program, require_ratio

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
    arguments = parse_ranks(parser)
    require_program(parser, "--step0", arguments.step0)
    require_program(parser, "--step4", arguments.step4)
    return arguments


def main():
    arguments = parse_arguments()
    buckets = [] if arguments.bucket_mb is None else ["--bucket-mb", str(arguments.bucket_mb)]
    steps = {"step4": (arguments.step4, buckets)}
    ratios = race_on_ranks(arguments, arguments.step0, steps, ["ddp"], NAMES, RATIOS, has_copies=True)
    require_ratio(arguments, statistics.median(ratios[f"{NAMES['step4']} / {NAMES['step0']}"]))


if __name__ == "__main__":
    main()
