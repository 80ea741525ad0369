"""Curves as SVG in a page of their own. Standard library only."""

import math
from typing import NamedTuple

PANEL, HEIGHT, GAP, LEFT = (
    340,
    220,
    66,
    52,
)  # of a chart: a panel's size, between panels, and left of the first


class Curve(NamedTuple):
    name: str  # in the legend
    colour: str
    points: list  # (x, y)
    dashes: str = "none"

    def look(self):
        return f'stroke="{self.colour}" stroke-dasharray="{self.dashes}"'


class Panel(NamedTuple):
    """Where curves are drawn, and from where to where."""

    x: float
    y: float
    width: float
    height: float
    most: float  # at the right end; 0 is at the left one
    low: float
    high: float

    def place(self, x, y):
        return self.x + x / self.most * self.width, self.y + (self.high - y) / (
            self.high - self.low
        ) * self.height

    def grid(self, ticks):
        """Lines at these heights, {height: text}."""
        out = []
        for tick, text in ticks.items():
            _, y = self.place(0, tick)
            out.append(
                f'<line x1="{self.x}" y1="{y:.1f}" x2="{self.x + self.width}" y2="{y:.1f}" class="grid"/>'
            )
            out.append(words(self.x - 6, y + 5, text, "end"))
        return out

    def draw(self, curves, ticks, label, marks=None):
        """Draws lines at `ticks`; below the figure numbers, {x: text} or three of them, and what
        they are."""
        out = self.grid(ticks)
        for at, text in (
            marks or {share * self.most: f"{share * self.most:.0f}" for share in (0, 0.5, 1)}
        ).items():
            out.append(words(self.place(at, 0)[0], self.y + self.height + 20, text, "middle"))
        out.append(words(self.x + self.width / 2, self.y + self.height + 42, label, "middle"))
        for curve in curves:
            text = " ".join(
                f"{x:.1f},{y:.1f}" for x, y in (self.place(*point) for point in curve.points)
            )
            out.append(f'<polyline points="{text}" {curve.look()}/>')
        return out


def numbers(values):
    """What they are called beside a panel."""
    return {value: f"{value:g}".replace("-", "−") for value in values}


def words(x, y, text, anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def legend(curve, x, y):
    return [
        f'<path d="M{x} {y}h20" stroke-width="2" {curve.look()}/>',
        words(x + 26, y + 5, curve.name),
    ]


def swatches(rows, left, right, y, letter):
    """A legend of (look, name, whether it is a line or an area). Each row begins on a new line; a
    letter is about so wide. Returns the drawing, and how high it is."""
    top, out = y, []
    for row in filter(None, rows):
        x = left
        for look, name, is_line in row:
            width = 28 + len(name) * letter
            if x + width > right:
                x, y = left, y + 28
            out.append(
                f'<path d="M{x:.0f} {y + 8}h20" {look}/>'
                if is_line
                else f'<rect x="{x:.0f}" y="{y}" width="20" height="16" {look}/>'
            )
            out.append(words(x + 28, y + 14, name))
            x += width + 16
        y += 28
    return out, y - top


def page(width, height, title, drawn, more_style="", description="", size=""):
    style = "text{font:14px sans-serif;fill:#24292f}.grid{stroke:#999;stroke-opacity:.35}polyline{fill:none;stroke-width:2}"
    style += ".back{fill:#fbfaf7;stroke:#d8d4c9;stroke-width:2}" + more_style
    described = f"<desc>{description}</desc>" if description else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}role="img">'
        f"<title>{title}</title>{described}<style>{style}</style>\n"
        f'<rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="14" class="back"/>\n'
        + "\n".join(drawn)
        + "\n</svg>\n"
    )


class Plot(NamedTuple):
    """A panel of a chart."""

    above: str
    curves: list
    below: str
    ticks: list  # heights, of which the first is the lower end and the last the upper one
    marks: dict | None = None  # the only places that were measured, if they are few


def chart(title, plots, legend_columns=1):
    """Plots side by side; what they cannot hold is cut off. Above them the legend, which they have
    in common."""
    rows, width, out = (
        math.ceil(len(plots[0].curves) / legend_columns),
        LEFT + len(plots) * (PANEL + GAP),
        [],
    )
    top = 56 + 20 * rows
    for number, (above, curves, below, ticks, marks) in enumerate(plots):
        x, most = (
            LEFT + number * (PANEL + GAP),
            max(x for curve in curves for x, _ in curve.points) or 1,
        )
        panel = Panel(x, top, PANEL, HEIGHT, most, ticks[0], ticks[-1])
        out.append(words(x - 40, top - 14, above))
        out.append(
            f'<clipPath id="panel{number}"><rect x="{x}" y="{top - 1}" width="{PANEL}" height="{HEIGHT + 2}"/></clipPath>'
        )
        drawn = panel.draw(curves, numbers(ticks), below, marks)
        out += [
            shape.replace("<polyline", f'<polyline clip-path="url(#panel{number})"')
            for shape in drawn
        ]
        for curve in curves if marks else ():
            places = [panel.place(*point) for point in curve.points]
            out += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{curve.colour}"/>'
                for x, y in places
            ]
    for number, curve in enumerate(plots[0].curves):
        out += legend(
            curve,
            12 + number % legend_columns * (width // legend_columns),
            28 + number // legend_columns * 20,
        )
    return page(width, top + HEIGHT + 56, title, out, description=described(plots))


def described(plots):
    """Where each curve begins and ends."""
    said = []
    for plot, curve in ((plot, curve) for plot in plots for curve in plot.curves):
        first, last = (f"{y:.4g} at {x:.4g}" for x, y in (curve.points[0], curve.points[-1]))
        said.append(f"{plot.below}: {curve.name}: {first}, {last}")
    return "; ".join(said)


def halves(curves):
    """Ticks for a chart of these curves: a half apart, around all of them."""
    heights = [y for curve in curves for _, y in curve.points]
    return [
        tick / 2 for tick in range(math.floor(min(heights) * 2), math.ceil(max(heights) * 2) + 1)
    ]
