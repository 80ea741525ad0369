"""Charts in SVG, each with a table of the same numbers. Runs and categories differ in colour, and
in dashes, markers or hatching.

The colours are Paul Tol's bright scheme, darker on light ground. All are 360 units wide, so that
their text can be read on a phone."""

import math
from collections.abc import Callable
from html import escape
from typing import NamedTuple

from compare_runs import is_finite

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360, 210, 54, 350, 10, 178
NUM_COLOURS = 7
DASHES = ("none", "7 3", "2 3", "10 3 2 3", "4 2")
MARKERS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "M-3.5-3.5h7v7h-7z",
    "M0-4.5 4.5 3.5h-9z",
    "M0-5 5 0 0 5-5 0z",
    "M-4-4 4 4M-4 4 4-4",
    "M0-5V5M-5 0H5",
    "M0 4.5-4.5-3.5h9z",
)
HATCHES = ("", "M0 6 6 0", "M1 1h2v2h-2z", "M0 6 6 0M0 0 6 6", "M0 3H6", "M3 0V6", "M0 0 6 6")
BAR, ROW = 14, 38
LARGEST = 1e300
MAX_POINTS, MAX_ROWS = 600, 200  # of a line and of a table; longer series are thinned


def patterns() -> str:
    """What fills the bars; once in a page."""
    found = [
        f'<pattern id="p{i}" width="6" height="6" patternUnits="userSpaceOnUse" class="c{i}"><rect width="6" height="6" '
        f'fill="currentColor"/><path d="{hatch}" class="hatch"/></pattern>'
        for i, hatch in enumerate(HATCHES)
    ]
    return f'<svg width="0" height="0" class="patterns" aria-hidden="true"><defs>{"".join(found)}</defs></svg>'


# ---- tables -----------------------------------------------------------------------------------------------------------


def html_table(head: list[str], rows: list[list]) -> str:
    """The first cell of a row is its heading. A cell is text, a number, or (text, class)."""

    def cell(value, tag="td"):
        text, kind = (
            value
            if isinstance(value, tuple)
            else (value, "number" if isinstance(value, (int, float)) else "")
        )
        scope = ' scope="row"' if tag == "th" else ""
        return f"<{tag}{scope}{f' class={kind}' if kind else ''}>{escape(show(text))}</{tag}>"

    body = "".join(f"<tr>{cell(row[0], 'th')}{''.join(map(cell, row[1:]))}</tr>\n" for row in rows)
    heads = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    return f"<table><thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody></table>"


def show(value) -> str:
    """All digits: what is written here reads back to the same bits."""
    if value is None:
        return "–"
    return (
        f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else value
        if isinstance(value, str)
        else repr(value)
    )


def scrolling(label: str, table: str) -> str:
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{table}</div>'
    )


def figure(
    name: str,
    title: str,
    description: str,
    height: float,
    drawn: str,
    legend: str,
    table: str,
    attributes: str = "",
) -> str:
    """The drawing can be focused; with JavaScript, arrow keys read one that has `attributes`."""
    output = f'<output for="{name}"></output>' if attributes else ""
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg id="{name}" viewBox="0 0 {WIDTH} {height}" role="img" tabindex="0" '
        f'aria-labelledby="{name}-title {name}-text"{attributes}><title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-text">{escape(description)}</desc>\n{drawn}</svg>\n<ul class="legend">{legend}</ul>{output}'
        f"<details><summary>Table<span class=hidden>: {escape(title)}</span></summary>{scrolling(title, table)}</details></figure>\n"
    )


# ---- lines ------------------------------------------------------------------------------------------------------------


class Scale(NamedTuple):
    place: Callable[[float], float]
    ticks: Callable[[float, float], list[float]]
    starts_at_zero: bool = False


def linear_ticks(low, high):
    power = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(
        power * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (power * factor) <= 5
    )
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def step_ticks(first, last):
    """Both ends, and between them round numbers whose labels do not touch theirs."""
    if first == last:
        return [first]
    low, high = (first + share * (last - first) for share in (0.28, 0.8))
    return [
        first,
        *(int(tick) for tick in linear_ticks(first, last) if tick % 1 == 0 and low < tick < high),
        last,
    ]


