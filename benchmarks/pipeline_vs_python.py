#!/usr/bin/env python3
"""Measures the pipeline of step 8 against one process, against its bubble, and against PyTorch's
own pipeline.

    .ladder/venv/bin/python benchmarks/pipeline_vs_python.py               2 stages; 8 layers, 384 channels, context 256
    .ladder/venv/bin/python benchmarks/pipeline_vs_python.py --stages 4    on 2 cores, four processes share them
    .ladder/venv/bin/python benchmarks/pipeline_vs_python.py --microbatches 8 --rounds 1 --steps 3      a first look

First it checks that all programs train the same model. Then, in every round and for every number of
microbatches m, each trains once: step 0, alone and in p copies that never communicate; step 8 on p
stages, GPipe and 1F1B; and the same cut and schedules in torch.distributed.pipelining over gloo
(--products onednn: with our own matrix product). It prints

    efficiency         the speed over p times that of one process. The bubble limits it to m / (m + p - 1)
    of the limit       1 if nothing is lost but the bubble; "with the cut": the limit m / (p (1 + (m - 1) s)), s being the
                       largest stage's share of the arithmetic. Both hold if every stage has a core of its own
    step 8 / PyTorch   in the same round

and the activations that each stage held at the peak: of all m microbatches for GPipe, of at most p
- r on stage r for 1F1B.
"""

import json
import os
import statistics
import sys
from pathlib import Path

from race import BUILD, VOCABULARY, Race, make_parser, parse, ratios_to, shape_text
from launcher.console import count_from, list_of
from launcher.launch import run_all
from launcher.tables import table

PROGRAMS = "step0_single_gpu step8_pipeline_ga"
SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B"}


def parse_arguments():
    parser = make_parser(__doc__)
    parser.set_defaults(layers=8, micro_batch_size=1, steps=6, warmup_steps=2, rounds=3)
    parser.add_argument(
        "--stages",
        type=count_from(2, 9999),
        default=2,
        help="processes of step 8 and of PyTorch's pipeline",
    )
    parser.add_argument(
        "--microbatches",
        type=list_of(count_from(1, 9999)),
        default="4,8,16",
        help="per step, each at least --stages",
    )
    parser.add_argument(
        "--products",
        choices=["blas", "onednn"],
        default="blas",
        help="ours; PyTorch's are its BLAS",
    )
    parser.add_argument("--step0", default=BUILD / "step0_single_gpu/step0_single_gpu", type=Path)
    parser.add_argument("--step8", default=BUILD / "step8_pipeline_ga/step8_pipeline_ga", type=Path)
    arguments = parse(parser)
    if min(arguments.microbatches) < arguments.stages:
        parser.error("--microbatches must each be at least --stages: Schedule1F1B refuses fewer")
    return arguments


def blocks_of_stages(race, arguments):
    """How many blocks step 8 gives each stage: in its plans, which have a chunk of layers for each."""
    p = arguments.stages
    command = race.step_command(arguments.step8, 0, race.folder / "none")
    (said,) = run_all(
        [[*command, "--num-microbatches", p, "--pipeline-stages", p, "--dry-run", p, "--json"]]
    )
    facts = json.loads(said)
    return [
        sum(facts["layers"][layer]["name"].startswith("block") for layer in chunk)
        for chunk in facts["schedule"]["chunks"]
    ]


def largest_share(a, blocks):
    """The largest share of the stages' arithmetic: a block's four products and attention, and the
    head's product with the vocabulary."""
    block, head = 12 * a.channels**2 + 2 * a.channels * a.context, a.channels * VOCABULARY
    costs = [count * block for count in blocks]
    costs[-1] += head
    return max(costs) / sum(costs)


def saved_bytes(a, num_blocks, has_head):
    """What autograd keeps of one microbatch on a stage: saved_activation_bytes() of
    common/model/build_layers.cpp, for its layers."""
    C = a.channels
    per_token = num_blocks * (16 * C + 4 + a.heads) + (2 * C + 2 + VOCABULARY if has_head else 0)
    return 4 * a.micro_batch_size * a.context * per_token


def add_programs(race, a, blocks):
    """A kind of program for each number of microbatches."""
    p, cut = a.stages, ",".join(map(str, blocks))
    for m in a.microbatches:
        alone, copies = f"step 0, m={m}", f"step 0, {p} copies, m={m}"
        ours = ("--num-microbatches", m, "--products", a.products)
        race.add_step(alone, alone, a.step0, *ours, num_microbatches=m)
        race.add_step(copies, copies, a.step0, *ours, copies=p, num_microbatches=m * p)
        for kind, name in SCHEDULES.items():
            mine, peer = f"step 8 {name}, m={m}", f"PyTorch {name}, m={m}"
            race.add_step(
                mine,
                mine,
                a.step8,
                *ours,
                "--pipeline-stages",
                p,
                "--pipeline-schedule",
                kind,
                ranks=p,
                num_microbatches=m,
            )
            race.add_python(
                peer,
                peer,
                "--parallel",
                kind,
                "--num-microbatches",
                m,
                "--blocks",
                cut,
                ranks=p,
                num_microbatches=m,
            )


