"""Formulas as MathML, which browsers draw themselves: no script, no font, and a screen reader reads them."""

from docutils.nodes import SkipNode
from latex2mathml.converter import convert


def visit_inline(self, node):
    self.body.append(convert(node.astext(), display="inline"))
    raise SkipNode


def visit_block(self, node):
    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
