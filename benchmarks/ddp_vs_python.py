#!/usr/bin/env python3
"""Measures step 4 on several ranks against step 0 on one, and against DistributedDataParallel in
Python: in one run.

    .ladder/venv/bin/python benchmarks/ddp_vs_python.py                  2 ranks; 6 layers, 384 channels, context 256
    .ladder/venv/bin/python benchmarks/ddp_vs_python.py --default-model  what ./ladder run trains: 4 layers, 128 channels

In every round each program runs once: step 0, alone and in N copies that never communicate; step 4;
all with --products blas, the matrix product of the Python programs, too; and nn.Module alone and as
Python DDP, over gloo. A round's figure is the median step after the warm-up. The batch grows with
the ranks. First it checks that all train the same model. A step is everything from fetching the
batch to the loss as a number: in step 4 the loss of all ranks, in Python DDP that of the rank.
"""

from pathlib import Path

from race import BUILD, make_parser, parse, race_on_ranks
from launcher.console import count_from

PROGRAMS = "step0_single_gpu step4_bucketed_ddp"


def main():
    parser = make_parser(__doc__)
    parser.add_argument(
        "--ranks", type=count_from(2, 9999), default=2, help="of step 4 and of Python DDP"
    )
    parser.add_argument("--step0", default=BUILD / "step0_single_gpu/step0_single_gpu", type=Path)
    parser.add_argument(
        "--step4", default=BUILD / "step4_bucketed_ddp/step4_bucketed_ddp", type=Path
    )
    parser.add_argument("--bucket-mb", type=float, help="step 4's, in MiB (default: its own)")
    arguments = parse(parser)
    buckets = [] if arguments.bucket_mb is None else ["--bucket-mb", str(arguments.bucket_mb)]
    race_on_ranks(
        arguments,
        arguments.step0,
        {"step4": (arguments.step4, buckets)},
        {"ddp": "Python DDP"},
        has_copies=True,
    )


if __name__ == "__main__":
    main()
