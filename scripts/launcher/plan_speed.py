"""How fast a rank is: measured here by a traced run of step 3, or said with --speed.

The run has the model's own shape and batch, but few layers, on as many ranks at once as will share
this machine: they share its cores and its memory bandwidth. All blocks are alike, so few tell about
many. A trace has the time of each layer's forward and backward, of optimizer and norms, and of each
all-reduce. Other programs can only make a step slower, so of equal ones the lower quartile counts.
"""

import os
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from launcher.build import num_cores
from launcher.plan_time import Speed
from read_trace import measured_steps, read_trace

MOST_LAYERS = 4  # of the run that is measured
STEPS = 8  # of it; the first one warms up


def quiet(values):
    """The lower quartile."""
    values = sorted(values)
    return values[(len(values) - 1) // 4]


def cpu_name():
    """What goes with every figure: the processor, what it computes with, and how many of its cores
    are ours."""
    try:
        lines = [
            line.split(":", 1)
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if ":" in line
        ]
    except OSError:
        lines = []
    of_last = {"model name": "CPU unknown", "flags": ""} | {
        name.strip(): text.strip() for name, text in lines
    }
    flags = of_last["flags"].split()
    vectors = next((name for name in ("avx512f", "avx2", "avx") if name in flags), "no AVX")
    has_bf16 = "bf16" if {"avx512_bf16", "amx_bf16"} & set(flags) else "no bf16"
    family = (
        f"family {of_last['cpu family']}, model {of_last['model']}, "
        if "cpu family" in of_last
        else ""
    )
    return f"{of_last['model name']} ({family}{vectors}, {has_bf16}), {len(os.sched_getaffinity(0))} cores"


def quiet_us(spans):
    return quiet(span.end - span.begin for span in spans) if spans else 0.0


def within(slices, step):
    return [each for each in slices if step.begin <= each.begin < step.end]


def length_us(slices):
    return sum(each.end - each.begin for each in slices)


def layer_times(trace, steps, names):
    """Seconds of forward and backward by layer. The loss and its gradient are the head's."""
    found = {"forward": defaultdict(list), "backward": defaultdict(list)}
    for rank in trace.ranks:
        outer = [
            span for n in steps for span in within(rank.named("forward", "backward"), rank.step(n))
        ]
        inner = [span for span in rank.spans if span.name in names]
        for span in outer:
            parts = within(inner, span)
            for part in parts:
                found[span.name][part.name].append(part.end - part.begin)
            rest = span.end - span.begin - length_us(parts)
            found[span.name][names[-1]][-1] += rest
    times = [[quiet(found[way][name]) / 1e6 for name in names] for way in ("forward", "backward")]
    blocks = slice(1, len(names) - 1)
    for way in times:
        way[blocks] = [statistics.mean(way[blocks])] * (len(names) - 2)
    return times


def operation_times(trace, steps):
    """(bytes sent, seconds from when the last rank has begun) of the all-reduces of a step."""
    times = defaultdict(list)
    for n in steps:
        each = [
            [o for o in within(rank.operations, rank.step(n)) if o.args["kind"] == "all_reduce"]
            for rank in trace.ranks
        ]
        for i, same in enumerate(zip(*each)):
            times[i, max(o.args["sent_bytes"] for o in same)].append(
                max(o.end for o in same) - max(o.begin for o in same)
            )
    return [(num_bytes, max(quiet(us), 0.1) / 1e6) for (_, num_bytes), us in times.items()]


def fit(points):
    """a and b of seconds = a + b · bytes, neither negative, with the least relative errors."""
    w = [1 / seconds**2 for _, seconds in points]
    total = sum(w)
    x, y = (sum(wi * point[axis] for wi, point in zip(w, points)) / total for axis in (0, 1))
    spread = sum(wi * (px - x) ** 2 for wi, (px, _) in zip(w, points))
    slope = (
        sum(wi * (px - x) * (py - y) for wi, (px, py) in zip(w, points)) / spread if spread else 0.0
    )
    slope = min(max(slope, 0.0), y / x if x else 0.0)
    return y - slope * x, slope


def speed_of(trace, facts, ranks, threads):
    """Of the layers of the run that was traced, which had these plans."""
    names = [layer["name"] for layer in facts["layers"]]
    steps, layers = measured_steps(trace), ("forward", "backward")
    forward_s, backward_s = layer_times(trace, steps, names)
    each = [span for rank in trace.ranks for span in rank.spans]
    slowest = [
        max(length_us(within(rank.named(*layers), rank.step(n))) for rank in trace.ranks)
        for n in steps
    ]  # others wait for it
    known = [
        [rank.step(n), *rank.named(*layers, "optimizer step", "norm"), *rank.waits]
        for rank in trace.ranks
        for n in steps
    ]
    factor = quiet(slowest) / 1e6 / (facts["microbatches"] * sum(forward_s + backward_s))
    call_s, byte_s = fit(operation_times(trace, steps)) if ranks > 1 else (0.0, 0.0)
    return Speed(
        forward_s=[s * factor for s in forward_s],
        backward_s=[s * factor for s in backward_s],
        update_s=quiet_us([s for s in each if s.name == "optimizer step"])
        / 1e6
        / facts["ranks"][0]["updated"],
        norm_s=quiet_us([s for s in each if s.name == "norm"])
        / 1e6
        / (facts["ranks"][0]["normed"] / 2),
        rest_s=quiet(length_us([step]) - length_us(within(slices, step)) for step, *slices in known)
        / 1e6,
        message_s=call_s / max(1, 2 * (ranks - 1)),
        byte_s=byte_s,
        sharing=max(1.0, ranks * threads / num_cores()),
    )


def measure(trainers, step, ranks, words, layers):
    """Trains this step briefly. Returns the speed of a model with so many blocks, of which the run
    has a few."""
    words = (*words, "--layers", str(min(layers, MOST_LAYERS)))
    facts = trainers.facts(step, ranks, words)
    with tempfile.TemporaryDirectory() as folder:
        trainers.train(
            step, ranks, [*words, "--steps", str(STEPS), "--trace", f"{folder}/trace.json"]
        )
        speed = speed_of(
            read_trace(f"{folder}/trace.json"), facts, ranks, facts["config"]["threads"]
        )
    forward_s, backward_s = (
        [way[0], *[way[1]] * layers, way[-1]] for way in (speed.forward_s, speed.backward_s)
    )
    return speed._replace(forward_s=forward_s, backward_s=backward_s)
