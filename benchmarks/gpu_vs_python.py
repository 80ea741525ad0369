#!/usr/bin/env python3
"""GPT-2 124M on one GPU in bf16: step 0 next to PyTorch eager and torch.compile, then steps 4 to 7
on one rank next to step 0.

    ./ladder bench gpu                       12 layers, 12 heads, 768 channels, context 1024, vocabulary 50304, tied
    ./ladder bench gpu --write               the same; keeps output and figures in benchmarks/gpu_results
    ./ladder bench gpu --device cpu --layers 1 --channels 64 --heads 2 --context 32 --vocab-size 500 --micro-batch-size 2
                                             tries the script where there is no GPU; its figures mean nothing
    benchmarks/gpu_vs_python.py --self-test  checks the arithmetic, the tables and the names

The opponents are one plain nn.Module (python_trainer.py), eager and compiled (which needs
python3-dev), whose bf16 comes from

    masters     bf16 parameters, which fused AdamW updates by way of fp32 masters: what step 0 does, so the fair opponent
    autocast    fp32 parameters under torch.autocast, as most programs are written
    bf16        bf16 parameters without masters, which lose small updates: only with --peers, and not fair

First it checks that all train the same model. Then each program runs once a round, in a process of
its own; a round's figure is the median step after the warm-up, from fetching the batch to the loss
as a number, and the tables show medians of rounds. The trainers run with --deterministic false, as
PyTorch does by default. MFU counts PaLM's operations per token (appendix B; attention in full) over
the GPU's peak for dense bf16 matrices. Peak memory is what tensors held: by the trainers' ledger,
and by torch.cuda.max_memory_allocated.
"""

import argparse
import contextlib
import ctypes
import io
import json
import os
import re
import statistics
import sys
from pathlib import Path

from race import (
    BF16_LOSS_TOLERANCE,
    BUILD,
    LOSSES_COMPARED,
    ROOT,
    Race,
    cpu_name,
    flops_per_token,
    make_parser,
    parse,
)
from race import ratios_to, require_ratio, write_figures
from results import write
from zero_vs_python import STEPS
from launcher.console import count_from
from launcher.steps import trainer_in
from launcher.tables import read_table, table_of
from stand_ins import refusal

PROGRAMS = "step0_single_gpu step4_bucketed_ddp step5_zero1 step6_zero2 step7_zero3 cuda_graphs"
RESULTS = ROOT / "benchmarks/gpu_results"
GPT2_124M = {"layers": 12, "heads": 12, "channels": 768, "context": 1024, "vocab_size": 50304}
# TFLOP/s of dense bf16 matrices, from NVIDIA's data sheets, by the name that the driver gives. H100
# and H200 on PCIe cards (PCIe, NVL) are slower than the SXM modules, and a part of a GPU (MIG) is
# slower still: neither matches.
PEAK_TFLOPS = {
    r"A100(-SXM4?-\d+GB|-PCIE-40GB| 80GB PCIe)": 312,
    r"H100 80GB HBM3": 989,
    r"H200": 989,
}
STEP0, GRAPHS = "step0_single_gpu", "cuda_graphs"
PEERS = ("masters", "autocast", "bf16")
AIM = 0.03  # by how much steps 4 to 7 on one rank may be slower than step 0
NAMES = {
    "step0": "step 0", "step0-graphs": "step 0, CUDA graphs",
    "step0-deterministic": "step 0, `--deterministic true`",
    "masters": "PyTorch eager, masters", "masters-compiled": "torch.compile, masters",
    "autocast": "PyTorch eager, autocast", "autocast-compiled": "torch.compile, autocast",
    "bf16": "PyTorch eager, no masters", "bf16-compiled": "torch.compile, no masters",
    **{kind: f"step {kind[-1]}" for kind in STEPS},
}  # fmt: skip


