#!/usr/bin/env python3
"""Measures steps 4 to 7 on several ranks against step 0 on one, and against their peers in Python: in one run.

    .ladder/venv/bin/python benchmarks/zero_vs_python.py                  2 ranks; 6 layers, 384 channels, context 256

As ddp_vs_python.py does. The peers, over gloo: DistributedDataParallel; the same with ZeroRedundancyOptimizer, which deals out
whole tensors; and fully_shard per block, as ZeRO-2, where parameters stay whole from forward to backward, and as ZeRO-3.
"""

import statistics
from pathlib import Path

from processes import BUILD
from race import make_parser, parse, race_on_ranks, require_program, require_ratio
from launcher.console import count_from

STEPS = {"step4": "step4_bucketed_ddp", "step5": "step5_zero1", "step6": "step6_zero2", "step7": "step7_zero3"}
PEERS = {"ddp": "Python DDP", "zero1": "Python ZeRO-1", "fsdp-zero2": "FSDP2, as ZeRO-2", "fsdp-zero3": "FSDP2, as ZeRO-3"}
OURS = ("step0", *STEPS)
OPPONENTS = ("module", *PEERS)
NAMES = {
    **{kind: f"step {kind[-1]}" for kind in OURS},
    **{f"{kind}-blas": f"step {kind[-1]}, BLAS" for kind in OURS},
    "module": "nn.Module",
    **PEERS,
}
# Scaling against one's own single process first, then ours over theirs, as it is and with the same matrix product.
RATIOS = [
    *((kind, "step0") for kind in STEPS),
    *((f"{kind}-blas", "step0-blas") for kind in STEPS),
    *((kind, "module") for kind in PEERS),
    *zip(OURS, OPPONENTS),
    *((f"{ours}-blas", theirs) for ours, theirs in zip(OURS, OPPONENTS)),
]


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--ranks", type=count_from(2, 9999), default=2, help="of steps 4 to 7 and of their peers")
    parser.add_argument("--build", default=BUILD, type=Path, help="where the trainers were built")
    arguments = parse(parser)
    for step in ("step0_single_gpu", *STEPS.values()):
        require_program(parser, "--build", arguments.build / step / step)
    steps = {kind: (arguments.build / step / step, ()) for kind, step in STEPS.items()}
    step0 = arguments.build / "step0_single_gpu/step0_single_gpu"
    ratios = race_on_ranks(arguments, step0, steps, PEERS, NAMES, RATIOS)
    for kind in STEPS:
        require_ratio(arguments, statistics.median(ratios[f"{NAMES[kind]} / {NAMES['step0']}"]), f"{NAMES[kind]}: the median ratio")


if __name__ == "__main__":
    main()
