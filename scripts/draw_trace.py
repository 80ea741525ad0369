"""Draws one optimizer step of a trace as SVG, in the style of the lessons' figures. Standard
library only."""

from html import escape

from launcher.figures import page, swatches
from read_trace import account, bubbles, is_schedule, ranks_of


WIDTH, LEFT, RIGHT = 1000, 130, 965  # of the picture, and of the time line in it
ROW, GAP, MEMORY_ROW = 38, 8, 72
NETWORK_ROWS = 6  # drawn at most; what needs more is drawn over them
LETTER = 9.6  # about the width of a letter
STYLE = """\
    text { font-family: "Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif; fill: #24292f; font-size: 17.5px; }
    .small { fill: #57606a; }
    .middle { text-anchor: middle; }
    .strong { font-weight: bold; font-size: 18.5px; }
    .onblue { fill: #ffffff; }
    .forward, .backward, .wgrad { stroke: #fbfaf7; stroke-width: 1; }
    .forward { fill: #3b78b5; }
    .backward { fill: #2a5a8c; }
    .wgrad { fill: #5a8fc4; }
    .step { fill: #e6f4ea; stroke: #1a7f37; stroke-width: 1.5; }
    .other { fill: #d8dee4; }
    .idle { fill: #fbfaf7; stroke: #8c959f; stroke-width: 1.5; stroke-dasharray: 5 4; }
    .wire { fill: #fff3dc; stroke: #b4690e; stroke-width: 1; }
    .gradients { fill: #fbdfe4; stroke: #b4690e; stroke-width: 1; }
    .message { stroke: #b4690e; stroke-width: 1.5; fill: none; }
    .axis { stroke: #57606a; stroke-width: 1.5; fill: none; }
    .wireword { fill: #8a4f08; }
    .rightword { fill: #1a7f37; }"""
SCHEDULE_STYLE = """
    .forward { fill: #77aadd; }
    .backward { fill: #ee8866; }
    .wgrad { fill: #eedd88; }
    .onblue { fill: #24292f; }"""
ABOUT = """Drawn by ./ladder trace from a run: for each rank what it computed and waited for, and below it what was
    in flight and what it held."""
MEMORY = {
    "optimizer state": "#ccbb44",
    "parameters": "#4477aa",
    "gradients": "#ee6677",
    "communication": "#66ccee",
    "other tensors": "#999999",
    "activations": "#c9c5bb",
}  # from below; colours as in docs/memory_per_step.svg
CLASSES = {
    "forward": "forward",
    "backward": "backward",
    "dgrad": "backward",
    "wgrad": "wgrad",
    "optimizer step": "step",
    "outer step": "step",
}
WORDS = {
    "forward": "onblue",
    "backward": "onblue",
    "wgrad": "onblue",
    "step": "rightword",
    "other": "small",
    "wire": "wireword",
    "gradients": "wireword",
    "idle": "small",
}