def find_gpu():
    """(name, None) of the GPU that every program takes, or (None, why there is none). Asks the
    driver itself: the benchmark decides before libtorch is installed."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, "this machine has no NVIDIA driver"
    count, device, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if error or count.value == 0:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return (
            None,
            f"the NVIDIA driver shows no GPU (error {error}, CUDA_VISIBLE_DEVICES is {visible!r})",
        )
    error = driver.cuDeviceGet(ctypes.byref(device), 0) or driver.cuDeviceGetName(
        name, len(name), device
    )
    return (
        (None, f"the NVIDIA driver does not name GPU 0 (error {error})")
        if error
        else (name.value.decode(), None)
    )


def peak_tflops_of(gpu_name):
    """The peak from the table; None for a GPU that is not in it."""
    name = gpu_name.removeprefix("NVIDIA ")
    return next(
        (peak for pattern, peak in PEAK_TFLOPS.items() if re.fullmatch(pattern, name)), None
    )


def file_name_of(device_name):
    """For files: lower case, and a hyphen for everything but letters and digits."""
    return re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-")


def mfu(tokens_per_s, flops, peak_tflops):
    """Share of the peak; None without a peak."""
    return tokens_per_s * flops / (peak_tflops * 1e12) if peak_tflops else None


def peak_bytes_of(run):
    """The most that tensors held: of a report.json, or of what python_trainer.py prints, where the
    CPU has none."""
    return run["memory"][0]["peak"] if "memory" in run else run.get("peak_bytes")


def spread(values, digits):
    return f"{min(values):,.{digits}f} to {max(values):,.{digits}f}"


def gib(num_bytes):
    return "–" if num_bytes is None else f"{num_bytes / 2**30:.2f}"


def rows_of(tokens_per_s, peak_bytes, tokens_per_step, flops, peak_tflops):
    """What the tables say of each program."""
    for kind, speeds in tokens_per_s.items():
        median, ratios = statistics.median(speeds), ratios_to(kind, "step0", tokens_per_s)
        share = mfu(median, flops, peak_tflops)
        yield {
            "kind": kind,
            "name": NAMES[kind],
            "tokens_per_s": median,
            "tokens_over_rounds": spread(speeds, 0),
            "ms": 1e3 * tokens_per_step / median,
            "mfu": "–" if share is None else f"{share:.1%}",
            "peak": gib(peak_bytes[kind]),
            "ratio": statistics.median(ratios),
            "of_step0": statistics.median(ratios_to("step0", kind, tokens_per_s)),
            "over_rounds": spread(ratios, 3),
        }


# Step 0 and its opponents; steps 4 to 7 on one rank, which should cost nothing.
SPEEDS = {
    "one GPU": "{name}",
    "tokens/s": "{tokens_per_s:,.0f}",
    "over rounds": "{tokens_over_rounds}",
    "ms per step": "{ms:.2f}",
    "MFU": "{mfu}",
    "peak GiB": "{peak}",
    "step 0 ÷ this one": "{of_step0:.3f}",
}
STEPS_COST = {
    "1 rank": "{name}",
    "tokens/s": "{tokens_per_s:,.0f}",
    "÷ step 0": "{ratio:.3f}",
    "over rounds": "{over_rounds}",
    f"at most {AIM:.0%} slower": lambda row: "yes" if row["ratio"] >= 1 - AIM else "no",
    "peak GiB": "{peak}",
}


def tables_of(rows):
    rows = list(rows)
    yield table_of([row for row in rows if row["kind"] not in STEPS], SPEEDS, numbers_right=True)
    yield table_of([row for row in rows if row["kind"] in STEPS], STEPS_COST, numbers_right=True)


def heading(a, device_name, torch_version):
    """What was run, without the names of any folder or machine."""
    shape = {name: getattr(a, name) for name in GPT2_124M}
    model = "GPT-2 124M" if shape == GPT2_124M else "not GPT-2 124M"
    trial = (
        "TRIAL WITHOUT A GPU: these figures only show that the script works.\n"
        if a.device == "cpu"
        else ""
    )
    return (
        f"{trial}{device_name}, libtorch {torch_version}; host: {cpu_name()}\n{model}: {a.layers} layers, {a.heads} heads, "
        f"{a.channels} channels, context {a.context}, vocabulary {a.vocab_size}, tied embeddings; bf16, "
        f"{a.micro_batch_size} rows a step; {a.rounds} rounds of {a.warmup_steps} + {a.steps} steps each"
    )


def refuse(text):
    print(f"bench gpu: {text}", file=sys.stderr)
    sys.exit(2)


def peers_of(text):
    known = [kind for peer in PEERS for kind in (peer, f"{peer}-compiled")]
    peers = [name for name in text.split(",") if name]
    if unknown := [name for name in peers if name not in known]:
        raise argparse.ArgumentTypeError(
            f"there is no {unknown[0]!r}; there are {', '.join(known)}"
        )
    return list(dict.fromkeys(peers))


def parse_arguments():
    parser = make_parser(__doc__)
    parser.set_defaults(**GPT2_124M, micro_batch_size=16, warmup_steps=10)
    parser.add_argument(
        "--vocab-size", type=count_from(1, 2**16), help="a token file has 16 bits a token"
    )
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try the script"
    )
    parser.add_argument(
        "--peers",
        type=peers_of,
        default="masters,masters-compiled,autocast,autocast-compiled",
        help="which Python programs run, separated by commas; also bf16, bf16-compiled; '' for none",
    )
    parser.add_argument(
        "--peak-tflops",
        type=float,
        help="of the GPU, dense bf16; for a GPU that is not in the table",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=BF16_LOSS_TOLERANCE,
        help=f"relative, between the losses of the first {LOSSES_COMPARED} steps and step 0's",
    )
    parser.add_argument(
        "--write",
        type=Path,
        nargs="?",
        const=RESULTS,
        metavar="FOLDER",
        help="write the output and a JSON of figures to FOLDER/DEVICE-NAME.{txt,json}",
    )
    parser.add_argument(
        "--check", action="store_true", help="only say whether the benchmark can run here"
    )
    parser.add_argument("--build", default=BUILD, type=Path, help="where the trainers were built")
    arguments = parse(parser)
    arguments.device_name = "CPU"
    if arguments.device == "cuda":
        arguments.device_name, problem = find_gpu()
        if problem:
            refuse(f"{problem}; --device cpu with small sizes tries the script without one")
        arguments.peak_tflops = arguments.peak_tflops or peak_tflops_of(arguments.device_name)
        if not arguments.peak_tflops:
            refuse(
                f"no peak is known for {arguments.device_name!r}: give --peak-tflops (dense bf16, from its data sheet)"
            )
    elif arguments.write == RESULTS:
        refuse("--write keeps figures of GPUs; with --device cpu, name a folder: --write FOLDER")
    if arguments.check:
        sys.exit(0)
    return arguments


def make_race(a):
    race = Race(a, a.build / STEP0 / STEP0, vocab_size=a.vocab_size, device=a.device)

    def add_ours(kind, step, is_deterministic="false"):
        race.add_step(
            kind,
            NAMES[kind],
            trainer_in(a.build, step),
            "--precision",
            "bf16",
            "--deterministic",
            is_deterministic,
        )

    add_ours("step0", STEP0)
    if a.device == "cuda":
        add_ours("step0-graphs", GRAPHS)
    add_ours("step0-deterministic", STEP0, "true")
    for kind in a.peers:
        precision, _, is_compiled = kind.partition("-")
        race.add_python(
            kind, NAMES[kind], "--precision", precision, *(["--compile"] if is_compiled else [])
        )
    for kind, step in STEPS.items():
        add_ours(kind, step)
    return race


def measure(a):
    """Prints everything; returns the race and further figures."""
    first, peak_bytes = {}, {}  # first: those that compare losses

    def on_run(kind, run):
        peak_bytes[kind] = peak_bytes_of(run)
        first.setdefault(kind, run)

    race = make_race(a)
    step0 = race.start_report
    print(heading(a, a.device_name, step0["torch_version"]))
    print(f"\nLosses, which may differ by {a.tolerance:.0e} relative:", flush=True)
    race.measure(race.programs, tolerance=a.tolerance, on_run=on_run)
    versions = {
        first[kind]["torch_version"].partition("+")[0] for kind in a.peers if kind in first
    }  # without +cu130, for example
    if others := versions - {step0["torch_version"].partition("+")[0]}:
        print(f"The Python programs run another torch: {', '.join(sorted(others))}")
    flops, tokens_per_s = flops_per_token(a, step0["num_parameters"]), race.tokens_per_s
    for text in tables_of(
        rows_of(tokens_per_s, peak_bytes, a.micro_batch_size * a.context, flops, a.peak_tflops)
    ):
        print("\n" + text)
    peak = (
        f"a share of {a.peak_tflops:g} TFLOP/s (dense bf16)"
        if a.peak_tflops
        else "no peak without --peak-tflops"
    )
    print(
        f"\nMFU: {flops / 1e6:.1f} MFLOP a token by PaLM's formula, 6·parameters + 12·L·C·T; {peak}."
    )
    backends = {
        kind: run["attention_backend"]
        for kind, run in first.items()
        if run.get("attention_backend")
    }
    if backends:
        print(
            "Attention: "
            + "; ".join(f"{NAMES[kind]} {backend}" for kind, backend in backends.items())
        )
    return race.finish(
        device=a.device_name,
        torch_version=step0["torch_version"],
        num_parameters=step0["num_parameters"],
        flops_per_token=flops,
        peak_tflops=a.peak_tflops,
        mfu={
            kind: mfu(statistics.median(speeds), flops, a.peak_tflops)
            for kind, speeds in tokens_per_s.items()
        },
        ratios_to_step0={kind: ratios_to(kind, "step0", tokens_per_s) for kind in tokens_per_s},
        peak_bytes=peak_bytes,
        attention_backends=backends,
        losses={kind: run["losses"] for kind, run in first.items()},
    )


class Tee(io.StringIO):
    """Remembers what is printed."""

    def write(self, text):
        sys.__stdout__.write(text)
        sys.__stdout__.flush()
        return super().write(text)


def write_results(a, text, figures):
    options = {
        name: getattr(a, name)
        for name in (*GPT2_124M, "micro_batch_size", "rounds", "warmup_steps", "steps")
    }
    a.write.mkdir(parents=True, exist_ok=True)
    stem = a.write / file_name_of(a.device_name)
    write(stem.with_suffix(".txt"), text)
    write_figures(stem.with_suffix(".json"), options, figures)
    print(f"bench gpu: wrote {stem.name}.txt and {stem.name}.json", file=sys.stderr)


def main():
    arguments = parse_arguments()
    with contextlib.redirect_stdout(Tee()) as output:
        figures = measure(arguments)
    if arguments.write:
        write_results(arguments, output.getvalue(), figures)
    for kind in STEPS:
        require_ratio(
            arguments,
            statistics.median(figures["ratios_to_step0"][kind]),
            f"{NAMES[kind]}: the median ratio to step 0",
        )


def self_test():
    from types import SimpleNamespace

    a = SimpleNamespace(
        **GPT2_124M, device="cuda", micro_batch_size=16, rounds=3, warmup_steps=10, steps=30
    )
    # By hand: 6·124,475,904 + 12·12·768·1024 = 746,855,424 + 113,246,208.
    flops = flops_per_token(a, 124_475_904)
    assert flops == 860_101_632
    assert abs(mfu(100_000, flops, 312) - 0.27567) < 1e-5 and mfu(100_000, flops, None) is None
    peaks = {
        "A100-SXM4-80GB": 312,
        "A100 80GB PCIe": 312,
        "H100 80GB HBM3": 989,
        "H200": 989,
        "H100 PCIe": None,
        "H200 NVL": None,
        "A100-SXM4-80GB MIG 1g.10gb": None,
        "L4": None,
    }
    assert {name: peak_tflops_of(f"NVIDIA {name}") for name in peaks} == peaks
    assert (
        file_name_of("NVIDIA H100 80GB HBM3") == "nvidia-h100-80gb-hbm3"
        and file_name_of("../x (1)") == "x-1"
    )
    assert (
        peak_bytes_of({"memory": [{"peak": 3}]}) == 3
        and peak_bytes_of({"peak_bytes": 4}) == 4
        and peak_bytes_of({}) is None
    )
    assert gib(None) == "–" and gib(3 * 2**29) == "1.50"

    # The ratio is the median of ratios round by round, which is not the ratio of the medians.
    speeds = {
        "step0": [100e3, 200e3, 300e3],
        "masters": [50e3, 400e3, 100e3],
        **{kind: [96e3, 196e3, 291e3] for kind in STEPS},
        "step6": [96e3, 180e3, 299e3],
    }

    peak_bytes = {kind: 2**30 for kind in speeds}
    step0_and_peers, steps = tables_of(rows_of(speeds, peak_bytes, 16384, flops, 312))
    step0, masters = read_table(step0_and_peers)[2:]
    assert step0 == [
        "step 0",
        "200,000",
        "100,000 to 300,000",
        "81.92",
        "55.1%",
        "1.00",
        "1.000",
    ], step0
    assert masters[:2] == ["PyTorch eager, masters", "100,000"] and masters[-1] == "2.000", masters
    rows = read_table(steps)[2:]
    assert [row[0] for row in rows] == ["step 4", "step 5", "step 6", "step 7"], rows
    assert rows[0][1:] == ["196,000", "0.970", "0.960 to 0.980", "yes", "1.00"], rows[0]
    assert rows[2][2:5] == ["0.960", "0.900 to 0.997", "no"], rows[2]

    assert (
        peers_of("bf16,masters-compiled,bf16") == ["bf16", "masters-compiled"]
        and peers_of("") == []
    )
    assert refusal(argparse.ArgumentTypeError, peers_of, "fp8")
    text = heading(a, "NVIDIA H200", "2.11.0")
    assert "GPT-2 124M: 12 layers" in text and "not GPT" not in text and "TRIAL" not in text, text
    a.device, a.layers = "cpu", 1
    text = heading(a, "CPU", "2.11.0")
    assert text.startswith("TRIAL WITHOUT A GPU") and "not GPT-2 124M: 1 layers" in text, text

    page, h200 = (
        (ROOT / "docs/gpu.md").read_text(),
        json.loads((RESULTS / "nvidia-h200.json").read_text()),
    )
    for kind in h200["tokens_per_second"].keys() - STEPS.keys():
        speed = statistics.median(h200["tokens_per_second"][kind])
        figures = (
            f"| {speed:,.0f} | {100 * h200['mfu'][kind]:.1f}% | {gib(h200['peak_bytes'][kind])} |"
        )
        assert figures in page, f"docs/gpu.md lacks {NAMES[kind]}: {figures}"
    print("self-test: arithmetic, tables, names and docs/gpu.md are right")


if __name__ == "__main__":
    self_test() if sys.argv[1:] == ["--self-test"] else main()
