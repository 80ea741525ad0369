"""What --trace has written, and what each rank did with its time. Standard library only."""

import json
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

COMPUTING = ("forward", "backward", "dgrad", "wgrad")


# ---- what a trace holds ------------------------------------------------------------------------------------------------


class Slice(NamedTuple):
    """A range of time on a lane of a rank, in microseconds."""

    begin: float
    end: float
    name: str
    args: dict
    lane: int


class Rank(NamedTuple):
    spans: list
    waits: list
    operations: list
    memory: list  # (time, bytes by category): what is held from then on

    def named(self, *names):
        return [span for span in self.spans if span.name in names]

    def step(self, number):
        """The span of an optimizer step; None if it was not traced."""
        return next((span for span in self.named("step") if span.args.get("step") == number), None)


class Trace(NamedTuple):
    about: dict
    ranks: list
    messages: list  # (rank and lane of the send, its begin, rank and lane of the recv, its end)


def read_trace(path):
    """Raises ValueError with the path if the file is not a trace of ours."""
    try:
        content = json.loads(Path(path).read_text())
        about, events = content["otherData"], content["traceEvents"]
        for rank, count in enumerate(
            about.get("num_events", [])
        ):  # a run that failed left each rank's in a file of its own
            if count == 0 and (own := Path(f"{path}.rank{rank}")).exists():
                events += json.loads(own.read_text())["traceEvents"]
        ranks = [Rank([], [], [], []) for _ in range(about["world_size"])]
        begun, ended = {}, {}
        for event in events:
            if event["ph"] in "sf":
                (begun if event["ph"] == "s" else ended)[event["id"]] = event
            rank = ranks[event["pid"] - 1]
            if event["ph"] == "C":
                rank.memory.append((event["ts"], event["args"]))
            if event["ph"] != "X" or event["cat"] == "arrival":  # where an arrow ends
                continue
            slices = {"span": rank.spans, "wait": rank.waits, "operation": rank.operations}[
                event["cat"]
            ]
            end = round(
                event["ts"] + event["dur"], 3
            )  # whole nanoseconds, so that parts end with the whole
            slices.append(Slice(event["ts"], end, event["name"], event["args"], event["tid"]))
        cut_messages(ranks)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not a file that --trace has written: {error!r}") from None
    messages = [(begun[key], ended[key]) for key in begun if key in ended]
    return Trace(about, ranks, messages)


def cut_messages(ranks):
    """A message is in flight from the begin of its send until its recv is done. A rank that waits
    for its send later learns nothing new, and one that waits for its recv before that is not
    receiving yet."""
    ends = defaultdict(dict)
    for rank in ranks:
        for place, one in enumerate(rank.operations):
            if "from" in one.args:
                of = tuple(one.args[name] for name in ("group", "from", "to", "tag", "number"))
                ends[of][one.args["kind"]] = (rank.operations, place)
    for both in ends.values():
        if both.keys() == {"send", "recv"}:
            (sends, i), (recvs, j) = both["send"], both["recv"]
            send, recv = sends[i], recvs[j]
            sends[i] = send._replace(end=max(send.begin, min(send.end, recv.end)))
            recvs[j] = recv._replace(begin=min(recv.end, max(recv.begin, send.begin)))


# ---- what ranks did with their time ------------------------------------------------------------------------------------


def merged(slices, begin, end):
    """What these slices cover between begin and end: ranges that do not touch."""
    ranges = []
    for a, b in sorted((max(s.begin, begin), min(s.end, end)) for s in slices):
        if a >= b:
            continue
        if ranges and a <= ranges[-1][1]:
            ranges[-1][1] = max(ranges[-1][1], b)
        else:
            ranges.append([a, b])
    return ranges


def length(ranges):
    return sum(b - a for a, b in ranges)


def bubbles(trace, steps):
    """For each rank the share of idle time; None for what is no pipeline, whose computations belong
    to a chunk."""
    idle, total = [0] * len(trace.ranks), 0
    for number in steps:
        own = []
        for rank in trace.ranks:
            step = rank.step(number)
            own.append(
                [
                    span
                    for span in rank.named(*COMPUTING)
                    if "chunk" in span.args and step.begin <= span.begin < step.end
                ]
            )
        if not all(own):
            return None
        begin, end = (
            min(span.begin for spans in own for span in spans),
            max(span.end for spans in own for span in spans),
        )
        total += end - begin
        for rank, spans in enumerate(own):
            idle[rank] += end - begin - length(merged(spans, begin, end))
    return [value / total for value in idle]


def is_schedule(trace):
    """Whether it only says when each chunk of a pipeline computes: --show-schedule has written it,
    or a benchmark."""
    return all(
        not rank.operations and all("chunk" in s.args or s.name == "step" for s in rank.spans)
        for rank in trace.ranks
    )


def measured_steps(trace):
    """The numbers of the steps that all ranks have, without the first one of several."""
    numbers = sorted(
        set.intersection(
            *({span.args["step"] for span in rank.named("step")} for rank in trace.ranks)
        )
    )
    return numbers[1:] if len(numbers) > 1 else numbers


class Account(NamedTuple):
    """The account of one rank, over some steps."""

    step_us: float
    waiting: float  # shares of the time
    in_flight: float
    hidden: float | None  # None: nothing was in flight
    sent_bytes: float  # per step
    waited_for: dict  # microseconds per step, by what


def account(rank, steps):
    spans = [rank.step(number) for number in steps]
    begin, end = spans[0].begin, spans[-1].end
    waiting, in_flight = merged(rank.waits, begin, end), merged(rank.operations, begin, end)
    sent = sum(o.args["sent_bytes"] for o in rank.operations if begin <= o.begin < end)
    waited_for = defaultdict(float)
    for wait in rank.waits:
        if begin <= wait.begin < end:
            waited_for[
                f"{wait.args['kind']} ({wait.args['label'].rstrip(' 0123456789') or 'no label'})"
            ] += wait.end - wait.begin
    total, flight = end - begin, length(in_flight)
    both = length(waiting) + flight - length(merged([*rank.waits, *rank.operations], begin, end))
    return Account(
        step_us=total / len(steps),
        waiting=length(waiting) / total,
        in_flight=flight / total,
        hidden=1 - both / flight if flight else None,
        sent_bytes=sent / len(steps),
        waited_for={what: us / len(steps) for what, us in waited_for.items()},
    )


def ranks_of(trace):
    return f"{len(trace.ranks)} rank{'s' if len(trace.ranks) > 1 else ''}"