def print_summary(a, share, tokens_per_s):
    """Per schedule and m: scaling first, then the limit, then the peer; medians of the rounds'
    ratios."""
    p, rows = a.stages, []
    lines = [
        [
            "",
            "of one process",
            "of p copies",
            "limit",
            "of the limit",
            "with the cut",
            "step 8 / PyTorch",
        ]
    ]

    def ratio(kind, reference):
        return statistics.median(ratios_to(kind, reference, tokens_per_s))

    for m in a.microbatches:
        limit, limit_of_cut = m / (m + p - 1), m / (p * (1 + (m - 1) * share))
        for name in SCHEDULES.values():
            for program in ("step 8", "PyTorch"):
                kind = f"{program} {name}, m={m}"
                efficiency = ratio(kind, f"step 0, m={m}") / p
                row = {
                    "kind": kind,
                    "efficiency": efficiency,
                    "of_copies": ratio(kind, f"step 0, {p} copies, m={m}"),
                    "limit": limit,
                    "of_limit": efficiency / limit,
                    "of_limit_with_cut": efficiency / limit_of_cut,
                    "ours_per_peer": ratio(kind, f"PyTorch {name}, m={m}"),
                }
                rows.append(row)
                # PyTorch's own efficiency is against our one process: there is one base for all.
                cells = [f"{value:.3f}" for value in list(row.values())[1:]]
                lines.append([kind, *cells[:-1], cells[-1] if program == "step 8" else ""])
    print(
        f"\nEfficiency on {p} stages; medians of the rounds' ratios\n\n{table(lines, numbers_right=True)}"
    )
    return rows


def print_memory(a, blocks, peaks):
    """Peaks of activations next to live microbatches times what one of them saves."""
    p, rows = a.stages, []
    print(
        "\nActivations at the peak, MiB: measured (live microbatches x bytes that autograd keeps of one)"
    )
    for m in a.microbatches:
        for stage in range(p):
            one = saved_bytes(a, blocks[stage], stage == p - 1)
            live = {"GPipe": m, "1F1B": min(m, p - stage)}
            measured = {name: peaks[f"step 8 {name}, m={m}"][stage] for name in live}
            formula = {name: count * one for name, count in live.items()}
            rows.append({"m": m, "stage": stage, "formula": formula, "measured": measured})
            cells = (
                f"{name} {measured[name] / 2**20:7.1f} ({count} x {one / 2**20:.1f} = {count * one / 2**20:.1f})"
                for name, count in live.items()
            )
            print(f"m={m:<3} stage {stage}: " + ", ".join(cells))
    return rows


def main():
    a = parse_arguments()
    print(
        f"{a.stages} stages; products: {a.products}; {shape_text(a, 'rows a microbatch')}",
        flush=True,
    )
    if a.stages > os.cpu_count():
        print(
            f"{a.stages} stages share {os.cpu_count()} cores: the limit of the bubble does not hold"
        )
    race = Race(a, a.step0, max(a.microbatches), is_tied=False)
    blocks = blocks_of_stages(race, a)
    share = largest_share(a, blocks)
    print(
        f"blocks on each stage: {blocks}; the largest has {100 * share:.1f}% of the arithmetic",
        flush=True,
    )
    add_programs(race, a, blocks)
    peaks, fewest = {}, f", m={min(a.microbatches)}"

    def on_run(kind, figures):
        if kind.startswith("step 8"):
            peaks[kind] = [memory["activations_peak"] for memory in figures["memory"]]

    race.measure(
        [kind for kind in race.programs if kind.endswith(fewest) and "copies" not in kind],
        on_run=on_run,
    )
    a.microbatches = [
        m
        for m in a.microbatches
        if all(kind in race.tokens_per_s for kind in race.programs if kind.endswith(f", m={m}"))
    ]
    ratios = race.ratios(
        (f"step 8 {s}, m={m}", f"PyTorch {s}, m={m}")
        for m in a.microbatches
        for s in SCHEDULES.values()
    )
    race.print_figures(ratios)
    summary = print_summary(a, share, race.tokens_per_s)
    memory = print_memory(a, blocks, peaks)
    race.finish(ratios=ratios, summary=summary, memory=memory)
    if (
        a.at_least
        and (lowest := min(statistics.median(values) for values in ratios.values())) < a.at_least
    ):
        sys.exit(f"step 8 / PyTorch is {lowest:.3f} in the worst case, below {a.at_least}")


if __name__ == "__main__":
    main()
