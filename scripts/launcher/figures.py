"""Curves as SVG in a page of their own. Standard library only."""

from typing import NamedTuple


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
        return self.x + x / self.most * self.width, self.y + (self.high - y) / (self.high - self.low) * self.height

    def grid(self, ticks):
        """Lines at these heights, {height: text}."""
        out = []
        for tick, text in ticks.items():
            _, y = self.place(0, tick)
            out.append(f'<line x1="{self.x}" y1="{y:.1f}" x2="{self.x + self.width}" y2="{y:.1f}" class="grid"/>')
            out.append(f'<text x="{self.x - 6}" y="{y + 5:.1f}" text-anchor="end">{text}</text>')
        return out

    def draw(self, curves, ticks, label, marks=None):
        """With lines at `ticks`; below it numbers, {x: text} or three of them, and what they are."""
        out = self.grid(ticks)
        for at, text in (marks or {share * self.most: f"{share * self.most:.0f}" for share in (0, 0.5, 1)}).items():
            out.append(f'<text x="{self.place(at, 0)[0]:.0f}" y="{self.y + self.height + 20}" text-anchor="middle">{text}</text>')
        middle, below = self.x + self.width / 2, self.y + self.height + 42
        out.append(f'<text x="{middle:.0f}" y="{below}" text-anchor="middle">{label}</text>')
        for curve in curves:
            text = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.place(*point) for point in curve.points))
            out.append(f'<polyline points="{text}" {curve.look()}/>')
        return out


def numbers(values):
    """What they are called beside a panel."""
    return {value: f"{value:g}".replace("-", "−") for value in values}


def legend(curve, x, y):
    return [f'<path d="M{x} {y}h20" stroke-width="2" {curve.look()}/>', f'<text x="{x + 26}" y="{y + 5}">{curve.name}</text>']


def page(width, height, title, drawn, more_style="", description="", size=""):
    style = "text{font:14px sans-serif;fill:#24292f}.grid{stroke:#999;stroke-opacity:.35}polyline{fill:none;stroke-width:2}"
    style += ".back{fill:#fbfaf7;stroke:#d8d4c9;stroke-width:2}" + more_style
    described = f"<desc>{description}</desc>" if description else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}role="img">'
        f"<title>{title}</title>{described}<style>{style}</style>\n"
        f'<rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="14" class="back"/>\n' + "\n".join(drawn) + "\n</svg>\n"
    )
