"""What checks read in the *.md files."""

import re

LINK = re.compile(r"\]\(\s*<?([^)>\s]+)>?[^)]*\)")
FENCE = re.compile(r"^\s*(```|~~~)")


def visible_lines(text: str):
    """(number, line) of what is not code."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            in_code = not in_code
        elif not in_code:
            yield number, re.sub(r"`[^`]*`", "", line)