def log_ticks(low, high):
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [tick for k in powers for m in (1, 2, 5) if low <= (tick := float(f"{m}e{k}")) <= high]
    coarse = [float(f"1e{k}") for k in powers if low <= float(f"1e{k}") <= high]
    if len(fine) < 2:
        return linear_ticks(low, high)
    return fine if len(fine) < 6 else coarse[:: 1 + len(coarse) // 6]


def ticks_from_zero(_, high):
    return (
        [0.0, 1.0]
        if high == 1
        else [0.0, *log_ticks(1 if high < 100 else 10 if high < 1e6 else 1000, high)]
    )


LINEAR = Scale(lambda value: value, linear_ticks)
LOGARITHMIC = Scale(math.log10, log_ticks)
FROM_ZERO = Scale(lambda value: math.log10(1 + value), ticks_from_zero, starts_at_zero=True)


class Line(NamedTuple):
    look: int
    name: str
    values: dict[int, float | None]  # by step
    spans: list[tuple[int, int]]  # of steps without a gap, over which it is drawn


def line_chart(name: str, title: str, lines: list[Line], scale: Scale = LINEAR) -> str:
    """Over steps. What is too large for arithmetic is only in the table."""
    least = 0 if scale is LOGARITHMIC else -LARGEST
    finite = [
        (
            i,
            what,
            [
                (step, value)
                for step, value in sorted(of.items())
                if is_finite(value) and least < value < LARGEST
            ],
            spans,
        )
        for i, what, of, spans in lines
    ]
    finite = [line for line in finite if line[2]]
    if not finite:
        return ""
    steps = [step for _, _, points, _ in finite for step, _ in points]
    values = [value for _, _, points, _ in finite for _, value in points]
    first, last, low, high = min(steps), max(steps), min(values), max(values)
    if scale.starts_at_zero:
        low, high = 0, max(high, 1)
    if low == high:
        low, high = low - (abs(low) * 0.1 or 1), high + (abs(high) * 0.1 or 1)
    bottom, top = scale.place(low), scale.place(high)

    def x(step):
        return LEFT + (RIGHT - LEFT) * ((step - first) / (last - first) if last > first else 0.5)

    def y(value):
        return BOTTOM - (BOTTOM - TOP) * (scale.place(value) - bottom) / (top - bottom)

    drawn = [axes(x, y, step_ticks(first, last), scale.ticks(low, high))]
    for order, (i, _, points, spans) in enumerate(finite):
        pieces = [
            [(x(step), y(value)) for step, value in thin([p for p in points if a <= p[0] <= b])]
            for a, b in spans
        ]
        widest = (
            7 if len(points) < 60 else 4
        )  # of equal lines, the wider ones show below the others
        width = 2 + (widest - 2) * (len(finite) - 1 - order) / max(1, len(finite) - 1)
        drawn.append(draw_line(i, pieces, width, order / len(finite)))
    drawn.append(f'<path d="M0 {TOP}V{BOTTOM}" class="cursor"/>')
    described = "; ".join(
        f"{what}: {points[0][1]:.6g} at step {points[0][0]}, {points[-1][1]:.6g} at step {points[-1][0]}"
        for _, what, points, _ in finite
    )
    legend = "".join(f"<li>{sample(i)}{escape(what)}</li>" for i, what, _, _ in finite)
    attributes = f' data-first="{first}" data-last="{last}" data-left="{LEFT}" data-right="{RIGHT}"'
    return figure(
        name, title, described, HEIGHT, "\n".join(drawn), legend, table_of_steps(lines), attributes
    )


def table_of_steps(lines):
    steps = sorted({step for line in lines for step in line.values})
    every = -(-len(steps) // MAX_ROWS)
    rows = [
        [step, *(line.values.get(step) for line in lines)]
        for i, step in enumerate(steps)
        if i % every == 0 or step == steps[-1]
    ]
    return html_table(
        ["step" if every == 1 else f"step (1 of {every})", *(line.name for line in lines)], rows
    )


def thin(points):
    """The lowest and the highest of as many as fall on one place."""
    size = -(-2 * len(points) // MAX_POINTS)
    groups = (
        [points[i : i + size] for i in range(0, len(points), size)]
        if len(points) > MAX_POINTS
        else []
    )
    both = [{min(group, key=lambda p: p[1]), max(group, key=lambda p: p[1])} for group in groups]
    return [point for group in both for point in sorted(group)] or points


def axes(x, y, steps, ticks):
    out = []
    for tick in ticks:
        text = f"{tick:.5g}".replace("e+", "e")
        out.append(
            f'<path d="M{LEFT} {y(tick):.1f}H{RIGHT}" class="grid"/><text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" class="end">{text}</text>'
        )
    for step in steps:
        anchor, word = (
            ("end", "")
            if step == steps[-1] and len(steps) > 1
            else ("start", "step ")
            if step == steps[0]
            else ("middle", "")
        )
        out.append(
            f'<path d="M{x(step):.1f} {BOTTOM}v4" class="tick"/><text x="{x(step):.0f}" y="{BOTTOM + 18}" class="{anchor}">{word}{step:,}</text>'
        )
    return "\n".join(out)


def draw_line(i, pieces, width, shift):
    path = "".join(
        "M" + " ".join(f"{x:.1f},{y:.1f}" for x, y in piece) for piece in pieces if piece
    )
    places = [place for piece in pieces for place in piece]
    apart, mark = max(1, len(places) // 6), MARKERS[(i + i // NUM_COLOURS) % len(MARKERS)]
    marks = "".join(
        f'<path d="{mark}" transform="translate({x:.1f} {y:.1f})"/>'
        for x, y in places[int(shift * apart) :: apart]
    )
    dashes = DASHES[i % len(DASHES)]
    return f'<g class="line c{i % NUM_COLOURS}"><path d="{path}" fill="none" stroke-width="{width:.1f}" stroke-dasharray="{dashes}"/>{marks}</g>'


def sample(i):
    """What shows a line in a legend."""
    return f'<svg viewBox="-5 0 40 12" width="40" height="12" aria-hidden="true">{draw_line(i, [[(0, 6), (15, 6), (30, 6)]], 2, 0.5)}</svg>'


# ---- bars -------------------------------------------------------------------------------------------------------------


class Bar(NamedTuple):
    label: str
    parts: dict[str, float]
    theory: dict[str, float] | None = None


def bar_chart(name: str, title: str, bars: list[Bar], shown: Callable[[float], str]) -> str:
    """Stacked. A line through a bar is the sum that theory says."""
    parts = (
        [part for part in bars[0].parts if any(bar.parts.get(part) for bar in bars)] if bars else []
    )
    if not parts:
        return ""
    most = max(max(sum(bar.parts.values()), sum((bar.theory or {}).values())) for bar in bars) or 1
    scale, drawn = (WIDTH - 12) / most, []
    for row, bar in enumerate(bars):
        at, y = 2.0, row * ROW + 20
        drawn.append(row_words(y, bar.label, shown(sum(bar.parts.values()))))
        for i, part in enumerate(parts):
            if size := bar.parts.get(part, 0) * scale:
                drawn.append(block(at, y, size, i, f"{part}: {bar.parts[part]:,}"))
                at += size
        if bar.theory is not None:
            drawn.append(
                f'<path d="M{2 + sum(bar.theory.values()) * scale:.1f} {y - 4}v{BAR + 8}" class="theory"/>'
            )
    has_theory = any(bar.theory is not None for bar in bars)
    legend = "".join(
        f'<li><svg viewBox="0 0 14 14" width="14" height="14" aria-hidden="true"><rect width="14" height="14" '
        f'fill="url(#p{i % NUM_COLOURS})"/></svg>{escape(part)}</li>'
        for i, part in enumerate(parts)
    )
    legend += (
        '<li><svg viewBox="0 0 6 14" width="6" height="14" aria-hidden="true"><path d="M3 0v14" class="theory"/></svg>theory</li>'
        * has_theory
    )
    described = "; ".join(f"{bar.label}: {shown(sum(bar.parts.values()))}" for bar in bars)
    return figure(
        name,
        title,
        described,
        len(bars) * ROW + 6,
        "\n".join(drawn),
        legend,
        table_of_bars(bars, parts, has_theory),
    )


def table_of_bars(bars, parts, has_theory):
    head, rows = [""], [[bar.label] for bar in bars]
    for part in parts:
        has_column = has_theory and any(part in (bar.theory or {}) for bar in bars)
        head += [part, f"{part}, theory"] if has_column else [part]
        for bar, row in zip(bars, rows):
            value, theory = bar.parts.get(part), (bar.theory or {}).get(part)
            is_other = theory is not None and value != theory
            row.append((f"≠ {show(value)}", "differs") if is_other else value)
            row += [theory] if has_column else []
    if len(parts) > 1:
        head.append("sum")
        for bar, row in zip(bars, rows):
            row.append(sum(bar.parts.values()))
    return html_table(head, rows)


def span_chart(name: str, title: str, rows: list[tuple]) -> str:
    """When each was there, in steps. Each row is (label, spans, what is said of its end)."""
    last = max(end for _, spans, _ in rows for _, end in spans)
    scale, drawn = (WIDTH - 4) / last, []
    for row, (label, spans, note) in enumerate(rows):
        y = row * ROW + 20
        drawn += [
            row_words(y, label, note),
            f'<path d="M2 {y + BAR / 2}H{WIDTH - 2}" class="grid"/>',
        ]
        drawn += [
            block(2 + (a - 1) * scale, y, (b - a + 1) * scale, row, f"steps {a:,} to {b:,}")
            for a, b in spans
        ]
    texts = [
        (label, ", ".join(f"{a:,} to {b:,}" for a, b in spans), note) for label, spans, note in rows
    ]
    described = "; ".join(f"{label}: steps {steps}, {note}" for label, steps, note in texts)
    table = html_table(["", "steps", "end"], [list(text) for text in texts])
    return figure(name, title, described, len(rows) * ROW + 6, "\n".join(drawn), "", table)


def row_words(y: float, label: str, note: str) -> str:
    """Above a row; a long label loses its middle."""
    label = label if len(label) <= 34 else f"{label[:15]}…{label[-18:]}"
    return f'<text x="2" y="{y - 5}">{escape(label)}</text><text x="{WIDTH - 2}" y="{y - 5}" class="end">{escape(note)}</text>'


def block(x: float, y: float, width: float, i: int, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="url(#p{i % NUM_COLOURS})">'
        f"<title>{escape(title)}</title></rect>"
    )
