"""Writes tables, the numbers in them, and what stands in a page between two comments."""

import math
import sys


def digits(value: float, count: int = 3) -> str:
    """So many significant digits, or all before the point; never an exponent."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    rounded = value
    for _ in range(2):  # 999.7 becomes 1,000, which has a digit more before its point
        places = max(0, count - 1 - math.floor(math.log10(abs(rounded))))
        rounded = round(value, places)
    return f"{rounded:,.{places}f}"


def table(lines: list[list[str]], numbers_right: bool = False) -> str:
    """Markdown of these cells, the first line being the head; columns aligned, all but the first to
    the right if asked."""
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]

    def row(cells):
        aligned = [
            text.rjust(w) if i and numbers_right else text.ljust(w)
            for i, (text, w) in enumerate(zip(cells, widths))
        ]
        return "| " + " | ".join(aligned) + " |"

    rule = ["-" * (w - 1) + ":" if i and numbers_right else "-" * w for i, w in enumerate(widths)]
    return "\n".join([row(lines[0]), row(rule), *map(row, lines[1:])])


def table_of(rows, columns, numbers_right=False):
    """A line for each row, a dict. Columns are {heading: cell}: a format such as "{loss:.3f}", or a
    function of the row."""
    cells = [
        [cell.format_map(row) if isinstance(cell, str) else cell(row) for cell in columns.values()]
        for row in rows
    ]
    return table([list(columns), *cells], numbers_right)


def replaced(text, name, content, page="the page"):
    """The text of a page with this content between the two comments of this name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        sys.exit(f"{page} does not have {begin} and {end}, once each and in this order")
    return text[: text.index(begin) + len(begin)] + "\n" + content + "\n" + text[text.index(end) :]


def cells_of(text, name):
    """{first cell: {head: cell}} of the table between the two comments of this name."""
    head, _, *rows = read_table(
        text.partition(f"<!-- {name}:begin -->")[2].partition(f"<!-- {name}:end -->")[0]
    )
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def read_table(text):
    """The cells of each line: the head, the rule, the rows."""
    return [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]
