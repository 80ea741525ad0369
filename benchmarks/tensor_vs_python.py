#!/usr/bin/env python3
"""Measures tensor parallelism against one process, and against PyTorch's.

    .ladder/venv/bin/python benchmarks/tensor_vs_python.py              2 ranks; 6 layers, 384 channels, context 256
    .ladder/venv/bin/python benchmarks/tensor_vs_python.py --rounds 1 --steps 5     a first look

First it checks that all programs train the same model. Then, in every round, each trains once: step
0 alone, with whole layers and in as many parts; the chapter tensor_parallel on so many ranks; and
the same cut with parallelize_module and loss_parallel over gloo. All multiply with the BLAS behind
torch.nn.Linear (--products onednn: ours with oneDNN).
"""

import statistics
import sys
from pathlib import Path

from race import BUILD, Race, make_parser, parse, shape_text
from launcher.console import count_from

PROGRAMS = "step0_single_gpu tensor_parallel"


def parse_arguments():
    parser = make_parser(__doc__)
    parser.set_defaults(steps=10, warmup_steps=3)
    parser.add_argument("--ranks", type=count_from(2, 9999), default=2, help="that share layers")
    parser.add_argument("--products", choices=["blas", "onednn"], default="blas", help="ours")
    parser.add_argument("--build", default=BUILD, type=Path, help="where the trainers were built")
    return parse(parser)


def main():
    a = parse_arguments()
    print(f"{a.ranks} ranks; products: {a.products}; {shape_text(a, 'rows a step')}", flush=True)
    step0 = a.build / "step0_single_gpu/step0_single_gpu"
    ours = a.build / "step8_pipeline_ga/tensor_parallel/tensor_parallel"
    race = Race(a, step0, is_tied=False)
    products, parts = ("--products", a.products), ("--product-parts", a.ranks)
    race.add_step("whole", "step 0", step0, *products)
    race.add_step("parts", f"step 0 in {a.ranks} parts", step0, *products, *parts)
    tensor_ranks = ("--tensor-ranks", a.ranks)
    race.add_step(
        "ours", "tensor_parallel", ours, *products, *tensor_ranks, ranks=a.ranks, num_microbatches=1
    )
    race.add_python(
        "peer", "parallelize_module", "--parallel", "tensor", ranks=a.ranks, num_microbatches=1
    )
    race.measure(["whole", "parts", "ours", "peer"])
    ratios = race.ratios([("ours", "peer"), ("ours", "whole"), ("parts", "whole")])
    race.print_figures(ratios)
    race.finish(ratios=ratios)
    against_peer = statistics.median(next(iter(ratios.values())))
    if a.at_least and against_peer < a.at_least:
        sys.exit(f"ours / PyTorch's is {against_peer:.3f}, below {a.at_least}")


if __name__ == "__main__":
    main()
