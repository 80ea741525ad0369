"""Writes tables."""


def table(lines: list[list[str]], numbers_right: bool = False) -> str:
    """Markdown of these cells, the first line being the head; columns aligned, all but the first to the right if asked."""
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]

    def row(cells):
        aligned = [text.rjust(w) if i and numbers_right else text.ljust(w) for i, (text, w) in enumerate(zip(cells, widths))]
        return "| " + " | ".join(aligned) + " |"

    rule = ["-" * (w - 1) + ":" if i and numbers_right else "-" * w for i, w in enumerate(widths)]
    return "\n".join([row(lines[0]), row(rule), *map(row, lines[1:])])
