#!/usr/bin/env python3
"""Measures steps 4 to 7 on several ranks against step 0 on one, and against their peers in Python:
in one run.

    .ladder/venv/bin/python benchmarks/zero_vs_python.py                  2 ranks; 6 layers, 384 channels, context 256

As ddp_vs_python.py does. The peers, over gloo: DistributedDataParallel; the same with
ZeroRedundancyOptimizer, which deals out whole tensors; and fully_shard per block, as ZeRO-2, where
parameters stay whole from forward to backward, and as ZeRO-3.
"""

from pathlib import Path

from race import BUILD, make_parser, parse, race_on_ranks
from launcher.console import count_from

PROGRAMS = "step0_single_gpu step4_bucketed_ddp step5_zero1 step6_zero2 step7_zero3"
STEPS = {
    "step4": "step4_bucketed_ddp",
    "step5": "step5_zero1",
    "step6": "step6_zero2",
    "step7": "step7_zero3",
}
PEERS = {
    "ddp": "Python DDP",
    "zero1": "Python ZeRO-1",
    "fsdp-zero2": "FSDP2, as ZeRO-2",
    "fsdp-zero3": "FSDP2, as ZeRO-3",
}


def main():
    parser = make_parser(__doc__)
    parser.add_argument(
        "--ranks", type=count_from(2, 9999), default=2, help="of steps 4 to 7 and of their peers"
    )
    parser.add_argument("--build", default=BUILD, type=Path, help="where the trainers were built")
    arguments = parse(parser)
    steps = {kind: (arguments.build / step / step, ()) for kind, step in STEPS.items()}
    race_on_ranks(arguments, arguments.build / "step0_single_gpu/step0_single_gpu", steps, PEERS)


if __name__ == "__main__":
    main()
