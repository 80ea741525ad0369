"""A trace as a script for the viewer, and what each rank did with its time, as tables.

The script has the trace's own numbers and no others; read_trace.py says what they mean."""

import json
import re
from html import escape

from draw_trace import CLASSES, MEMORY, NETWORK_ROWS, bounds, names_of, units_of
from read_trace import account, bubbles

SPAN, WAIT, OPERATION = range(3)  # what a slice is
KINDS = ["forward", "backward", "wgrad", "step", "other", "idle", "wire", "gradients"]
WORDS = ["forward", "backward", "weight half of backward", "optimizer step", "other work", "waiting", "in flight", "gradients in flight"]  # fmt: skip
NUMBER = re.compile(r"[–\d]")  # how the cells of a column of numbers begin


class Interned(dict):
    """Values, numbered in the order of their first use."""

    def number(self, value):
        return self.setdefault(value, len(self))


def nanoseconds(us):
    return round(1000 * us)


def nested(spans):
    """(span, how many others it is within, the class of the nearest of them that has one)."""
    around = []  # (span, its kind)
    for span in sorted(spans, key=lambda span: (span.begin, -span.end)):
        while around and around[-1][0].end <= span.begin:
            around.pop()
        own = CLASSES.get(span.name)
        is_layer = span.name.startswith("block") or span.name in ("embedding", "head")
        kind = own or (around[-1][1] if around and is_layer else "other")
        yield span, len(around), kind
        around.append((span, kind))


def labels_of(one, what, units, is_numbered):
    """What is written on a slice, if it fits: long and short. Where there are several microbatches, their numbers."""
    if what == SPAN and is_numbered and "microbatch" in one.args:
        return f"{one.name} {one.args['microbatch']}", str(one.args["microbatch"])
    if what == SPAN:
        return one.name, "W" if one.name == "wgrad" else one.name.removeprefix("block")
    long, short = names_of(one, units)
    long = long or one.args["kind"]
    return (f"wait for {long}", "wait") if what == WAIT else (long, short)


def operation_key(args):
    """The same for all slices, on any rank, of an operation and of the waits for it."""
    if "from" in args:
        return tuple(args[name] for name in ("group", "from", "to", "tag", "number"))
    return args["kind"], args["group"], args["number"]


def slices_of(trace, units):
    """(rank, what, row, kind, slice), of all but the optimizer steps."""
    for number, rank in enumerate(trace.ranks):
        for span, depth, kind in nested(s for s in rank.spans if s.name != "step"):
            yield number, SPAN, depth, kind, span
        lanes = sorted({operation.lane for operation in rank.operations})
        for wait in rank.waits:
            yield number, WAIT, 0, "idle", wait
        for one in rank.operations:
            is_gradient = units and one.args["label"].startswith("bucket ")
            row = lanes.index(one.lane) % NETWORK_ROWS
            yield number, OPERATION, row, "gradients" if is_gradient else "wire", one


def memory_of(rank):
    """[time, bytes of each category…], where they change."""
    rows = []
    for time, held in rank.memory:
        row = [held.get(category, 0) for category in MEMORY]
        if not rows or rows[-1][1:] != row:
            rows.append([nanoseconds(time), *row])
    return rows


def data_of(trace, number, length_us):
    """For Ladder.traces. `number` is the step that is shown first, on an axis of this length."""
    units, names, args, pairs = units_of(trace), Interned(), Interned(), Interned()
    is_numbered = any(s.args.get("microbatch", 0) > 0 for rank in trace.ranks for s in rank.spans)
    slices = [
        [
            rank,
            what,
            row,
            KINDS.index(kind),
            nanoseconds(one.begin),
            nanoseconds(one.end) - nanoseconds(one.begin),
            names.number((one.name, *labels_of(one, what, units, is_numbered))),
            args.number(json.dumps(one.args)),
            -1 if what == SPAN else pairs.number(operation_key(one.args)),
        ]
        for rank, what, row, kind, one in slices_of(trace, units)
    ]
    steps = [span.args["step"] for span in trace.ranks[0].named("step")]
    return {
        "step": trace.about["step"],
        "ranks": len(trace.ranks),
        "steps": [
            [n, *map(nanoseconds, bounds(trace, n))]
            for n in steps
            if all(rank.step(n) for rank in trace.ranks)
        ],  # fmt: skip
        "shown": number,
        "length": nanoseconds(length_us),
        "names": list(names),
        "args": [json.loads(one) for one in args],
        "slices": slices,
        "memory": [memory_of(rank) for rank in trace.ranks],
        "categories": [[name, color] for name, color in MEMORY.items()],
        "kinds": [[kind, words] for kind, words in zip(KINDS, WORDS, strict=True)],
    }


def script_of(name, data):
    """The lines of a file: one for each list that is long."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("],[", "],\n[")
    return f"window.Ladder = window.Ladder || {{}};\n(Ladder.traces = Ladder.traces || {{}})[{json.dumps(name)}] =\n{text};\n"


# ---- tables, for those who do not see the drawing ----------------------------------------------------------------------


def table(caption, head, rows):
    """HTML without an empty line, so that Markdown takes it as one block. The first cells name the rows."""
    kinds = ["" if all(NUMBER.match(cell) for cell in column) else ' class="word"' for column in zip(*rows)]  # fmt: skip
    cells = "".join(f'<th scope="col"{kind}>{escape(cell)}</th>' for cell, kind in zip(head, kinds))
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row[1:], kinds[1:]))
        + "</tr>\n"
        for row in rows
    )
    return (
        '<div class="ladder-scroll" tabindex="0" role="region" aria-label="Table">\n'
        f'<table class="docutils ladder-table"><caption>{escape(caption)}</caption>\n'
        f"<thead><tr>{cells}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )


def ms(us):
    return f"{us / 1000:.2f}"


def percent(share):
    return "–" if share is None else f"{100 * share:.1f}%"


def tables_of(trace, number):
    """What each rank did in this step, and what it waited for."""
    accounts, idle = [account(rank, [number]) for rank in trace.ranks], bubbles(trace, [number])
    head = [
        "rank",
        "step, ms",
        "computing, ms",
        "waiting, ms",
        "in flight, ms",
        "hidden",
        "sent, bytes",
    ]
    rows = [
        [
            f"rank {rank}",
            ms(own.step_us),
            ms((1 - own.waiting) * own.step_us),
            ms(own.waiting * own.step_us),
            ms(own.in_flight * own.step_us),
            percent(own.hidden),
            f"{own.sent_bytes:,.0f}",
            *([percent(idle[rank])] if idle else []),
        ]
        for rank, own in enumerate(accounts)
    ]
    what = sorted({name for own in accounts for name in own.waited_for})
    waits = [[name, *(ms(own.waited_for.get(name, 0)) for own in accounts)] for name in what]
    ranks = [f"rank {rank}" for rank in range(len(accounts))]
    return table(f"Step {number}", [*head, *(["bubble"] if idle else [])], rows) + (
        table("What the ranks waited for, ms", ["operation (label)", *ranks], waits) if what else ""
    )
