#!/usr/bin/env python3
"""Says what each rank of a traced run did with its time, and draws a step.

    scripts/show_trace.py FILE [--step N] [--svg OUT.svg] [--beside OTHER]      ./ladder trace is short for it
    scripts/show_trace.py --self-test                          summarizes and draws traces of known content

Shares are of the time from the begin of the first step to the end of the last; the first step of
several, which warms up, is left out.

    waiting     blocked in a wait() for an operation
    computing   all other time
    in flight   something that this rank sends or receives has begun and is not known to be done; a message is in flight from
                when its send begins until it is received
    hidden      the share of the time in flight in which the rank was not waiting
    bubble      of a pipeline: the share of the time from the first forward of a step, on any stage, to its last backward in
                which this stage ran neither

Exit code 1 if FILE is no trace. Standard library only.
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from draw_trace import bounds, draw, median_step
from launcher.checkout import write_or_fail
from launcher.console import SelfTest, new_file
from launcher.tables import table
from read_trace import account, bubbles, is_schedule, measured_steps, ranks_of, read_trace


def percent(share):
    return "-" if share is None else f"{100 * share:.1f}%"


def spread(rank, steps):
    """How far the shares of single steps are apart."""
    singles = [account(rank, [number]) for number in steps]
    said = []
    for name in ("waiting", "in_flight", "hidden"):
        shares = [share for own in singles if (share := getattr(own, name)) is not None]
        if shares:
            said.append(
                f"{name.replace('_', ' ')} {percent(min(shares))} to {percent(max(shares))}"
            )
    return ", ".join(said)


def summary(trace):
    """Lines of text."""
    steps = measured_steps(trace)
    if not steps:
        return ["The trace has no whole step."]
    accounts, idle = [account(rank, steps) for rank in trace.ranks], bubbles(trace, steps)
    rows = []
    for rank, own in enumerate(accounts):
        rows.append({"rank": str(rank), "ms per step": f"{own.step_us / 1000:.2f}"})
        if not is_schedule(trace):
            rows[-1] |= {
                "computing": percent(1 - own.waiting),
                "waiting": percent(own.waiting),
                "in flight": percent(own.in_flight),
                "hidden": percent(own.hidden),
                "sent per step": f"{own.sent_bytes / 1024:.1f} KiB",
            }
        if idle:
            rows[-1]["bubble"] = percent(idle[rank])
    link = trace.about["config"].get("link")
    said = [
        f"{trace.about['step']}, {ranks_of(trace)}{f', --link {link}' if link else ''}, steps {steps[0]} to {steps[-1]}:"
    ]
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    said += ["", table(lines, numbers_right=True), ""]
    if len(steps) > 1:
        said += [
            f"rank {i}, step by step: {spread(rank, steps)}" for i, rank in enumerate(trace.ranks)
        ]
    for rank, own in enumerate(accounts):
        longest = sorted(own.waited_for.items(), key=lambda item: -item[1])[:3]
        if longest:
            said.append(
                f"rank {rank} waits, per step: "
                + ", ".join(f"{us / 1000:.2f} ms for {what}" for what, us in longest)
            )
    if dropped := sum(trace.about["dropped_events"]):
        said.append(
            f"{dropped} events did not fit into the trace, so the end is missing: trace fewer steps"
        )
    if error := max(trace.about["clock_error_us"]):
        said.append(f"clocks of different machines are aligned to {error:.0f} us")
    return said


def length_us(trace):
    """The length of the step that is drawn if none is named."""
    if not trace.ranks[0].named("step"):
        raise ValueError("--beside: that trace has no step")
    begin, end = bounds(trace, median_step(trace))
    return end - begin


# ---- traces of known content -------------------------------------------------------------------------------------------


def made_trace(slices):
    """Two ranks have the same of them: (begin, end, name, args) in microseconds, by category."""
    events = [
        {
            "ph": "X",
            "pid": pid,
            "tid": 1 if category != "operation" else 2,
            "ts": begin,
            "dur": round(end - begin, 3),
            "cat": category,
            "name": name,
            "args": args,
        }
        for pid in (1, 2)
        for category, of in slices.items()
        for begin, end, name, args in of
    ]
    about = {
        "step": "step4",
        "world_size": 2,
        "dropped_events": [0, 0],
        "clock_error_us": [0.0, 0.0],
        "config": {},
    }
    return {"otherData": about, "traceEvents": events}


def made_messages():
    """Two messages. In a step from 100 to 200 us, a message leaves rank 0 at 110 and arrives at
    130; another leaves at 140 and arrives at 170. Rank 0 learns of both at 190. Rank 1 has begun to
    receive both at 105. What leaves at 190 arrives nowhere in the trace."""
    content = made_trace({"span": [(100, 200, "step", {"step": 1})]})
    message = {"label": "", "group": "world", "from": 0, "to": 1, "tag": 0, "sent_bytes": 8}

    def add(pid, category, kind, begin, end, number):
        args = {**message, "kind": kind, "number": number}
        event = {"ph": "X", "pid": pid, "tid": 2, "ts": begin, "dur": end - begin}
        content["traceEvents"].append({**event, "cat": category, "name": kind, "args": args})

    for number, begin in enumerate((110, 140)):
        add(1, "operation", "send", begin, 190, number)
    add(1, "wait", "send", 160, 190, 1)
    add(1, "operation", "send", 190, 190, 2)
    add(2, "operation", "recv", 105, 130, 0)
    add(2, "operation", "recv", 105, 170, 1)
    add(2, "wait", "recv", 115, 130, 0)
    return content


def self_test():
    from stand_ins import refusal

    bucket = {"kind": "all_reduce", "label": "bucket 3", "sent_bytes": 2048, "bytes": 2048}
    steps = [
        (0, 50, "step", {"step": 1}),
        (100, 200, "step", {"step": 2}),
        (110, 140, "forward", {"chunk": 0, "microbatch": 0}),
        (140, 140.6, "backward", {"chunk": 0, "microbatch": 0}),
        (140.3, 140.6, "block2", {}),
    ]
    held = {"ph": "C", "pid": 1, "ts": 120, "name": "memory", "args": {"gradients": 2.5e6}}
    content = made_trace(
        {
            "span": steps,
            "wait": [(150, 170, "wait", bucket)],
            "operation": [(130, 170, "all_reduce: bucket 3", bucket)],
        }
    )
    content["traceEvents"].append(held)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        parts = [
            [event for event in content["traceEvents"] if event["pid"] == pid] for pid in (1, 2)
        ]
        content["otherData"]["num_events"] = [len(parts[0]), 0]
        path.write_text(json.dumps({**content, "traceEvents": parts[0]}))
        Path(f"{path}.rank1").write_text(json.dumps({**content, "traceEvents": parts[1]}))
        trace = read_trace(path)
        own = account(trace.ranks[0], measured_steps(trace))
        found = (
            own.step_us,
            own.waiting,
            own.in_flight,
            own.hidden,
            own.sent_bytes,
            own.waited_for,
            bubbles(trace, [2]),
        )
        assert found == (100, 0.2, 0.4, 0.5, 2048, {"all_reduce (bucket)": 20}, [0, 0]), found
        drawing = draw(trace, 2)
        wanted = "rank 1, forward, bucket 3, wait, 2.5 MB, #ee6677, rank 0: step 0.1 ms, hidden 50.0% of it"
        lacking = [text for text in wanted.split(", ") if text not in drawing]
        assert not lacking, f"the drawing lacks {lacking}"
        assert drawing.count('class="other"') == 1, (
            "a layer that ends with its backward is drawn as other work"
        )  # once: in the legend
        forward = re.compile(r'width="([\d.]+)" height="38" class="forward"')
        drawings = [draw(trace, 2, factor * length_us(trace)) for factor in (0, 1, 2)]
        whole, same, half = (float(forward.search(drawing)[1]) for drawing in drawings)
        assert whole == same and abs(whole - 2 * half) < 0.2, (whole, same, half)
        del content["otherData"]["num_events"]
        content["otherData"]["step"] = "step7_zero3"
        bucket["label"] = "bucket 0"
        path.write_text(json.dumps(content))
        drawing = draw(read_trace(path), 2)
        assert (
            'class="gradients"' in drawing and ">block2<" in drawing and "bucket" not in drawing
        ), "a unit's bucket has not its name"
        third = trace.ranks[0].spans[1]._replace(begin=210, end=290, args={"step": 3})
        found = spread(trace.ranks[0]._replace(spans=[*trace.ranks[0].spans, third]), [2, 3])
        wanted = "waiting 0.0% to 20.0%, in flight 0.0% to 40.0%, hidden 50.0% to 50.0%"
        assert found == wanted, found
        chunks = [
            (0, 400, "step", {"step": 1}),
            (0, 200, "forward", {"chunk": 0, "microbatch": 3}),
            (200, 300, "forward", {"chunk": 2, "microbatch": 3}),
        ]
        path.write_text(json.dumps(made_trace({"span": chunks})))
        trace = read_trace(path)
        found = draw(trace, 1), summary(trace)[2].splitlines()[0]
        wanted = ">3a<", ">3b<", ">rank 1<", "#77aadd", "bubble: 0.0%", "later chunks"
        lacking = [text for text in wanted if text not in found[0]]
        assert not lacking, f"a schedule's drawing lacks {lacking}"
        assert found[0].count('fill-opacity="0.75"') == 2 + 1 and ">in flight<" not in found[0]
        assert found[1] == "| rank | ms per step | bubble |", found[1]
        path.write_text(json.dumps(made_messages()))
        trace = read_trace(path)
        found = [
            (own.in_flight, own.hidden) for own in (account(rank, [1]) for rank in trace.ranks)
        ]
        assert found == [(0.5, 0.8), (0.5, 0.7)], f"{found} of a message's two ends"
        for text in (
            "",
            "[]",
            "[" * 100_000,
            '{"otherData": {}}',
            json.dumps(content).replace('"span"', '"else"'),
        ):
            path.write_text(text)
            assert refusal(ValueError, read_trace, path), f"read {text[:40]!r} as a trace"
    print("self-test: the summary and the drawing are right")


def main():
    parser = argparse.ArgumentParser(
        prog="./ladder trace",
        description="Says what each rank of a traced run did with its time, and draws a step.",
        epilog="The same file opens in ui.perfetto.dev and chrome://tracing.",
    )
    parser.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="what --trace has written"
    )
    parser.add_argument(
        "--step",
        type=int,
        metavar="N",
        help="the optimizer step to draw; default: the one of median length",
    )
    parser.add_argument("--svg", type=new_file, metavar="OUT", help="a new file for the drawing")
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="OTHER",
        help="another trace: the drawing's axis is as long as the longer of the two",
    )
    parser.add_argument("--self-test", action=SelfTest, const=self_test, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.file is None:
        parser.error("a file is needed: ./ladder trace FILE")
    if arguments.step is not None and not arguments.svg:
        parser.error(f"--step {arguments.step} says what to draw: name a file with --svg, too")
    if arguments.beside and not arguments.svg:
        parser.error(f"--beside {arguments.beside} says how to draw: name a file with --svg, too")
    try:
        trace = read_trace(arguments.file)
        said = summary(trace)
        least_us = length_us(read_trace(arguments.beside)) if arguments.beside else 0
    except OSError as error:
        sys.exit(f"trace: {error.filename}: {error.strerror}")
    except ValueError as error:
        sys.exit(f"trace: {error}")
    except (LookupError, TypeError, ArithmeticError) as error:
        sys.exit(f"trace: {arguments.file}: is damaged: {error!r}")
    print("\n".join(said))
    if arguments.svg:
        if not trace.ranks[0].named("step"):
            sys.exit(f"trace: {arguments.file}: there is no step to draw")
        number = median_step(trace) if arguments.step is None else arguments.step
        if any(rank.step(number) is None for rank in trace.ranks):
            parser.error(f"--step {number}: the trace has no such step")
        write_or_fail(arguments.svg, draw(trace, number, least_us))
        print(f"wrote {arguments.svg}: step {number}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