def median_step(trace):
    """The number of the step, without the first of several, whose length on rank 0 is in the
    middle."""
    steps = sorted(trace.ranks[0].named("step"), key=lambda span: span.args["step"])
    by_length = sorted(steps[1:] or steps, key=lambda span: span.end - span.begin)
    return by_length[(len(by_length) - 1) // 2].args["step"]


class Drawing:
    def __init__(self, begin, end, length):
        """The axis is so long, and what is drawn ends at `end`."""
        self.begin, self.scale = begin, (RIGHT - LEFT) / length
        self.right = LEFT + (end - begin) * self.scale
        self.shapes = []

    def x(self, time):
        return min(max(LEFT + (time - self.begin) * self.scale, LEFT), self.right)

    def widest_gap(self, one, holes):
        """The widest part of the slice that these slices leave free, from left to right."""
        edges = [self.x(one.begin)]
        for hole in sorted(holes, key=lambda hole: hole.begin):
            if one.begin <= hole.begin and hole.end <= one.end:
                edges += [self.x(hole.begin), self.x(hole.end)]
        edges.append(self.x(one.end))
        return max(zip(edges[::2], edges[1::2]), key=lambda gap: gap[1] - gap[0])

    def box(self, one, y, height, kind, *names, holes=(), shade=0):
        """A box with the first of these names that fits between the holes; it may be paler."""
        left, right = self.x(one.begin), self.x(one.end)
        if right - left < 0.3:
            return
        pale = f' fill-opacity="{1 - shade:.2f}"' if shade else ""
        self.shapes.append(
            f'<rect x="{left:.1f}" y="{y}" width="{right - left:.1f}" height="{height}" class="{kind}"{pale}/>'
        )
        left, right = self.widest_gap(one, holes)
        name = next((name for name in names if len(name) * LETTER + 4 <= right - left), None)
        if name:
            middle, base = (left + right) / 2, y + height / 2 + 6
            self.shapes.append(
                f'<text x="{middle:.1f}" y="{base:.1f}" class="middle {WORDS[kind]}">{escape(name)}</text>'
            )

    def text(self, x, y, words, kind="small"):
        self.shapes.append(f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>')


def layers_of(spans):
    """The spans whose names are those of units."""
    return [s for s in spans if s.name.startswith("block") or s.name in ("embedding", "head")]


def units_of(trace):
    """Names in the order of forward, of what the ZeRO steps gather and reduce; elsewhere a bucket
    is no unit."""
    is_zero = trace.about["step"].startswith(("step5", "step6", "step7"))
    return (
        list(dict.fromkeys(s.name for s in sorted(layers_of(trace.ranks[0].spans))))
        if is_zero
        else []
    )


def names_of(operation, units):
    """Long and short; that of a unit, if it carries one. The first bucket is the last unit."""
    label = operation.args["label"]
    what, _, number = label.rpartition(" ")
    if what in ("gather", "unshard", "bucket") and int(number) < len(units):
        name = units[-1 - int(number) if what == "bucket" else int(number)]
        return name, name.removeprefix("block")
    return label, number


def parts_of(span, spans):
    """The layers of a forward or backward; without any, the span itself."""
    layers = layers_of(
        s for s in spans if s is not span and span.begin <= s.begin and s.end <= span.end
    )
    return (
        layers
        if CLASSES.get(span.name) in ("forward", "backward") and "chunk" not in span.args
        else []
    )


def draw_computing(drawing, rank, begin, end, y, units):
    spans = [s for s in rank.spans if begin <= s.begin and s.end <= end and s.name != "step"]
    top = [
        s
        for s in spans
        if not any(o is not s and o.begin <= s.begin and s.end <= o.end for o in spans)
    ]
    chunks = sorted({span.args["chunk"] for span in top if "chunk" in span.args})
    for span in top:
        kind, names, shade = CLASSES.get(span.name, "other"), [span.name], 0
        if "chunk" in span.args:  # of several, letters and shades tell which
            nth, number = chunks.index(span.args["chunk"]), str(span.args["microbatch"])
            names = [f"{number}{chr(97 + nth % 26)}", number] if chunks[1:] else [number]
            shade = 0.5 * nth / len(chunks)
        halves = [  # of a backward, those that nobody waits for
            s
            for s in spans
            if s.name == "wgrad" and s is not span and span.begin <= s.begin < span.end
        ]
        holes = [*halves, *rank.waits] if halves else []
        drawing.box(span, y, ROW, kind, *names, shade=shade, holes=holes)
        for layer in parts_of(span, spans):
            drawing.box(
                layer, y, ROW, kind, layer.name, layer.name.removeprefix("block"), holes=rank.waits
            )
        for half in halves:
            drawing.box(half, y, ROW, "wgrad", "W")
    for wait in rank.waits:
        if begin <= wait.begin < end:
            drawing.box(wait, y, ROW, "idle", f"wait for {names_of(wait, units)[0]}", "wait")


def draw_network(drawing, rank, begin, end, y, units):
    """Returns where each lane is, and how many rows there are."""
    operations = [o for o in rank.operations if begin <= o.begin < end]
    lanes = {lane: index for index, lane in enumerate(sorted({o.lane for o in operations}))}
    rows = max(1, min(len(lanes), NETWORK_ROWS))
    places = {lane: y + index % rows * (ROW // 2 + 4) for lane, index in lanes.items()}
    for operation in operations:
        kind = "gradients" if units and operation.args["label"].startswith("bucket ") else "wire"
        drawing.box(
            operation, places[operation.lane], ROW // 2 + 2, kind, *names_of(operation, units)
        )
    return places, rows


def draw_messages(drawing, trace, begin, end, places):
    for send, recv in trace.messages:
        if not begin <= send["ts"] < end:
            continue
        y1, y2 = (
            places[event["pid"] - 1].get(event["tid"], 0) + ROW // 4 for event in (send, recv)
        )
        path = f"M{drawing.x(send['ts']):.1f} {y1}L{drawing.x(recv['ts']):.1f} {y2}"
        drawing.shapes.append(f'<path d="{path}" class="message" marker-end="url(#tip)"/>')


def most_held(rank, begin, end):
    return max((sum(held.values()) for time, held in rank.memory if begin <= time < end), default=0)


def draw_memory(drawing, rank, begin, end, y, most):
    """What is held, by category, one on the other; a row is as high as the most that any rank
    holds."""
    first = max((i for i, (time, _) in enumerate(rank.memory) if time <= begin), default=0)
    held = [
        *{round(drawing.x(time)): held for time, held in rank.memory[first:] if time < end}.items()
    ]  # one for each pixel
    below = [y + MEMORY_ROW] * len(held)
    for category, colour in MEMORY.items():
        above = [
            base - of.get(category, 0) * MEMORY_ROW / most for base, (_, of) in zip(below, held)
        ]
        path = f"M{LEFT} {below[0]:.1f}" + "".join(
            f"H{x}V{top:.1f}" for (x, _), top in zip(held, above)
        )
        path += f"H{drawing.right:.0f}"
        path += "".join(f"V{base:.1f}H{x}" for (x, _), base in reversed([*zip(held, below)])) + "z"
        if above != below:
            drawing.shapes.append(f'<path d="{path}" fill="{colour}"/>')
        below = above


def round_step(length):
    """1, 2 or 5 times a power of ten, of which the time line has four to ten."""
    power = 10 ** (len(str(int(length))) - 1)
    return next(
        step
        for step in (power // 10 or 1, power // 5 or 1, power // 2 or 1, power)
        if length / step <= 10
    )


def computing_kinds(trace):
    """The classes of what was computed, and their names."""
    names = {span.name for rank in trace.ranks for span in rank.spans}
    kinds = {}
    for name, kind in CLASSES.items():
        if name in names:
            kinds.setdefault(kind, name)
    return kinds


def draw_legend(drawing, trace, y, units):
    """Returns how high it is."""
    kinds = computing_kinds(trace)
    kinds |= {"other": "other work", "idle": "waiting", "wire": "in flight"} | (
        {"gradients": "gradients in flight"} if units else {}
    )
    held = {
        category
        for rank in trace.ranks
        for _, held in rank.memory
        for category, bytes in held.items()
        if bytes
    }
    rows = [
        [(f'class="{kind}"', name, False) for kind, name in kinds.items()],
        [(f'fill="{colour}"', name, False) for name, colour in MEMORY.items() if name in held],
    ]
    shapes, height = swatches(rows, LEFT, WIDTH, y, LETTER)
    drawing.shapes += shapes
    return height


def draw_axis(drawing, y, length):
    ticks, step = [], round_step(length / 1000)
    for ms in range(0, int(length / 1000) + 1, step):
        x = LEFT + 1000 * ms * drawing.scale
        ticks.append(f"M{x:.1f} {y - 14}v8")
        drawing.text(f"{x:.1f}", y + 14, f"{ms} ms" if ms == 0 else str(ms), "small middle")
    drawing.shapes.append(f'<path d="M{LEFT} {y - 14}H{RIGHT}{"".join(ticks)}" class="axis"/>')


def bounds(trace, number):
    """When the step with this number begins and ends, on all ranks together."""
    spans = [rank.step(number) for rank in trace.ranks]
    return min(span.begin for span in spans), max(span.end for span in spans)


def described(trace, number):
    """The numbers of the drawing, for those who cannot see it and for scripts/check_figures."""
    parts = []
    for index, rank in enumerate(trace.ranks):
        own = account(rank, [number])
        shares = {"step": 1, "computing": 1 - own.waiting, "waiting": own.waiting}
        shares["in flight"] = own.in_flight
        said = [f"{what} {part * own.step_us / 1000:.1f} ms" for what, part in shares.items()]
        said += [] if own.hidden is None else [f"hidden {100 * own.hidden:.1f}% of it"]
        parts.append(f"rank {index}: {', '.join(said)}")
    return f"{ABOUT} {'; '.join(parts)}"


def draw_schedule(trace, number, least_us):
    """What each rank computes, and no more."""
    begin, end = bounds(trace, number)
    drawing, y = Drawing(begin, end, max(end - begin, least_us)), 58
    for index, rank in enumerate(trace.ranks):
        draw_computing(drawing, rank, begin, end, y, units=[])
        drawing.text(28, y + 24, f"rank {index}")
        y += ROW + GAP
    draw_axis(drawing, y + 16, max(end - begin, least_us))
    looks = [(f'class="{kind}"', name, False) for kind, name in computing_kinds(trace).items()]
    if any("fill-opacity" in shape for shape in drawing.shapes):
        looks.append(('class="forward" fill-opacity="0.75"', "paler, b, c, …: later chunks", False))
    legend, height = swatches([looks], LEFT, WIDTH, y + 48, LETTER)
    idle = bubbles(trace, [number]) or [0]
    title = f"{trace.about['step']}; bubble: {100 * sum(idle) / len(idle):.1f}%"
    drawing.text(28, 34, title, "strong")
    height += y + 54
    size, shares = f'width="{WIDTH}" height="{height}" ', [f"{100 * share:.1f}%" for share in idle]
    about = f"When each rank computes which microbatch. Idle: {', '.join(shares)}"
    shapes = [*drawing.shapes, *legend]
    return page(WIDTH, height, escape(title), shapes, STYLE + SCHEDULE_STYLE, about, size)


def draw(trace, number, least_us=0):
    """The step with this number, on all ranks. Its axis is at least so long."""
    if is_schedule(trace):
        return draw_schedule(trace, number, least_us)
    begin, end = bounds(trace, number)
    length = max(end - begin, least_us)
    drawing, y, places, units = Drawing(begin, end, length), 74, [], units_of(trace)
    most = max(most_held(rank, begin, end) for rank in trace.ranks)
    for index, rank in enumerate(trace.ranks):
        drawing.text(28, y, f"rank {index}", "strong")
        drawing.text(28, y + 36, "computing")
        draw_computing(drawing, rank, begin, end, y + 12, units)
        drawing.text(28, y + 12 + ROW + GAP + 18, "in flight")
        of_rank, rows = draw_network(drawing, rank, begin, end, y + 12 + ROW + GAP, units)
        places.append(of_rank)
        y += 12 + ROW + GAP + rows * (ROW // 2 + 4) + 34
        if own := most_held(rank, begin, end):
            draw_memory(drawing, rank, begin, end, y - 30, most)
            drawing.text(28, y, "memory")
            drawing.text(28, y + 22, f"≤ {own / 1e6:.1f} MB")
            y += MEMORY_ROW + 8
    draw_messages(drawing, trace, begin, end, places)
    draw_axis(drawing, y, length)
    height, link = (
        y + 38 + draw_legend(drawing, trace, y + 32, units),
        trace.about["config"].get("link"),
    )
    title = f"{trace.about['step']}, step {number}, {ranks_of(trace)}" + (
        f", link {link}" if link else ""
    )
    tip = '<path d="M0 0.8L9 5L0 9.2z" fill="#b4690e"/>'
    tip = f'<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">{tip}</marker>'
    drawing.text(28, 34, title, "strong")
    size = f'width="{WIDTH}" height="{height}" '
    shapes = [f"<defs>{tip}</defs>", *drawing.shapes]
    return page(WIDTH, height, escape(title), shapes, STYLE, described(trace, number), size)
